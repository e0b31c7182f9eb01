"""The limits of a server: connections, memory, idle time."""

import math
from collections.abc import Mapping
from typing import NamedTuple


class ListenerBounds(NamedTuple):
    """One listener's share of a limit for all."""

    max_connections: int
    max_new_connections_per_second: float


class Bounds(NamedTuple):
    max_frame_size: int  # socket.request.max.bytes
    max_request_memory: int  # queued.max.request.bytes
    max_connections: int
    max_connections_per_address: int
    max_idle_seconds: float  # connections.max.idle.ms
    socket_send_buffer: int  # -1: the system's own
    socket_receive_buffer: int
    max_connections_of_address: Mapping[str, int] = {}  # where it is not max_connections_per_address
    max_new_connections_per_second: float = math.inf
    of_listener: Mapping[str, ListenerBounds] = {}
    new_connections_of_address: Mapping[
        str | None, float
    ] = {}  # connection_creation_rate; None: of all others
    rate_windows: int = 11  # quota.window.num
    rate_window_ms: int = 1000
