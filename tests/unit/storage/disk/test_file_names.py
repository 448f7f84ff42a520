"""Names of files and directories, as Kafka writes them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_model.names import PartitionName, topic_name_problem
from storage.disk.file_names import (
    deleted_directory_name,
    is_deleted_directory_name,
    offset_file_name,
    parse_offset_file_name,
    parse_partition_directory_name,
    partition_directory_name,
)

TOPIC_NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})
HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "-", "...", "__consumer_offsets", "x" * 249, "a-0", "-delete"])
def test_topic_names(name):
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a b", "a\x00", "a\n", "é", "x" * 250, "a:b", "../a", "a\u200d", "\uff11"]
)
def test_names_that_are_no_topics(name):
    problem = topic_name_problem(name)
    assert problem
    assert "topic name" in problem


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("orders-0", ("orders", 0)),
        ("my-topic-with-dashes-12", ("my-topic-with-dashes", 12)),
        ("a--1", ("a-", 1)),
        ("--1", ("-", 1)),
        ("orders-0012", ("orders", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("orders", None),
        ("orders-", None),
        ("-0", None),
        ("orders-x", None),
        ("orders-1x", None),
        ("orders-+1", None),
        ("orders-\u0661", None),
        ("or ders-1", None),
        ("orders-99999999999", None),
        ("", None),
        (f"orders-0.{HEX}-delete", None),
        (f"orders-0.{HEX}-future", None),
        (f"orders-0.{HEX}-stray", None),
    ],
)
def test_partition_directories(directory, expected):
    """on-disk: the text before the last dash is the topic."""
    assert parse_partition_directory_name(directory) == expected


@given(topic=TOPIC_NAMES, partition=st.integers(0, 9999))
def test_partition_directories_are_read_back(topic, partition):
    name = PartitionName(topic, partition)
    assert parse_partition_directory_name(partition_directory_name(name)) == name
    assert str(name) == f"{topic}-{partition}"


@given(topic=TOPIC_NAMES, partition=st.integers(0, 9999))
def test_deleted_directories(topic, partition):
    """on-disk: <topic>-<partition>.<32 hex>-delete, at most 255 characters."""
    directory = deleted_directory_name(PartitionName(topic, partition))
    assert len(directory) <= 255
    match = re.fullmatch(rf"(.*)-{partition}\.[0-9a-f]{{32}}-delete", directory)
    assert match is not None
    assert topic.startswith(match[1])
    assert len(match[1]) == min(len(topic), 255 - len(directory) + len(match[1]))
    assert is_deleted_directory_name(directory)
    assert parse_partition_directory_name(directory) is None


def test_two_deletions_of_one_partition_have_two_names():
    name = PartitionName("orders", 0)
    assert deleted_directory_name(name) != deleted_directory_name(name)


@pytest.mark.parametrize(
    "directory", ["orders-0", f"orders-0.{HEX}-future", f"orders-0.{HEX}-stray", f"orders-0.{HEX[:-1]}-delete", ""]
)
def test_directories_that_are_not_deleted(directory):
    assert not is_deleted_directory_name(directory)


def test_offset_file_names_have_twenty_digits():
    assert offset_file_name(42, ".log") == "00000000000000000042.log"
    assert offset_file_name(2**63 - 1, ".timeindex") == "09223372036854775807.timeindex"
    names = [offset_file_name(offset, ".log") for offset in (0, 9, 10, 2**31, 2**63 - 1)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("42.index", (42, ".index", "")),
        ("00000000000000000000.timeindex.deleted", (0, ".timeindex", ".deleted")),
        ("00000000000000000007.txnindex.swap", (7, ".txnindex", ".swap")),
        ("00000000000000000007.log.cleaned", (7, ".log", ".cleaned")),
        ("00000000000000000007.snapshot", (7, ".snapshot", "")),
        ("09223372036854775807.log", (2**63 - 1, ".log", "")),
        ("09223372036854775808.log", None),
        ("99999999999999999999.log", None),
        ("00000000000000000042.LOG", None),
        ("00000000000000000042.txt", None),
        ("00000000000000000042", None),
        (".log", None),
        ("a.log", None),
        ("-1.log", None),
        ("\u0661.log", None),
        ("00000000000000000042.log.tmp", None),
        ("00000000000000000042.log.deleted.deleted", None),
        ("00000000000000000042.snapshot.tmp", None),
        ("leader-epoch-checkpoint", None),
        ("partition.metadata", None),
        ("00000000000000000042.log\n", None),
    ],
)
def test_offset_files(name, expected):
    assert parse_offset_file_name(name) == expected


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]))
def test_offset_files_are_read_back(offset, suffix):
    assert parse_offset_file_name(offset_file_name(offset, suffix)) == (offset, suffix, "")


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_none(text):
    parse_partition_directory_name(text)
    parse_offset_file_name(text)
    assert (topic_name_problem(text) is None) == (
        re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text) is not None and text not in {".", ".."}
    )
