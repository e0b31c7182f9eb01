"""The keys of bearer tokens from a real HTTPS server, whose authority is known or not."""

import itertools
import json
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.security import key_sets
from odradek.security.authority import new_authority
from odradek.security.key_sets import MAX_BYTES, BadKeySource, parse_source

KEY = ec.generate_private_key(ec.SECP256R1())
JWK = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"keys": [JWK]}).encode()
        if self.path == "/nonsense":
            self.wfile.write(b"nonsense\r\n\r\n")
            self.close_connection = True
            return
        if self.path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) + 1))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
        elif self.path == "/large":
            body += b" " * MAX_BYTES
            self.send_response(200)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("https")
    authority = new_authority("keys", datetime.now(UTC))
    issued = authority.issue("localhost", ["localhost"], datetime.now(UTC))
    (directory / "ca.pem").write_text(authority.pem.certificate)
    (directory / "server.pem").write_text(issued.key + issued.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.socket = context.wrap_socket(running.socket, server_side=True)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"https://localhost:{running.server_port}", str(directory / "ca.pem")
    running.shutdown()
    running.server_close()


def read(address):
    return parse_source(address, (address,)).read()


def test_keys_are_read_from_a_server_whose_authority_is_known(server, monkeypatch):
    address, authority = server
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    assert read(f"{address}/keys").knows("k")


@pytest.mark.parametrize(("path", "said"), [("/moved", "302"), ("/large", "more than")])
def test_no_redirect_is_followed_and_no_large_response_read(server, monkeypatch, path, said):
    address, authority = server
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    with pytest.raises(BadKeySource, match=said):
        read(address + path)


@pytest.mark.parametrize("path", ["/nonsense", "/cut"])
def test_what_is_no_response_leaves_the_old_keys_in_use(server, monkeypatch, path):
    """BadKeySource is what a running broker survives."""
    address, authority = server
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    with pytest.raises(BadKeySource):
        read(address + path)


def test_a_server_that_trickles_is_given_up(server, monkeypatch):
    address, authority = server
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    clock = itertools.count(step=key_sets.TIMEOUT_S + 1)
    monkeypatch.setattr(key_sets, "now_s", lambda: next(clock))
    with pytest.raises(BadKeySource, match="takes longer"):
        read(f"{address}/keys")


def test_a_server_of_another_authority_or_name_is_not_believed(server, monkeypatch):
    address, authority = server
    with pytest.raises(BadKeySource, match="CERTIFICATE_VERIFY_FAILED"):
        read(f"{address}/keys")
    monkeypatch.setenv("SSL_CERT_FILE", authority)
    with pytest.raises(BadKeySource, match="CERTIFICATE_VERIFY_FAILED"):
        read(f"{address.replace('localhost', '127.0.0.1')}/keys")
