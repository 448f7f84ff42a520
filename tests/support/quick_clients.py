"""HTTP clients of tests share what trusts the authorities of this machine: each would read all their certificates.

That takes 17 ms of CPU time, most of a short test, and hardly any test speaks TLS with it.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

import httpx._transports.default

_create = httpx._transports.default.create_ssl_context
_shared: list[ssl.SSLContext] = []


def _create_or_share(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    names = trust_env and (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"))
    if verify is not True or cert is not None or names:
        return _create(verify=verify, cert=cert, trust_env=trust_env)
    if not _shared:
        _shared.append(_create())
    return _shared[0]


def set_quick_clients() -> None:
    """Let the clients of this process share it. A client that has its own authorities or certificate keeps them."""
    httpx._transports.default.create_ssl_context = _create_or_share  # type: ignore[attr-defined]
