"""``rollway log import`` as people and programs see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import run
from tests.support.kafka_directory import TOPIC_ID, KafkaDirectory, two_segments


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The log directory of a broker, without the metadata of its cluster."""
    made = KafkaDirectory(tmp_path / "broker")
    made.add_partition("orders-0", two_segments())
    return made.logs


def test_a_directory_is_imported(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "data"
    assert run(["log", "import", str(source), str(target)]) == 0
    captured = capfd.readouterr()
    assert "orders" in captured.out
    assert captured.out.endswith(f"Copied 1 partition to {target}.\n")
    assert "no metadata of its cluster: give the settings of topics with --settings" in captured.err
    assert run(["log", "verify", "-q", str(target)]) == 0
    assert capfd.readouterr().out == ""


def test_a_dry_run_copies_nothing(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"orders": {"retention.ms": 5}}')
    line = ["log", "import", str(source), str(tmp_path / "data"), "--settings", str(settings), "--dry-run"]
    assert run(line) == 0
    out = capfd.readouterr().out
    assert "retention.bytes=-1, retention.ms=5" in out
    assert out.endswith("Dry run: 1 partition would be copied.\n")
    assert not (tmp_path / "data").exists()
    assert run([*line, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {
        "topics": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partitions": 1,
                "config": {"retention.ms": 5, "retention.bytes": -1},
                "left_out": {},
            }
        ],
        "has_metadata": False,
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "must have the form"),
        ('{"orders": 5}', "must have the form"),
        ('{"payments": {}}', "not imported: payments"),
        ('{"orders": {"segment.ms": "soon"}}', "Settings of orders: segment.ms"),
        (None, "cannot be read"),
    ],
)
def test_settings_that_cannot_be_used(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], settings: str | None, sentence: str
) -> None:
    path = tmp_path / "settings.json"
    if settings is not None:
        path.write_text(settings)
    assert run(["log", "import", str(source), str(tmp_path / "data"), "--settings", str(path)]) != 0
    assert sentence in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_what_is_no_broker_directory_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "import", str(tmp_path), str(tmp_path / "data")]) != 0
    assert "is not the log directory of a broker" in capfd.readouterr().err
    assert run(["log", "import", str(tmp_path / "absent"), str(tmp_path / "data")]) != 0
    assert "is not the log directory of a broker" in capfd.readouterr().err


def test_a_topic_is_chosen(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "import", str(source), str(tmp_path / "data"), "--topic", "payments"]) != 0
    assert "has no topic payments" in capfd.readouterr().err
    assert run(["log", "import", str(source), str(tmp_path / "data"), "--topic", "orders"]) == 0
    assert run(["log", "import", str(source), str(tmp_path / "data"), "--topic", "orders"]) != 0
    assert "is not empty" in capfd.readouterr().err
