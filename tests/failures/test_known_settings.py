"""Settings that mean nothing, and a terminal that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import run
from app.server.server import Server
from app.settings import SettingsError, load_settings
from tests.support.servers import ServerProcess


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "0", "--data-dir", ""],
        ["serve", "--port", "0", "--config", ""],
        ["keys", "list", "--data-dir", ""],
        ["keys", "create", "--principal", "User:a", "--data-dir", ""],
        ["log", "verify", ""],
        ["log", "dump", ""],
    ],
)
def test_an_empty_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """It was the working directory: a service began there."""
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    assert "it is empty; name a path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["data_dir", "tls_certificate", "tls_key", "tls_client_ca", "jwt_keys_file"])
def test_an_empty_path_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(f"ROLLWAY_{name.upper()}", "")
    with pytest.raises(SettingsError, match=f"{name}: it is empty; name a path"):
        load_settings()


@pytest.mark.parametrize(
    ("kind", "reason"), [("directory", "is a directory"), ("pipe", "is no regular file"), ("none", "does not exist")]
)
def test_what_is_no_settings_file_is_called_what_it_is(tmp_path: Path, kind: str, reason: str) -> None:
    """All of them did not exist."""
    path = tmp_path / "settings"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(SettingsError, match=reason):
        load_settings(config=path)


@pytest.mark.parametrize("line", ["port = true", "backlog = false", "host = true", "request_body_bytes_max = true"])
def test_true_and_false_are_no_numbers(tmp_path: Path, line: str) -> None:
    """``port = true`` was port 1."""
    path = tmp_path / "settings.toml"
    path.write_text(line)
    with pytest.raises(SettingsError, match=line.split()[0]):
        load_settings(config=path)


def test_true_is_what_a_switch_is(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('access_log = true\n[topic_defaults]\n"preallocate" = true\n')
    settings = load_settings(config=path)
    assert settings.access_log is True
    assert settings.topic_defaults == {"preallocate": True}


def test_sighup_stops_cleanly(tmp_path: Path) -> None:
    """It ended the process where it was, and the next start recovered all partitions."""
    with ServerProcess(tmp_path / "data") as process:
        process.signal(signal.SIGHUP)
        assert process.wait() == 0
    assert (tmp_path / "data" / "logs" / ".kafka_cleanshutdown").exists()


def test_sighup_is_nothing_below_nohup() -> None:
    taken: list[int] = []

    async def run_server() -> None:
        stopped = asyncio.Event()

        def handle_exit(number: int, _: object) -> None:
            taken.append(number)
            stopped.set()

        server: Any = SimpleNamespace(handle_exit=handle_exit)
        with Server.capture_signals(server):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            await stopped.wait()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        asyncio.run(run_server())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert taken == [signal.SIGTERM]
