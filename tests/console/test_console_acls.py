"""ACLs and quotas in the console."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from odradek.admin.access import Access
from odradek.config.authorizer import STANDARD_AUTHORIZER
from tests.console.conftest import API, Browser
from tests.security_cluster import configured_broker, users

ADMIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'Login required username="admin" password="admin-secret";',
}


@pytest.fixture(scope="module")
def guarded(consoles: Callable[..., Browser], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A console of a broker with Kafka's authorizer."""
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users({"admin": "admin-secret"}),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with configured_broker(tmp_path_factory.mktemp("acls"), settings) as broker:
        yield consoles(clusters={"test": Access(broker.bootstrap, ADMIN)})


@pytest.fixture
def user() -> str:
    return f"User:ada-{uuid.uuid4().hex[:8]}"


def acl(user: str, **fields: str) -> dict[str, str]:
    return {
        "principal": user,
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "orders",
    } | fields


def shown(browser: Browser, noun: str, search: str) -> Any:
    return browser.get(f"{API}/{noun}?search={quote(search)}").json()


def test_an_acl_is_added_found_explained_and_removed(guarded: Browser, user: str) -> None:
    made = guarded.send("POST", f"{API}/acls", acl(user, pattern_type="PREFIXED"))
    assert made.json()["said"] == f"Added: ALLOW {user} from * to READ TOPIC orders (PREFIXED)."
    found = shown(guarded, "acls", user)
    assert [one["resource_name"] for one in found["acls"]] == ["orders"]
    assert user in guarded.get("/c/test/acls").text
    for operation, is_allowed in (("DESCRIBE", True), ("WRITE", False)):
        question = f"principal={user}&operation={operation}&resource_type=TOPIC&resource_name=orders-2"
        response = guarded.get(f"{API}/acls?{question}").json()["explanation"]
        assert response["is_allowed"] is is_allowed
    assert guarded.send("DELETE", f"{API}/acls", acl(user)).status_code == 404, "that is another one"
    removed = guarded.send("DELETE", f"{API}/acls", acl(user, pattern_type="PREFIXED"))
    assert removed.json()["said"].startswith("Removed: ALLOW")
    assert shown(guarded, "acls", user)["count"] == 0


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"principal": "ada"}, "is not a principal like User:alice"),
        ({"operation": "FLY"}, "operation is one of"),
        ({"operation": "IDEMPOTENT_WRITE"}, "a topic has no operation"),
        ({"resource_type": "MOON"}, "resource_type is one of"),
        ({"resource_name": ""}, "name a resource"),
        ({"pattern_type": "MATCH"}, "patternType"),
    ],
)
def test_an_acl_that_means_nothing_is_refused(guarded: Browser, wrong: dict[str, str], reason: str) -> None:
    response = guarded.send("POST", f"{API}/acls", acl("User:ada", **wrong))
    assert (response.status_code in (400, 409), reason in response.json()["error"]) == (True, True), (
        response.text
    )


def test_a_script_in_a_principal_is_shown_as_text(guarded: Browser) -> None:
    script = "User:<script>alert('acl')</script>\""
    assert guarded.send("POST", f"{API}/acls", acl(script)).status_code == 200
    page = guarded.get("/c/test/acls").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    guarded.send("DELETE", f"{API}/acls", acl(script))


def test_a_cluster_without_an_authorizer_says_so(browser: Browser) -> None:
    assert "checks no ACLs" in browser.get("/c/test/acls").text


def test_a_quota_is_set_changed_and_removed(browser: Browser, user: str) -> None:
    name = user.partition(":")[2]
    body = {"kind": "user and client-id", "user": name, "quota": "producer_byte_rate"}
    assert browser.send("POST", f"{API}/quotas", body | {"value": "1048576"}).json()["said"] == (
        f"Set producer_byte_rate of user {name}, client-id (default) to 1.0 MB/s."
    )
    browser.send("POST", f"{API}/quotas", body | {"value": "2097152"})
    (row,) = shown(browser, "quotas", name)["quotas"]
    assert (row["kind"], row["user"], row["client_id"]) == ("user and client-id", name, "")
    assert row["shown"] == "2.0 MB/s"
    assert name in browser.get("/c/test/quotas").text
    assert browser.send("DELETE", f"{API}/quotas", body).status_code == 200
    assert browser.send("DELETE", f"{API}/quotas", body).status_code == 404
    assert shown(browser, "quotas", name)["count"] == 0


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kind": "moon"}, "kind is one of"),
        ({"kind": "ip"}, "the quota of a ip is one of"),
        ({"value": "many"}, "is not a number"),
        ({"value": "-1"}, "above 0"),
        ({"value": "nan"}, "above 0"),
    ],
)
def test_a_quota_that_means_nothing_is_refused(browser: Browser, wrong: dict[str, str], reason: str) -> None:
    body = {"kind": "user", "user": "ada", "quota": "producer_byte_rate", "value": "1"} | wrong
    response = browser.send("POST", f"{API}/quotas", body)
    assert (response.status_code, reason in response.json()["error"]) == (400, True), response.text
