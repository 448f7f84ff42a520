"""Half of a surrogate pair in a line of input, or in an answer: the error names it and its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import run
from app.cli.json_paths import RecordTextError, parse_json
from tests.failures.test_second_attack_command_line import COMMANDS, answering

TOPIC = b'{"name": "t", "partitions": [{"partition": 0}], "config": {}}'


@pytest.mark.parametrize("options", [["--format", "records"], ["--format", "ndjson"], ["--value", "$.value"]])
def test_produce_names_the_surrogate_its_line_and_its_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """It said that the input data was truncated."""
    path = tmp_path / "lines"
    path.write_text('\n{"value": "\\ud800"}\n')
    with answering("application/json", TOPIC) as server:
        assert run(["produce", "t", str(path), *options, "--server", server]) == 1
    told = capsys.readouterr().err
    assert told.startswith(r"rollway: Line 2: it is not JSON: \ud800 at column 12 is an unpaired surrogate. ")
    assert "truncated" not in told


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (rb'{"value":"\ud800"}', r"\ud800 at column 11 is an unpaired surrogate"),
        (rb'{"value":"\uDBFFxyzabcdefg"}', r"\uDBFF at column 11 is an unpaired surrogate"),
        (rb'{"value":"\udc00"}', r"\udc00 at column 11 is an unpaired surrogate"),
        (rb'{"v":"\ud83d\ude00\ud800\ud83d\ude00"}', r"\ud800 at column 19 is an unpaired surrogate"),
        (rb'{"v":"\\ud800\\\ud800"}', r"\ud800 at column 16 is an unpaired surrogate"),
        (rb'{"\ud800":1}', r"\ud800 at column 3 is an unpaired surrogate"),
        ('{"é漢🙂":"\\ud800"}'.encode(), r"\ud800 at column 9 is an unpaired surrogate"),
        (rb'{"v":1e999,"w":"\ud800"}', r"\ud800 at column 17 is an unpaired surrogate"),
        (rb'{"v":"\ud800","w":1e999}', r"\ud800 at column 7 is an unpaired surrogate"),
        (rb'"\ud800"', r"\ud800 at column 2 is an unpaired surrogate"),
    ],
)
def test_every_unpaired_surrogate_is_named(line: bytes, why: str) -> None:
    with pytest.raises(RecordTextError) as refused:
        parse_json(line)
    assert str(refused.value) == f"it is not JSON: {why}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (rb'{"v":"\ud800', "Input data was truncated"),
        (rb'{"v":"\ud8', "Input data was truncated"),
        (rb'{"v":"\ud800"} x', "JSON is malformed: trailing characters (byte 16)"),
        (rb'{"v":"\ud800","w":[}', "JSON is malformed: invalid character (byte 19)"),
    ],
)
def test_a_line_with_another_fault_is_told_that(line: bytes, why: str) -> None:
    with pytest.raises(RecordTextError) as refused:
        parse_json(line)
    assert str(refused.value) == f"it is not JSON: {why}"


def test_a_pair_and_an_escaped_backslash_are_text() -> None:
    assert parse_json(rb'{"v":"\ud83d\ude00\\ud800"}') == {"v": "😀\\ud800"}


def test_bytes_of_a_surrogate_beside_a_large_number_are_refused() -> None:
    """They were a traceback: the parser for large numbers takes such bytes."""
    with pytest.raises(RecordTextError, match="it is not JSON: it is not UTF-8"):
        parse_json(b'{"k": 1e400, "v": "\xed\xa0\x80"}')


@pytest.mark.parametrize(
    "body", [rb'{"name": "\ud800"}', rb'{"data": [{"name": "\ud800"}]}', b'{"name": "\xed\xa0\x80"}']
)
def test_an_answer_with_an_unpaired_surrogate_is_none_of_the_service(
    body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering("application/json", body) as server:
        for command in COMMANDS:
            assert run([*command, "--server", server]) == 1, command
            shown = capsys.readouterr()
            assert "Rollway service" in shown.err, command
            assert len(shown.err.splitlines()) == 1, shown.err
