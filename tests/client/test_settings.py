from __future__ import annotations

import pickle

import pytest

from rollway.client import ClientSettings, RollwayClient, RollwayError


def test_settings_can_be_sent_to_tasks_and_show_no_secret() -> None:
    settings = ClientSettings("http://127.0.0.1:8080/", token="s3cret", client_key_password="als0")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.url == "http://127.0.0.1:8080"
    assert "s3cret" not in repr(settings)
    assert "als0" not in repr(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "127.0.0.1:8080"}, "is not an address like http://127.0.0.1:8080"),
        ({"url": "ftp://host"}, "is not an address like"),
        ({"url": "http://"}, "is not an address like"),
        ({"url": "http://host:99999"}, "is not an address: Port out of range"),
        ({"url": "http://host?a=b"}, "has a query or a fragment"),
        ({"url": "http://user:s3cret@host"}, "must not have a user or a password"),
        ({"url": "http://host", "retries": -1}, "retries is -1, but must be at least 0"),
        ({"url": "http://host", "backoff_ms": 0}, "backoff_ms is 0, but must be at least 1"),
        ({"url": "http://host", "token": "s3cret\r\nX: y"}, "token must be printable ASCII"),
        ({"url": "https://host", "client_key": "key.pem"}, "client_key needs client_certificate"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_sentence(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ClientSettings(**settings)  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_client_is_not_sent_to_tasks() -> None:
    with RollwayClient(ClientSettings("http://127.0.0.1:8080")) as client, pytest.raises(TypeError, match="settings"):
        pickle.dumps(client)


def test_certificates_that_cannot_be_read_are_named() -> None:
    with pytest.raises(RollwayError, match=r"cannot use the certificates in missing\.pem: .*No such file"):
        RollwayClient(ClientSettings("https://127.0.0.1:8080", ca_file="missing.pem"))
