"""Send frames to a broker in a process of its own, over sockets."""

import random
import socket
from collections.abc import Callable

from odradek.wire.frame import SIZE
from tools.fuzz.frames import Frames, Pool


def fuzz_over_sockets(bootstrap: str, count: int, seed: int, check_health: Callable[[], None]) -> int:
    """Send frames, cut anywhere, on connections that are replaced when the broker closes them; how many it closed."""
    rng = random.Random(seed)
    frames = iter(Frames(rng, Pool(rng)))
    host, _, port = bootstrap.rpartition(":")
    connection, closed = socket.create_connection((host, int(port)), 10), 0
    for number in range(count):
        frame = next(frames)
        size = (
            len(frame) if rng.random() < 0.97 else rng.choice([-1, 2**31 - 1, len(frame) - 1, len(frame) + 1])
        )
        data = SIZE.pack(size) + frame
        cut = rng.randrange(len(data))
        try:
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            connection.setblocking(False)
            while connection.recv(1 << 16):
                pass
            raise ConnectionResetError
        except BlockingIOError:
            connection.settimeout(10)
        except OSError:
            connection.close()
            connection, closed = socket.create_connection((host, int(port)), 10), closed + 1
        if number % 100 == 0:
            check_health()
    connection.close()
    return closed
