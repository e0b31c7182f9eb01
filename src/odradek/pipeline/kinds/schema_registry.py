"""A schema registry, by confluent-kafka's client: the id of the schema that a topic's values name.

`registry` may have a user and a password, which must come from a variable: `http://${USER}:${PASSWORD}@registry:8081`.
"""

import importlib
from dataclasses import dataclass
from typing import Any

from odradek.pipeline.file.definition import AvroOutput, Pipeline
from odradek.pipeline.file.document import Key
from odradek.pipeline.file.errors import PipelineError, Unreachable

NOT_FOUND, TOO_MANY, BROKEN = 404, 429, 500
NO_REGISTRY = -1  # the client's own code, for what no registry says
FRAME_MARK = b"\0"
HOW_TO_INSTALL = "pip install '.[avro]' in a clone of Odradek"


@dataclass(frozen=True)
class RegisteredSchema:
    text: str
    number: int

    @property
    def header(self) -> bytes:
        """The first bytes of a value, which name its schema."""
        return FRAME_MARK + self.number.to_bytes(4, "big")


def check_installed(pipeline: Pipeline, key: Key, output: AvroOutput) -> None:
    """A plain confluent-kafka has the registry's client, but not what that imports."""
    for module in ("fastavro", "confluent_kafka.schema_registry")[: 2 if output.registry else 1]:
        try:
            importlib.import_module(module)
        except ImportError:
            raise pipeline.error((*key, "format"), f"{module} is not installed: {HOW_TO_INSTALL}") from None


class Registry:
    """`PipelineError` for everything that it refuses, `Unreachable` if it does not respond."""

    def __init__(self, pipeline: Pipeline, key: Key, output: AvroOutput) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        self._pipeline, self._key, self._output = pipeline, key, output
        self._client = SchemaRegistryClient({"url": output.registry, "timeout": 10, "max.retries": 1})

    def newest(self) -> RegisteredSchema:
        """The newest schema of the subject."""
        found = self._ask(lambda: self._client.get_latest_version(self._output.subject))
        if found is None:
            raise self._refusal(
                f"the registry has no subject '{self._output.subject}': give a schema and register = true, or "
                "register one"
            )
        return RegisteredSchema(found.schema.schema_str, found.schema_id)

    def find(self, text: str) -> RegisteredSchema | None:
        """The schema, if the subject has it."""
        found = self._ask(lambda: self._client.lookup_schema(self._output.subject, _schema(text)))
        return None if found is None else RegisteredSchema(text, found.schema_id)

    def register(self, text: str) -> RegisteredSchema:
        number = self._ask(lambda: self._client.register_schema(self._output.subject, _schema(text)))
        if number is None:
            raise self._refusal(
                f"the registry does not register schemas of '{self._output.subject}' (HTTP 404)"
            )
        return RegisteredSchema(text, number)

    def check(self, text: str) -> None:
        """`PipelineError` if the schema is not there, and may not be registered."""
        if self.find(text) is not None:
            return
        subject = self._output.subject
        if not self._output.registers:
            raise self._refusal(
                f"the subject '{subject}' does not have this schema: set register = true, or register it"
            )
        fits = self._ask(lambda: self._client.test_compatibility(subject, _schema(text)))
        if fits is False:
            raise self._refusal(
                f"the schema is not compatible with the newest one of '{subject}': change the columns"
            )

    def _ask(self, work: Any) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return work()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == NOT_FOUND and error.error_code != NO_REGISTRY:
                return None
            if status == NOT_FOUND:
                raise self._refusal(
                    "there is no registry at this address (HTTP 404): check its path"
                ) from None
            if status == TOO_MANY or status >= BROKEN:
                raise self._away(f"HTTP {status}") from None
            raise self._refusal(f"the registry refuses (HTTP {status}): {error.error_message}") from None
        except Exception as error:
            raise self._away(str(error).splitlines()[0] if str(error) else type(error).__name__) from None

    def _away(self, reason: str) -> Unreachable:
        """Without the password, which the client's errors may have."""
        reason = reason.replace(self._output.registry, "its URL")
        problem = f"the registry does not respond: {reason}"
        return self._pipeline.document.unreachable((*self._key, "registry"), problem)

    def _refusal(self, problem: str) -> PipelineError:
        return self._pipeline.error((*self._key, "registry"), problem)


def _schema(text: str) -> Any:
    from confluent_kafka.schema_registry import Schema

    return Schema(text, "AVRO")
