"""How log lines name requests and their clients."""

from typing import TYPE_CHECKING, Any

from odradek.requests.session import ANONYMOUS, Principal
from odradek.wire.messages.index import SCHEMAS
from odradek.wording import one_line, shown

if TYPE_CHECKING:
    from odradek.requests.request import Request


def name_of(api_key: int, version: int) -> str:
    """CreateTopics v7"""
    return f"{api_name(api_key)} v{version}"


def api_name(api_key: int) -> str:
    schema = SCHEMAS.get(api_key)
    return schema.name if schema is not None else f"api key {api_key}"


def sender_of(request: "Request") -> str:
    return sender(request.client_address, request.client_id, request.principal)


def sender(address: str, client_id: str | None, principal: Principal | str = ANONYMOUS) -> str:
    """127.0.0.1:1234 (client "x"), and its principal if it has authenticated"""
    name = "" if str(principal) == str(ANONYMOUS) else f", {one_line(str(principal), 100)}"
    return f"{address} (client {shown(client_id)}{name})"


def request_fields(request: "Request") -> dict[str, Any]:
    """Fields of a log line about a request."""
    return {
        "api": api_name(request.api_key),
        "version": request.version,
        "client": request.client_id,
        "address": request.client_address,
        "principal": str(request.principal),
    }
