"""The registry of keys, tokens and ACLs, in memory and on the disk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.access.access import ANONYMOUS
from app.access.access_files import FILE_BYTES_MAX, AccessFiles, FullError, size_of_tokens
from app.access.acls import Acl, Acls
from app.access.credentials import (
    KEY_PREFIX,
    TOKEN_PREFIX,
    Grant,
    Key,
    Token,
    hash_secret,
    new_number,
    new_secret,
    written,
)
from app.access.operations import (
    OFFERED,
    WILDCARD,
    Operation,
    Pattern,
    PatternKind,
    Resource,
    ResourceKind,
    implied_by,
)
from schemas.names import KEY_PRINCIPAL
from storage.disk.file_system import FileSystem
from storage.disk.whole_files import NotDurableError

ACCESS_DIRECTORY = "access"
KEYS_MAX = 10_000
TOKENS_MAX = 10_000
ACLS_MAX = 10_000
TOKENS_OF_ONE_MAX = 1_000
TOKENS_OF_ONE_BYTES_MAX = 4 * 1024 * 1024
"""Greatest size of one principal's tokens in the file, so that other principals have room for theirs."""
GRANTS_MAX = 100
TOKEN_LIFETIME_MS_MAX = 366 * 86_400_000
DESCRIPTION_LENGTH_MAX = 200

_ACL_PRINCIPAL = re.compile(r"\*|(?:User|Jwt|Certificate):.{1,500}")
_RESOURCE_NAME_LENGTH_MAX = 249


class AccessChangeError(ValueError):
    """A change that is not valid, or that exceeds a limit. Nothing was changed. The message is for people.

    ``place`` is the path to the member at fault, in the names of ``schemas.access``; empty: the whole change.
    Example: ``("acls", 2, "principal")``.
    """

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.place = place


class AccessRegistry:
    """The keys, tokens and ACLs of one data directory.

    Thread: any thread reads; one at a time changes. Each change is first made durable and then visible, by one
    assignment.
    """

    def __init__(self, files: AccessFiles, now_ms: Callable[[], int], super_users: Iterable[str] = ()) -> None:
        """Read the files.

        Raises:
            CorruptionError: a file is damaged.
            OSError: the disk refused.
        """
        stored = files.load()
        self._files = files
        self.now_ms = now_ms
        self.keys = {key.number: key for key in stored.keys}
        self.tokens = {token.number: token for token in stored.tokens}
        self.acls = Acls(stored.acls, super_users)

    @classmethod
    def open(
        cls, own_directory: Path, file_system: FileSystem, now_ms: Callable[[], int], super_users: Iterable[str] = ()
    ) -> AccessRegistry:
        """Open the registry in ``<data>/rollway``. Raises as the constructor."""
        return cls(AccessFiles(file_system, own_directory / ACCESS_DIRECTORY), now_ms, super_users)

    # Keys

    def create_key(self, principal: str, description: str = "", expires_ms: int | None = None) -> tuple[Key, str]:
        """Make a key for ``principal``. The second value is the whole key, which cannot be retrieved again.

        Raises:
            AccessChangeError: the principal cannot have keys, the key would be expired, or there are too many keys.
            OSError: the disk refused.
        """
        if KEY_PRINCIPAL.fullmatch(principal) is None or principal == ANONYMOUS:
            raise AccessChangeError(
                "the principal of a key is User:name, with letters, digits and . _ @ + = - in name", "principal"
            )
        self._check_times(description, expires_ms)
        if len(self.keys) >= KEYS_MAX:
            raise AccessChangeError(f"there are {KEYS_MAX} keys already; revoke some")
        secret = new_secret()
        key = Key(new_number(), principal, hash_secret(secret), self.now_ms(), expires_ms, description)
        self._set_keys({**self.keys, key.number: key})
        return key, written(KEY_PREFIX, key.number, secret)

    def revoke_key(self, number: str) -> Key | None:
        """Revoke a key, and the tokens that it created. Return it, or ``None`` if there is no such key.

        Raises:
            OSError: the disk refused; the key is still valid.
        """
        key = self.keys.get(number)
        if key is not None:
            self._set_keys({name: other for name, other in self.keys.items() if name != number})
        return key

    def is_key_good(self, number: str | None) -> bool:
        """Return whether this key exists and has not expired."""
        key = None if number is None else self.keys.get(number)
        return key is not None and not key.is_expired(self.now_ms())

    def is_token_good(self, number: str) -> bool:
        """Return whether this token exists and has not expired, and the key that created it is valid."""
        token = self.tokens.get(number)
        if token is None or token.is_expired(self.now_ms()):
            return False
        return token.issuer_key is None or self.is_key_good(token.issuer_key)

    def _set_keys(self, keys: dict[str, Key]) -> None:
        with _written("keys", lambda: self._put_keys(keys)):
            self._files.save_keys(keys.values())

    def _put_keys(self, keys: dict[str, Key]) -> None:
        self.keys = keys

    # Tokens

    def create_token(
        self,
        principal: str,
        grants: Sequence[Grant],
        *,
        issuer_key: str | None,
        expires_ms: int,
        description: str = "",
    ) -> tuple[Token, str]:
        """Make a token with some of the rights of ``principal``. The second value is the whole token.

        Raises:
            AccessChangeError: the token would have rights that its issuer has not, or would live too long; or this
                principal or all principals together have too many tokens.
            OSError: the disk refused.
        """
        self._check_times(description, expires_ms)
        if expires_ms - self.now_ms() > TOKEN_LIFETIME_MS_MAX:
            raise AccessChangeError("a token lives for a year at most", "expires_at")
        if not 1 <= len(grants) <= GRANTS_MAX:
            raise AccessChangeError(f"a token has 1 to {GRANTS_MAX} grants", "grants")
        for grant in grants:
            if grant.pattern.kind is ResourceKind.CLUSTER:
                detail = "a token is for topics, groups and transactional ids, never for the cluster"
                raise AccessChangeError(detail, "grants")
            try:
                check_pattern(grant.operation, grant.pattern)
            except AccessChangeError as error:
                raise AccessChangeError(str(error), "grants") from None
            if not self.acls.covers(principal, grant.operation, grant.pattern):
                detail = f"{principal} may not {grant.operation} {grant.pattern}, so its token may not"
                raise AccessChangeError(detail, "grants")
        now_ms = self.now_ms()
        alive = {number: token for number, token in self.tokens.items() if not token.is_expired(now_ms)}
        if len(alive) >= TOKENS_MAX:
            raise AccessChangeError(f"there are {TOKENS_MAX} tokens already; revoke some")
        secret = new_secret()
        token = Token(
            new_number(), principal, hash_secret(secret), now_ms, expires_ms, description, issuer_key, tuple(grants)
        )
        self._check_share(token, alive.values())
        self._set_tokens({**alive, token.number: token})
        return token, written(TOKEN_PREFIX, token.number, secret)

    def _check_share(self, made: Token, alive: Iterable[Token]) -> None:
        own = [made, *(token for token in alive if token.principal == made.principal)]
        if len(own) > TOKENS_OF_ONE_MAX:
            raise AccessChangeError(f"{made.principal} has {TOKENS_OF_ONE_MAX} tokens already; revoke some")
        if size_of_tokens(own) > TOKENS_OF_ONE_BYTES_MAX:
            raise AccessChangeError(
                f"the tokens of {made.principal} would take more than {TOKENS_OF_ONE_BYTES_MAX} bytes; revoke some, or "
                "name fewer resources: a prefix does the work of many"
            )

    def revoke_token(self, number: str) -> Token | None:
        """Revoke a token. Return it, or ``None`` if there is no such token.

        Raises:
            OSError: the disk refused; the token is still valid.
        """
        token = self.tokens.get(number)
        if token is not None:
            self._set_tokens({name: other for name, other in self.tokens.items() if name != number})
        return token

    def _set_tokens(self, tokens: dict[str, Token]) -> None:
        with _written("tokens", lambda: self._put_tokens(tokens)):
            self._files.save_tokens(tokens.values())

    def _put_tokens(self, tokens: dict[str, Token]) -> None:
        self.tokens = tokens

    # ACLs

    def add_acls(self, acls: Iterable[Acl]) -> list[Acl]:
        """Add these ACLs. Return the ones that did not exist yet.

        Raises:
            AccessChangeError: one is not valid, or there are too many; none was added.
            OSError: the disk refused; none was added.
        """
        acls = list(acls)
        for number, acl in enumerate(acls):
            try:
                check_acl(acl)
            except AccessChangeError as error:
                raise AccessChangeError(str(error), "acls", number, *error.place) from None
        wanted = list(dict.fromkeys(acls))
        added = [acl for acl in wanted if acl not in self.acls.acls]
        if len(self.acls.acls) + len(added) > ACLS_MAX:
            raise AccessChangeError(f"there may be {ACLS_MAX} ACLs; a prefix or * does the work of many")
        if added:
            self._set_acls(self.acls.acls | set(added))
        return added

    def remove_acls(self, is_wanted: Callable[[Acl], bool]) -> list[Acl]:
        """Remove the ACLs for which ``is_wanted`` is true. Return them.

        Raises:
            OSError: the disk refused; none was removed.
        """
        removed = sorted(filter(is_wanted, self.acls.acls))
        if removed:
            self._set_acls(self.acls.acls - set(removed))
        return removed

    def _set_acls(self, acls: frozenset[Acl]) -> None:
        with _written("ACLs", lambda: self._put_acls(acls)):
            self._files.save_acls(acls)

    def _put_acls(self, acls: frozenset[Acl]) -> None:
        self.acls = Acls(acls, self.acls.super_users)

    def _check_times(self, description: str, expires_ms: int | None) -> None:
        if len(description) > DESCRIPTION_LENGTH_MAX or not description.isprintable():
            raise AccessChangeError(
                f"a description has at most {DESCRIPTION_LENGTH_MAX} printable characters", "description"
            )
        if expires_ms is not None and expires_ms <= self.now_ms():
            raise AccessChangeError("it would have expired already", "expires_at")


@contextmanager
def _written(what: str, put: Callable[[], None]) -> Iterator[None]:
    """Call ``put``, which brings the change into force, once the body of the ``with`` has written the file.

    ``put`` is also called if the written file may not be durable.

    Raises:
        AccessChangeError: a file would be too long.
        NotDurableError: the change is in force, but the next start may not find it.
        OSError: the disk refused; nothing was changed.
    """
    try:
        yield
    except FullError:
        raise AccessChangeError(
            f"all {what} together would be longer than the {FILE_BYTES_MAX} bytes that a start reads; remove some"
        ) from None
    except NotDurableError:
        put()
        raise
    put()


def check_acl(acl: Acl) -> None:
    """Return if the ACL is valid.

    Raises:
        AccessChangeError: it is not.
    """
    if _ACL_PRINCIPAL.fullmatch(acl.principal) is None or not acl.principal.isprintable():
        raise AccessChangeError(
            "the principal of an ACL is User:name, Jwt:subject, Certificate:distinguished-name, one of these with * "
            "for all of them, or * for everybody",
            "principal",
        )
    check_pattern(acl.operation, acl.pattern)


def check_pattern(operation: Operation, pattern: Pattern) -> None:
    """Return if the operation exists on resources of this pattern, and the pattern is valid.

    Raises:
        AccessChangeError: it does not, or the pattern is not valid.
    """
    if operation not in OFFERED[pattern.kind]:
        offered = ", ".join(sorted(OFFERED[pattern.kind]))
        raise AccessChangeError(f"a {pattern.kind} knows {offered}, not {operation}", "operation")
    if not 1 <= len(pattern.name) <= _RESOURCE_NAME_LENGTH_MAX or not pattern.name.isprintable():
        raise AccessChangeError(
            f"a resource's name has 1 to {_RESOURCE_NAME_LENGTH_MAX} printable characters", "resource_name"
        )
    if pattern.pattern is PatternKind.PREFIXED and pattern.name == WILDCARD:
        raise AccessChangeError(
            "* with prefixed would be a name that begins with *; use literal for everything", "pattern_type"
        )
    if pattern.kind is ResourceKind.CLUSTER and (
        pattern.name not in ("kafka-cluster", WILDCARD) or pattern.pattern is PatternKind.PREFIXED
    ):
        raise AccessChangeError("the cluster's name is kafka-cluster", "resource_name")


class PrincipalRights:
    """The rights of a principal at the moment of each call."""

    __slots__ = ("_key", "_principal", "_registry")

    def __init__(self, registry: AccessRegistry, principal: str, key: Key | None = None) -> None:
        """Hold the rights of ``principal``. ``key`` is the API key of the request, or ``None`` if it has none."""
        self._registry = registry
        self._principal = principal
        self._key = key

    def are_alive(self) -> bool:
        return self._key is None or self._registry.is_key_good(self._key.number)

    def allows(self, operation: Operation, resource: Resource) -> bool:
        return self._registry.acls.allows(self._principal, operation, resource)

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        return self._registry.acls.allows_any(self._principal, operation, kind)


class TokenRights:
    """The rights of a token at the moment of each call: its grants, as far as its issuer still has these rights."""

    __slots__ = ("_registry", "_token")

    def __init__(self, registry: AccessRegistry, token: Token) -> None:
        self._registry = registry
        self._token = token

    def are_alive(self) -> bool:
        return self._registry.is_token_good(self._token.number)

    def allows(self, operation: Operation, resource: Resource) -> bool:
        sufficient = implied_by(operation)
        return any(
            grant.operation in sufficient and grant.pattern.matches(resource) for grant in self._token.grants
        ) and self._registry.acls.allows(self._token.principal, operation, resource)

    def allows_any(self, operation: Operation, kind: ResourceKind) -> bool:
        sufficient = implied_by(operation)
        allowed = list(self._registry.acls.allowed_patterns(self._token.principal, operation, kind))
        return any(
            grant.operation in sufficient and (pattern.covers(grant.pattern) or grant.pattern.covers(pattern))
            for grant in self._token.grants
            for pattern in allowed
        )
