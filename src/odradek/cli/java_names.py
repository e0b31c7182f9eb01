"""Client settings by Java's names, in librdkafka's.

A `client.properties` for Kafka's own tools should work with ours, too. Most names are
the same in librdkafka. Those that differ are translated here; those that librdkafka does not know at all
(serializers, poll sizes) are dropped by `clients.build`, with a warning, as Java does with names it does
not know.
"""

import re
from collections.abc import Mapping

RENAMED = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
JAAS_ENTRY = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


def to_librdkafka(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings as librdkafka calls them."""
    translated: dict[str, str] = {}
    for name, value in settings.items():
        if name == "sasl.jaas.config":
            translated |= _jaas_credentials(value)
        elif name == "ssl.truststore.location" and settings.get("ssl.truststore.type", "").upper() == "PEM":
            translated["ssl.ca.location"] = value
        elif name == "ssl.truststore.type":
            continue
        elif name == "buffer.memory":
            translated[RENAMED[name]] = str(max(1, int(value) // 1024))
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value or "none"
        else:
            translated[RENAMED.get(name, name)] = value
    return translated


def _jaas_credentials(entry: str) -> dict[str, str]:
    return {
        f"sasl.{name}": double_quoted or single_quoted or bare
        for name, double_quoted, single_quoted, bare in JAAS_ENTRY.findall(entry)
    }
