"""Names of requests and their clients in log lines."""

from typing import TYPE_CHECKING, Any

from odradek.apis.table import api_name
from odradek.model import ANONYMOUS, Caller
from odradek.wording import one_line, shown

if TYPE_CHECKING:
    from odradek.serving.request import Request


def sender_of(request: "Request") -> str:
    return sender(request.caller)


def sender(caller: Caller) -> str:
    """127.0.0.1:1234 (client "x"), and its principal if it has authenticated"""
    if caller.is_node:
        return f"{caller.client_id} itself"
    name = "" if caller.principal == ANONYMOUS else f", {one_line(str(caller.principal), 100)}"
    return f"{caller.address} (client {shown(caller.client_id)}{name})"


def request_fields(request: "Request") -> dict[str, Any]:
    """Fields of a log line about a request."""
    return {
        "api": api_name(request.api_key),
        "version": request.version,
        "client": request.caller.client_id,
        "address": request.caller.address,
        "principal": str(request.caller.principal),
    }
