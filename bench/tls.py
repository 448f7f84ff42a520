"""TLS for the load generator: a certificate of its own, and connections that can ask without waiting."""

from __future__ import annotations

import datetime as dt
import select
import socket
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

WAIT_SECONDS_MAX = 30


class TlsSocket(ssl.SSLSocket):
    """Non-blocking below. ``recv_into`` waits unless it is told not to, as a plain socket does; ``send`` waits."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.setblocking(False)
        while True:
            try:
                return super().recv_into(buffer, nbytes)
            except ssl.SSLWantReadError:
                if flags & socket.MSG_DONTWAIT or not select.select([self], [], [], WAIT_SECONDS_MAX)[0]:
                    raise BlockingIOError from None

    def send(self, data: Any, flags: int = 0) -> int:
        while True:
            try:
                return super().send(data, flags)
            except ssl.SSLWantWriteError:
                if not select.select([], [self], [], WAIT_SECONDS_MAX)[1]:
                    raise BlockingIOError from None


def client_context() -> ssl.SSLContext:
    """A context for ``connect`` that trusts every service: it is one of our own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = TlsSocket
    return context


def profile_of(connection: socket.socket) -> str:
    """The protocol and the cipher of a connection, such as ``TLSv1.3, TLS_AES_256_GCM_SHA384``."""
    assert isinstance(connection, ssl.SSLSocket)
    cipher = connection.cipher()
    return f"{connection.version()}, {cipher[0] if cipher else 'no cipher'}"


def write_certificate(directory: Path) -> dict[str, str]:
    """Make a key on P-256 and its certificate; returns the settings that name them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    paths = {"tls_certificate": directory / "service.pem", "tls_key": directory / "service.key"}
    paths["tls_certificate"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths["tls_key"].touch(0o600)
    paths["tls_key"].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return {name: str(path) for name, path in paths.items()}
