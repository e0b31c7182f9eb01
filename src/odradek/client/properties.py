"""Client settings by the names that the Java client gives them.

Three kinds of property: those that we support, those without effect here (a warning says why), and those that ask for
something we cannot do (refused, with what to do instead). An unknown name causes a warning, as in
the Java client. `docs/SPARK.md` shows the tables; a test compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.client.settings import ClientSettings, FetchSettings, ProduceSettings
from odradek.records.compression import Codec

MOST_MS = 2**31 - 1  # what a request has room for
MAPPED = {
    "bootstrap.servers",
    "client.id",
    "security.protocol",
    "request.timeout.ms",
    "default.api.timeout.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "isolation.level",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.min.bytes",
    "fetch.max.wait.ms",
    "check.crcs",
    "batch.size",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "transaction.timeout.ms",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
}

IGNORED = {
    "acks": "the sink always writes with acks=all",
    "enable.idempotence": "the sink is always idempotent",
    "max.in.flight.requests.per.connection": "the sink keeps order and at most five requests in flight",
    "retries": "writes are tried again until delivery.timeout.ms",
    "linger.ms": "Spark delivers rows in batches, so there is nothing to wait for",
    "buffer.memory": "the sink buffers only the rows that Spark hands over at a time",
    "max.request.size": "the topic's max.message.bytes decides",
    "max.block.ms": "default.api.timeout.ms covers it",
    "group.id": "reading uses no group; set commitGroup to commit offsets to one",
    "max.poll.records": "records are decoded one fetch at a time",
    "max.poll.interval.ms": "reading uses no group",
    "session.timeout.ms": "reading uses no group",
    "heartbeat.interval.ms": "reading uses no group",
    "partition.assignment.strategy": "reading uses no group",
    "client.rack": "partitions are read from their leaders",
    "receive.buffer.bytes": "the system sizes socket buffers",
    "send.buffer.bytes": "the system sizes socket buffers",
    "metadata.max.age.ms": "metadata is requested when it is needed",
    "connections.max.idle.ms": "connections live as long as their worker",
    "allow.auto.create.topics": "reading never creates a topic",
    "ssl.protocol": "ssl.enabled.protocols decides",
}

REFUSED = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' instead",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; set 'commitGroup' to see them in a group",
    "interceptor.classes": "Java classes cannot run here; transform the DataFrame instead",
    "key.deserializer": "keys are read as bytes; decode them with DataFrame operations",
    "value.deserializer": "values are read as bytes; decode them with DataFrame operations",
    "key.serializer": "keys are written as bytes; encode them with DataFrame operations",
    "value.serializer": "values are written as bytes; encode them with DataFrame operations",
    "partitioner.class": "Java classes cannot run here; compute the column 'partition' instead",
    "transactional.id": "to write exactly once use odradek.spark.write_exactly_once, which makes its own; leave it out",
    "sasl.client.callback.handler.class": "Java classes cannot run here",
    "sasl.login.callback.handler.class": "Java classes cannot run here",
    "sasl.kerberos.service.name": "Kerberos is not supported; use SCRAM or OAUTHBEARER",
    "ssl.engine.factory.class": "Java classes cannot run here",
    "security.providers": "Java classes cannot run here",
}

KNOWN = MAPPED | IGNORED.keys() | REFUSED.keys()

PROTOCOLS = {  # whether with TLS, whether with SASL
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
OAUTH_HANDLERS = {
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
}
LOGIN_HANDLER = "sasl.login.callback.handler.class"


class InvalidProperty(ValueError):
    """A property that cannot be supported. The message names it, but never a value that may be secret."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


@dataclass(frozen=True, slots=True)
class Properties:
    client: ClientSettings
    fetch: FetchSettings
    produce: ProduceSettings
    ignored: dict[str, str] = field(default_factory=dict)


def parse_properties(given: Mapping[str, str]) -> Properties:
    """Settings for any use of the cluster; names as in Java, in lower case."""
    given = dict(given)
    if given.get(LOGIN_HANDLER) in OAUTH_HANDLERS:  # its function is built in
        del given[LOGIN_HANDLER]
    for name in given:
        if name in REFUSED:
            raise InvalidProperty(name, f"not supported: {REFUSED[name]}")
    reader = Reader(given)
    return Properties(
        _client_settings(reader), _fetch_settings(reader), _produce_settings(reader), _ignored(given)
    )


def _ignored(given: Mapping[str, str]) -> dict[str, str]:
    """Names without effect, and why."""
    import difflib

    reasons = {}
    for name in sorted(given.keys() - MAPPED):
        close = difflib.get_close_matches(name, MAPPED, n=1, cutoff=0.8)
        unknown = "this connector does not know it" + (f"; did you mean {close[0]}?" if close else "")
        reasons[name] = IGNORED.get(name, unknown)
    return reasons


class Reader:
    """Values by name, converted or refused."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str | None:
        value = self.given.get(name)
        return None if value is None else value.strip()

    def number(self, name: str, default: int, lowest: int = 0, highest: int | None = None) -> int:
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise InvalidProperty(name, f"{value!r} is not a whole number") from None
        if number < lowest:
            raise InvalidProperty(name, f"{number} is less than {lowest}")
        if highest is not None and number > highest:
            raise InvalidProperty(name, f"{number} is more than {highest}")
        return number

    def seconds(self, name: str, default_s: float) -> float:
        return self.number(name, int(default_s * 1000)) / 1000

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value is None:
            return default
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        raise InvalidProperty(name, f"{value!r} is not one of {', '.join(choices)}")


def _client_settings(reader: Reader) -> ClientSettings:
    protocol = reader.choice("security.protocol", "PLAINTEXT", tuple(PROTOCOLS))
    with_tls, with_sasl = PROTOCOLS[protocol]
    tls, sasl = None, None
    if with_tls or with_sasl:
        from odradek.client.security_properties import sasl_settings, tls_settings  # imported late

        tls = tls_settings(reader) if with_tls else None
        sasl = sasl_settings(reader) if with_sasl else None
    default = ClientSettings(bootstrap=())
    return ClientSettings(
        bootstrap=_addresses(reader),
        client_id=reader.text("client.id") or default.client_id,
        tls=tls,
        sasl=sasl,
        connect_timeout_s=reader.seconds("socket.connection.setup.timeout.ms", default.connect_timeout_s),
        request_timeout_s=reader.seconds("request.timeout.ms", default.request_timeout_s),
        api_timeout_s=reader.seconds("default.api.timeout.ms", default.api_timeout_s),
        retry_backoff_s=reader.seconds("retry.backoff.ms", default.retry_backoff_s),
    )


def _addresses(reader: Reader) -> tuple[tuple[str, int], ...]:
    name = "bootstrap.servers"
    parts = [part.strip() for part in (reader.text(name) or "").split(",") if part.strip()]
    if not parts:
        import difflib

        close = difflib.get_close_matches(name, reader.given, n=1)
        hint = f"; did you mean that by {close[0]!r}?" if close else ""
        raise InvalidProperty(name, f"must be given, for example 'localhost:9092'{hint}")
    addresses = []
    for part in parts:
        host, _, port = part.rpartition("://")[2].rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidProperty(name, f"{part!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)


def _fetch_settings(reader: Reader) -> FetchSettings:
    default = FetchSettings()
    per_partition = reader.number("max.partition.fetch.bytes", default.max_bytes, lowest=1)
    return FetchSettings(
        max_bytes=min(per_partition, reader.number("fetch.max.bytes", per_partition, lowest=1)),
        min_bytes=reader.number("fetch.min.bytes", default.min_bytes),
        max_wait_ms=reader.number("fetch.max.wait.ms", default.max_wait_ms),
        read_committed=reader.choice(
            "isolation.level", "read_uncommitted", ("read_uncommitted", "read_committed")
        )
        == "read_committed",
        check_crc=reader.choice("check.crcs", "true", ("true", "false")) == "true",
    )


def _produce_settings(reader: Reader) -> ProduceSettings:
    default = ProduceSettings()
    codec_name = reader.choice("compression.type", "none", tuple(CODECS))
    level_name = f"compression.{codec_name}.level"
    level = reader.number(level_name, 0, lowest=-(2**31)) if reader.text(level_name) else None
    return ProduceSettings(
        batch_bytes=reader.number("batch.size", default.batch_bytes, lowest=1),
        codec=CODECS[codec_name],
        compression_level=level,
        delivery_timeout_s=reader.seconds("delivery.timeout.ms", default.delivery_timeout_s),
        request_timeout_ms=reader.number("request.timeout.ms", default.request_timeout_ms),
        transaction_timeout_ms=reader.number(
            "transaction.timeout.ms", default.transaction_timeout_ms, lowest=1, highest=MOST_MS
        ),
    )
