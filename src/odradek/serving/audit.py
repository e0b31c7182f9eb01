"""The audit log: who was refused for want of access, who failed to log in, and who changed users, ACLs and quotas.

It has a logger of its own, `odradek.audit`, so that its lines can go elsewhere. A line says who (principal and client
id), what, and from where, in words and in fields. Secrets are never in it: a credential is named by its user and
mechanism. Refusals may repeat quickly, so repeats are counted (`host.repeats`); changes are all written.

Changes are written by the active controller once they are committed, with the caller of the request, which may have
come through another broker. `controller.changes` describes records; one that it marks `is_audited` comes here.
"""

import logging

from odradek.errors import ErrorCode
from odradek.host.log_lines import counted, fields
from odradek.model import Caller
from odradek.serving.naming import sender
from odradek.wording import one_line

log = logging.getLogger("odradek.audit")

MAX_REASON, MAX_NAME = 300, 100  # characters

# Refusals for want of access.
DENIALS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


def source(caller: Caller) -> str:
    """Return who repeats a line: users of the same machine have counts of their own."""
    return f"{one_line(str(caller.principal), MAX_NAME)} at {caller.host}"


def login_failed(caller: Caller, reason: str) -> None:
    """A client did not authenticate; its connection is closed."""
    reason = one_line(reason, MAX_REASON)
    counted(
        log,
        logging.WARNING,
        caller.host,
        f"authentication failed: {reason}",
        "refused %s on listener %s: authentication failed: %s",
        sender(caller),
        caller.listener,
        reason,
        event="login",
        client=caller.client_id,
        address=caller.address,
        listener=caller.listener,
    )


def changed(caller: Caller, text: str, named: dict[str, object]) -> None:
    """A committed change of users, ACLs or quotas. `text`: "set …", after who did it."""
    about = {"principal": str(caller.principal), "client": caller.client_id, "address": caller.address}
    log.info("%s %s", sender(caller), text, extra=fields(event="change", **about, **named))
