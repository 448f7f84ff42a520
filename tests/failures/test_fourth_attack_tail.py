"""``rollway tail`` goes on when the service was away, whichever place it began at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest

from app.cli.records.fetch import OutputFormat, RecordWriter, _Follower


class _Service:
    """Answers polls of one partition whose log ends at 5; ``breaks`` says which of them it does not answer."""

    def __init__(self, breaks: Callable[[int], bool]) -> None:
        self.polls: list[dict[str, str]] = []
        self._breaks = breaks

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.polls.append(dict(request.url.params))
        if self._breaks(len(self.polls)):
            raise httpx.RemoteProtocolError("the service is stopped")
        record = b'{"offset":5,"value":"new"}\n'
        is_at_end = "tail" in request.url.params or request.url.params.get("offset") == "latest"
        content = b"" if is_at_end else record
        headers = {"Next-Offset": "5" if is_at_end else "6", "Content-Length": str(len(content))}
        return httpx.Response(200, headers=headers, content=content)


def _followed(
    service: _Service, place: dict[str, str | int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> str:
    """What is printed of one record, with no pauses."""

    async def at_once(_: float) -> None:
        return None

    async def follow() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(service.answer), base_url="http://a") as client:
            follower = _Follower(client, "http://a", "id", RecordWriter(OutputFormat.JSON, 1))
            await follower.follow("/records", place)

    monkeypatch.setattr("app.cli.records.fetch.asyncio.sleep", at_once)
    asyncio.run(follow())
    return capfd.readouterr().out


@pytest.mark.parametrize("place", [{"offset": "latest"}, {"tail": 0}, {"timestamp": 1}, {"offset": "earliest"}])
@pytest.mark.parametrize("broken", [1, 2])
def test_the_service_goes_away_in_any_poll(
    place: dict[str, str | int],
    broken: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    service = _Service(lambda number: number == broken)
    assert '"value":"new"' in _followed(service, place, monkeypatch, capfd)


@pytest.mark.parametrize("place", [{"offset": "latest"}, {"tail": 0}])
def test_the_end_is_known_before_the_first_wait(
    place: dict[str, str | int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    service = _Service(lambda number: number == 2)
    _followed(service, place, monkeypatch, capfd)
    assert [poll["wait_ms"] == "0" for poll in service.polls] == [True, False, False]
    # What came meanwhile is not passed over.
    assert service.polls[2]["offset"] == "5"
