"""``python -m bench.limits.raw_asgi``: a bare ASGI application under uvicorn that answers with the same bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

from bench.limits.listening import listener, say_ready

Message = MutableMapping[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Read the body to its end, answer 200 without one."""
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def main() -> None:
    config = uvicorn.Config(
        application, http="httptools", loop="uvloop", lifespan="off", log_config=None, access_log=False, ws="none"
    )
    socket = listener()
    say_ready(socket)
    uvicorn.Server(config).run([socket])


if __name__ == "__main__":
    main()
