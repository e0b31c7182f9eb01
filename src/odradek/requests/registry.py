"""The handlers of all APIs. A module of `odradek.api` is imported when a client first uses it: a broker that starts
should not pay for APIs that are not used."""

from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from typing import Any

from odradek.apis.row import ListenerKind
from odradek.apis.table import BROKER, SERVED
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.codec import Message, Steps

HandlerResult = Message | Coroutine[Any, Any, Message | None] | None
Handler = Callable[[Services, Request, Any], HandlerResult | Steps[HandlerResult]]


@cache
def module_of(api_key: int, kind: ListenerKind = BROKER) -> Any:
    return import_module(f"odradek.api.{SERVED[kind][api_key].modules[kind]}")


def handler(api_key: int, kind: ListenerKind = BROKER) -> Handler:
    handle: Handler = module_of(api_key, kind).handle
    return handle
