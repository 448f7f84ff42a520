"""``load`` changes no byte that it was not asked to change: CSV after RFC 4180, lines of JSON, names of columns."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rollway.spark.jobs import (
    FileSource,
    JobError,
    JobReport,
    LoadRequest,
    RecordExpressions,
    Rejects,
    load,
)
from rollway.spark.jobs.errors import JobUsageError
from rollway.spark.jobs.progress import SilentProgress
from tests.spark.conftest import client, server, spark
from tests.spark.orders import address
from tests.support.servers import ServerProcess

__all__ = ["client", "server", "spark"]

KEEP: dict[str, object] = {"retention.ms": -1}
INPUTS = Path(__file__).parent / "inputs/spark"
_topics = count()


class Said(SilentProgress):
    """What a job says on its way."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


class Files:
    """Loads files into new topics of the service."""

    def __init__(self, spark: SparkSession, server: ServerProcess, folder: Path) -> None:
        self.spark, self.server, self.folder = spark, server, folder
        self.said = Said()
        self.report: JobReport

    def load(self, contents: bytes | str, name: str = "in.csv", **others: Any) -> list[tuple[bytes | None, bytes]]:
        """Keys and values of the records that a file of these contents becomes, in its order."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return self.load_files([str(path)], **others)

    def values(self, contents: bytes | str, name: str = "in.csv", **others: Any) -> list[bytes]:
        return [value for _, value in self.load(contents, name, **others)]

    def rows(self, contents: bytes | str, name: str = "in.csv", **others: Any) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self.values(contents, name, **others)]

    def load_files(
        self, paths: list[str], rejects: Rejects = Rejects(), expressions: dict[str, str] | None = None, **source: Any
    ) -> list[tuple[bytes | None, bytes]]:
        topic = f"files-{next(_topics)}"
        request = LoadRequest(
            source=FileSource(paths=tuple(paths), **source),
            target=address(self.server, topic),
            expressions=RecordExpressions(**(expressions or {})),
            rejects=rejects,
            partitions=1,
            topic_config=KEEP,
        )
        self.report = load(self.spark, request, progress=self.said)
        rows = self.spark.read.format("rollway").options(url=self.server.url, subscribe=topic).load()
        found = sorted(rows.collect(), key=lambda row: row.offset)
        return [(None if row.key is None else bytes(row.key), bytes(row.value)) for row in found]

    @property
    def rejected(self) -> dict[str, int]:
        rejected = self.report.details["rejected"]
        assert isinstance(rejected, dict)
        return rejected


@pytest.fixture
def files(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> Files:
    return Files(spark, server, tmp_path)


# CSV after RFC 4180


def test_doubled_quotes_are_one_quote(files: Files) -> None:
    assert files.rows((INPUTS / "doubled-quotes.csv").read_bytes()) == [
        {"id": "1", "note": 'he said "hi"', "x": "2"},
        {"id": "2", "note": '5" nails', "x": "3"},
        {"id": "3", "note": 'a\\"b', "x": "4"},
    ]
    assert files.rows('id,note\n1,"a "", b"\n2,"""c"""\n') == [
        {"id": "1", "note": 'a ", b'},
        {"id": "2", "note": '"c"'},
    ]
    assert files.rows('id,note\n1,"a \\" b"\n', options={"escape": "\\"}) == [{"id": "1", "note": 'a " b'}]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_line_breaks_within_quotes_are_kept(files: Files, end: str) -> None:
    text = f'id,note{end}1,"a\nb"{end}2,"c\r\nd"{end}3,"last\n\n"{end}4,plain{end}'
    notes = [row["note"] for row in files.rows(text)]
    assert notes == ["a\nb", "c\r\nd", "last\n\n", "plain"]


def test_a_quote_within_a_field_without_quotes_is_text(files: Files) -> None:
    assert [row["note"] for row in files.rows('id,note\n1,5" nails\n2,x"y"z\n')] == ['5" nails', 'x"y"z']


def test_a_field_that_does_not_end_is_no_record(files: Files) -> None:
    """Spark takes all of the file behind the quote for the field, or drops the quote."""
    with pytest.raises(JobError, match=r"in.csv cannot be read: a field in quotes does not end\. .* quote="):
        files.load('id,note\n1,"abc\n2,def\n')
    assert files.rows('id,note\n1,"abc\n2,def\n', options={"quote": ""})[0]["note"] == '"abc'


def test_blanks_behind_quotes_are_not_dropped_silently(files: Files) -> None:
    text = 'id,note\n1,"a" \n2,b\n'
    with pytest.raises(JobError, match=r"blanks stand behind .* --read-option ignoreTrailingWhiteSpace=true leaves"):
        files.load(text)
    assert [row["note"] for row in files.rows(text, options={"ignoreTrailingWhiteSpace": "true"})] == ["a", "b"]
    assert [row["note"] for row in files.rows('id,note\n1,"say "" , x"\n')] == ['say " , x']


def test_files_that_end_lines_in_two_ways_are_not_read_together_over_lines(files: Files, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_bytes(b'id,note\n1,"a\nb"\n')
    (tmp_path / "in/b.csv").write_bytes(b'id,note\r\n2,"a\r\nb"\r\n')
    with pytest.raises(JobError, match="some files end lines with CR LF, others with LF"):
        files.load_files([str(tmp_path / "in")], format="csv")
    (tmp_path / "in/b.csv").unlink()
    (tmp_path / "in/a.csv").write_bytes(b'id,note\n1,"a\nb"\n2,c\r\n')
    assert len(files.load_files([str(tmp_path / "in")], format="csv", rejects=Rejects(skip=True))) == 1
    assert files.rejected == {"the line ends with CR LF, and the first line of the file does not": 1}


def test_empty_text_is_told_from_no_field(files: Files) -> None:
    assert files.rows('id,note\n1,""\n2,\n') == [{"id": "1", "note": ""}, {"id": "2"}]


# Types


def test_fields_of_csv_are_text(files: Files) -> None:
    columns = {"id": "1", "zip": "01234", "part": "1d", "rate": "0.123456789012345678901", "price": "1.10", "qty": "5"}
    monday = files.rows((INPUTS / "monday.csv").read_bytes())
    tuesday = files.rows((INPUTS / "tuesday.csv").read_bytes())
    assert monday == [columns]
    assert [row["qty"] for row in tuesday] == ["n/a", "6"]
    assert [row["zip"] for row in tuesday] == ["01235", "01236"]
    assert {type(value) for row in monday + tuesday for value in row.values()} == {str}


def test_types_are_had_for_the_asking(files: Files) -> None:
    assert files.rows("id,n\n1,2\n", options={"inferSchema": "true"}) == [{"id": 1, "n": 2}]
    assert files.rows("id,n\n1,2\n", schema="id INT, n STRING") == [{"id": 1, "n": "2"}]


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_names_of_folders_are_text(files: Files, spark: SparkSession, kind: str) -> None:
    folder = files.folder / "in"
    spark.sql("SELECT 'x' AS a").write.format(kind).option("header", "true").save(str(folder / "zip=01234"))
    for schema in (None, "a STRING"):
        records = files.load_files([str(folder)], format=kind, schema=schema, expressions={"key": "zip"})
        assert [key for key, _ in records] == [b"01234"]


def test_milliseconds_as_text_are_told_how_to_be_a_timestamp(files: Files) -> None:
    with pytest.raises(JobError, match=r"the timestamp is a number as text: cast\(... AS BIGINT\) makes"):
        files.load("at\n1372896000000\n", expressions={"timestamp": "at"})
    assert len(files.load("at\n1372896000000\n", expressions={"timestamp": "cast(at AS BIGINT)"})) == 1
    with pytest.raises(JobUsageError, match=r"is string: a whole number is needed, and cast\(... AS BIGINT\)"):
        files.load("n\n0\n", expressions={"partition": "n"})


def test_a_schema_with_the_names_of_the_header_at_other_places_is_refused(files: Files) -> None:
    with pytest.raises(JobUsageError, match="--schema has sell as column 1, and the header has it as column 2"):
        files.load("buy,sell\n1,2\n", schema="sell STRING, buy STRING")


# Encodings


@pytest.mark.parametrize("name", ["in.csv", "in.json"])
def test_bytes_that_are_not_utf_8_are_rejected_with_the_option_that_helps(files: Files, name: str) -> None:
    text = "id,note\n1,caf\u00e9\n2,tea\n" if name == "in.csv" else '{"note":"caf\u00e9"}\n{"note":"tea"}\n'
    for expressions in ({}, {"key": "note"}):
        records = files.load(text.encode("latin-1"), name, rejects=Rejects(skip=True), expressions=expressions)
        assert [json.loads(value)["note"] for _, value in records] == ["tea"]
        (reason,) = files.rejected
        assert reason == "the line is not UTF-8: --read-option encoding=... says what it is"
    rows = files.rows(text.encode("latin-1"), name, options={"encoding": "ISO-8859-1"})
    assert [row["note"] for row in rows] == ["caf\u00e9", "tea"]


def test_a_header_that_is_not_utf_8_is_refused(files: Files) -> None:
    with pytest.raises(JobError, match="has a header that is not UTF-8: --read-option encoding="):
        files.load("id,pr\u00e9nom\n1,x\n".encode("latin-1"))


def test_csv_of_wide_characters_is_read(files: Files) -> None:
    text = 'id,note\n1,caf\u00e9\n2,"x\ny"\n'
    rows = files.rows(text.encode("utf-16"), options={"encoding": "UTF-16"})
    assert [row["note"] for row in rows] == ["caf\u00e9", "x\ny"]


def test_a_byte_order_mark_is_no_text(files: Files) -> None:
    assert files.rows('\ufeffid,note\n1,"a\nb"\n') == [{"id": "1", "note": "a\nb"}]
    assert files.values('\ufeff{"a":1}\n', "in.json") == [b'{"a":1}']


# Lines of JSON


@pytest.mark.parametrize("expressions", [{}, {"key": "s"}], ids=["as it is", "with a key"])
def test_a_line_of_json_is_stored_as_it_stands(files: Files, expressions: dict[str, str]) -> None:
    line = (INPUTS / "line.json").read_bytes()
    ((_, value),) = files.load(line, "in.json", expressions=expressions)
    assert value == line.rstrip(b"\n")
    spaced = b'  {"b" : 2,\t"a": [ 1.0, 1e2 ], "c": "\\u0041\\/"} '
    assert files.values(b"\n" + spaced + b"\n\n {}\r\n", "in.json", expressions={}) == [spaced, b" {}"]


@pytest.mark.parametrize(
    "line",
    ["[1]", "5", '"x"', "null", '{"a":1} x', '{"a":1},', '{"a":1}{"a":2}', '{"a":1},{"a":2}', '{"a":', '{"a":01}'],
)
@pytest.mark.parametrize("schema", [None, "a INT"])
def test_a_line_that_is_not_one_object_is_rejected(files: Files, line: str, schema: str | None) -> None:
    text = f'{{"a":1}}\n{line}\n'
    assert files.values(text, "in.json", schema=schema, rejects=Rejects(skip=True)) == [b'{"a":1}']
    assert sum(files.rejected.values()) == 1


def test_bad_lines_are_kept_left_out_or_fatal_by_mode(files: Files) -> None:
    text = '{"a":1}\nno json\n{"a":"x"}\n'
    lines = text.encode().splitlines()
    for mode, expected in [("PERMISSIVE", lines), ("DROPMALFORMED", lines[:1])]:
        assert files.values(text, "in.json", schema="a INT", options={"mode": mode}) == expected
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILFAST"):
        files.load(text, "in.json", schema="a INT", options={"mode": "FAILFAST"}, expressions={"key": "a"})


def test_keys_that_differ_by_case_are_kept(files: Files) -> None:
    lines = (INPUTS / "keys-by-case.json").read_bytes()
    assert files.values(lines, "in.json") == lines.splitlines()
    with pytest.raises(JobUsageError, match=r"ambiguous, .*--conf spark.sql.caseSensitive=true"):
        files.load(lines, "in.json", expressions={"key": "userid"})
    assert files.values(lines, "in.json", expressions={"value": "to_json(struct(*))"}) == lines.splitlines()


def test_a_schema_that_differs_by_case_is_told(files: Files) -> None:
    lines = (INPUTS / "keys-by-case.json").read_bytes()
    with pytest.raises(JobError, match=r"the line has no field USERID, but one whose name differs from it by case"):
        files.load(lines, "in.json", schema="USERID INT")
    files.load(lines, "in.json", schema="userId INT", rejects=Rejects(skip=True))
    assert (files.report.rows, sum(files.rejected.values())) == (1, 1)
    with pytest.raises(JobError, match=r"the line has no field user\.ID, but one"):
        files.load('{"user":{"id":1}}\n', "in.json", schema="user STRUCT<ID: INT>")


def test_fields_that_a_schema_does_not_name_are_kept(files: Files) -> None:
    assert files.load('{"a":1,"b":2.50}\n', "in.json", schema="a INT", expressions={"key": "a"}) == [
        (b"1", b'{"a":1,"b":2.50}')
    ]


def test_numbers_that_are_asked_for_as_text_are_the_text_of_the_line(files: Files) -> None:
    line = '{"x":"1:2","p":1.10,"big":12345678901234567890.123,"h":1e400,"n":-Infinity,"z":-0.0}\n'
    for name, expected in [("p", b"1.10"), ("big", b"12345678901234567890.123"), ("h", b"1e400"), ("z", b"-0.0")]:
        assert files.load(line, "in.json", schema=f"{name} STRING", expressions={"key": name})[0][0] == expected
    with pytest.raises(JobUsageError, match=r"--key 'p' is a double, .* --schema with the column as STRING"):
        files.load(line, "in.json", expressions={"key": "p"})
    assert files.load(line, "in.json", expressions={"key": "cast(p AS STRING)"})[0][0] == b"1.1"


def test_json_that_is_written_anew_is_said(files: Files) -> None:
    files.load('[{"a":1.10},\n{"a":2}]', "in.json", options={"multiLine": "true"})
    assert files.said.sentences[0].startswith("Values are written from the columns")
    files.said.sentences.clear()
    files.load('{"a":1.10}\n', "in.json")
    assert files.said.sentences == []


# Names and stars


@pytest.mark.parametrize("name", ["backtick.csv", "backtick.json"])
def test_backticks_in_names_are_names(files: Files, name: str) -> None:
    records = files.load((INPUTS / name).read_bytes(), f"in.{name[9:]}", expressions={"key": "`price``usd`"})
    assert [(key, {each: str(of) for each, of in json.loads(value).items()}) for key, value in records] == [
        (b"2", {"id": "1", "price`usd": "2"})
    ]


@pytest.mark.parametrize("name", ["in.csv", "in.json"])
def test_a_star_is_the_columns_of_the_file(files: Files, name: str) -> None:
    text = "a,b\nx,y\n" if name == "in.csv" else '{"a":"x","b":"y"}\n'
    expressions = {
        "key": "concat(*, '*', \"*\" /* * */, cast(2*3 AS STRING))",
        "value": "to_json(struct(* EXCEPT (b)))",
        "headers": "map('all', concat_ws('*',*))",
    }
    assert files.load(text, name, expressions=expressions, where="size(array(*)) = 2") == [(b"xy**6", b'{"a":"x"}')]
    one = "a\nx\n" if name == "in.csv" else '{"a":"x"}\n'
    assert files.load(one, name, expressions={"key": "*"})[0][0] == b"x"


# Times


def test_microseconds_are_kept(files: Files, spark: SparkSession) -> None:
    path = str(files.folder / "in.parquet")
    spark.sql(
        "SELECT timestamp'2013-07-04 10:00:00.123456Z' AS a, timestamp_ntz'2013-07-04 10:00:00.000001' AS b"
    ).write.parquet(path)
    for expressions in ({}, {"value": "struct(*)"}):
        ((_, value),) = files.load_files([path], expressions=expressions)
        assert json.loads(value) == {"a": "2013-07-04T10:00:00.123456Z", "b": "2013-07-04T10:00:00.000001"}


def test_nanoseconds_are_told_the_setting_that_reads_them(files: Files, spark: SparkSession) -> None:
    path = files.folder / "in.parquet"
    parquet.write_table(pa.table({"at": pa.array([1577836800123456789], pa.timestamp("ns"))}), path)
    with pytest.raises(JobError, match=r"--conf spark.sql.legacy.parquet.nanosAsLong=true"):
        files.load_files([str(path)])
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    try:
        assert files.load_files([str(path)]) == [(None, b'{"at":1577836800123456789}')]
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")


# Many files


def test_a_header_that_only_one_file_has_is_refused(files: Files, tmp_path: Path) -> None:
    """Whichever file Spark looks at first."""
    (tmp_path / "in").mkdir()
    for number in range(5):
        header = ",b" if number == 0 else ",a"
        (tmp_path / f"in/{number}.csv").write_text(f"{header}\n{number},x\n" + "1,x\n" * number)
    with pytest.raises(JobError, match=r"\.csv cannot be read: its header line has other columns"):
        files.load_files([str(tmp_path / "in")], format="csv")


def test_headers_of_many_files_are_looked_at_in_one_pass(
    files: Files, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column without a name, as pandas writes it, cost a Spark job for each file."""
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / f"in/{number}.csv").write_text(f",a\n{number},x\n")
    group = "headers-in-one-pass"
    spark.sparkContext.setJobGroup(group, group)
    try:
        assert len(files.load_files([str(tmp_path / "in")], format="csv")) == 40
        jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert jobs < 20


# What Spark would change or refuse by itself


def test_a_carriage_return_is_a_byte_of_a_line_of_text(files: Files) -> None:
    """Spark ended a line there, and took it away."""
    lines = [b"a\rb", b"c\r", b"\r", b"d"]
    assert files.values(b"\n".join(lines) + b"\n", "in.log", format="text") == lines
    # As it was, if that is asked for.
    assert files.values(b"a\r\nb\r\n", "crlf.log", format="text", options={"lineSep": "\r\n"}) == [b"a", b"b"]


def test_csv_with_more_columns_than_spark_takes_is_told_what_helps(files: Files) -> None:
    """Spark takes 20,480, and said so in words of its parser's."""
    with pytest.raises(JobError, match=r"--read-option maxColumns=\.\.\. allows more"):
        files.values("a,b,c\n1,2,3\n", options={"maxColumns": "2"})
