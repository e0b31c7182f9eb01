"""A protected node alone becomes a cluster of three: `up --join` and `cluster grow` with certificates and passwords."""

from pathlib import Path

import pytest

from odradek.cli.certificates import issue, new_authority
from odradek.security.jaas import PLAIN
from tests.processes.joining import JoinedBroker, command, told
from tests.processes.nodes import free_ports
from tests.security_cluster import ConfiguredBroker
from tests.support import START_TIMEOUT_S

USERS = f'{PLAIN} required username="node" password="secret" user_node="secret";'


class JoinedByFile(JoinedBroker):
    """A node whose settings, with its secrets, are in a file."""

    def __init__(self, data_dir: Path, settings, cluster: str) -> None:
        super().__init__(data_dir, {}, cluster)
        self.file = data_dir.with_name(f"{data_dir.name}.properties")
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self, port: str) -> list[str]:
        given = super().command(port)
        place = given.index("--port")
        return [*given[:place], *given[place + 2 :], "--config", str(self.file)]


def settings_of(home: Path, name: str, controllers: str) -> dict[str, str]:
    clients, own = free_ports(2)
    protection = {
        "SSL": {"listener.name.controller.ssl.client.auth": "required"},
        "SASL_SSL": {"listener.name.controller.plain.sasl.jaas.config": USERS},
    }
    issue(home, name, ["localhost"])
    return {
        "listeners": f"CLIENTS://localhost:{clients},CONTROLLER://localhost:{own}",
        "listener.security.protocol.map": f"CLIENTS:SASL_SSL,CONTROLLER:{controllers}",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        "ssl.keystore.location": f"{home}/{name}.pem",
        "ssl.truststore.location": f"{home}/ca.pem",
        "listener.name.clients.plain.sasl.jaas.config": USERS,
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        **protection[controllers],
    }


def client_file(home: Path, **more: str) -> str:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="node" password="secret";',
        "ssl.truststore.location": f"{home}/ca.pem",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    file = home / f"client-{len(more)}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


@pytest.mark.parametrize("controllers", ["SSL", "SASL_SSL"])
def test_a_protected_node_grows_to_three(tmp_path, controllers):
    """Controllers know each other by certificates, or by PLAIN."""
    new_authority(tmp_path)
    first = ConfiguredBroker(
        tmp_path / "first",
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            **settings_of(tmp_path, "node-1", controllers),
        },
    )
    running = [first]
    try:
        first.start()
        for number in (2, 3):
            own = settings_of(tmp_path, f"node-{number}", controllers)
            node = JoinedByFile(tmp_path / f"node{number}", own, first.bootstrap)
            running.append(node)
            node.start()
        issue(tmp_path, "operator", [])
        login = ["-b", first.bootstrap, "--command-config", client_file(tmp_path)]
        keystore = f"{tmp_path}/operator.pem"
        to_controllers = client_file(tmp_path, security_protocol=controllers, ssl_keystore_location=keystore)
        done = told(
            *("cluster", "grow", "--brokers", "3", "--timeout", str(START_TIMEOUT_S), *login),
            *("--controller-config", to_controllers),
        )
        assert (done["brokers"], done["replication_factor"]) == ([1, 2, 3], 3)
        described = command("quorum", "describe", *login)
        assert described.returncode == 0, described.stderr
        quorum = told("quorum", "describe", *login)
        assert sorted(one["node"] for one in quorum["voters"]) == [1, 2, 3], quorum
    finally:
        for node in running:
            node.kill()
