"""Access while the service runs: changes run one at a time, off the event loop, and raise errors for HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from prometheus_client import Counter

from app.access.access import audit
from app.access.authentication import Authenticator
from app.access.failures import FailureLimit
from app.access.jwt_verifier import JwtVerifier
from app.access.registry import AccessChangeError, AccessRegistry
from app.problems.problem import invalid_value, json_pointer
from app.settings import Settings
from log_model.clock import Clock
from log_model.errors import outcome_unknown, refused_by_system
from storage.disk.whole_files import NotDurableError

Result = TypeVar("Result")


def jwt_verifier(settings: Settings, clock: Clock) -> JwtVerifier | None:
    """Return the verifier of JWTs that the settings describe; ``None`` if the service accepts no JWTs.

    Raises:
        KeyFileError: the file of keys cannot be used.
    """
    if settings.jwt_keys_file is None or not settings.authentication:
        return None
    return JwtVerifier(
        settings.jwt_keys_file,
        settings.jwt_algorithms,
        settings.jwt_issuer,
        settings.jwt_audience,
        clock.now_ms,
        clock.elapsed_ms,
    )


class AccessControl:
    """The registry of keys, tokens and ACLs, and the authenticator that uses it. Thread: the event loop."""

    def __init__(
        self,
        registry: AccessRegistry,
        settings: Settings,
        clock: Clock,
        pool: Executor,
        failed: Counter,
        jwts: JwtVerifier | None,
    ) -> None:
        self.registry = registry
        self.authenticator = Authenticator(
            registry,
            FailureLimit(settings.authentication_failures_per_minute, clock.elapsed_ms),
            failed,
            jwts,
            [ipaddress.ip_network(proxy) for proxy in settings.trusted_proxies],
        )
        self._pool = pool
        self._lock = asyncio.Lock()

    async def change(self, call: Callable[[], Result]) -> Result:
        """Run one of the registry's changes. The change is durable and in force on return.

        Raises:
            Problem: 422, the change is not valid; nothing was changed.
            DiskFullError, TooManyOpenFilesError, DiskFailedError: nothing was changed.
            ChangeOutcomeUnknownError: the change is in force, but the next start may not find it.
        """
        async with self._lock:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._pool, call)
            except AccessChangeError as error:
                raise invalid_value(json_pointer(error.place), str(error)) from None
            except NotDurableError as error:
                raise outcome_unknown("the change is in force, but not durable", error) from error
            except OSError as error:
                raise refused_by_system("the change could not be written down", error) from error

    def note(self, who: str, what: str) -> None:
        """Write an audit line about a change: the principal, and the change in words."""
        audit.info("%s by %s", what, who)
