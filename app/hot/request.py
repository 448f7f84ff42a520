"""What handlers of plain requests are given."""

from __future__ import annotations

from typing import Any

from app.access.access import Access
from app.http.hot import HotCall, PlainHead, Quick
from app.quotas.throttling import Client


class HotRequest(HotCall):
    """A plain request with who asks. What its route declares to need is allowed already.

    ``quick`` and ``join`` are the handler's, who may set what answers the next requests of this head.
    """

    __slots__ = ("access", "client", "join", "quick")

    def __init__(
        self,
        head: PlainHead,
        number: int | None,
        body: bytes | memoryview,
        request_id: str,
        began: float,
        access: Access,
        client: Client,
    ) -> None:
        # Not through super(): one of these is made for each request.
        self.head = head
        self.number = number
        self.body = body
        self.request_id = request_id
        self.began = began
        self.throttle_ms = 0
        self.access = access
        self.client = client
        self.quick: Quick | None = None
        self.join: Any = None
