"""Three protected nodes in processes of their own: certificates between them, TLS and passwords for clients.

    with secure_nodes(tmp_path) as nodes:
        nodes.rotate("ada", "another password")
        nodes.renew(nodes.by_id[2])

Brokers and controllers show certificates to each other (`NODES`, `CONTROLLER`); clients log in with SCRAM (`CLIENTS`).
The nodes and `admin` may do everything, others what ACLs allow (`nodes.acl`).
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.admin.access import Access
from odradek.admin.users import set_password
from odradek.cli.certificates import issue, new_authority
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.security.credentials import DEFAULT_ITERATIONS
from odradek.testing import Login
from tests.processes.nodes import free_ports
from tests.security_cluster import ConfiguredBroker
from tests.support import run_command

NODE_IDS = (1, 2, 3)
ADMIN, ADMIN_PASSWORD = "admin", "admin-password"
MECHANISM = "SCRAM-SHA-512"
HOSTS = ["localhost", "127.0.0.1"]


class SecureNode(ConfiguredBroker):
    """One of them. `is_paused`: it is there and does nothing."""

    def __init__(self, node_id: int, home: Path, settings: dict[str, str]) -> None:
        super().__init__(home / f"node{node_id}", settings)
        self.id = node_id

    def start(self) -> None:
        self.launch()
        self._first_line()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class SecureNodes:
    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        new_authority(home)
        (home / "password").write_text(ADMIN_PASSWORD)
        self._ports = dict(zip(NODE_IDS, zip(*[iter(free_ports(9))] * 3, strict=True), strict=True))
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.by_id = {one: SecureNode(one, home, self._settings_of(one) | named) for one in NODE_IDS}
        for node in self:
            issue(home, f"node-{node.id}", HOSTS)

    def __iter__(self) -> Iterator[SecureNode]:
        return iter(self.by_id.values())

    def _settings_of(self, node: int) -> dict[str, str]:
        clients, nodes, controllers = self._ports[node]
        return {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "listeners": (
                f"CLIENTS://localhost:{clients},NODES://localhost:{nodes},CONTROLLER://localhost:{controllers}"
            ),
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "NODES",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(
                f"localhost:{ports[2]}" for ports in self._ports.values()
            ),
            "ssl.client.auth": "required",
            "ssl.keystore.location": f"{self.home}/node-{node}.pem",
            "ssl.truststore.location": f"{self.home}/ca.pem",
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": ";".join([f"User:{ADMIN}", *(f"User:CN=node-{each}" for each in NODE_IDS)]),
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address_of, NODE_IDS))

    def address_of(self, node_id: int) -> str:
        """Return where clients find this node."""
        return f"localhost:{self._ports[node_id][0]}"

    def client_file(self, login: Login) -> Path:
        """The settings of this user, for commands."""
        file = self.home / f"{login.username}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in login.java.items()))
        return file

    def acl(self, *arguments: str) -> None:
        """`odradek acl`, as the administrator."""
        file = str(self.client_file(self.login()))
        done = run_command("acl", *arguments, "-b", self.bootstrap, "--command-config", file)
        assert done.returncode == 0, done.stderr

    def login(self, user: str = ADMIN, password: str = ADMIN_PASSWORD) -> Login:
        return Login("SASL_SSL", MECHANISM, user, password, f"{self.home}/ca.pem")

    def format(self) -> None:
        cluster_id, *directories = (run_command("random-uuid").stdout.strip() for _ in range(4))
        voters = ",".join(
            f"{node}@localhost:{self._ports[node][2]}:{directory}"
            for node, directory in zip(NODE_IDS, directories, strict=True)
        )
        user = f"{MECHANISM}=[name={ADMIN},password-file={self.home}/password]"
        for node in self:
            done = run_command(
                *("format", "-c", str(node.file), "--data-dir", str(node.data_dir), "-t", cluster_id),
                *("-I", voters, "--add-scram", user),
            )
            assert done.returncode == 0, done.stderr

    def start(self, *nodes: SecureNode) -> None:
        for node in nodes or self:
            node.launch()
        for node in nodes or self:
            node._first_line()

    def rotate(self, user: str, password: str) -> Login:
        """Give a user another password, or add it."""
        cluster = Access(self.bootstrap, self.login().java)
        try:
            set_password(cluster, user, MECHANISM, password, DEFAULT_ITERATIONS)
        finally:
            for kept in cluster.kept.values():
                kept.connection.close()
        return self.login(user, password)

    def renew(self, node: SecureNode) -> None:
        """A new certificate in its place, whole at once."""
        name = f"node-{node.id}"
        before = self.home / f"{name}.pem"
        again = self.home / "again"
        again.mkdir(exist_ok=True)
        for file in ("ca.pem", "ca.key"):
            if not (again / file).exists():
                (again / file).write_bytes((self.home / file).read_bytes())
        (again / f"{name}.pem").unlink(missing_ok=True)
        os.replace(issue(again, name, HOSTS), before)


@contextmanager
def secure_nodes(home: Path, **settings: str) -> Iterator[SecureNodes]:
    nodes = SecureNodes(home, **settings)
    try:
        nodes.format()
        nodes.start()
        yield nodes
    finally:
        for node in nodes:
            if hasattr(node, "process"):
                node.resume() if node.process.poll() is None else None
                node.kill()
