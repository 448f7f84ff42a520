"""The request that handlers of plain requests get."""

from __future__ import annotations

from typing import Any

from app.access.access import Access
from app.http.connection.fast_path_interface import CompiledHandler, PlainCall, RequestHead, ResolvedTarget
from app.quotas.throttling import Client


class PlainRequest(PlainCall):
    """A plain request with its client, which has all rights that the route declares.

    A handler may set ``compiled_handler`` and ``enqueue``, which then answer the next requests for this target.
    """

    __slots__ = ("access", "client", "compiled_handler", "enqueue")

    def __init__(
        self,
        target: ResolvedTarget,
        head: RequestHead,
        body: bytes | memoryview,
        request_id: str,
        began: float,
        access: Access,
        client: Client,
    ) -> None:
        # Not through super(): one of these is made for each request.
        self.target = target
        self.head = head
        self.body = body
        self.request_id = request_id
        self.began = began
        self.throttle_ms = 0
        self.access = access
        self.client = client
        self.compiled_handler: CompiledHandler | None = None
        self.enqueue: Any = None
