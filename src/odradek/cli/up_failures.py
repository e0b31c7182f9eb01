"""Why a node cannot start, in one line: ports in use, files in the way, a full disk."""

import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

FAILED = 1


def fail(message: str, status: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status


def reason_of(error: OSError, config: "BrokerConfig") -> str:
    if error.errno == errno.EADDRINUSE:
        return port_in_use(error, config)
    if error.errno == errno.ENOSPC:
        return f"no space left on the disk of {config.log_dirs[0]}: make room, and start the broker again"
    return words_of(error)


def words_of(error: OSError) -> str:
    """A failure of the file system, in words."""
    if not error.filename:
        return error.strerror or str(error)
    path = Path(os.fsdecode(error.filename))
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        in_the_way = next((one for one in (path, *path.parents) if one.is_file()), None)
        if in_the_way is not None:
            return f"{in_the_way} is a file, not a directory: name a directory with --data-dir"
    return f"{path}: {error.strerror}"


def check_ports(config: "BrokerConfig") -> None:
    """Raise OSError if a port is in use, before a new data directory is formatted for a broker that cannot start."""
    if (config.log_dirs[0] / "meta.properties").exists():
        return
    from odradek.cli.up_ports import is_in_use

    places = [(one.host, one.port) for one in config.listeners]
    if config.metrics_listener is not None:
        places.append((config.metrics_listener.host, config.metrics_listener.port))
    for host, port in places:
        if port and is_in_use(host, port):
            raise OSError(errno.EADDRINUSE, f"{host}:{port}: in use")


def port_in_use(error: OSError, config: "BrokerConfig") -> str:
    """The listener that the error names in its text."""
    ports = [listener.port for listener in config.listeners]
    if config.metrics_listener is not None:
        ports.append(config.metrics_listener.port)
    port = next((port for port in ports if f":{port}:" in str(error)), ports[0])
    is_controllers = port in [listener.port for listener in config.controller_listeners]
    choice = "another in listeners" if is_controllers else "another with --port (0: any)"
    if config.metrics_listener is not None and port == config.metrics_listener.port:
        choice = "another in metrics.listener"
    from odradek.cli.up_ports import by_process

    return f"port {port} is in use{by_process(port)}: stop the process that listens there, or choose {choice}"
