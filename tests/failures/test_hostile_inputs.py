"""Small on the wire, large in memory or long on the loop: over a table of hostile inputs the budgets hold, the loop
does little in a turn, and a lasting obstacle has a lasting error (`sec-header-bomb-json-fetch.py`,
`r1a-small-batch-big-record.py`, `sec-json-body-amplification.py`). Counts alone: `make loop-test` measures times.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence

import httpx
import pytest

from app.fast_path import fetch_json
from app.produce import stored_records
from app.record_json import decoding, json_values, record_texts, work_rooms
from app.record_json.json_values import VALUES_MAX
from rollway.records import Codec, Record, RecordColumns, columns_from_records, encode_batch
from tests.failures import hostile_inputs
from tests.failures.hostile_inputs import BODIES, BOMBS, FETCHES, Body, Bomb, LoopWork, loop_work, read_on, store
from tests.support.servers import ThreadedServer, http_client

__all__ = ["loop_work"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    with ThreadedServer(tmp_path_factory.mktemp("hostile") / "data", **hostile_inputs.SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: ThreadedServer) -> Iterator[httpx.Client]:
    with http_client(server.url) as client:
        config = {"flush.policy": "interval", "retention.ms": -1}
        client.put("/v1/topics/bodies", json={"config": config}).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def stored(client: httpx.Client) -> dict[str, str]:
    return {bomb.name: store(client, bomb) for bomb in BOMBS}


def check(server: ThreadedServer, work: LoopWork) -> None:
    """The budgets were kept, and no turn of the loop was long."""
    parts = server.service.parts
    assert parts.rooms.peak_bytes <= hostile_inputs.DECODING_BYTES_MAX
    assert parts.answer_budget.peak_bytes <= 2 * hostile_inputs.ANSWERS_BYTES_MAX + work_rooms.SMALL_TEXT_BYTES
    assert parts.body_budget.peak_bytes <= hostile_inputs.BODIES_BYTES_MAX + hostile_inputs.MIB
    assert parts.rooms.meter.piece_text_bytes_max <= hostile_inputs.ANSWERS_BYTES_MAX
    assert work.parsed_bytes_max <= hostile_inputs.LOOP_PARSED_BYTES_MAX
    assert work.text_bytes_max <= hostile_inputs.LOOP_TEXT_BYTES_MAX
    assert work.decompressed_bytes_max <= hostile_inputs.LOOP_DECOMPRESSED_BYTES_MAX
    assert work.values_at_once_max <= 2 * VALUES_MAX


def check_is_idle(server: ThreadedServer) -> None:
    """Nothing is held once all is answered."""
    parts = server.service.parts
    while parts.rooms.held_bytes or parts.answer_budget.held_bytes or parts.body_budget.held_bytes:
        pass


def check_answer(answer: httpx.Response) -> None:
    """What one client alone on the service is told is an answer, or final."""
    assert answer.status_code in (200, 204, 413, 422), answer.text[:300]
    if answer.is_error:
        assert answer.json()["retryable"] is False
    assert len(answer.content) <= hostile_inputs.ANSWERS_BYTES_MAX + 12 * hostile_inputs.MIB


def test_the_table_is_large_enough() -> None:
    assert len(BOMBS) * len(FETCHES) + len(BODIES) >= 60


@pytest.mark.parametrize("fetch", FETCHES, ids=[fetch[0] for fetch in FETCHES])
@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.name for bomb in BOMBS])
def test_a_fetch_of_a_bomb(
    bomb: Bomb,
    fetch: tuple[str, str, dict[str, str]],
    server: ThreadedServer,
    client: httpx.Client,
    stored: dict[str, str],
    loop_work: LoopWork,
) -> None:
    _, path, headers = fetch
    # From the second time on the fast path knows the request.
    for _ in range(2):
        check_answer(client.get(f"{stored[bomb.name]}/{path}", headers=headers))
    check(server, loop_work)
    check_is_idle(server)


@pytest.mark.parametrize("query", ["offset=OFFSET", "offset=OFFSET&encoding=base64", "offset=OFFSET&encoding=json"])
@pytest.mark.parametrize("bomb", BOMBS, ids=[bomb.name for bomb in BOMBS])
def test_a_reader_comes_past_a_bomb(
    bomb: Bomb, query: str, server: ThreadedServer, client: httpx.Client, stored: dict[str, str], loop_work: LoopWork
) -> None:
    read = 0
    for answer in read_on(client, stored[bomb.name], query, {}):
        check_answer(answer)
        read += 0 if answer.is_error else len(answer.json()["records"])
        if answer.is_error:
            problem = answer.json()
            value = client.get(f"{stored[bomb.name]}/records/{problem['record_offset']}/value")
            assert value.status_code in (200, 204)
            # The other way that it names.
            assert "raw record batches at .../record-batches," in problem["detail"]
            raw = client.get(f"{stored[bomb.name]}/record-batches", params={"offset": problem["record_offset"]})
            assert (raw.status_code, bool(raw.content)) == (200, True)
    assert read > 0 or bomb.name.startswith(("zeros", "headers", "bytes", "keys", "values"))
    check(server, loop_work)


@pytest.mark.parametrize("body", BODIES, ids=[body.name for body in BODIES])
def test_a_body(body: Body, server: ThreadedServer, client: httpx.Client, loop_work: LoopWork) -> None:
    headers = {"Content-Type": "application/json", **body.headers}
    answer = client.request(body.method, body.path, content=body.content(), headers=headers)
    assert answer.status_code in ((400, 404, 413, 422) if body.refused else (200, 413)), answer.text[:300]
    if answer.is_error:
        assert answer.json()["retryable"] is False
    check(server, loop_work)
    check_is_idle(server)


def test_many_partitions_of_bombs(
    server: ThreadedServer, client: httpx.Client, stored: dict[str, str], loop_work: LoopWork
) -> None:
    """`POST /v1/fetch` of all bombs at once; a partition with an obstacle has a lasting error of its own."""
    asked = [{"topic": f"bomb-{name}", "partition": 0, "fetch_offset": 0} for name in stored]
    for first in range(0, len(asked), 3):
        answer = client.post("/v1/fetch", json={"partitions": asked[first:] + asked[:first]})
        assert answer.status_code in (200, 207)
        errors = [found["error"] for found in answer.json()["partitions"] if found["error"]]
        assert all(error["code"] == "record_too_large" and not error["retryable"] for error in errors)
        assert len(answer.content) <= 2 * hostile_inputs.ANSWERS_BYTES_MAX
    check(server, loop_work)
    check_is_idle(server)


def test_readers_of_bombs_at_the_same_time(
    server: ThreadedServer, client: httpx.Client, stored: dict[str, str], loop_work: LoopWork
) -> None:
    """Those that find no room are told to come again, or wait for their turn: what is taken stays within the budget."""
    answers: list[httpx.Response] = []

    def read(path: str) -> None:
        answers.append(httpx.get(f"{server.url}{path}/records?offset=0", timeout=60))

    readers = [threading.Thread(target=read, args=(path,)) for path in list(stored.values()) * 2]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(answers) == len(readers)
    assert {answer.status_code for answer in answers} <= {200, 422, 503}
    check(server, loop_work)
    check_is_idle(server)


def test_a_record_that_fits_arrives_whole(client: httpx.Client, stored: dict[str, str]) -> None:
    records = client.get(f"{stored['letters']}/records?offset=0").json()["records"]
    assert [len(record["value"]) for record in records] == [5 * hostile_inputs.MIB]


def test_an_answer_that_ends_inside_of_a_batch_goes_on_there(client: httpx.Client, stored: dict[str, str]) -> None:
    offsets: list[int] = []
    answers = list(read_on(client, stored["tiny"], "offset=OFFSET", {}))
    for answer in answers:
        offsets += [record["offset"] for record in answer.json()["records"]]
    assert offsets == list(range(80_000))
    assert len(answers) > 1


def test_batches_sent_again_under_a_key_are_compared_a_piece_at_a_time(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour: a retry is compared with the log. All records of a batch of KiB became objects for that."""
    sizes: list[int] = []
    rows_of = stored_records.Rows.of

    def counted(columns: RecordColumns, timed: Sequence[bool] | None = None) -> stored_records.Rows:
        sizes.append(len(columns))
        return rows_of(columns, timed)

    monkeypatch.setattr(stored_records.Rows, "of", counted)
    batch = encode_batch(columns_from_records([Record(0, 1, None, None)] * 150_000), codec=Codec.GZIP)
    other = encode_batch(columns_from_records([Record(0, 1, None, b"")] * 150_000), codec=Codec.GZIP)
    headers = {"Content-Type": hostile_inputs.RAW, "Idempotency-Key": "batch-of-150000"}
    path = "/v1/topics/bodies/partitions/0/records"
    first = client.post(path, content=batch, headers=headers)
    again = client.post(path, content=batch, headers=headers)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["base_offset"] == first.json()["base_offset"]
    assert again.headers["Idempotent-Replayed"] == "true"
    assert sum(sizes) == 2 * 150_000
    assert max(sizes) <= 64 * 1024
    reused = client.post(path, content=other, headers=headers)
    assert (reused.status_code, reused.json()["code"]) == (422, "idempotency_key_reused")


def test_look_ups_by_time_read_a_batch_a_piece_at_a_time(
    server: ThreadedServer, client: httpx.Client, stored: dict[str, str]
) -> None:
    """A neighbour: `POST /v1/offsets` and fetches by time, also of the last record of a batch of many pieces."""
    path = "/v1/topics/by-time/partitions/0/records"
    client.put("/v1/topics/by-time", json={"config": {"retention.ms": -1}}).raise_for_status()
    records = [Record(place, 1_000 + place, None, None) for place in range(150_000)]
    batch = encode_batch(columns_from_records(records), codec=Codec.GZIP)
    client.post(path, content=batch, headers={"Content-Type": hostile_inputs.RAW}).raise_for_status()
    for place in (0, 70_000, 149_999):
        found = client.get(f"{path}?timestamp={1_000 + place}&max_records=1").json()["records"]
        assert [record["offset"] for record in found] == [place]


# Planted defects


def test_the_check_finds_batches_that_are_decoded_on_the_loop(
    server: ThreadedServer,
    client: httpx.Client,
    stored: dict[str, str],
    loop_work: LoopWork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_json, "_LIMITS", decoding.DecodingLimits())
    with http_client(server.url) as client:
        for _ in range(3):
            client.get(f"{stored['letters']}/records?offset=0", headers={"Accept-Encoding": "identity"})
    with pytest.raises(AssertionError):
        check(server, loop_work)


def test_the_check_finds_bodies_that_are_parsed_on_the_loop(
    server: ThreadedServer, client: httpx.Client, loop_work: LoopWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def parse(_: object, __: bytes, parse: object) -> object:
        return parse()  # type: ignore[operator]

    monkeypatch.setattr(work_rooms.RequestWork, "parse", parse)
    content = hostile_inputs._list_of(b'{"value":[]}', 2 * hostile_inputs.MIB)
    client.post(
        "/v1/topics/bodies/partitions/0/records?encoding=json",
        content=content,
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(AssertionError):
        check(server, loop_work)


def test_the_check_finds_values_that_are_not_counted(
    server: ThreadedServer, client: httpx.Client, loop_work: LoopWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "count_values", lambda *_: 0)
    content = b'{"records":[{"value":[' + b"0," * (2 * VALUES_MAX + 1) + b"0]}]}"
    client.post(
        "/v1/topics/bodies/partitions/0/records?encoding=json",
        content=content,
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(AssertionError):
        check(server, loop_work)


def test_the_check_finds_text_that_is_made_without_a_limit(
    server: ThreadedServer,
    client: httpx.Client,
    stored: dict[str, str],
    loop_work: LoopWork,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it was: a batch's text is made whole, and looked at afterwards."""

    def unbounded(*arguments: object, **named: object) -> record_texts.BoundedTexts:
        named["bytes_max"] = 1 << 40
        return record_texts.bounded_texts(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(decoding, "bounded_texts", unbounded)
    client.get(f"{stored['zeros']}/records?offset=0")
    with pytest.raises(AssertionError):
        check(server, loop_work)


def test_the_check_finds_work_that_is_not_counted_in_rooms(server: ThreadedServer) -> None:
    """A service whose rooms are larger than what it documents."""
    rooms = server.service.parts.rooms
    peak_bytes, rooms.peak_bytes = rooms.peak_bytes, hostile_inputs.DECODING_BYTES_MAX + 1
    try:
        with pytest.raises(AssertionError):
            check(server, LoopWork(0, json.dumps))
    finally:
        rooms.peak_bytes = peak_bytes
