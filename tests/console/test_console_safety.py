"""Hostile requests: none of them succeeds. And what the console allows whom."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.offsets import commit_offsets
from odradek.admin.places import Place
from odradek.console.gate import MAX_BODY_BYTES, MAX_LOGIN_BYTES
from odradek.console.sessions import MOST_SESSIONS, Sessions
from odradek.console.settings import ConsoleSettings
from odradek.console.users import (
    FAILURES_ALLOWED,
    Attempts,
    Role,
    User,
    hash_password,
    is_password,
    read_users,
    write_user,
)
from tests.console.conftest import API, BASE, Browser

BODY = {"topic": "never-created"}


def test_a_change_needs_the_token_of_its_session(browser: Browser, consoles: Callable[..., Browser]) -> None:
    another = consoles()
    for token in ("", "wrong", another.token()):
        response = browser.send("POST", f"{API}/topics", BODY, **{"X-CSRF-Token": token})
        assert response.status_code == 403
    browser.client.cookies.clear()
    response = browser.client.post(f"{API}/topics", json=BODY, headers={"Origin": BASE, "X-CSRF-Token": "x"})
    assert response.status_code in (401, 403)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9999", "https://localhost:8090"]
)
def test_a_change_from_another_site_is_refused(browser: Browser, origin: str) -> None:
    assert browser.send("POST", f"{API}/topics", BODY, Origin=origin).status_code == 403


def test_reading_from_another_sites_page_is_refused_but_links_work(browser: Browser) -> None:
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert browser.get(API, **foreign).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert browser.get("/c/test", **link).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8090", "127.0.0.1.nip.io", "", "[::1"]
)
def test_another_host_name_is_refused(browser: Browser, host: str) -> None:
    """A page that lets its own name point to this machine (DNS rebinding)."""
    for path in ("/", "/c/test", API, "/api/session", "/static/x/console.css"):
        assert browser.get(path, Host=host).status_code == 421


@pytest.mark.parametrize(
    "path",
    [
        "/static/x/../app.py",
        "/static/x/..%2fapp.py",
        "/static/x/%2e%2e/%2e%2e/app.py",
        "/static/../../etc/passwd",
        "/static/x//etc/passwd",
        "/c/..%2f..%2fetc/topics",
    ],
)
def test_no_path_leads_out(browser: Browser, path: str) -> None:
    response = browser.get(path)
    assert response.status_code == 404
    assert "import" not in response.text


def test_oversized_bodies_are_refused(browser: Browser) -> None:
    large = {"topic": "x" * (MAX_BODY_BYTES + 1)}
    assert browser.send("POST", f"{API}/topics", large).status_code == 413

    def pieces():  # type: ignore[no-untyped-def]
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            yield b" " * 65536

    headers = {"X-CSRF-Token": browser.token(), "Origin": BASE, "Content-Type": "application/json"}
    response = browser.client.post(f"{API}/topics", content=pieces(), headers=headers)
    assert response.status_code == 413


def test_strangers_may_send_little(consoles: Callable[..., Browser], users_file: Path) -> None:
    write_user(users_file, "alice", "right", Role.ADMIN)
    browser = consoles(users_file=users_file)
    assert log_in(browser, "alice", "x" * MAX_LOGIN_BYTES) == 413
    assert log_in(browser, "alice", "right") == 200
    assert browser.send("POST", f"{API}/topics", {"topic": "x" * MAX_LOGIN_BYTES}).status_code == 409


def test_bodies_that_are_not_json_objects_are_refused(browser: Browser) -> None:
    headers = {"X-CSRF-Token": browser.token(), "Origin": BASE}
    for content, kind in (
        (b"topic=x", "application/x-www-form-urlencoded"),
        (b'{"topic": "x"}', "text/plain"),
        (b"[1]", "application/json"),
        (b"{", "application/json"),
        (b"[" * 50_000, "application/json"),
    ):
        sent = {**headers, "Content-Type": kind}
        assert browser.client.post(f"{API}/topics", content=content, headers=sent).status_code == 400, (
            content[:20]
        )


def test_every_response_forbids_inline_scripts(browser: Browser) -> None:
    for path in ("/c/test", API, "/nowhere", "/c/test/topics/%3Cscript%3E"):
        response = browser.get(path)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-inline" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "<script>" not in response.text


def test_no_template_has_an_inline_script_or_style() -> None:
    import odradek.console

    for path in (Path(odradek.console.__file__).parent / "templates").iterdir():
        text = path.read_text()
        assert "|safe" not in text.replace(" ", "")
        assert " style=" not in text and "<style" not in text, path
        assert " onclick=" not in text and "<script>" not in text, path
    for path in (Path(odradek.console.__file__).parent / "static").glob("*.js"):
        assert "innerHTML" not in path.read_text(), path


def test_scripts_in_a_query_are_shown_as_text(browser: Browser) -> None:
    page = browser.get("/c/test/topics?search=%3Cscript%3Ealert(1)%3C/script%3E").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_a_script_in_a_groups_name_is_shown_as_text(browser: Browser, topic: str, bootstrap: str) -> None:
    script = "<script>alert('group')</script>"
    commit_offsets(Access(bootstrap, {}), script, {Place(topic, 0): 0})
    limit_s = time.monotonic() + 30
    while "alert(" not in (page := browser.get("/c/test").text):
        assert time.monotonic() < limit_s
        time.sleep(0.05)
    assert script not in page
    assert script in [one["group"] for one in browser.get(API).json()["groups"]]


@pytest.mark.plants_traceback
def test_a_failure_nobody_expected_shows_no_traceback(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    import odradek.console.pages.messages as messages

    def fail(*_: object) -> None:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(messages, "read_one", fail)
    response = browser.get(f"{API}/topics/some/messages/0/0")
    assert response.status_code == 500
    assert "secret" not in response.text


def test_a_cluster_that_is_away_is_told(consoles: Callable[..., Browser]) -> None:
    away = consoles(clusters={"test": Access("localhost:1", {})})
    page = away.get("/c/test")
    assert page.status_code == 200
    assert "Does not respond" in page.text
    assert away.get(f"{API}/topics/x").status_code in (409, 502)
    assert away.get("/c/test/topics/x/messages").status_code == 502


# Who may do what


def test_without_tls_and_login_only_this_machine_is_served(tmp_path: Path) -> None:
    clusters = {"test": Access("localhost:1", {})}
    file = tmp_path / "file"
    for settings in ({}, {"users_file": file}, {"certificate": file, "key": file}):
        with pytest.raises(AdminError, match="TLS and a login"):
            ConsoleSettings(clusters, host="0.0.0.0", **settings).check()
    ConsoleSettings(clusters, host="0.0.0.0", users_file=file, certificate=file, key=file).check()
    for host in ("localhost", "127.0.0.1", "::1"):
        ConsoleSettings(clusters, host=host).check()
    with pytest.raises(AdminError, match="both"):
        ConsoleSettings(clusters, certificate=file).check()


def test_a_read_only_console_changes_nothing(consoles: Callable[..., Browser]) -> None:
    browser = consoles(read_only=True)
    response = browser.send("POST", f"{API}/topics", BODY)
    assert response.status_code == 403
    assert "read-only" in response.json()["error"]
    assert "Create topic" not in browser.get("/c/test/topics").text


def log_in(browser: Browser, user: str, password: str) -> int:
    browser.get("/login")
    token = browser.get("/login").text.split('name="csrf-token" content="')[1].split('"')[0]
    headers = {"X-CSRF-Token": token, "Origin": BASE}
    body = {"user": user, "password": password}
    return int(browser.client.post("/login", json=body, headers=headers).status_code)


def test_roles(consoles: Callable[..., Browser], users_file: Path) -> None:
    for role in Role:
        write_user(users_file, f"a {role}", "right", role)
    browser = consoles(users_file=users_file)
    assert browser.get(API).status_code == 401
    assert (
        browser.get("/c/test/topics?search=x").headers["location"]
        == "/login?next=%2Fc%2Ftest%2Ftopics%3Fsearch%3Dx"
    )
    assert log_in(browser, "a viewer", "wrong") == 403
    assert browser.get(API).status_code == 401
    assert log_in(browser, "a viewer", "right") == 200
    assert browser.get(API).status_code == 200
    assert browser.send("POST", f"{API}/topics", BODY).status_code == 403
    assert browser.get(f"{API}/users").status_code == 403
    assert browser.send("POST", "/logout").status_code == 200
    assert browser.get(API).status_code == 401
    assert log_in(browser, "an editor", "right") == 403, "there is no such user"
    assert log_in(browser, "a editor", "right") == 200
    assert "/c/test/users" not in browser.get("/c/test").text, "pages are offered to those who may see them"
    refused = browser.send("DELETE", f"{API}/topics/x", {"confirm": "x"})
    assert (refused.status_code, "needs the role admin" in refused.text) == (403, True)


def test_a_login_changes_the_session(consoles: Callable[..., Browser], users_file: Path) -> None:
    """A cookie that somebody planted before the login is worth nothing after it."""
    write_user(users_file, "alice", "right", Role.ADMIN)
    browser = consoles(users_file=users_file)
    browser.get("/login")
    before = browser.client.cookies["odradek_session_8090"]
    assert log_in(browser, "alice", "right") == 200
    assert browser.client.cookies["odradek_session_8090"] != before


def test_wrong_logins_are_limited(consoles: Callable[..., Browser], users_file: Path) -> None:
    write_user(users_file, "alice", "right", Role.ADMIN)
    browser = consoles(users_file=users_file)
    statuses = [log_in(browser, "alice", f"wrong {number}") for number in range(FAILURES_ALLOWED + 2)]
    assert statuses == [403] * FAILURES_ALLOWED + [429] * 2
    assert log_in(browser, "alice", "right") == 429


def test_failures_are_forgotten_after_a_while() -> None:
    now_s = 0.0
    attempts = Attempts(lambda: now_s)
    assert all(attempts.begin("user a", f"address {number}") for number in range(FAILURES_ALLOWED))
    assert not attempts.begin("user a", "address x")
    assert attempts.begin("user b", "address x")
    now_s = 1000.0
    assert attempts.begin("user a", "address x")


def test_a_right_password_frees_its_user_but_not_the_address() -> None:
    """Whoever has one account may not guess others from the same address for ever."""
    attempts = Attempts(lambda: 0.0)
    for number in range(FAILURES_ALLOWED - 1):
        assert attempts.begin(f"user {number}", "address x")
    for _ in range(3):
        assert attempts.begin("user mine", "address x")
        attempts.succeeded("user mine", "address x")
    assert attempts.begin("user guessed", "address x")
    assert not attempts.begin("user mine", "address x")


def test_logins_at_the_same_time_are_counted_before_they_are_tried() -> None:
    sessions = Sessions({}, read_only=False)
    assert [sessions.may_try("alice", "::1") for _ in range(FAILURES_ALLOWED + 1)] == [
        True
    ] * FAILURES_ALLOWED + [False]


def test_strangers_end_no_session_of_somebody_who_has_logged_in() -> None:
    sessions = Sessions({"alice": User("alice", Role.ADMIN, hash_password("right"))}, read_only=False)
    assert (found := sessions.log_in("alice", "right", "::1")) is not None
    first, _ = sessions.begin()
    for _ in range(MOST_SESSIONS):
        sessions.begin()
    assert sessions.find(found[0]) is found[1]
    assert sessions.find(first) is None


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "/\\evil.example",
        "/\t/evil.example",
        "/\n/evil.example",
        "https://evil.example",
        "x",
        "",
    ],
)
def test_a_login_leads_to_no_other_site(
    consoles: Callable[..., Browser], users_file: Path, wanted: str
) -> None:
    write_user(users_file, "alice", "right", Role.ADMIN)
    page = consoles(users_file=users_file).get(f"/login?next={quote(wanted, safe='')}").text
    assert 'data-then="/"' in page


def test_a_login_leads_back(consoles: Callable[..., Browser], users_file: Path) -> None:
    write_user(users_file, "alice", "right", Role.ADMIN)
    page = consoles(users_file=users_file).get("/login?next=%2Fc%2Ftest%2Ftopics%3Fsearch%3Dx").text
    assert 'data-then="/c/test/topics?search=x"' in page


def test_half_a_character_is_refused(browser: Browser) -> None:
    headers = {"X-CSRF-Token": browser.token(), "Origin": BASE, "Content-Type": "application/json"}
    response = browser.client.post(f"{API}/topics", content=b'{"topic": "\\ud800"}', headers=headers)
    assert (response.status_code, response.json()["error"]) == (400, "the body is not JSON")


def test_passwords_are_hashed_and_the_file_is_private(users_file: Path) -> None:
    write_user(users_file, "alice", "secret", Role.EDITOR)
    write_user(users_file, "bob", "other", Role.VIEWER)
    assert "secret" not in users_file.read_text()
    assert users_file.stat().st_mode & 0o077 == 0
    users = read_users(users_file)
    assert (users["alice"].role, users["bob"].role) == (Role.EDITOR, Role.VIEWER)
    assert is_password("secret", users["alice"].password)
    assert not is_password("other", users["alice"].password)
    assert hash_password("x") != hash_password("x")
    assert not is_password("x", "plain text")


@pytest.mark.parametrize(
    "text", ["", "[users.a]\nrole='boss'\npassword='scrypt$'", "[users.a]\nrole='admin'\npassword='x'", "["]
)
def test_a_users_file_that_says_nothing_is_refused(users_file: Path, text: str) -> None:
    users_file.write_text(text)
    with pytest.raises(AdminError):
        read_users(users_file)


def test_every_change_has_an_audit_line(browser: Browser, topic: str) -> None:
    browser.send("DELETE", f"{API}/topics/{topic}", {"confirm": "x"})
    file = browser.client.app.state.console.settings.audit_file  # type: ignore[attr-defined]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    mine = [
        (one["user"], one["action"], one["outcome"].split(":")[0]) for one in lines if topic in one["target"]
    ]
    assert mine == [("local", "create a topic", "done"), ("local", "delete a topic", "refused")]


def test_what_a_user_asks_reaches_the_cluster_with_that_users_settings(
    consoles: Callable[..., Browser], users_file: Path, bootstrap: str
) -> None:
    write_user(users_file, "alice", "right", Role.ADMIN)
    (users_file.parent / "alice.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    )
    users_file.write_text(users_file.read_text() + 'client = "alice.properties"\n')
    browser = consoles(users_file=users_file)
    assert log_in(browser, "alice", "right") == 200
    assert browser.get(API).status_code == 200, "the poller has the console's own settings"
    refused = browser.get(f"{API}/topics/__consumer_offsets")
    assert refused.status_code == 409
    assert "sasl.jaas.config" in refused.json()["error"]
