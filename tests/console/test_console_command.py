"""`odradek console` and `odradek up --console`, as commands."""

import json
import ssl
import subprocess
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odradek.console.users import Role, is_password, read_users, write_user
from odradek.security.authority import new_authority
from tests.support import odradek_command

FILES = {"users": "users.toml", "tls-certificate": "cert.pem", "tls-key": "key.pem"}


def test_up_runs_a_console_beside_the_broker_and_ends_it(tmp_path: Path) -> None:
    options = [
        "--port",
        "0",
        "--data-dir",
        str(tmp_path / "data"),
        "--json",
        "--console",
        "--console-port",
        "0",
    ]
    command = odradek_command("up", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        bootstrap = json.loads(process.stdout.readline())["bootstrap"]
        address = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}api/clusters/local", timeout=30) as response:
            view = json.load(response)
        process.terminate()
        assert process.wait(60) == 0
    assert [one["address"] for one in view["brokers"]] == [bootstrap]
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)


def test_an_address_of_others_needs_tls_and_a_login() -> None:
    command = odradek_command("console", "--host", "0.0.0.0")
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr.startswith("error: 0.0.0.0 can be reached by others")


def test_a_password_is_set(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    command = odradek_command("console", "--users", str(file), "--set-password", "alice", "--role", "editor")
    environ = {"ODRADEK_USER_PASSWORD": "secret", "PATH": "/usr/bin:/bin"}
    subprocess.run(command, check=True, capture_output=True, timeout=60, env=environ)
    alice = read_users(file)["alice"]
    assert str(alice.role) == "editor"
    assert is_password("secret", alice.password)


def test_a_signal_ends_it_well(bootstrap: str) -> None:
    command = odradek_command("console", "-b", bootstrap, "--port", "0", "--lifeline")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        stream = urllib.request.urlopen(f"{address}events", timeout=30)  # an open tab does not hold it up
        assert stream.readline().startswith(b"retry")
        process.terminate()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(60)
    assert (process.returncode, errors) == (0, "")


def test_it_ends_with_the_process_that_started_it(bootstrap: str) -> None:
    command = odradek_command("console", "-b", bootstrap, "--port", "0", "--lifeline")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline()
        process.stdin.close()
        assert process.wait(60) == 0


def test_it_speaks_tls_and_asks_for_a_login(bootstrap: str, tmp_path: Path) -> None:
    authority = new_authority("tests", datetime.now(UTC))
    (tmp_path / "ca.pem").write_text(authority.pem.certificate)
    issued = authority.issue("console", ["localhost"], datetime.now(UTC))
    for name, data in (("cert.pem", issued.certificate), ("key.pem", issued.key)):
        (tmp_path / name).write_text(data)
    write_user(tmp_path / "users.toml", "alice", "right", Role.ADMIN)
    audit = tmp_path / "audit"
    files = [f"--audit-log={audit}", *(f"--{option}={tmp_path / name}" for option, name in FILES.items())]
    command = odradek_command("console", "-b", bootstrap, "--port", "0", "--lifeline", *files)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1].rstrip("/")
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        browser = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.HTTPCookieProcessor()
        )
        with browser.open(address, timeout=30) as response:
            assert response.url == f"{address}/login?next=%2F"
            token = response.read().decode().split('name="csrf-token" content="')[1].split('"')[0]
        headers = {"X-CSRF-Token": token, "Origin": address, "Content-Type": "application/json"}
        headers["X-Forwarded-For"] = "192.0.2.1"
        body = b'{"user": "alice", "password": "right"}'
        with browser.open(urllib.request.Request(f"{address}/login", body, headers), timeout=30) as response:
            cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Host-") and "Secure" in cookie and "HttpOnly" in cookie
        with browser.open(f"{address}/api/session", timeout=30) as response:
            assert json.load(response)["user"] == "alice"
        assert json.loads(audit.read_text())["address"] in ("127.0.0.1", "::1"), "others may say anything"
        with pytest.raises(OSError):
            urllib.request.urlopen(address.replace("https", "http"), timeout=30)
        process.terminate()
