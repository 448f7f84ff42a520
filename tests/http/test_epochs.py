"""Leader epochs: history, the end of one, a new one, and fencing (spec E1, E2, case LE-4)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest


@pytest.fixture
def path(client: httpx.Client, topic: str) -> str:
    """A partition with three records in epoch 0 and two in epoch 1."""
    path = f"{topic}/partitions/0"
    for count in (3, 2):
        records = [{"value": str(number), "timestamp": 1000 + number} for number in range(count)]
        assert client.post(f"{path}/records", json={"records": records}).status_code == 200
        if count == 3:
            begun = client.post(f"{path}/epochs")
            assert begun.status_code == 200, begun.text
            assert begun.json() == {"partition": 0, "epoch": 1, "start_offset": 3}
    return path


def test_the_history(client: httpx.Client, path: str) -> None:
    assert client.get(f"{path}/epochs").json() == {
        "partition": 0,
        "leader_epoch": 1,
        "epochs": [
            {"epoch": 0, "start_offset": 0, "end_offset": 3},
            {"epoch": 1, "start_offset": 3, "end_offset": 5},
        ],
        "asked": None,
    }
    assert client.get(path).json()["leader_epoch"] == 1


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, {"epoch": 0, "end_offset": 3}), (1, {"epoch": 1, "end_offset": 5}), (2, {"epoch": None, "end_offset": None})],
)
def test_le_1_where_an_epoch_ends(client: httpx.Client, path: str, epoch: int, expected: dict[str, Any]) -> None:
    assert client.get(f"{path}/epochs", params={"epoch": epoch}).json()["asked"] == expected


@pytest.mark.parametrize("where", ["epochs", "offsets", "many offsets"])
@pytest.mark.parametrize(
    ("current", "status", "code"),
    [(0, 409, "fenced_leader_epoch"), (1, 200, None), (2, 503, "unknown_leader_epoch")],
)
def test_le_4_fencing(client: httpx.Client, path: str, where: str, current: int, status: int, code: str | None) -> None:
    """Lower: 74; the current one: an answer; higher: 75."""
    if where == "many offsets":
        name = path.split("/")[-3]
        query = {"topic": name, "partition": 0, "timestamp": "latest", "current_leader_epoch": current}
        answer = client.post("/v1/offsets", json={"queries": [query]})
    else:
        params = {"current_leader_epoch": current, **({"timestamp": "latest"} if where == "offsets" else {})}
        answer = client.get(f"{path}/{where}", params=params)
    assert answer.status_code == status, answer.text
    assert answer.json().get("code") == code


def test_offsets_name_the_epoch_of_what_they_found(client: httpx.Client, path: str) -> None:
    def epoch_of(timestamp: Any) -> int:
        epoch: int = client.get(f"{path}/offsets", params={"timestamp": timestamp}).json()["leader_epoch"]
        return epoch

    assert [epoch_of(timestamp) for timestamp in ("earliest", "latest", "max_timestamp", 1000, 1002)] == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("params", [{"epoch": -1}, {"epoch": "x"}, {"epoch": 2**31}, {"current_leader_epoch": -1}])
def test_bad_input(client: httpx.Client, path: str, params: dict[str, Any]) -> None:
    answer = client.get(f"{path}/epochs", params=params)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_unknown_partitions_have_none(client: httpx.Client, topic: str) -> None:
    for answer in (client.get(f"{topic}/partitions/99/epochs"), client.post(f"{topic}/partitions/99/epochs")):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_topic_or_partition")
