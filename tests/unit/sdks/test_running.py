"""The harness finds what is wrong: generators that warn, programs that leave steps out, defects that are gone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sdks.__main__ import line
from sdks.generators import BETA
from sdks.live_service import LiveService
from sdks.running import Outcome, SdkError, Workshop, run, told
from sdks.steps import STEPS
from tests.unit.sdks.conftest import ALL_OK, generator

TODAY = LiveService("http://127.0.0.1:1", "a key")
TOMORROW = LiveService("http://127.0.0.1:2", "a key")
COUNT = len(STEPS)
Write = Callable[[str], Path]


def outcome_of(tmp_path: Path, **members: Any) -> Outcome:
    return run(generator(**members), Workshop(tmp_path / "sdks", tmp_path / "openapi.json"), TODAY, TOMORROW, "sdk.")


def saying(**states: str) -> str:
    """A program that says ok of all steps but of those: with what it says instead."""
    lines = [states.get(step.replace(" ", "_"), f"ok {step}") for step in STEPS]
    return f"print({chr(10).join(lines)!r})"


def spoken(*lines: str) -> str:
    return "\n".join([*(f"ok {step}" for step in STEPS), *lines])


# What a program says


def test_a_step_is_ok_or_failed_with_a_reason() -> None:
    printed = spoken().replace("ok gone", "failed gone: 200: not 410").replace("ok job", "failed job")
    found = told(f"hello\n{printed}\nok, that was it\n ok job\n")
    assert found == {**dict.fromkeys(STEPS, ""), "gone": "200: not 410", "job": "it failed"}


def test_a_step_that_is_missing_is_named_with_the_last_words() -> None:
    with pytest.raises(SdkError, match=r"did not come to gone, authentication:\n(.|\n)*Segmentation fault"):
        told(spoken("Segmentation fault").replace("ok gone\n", "").replace("ok authentication\n", ""))


@pytest.mark.parametrize("said", ["ok topic", "failed topic: really", "ok topic: twice"])
def test_a_step_that_is_spoken_of_twice_is_refused(said: str) -> None:
    with pytest.raises(SdkError, match="twice of topic"):
        told(spoken(said))


@pytest.mark.parametrize("said", ["ok everything", "failed something: else"])
def test_a_step_that_there_is_not_is_refused(said: str) -> None:
    with pytest.raises(SdkError, match=r"step that there is not: (every|some)thing"):
        told(spoken(said))


# Runs


def test_a_client_that_does_every_step_twice_works(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    outcome = outcome_of(tmp_path)
    assert outcome.failures == outcome.missing == []
    assert outcome.passed == {"today": COUNT, "tomorrow": COUNT}
    assert outcome.failed == {"today": [], "tomorrow": []}
    assert line(outcome).startswith(f"a generator: works, {COUNT} of {COUNT} (today), {COUNT} of {COUNT} (tomorrow)")


def test_a_program_gets_the_service_a_key_a_prefix_and_the_contents(tmp_path: Path, program: Write) -> None:
    program(
        "import json, os\n"
        "assert os.environ['ROLLWAY_API_KEY'] == 'a key'\n"
        "number = os.environ['ROLLWAY_URL'][-1]\n"
        "name = {'1': 'today', '2': 'tomorrow'}[number]\n"
        "assert os.environ['ROLLWAY_PREFIX'] == f'sdk.a-generator.{name}.'\n"
        "assert json.load(open(os.environ['ROLLWAY_CONTENTS']))[0]['name'] == 'nothing'\n" + ALL_OK
    )
    assert outcome_of(tmp_path).failures == []


def test_a_failed_step_fails_the_run_against_the_service_where_it_failed(tmp_path: Path, program: Write) -> None:
    program(
        f"import os\nif os.environ['ROLLWAY_URL'].endswith('2'): {saying(gone='failed gone: 404')}\nelse:\n {saying()}"
    )
    outcome = outcome_of(tmp_path)
    assert outcome.failures == ["gone (tomorrow): 404"]
    assert outcome.passed == {"today": COUNT, "tomorrow": COUNT - 1}
    assert outcome.failed == {"today": [], "tomorrow": ["gone"]}
    assert line(outcome) == "a generator: FAILED\n  gone (tomorrow): 404"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (saying(gone=""), "did not come to gone"),
        (f"{ALL_OK}print('ok everything')", "a step that there is not: everything"),
        (f"{ALL_OK}print('ok gone')", "speaks twice of gone"),
        (f"{ALL_OK}raise SystemExit(3)", "ended with status 3"),
        ("raise ValueError('broken from the start')", "broken from the start"),
    ],
)
def test_a_planted_defect_of_a_program_is_found(tmp_path: Path, program: Write, text: str, failure: str) -> None:
    program(text)
    outcome = outcome_of(tmp_path)
    assert len(outcome.failures) == 1
    assert failure in outcome.failures[0]
    assert outcome.passed == {}


def test_a_program_that_does_not_compile_is_found(tmp_path: Path, program: Write) -> None:
    program(f"{ALL_OK}def")
    [failure] = outcome_of(tmp_path).failures
    assert "py_compile program.py: exit status 1" in failure
    assert "SyntaxError" in failure


def test_a_generator_that_fails_or_cannot_be_started_is_found(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    [failure] = outcome_of(tmp_path, generate=(("{python}", "-c", "raise SystemExit('no schema')"),)).failures
    assert "exit status 1\nno schema" in failure
    [failure] = outcome_of(tmp_path, generate=(("no-such-generator",),)).failures
    assert failure.startswith("no-such-generator: ")


def test_a_command_that_does_not_end_is_found(tmp_path: Path, program: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    program(ALL_OK)
    monkeypatch.setattr("sdks.running._TIMEOUT_SECONDS", 0.01)
    [failure] = outcome_of(tmp_path, generate=(("{python}", "-c", "while True: pass"),)).failures
    assert "timed out" in failure


def test_a_client_is_made_anew_each_time_and_what_is_generated_is_not_kept(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    once = "import pathlib; path = pathlib.Path('client.py'); assert not path.exists(); path.write_text('')"
    for _ in range(2):
        assert outcome_of(tmp_path, generate=(("{python}", "-c", once),)).failures == []
    assert not (tmp_path / "programs" / "a-generator" / "client.py").exists()


# Warnings


def printing(*lines: str) -> tuple[tuple[str, ...], ...]:
    return (("{python}", "-c", f"print({chr(10).join(lines)!r})"),)


@pytest.mark.parametrize(
    "warning",
    [
        "[main] WARN  o.o.codegen.DefaultCodegen - deprecated",
        "[main] ERROR o.o.codegen.DefaultGenerator - no type",
        "Warning: unsupported content type",
        "2 warnings",
        "java.lang.Exception: no such thing",
    ],
)
def test_a_generator_that_warns_fails(tmp_path: Path, program: Write, warning: str) -> None:
    program(ALL_OK)
    outcome = outcome_of(tmp_path, generate=printing("begun", warning, "done"))
    assert outcome.failures == [f"warnings of the generator:\n{warning}"]
    assert outcome.passed == {}


def test_a_generator_that_warns_on_its_error_output_fails(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    warn = ("{python}", "-c", "import sys; print('WARN: deprecated', file=sys.stderr)")
    assert outcome_of(tmp_path, generate=(warn,)).failures == ["warnings of the generator:\nWARN: deprecated"]


def test_warnings_that_are_allowed_are_no_failure_and_others_beside_them_are(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    beta = f"[main] WARN  o.o.codegen - {BETA}. To report an issue"
    assert outcome_of(tmp_path, generate=printing(beta), allowed=(BETA,)).failures == []
    assert outcome_of(tmp_path, generate=printing(beta)).failures == [f"warnings of the generator:\n{beta}"]
    both = outcome_of(tmp_path, generate=printing(beta, "WARN: another"), allowed=(BETA,))
    assert both.failures == ["warnings of the generator:\nWARN: another"]


def test_the_names_of_files_and_members_are_no_warnings(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    news = printing("[main] INFO  o.o.codegen.TemplateManager - writing file exceptions.py", "wrote model ProblemError")
    assert outcome_of(tmp_path, generate=news).failures == []


# Toolchains and tools


def test_a_missing_toolchain_is_not_run_and_never_works(tmp_path: Path, program: Write) -> None:
    path = program(ALL_OK)
    outcome = outcome_of(tmp_path, needs=(sys.executable, "no-such-compiler", "no-such-linker"))
    assert outcome.missing == ["no-such-compiler", "no-such-linker"]
    assert outcome.passed == outcome.failed == {}
    assert line(outcome) == "a generator: not run, without no-such-compiler, no-such-linker"
    assert not (tmp_path / "sdks").exists()
    assert path.exists()


def test_tools_are_installed_once_and_again_when_they_change(
    tmp_path: Path, program: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(ALL_OK)
    monkeypatch.setattr("sdks.running.REQUIREMENTS", tmp_path)
    (tmp_path / "tools.lock").write_text("one")
    installs = tmp_path / "installs"
    count = ("{python}", "-c", f"open({str(installs)!r}, 'a').write('.')")
    for tools, pins, expected in (((count,), "one", "."), ((count,), "one", "."), ((count,), "two", "..")):
        (tmp_path / "tools.lock").write_text(pins)
        assert outcome_of(tmp_path, tools=tools, lock="tools").failures == []
        assert installs.read_text() == expected
    assert outcome_of(tmp_path, tools=(count, count), lock="tools").failures == []
    assert installs.read_text() == "...."


def test_tools_that_could_not_be_installed_are_tried_again(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    for _ in range(2):
        [failure] = outcome_of(tmp_path, tools=(("{python}", "-c", "raise SystemExit('no network')"),)).failures
        assert "no network" in failure


# Defects


def test_a_known_defect_is_no_failure(tmp_path: Path, program: Write) -> None:
    program(saying(gone="failed gone: the template"))
    outcome = outcome_of(tmp_path, defects=(("gone", "the template drops it"),))
    assert outcome.failures == []
    assert outcome.passed == {"today": COUNT - 1, "tomorrow": COUNT - 1}


def test_a_defect_that_is_gone_is_a_failure(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    assert outcome_of(tmp_path, defects=(("gone", "the template drops it"),)).failures == [
        "gone (today) works: its defect is gone",
        "gone (tomorrow) works: its defect is gone",
    ]


def test_another_failure_beside_a_known_defect_is_one(tmp_path: Path, program: Write) -> None:
    program(saying(gone="failed gone: the template", job="failed job: 500"))
    outcome = outcome_of(tmp_path, defects=(("gone", "the template drops it"),))
    assert outcome.failures == ["job (today): 500", "job (tomorrow): 500"]


# Examples

APPENDS = (
    "import pathlib\n"
    "path = pathlib.Path('log')\n"
    "offset = len(path.read_text()) if path.exists() else 0\n"
    "path.write_text('.' * (offset + 1))\n"
)
"""A service of one partition: the number of its records is the size of a file."""


def example_of(tmp_path: Path, program: Write, text: str) -> Outcome:
    (program(ALL_OK).parent / "example.py").write_text(text)
    return outcome_of(tmp_path, example=("{python}", "example.py"))


def test_an_example_that_appends_a_record_and_shows_it_at_last_works(tmp_path: Path, program: Write) -> None:
    shows = "for each in range(offset + 1):\n print(each, 'kitchen', {'celsius': 21.5})\n"
    asks = "import os\nassert os.environ['ROLLWAY_URL'] == 'http://127.0.0.1:1'\nassert os.environ['ROLLWAY_API_KEY']\n"
    assert example_of(tmp_path, program, f"{asks}{APPENDS}{shows}").failures == []


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (f"{APPENDS}print(offset, 'kitchen', 21.5)\nraise SystemExit(3)", "python example.py: exit status 3"),
        ("", "does not show its record"),
        (f"{APPENDS}print('kitchen', 21.5)", "does not show its record"),
        (f"{APPENDS}print(offset, 'kitchen', 21.55)", "does not show its record"),
        (f"{APPENDS}print(offset, 'cellar', 21.5)", "does not show its record"),
        (f"{APPENDS}print(offset, 'kitchen', 21.5)\nprint('invalid_request', 'for good')", "does not show its record"),
        ("print(0, 'kitchen', 21.5)", "did not append one record each time: it shows 0, then 0"),
        (f"{APPENDS}print(2 * offset, 'kitchen', 21.5)", "it shows 0, then 2"),
    ],
)
def test_a_planted_defect_of_an_example_is_found(tmp_path: Path, program: Write, text: str, failure: str) -> None:
    outcome = example_of(tmp_path, program, text)
    assert len(outcome.failures) == 1
    assert failure in outcome.failures[0].replace(sys.executable, "python")
    assert outcome.passed == {"today": COUNT, "tomorrow": COUNT}, "the steps were done before"
    assert line(outcome).startswith("a generator: FAILED")


def test_an_example_that_does_not_compile_is_found(tmp_path: Path, program: Write) -> None:
    (program(ALL_OK).parent / "example.py").write_text("def")
    compiling = (("{python}", "-m", "py_compile", "program.py", "example.py"),)
    [failure] = outcome_of(tmp_path, compile=compiling, example=("{python}", "example.py")).failures
    assert "SyntaxError" in failure


# Tools that are shared


def test_generators_with_one_toolbox_install_it_once(tmp_path: Path, program: Write) -> None:
    program(ALL_OK)
    installs = tmp_path / "installs"
    tools = (("{python}", "-c", f"open({str(installs)!r}, 'a').write('.')"),)
    for slug in ("a-generator", "another"):
        workshop = Workshop(tmp_path / "sdks", tmp_path / "openapi.json")
        workshop.install(generator(slug=slug, tools=tools, toolbox="both"))
    assert installs.read_text() == "."
    assert [each.name for each in (tmp_path / "sdks" / "tools").iterdir()] == ["both"]
