"""A service of tomorrow: what the real one answers, with one more member in every object, and new words."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

MEMBER = "a_member_of_tomorrow"
WORD = "a_word_of_tomorrow"
_JSON = ("application/json", "application/problem+json")
_LINES = "application/x-ndjson"
_PER_CONNECTION = ("connection", "transfer-encoding", "content-length", "keep-alive")
_OF_THE_PROXY = (*_PER_CONNECTION, "host", "accept-encoding")


_DATA = ("key", "value")
"""What users stored is theirs."""


class Growth:
    """How the answers of ``document`` may grow: what its schemas allow, and no more."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._words: dict[str, list[str]] = {}
        self._maps: dict[str, int] = {}
        for schema in document["components"]["schemas"].values():
            for name, member in schema.get("properties", {}).items():
                for each in (member, member.get("items", {})):
                    self._words.setdefault(name, []).extend(each.get("x-extensible-enum", ()))
                if depth := _map_depth(member):
                    self._maps[name] = depth

    def grown(self, value: Any, name: str = "") -> Any:
        """``value``, the member ``name`` of an answer, of tomorrow.

        Each object has one more member, and where a word of today stood there is one of tomorrow. The names of a map
        are data.
        """
        if name in _DATA:
            return value
        if depth := self._maps.get(name):
            return self._grown_map(value, depth)
        if isinstance(value, list):
            return [self.grown(each, name) for each in value]
        if isinstance(value, dict):
            found = {inner: self.grown(each, inner) for inner, each in value.items()}
            return {**found, MEMBER: {"of": [1, None, "tomorrow"]}}
        return WORD if isinstance(value, str) and value in self._words.get(name, ()) else value

    def _grown_map(self, value: Any, depth: int) -> Any:
        if not depth or not isinstance(value, dict):
            return self.grown(value)
        return {name: self._grown_map(each, depth - 1) for name, each in value.items()}

    def body(self, media_type: str, content: bytes) -> bytes:
        """The body of an answer, of tomorrow. What is no JSON and no lines of it stays as it is."""
        if media_type in _JSON and content:
            return self._text(content)
        if media_type == _LINES:
            return b"".join(self._text(line) + b"\n" for line in content.splitlines())
        return content

    def _text(self, content: bytes) -> bytes:
        return json.dumps(self.grown(json.loads(content))).encode()


def _map_depth(schema: dict[str, Any]) -> int:
    """How many levels of names are data: 0 for an object, 2 for a map of maps."""
    inner = schema.get("additionalProperties", False)
    return 0 if inner is False else 1 + (_map_depth(inner) if isinstance(inner, dict) else 0)


class GrowingProxy:
    """Passes requests on to ``url``, and lets the JSON of answers grow. A context manager.

    Attributes:
        url: where it listens.
    """

    def __init__(self, url: str, growth: Growth) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(url, growth))
        self._thread = threading.Thread(target=self._server.serve_forever, name="growing proxy", daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(url: str, growth: Growth) -> type[BaseHTTPRequestHandler]:
    address = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            body = self._body()
            service = http.client.HTTPConnection(address, timeout=120)
            kept = {name: each for name, each in self.headers.items() if name.lower() not in _OF_THE_PROXY}
            # Compressed answers would have to be read, and JSON is what grows.
            kept["Accept-Encoding"] = "identity"
            service.request(self.command, self.path, body=body, headers=kept)
            answer = service.getresponse()
            content = growth.body(answer.headers.get_content_type(), answer.read())
            service.close()
            self.send_response_only(answer.status)
            for name, each in answer.getheaders():
                if name.lower() not in _PER_CONNECTION:
                    self.send_header(name, each)
            if answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on  # noqa: N815 - the names are http.server's

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is http.server's
            """Requests are not news."""

    return Handler
