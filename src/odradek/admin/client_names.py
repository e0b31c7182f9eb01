"""One table of the settings that Java's clients and librdkafka call differently, read in both directions.

A `client.properties` for Kafka's own tools should work with ours, too, and so should settings that were written for
librdkafka. Most names are the same. Those that librdkafka does not know at all (serializers, poll sizes) are dropped
where its client is made (`access`), with a warning, as Java does with names it does not know.
"""

import re
from collections.abc import Mapping
from pathlib import Path

# Java's name, and librdkafka's.
NAMES = (
    ("buffer.memory", "queue.buffering.max.kbytes"),
    ("fetch.max.wait.ms", "fetch.wait.max.ms"),
    ("sasl.mechanism", "sasl.mechanisms"),
    ("ssl.truststore.certificates", "ssl.ca.pem"),
    ("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
    ("ssl.keystore.key", "ssl.key.pem"),
)
# librdkafka takes files, where Java takes their content.
FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
LIBRDKAFKAS = {java: other for java, other in NAMES if java != "sasl.mechanism"}  # it knows that one, too
JAVAS = {other: java for java, other in NAMES if other.startswith(("sasl.", "ssl."))}
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
            translated[LIBRDKAFKAS[name]] = str(max(1, int(value) // 1024))
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value or "none"
        else:
            translated[LIBRDKAFKAS.get(name, name)] = value
    return translated


def _jaas_credentials(entry: str) -> dict[str, str]:
    return {
        f"sasl.{name}": double_quoted or single_quoted or bare
        for name, double_quoted, single_quoted, bare in JAAS_ENTRY.findall(entry)
    }


def to_java(given: Mapping[str, str]) -> dict[str, str]:
    """The same settings as Java calls them, as far as they concern the connection to a broker. Raises OSError for a
    file that cannot be read."""
    settings = {JAVAS.get(name, name): value for name, value in given.items()}
    for name, java_name in FILES.items():
        if name in given:
            settings[java_name] = Path(given[name]).read_text()
    if "sasl.username" in given and "sasl.jaas.config" not in given:
        user, password = (_quoted(given.get(f"sasl.{name}", "")) for name in ("username", "password"))
        settings["sasl.jaas.config"] = f"Login required username={user} password={password};"
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        settings["ssl.endpoint.identification.algorithm"] = ""
    return settings


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
