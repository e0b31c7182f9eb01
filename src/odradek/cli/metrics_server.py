"""`--metrics-port`: the numbers of a process for Prometheus, while the command runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from odradek.cli.failures import CommandError
from odradek.cli.framework import Option

MetricsPort = Annotated[
    int | None,
    Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve Prometheus metrics here; 0 lets the system choose.",
    ),
]
MetricsHost = Annotated[str, Option("--metrics-host", metavar="HOST", help="Address for --metrics-port.")]


@contextmanager
def metrics_served(
    text: Callable[[], str], port: int | None, host: str = "127.0.0.1"
) -> Iterator[str | None]:
    """Yields their URL; None without a port."""
    if port is None:
        yield None
        return
    from odradek.exposition import serve

    try:
        server = serve(text, host, port)
    except OSError as error:
        raise CommandError(
            f"cannot serve metrics at {host}:{port}: {error.strerror}. Choose another port; 0 lets the system choose"
        ) from None
    bound_host, bound_port = server.server_address[:2]
    try:
        yield f"http://{bound_host!s}:{bound_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
