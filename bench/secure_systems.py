"""The systems of `bench.security`: a node of Odradek and one of Apache Kafka, with a listener that is protected."""

from pathlib import Path
from typing import Any

from bench.systems import Kafka, KafkaProtocolSystem, OdradekCluster
from tools.peer.kafka import free_port

USER, PASSWORD = "ada", "correct horse"
TOPIC = "load"
# A client still has to send what it has queued when the time is over: with a long queue, a slow server takes minutes.
SMALL_QUEUE = {"queue.buffering.max.messages": "20000"}


class Secure(KafkaProtocolSystem):
    """One node with a listener for the harness, and one with SCRAM that is measured. With TLS, its certificates must be
    in `certificates` before it starts."""

    protocol = "SASL_SSL"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.secure_port = free_port()
        self.certificates = scratch / "certificates"

    def _properties(self, node: int) -> str:
        text: str = super()._properties(node)  # type: ignore[misc]
        place = f"PLAINTEXT://127.0.0.1:{self.ports[0]},"
        text = text.replace(place, f"{place}SECURE://127.0.0.1:{self.secure_port},")
        text = text.replace("=PLAINTEXT:PLAINTEXT,", f"=PLAINTEXT:PLAINTEXT,SECURE:{self.protocol},")
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        text += (
            "inter.broker.listener.name=PLAINTEXT\n"
            "sasl.enabled.mechanisms=SCRAM-SHA-256\n"
            f"listener.name.secure.scram-sha-256.sasl.jaas.config={module}\n"
        )
        if self.protocol != "SASL_SSL":
            return text
        return text + (
            f"ssl.keystore.type=PEM\nssl.keystore.location={self.certificates}/broker.pem\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.certificates}/ca.pem\n"
        )

    def format_command(self, properties: Path, cluster: str, voters: str) -> list[str]:
        command: list[str] = super().format_command(properties, cluster, voters)  # type: ignore[misc]
        return [*command, "--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]

    def secure_load(self, mode: str, **arguments: object) -> dict[str, Any]:
        login = {
            "bootstrap": f"127.0.0.1:{self.secure_port}",
            "security.protocol": self.protocol,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        if self.protocol == "SASL_SSL":
            login["ssl.ca.location"] = f"{self.certificates}/ca.pem"
        return self.load(mode, **(login | arguments))


class SecureOdradek(Secure, OdradekCluster):
    name = "odradek-secure"
    title = "Odradek"
    settings = {"log.sync.commit": "false"}
    properties = ""
    node_count = 1

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)


class SecureKafka(Secure, Kafka):
    name = "kafka-secure"
    title = "Apache Kafka"
