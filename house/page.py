"""The house numbers as a page, and a walk as text."""

from __future__ import annotations

from collections.abc import Iterator

from docs.markdown import code, table
from house.imports import KINDS
from house.limits import Group, Limits
from house.modules import Rooms
from house.numbers import Numbers
from house.walks import Walk

MARK = "<!-- Written by `make house HOUSE=--record`: do not edit below. -->"
_SIZE = "## Size"
FOLDERS_SHOWN_ABOVE = 10


def generated(numbers: Numbers, limits: Limits) -> list[str]:
    """The lines of the page below its mark."""
    return [
        *("## Folders", ""),
        f"Folders with more than {FOLDERS_SHOWN_ABOVE} modules beside each other.",
        *("", *_folders(numbers, limits), "", "## Rooms", "", *_rooms(numbers, limits), *_circles(numbers)),
        *("", "## Classes", "", f"Classes with more than {limits.methods.most} methods.", ""),
        *_listed(("class", "methods", "reason"), numbers.methods, limits.methods),
        *("", "## Files", "", f"Files with more than {limits.lines.most} lines.", ""),
        *_listed(("file", "lines", "reason"), numbers.lines, limits.lines),
        *("", "## Walks", "", *_walks(numbers, limits), "", _SIZE, "", *_size(numbers, limits)),
    ]


def fresh_text(old: str, lines: list[str]) -> str:
    """The page with its hand-written head and these generated lines.

    Raises:
        ValueError: the page has lost its mark.
    """
    head, mark, _ = old.partition(MARK)
    if not mark:
        raise ValueError(f"the page has lost its mark: {MARK}")
    return f"{head}{MARK}\n\n" + "\n".join(line.rstrip() for line in lines) + "\n"


def is_stale(recorded: str, fresh: str) -> bool:
    """Whether the recorded page differs in anything but its last part, which nearly each commit changes."""
    return recorded.partition(f"\n{_SIZE}\n")[0] != fresh.partition(f"\n{_SIZE}\n")[0]


def walk_text(entry: str, walk: Walk) -> Iterator[str]:
    """Every stay of a walk, one a line, and where it stops."""
    width = max(len(f"{stay.path}:{stay.line}") for stay in walk.stays)
    yield f"{entry}: {_in_words(walk)}"
    known: set[str] = set()
    for number, stay in enumerate(walk.stays, 1):
        again = "again" if stay.path in known else ""
        known.add(stay.path)
        place = f"{stay.path}:{stay.line}"
        names = f"  [{', '.join(stay.names)}]" if stay.names else ""
        yield f"{number:4} {again:5} {place:{width}}  {', '.join(stay.functions)}{names}"
    for stop in walk.stops:
        candidates = ", ".join(stop.call.candidates) or "called through a variable"
        yield f"stops at {stop.path}:{stop.line}  {stop.call.text}(): {candidates}"


def arrows_text(rooms: Rooms) -> Iterator[str]:
    """Every arrow with the imports behind it, one a line, those with the fewest imports first."""
    circles = [set(circle) for circle in rooms.circles]
    for pair, imports in sorted(rooms.arrows.items(), key=lambda item: (len(item[1]), item[0])):
        mark = "  (in a circle)" if any(circle.issuperset(pair) for circle in circles) else ""
        modules = ", ".join(sorted({f"{each.importer} imports {each.imported}" for each in imports}))
        yield f"{' -> '.join(pair)}{mark}: {modules}"


def _in_words(walk: Walk) -> str:
    return f"{len(walk.stays)} stays, {walk.return_count} returns, {walk.file_count} files, {len(walk.stops)} stops"


def _limit(group: Group, name: str) -> tuple[object, object]:
    """The goal, and the number that is allowed until it is reached."""
    goal = group.goal(name)
    return "" if goal is None else goal, group.listed[name].now if name in group.listed else ""


def _folders(numbers: Numbers, limits: Limits) -> list[str]:
    shown = {name: count for name, count in numbers.folders.items() if count > FOLDERS_SHOWN_ABOVE}
    rows = sorted(shown.items(), key=lambda row: (-row[1], row[0]))
    header = ("folder", "modules", "limit", "allowed until then")
    return table(header, ((code(name), count, *_limit(limits.folders, name)) for name, count in rows))


def _rooms(numbers: Numbers, limits: Limits) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (f"rooms of {package}", len(rooms.names), "", "") for package, rooms in numbers.rooms.items()
    ]
    rows += [(name, number, *_limit(limits.rooms, name)) for name, number in sorted(numbers.of_rooms().items())]
    return table(("number", "today", "limit", "allowed until then"), rows)


def _circles(numbers: Numbers) -> Iterator[str]:
    found = [(f"rooms of {package}", each) for package, rooms in numbers.rooms.items() for each in rooms.circles]
    found += [("modules", each) for each in numbers.module_circles]
    if found:
        yield ""
        yield from table(("circle of", "members"), ((kind, ", ".join(map(code, names))) for kind, names in found))


def _listed(header: tuple[str, str, str], counts: dict[str, int], group: Group) -> list[str]:
    above = sorted(name for name, count in counts.items() if count > (group.goal(name) or 0))
    reasons = {name: entry.reason for name, entry in group.listed.items()}
    return table(header, ((code(name), counts[name], reasons.get(name, "")) for name in above))


def _walks(numbers: Numbers, limits: Limits) -> list[str]:
    header = (
        "walk",
        "stays",
        "limit",
        "allowed until then",
        "returns",
        "limit",
        "allowed until then",
        "files",
        "stops",
    )
    return table(header, (_walk_row(entry, numbers, limits) for entry in limits.entries))


def _walk_row(entry: str, numbers: Numbers, limits: Limits) -> tuple[object, ...]:
    walk = numbers.walks.get(entry)
    if walk is None:
        return code(entry), "not there"
    stays, returns = _limit(limits.stays, entry), _limit(limits.returns, entry)
    return code(entry), len(walk.stays), *stays, walk.return_count, *returns, walk.file_count, len(walk.stops)


def _size(numbers: Numbers, limits: Limits) -> Iterator[str]:
    allowed = limits.statements
    before, now = sum(allowed.before.values()), sum(numbers.statements.values())
    yield f"As of the last record. The limit of the total is {allowed.most} statements, the aim is {allowed.aim}."
    yield ""
    rows = [(code(place), allowed.before[place], count) for place, count in numbers.statements.items()]
    yield from table(("statements of", f"at {allowed.commit}", "today"), [*rows, ("total", before, now)])
    yield ""
    yield from table(
        ("imports of our modules", "today"), ((words, numbers.imports.get(kind, 0)) for kind, words in KINDS.items())
    )
