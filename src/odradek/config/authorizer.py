"""Read access control from the settings: whether there is any, and who may do everything.

`early.start.listeners` names the listeners that may open before the ACLs are known. The controllers' do by default, and
must, because the quorum that knows the ACLs is formed there; brokers open theirs when they are ready,
which is later.
"""

from typing import TYPE_CHECKING, NamedTuple

from odradek.config.definition import ConfigError

if TYPE_CHECKING:
    from odradek.config.broker import BrokerConfig

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLASS, SUPER_USERS, EVERYONE = "authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"
EARLY = "early.start.listeners"


class AccessControl(NamedTuple):
    super_users: frozenset[str]  # as Kafka writes principals: User:alice
    allows_unlisted: bool  # what has no ACL is open to all


def access_control(config: "BrokerConfig") -> AccessControl | None:
    """Return the access control; None if everybody may do everything. Raises ConfigError."""
    name = config[CLASS].strip()
    _check_early_listeners(config)
    if not name:
        return None
    if name != STANDARD_AUTHORIZER:
        raise ConfigError(
            CLASS, name, f"this broker has no Java classes, and of Kafka's authorizers {STANDARD_AUTHORIZER}"
        )
    return AccessControl(parse_principals(config[SUPER_USERS]), config[EVERYONE])


def parse_principals(text: str) -> frozenset[str]:
    """Principals, separated by semicolons, because the name of a certificate has commas."""
    principals = frozenset(item.strip() for item in text.split(";") if item.strip())
    for principal in principals:
        kind, colon, name = principal.partition(":")
        if not kind or not colon or not name:
            raise ConfigError(
                SUPER_USERS, text, f"{principal!r} is not a principal: write its type too, User:{principal}"
            )
    return principals


def _check_early_listeners(config: "BrokerConfig") -> None:
    text = config[EARLY]
    if text is None:
        return
    early = {name.strip() for name in text.split(",") if name.strip()}
    unknown = early - {listener.name for listener in config.listeners}
    if unknown:
        raise ConfigError(EARLY, text, f"{', '.join(sorted(unknown))}: there is no such listener")
    late = [listener.name for listener in config.controller_listeners if listener.name not in early]
    if late:
        raise ConfigError(
            EARLY,
            text,
            f"{', '.join(late)}: a controller's listener must open early, because the quorum that knows the ACLs is "
            "formed there",
        )
