"""Every way to take a connection's bytes gives the same answers: 100,000 streams here, more with ``make fuzz-http``."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from app.fast_path import plain_requests
from app.server import connections
from tests.differential.streams import Stream, stream
from tests.differential.ways import THROUGH_TRANSPORT, Stand

STREAMS = int(os.environ.get("FUZZ_STREAMS", "100000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
PARTS = 8

needs_parser = pytest.mark.skipif(connections.compiled is None, reason="there is no other way than httptools")


async def _differences(stand: Stand, seeds: range) -> list[tuple[int, Stream, dict[str, Any]]]:
    found = []
    for seed in seeds:
        each = stream(seed)
        # It differs from "compiled" in the last step alone: some of the streams are enough.
        ways = [way for way in stand.ways if way != THROUGH_TRANSPORT or seed % 8 == 0]
        answers = {way: await stand.run(way, each.pieces, ends=each.ends) for way in ways}
        if any(answered != answers["httptools"] for answered in answers.values()):
            found.append((seed, each, answers))
    return found


@needs_parser
@pytest.mark.parametrize("part", range(PARTS))
def test_every_way_answers_alike(part: int) -> None:
    async def run() -> None:
        count = STREAMS // PARTS
        start = SEED + part * count
        with Stand(asyncio.get_running_loop()) as stand:
            for first in range(start, start + count, 1000):
                different = await _differences(stand, range(first, min(first + 1000, start + count)))
                assert not different, different[0]
        # Most of what can be plain was: nothing here would differ if every request went to httptools.
        assert stand.fast_path.answered_count > count / 4

    asyncio.run(run())


# Readers that are wrong


def _without(pattern: bytes) -> Callable[[bytes], bytes]:
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda head: compiled.sub(b"", head)


def _last_of_two_lengths(head: bytes) -> bytes:
    lines = head.split(b"\r\n")
    lengths = [line for line in lines if line.lower().startswith(b"content-length:")]
    return b"\r\n".join(line for line in lines if line not in lengths[:-1]) if len(lengths) > 1 else head


DEFECTS: dict[str, Callable[[bytes], bytes]] = {
    "a length with a tab is none": _without(rb"\r\ncontent-length:[ ]*\t[^\r]*(?=\r\n)"),
    "a length with white space behind it is none": _without(rb"\r\ncontent-length:[^\r]*[ \t](?=\r\n)"),
    "a coding makes no difference": _without(rb"\r\ntransfer-encoding:[^\r]*(?=\r\n)"),
    "an expectation makes no difference": _without(rb"\r\nexpect:[^\r]*(?=\r\n)"),
    "a connection is always kept": _without(rb"\r\nconnection:[^\r]*(?=\r\n)"),
    "HTTP/1.0 is HTTP/1.1": lambda head: head.replace(b" HTTP/1.0\r\n", b" HTTP/1.1\r\n"),
    "the last of two lengths counts": _last_of_two_lengths,
    "a second host makes no difference": lambda head: head.replace(b"\r\nHost: b\r\n", b"\r\n"),
    "a line feed ends a line": lambda head: re.sub(rb"(?<!\r)\n", b"\r\n", head),
    "white space may stand before a colon": lambda head: head.replace(b" :", b":"),
}


class _DefectiveParser:
    """Reads what is nearly plain as if it were."""

    def __init__(self, sees: Callable[[bytes], bytes]) -> None:
        self._sees = sees
        self._parser = plain_requests.plain_heads

    def read(self, data: bytes, start: int, *limits: int) -> Any:
        end = data.find(b"\r\n\r\n", start) + 4
        head = self._parser.read(self._sees(data[start:end]), 0, *limits) if end >= 4 else None  # type: ignore[union-attr]
        if head is None:
            return None
        names = [name for name in dir(head) if not name.startswith("_")]
        return SimpleNamespace(**{name: getattr(head, name) for name in names} | {"size": end - start})


@needs_parser
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defective_parser_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(plain_requests, "plain_heads", _DefectiveParser(DEFECTS[name]))
        with Stand(asyncio.get_running_loop()) as stand:
            del stand.ways["compiled"], stand.ways[THROUGH_TRANSPORT]
            for seed in range(0, 20_000, 100):
                if await _differences(stand, range(seed, seed + 100)):
                    return
        pytest.fail("it was not found in 20,000 streams")

    asyncio.run(run())
