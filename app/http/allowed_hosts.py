"""The names that the service answers to, and the web pages that may change something.

A browser separates the pages of different sites by the name in the address. Suppose that the name of a page first
resolves to the server of the page and then to 127.0.0.1 (DNS rebinding). For the browser that page is then of the
service's own origin: it may read answers and send any request. Only the name differs, in ``Host`` and ``Origin``. So a
service without authentication answers only to names that it knows.

The rule is in force on a loopback address without authentication, and wherever ``allowed_hosts`` is set. Only this
module decides: connections call ``refusal`` for a whole head, and ``allows`` where only the name is to be compared.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from app.paths import HEALTH, READINESS
from app.problems import kinds
from app.problems.problem import Problem, instance_of
from app.problems.request_context import SAFE_METHODS
from app.settings import Settings, is_loopback

ANY = "*"
_LOOPBACK_NAME = "localhost"
_SHOWN_LENGTH_MAX = 100
_KNOWN_MAX = 1_000
_OPEN_PATHS = frozenset({HEALTH.encode(), READINESS.encode()})
_OWN_PAGES = frozenset({b"same-origin", b"none"})
_HOST = re.compile(rb"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\\s\x00-\x20\x7f]+)(?::[0-9]{0,5})?")
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://(?P<authority>[^/?#]*)(?P<path>[^?#]*)")

RawHeaders = Sequence[tuple[bytes, bytes]]


def rule_of(settings: Settings) -> HostRule | None:
    """Return the rule for these settings; ``None`` if the service answers to every name and to every web page.

    Example: ``host=127.0.0.1`` without authentication answers to localhost, 127.0.0.0/8 and [::1].
    ``allowed_hosts=["db.example", ".intern.example"]`` adds db.example, intern.example and all names below the latter.
    A browser sends client certificates for any page. So pages are checked wherever client certificates count.
    """
    is_open = is_loopback(settings.host) and not settings.authentication
    if is_open or settings.allowed_hosts:
        return HostRule([*settings.allowed_hosts, settings.host])
    return None if settings.tls_client_ca is None else HostRule([ANY])


class HostRule:
    """The names that a service answers to: the names of this machine's loopback, and the configured names.

    Thread: the event loop's.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Answer to ``names``: host names and addresses without a port.

        ``.name`` and ``*.name`` also include all names below it, and ``*`` includes every name.
        """
        self._answers_to_all = False
        self._exact: set[bytes] = set()
        self._suffixes: list[bytes] = []
        self._addresses: set[ipaddress.IPv4Address | ipaddress.IPv6Address] = set()
        self._known: dict[bytes, bool] = {}
        for name in names:
            text = name.lower().removeprefix("*").rstrip(".")
            try:
                self._addresses.add(ipaddress.ip_address(text.strip("[]")))
            except ValueError:
                if name == ANY:
                    self._answers_to_all = True
                elif text.startswith("."):
                    self._suffixes.append(text.encode())
                self._exact.add(text.removeprefix(".").encode())

    def allows(self, host: bytes) -> bool:
        """Return whether the service answers to ``host``, the value of a Host header: a name or an address, any port.

        A value that was checked before costs one lookup in a dictionary.
        """
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[host] = self._decide(host)
        return known

    def refusal(self, method: str, target: bytes, headers: RawHeaders) -> Problem | None:
        """Return the problem of a request that must not be served, else ``None``. Names in ``headers`` are lower case.

        Health routes answer under any name, because probes of load balancers use the address. A request of HTTP/1.0
        may have no Host header. No browser sends such a request.
        """
        named = _SCHEME.match(target)
        path = target.partition(b"?")[0] if named is None else named["path"]
        if path in _OPEN_PATHS and method in SAFE_METHODS:
            return None
        hosts = [value.strip() for name, value in headers if name == b"host"]
        if named is not None:
            # The name of the target counts (RFC 9112, 3.2.2). The Host header must not contradict it.
            hosts.append(named["authority"])
        elif not target.startswith(b"/") and target != b"*":
            hosts.append(target)
        for host in hosts:
            if not self.allows(host):
                return misdirected(host)
        return None if method in SAFE_METHODS else self._page_refusal(hosts, headers)

    def _page_refusal(self, hosts: Sequence[bytes], headers: RawHeaders) -> Problem | None:
        """Return the problem of a request from a web page that must not send it, else ``None``.

        The browser lets any page send a request without a body, so the service must check.
        """
        sites = {value.strip().lower() for name, value in headers if name == b"sec-fetch-site"}
        origins = [value.strip() for name, value in headers if name == b"origin"]
        if sites and sites <= _OWN_PAGES:
            return None
        own = set() if sites else {host.lower() for host in hosts}
        if sites and not origins:
            return cross_site(origins)
        return None if all(self._is_trusted_page(origin, own) for origin in origins) else cross_site(origins)

    def _is_trusted_page(self, origin: bytes, own: Collection[bytes]) -> bool:
        """Return whether the page is one of the service's ``own``, or of a configured name, such as that of a proxy."""
        found = _SCHEME.fullmatch(origin)
        if found is None or found["path"]:
            return False
        if found["authority"].lower() in own:
            return True
        place = _place_of(found["authority"])
        return place is not None and self._is_configured(place) and not _is_loopback_name(place)

    def _decide(self, host: bytes) -> bool:
        if self._answers_to_all:
            return True
        place = _place_of(host)
        return place is not None and (_is_loopback_name(place) or self._is_configured(place))

    def _is_configured(self, place: _Place) -> bool:
        if place.address is not None:
            return place.address in self._addresses
        return place.name in self._exact or any(place.name.endswith(suffix) for suffix in self._suffixes)


class _Place(NamedTuple):
    """A host without its port: its name in lower case without the last dot, and its address if it is one."""

    name: bytes
    address: ipaddress.IPv4Address | ipaddress.IPv6Address | None


def _place_of(host: bytes) -> _Place | None:
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return None
    name = found["name"].lower()
    if name.endswith(b"."):
        name = name[:-1]
    try:
        return _Place(name, ipaddress.ip_address(name.strip(b"[]").decode("ascii")))
    except ValueError:
        return None if name.startswith(b"[") or not name else _Place(name, None)


def _is_loopback_name(place: _Place) -> bool:
    address = place.address
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return place.name == _LOOPBACK_NAME.encode() if address is None else address.is_loopback


def misdirected(host: bytes) -> Problem:
    """Return the 421 for a name that the service does not answer to."""
    shown = ascii(host[:_SHOWN_LENGTH_MAX].decode("latin-1"))
    return Problem(
        kinds.MISDIRECTED_REQUEST,
        f"the service does not answer to the name {shown}, only to localhost and to names in allowed_hosts; if the "
        "name is its own, add it (ROLLWAY_ALLOWED_HOSTS, --allowed-host)",
    )


def cross_site(origins: Sequence[bytes]) -> Problem:
    """Return the 403 for a request that a web page of another site has made a browser send."""
    shown = ascii(origins[0][:_SHOWN_LENGTH_MAX].decode("latin-1")) if origins else "another site"
    return Problem(
        kinds.CROSS_SITE_REQUEST,
        f"a web page of {shown} asked for this through a browser; if it may, add its name to allowed_hosts "
        "(ROLLWAY_ALLOWED_HOSTS, --allowed-host) or turn on authentication",
    )


class KnownHosts:
    """ASGI middleware that applies the rule to uvicorn's own connections, which serve where ours cannot be used."""

    def __init__(self, app: ASGIApp, rule: HostRule) -> None:
        self._app = app
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            target = scope.get("raw_path") or scope["path"].encode()
            problem = self._rule.refusal(scope["method"], target, scope["headers"])
            if problem is not None:
                await problem.response(instance_of(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)
