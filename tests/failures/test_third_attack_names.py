"""Who may not see a topic or an application learns its name neither by the topic's id nor by that of a load job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.cli.administration.offline_access import open_registry
from tests.http import foreign_ids
from tests.http.foreign_ids import Stand, make_keys
from tests.support.access import bearer


@pytest.fixture
def stranger_key(tmp_path: Path) -> str:
    """The key of a principal without any right."""
    with open_registry(tmp_path / "data") as registry:
        return registry.create_key("User:stranger")[1]


@pytest.fixture
def stand(tmp_path: Path, stranger_key: str) -> Iterator[Stand]:
    yield from foreign_ids.stand(tmp_path / "data", make_keys(tmp_path / "data"))


def test_ids_do_not_tell_names(stand: Stand, stranger_key: str) -> None:
    topic = stand.new_topic()
    topic_id = stand.admin.get(f"/v1/topics/{topic}").json()["topic_id"]
    job = stand.mine.post("/v1/jobs", json={"application_id": "mine-secret", "version": 1}).json()["job_id"]
    with httpx.Client(base_url=stand.server.url, headers=bearer(stranger_key)) as stranger:
        wanted = {"topic_id": topic_id, "partition": 0, "fetch_offset": 0}
        answers = [
            stranger.post("/v1/fetch", json={"partitions": [wanted]}),
            stranger.get(f"/v1/jobs/{job}"),
            stranger.post(f"/v1/jobs/{job}/attempts", json={"task": 0, "attempt": 0}),
            stranger.post(f"/v1/jobs/{job}/abort"),
        ]
    assert [answer.status_code for answer in answers] == [207, 403, 403, 403]
    error = answers[0].json()["partitions"][0]["error"]
    assert (error["code"], error["detail"]) == (
        "topic_authorization_failed",
        f"User:stranger may not READ the topic with the id {topic_id}",
    )
    assert [answer.json()["detail"] for answer in answers[1:]] == [
        f"User:stranger may not {operation} load job {job!r}" for operation in ("DESCRIBE", "WRITE", "WRITE")
    ]
    shown = "".join(answer.text for answer in answers)
    assert f'"{topic}"' not in shown
    assert "mine-secret" not in shown
