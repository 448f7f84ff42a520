from __future__ import annotations

import pickle

import pytest

from rollway.client import ClientSettings
from rollway.records import Codec
from rollway.spark.errors import OptionError
from rollway.spark.options.option_names import CONNECTION, READ, WRITE
from rollway.spark.options.options import ReadOptions, WriteOptions
from rollway.spark.source import RollwayDataSource

URL = {"url": "http://127.0.0.1:8080"}
FLIGHTS = {**URL, "subscribe": "flights"}


def read(streaming: bool = False, **options: str) -> ReadOptions:
    return ReadOptions.parse({**FLIGHTS, **options}, streaming=streaming)


def write(**options: str) -> WriteOptions:
    return WriteOptions.parse({**URL, "topic": "flights", **options})


# Names


def test_names_are_taken_in_any_case() -> None:
    for change in (str, str.lower, str.upper):
        options = {change(name): value for name, value in {**FLIGHTS, "maxOffsetsPerTrigger": "7"}.items()}
        assert ReadOptions.parse(options, streaming=True).max_offsets_per_trigger == 7


@pytest.mark.parametrize("name", [*READ, *WRITE, *CONNECTION])
def test_an_option_with_one_letter_too_few_is_told_its_name(name: str) -> None:
    wrong = name[:-1]
    other_names = {each.lower() for each in (*READ, *WRITE, *CONNECTION)}
    if len(name) < 5 or wrong.lower() in other_names:
        return
    parse = write if name in WRITE else read
    with pytest.raises(OptionError, match=rf"there is no option {wrong.lower()}; did you mean \w+\?") as caught:
        parse(**{wrong: "1"})
    assert f"did you mean {name}?" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("path", "load() and save() take no path: name topics with subscribe"),
        ("apiKey", "give the API key, token or JWT as token"),
        ("bootstrap.servers", "give the address as url"),
        ("zzz", "those of a read are assign, caFile, client"),
    ],
)
def test_other_names_that_people_try(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(**{name: "x"})
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_of_the_other_side_are_told_so() -> None:
    with pytest.raises(OptionError, match="deliveryMode is an option of a write, and this is a read"):
        read(deliveryMode="transactional")
    with pytest.raises(OptionError, match="startingOffsets is an option of a read, and this is a write"):
        write(startingOffsets="earliest")


def test_what_spark_hands_on_is_let_pass() -> None:
    options = write(checkpointLocation="/tmp/x", queryName="q")
    assert options == write()
    assert (options.query, write().query) == ("/tmp/x q", None)


# Options of Kafka's clients


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
    ],
)
def test_what_kafkas_source_refuses_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not supported: "):
        read(**{name: "x"})


def test_what_means_nothing_is_ignored_and_named() -> None:
    options = read(**{"kafka.max.poll.records": "5", "kafkaConsumer.pollTimeoutMs": "5", "groupIdPrefix": "x"})
    assert options.ignored == ("groupidprefix", "kafka.max.poll.records", "kafkaconsumer.polltimeoutms")
    assert options == read()
    assert write(**{"kafka.linger.ms": "5", "includeHeaders": "true"}).ignored == ("includeheaders", "kafka.linger.ms")


def test_options_of_kafkas_clients_that_are_for_the_other_side_are_named() -> None:
    for_reads = {"kafka.group.id": "g", "kafka.isolation.level": "read_committed"}
    for_writes = {"kafka.compression.type": "zstd", "kafka.transaction.timeout.ms": "5000"}
    assert write(**for_reads, **for_writes).ignored == tuple(for_reads)
    assert read(**for_reads, **for_writes).ignored == tuple(for_writes)


def test_options_that_another_one_overrules_are_named() -> None:
    kafkas = {"kafka.bootstrap.servers": "h:1", "kafka.sasl.jaas.config": 'a required password="x";'}
    assert read(token="t", **kafkas).ignored == (
        "kafka.bootstrap.servers (url is given)",
        "kafka.sasl.jaas.config (token is given)",
    )
    assert write(compression="lz4", **{"kafka.compression.type": "zstd"}).ignored == (
        "kafka.compression.type (compression is given)",
    )
    assert write(deliveryMode="atLeastOnce", transactionTimeout="1m", maxRejected="5").ignored == (
        "transactionTimeout (deliveryMode is atleastonce)",
        "maxRejected (onReject is fail: the first rejected row ends the load)",
    )
    assert write(transactionTimeout="1m", maxRejected="5", onReject="skip").ignored == ()


def test_what_is_ignored_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    source = RollwayDataSource({**FLIGHTS, "groupIdPrefix": "x", "maxOffsetsPerTrigger": "5"})
    schema = source.schema()
    assert not caplog.records
    source.reader(schema)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Options that do nothing here and are ignored: groupidprefix"),
        ("WARNING", "A batch read has no use for options of streams and ignores maxOffsetsPerTrigger"),
    ]
    caplog.clear()
    source.streamReader(schema)
    assert [record.getMessage() for record in caplog.records] == [
        "Options that do nothing here and are ignored: groupidprefix"
    ]


def test_what_means_something_is_taken() -> None:
    options = ReadOptions.parse(
        {
            "kafka.bootstrap.servers": "rollway.example:8443",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.jaas.config": 'a.b.PlainLoginModule required username="me" password="k3y";',
            "kafka.ssl.ca.location": "ca.pem",
            "kafka.group.id": "readers",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.request.timeout.ms": "5000",
            "kafka.client.id": "nightly",
            "subscribe": "flights",
        },
        streaming=True,
    )
    assert options.client == ClientSettings(
        "https://rollway.example:8443", token="k3y", ca_file="ca.pem", read_timeout_ms=5_000, client_id="nightly"
    )
    assert (options.group_id, options.isolation, options.ignored) == ("readers", "read_uncommitted", ())
    assert "k3y" not in repr(options)
    assert write(**{"kafka.compression.type": "zstd"}).codec is Codec.ZSTD


def test_the_address_of_the_service() -> None:
    for given in (
        {"url": "http://h:1/"},
        {"kafka.bootstrap.servers": "h:1"},
        {"kafka.bootstrap.servers": "http://h:1"},
    ):
        assert ReadOptions.parse({**given, "subscribe": "a"}, streaming=False).client.url == "http://h:1"
    with pytest.raises(OptionError, match="Rollway is one service: give its address alone"):
        ReadOptions.parse({"kafka.bootstrap.servers": "a:1,b:1", "subscribe": "a"}, streaming=False)
    with pytest.raises(OptionError, match="nothing says where Rollway is: give url"):
        ReadOptions.parse({"subscribe": "a"}, streaming=False)
    with pytest.raises(OptionError, match="'flights' is not an address like"):
        ReadOptions.parse({"url": "flights", "subscribe": "a"}, streaming=False)


def test_the_token_may_be_in_the_drivers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLWAY_API_KEY", "from the environment".replace(" ", "-"))
    assert read().client.token == "from-the-environment"
    assert read(token="given").client.token == "given"


# What to read


def test_exactly_one_way_to_name_topics() -> None:
    assert read(subscribe=" a, b ,a").subscribe == ("a", "b")
    assert ReadOptions.parse({**URL, "subscribePattern": "fl.*"}, streaming=False).subscribe_pattern == "fl.*"
    assigned = ReadOptions.parse({**URL, "assign": '{"a": [1, 0], "b": [2]}'}, streaming=False)
    assert assigned.assign == {"a": (0, 1), "b": (2,)}
    with pytest.raises(OptionError, match="give one of subscribe, subscribePattern and assign"):
        ReadOptions.parse(URL, streaming=False)
    with pytest.raises(OptionError, match="give only one of subscribe and assign"):
        read(assign='{"a": [0]}')


def test_defaults_are_those_of_kafkas_source() -> None:
    batch, stream = read(), read(streaming=True)
    assert (batch.starting_offsets, batch.ending_offsets, stream.starting_offsets) == ("earliest", "latest", "latest")
    assert (batch.fail_on_data_loss, batch.include_headers, batch.max_trigger_delay_ms) == (True, False, 900_000)
    assert (batch.starting_offsets_by_timestamp_strategy, batch.isolation) == ("error", "read_committed")


def test_offsets_and_times() -> None:
    offsets = read(startingOffsets='{"a": {"0": 23, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 9}}')
    assert offsets.starting_offsets == {"a": {0: 23, 1: -2}}
    assert offsets.ending_offsets == {"a": {0: -1, 1: 9}}
    times = read(startingOffsetsByTimestamp='{"a": {"0": 5}}', endingTimestamp="7", startingTimestamp=" 0 ")
    assert times.starting_offsets_by_timestamp == {"a": {0: 5}}
    assert (times.ending_timestamp, times.starting_timestamp) == (7, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch read"),
        ({"startingOffsets": '{"a": {"3": -1}}'}, r"startingOffsets of a-3 cannot be latest \(-1\) in a batch read"),
        ({"endingOffsets": "Earliest"}, "endingOffsets cannot be earliest in a batch read"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, r"endingOffsets of a-0 cannot be earliest \(-2\) in a batch read"),
        ({"startingOffsets": "5"}, r"""startingOffsets is '5', but must be like {"topic": {"0": 23, "1": -2}}"""),
        ({"startingOffsets": '{"a": {"x": 5}}'}, "startingOffsets: 'x' is no partition of a"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "a-0 is -3, but must be an offset, -2 or -1"),
        ({"startingOffsets": '{"a": [5]}'}, "what is given for a must be an object of partitions"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": "x"}}'}, "must be milliseconds since 1970"),
        ({"startingOffsetsByTimestampStrategy": "no"}, "is 'no', but must be one of error, latest"),
        ({"minPartitions": "0"}, "minPartitions is '0', but must be a whole number from 1 to 10000"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition is 'x', but must be a whole number of at least 1"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is 'yes', but must be true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon', but must be a duration such as 90s, 15m or 1h"),
        ({"subscribe": " , "}, "subscribe is ',', but must name topics"),
        ({"subscribe": ""}, "subscribe is empty"),
        ({"isolationLevel": "serial"}, "must be one of read_committed, read_uncommitted"),
    ],
)
def test_reads_that_cannot_be_are_refused_in_one_sentence(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        read(**options)
    assert "\n" not in str(caught.value)


def test_a_batch_read_names_options_of_streams() -> None:
    """And does without them, as Kafka's source does."""
    given = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "1", "maxTriggerDelay": "1m", "kafka.group.id": "g"}
    assert read(**given).of_streams == tuple(given)
    assert read(streaming=True, **given).of_streams == ()
    assert ReadOptions.parse({**FLIGHTS, **given}, streaming=None).of_streams == ()


def test_streams_have_no_end() -> None:
    assert read(streaming=True, startingOffsets="latest").starting_offsets == "latest"
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"{name} is for batch reads: a stream has no end"):
            read(streaming=True, **{name: '{"a": {"0": 5}}' if "By" in name or "Off" in name else "5"})
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is 9, which is more than maxOffsetsPerTrigger, 5"):
        read(streaming=True, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")


def test_a_time_overrules_offsets() -> None:
    assert read(startingOffsets="latest", startingTimestamp="5").starting_timestamp == 5


# How to write


def test_writes_are_exactly_once_unless_asked_otherwise() -> None:
    options = write()
    assert (options.delivery_mode, options.codec, options.batch_bytes) == ("transactional", Codec.NONE, 1 << 20)
    assert (options.transaction_timeout_ms, options.on_reject, options.max_rejected) == (600_000, "fail", None)


def test_sizes_and_durations_are_as_spark_writes_them() -> None:
    for text, size in (("65536", 65_536), ("512k", 1 << 19), ("4MB", 4 << 20), ("1g", 1 << 30)):
        assert write(batchBytes=text).batch_bytes == size
    for text, duration in (("500", 500), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000)):
        assert write(transactionTimeout=text).transaction_timeout_ms == duration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"txnVersion": "5"}, "txnVersion needs txnAppId"),
        ({"txnAppId": "a", "jobId": "b"}, "give only one of jobId and txnAppId"),
        ({"txnAppId": "a", "deliveryMode": "atLeastOnce"}, "txnAppId does nothing with deliveryMode=atleastonce"),
        ({"onReject": "topic"}, "onReject=topic and rejectTopic belong together"),
        ({"rejectTopic": "bad"}, "onReject=topic and rejectTopic belong together"),
        ({"compression": "rar"}, "compression is 'rar', but must be one of none, gzip, snappy, lz4, zstd"),
        ({"batchBytes": "2g"}, "batchBytes is '2g', but must be at most 1073741824 bytes"),
        ({"batchBytes": "0"}, "batchBytes is '0', but must be a size"),
        ({"maxInFlight": "65"}, "maxInFlight is '65', but must be a whole number from 1 to 64"),
        ({"retries": "-1"}, "retries is '-1', but must be a whole number from 0"),
        ({"deliveryMode": "twice"}, "must be one of transactional, idempotent, atleastonce"),
    ],
)
def test_writes_that_cannot_be_are_refused_in_one_sentence(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        write(**options)
    assert "\n" not in str(caught.value)


def test_options_are_sent_to_tasks() -> None:
    for options in (read(token="k3y"), write(compression="lz4")):
        assert pickle.loads(pickle.dumps(options)) == options
