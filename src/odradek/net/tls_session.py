"""TLS between two buffers, without a socket: encrypted bytes in and out on one side, plain ones on the other.

Nothing here waits. A handshake that needs more from the peer says so, and reading returns what is there. What has been
fed stays inside until it is read: until `is_drained` there may be more. Encrypted bytes that the session has for the
peer, be they data, a part of the handshake or an alert, are collected until they are taken.
"""

import ssl

# OpenSSL's names of failures, and what we say. A peer that refuses us sends an alert.
REASONS = {
    "UNSUPPORTED_PROTOCOL": "it offers no version of TLS that this end accepts",
    "VERSION_TOO_LOW": "it offers no version of TLS that this end accepts",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it accepts no version of TLS that this end offers",
    "NO_SHARED_CIPHER": "it offers no cipher suite that this end accepts",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refused the handshake: check the cipher suites and certificates of both ends",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, but ssl.client.auth requires one",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate, but this end has none",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority that signed our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "our certificate has expired",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
}


class TlsFailed(ConnectionError):
    """The two ends cannot talk to each other; the message says why, in words."""


class TlsSession:
    def __init__(self, context: ssl.SSLContext, hostname: str | None) -> None:
        """`hostname` is the server that we connected to; None: we are the server. Raises TlsFailed."""
        assert hostname is not None or context.options & ssl.OP_NO_RENEGOTIATION, "clients may renegotiate"
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_side=hostname is None, server_hostname=hostname
            )
        except ValueError as error:  # a name that no certificate could have
            raise TlsFailed(f"{hostname!r} cannot be verified: {error}") from error
        self.is_drained = True  # everything that was fed has been read, but for the beginning of a record
        self.is_ended = False  # the peer has said that nothing follows

    @property
    def peer_certificate(self) -> bytes | None:
        """In DER, once the handshake is over."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def has_output(self) -> bool:
        return self._outgoing.pending > 0

    def take_output(self) -> bytes:
        return self._outgoing.read()

    def feed(self, data: memoryview) -> None:
        self._incoming.write(data)
        self.is_drained = False

    def handshake(self) -> bool:
        """Returns True once it is over. Raises TlsFailed; there is an alert for the peer then."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.is_drained = True
            return False
        except ssl.SSLError as error:
            raise TlsFailed(why(error)) from error
        return True

    def read_into(self, buffer: memoryview) -> int:
        """All that is there and fits; 0 if there is nothing. Raises TlsFailed."""
        filled, size, session = 0, len(buffer), self._tls
        try:
            while filled < size:
                # With a buffer it returns how many bytes it has read, whatever the type checker believes.
                count: int = session.read(size - filled, buffer[filled:] if filled else buffer)  # type: ignore[assignment]
                if not count:
                    self.is_ended = True
                    break
                filled += count
                if not self._incoming.pending and not session.pending():
                    self.is_drained = True  # without an exception, which costs more than all of this
                    break
        except ssl.SSLWantReadError:
            self.is_drained = True
        except ssl.SSLError as error:
            raise TlsFailed(why(error)) from error
        return filled

    def encrypt(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise TlsFailed(why(error)) from error

    def end(self) -> None:
        """Tell the peer that nothing follows."""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # its own end is not awaited

    def release(self) -> None:
        """Free what OpenSSL has for it, tens of kilobytes that the garbage collector knows nothing of. The session
        cannot be used afterwards."""
        del self._tls, self._incoming, self._outgoing


def why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    return REASONS.get(reason, f"TLS failed: {reason.lower().replace('_', ' ')}")
