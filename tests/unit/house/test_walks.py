"""Walks through planted code: their stays and returns, and where they stop."""

from __future__ import annotations

import pytest

from house.definitions import Definitions
from house.page import walk_text
from house.walks import Walk, walk
from tests.unit.house.conftest import Plant


def paths(found: Walk) -> list[str]:
    return [stay.path.rpartition("/")[2].removesuffix(".py") for stay in found.stays]


def names(found: Walk) -> list[list[str]]:
    return [list(stay.names) for stay in found.stays]


def functions(found: Walk) -> list[list[str]]:
    return [list(stay.functions) for stay in found.stays]


def test_a_planted_walk_has_its_stays_and_returns(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from app.b import check
                from app import c

                def handle(request, other):
                    check(request)
                    c.keep(other)
                    c.keep(request.body)
                    check(request)
                """,
            "app/b.py": """
                from app.d import measure

                def check(given):
                    measure(given, 1)
                    return given is None
                """,
            "app/c.py": "def keep(body): pass\n",
            "app/d.py": "def measure(value, unit): pass\n",
        }
    )
    found = walk(Definitions(tree), "app/a.py:handle:request")
    assert paths(found) == ["a", "b", "d", "b", "a", "c", "a"]
    assert (len(found.stays), found.file_count, found.return_count) == (7, 4, 3)
    assert names(found)[:4] == [["request"], ["given"], ["value"], ["given"]]
    assert [stay.line for stay in found.stays] == [5, 4, 1, 6, 8, 1, 9]
    assert found.stops == []


MADE = """
    from app.ends import Box, end

    def handle(request, flag):
        {}
"""


@pytest.mark.parametrize(
    "body",
    [
        "value = request; end(value)",
        "end(request.body.size)",
        "end(request[0])",
        "one, (two, *rest) = request; end(rest)",
        "one, two = flag, request; end(two)",
        "box = Box(request); end(box)",
        "view = memoryview(request); end(view)",
        "value = flag if flag else request; end(value)",
        "value = flag or request; end(value)",
        "end([each.name for each in request])",
        "[end(each) for each in request]",
        "[end(each) for number, each in enumerate(request)]",
        "[end(each) for _, each in zip(flag, request)]",
        "[end(each) for each in request.values()]",
        "[end(key) for key, each in request.items()]",
        "end({'a': request})",
        "end(value=request)",
        "end(*request)",
        "end(**request)",
        "(value := request) and end(value)",
        "flag.kept = request; end(flag.kept.part)",
        "value: object = request; end(value)",
        "def inner(): end(request)",
        "later = lambda: end(request)",
        "call_in(flag, end, request)",
        "partial(end, value=request)",
        "alias = end; alias(request)",
    ],
)
def test_values_made_from_the_value_are_followed(plant: Plant, body: str) -> None:
    ends = "class Box:\n    pass\n\ndef end(value=None, *rest, **named):\n    print(value, rest, named)\n"
    tree = plant({"app/a.py": MADE.format(body), "app/ends.py": ends})
    assert paths(walk(Definitions(tree), "app/a.py:handle:request"))[:2] == ["a", "ends"]


@pytest.mark.parametrize(
    "body",
    [
        "end(flag)",
        "end(len(request))",
        "end(request.measure())",
        "one, two = flag, request; end(one)",
        "[end(number) for number, each in enumerate(request)]",
        "later = lambda request: end(request)",
        "def inner(request): end(request)",
        "flag.kept = request; end(flag.other)",
        "end(request == flag)",
    ],
)
def test_other_values_are_not_followed(plant: Plant, body: str) -> None:
    tree = plant({"app/a.py": MADE.format(body), "app/ends.py": "class Box:\n    pass\n\ndef end(value): pass\n"})
    assert paths(walk(Definitions(tree), "app/a.py:handle:request")) == ["a"]


def test_loops_blocks_and_cases_give_names_to_the_value(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from app import ends

                async def handle(request):
                    for each in request.parts:
                        ends.one(each)
                    async with Open(request) as opened:
                        ends.two(opened)
                    match request.kind:
                        case Kind(name=name, rest=[*others]):
                            ends.three(name)
                            ends.four(others)
                """,
            "app/ends.py": "".join(f"def {name}(value): pass\n" for name in ("one", "two", "three", "four")),
        }
    )
    found = walk(Definitions(tree), "app/a.py:handle:request")
    assert functions(found)[1::2] == [["one"], ["two"], ["three"], ["four"]]


METHODS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
BROKER = """
    from __future__ import annotations

    import weakref
    from dataclasses import dataclass

    from storage.log import Log, Logs

    @dataclass
    class Parts:
        logs: Logs | None
        by_name: dict[str, Log]

    class Broker:
        first: "Log"

        def __init__(self, log: Log, parts: Parts):
            self.log = log
            self._parts = parts
            self.made = Log()
            self.weak = weakref.ref(log)

        def produce(self, batches):
            self._check(batches)
            self.log.one(batches)
            self.first.two(batches)
            self._parts.logs.find("a").three(batches)
            self._parts.by_name.get("a").four(batches)
            self._parts.by_name["a"].five(batches)
            self.made.six(batches)
            self.weak().seven(batches)
            for log in self._parts.logs.all():
                log.eight(batches)
            self._own.nine(batches)

        def _check(self, batches): pass

        @property
        def _own(self) -> Log: ...
"""
LOGS = """
    from __future__ import annotations
    from collections.abc import Iterator

    class Base:
        def nine(self, group): pass

    class Logs:
        def find(self, name: str) -> Log: ...
        def all(self) -> Iterator[Log]: ...

    class Log(Base):
"""


def test_methods_are_found_by_self_and_by_annotations(plant: Plant) -> None:
    def methods(*names: str) -> str:
        return "".join(f"        def {name}(self, group): pass\n" for name in names)

    # The names alone would decide nothing: another class has methods of the same names.
    other = f"    class Other:\n{methods(*METHODS, 'nine', '_check')}"
    tree = plant({"app/a.py": BROKER, "storage/log.py": LOGS + methods(*METHODS), "storage/other.py": other})
    found = walk(Definitions(tree), "app/a.py:Broker.produce:batches")
    assert functions(found)[0] == ["Broker.produce", "Broker._check"]
    assert [name for (name,) in functions(found)[1::2]] == [*(f"Log.{name}" for name in METHODS), "Base.nine"]
    assert found.stops == []


def test_the_value_is_followed_into_its_own_methods_and_into_constructors(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from app.requests import Pending, Request

                def handle(request: Request):
                    pending = Pending(request)
                    pending.settle()
                    Request.make(request)
                """,
            "app/requests.py": """
                class Request:
                    @classmethod
                    def make(cls, source):
                        return cls(source)

                class Pending:
                    def __init__(self, given):
                        self.given = given

                    def settle(self):
                        return self.given
                """,
        }
    )
    found = walk(Definitions(tree), "app/a.py:handle:request")
    assert functions(found)[1::2] == [["Pending.__init__"], ["Pending.settle"], ["Request.make"]]
    assert names(found)[1::2] == [["given", "self.given"], ["self"], ["source"]]


def test_a_name_that_there_is_only_once_decides_without_annotations(plant: Plant) -> None:
    other = "class Other:\n    def append(self, group): pass\n    def only(self, group): pass\n"
    log = "class Log:\n    def append(self, group): pass\n"
    code = "def handle(log, request):\n    log.only(request)\n    log.append(request)\n    log.foreign(request)\n"
    found = walk(
        Definitions(plant({"app/a.py": code, "storage/log.py": log, "storage/other.py": other})),
        "app/a.py:handle:request",
    )
    assert functions(found) == [["handle"], ["Other.only"], ["handle"]]
    (stop,) = found.stops
    assert (stop.path, stop.line, stop.call.text) == ("app/a.py", 3, "log.append")
    assert stop.call.candidates == ("storage/log.py:Log.append", "storage/other.py:Other.append")


def test_a_call_through_a_variable_stops_the_walk(plant: Plant) -> None:
    found = walk(
        Definitions(plant({"app/a.py": "def handle(request, then):\n    then(request)\n"})), "app/a.py:handle:request"
    )
    assert [(stop.line, stop.call.text, stop.call.candidates) for stop in found.stops] == [(2, "then", ())]
    assert list(walk_text("entry", found)) == [
        "entry: 1 stays, 0 returns, 1 files, 1 stops",
        "   1       app/a.py:1  handle  [request]",
        "stops at app/a.py:2  then(): called through a variable",
    ]


ENGINE = """
    from typing import Protocol

    class Engine(Protocol):
        def append(self, batches) -> None: ...
        def read(self, offset) -> None:
            '''Read.'''
"""


def test_a_protocol_leads_to_the_one_class_behind_it(plant: Plant) -> None:
    files = {
        "app/a.py": "from app.engine import Engine\ndef handle(engine: Engine, request):\n    engine.append(request)\n",
        "app/engine.py": ENGINE,
        "app/local.py": "class Local:\n    def append(self, batches): pass\n    def read(self, offset): pass\n",
        "app/mailbox.py": "class Mailbox:\n    def append(self, batches): pass\n",
    }
    found = walk(Definitions(plant(files)), "app/a.py:handle:request")
    assert (paths(found), found.stops) == (["a", "local"], [])

    memory = "from app.engine import Engine\nclass Memory(Engine):\n    def append(self, batches): pass\n"
    found = walk(Definitions(plant({**files, "app/memory.py": memory})), "app/a.py:handle:request")
    assert paths(found) == ["a"]
    assert [stop.call.candidates for stop in found.stops] == [
        ("app/local.py:Local.append", "app/memory.py:Memory.append")
    ]


def test_a_compiled_function_and_a_leaf_are_one_event_each(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from rollway.records.batch import read
                from rollway.records.compiled import load

                fast = load("app._fast")

                def handle(request):
                    fast.append(request)
                    way = fast
                    way.Quick(request)
                    read(request)
                    fast.append(request)
                """,
            "app/_fast.pyx": """
                cdef class Quick:
                    def __init__(self, request):
                        self.append(request)

                    cdef append(self, request):
                        pass

                def append(request):
                    return request
                """,
            "client/src/rollway/records/batch.py": "from app.b import deeper\ndef read(data):\n    deeper(data)\n",
            "app/b.py": "def deeper(data): pass\n",
        }
    )
    definitions = Definitions(tree)
    found = walk(definitions, "app/a.py:handle:request", leaves=["client/src"])
    assert paths(found) == ["a", "_fast.pyx", "a", "_fast.pyx", "a", "batch", "a"]
    assert functions(found)[1::2] == [["append"], ["Quick.__init__"], ["read"]]
    assert [stay.line for stay in found.stays][1::2] == [9, 3, 2]
    assert paths(walk(definitions, "app/a.py:handle:request")) == [*paths(found)[:6], "b", "a"]


def test_a_function_is_read_once_for_each_parameter(plant: Plant) -> None:
    tree = plant(
        {
            "app/a.py": """
                from app.b import both

                def handle(request):
                    both(request, 1)
                    both(request, 2)
                    both(3, request)
                    handle(request)
                """,
            "app/b.py": "def both(one, two):\n    return one, two\n",
        }
    )
    found = walk(Definitions(tree), "app/a.py:handle:request")
    assert paths(found) == ["a", "b", "a", "b", "a"]
    assert names(found)[1::2] == [["one"], ["two"]]


def test_long_chains_of_calls_are_walked(plant: Plant) -> None:
    chain = "".join(
        f"def step_{number}(value):\n    if value:\n        step_{number + 1}(value)\n" for number in range(300)
    )
    found = walk(Definitions(plant({"app/a.py": f"{chain}def step_300(value): pass\n"})), "app/a.py:step_0:value")
    assert len(found.stays[0].functions) == 301


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("app/a.py:missing:value", "has no function missing"),
        ("app/b.py:handle:value", "has no function handle"),
        ("app/a.py:handle:missing", "has no parameter missing"),
        ("app/a.py:handle", "not of the form"),
    ],
)
def test_an_entry_that_is_not_there_is_an_error(plant: Plant, entry: str, message: str) -> None:
    with pytest.raises(LookupError, match=message):
        walk(Definitions(plant({"app/a.py": "def handle(value): pass\n"})), entry)
