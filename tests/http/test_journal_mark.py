"""``meta.properties`` of a real service: while the journal may have records that the segments lack, no other program
takes the directory for its own; after a clean stop each of them may."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.cli import run
from storage.log_inspection import Severity, verify_directory
from tests.support.servers import ServerProcess

pytestmark = pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")

PARTITIONS = 4
COUNT = 5


def properties_of(data_dir: Path) -> dict[str, str]:
    """The file as ``java.util.Properties`` reads these plain lines."""
    text = (data_dir / "logs" / "meta.properties").read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def version_for_kafka(properties: dict[str, str]) -> int:
    """Kafka's ``MetaPropertiesVersion.fromNumberString``: it knows versions 0 and 1."""
    if "version" not in properties:
        raise RuntimeError("No version specified in meta.properties")
    number = int(properties["version"])
    if number not in (0, 1):
        raise RuntimeError(f"Unknown meta.properties version number {number}")
    return number


def is_taken_by_earlier_versions(properties: dict[str, str]) -> bool:
    """The rule of the service before it had a journal."""
    return properties.get("version") in {"0", "1"}


def fill(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        client.put("/v1/topics/t", json={"partitions": PARTITIONS}).raise_for_status()
        for number in range(COUNT):
            for partition in range(PARTITIONS):
                path = f"/v1/topics/t/partitions/{partition}/records"
                client.post(path, json={"records": [{"value": f"value {number}"}]}).raise_for_status()


def values_in(url: str) -> list[list[str]]:
    with httpx.Client(base_url=url) as client:
        paths = [f"/v1/topics/t/partitions/{partition}/records?offset=0" for partition in range(PARTITIONS)]
        return [[record["value"] for record in client.get(path).json()["records"]] for path in paths]


def damage(data_dir: Path) -> list[str]:
    return [each.sentence for each in verify_directory(data_dir).findings if each.severity is Severity.DAMAGE]


def test_only_a_clean_stop_gives_the_directory_away(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data_dir = tmp_path / "data"
    expected = [[f"value {number}" for number in range(COUNT)]] * PARTITIONS
    with ServerProcess(data_dir) as server:
        fill(server.url)
        properties = properties_of(data_dir)
        assert properties["version"] == "1000"
        assert len(properties["rollway.journal.id"]) == 22
        with pytest.raises(RuntimeError, match="version number 1000"):
            version_for_kafka(properties)
        assert not is_taken_by_earlier_versions(properties)
        assert damage(data_dir) == []
        server.kill()
    assert properties_of(data_dir) == properties

    # A power cut may leave nothing of these segments: none was fsynced by itself.
    segments = [data_dir / "logs" / f"t-{partition}" / f"{0:020d}.log" for partition in range(PARTITIONS)]
    lengths = [segment.stat().st_size for segment in segments]
    for segment in segments:
        segment.write_bytes(b"")
    assert damage(data_dir) == []
    capfd.readouterr()
    assert run(["log", "verify", str(data_dir)]) == 0
    said = capfd.readouterr().out
    for segment, length in zip(segments, lengths, strict=True):
        assert (
            f"note: {segment.parent}: the journal has {length} bytes that the segments lack; the next start writes "
            "them again.\n"
        ) in said
    assert said.endswith(f"Clean: {PARTITIONS} partitions with {PARTITIONS * COUNT} records checked.\n")
    assert run(["log", "dump", str(segments[0])]) == 0
    assert capfd.readouterr().err == (
        f"{segments[0]}: the journal has {lengths[0]} more bytes of this file. The next start writes them to it, "
        "and the dump does not show them.\n"
    )

    with ServerProcess(data_dir) as server:
        assert values_in(server.url) == expected
        assert server.stop() == 0
    del properties["rollway.journal.id"]
    assert properties_of(data_dir) == {**properties, "version": "1"}
    assert version_for_kafka(properties_of(data_dir)) == 1
    assert is_taken_by_earlier_versions(properties_of(data_dir))
    assert list((data_dir / "rollway" / "journal").iterdir()), "the files stay, to be written again"
    report = verify_directory(data_dir)
    assert report.is_clean
    assert report.findings == ()
    assert run(["log", "dump", str(segments[0])]) == 0
    assert capfd.readouterr().err == ""
