"""Run a console until it is asked to stop."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from odradek.admin.failures import AdminError
from odradek.console.app import build_app
from odradek.console.settings import ConsoleSettings

STOP_TIMEOUT_S = 3
MOST_CONNECTIONS = 1_000


def serve(settings: ConsoleSettings, announce: Callable[[str], None]) -> None:
    """`announce` is called with the address once connections are accepted."""
    app = build_app(settings)
    listening = listen(settings.host, settings.port)
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,  # anybody may send X-Forwarded-For, and addresses count failed logins
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
        h11_max_incomplete_event_size=32 * 1024,
        ssl_certfile=str(settings.certificate) if settings.certificate else None,
        ssl_keyfile=str(settings.key) if settings.key else None,
    )
    scheme = "https" if settings.has_tls else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    server = _Server(config, lambda: announce(f"{scheme}://{host}:{port}/"), app.state.console.hub.close)
    server.run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host.strip("[]"), port), family=_family(host, port))
    except OSError as error:
        raise AdminError(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}; "
            "choose another port with --port (0: any)"
        ) from None


def _family(host: str, port: int) -> socket.AddressFamily:
    return socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0][0]


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready, self._stopping = ready, stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Both signals end it, and that is a success: uvicorn would send itself the signal once more."""
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping()  # streams end, so that nobody waits for them
        await super().shutdown(sockets)
