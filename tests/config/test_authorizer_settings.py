"""The settings of access control: what turns it on, and what is refused."""

import pytest

from odradek.config.authorizer import STANDARD_AUTHORIZER, access_control
from odradek.config.broker import BrokerConfig, load_broker_config
from odradek.config.definition import ConfigError

ON = {"authorizer.class.name": STANDARD_AUTHORIZER}
BOTH = {
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "controller.listener.names": "CONTROLLER",
}


def test_the_standard_authorizer() -> None:
    assert access_control(BrokerConfig({})) is None
    load_broker_config(None, {**ON, "super.users": "User:admin"})
    found = access_control(BrokerConfig({**ON, "super.users": " User:a ;; User:CN=b,O=c;Group:d"}))
    assert found is not None
    assert found.super_users == {"User:a", "User:CN=b,O=c", "Group:d"} and not found.allows_unlisted
    more = access_control(BrokerConfig({**ON, "allow.everyone.if.no.acl.found": "true"}))
    assert more is not None and more.allows_unlisted


@pytest.mark.parametrize(
    "settings",
    [
        {"authorizer.class.name": "org.example.Authorizer"},
        {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
        {**ON, "super.users": "admin"},
        {**ON, "super.users": "User:"},
        {**BOTH, "early.start.listeners": "NOWHERE"},
        {**BOTH, "early.start.listeners": "PLAINTEXT"},
        {**BOTH, "early.start.listeners": ""},
    ],
)
def test_what_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        access_control(BrokerConfig(settings))


def test_early_listeners() -> None:
    access_control(BrokerConfig({**BOTH, "early.start.listeners": "CONTROLLER"}))
    access_control(BrokerConfig({**BOTH, "early.start.listeners": "CONTROLLER, PLAINTEXT"}))
