"""Authentication of requests by an API key, a scoped token, a JWT or a client certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Sequence

from prometheus_client import Counter
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access import credentials
from app.access.access import ANONYMOUS, Access, audit
from app.access.credentials import KEY_PREFIX, Credential, Key, Token
from app.access.failures import FailureLimit
from app.access.jwt_verifier import JwtError, JwtVerifier
from app.access.needs import SCOPE_KEY
from app.access.registry import AccessRegistry, PrincipalRights, TokenRights
from app.problems import kinds, request_context
from app.problems.problem import Problem, instance_of

CERTIFICATE_TYPE = "Certificate"
CHALLENGE = 'Bearer realm="rollway"'
_REFUSED_CHALLENGE = f'{CHALLENGE}, error="invalid_token"'
_FORWARDED_LENGTH_MAX = 1_000

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Disbelief(Exception):  # noqa: N818 - becomes a Problem where it is counted
    """The reason that a credential is not accepted. The text has no part of the credential."""


class Authenticator:
    """The authenticator of requests. It keeps no secret, and nothing about a key or token between two requests.

    A revoked credential is therefore refused from the next request on.

    Thread: the event loop.
    """

    def __init__(
        self,
        registry: AccessRegistry,
        failures: FailureLimit,
        failed: Counter,
        jwts: JwtVerifier | None = None,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self.registry = registry
        self._failures = failures
        self._failed = failed
        self._jwts = jwts
        self._trusted_proxies = trusted_proxies

    def access_of(self, scope: Scope) -> Access:
        """Return the rights of the request, by its credential, else by its client certificate.

        A request with neither has no rights, and ``is_authenticated`` is false.

        Raises:
            Problem: 401 if it has a credential that is not accepted, 429 if its address has sent many of them, 403 if
                a secret came over a connection without TLS that others may be able to read.
        """
        headers = [value for name, value in scope["headers"] if name == b"authorization"]
        if not headers:
            subject = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
            if subject is None:
                return Access(ANONYMOUS, _Nothing(), is_authenticated=False)
            return self._of_principal(f"{CERTIFICATE_TYPE}:{subject}")
        self._require_privacy(scope)
        try:
            if len(headers) > 1:
                raise _Disbelief("there are two Authorization headers")
            scheme, _, text = headers[0].decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise _Disbelief("Authorization must be Bearer with an API key, a token or a JWT")
            return self._of_bearer(text.strip())
        except _Disbelief as disbelief:
            raise self._refused(scope, str(disbelief)) from None

    def known_access(self, authorization: bytes, scheme: str | None, client: tuple[str, int] | None) -> Access | None:
        """Return the rights of a valid key or token, as ``access_of``. Return ``None`` for any other credential.

        A failure is not counted here.

        Raises:
            Problem: 403 if a secret came over a connection without TLS that others may be able to read.
        """
        self._require_privacy({"scheme": scheme, "client": client})
        kind, _, text = authorization.decode("latin-1").partition(" ")
        text = text.strip()
        if kind.lower() != "bearer" or credentials.read(text) is None:
            return None
        try:
            return self._of_bearer(text)
        except _Disbelief:
            return None

    def _of_bearer(self, text: str) -> Access:
        found = credentials.read(text)
        if found is None:
            if self._jwts is None or text.count(".") != 2:
                raise _Disbelief("the credential has no form that this service knows")
            try:
                return self._of_principal(self._jwts.principal_of(text))
            except JwtError as error:
                raise _Disbelief(f"the JWT is not believed: {error}") from None
        prefix, number, secret = found
        if prefix == KEY_PREFIX:
            key = self._checked(self.registry.keys.get(number), secret)
            assert isinstance(key, Key)
            rights = PrincipalRights(self.registry, key.principal, key)
            return Access(key.principal, rights, credential=KEY_PREFIX + key.number)
        token = self._checked(self.registry.tokens.get(number), secret)
        assert isinstance(token, Token)
        if not self.registry.is_token_good(token.number):
            raise _Disbelief("the key that this token was made with is revoked or has expired")
        return Access(
            token.principal,
            TokenRights(self.registry, token),
            credential=credentials.TOKEN_PREFIX + token.number,
        )

    def _checked(self, credential: Credential | None, secret: str) -> Credential:
        if credential is None:
            credentials.compare_with_nothing(secret)
            raise _Disbelief("the credential is wrong or revoked")
        if not credential.matches(secret):
            raise _Disbelief("the credential is wrong or revoked")
        if credential.is_expired(self.registry.now_ms()):
            raise _Disbelief("the credential has expired")
        return credential

    def _of_principal(self, principal: str) -> Access:
        return Access(principal, PrincipalRights(self.registry, principal))

    def _require_privacy(self, scope: Scope) -> None:
        """Require TLS of a request with a secret, unless it comes from this machine or from a trusted proxy.

        A trusted proxy is responsible for TLS on its own connections.
        """
        if scope.get("scheme") == "https":
            return
        peer = _address(scope)
        if peer is None or peer.is_loopback or self._is_trusted(peer):
            return
        raise Problem(kinds.TLS_REQUIRED, "send a secret over TLS only; this one could be read on its way")

    def _is_trusted(self, peer: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return any(peer in network for network in self._trusted_proxies)

    def _refused(self, scope: Scope, reason: str) -> Problem:
        self._failed.inc()
        address = self._client_of(scope)
        wait_ms = self._failures.note(address)
        if wait_ms is not None:
            return Problem(
                kinds.TOO_MANY_FAILURES,
                "too many credentials from this address were not believed",
                retry_after_ms=wait_ms,
            )
        audit.info("authentication failed from %s: %s", address, reason)
        return unauthenticated(reason, challenge=_REFUSED_CHALLENGE)

    def _client_of(self, scope: Scope) -> str:
        """Return the address that failures count for: the peer's, or the client's address that a trusted proxy sent."""
        peer = _address(scope)
        if peer is None:
            return ""
        if self._is_trusted(peer):
            forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
            for part in reversed(forwarded[-_FORWARDED_LENGTH_MAX:].decode("latin-1").split(",")):
                try:
                    client = ipaddress.ip_address(part.strip())
                except ValueError:
                    break
                if not self._is_trusted(client):
                    return str(client)
        return str(peer)


class _Nothing:
    """The rights of a request without an identity: none."""

    def allows(self, *_: object) -> bool:
        return False

    allows_any = allows

    def are_alive(self) -> bool:
        return True


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0]) if client else None
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def unauthenticated(reason: str, *, challenge: str = CHALLENGE) -> Problem:
    """Return the 401 with this reason."""
    return Problem(kinds.UNAUTHENTICATED, reason, headers={"WWW-Authenticate": challenge})


class Authentication:
    """ASGI middleware that authenticates requests. Requests without an identity reach only the open paths.

    It stands outside of the routes, so that an unauthenticated caller learns nothing about them. A parked request is
    authenticated again when it continues: it is refused if its key was revoked in the meantime.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Callable[[], Authenticator],
        open_paths: Collection[str],
    ) -> None:
        """Protect ``app``. ``authenticator`` raises a Problem while the service has none yet."""
        self._app = app
        self._authenticator = authenticator
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_open = scope["path"] in self._open_paths
        try:
            access = self._authenticator().access_of(scope)
            if not access.is_authenticated and not is_open:
                raise unauthenticated("say who you are: Authorization: Bearer with an API key, a token or a JWT")
        except Problem as problem:
            if not is_open:
                await problem.response(instance_of(scope))(scope, receive, send)
                return
            access = Access(ANONYMOUS, _Nothing(), is_authenticated=False)
        scope[SCOPE_KEY] = access
        if access.is_authenticated:
            request_context.principal.set(access.principal)
        try:
            await self._app(scope, receive, send)
        finally:
            access.write_audit()
