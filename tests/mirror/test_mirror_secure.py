"""A mirror to a target with TLS and passwords; the file names variables for its secrets."""

from odradek.mirror.file import load
from odradek.mirror.running import MirrorRun
from odradek.testing import broker
from tests.mirror.lab import fill, write_file
from tests.spark.spark_topics import Topics
from tests.support import run_command

SECRETS = {"sasl.jaas.config": "JAAS", "ssl.truststore.password": "STORE"}


def test_a_target_with_tls_and_passwords(west, tmp_path):
    Topics(west.bootstrap).create(2, "guarded")
    fill(west.bootstrap, "guarded", 40)
    with broker(security="SASL_SSL") as east:
        java = east.login.java
        settings = {
            name: f"${{{SECRETS[name]}}}" if name in SECRETS else value for name, value in java.items()
        }
        environ = {SECRETS[name]: value for name, value in java.items() if name in SECRETS}
        file = write_file(tmp_path, west.bootstrap, east.bootstrap, 'names = ["guarded"]', target=settings)
        events: list = []
        assert MirrorRun(load(file, environ), events.append, once=True).run(), events
        assert events[-1]["records"] == 40
        shown = run_command("mirror", "status", str(file), "--json", environ=environ)
        assert shown.returncode == 0 and '"copied_to": 20' in shown.stdout
        wrong = {**environ, "JAAS": environ["JAAS"].replace('password="', 'password="x')}
        refused = run_command("mirror", str(file), "--once", environ=wrong)
        assert refused.returncode == 1 and "uthentication" in refused.stderr
        assert "password=" not in refused.stderr + refused.stdout
