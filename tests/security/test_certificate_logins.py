"""Tests of who a client is by its certificate, and what is said if its name maps to nobody."""

import logging
import ssl
from datetime import UTC, datetime

import pytest

from odradek.config.broker import BrokerConfig
from odradek.metadata.image import MetadataImage
from odradek.model import ANONYMOUS, Caller, Principal
from odradek.security.authority import new_authority
from odradek.services.cluster.authentication import Authentication

AUTHORITY = new_authority("clients", datetime.now(UTC))
BROKER = AUTHORITY.issue("broker", ["localhost"], datetime.now(UTC))
CALLER = Caller(ANONYMOUS, "10.0.0.1:5", "CLIENTS")


def logins(rules: str) -> Authentication:
    settings = {
        "listeners": "CLIENTS://localhost:0",
        "listener.security.protocol.map": "CLIENTS:SSL",
        "inter.broker.listener.name": "CLIENTS",
        "ssl.keystore.key": BROKER.key,
        "ssl.keystore.certificate.chain": BROKER.certificate,
        "ssl.truststore.certificates": AUTHORITY.pem.certificate,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": rules,
    }
    host: object = None  # neither time nor chance is asked for
    return Authentication(BrokerConfig(settings), host, lambda: MetadataImage("c"), lambda size: bytes(size))  # type: ignore[arg-type]


def certificate(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(AUTHORITY.issue(name, [], datetime.now(UTC)).certificate)


def test_a_certificate_names_its_user() -> None:
    session = logins("RULE:^CN=([a-z]+)$/$1/U,DEFAULT").new_session
    assert session(CALLER, certificate("ada")).caller.principal == Principal("User", "ADA")
    assert session(CALLER, certificate("x 1")).caller.principal == Principal("User", "CN=x 1")
    assert session(CALLER, None).caller.principal == ANONYMOUS


def test_a_name_that_maps_to_nobody_is_refused_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    session = logins("RULE:^CN=([a-z]+)$/$1/").new_session
    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionRefusedError, match="no rule of"):
        session(CALLER, certificate("x 1"))
    (record,) = caplog.records
    assert record.name == "odradek.audit" and "10.0.0.1" in record.getMessage()
