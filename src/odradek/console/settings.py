"""The settings that a console is started with, and what is refused: an address that others reach needs TLS and a
login.
"""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from odradek.admin.access import Access
from odradek.admin.failures import AdminError

DEFAULT_PORT = 8090
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ConsoleSettings:
    clusters: dict[str, Access]  # by the name that pages show
    host: str = "localhost"
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()  # names besides `host` by which browsers reach it
    users_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    read_only: bool = False
    audit_file: Path | None = None
    schema_registry: str | None = None
    client_settings: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that a request may name; any other is a page that tricked a browser (DNS rebinding)."""
        names = {self.host.strip("[]").lower(), *(one.strip("[]").lower() for one in self.allowed_hosts)}
        return frozenset(names | set(LOOPBACK_NAMES) if is_loopback(self.host) else names)

    def check(self) -> None:
        """Raise AdminError for settings that would open the cluster to strangers."""
        if (self.certificate is None) != (self.key is None):
            raise AdminError("TLS needs both --tls-certificate and --tls-key")
        if is_loopback(self.host):
            return
        missing = [
            option
            for option, value in (("--tls-certificate", self.certificate), ("--users", self.users_file))
            if value is None
        ]
        if missing:
            raise AdminError(
                f"{self.host} can be reached by others, so the console needs TLS and a login there: add "
                f"{' and '.join(missing)}, or listen on localhost"
            )


def is_loopback(host: str) -> bool:
    host = host.strip("[]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
