"""TLS for the service's sockets, and the name in a client's certificate."""

from __future__ import annotations

import ssl
from typing import Any

from app.http.connection.parking import EXTENSION as PARKING
from app.settings import Settings

# Short names of RFC 4514; other attributes keep their long ones.
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED = frozenset('"+,;<>\\')


class TlsError(ValueError):
    """Settings of TLS that cannot be used. The message is a sentence for people."""


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the settings, for TLS 1.2 or later; ``None`` without a certificate.

    Raises:
        TlsError: a file cannot be read or has another content than its setting demands.
    """
    if settings.tls_certificate is None:
        return None
    try:
        return _context(settings)
    except OSError as error:
        files = (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
        named = ", ".join(str(file) for file in files if file is not None)
        raise TlsError(f"TLS cannot be set up with {named}: {error.strerror or error}") from None


def _context(settings: Settings) -> ssl.SSLContext:
    assert settings.tls_certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without this, OpenSSL prompts on the terminal for the password of an encrypted key.
    context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=lambda: "")
    if settings.tls_client_ca is not None:
        context.load_verify_locations(settings.tls_client_ca)
        is_required = settings.tls_client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def subject_of(certificate: dict[str, Any] | None) -> str | None:
    """Return the distinguished name of a verified peer's certificate in RFC 4514's form: ``CN=orders,O=Example``.

    ``None`` without a certificate, or without a name in it.
    """
    names = (certificate or {}).get("subject", ())
    parts = ["+".join(f"{_SHORT.get(kind, kind)}={_escape(value)}" for kind, value in part) for part in names]
    return ",".join(reversed(parts)) or None


def _escape(value: str) -> str:
    text = "".join(
        f"\\{character}" if character in _ESCAPED else character if character.isprintable() else "?"
        for character in value
    )
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and text != "\\ " else text


def tls_extensions(certificate: dict[str, Any] | None) -> dict[str, dict[object, object]]:
    """Return the ASGI extensions of a TLS connection, with the name in its client's verified certificate."""
    return {PARKING: {}, "tls": {"client_cert_name": subject_of(certificate)}}
