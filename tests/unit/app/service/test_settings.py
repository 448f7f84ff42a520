"""Settings: their sources, their strictness, and the sentences about what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.settings import ENVIRONMENT_PREFIX, Settings, SettingsError, is_loopback, load_settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"{ENVIRONMENT_PREFIX}{name}".upper(), raising=False)


def sentence_about(**given: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(**given)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_defaults_are_those_of_the_documentation() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.data_dir) == ("127.0.0.1", 8080, Path("rollway-data"))
    assert settings.request_body_bytes_max == 32 * 1024 * 1024
    assert (settings.retention_check_interval_ms, settings.checkpoint_interval_ms) == (300_000, 60_000)
    assert settings.topic_defaults == {}


def test_arguments_beat_the_environment_which_beats_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rollway.toml"
    file.write_text(
        'port = 1\nbacklog = 2\nwaiter_count_max = 3\n[topic_defaults]\nretention.ms = 4\n"segment.bytes" = 50\n'
    )
    monkeypatch.setenv("ROLLWAY_PORT", "10")
    monkeypatch.setenv("ROLLWAY_BACKLOG", "20")
    settings = load_settings(config=file, port=100)
    assert (settings.port, settings.backlog, settings.waiter_count_max) == (100, 20, 3)
    assert settings.topic_defaults == {"retention.ms": 4, "segment.bytes": 50}


def test_the_file_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rollway.toml"
    file.write_text("port = 7\n")
    monkeypatch.setenv("ROLLWAY_CONFIG", str(file))
    assert load_settings().port == 7


@pytest.mark.parametrize(
    "text",
    ["retention.ms=5,cleanup.policy=compact,delete", '{"retention.ms": "5", "cleanup.policy": "compact,delete"}'],
)
def test_topic_defaults_in_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ROLLWAY_TOPIC_DEFAULTS", text)
    assert load_settings().topic_defaults == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def test_the_file_delete_delay_is_a_topic_default_unless_that_is_given() -> None:
    assert load_settings(file_delete_delay_ms=7).topic_defaults == {"file.delete.delay.ms": 7}
    given = {"file.delete.delay.ms": 8}
    assert load_settings(file_delete_delay_ms=7, topic_defaults=given).topic_defaults == given
    assert load_settings(topic_defaults={}).topic_defaults == {}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"nonsense": 1}, "nonsense is no setting of Rollway"),
        ({"port": 65_536}, "port: "),
        ({"port": "x"}, "port: "),
        ({"log_level": "loud"}, "log_level: "),
        ({"request_body_bytes_max": 0}, "request_body_bytes_max: "),
        ({"topic_defaults": "retention.ms"}, "name=value"),
        ({"topic_defaults": "{"}, "is no JSON object"),
        ({"topic_defaults": {"retention.ms": "soon"}}, "retention.ms: must be a whole number"),
        ({"topic_defaults": {"no.such.thing": 1}}, "no.such.thing: is not a topic setting"),
        ({"config": "/no/such/file.toml"}, "/no/such/file.toml does not exist"),
        ({"host": "0.0.0.0"}, "insecure_no_authentication"),
        ({"host": "::"}, "insecure_no_authentication"),
        ({"host": ""}, "insecure_no_authentication"),
        ({"host": "rollway.example"}, "insecure_no_authentication"),
        ({"port": -1, "backlog": 0}, "backlog: "),
    ],
)
def test_what_is_wrong_is_one_sentence(given: dict[str, Any], part: str) -> None:
    assert part in sentence_about(**given)


def test_unknown_names_are_refused_in_every_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "rollway.toml"
    file.write_text("prot = 7\n")
    assert "prot is no setting of Rollway" in sentence_about(config=file)
    file.write_text("port = \n")
    assert "is no TOML" in sentence_about(config=file)
    monkeypatch.setenv("ROLLWAY_PROT", "7")
    assert "ROLLWAY_PROT" in sentence_about()


def test_variables_of_the_client_commands_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLWAY_SERVER", "http://127.0.0.1:8080")
    monkeypatch.setenv("ROLLWAY_PURE_PYTHON", "1")
    assert load_settings().port == 8080


def test_other_addresses_need_a_word_of_consent() -> None:
    assert load_settings(host="0.0.0.0", insecure_no_authentication=True).host == "0.0.0.0"
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert is_loopback(host)
        assert load_settings(host=host).host == host


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load_settings().port = 1  # type: ignore[misc]


def test_every_setting_is_documented_with_its_variable() -> None:
    assert f"{ENVIRONMENT_PREFIX}port".upper() == "ROLLWAY_PORT"
    assert Settings.model_fields["port"].default == 8080
    for field in Settings.model_fields.values():
        assert (field.description or "").endswith(".")


def test_unknown_variables_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLWAY_ONE", "1")
    assert sentence_about() == "The environment has ROLLWAY_ONE, which is no setting of Rollway."
    monkeypatch.setenv("ROLLWAY_TWO", "2")
    assert sentence_about() == "The environment has ROLLWAY_ONE, ROLLWAY_TWO, which are no settings of Rollway."
