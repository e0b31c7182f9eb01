"""`odradek up --secure`: one command, and clients log in."""

import contextlib
import json
import selectors
import stat
import subprocess

import pytest

from tests.support import START_TIMEOUT_S, STOP_TIMEOUT_S, odradek_command, run_command


@contextlib.contextmanager
def secure_cluster(directory, brokers):
    command = odradek_command("up", "--secure", "--brokers", str(brokers), "--port", "0", "--json")
    with open(directory / "log", "a") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory / "home")], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(START_TIMEOUT_S), (directory / "log").read_text()
        line = process.stdout.readline()
        assert line, (directory / "log").read_text()
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()


@pytest.mark.parametrize("brokers", [1, 3])
def test_clients_log_in_with_the_settings_that_are_written(tmp_path, brokers):
    with secure_cluster(tmp_path, brokers) as facts:
        with_login = ["--command-config", facts["client_file"]]
        produced = run_command("produce", *with_login, "greetings", stdin="hello\n")
        assert produced.returncode == 0, produced.stderr
        users = json.loads(run_command("user", "list", "--json", *with_login).stdout)
        assert [one["user"] for one in users] == ["admin", "node"]
        acls = json.loads(run_command("acl", "list", "--json", *with_login).stdout)
        assert acls == [], "there is an authorizer, and admin needs no ACL"
        without = run_command("topic", "list", "-b", facts["bootstrap"])
        assert without.returncode == 1
        files = [*(tmp_path / "home" / "security").iterdir(), *(tmp_path / "home").glob("*.properties")]
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    with secure_cluster(tmp_path, brokers) as facts:
        with_login = ["--command-config", facts["client_file"]]
        read = run_command("consume", *with_login, "--from-beginning", "-n", "1", "greetings")
        assert read.stdout.strip() == "hello", read.stderr
    home = str(tmp_path / "home")
    for arguments in (("up", "--brokers", str(max(brokers, 2))), ("up",)):
        refused = run_command(*arguments, "--port", "0", "--data-dir", home)
        assert (refused.returncode == 1 and "--secure" in refused.stderr) or "--brokers" in refused.stderr
    log = (tmp_path / "log").read_text()
    password = json.loads((tmp_path / "home" / "security" / "passwords.json").read_text())["admin"]
    assert password not in log
