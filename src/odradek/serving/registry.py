"""The handlers of all APIs. A module of `odradek.api` is imported when a client first uses it: a broker that starts
should not pay for APIs that are not used.

A module has a function `handle`. Its first parameter is what it works with: the facet of `Services` that the parameter
is named after, or `services` if it needs several. The request and its message follow. A module that keeps something
between requests has a class `Handler` instead, of which each road makes one.
"""

from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.apis.row import ListenerKind
from odradek.apis.table import BROKER, SERVED

if TYPE_CHECKING:
    from odradek.serving.services import Services


@cache
def module_of(api_key: int, kind: ListenerKind = BROKER) -> Any:
    return import_module(f"odradek.api.{SERVED[kind][api_key].modules[kind]}")


def new_handler(services: "Services", api_key: int, kind: ListenerKind = BROKER) -> Any:
    """Its `handle` takes a request and its message."""
    module = module_of(api_key, kind)
    if hasattr(module, "Handler"):
        return module.Handler(services)
    return Function(partial(module.handle, _needed(services, module.handle)))


def _needed(services: "Services", handle: Any) -> Any:
    name = handle.__code__.co_varnames[0]
    return services if name == "services" else getattr(services, name)


class Function:
    """The handler of an API that keeps nothing between requests."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
