"""How commands fail: one sentence on stderr, the documented exit status, never a traceback."""

from __future__ import annotations

import httpx
import pytest
from typer.testing import CliRunner

from app.cli import make_application, run
from app.cli.command_errors import UsageProblem
from app.cli.http_session import client_settings, error_of_problem, problem_error

NO_SERVER = ["--server", "http://127.0.0.1:1"]


def commands_of(application_commands: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command of a typer application, as the words that call it."""
    found = []
    for name, command in application_commands.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            found += commands_of(command, (*path, name))
        else:
            found.append((*path, name))
    return found


def every_command() -> list[tuple[str, ...]]:
    import typer.main

    return commands_of(typer.main.get_command(make_application()))


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_has_help_with_examples(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(make_application(), [*words, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "\n  Examples:\n" in result.output, "a paragraph of its own, as \\b in a help text makes it"
    assert "default: (" not in result.output, "a default in two kinds of brackets"
    assert f"rollway {' '.join(words)}" in result.output


@pytest.mark.parametrize("words", [words for words in every_command() if words != ("serve",)], ids=" ".join)
def test_every_command_can_answer_in_json(words: tuple[str, ...]) -> None:
    assert "--json" in CliRunner().invoke(make_application(), [*words, "--help"]).output


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_that_names_a_service_can_say_who_asks(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(make_application(), [*words, "--help"]).output
    assert ("--server" in shown) == ("--api-key" in shown)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create", "orders"],
        ["topics", "list"],
        ["topics", "describe", "orders"],
        ["topics", "alter", "orders", "-c", "retention.ms=1"],
        ["topics", "delete", "orders", "--yes"],
        ["produce", "orders", "/dev/null"],
        ["fetch", "orders"],
        ["tail", "orders"],
        ["offsets", "orders"],
        ["retention", "plan", "orders"],
        ["retention", "run", "orders"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_without_a_service_each_command_says_so_in_one_sentence(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, *NO_SERVER]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("rollway: No service answers at http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["topics"], "Missing command"),
        (["topics", "create"], "TOPIC"),
        (["topics", "create", "orders", "--partitions", "0"], "partitions"),
        (["topics", "create", "orders", "--config", "retention.ms"], "NAME=VALUE"),
        (["topics", "alter", "orders"], "Nothing to change"),
        (["topics", "alter", "orders", "-c", "a=1", "--unset", "a"], "both set and unset"),
        (["topics", "delete", "orders"], "--yes"),
        (["produce", "orders", "--format", "csv"], "csv"),
        (["produce", "orders", "--format", "lines", "--key", "$.a"], "--format ndjson"),
        (["produce", "orders", "--key", "$["], "not a JSON path"),
        (["fetch", "orders", "--offset", "-5"], "--offset"),
        (["fetch", "orders", "--offset", "1", "--tail", "1"], "exclude each other"),
        (["fetch", "orders", "--timestamp", "soon"], "not a timestamp"),
        (["fetch", "orders", "--until", "soon"], "not a timestamp"),
        (["fetch", "orders", "--format", "raw", "-n", "5"], "cannot cut a batch"),
        (["offsets", "orders", "--timestamp", "soon"], "max_timestamp"),
        (["topics", "list", "--server", "ftp://example"], "not the address"),
        (["topics", "list", "--server", "http://host:port"], "not the address"),
        (["serve", "--port", "65536"], "65535"),
        (["serve", "--topic-default", "no.such.setting=1"], "no.such.setting"),
        (["serve", "--log-level", "loud"], "log_level"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_status_2_and_one_sentence(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("rollway: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_no_arguments_show_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    assert "rollway topics create" in capfd.readouterr().out


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("app.cli.administration.topics.open_session", interrupt)
    assert run(["topics", "list"]) == 130
    assert capfd.readouterr() == ("", "")


def test_the_detail_of_a_problem_is_the_sentence() -> None:
    problem = {
        "status": 404,
        "title": "Not found",
        "detail": "Topic orders does not exist.",
        "code": "unknown_topic_or_partition",
        "retryable": False,
        "applied": "no",
    }
    error = problem_error(httpx.Response(404, json=problem))
    assert str(error) == "Topic orders does not exist."
    assert (error.status, error.code, error.retryable) == (404, "unknown_topic_or_partition", False)


def test_single_errors_of_a_problem_are_told_too() -> None:
    problem = {
        "status": 422,
        "detail": "The body is wrong.",
        "errors": [{"pointer": "/partitions", "detail": "must be 1 or more"}],
    }
    assert str(error_of_problem(problem, 422)) == "The body is wrong (/partitions: must be 1 or more)."


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"5"])
def test_an_answer_that_is_no_problem_still_gives_a_sentence(body: bytes) -> None:
    error = problem_error(httpx.Response(502, content=body))
    assert str(error) == "The service answered 502 Bad Gateway."


def test_a_server_without_a_scheme_is_understood() -> None:
    assert str(client_settings("localhost:8080")["base_url"]) == "http://localhost:8080"
    assert client_settings("http://127.0.0.1:1")["trust_env"] is False
    assert client_settings("http://example.org")["trust_env"] is True
    with pytest.raises(UsageProblem):
        client_settings("mailto:me")
