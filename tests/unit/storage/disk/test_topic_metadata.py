"""partition.metadata and meta.properties, to the byte."""

from __future__ import annotations

import base64
import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_model.errors import CorruptionError
from storage.disk.file_system import LocalFileSystem
from storage.disk.topic_metadata import (
    CorruptMetadataError,
    MetaProperties,
    is_topic_id,
    mark_journal,
    new_topic_id,
    read_meta_properties,
    read_partition_metadata,
    write_meta_properties,
    write_partition_metadata,
)
from tests.support.recording_file_system import RecordingFileSystem

FILE_SYSTEM = LocalFileSystem()
TOPIC_ID = "BdouUs8URounMxV6TIXe3w"
CLUSTER_ID = "YfncLB0XTv-17LyyY53IZQ"
DIRECTORY_ID = "uyobp5VJRwSQMATWtAPP2Q"
ZERO_ID = "A" * 22


def test_new_ids_are_random_uuids_in_kafkas_spelling():
    ids = {new_topic_id() for _ in range(2000)}
    assert len(ids) == 2000
    for topic_id in ids:
        identity = base64.urlsafe_b64decode(topic_id + "==")
        assert len(topic_id) == 22
        assert len(identity) == 16
        assert identity[6] >> 4 == 4
        assert not topic_id.startswith("-")
        assert is_topic_id(topic_id)


def test_an_id_with_a_leading_dash_is_drawn_again(monkeypatch):
    draws = iter([uuid.UUID(bytes=b"\xf8" + bytes(15)), uuid.UUID(bytes=bytes(range(16)))])
    monkeypatch.setattr("storage.disk.topic_metadata.uuid.uuid4", lambda: next(draws))
    assert new_topic_id() == "AAECAwQFBgcICQoLDA0ODw"
    assert next(draws, None) is None


@pytest.mark.parametrize(
    "text", ["", ZERO_ID, TOPIC_ID[:-1], TOPIC_ID + "A", TOPIC_ID[:-1] + "x", "!" * 22, "é" * 22, TOPIC_ID[:-2] + "=="]
)
def test_what_is_no_topic_id(text):
    assert not is_topic_id(text)


def test_partition_metadata_is_written_to_the_byte_and_read(tmp_path):
    """on-disk: two lines, the last without an end."""
    write_partition_metadata(FILE_SYSTEM, tmp_path, TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: BdouUs8URounMxV6TIXe3w"
    assert read_partition_metadata(FILE_SYSTEM, tmp_path) == TOPIC_ID


def test_partition_metadata_with_a_final_newline_is_read(tmp_path):
    (tmp_path / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    assert read_partition_metadata(FILE_SYSTEM, tmp_path) == TOPIC_ID


def test_files_that_are_missing_are_none(tmp_path):
    assert read_partition_metadata(FILE_SYSTEM, tmp_path) is None
    assert read_meta_properties(FILE_SYSTEM, tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0\n",
        b"version: 1\ntopic_id: " + TOPIC_ID.encode(),
        b"version: 0\ntopic_id: " + ZERO_ID.encode(),
        b"version: 0\ntopic_id: " + TOPIC_ID[:20].encode(),
        b"version: 0\ntopic_id:" + TOPIC_ID.encode(),
        b"topic_id: " + TOPIC_ID.encode() + b"\nversion: 0",
        b"version: 0\ntopic_id: " + TOPIC_ID.encode() + b"\nmore: 1",
        b"version: 0\ntopic_id: \xff\xff",
        b"\x00" * 43,
        b"version: 0\ntopic_id: " + b"x" * 100_000,
    ],
)
def test_damaged_partition_metadata_is_refused_by_name(tmp_path, content):
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CorruptMetadataError, match=r"partition\.metadata") as caught:
        read_partition_metadata(FILE_SYSTEM, tmp_path)
    assert isinstance(caught.value, CorruptionError)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("topic_id", ["", ZERO_ID, "orders"])
def test_an_impossible_id_is_not_written(tmp_path, topic_id):
    with pytest.raises(ValueError, match="topic id"):
        write_partition_metadata(FILE_SYSTEM, tmp_path, topic_id)
    assert list(tmp_path.iterdir()) == []


def test_meta_properties_are_written_to_the_byte_and_read(tmp_path):
    """on-disk: version 1."""
    properties = MetaProperties(CLUSTER_ID, 1, DIRECTORY_ID)
    write_meta_properties(FILE_SYSTEM, tmp_path, properties)
    assert (tmp_path / "meta.properties").read_bytes() == (
        b"version=1\ncluster.id=YfncLB0XTv-17LyyY53IZQ\nnode.id=1\ndirectory.id=uyobp5VJRwSQMATWtAPP2Q\n"
    )
    assert read_meta_properties(FILE_SYSTEM, tmp_path) == properties


def test_meta_properties_without_a_directory_id(tmp_path):
    write_meta_properties(FILE_SYSTEM, tmp_path, MetaProperties(CLUSTER_ID, 0))
    assert (tmp_path / "meta.properties").read_bytes() == f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=0\n".encode()
    assert read_meta_properties(FILE_SYSTEM, tmp_path) == MetaProperties(CLUSTER_ID, 0, None)


def test_an_id_of_a_journal_in_version_1_does_not_count(tmp_path):
    (tmp_path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\nrollway.journal.id={TOPIC_ID}\n"
    )
    assert read_meta_properties(FILE_SYSTEM, tmp_path) == MetaProperties(CLUSTER_ID, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"#\n#Tue Nov 21 08:00\nnode.id=7\ndirectory.id={DIRECTORY_ID}\nversion=1\ncluster.id={CLUSTER_ID}\n",
            MetaProperties(CLUSTER_ID, 7, DIRECTORY_ID),
        ),
        (f"version=0\nbroker.id=3\ncluster.id={CLUSTER_ID}\n", MetaProperties(CLUSTER_ID, 3)),
        ("version=0\nbroker.id=3\n", MetaProperties("", 3)),
        ("  version : 1\r\n! note\r\n\r\nnode.id 2\r\ncluster.id=a\\:b\\=c\r\n", MetaProperties("a:b=c", 2)),
    ],
    ids=["written by Kafka", "version 0", "version 0 without cluster", "other spellings"],
)
def test_meta_properties_of_others_are_read(tmp_path, text, expected):
    (tmp_path / "meta.properties").write_text(text, newline="")
    assert read_meta_properties(FILE_SYSTEM, tmp_path) == expected


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "version is None"),
        (b"version=2\ncluster.id=x\nnode.id=1\n", "version is '2'"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", "node.id is missing"),
        (b"version=1\ncluster.id=x\nbroker.id=1\n", "node.id is missing"),
        (b"version=0\ncluster.id=x\nnode.id=1\n", "broker.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=-1\n", "node.id is missing or no number"),
        (b"version=1\ncluster.id=x\nnode.id=2147483648\n", "node.id is missing or no number"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", "node.id is missing or no number"),
        (b"version=1\ncluster.id=\xff\nnode.id=1\n", "not UTF-8 at byte 21"),
        (b"version=1000\ncluster.id=x\nnode.id=1\nrollway.journal.id=x\n", "version is '1000'"),
        (b"#" * 100_000, "longer than"),
    ],
)
def test_damaged_meta_properties_are_refused_by_name(tmp_path, content, says):
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(CorruptMetadataError, match=says) as caught:
        read_meta_properties(FILE_SYSTEM, tmp_path)
    assert "meta.properties" in str(caught.value)


@pytest.mark.parametrize(
    "properties",
    [
        MetaProperties("", 1),
        MetaProperties("a b", 1),
        MetaProperties("a\nb", 1),
        MetaProperties("a=b", 1),
        MetaProperties("a", -1, "ü"),
    ],
)
def test_values_that_would_need_escapes_are_not_written(tmp_path, properties):
    with pytest.raises(ValueError, match="cannot be"):
        write_meta_properties(FILE_SYSTEM, tmp_path, properties)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content):
    directory = tmp_path_factory.getbasetemp()
    for name, read in (("partition.metadata", read_partition_metadata), ("meta.properties", read_meta_properties)):
        (directory / name).write_bytes(content)
        with pytest.raises(CorruptMetadataError):
            read(FILE_SYSTEM, directory)


def test_both_are_replaced_in_one_durable_step(tmp_path):
    for name, write in (
        ("partition.metadata", lambda disk: write_partition_metadata(disk, tmp_path, TOPIC_ID)),
        ("meta.properties", lambda disk: write_meta_properties(disk, tmp_path, MetaProperties(CLUSTER_ID, 1))),
    ):
        disk = RecordingFileSystem()
        write(disk)
        assert disk.operations == [
            ("create", f"{name}.tmp"),
            ("write", f"{name}.tmp"),
            ("sync", f"{name}.tmp"),
            ("rename", name),
            ("sync_directory", tmp_path.name),
        ]


JOURNAL_ID = "JJoursAAQmyYX1Yd5hxtLw"
PROPERTIES = [
    b"version=1\ncluster.id=abc\nnode.id=7\n",
    b"# of a broker\r\nversion=0\r\nbroker.id=7\r\nlog.kind = other\r\n",
    b"version=1\ncluster.id=with\\:colon\nnode.id=7",
]


@pytest.mark.parametrize("content", PROPERTIES)
def test_the_mark_of_a_journal_is_read_and_leaves_no_trace(tmp_path, content):
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    plain = read_meta_properties(FILE_SYSTEM, tmp_path)
    for _ in range(2):
        mark_journal(FILE_SYSTEM, tmp_path, TOPIC_ID)
        mark_journal(FILE_SYSTEM, tmp_path, JOURNAL_ID)
        assert path.read_bytes().startswith(content + b"\n#")
        assert read_meta_properties(FILE_SYSTEM, tmp_path) == replace(plain, journal_id=JOURNAL_ID)
        mark_journal(FILE_SYSTEM, tmp_path, None)
        assert path.read_bytes() == content
        mark_journal(FILE_SYSTEM, tmp_path, None)
        assert path.read_bytes() == content


def test_a_file_with_the_mark_has_no_version_that_a_broker_knows(tmp_path):
    """Java reads the last line of a key, and brokers refuse versions other than 0 and 1."""
    (tmp_path / "meta.properties").write_bytes(PROPERTIES[0])
    mark_journal(FILE_SYSTEM, tmp_path, JOURNAL_ID)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert [line for line in lines if line.startswith("version")][-1] == "version=1000"


@pytest.mark.parametrize("journal_id", ["", "x", ZERO_ID, JOURNAL_ID + "A", JOURNAL_ID + "\nmore=1"])
def test_a_damaged_mark_is_refused(tmp_path, journal_id):
    (tmp_path / "meta.properties").write_bytes(PROPERTIES[0])
    mark_journal(FILE_SYSTEM, tmp_path, journal_id)
    with pytest.raises(CorruptMetadataError, match="no journal id"):
        read_meta_properties(FILE_SYSTEM, tmp_path)


def test_a_version_of_a_journal_without_its_lines_is_refused(tmp_path):
    (tmp_path / "meta.properties").write_bytes(b"version=1000\ncluster.id=abc\nnode.id=7\n")
    with pytest.raises(CorruptMetadataError, match="version is '1000'"):
        read_meta_properties(FILE_SYSTEM, tmp_path)


def test_there_is_no_mark_without_a_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        mark_journal(FILE_SYSTEM, tmp_path, JOURNAL_ID)
