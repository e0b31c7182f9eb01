"""librdkafka's Python, imported when something of it is used for the first time.

It takes a quarter of the time that a command needs to start, and completion in the shell can do without.
"""

from importlib import import_module
from typing import Any


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


kafka: Any = _Module("confluent_kafka")
kafka_admin: Any = _Module("confluent_kafka.admin")
