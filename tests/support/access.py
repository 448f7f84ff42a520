"""What tests of access need: keys made before a service starts, JWTs of an issuer, certificates of an authority."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import RSAAlgorithm

from app.cli.administration.offline_access import open_registry

ISSUER = "https://issuer.example"
AUDIENCE = "rollway"
JWT_SECRET = "a secret of 32 bytes that both know"


class JwtIssuer:
    """Somebody who signs tokens, and the JWK set that says how to verify them."""

    def __init__(self, directory: Path) -> None:
        self.private = rsa.generate_private_key(65_537, 2_048)
        self.stranger = rsa.generate_private_key(65_537, 2_048)
        self.file = directory / "jwks.json"
        self.write_keys({"first": self.private})

    def write_keys(self, keys: dict[str, rsa.RSAPrivateKey]) -> None:
        documents = [
            {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
            for name, key in keys.items()
        ]
        self.file.write_text(json.dumps({"keys": documents}))

    def settings(self) -> dict[str, Any]:
        return {"jwt_keys_file": self.file, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}

    def token(self, subject: str, **claims: Any) -> str:
        """A good token, but for ``claims``; one that is None is left out."""
        return jwt.encode(self._claims(subject, claims), self.private, "RS256", headers={"kid": "first"})

    def bad_tokens(self, subject: str) -> dict[str, str]:
        """Tokens that nobody may believe."""
        good = self._claims(subject, {})
        header, _, signature = self.token(subject).split(".")
        _, other_body, _ = self.token("somebody-else").split(".")
        return {
            "expired": self.token(subject, exp=int(time.time()) - 3_600),
            "not yet valid": self.token(subject, nbf=int(time.time()) + 3_600),
            "without expiry": self.token(subject, exp=None),
            "without subject": self.token(subject, sub=None),
            "empty subject": self.token(""),
            "subject with a line feed": self.token("a\nb"),
            "wrong audience": self.token(subject, aud="somebody else"),
            "without audience": self.token(subject, aud=None),
            "wrong issuer": self.token(subject, iss="https://evil.example"),
            "endless expiry": self.token(subject, exp=1e308),
            "alg none": jwt.encode(good, None, "none"),
            "shared secret": jwt.encode(good, JWT_SECRET, "HS256"),
            "another algorithm": jwt.encode(good, self.private, "RS512", headers={"kid": "first"}),
            "another key": jwt.encode(good, self.stranger, "RS256", headers={"kid": "first"}),
            "unknown key": jwt.encode(good, self.stranger, "RS256", headers={"kid": "second"}),
            "body of another token": f"{header}.{other_body}.{signature}",
            "cut off": self.token(subject)[:-8],
            "too long": self.token(subject, padding="x" * 8_192),
        }

    def _claims(self, subject: str, changed: dict[str, Any]) -> dict[str, Any]:
        claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 3_600, **changed}
        return {name: value for name, value in claims.items() if value is not None}


class Authority:
    """Signs certificates: the service's, and those of its clients."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        self.file = directory / "ca.pem"
        certificate = self._signed(self._name, self._key, is_authority=True)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, **attributes: str) -> tuple[Path, Path]:
        """A certificate for this machine, or with attributes for a client; the files of it and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        kinds = {"O": NameOID.ORGANIZATION_NAME, "CN": NameOID.COMMON_NAME}
        parts = [x509.NameAttribute(kinds[kind], value) for kind, value in attributes.items()]
        subject = x509.Name(parts or [x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        certificate, private = self._directory / f"{name}.pem", self._directory / f"{name}.key"
        certificate.write_bytes(self._signed(subject, key).public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if is_authority:
            usage = x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        else:
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
            builder = builder.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def make_keys(data_dir: Path, *principals: str) -> list[str]:
    """A key for each, in a data directory that no service uses."""
    with open_registry(data_dir) as registry:
        return [registry.create_key(principal)[1] for principal in principals]


def bearer(credential: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {credential}"}
