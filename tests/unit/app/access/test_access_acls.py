"""ACLs against Kafka's rules spelt out: which names a pattern means, what implies what, that a deny wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.access.access_files import AccessFiles
from app.access.acls import Acl, Acls, Permission
from app.access.operations import OFFERED, Operation, Pattern, PatternKind, Resource, ResourceKind
from storage.disk.file_system import LocalFileSystem

ME = "User:me"
NAMES = st.text("ab*", min_size=1, max_size=3)
KINDS = st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP])
PATTERNS = st.builds(Pattern, KINDS, NAMES, st.sampled_from(PatternKind))
OPERATIONS = st.sampled_from(sorted(OFFERED[ResourceKind.TOPIC]))
ACLS = st.builds(
    Acl,
    st.sampled_from([ME, "User:*", "*", "User:other", "Jwt:me", "Jwt:*"]),
    st.sampled_from(Permission),
    OPERATIONS,
    PATTERNS,
)
ALL_NAMES = [a + b + c for a in "ab" for b in ("", "a", "b") for c in ("", "a", "b")]
IMPLIED = {
    "DESCRIBE": {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
}


def means(pattern: Pattern, kind: ResourceKind, name: str) -> bool:
    if pattern.kind != kind:
        return False
    if pattern.pattern == "prefixed":
        return name[: len(pattern.name)] == pattern.name
    return pattern.name == "*" or pattern.name == name


def expected(acls: list[Acl], operation: str, kind: ResourceKind, name: str) -> bool:
    mine = [acl for acl in acls if acl.principal in (ME, "User:*", "*") and means(acl.pattern, kind, name)]
    if any(acl.permission == "deny" and acl.operation in ("ALL", operation) for acl in mine):
        return False
    enough = IMPLIED.get(operation, {operation}) | {"ALL"}
    return any(acl.permission == "allow" and acl.operation in enough for acl in mine)


@given(st.lists(ACLS, max_size=6), OPERATIONS, KINDS, NAMES)
def test_decisions_are_kafkas(acls: list[Acl], operation: Operation, kind: ResourceKind, name: str) -> None:
    decided = Acls(acls)
    for _ in range(2):
        assert decided.allows(ME, operation, Resource(kind, name)) is expected(acls, operation, kind, name)
    assert Acls(acls, [ME]).allows(ME, operation, Resource(kind, name))


@given(PATTERNS, PATTERNS)
def test_what_a_pattern_covers_it_means(wide: Pattern, narrow: Pattern) -> None:
    if wide.covers(narrow):
        assert all(means(wide, narrow.kind, name) for name in ALL_NAMES if means(narrow, narrow.kind, name))


@given(st.lists(ACLS, max_size=6), OPERATIONS, PATTERNS)
def test_a_token_is_made_only_for_what_something_allows(
    acls: list[Acl], operation: Operation, pattern: Pattern
) -> None:
    """Single names inside may be denied, which is looked at when the token is used."""
    if Acls(acls).covers(ME, operation, pattern):
        without_denies = [acl for acl in acls if acl.permission == "allow"]
        for name in ALL_NAMES:
            if means(pattern, pattern.kind, name):
                assert expected(without_denies, operation, pattern.kind, name)


@given(st.lists(ACLS, max_size=6), OPERATIONS, KINDS)
def test_any_resource(acls: list[Acl], operation: Operation, kind: ResourceKind) -> None:
    names = [*ALL_NAMES, "*", *(acl.pattern.name for acl in acls), *(f"{acl.pattern.name}b" for acl in acls)]
    if any(expected(acls, operation, kind, name) for name in names):
        assert Acls(acls).allows_any(ME, operation, kind)


def test_files_keep_what_was_saved(tmp_path) -> None:
    files = AccessFiles(LocalFileSystem(), tmp_path / "access")
    assert files.load().acls == frozenset()
    acl = Acl("Certificate:CN=a\\, b", Permission.DENY, Operation.ALL, Pattern(ResourceKind.TOPIC, "ü"))
    files.save_acls([acl])
    assert files.load().acls == {acl}
