"""Addresses, proxies, names and numbers that cannot be: one sentence for each, before anything is sent."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from app.cli import run
from app.settings import SettingsError, load_settings, parse_topic_defaults
from rollway.client import ClientSettings, RollwayClient, ServiceUnavailableError
from tests.support.access import Authority

NOWHERE = "http://127.0.0.1:9"
ELSEWHERE = "http://rollway.invalid:9"


@pytest.mark.parametrize(
    "server",
    [
        "http://a..b:8080",
        f"http://{'a' * 64}:8080",
        "http://.",
        "http://xn--.com",
        "http://xn--zzzzzzzzzzzzzzz.com",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:0",
        "http://127.0.0.1:8080?limit=1",
        "http://127.0.0.1:8080#top",
        "http://a%zz",
        "   ",
    ],
)
@pytest.mark.parametrize("command", [["topics", "list"], ["tail", "t"]])
def test_what_is_no_address_is_refused(command: list[str], server: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--server", server]) == 2
    assert f"{server!r} is not the address of a service" in capfd.readouterr().err


def test_a_password_in_an_address_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--server", "http://me:secret-word@127.0.0.1:9"]) == 2
    error = capfd.readouterr().err
    assert "--api-key" in error
    assert "secret-word" not in error


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTP_PROXY", "socks5://127.0.0.1:9"),
        ("ALL_PROXY", "socks5://127.0.0.1:9"),
        ("HTTP_PROXY", "foo://x"),
        ("HTTP_PROXY", "http://[::"),
        ("NO_PROXY", "[::1]"),
    ],
)
@pytest.mark.parametrize("command", [["topics", "list"], ["tail", "t"]])
def test_a_proxy_that_cannot_be_used_is_told(
    command: list[str], variable: str, value: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv(variable, value)
    assert run([*command, "--server", ELSEWHERE]) == 2
    assert "A proxy of the environment (HTTP_PROXY" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["missing.pem", "empty.pem"])
def test_authorities_that_cannot_be_used_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
    assert run(["topics", "list", "--server", "https://rollway.invalid:9"]) == 1
    assert f"The authorities in {tmp_path / name} (SSL_CERT_FILE) cannot be used: " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("has_tls", "why"),
    [
        (True, "its certificate is not trusted (unable to get local issuer certificate); SSL_CERT_FILE names"),
        (False, "is it a service without TLS, at http://?"),
    ],
)
def test_an_error_of_tls_is_told(has_tls: bool, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client breaks the handshake
        if has_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*Authority(tmp_path).issue("server"))
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"https://127.0.0.1:{server.server_port}"
        assert run(["topics", "list", "--server", address]) == 1
        thread.join()
    error = capfd.readouterr().err
    assert f"rollway: No service answers at {address} over TLS: " in error
    assert why in error


@pytest.mark.parametrize(
    "command",
    [
        ["positions", "show"],
        ["positions", "delete"],
        ["transactions", "describe"],
        ["transactions", "abort"],
        ["jobs", "describe"],
        ["jobs", "abort"],
        ["keys", "revoke"],
        ["tokens", "revoke"],
    ],
)
@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_another_path_is_refused(
    command: list[str], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, name, "--server", NOWHERE]) == 2
    assert f"{name!r} cannot be a name" in capfd.readouterr().err


@pytest.mark.parametrize(
    "command", [["topics", "list", "--prefix"], ["positions", "show"], ["jobs", "abort"], ["keys", "revoke"]]
)
def test_a_name_that_no_address_can_hold_is_refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "x" * 70_000, "--server", NOWHERE]) == 2
    assert "is longer than any that a service takes" in capfd.readouterr().err


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_setting_of_thousands_of_digits_is_a_sentence(sign: str, capfd: pytest.CaptureFixture[str]) -> None:
    setting = f"retention.ms={sign}{'9' * 5_000}"
    assert run(["topics", "create", "t", "--config", setting, "--server", NOWHERE]) == 1
    assert "No service answers" in capfd.readouterr().err
    assert run(["serve", "--topic-default", setting]) == 2
    assert "retention.ms: must be a whole number" in capfd.readouterr().err


@pytest.mark.parametrize("contents", [f"port = {'9' * 5_000}", f"x = {'[' * 20_000}"])
def test_a_settings_file_that_python_does_not_read_is_a_sentence(contents: str, tmp_path: Path) -> None:
    file = tmp_path / "rollway.toml"
    file.write_text(contents)
    with pytest.raises(SettingsError, match=r"rollway\.toml cannot be read"):
        load_settings(config=file)


def test_defaults_of_topics_that_are_nested_deeply_are_a_sentence() -> None:
    with pytest.raises(ValueError, match="is nested too deeply"):
        parse_topic_defaults('{"a":' * 20_000)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_that_has_no_name_is_a_sentence(host: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = str(tmp_path / "data")
    options = ["--host", host, "--insecure-no-authentication", "--port", "0", "--data-dir", directory]
    assert run(["serve", *options]) == 1
    assert "it cannot be a host's name" in capfd.readouterr().err


@pytest.mark.parametrize("url", ["http://a b:1", "http://a\x7fb:1", "http://127.0.0.1:1/a b"])
def test_the_library_refuses_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="has characters that no address has"):
        ClientSettings(url)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "."])
def test_the_library_does_not_ask_again_for_a_host_that_cannot_be(host: str) -> None:
    client = RollwayClient(ClientSettings(f"http://{host}:9"))
    with pytest.raises(ServiceUnavailableError, match="tried once"):
        client.list_topics()
    assert client.retry_count == 0
