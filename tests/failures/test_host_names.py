"""A web page of another site must not reach a service on loopback that asks nobody who they are (DNS rebinding)."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import ServerProcess, ThreadedServer

TOPIC = "/v1/topics/named"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedServer]:
    """A service as it is by default."""
    with ThreadedServer(tmp_path_factory.mktemp("names") / "data", allowed_hosts=[]) as server:
        yield server


def ask(
    server: ThreadedServer, method: str, target: str, *lines: str, body: str = "", version: str = "1.1"
) -> tuple[int, dict[str, Any]]:
    """Send exactly these lines; the answer's status and document."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        fields = [*lines, "Connection: close"]
        if body:
            fields += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        connection.sendall("\r\n".join([f"{method} {target} HTTP/{version}", *fields, "", body]).encode("latin-1"))
        received = b""
        # A refusal may come as a reset behind the answer.
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65_536):
                received += piece
    head, _, content = received.partition(b"\r\n\r\n")
    assert head, "the connection ended without an answer"
    status = int(head.split(b" ", 2)[1])
    is_json = b"json" in head and b"transfer-encoding" not in head.lower() and content
    return status, json.loads(content) if is_json else {}


def own(server: ThreadedServer) -> str:
    return f"Host: 127.0.0.1:{server.port}"


def test_a_rebound_name_is_refused_and_nothing_is_done(plain: ThreadedServer) -> None:
    evil = (f"Host: rebind.example:{plain.port}", f"Origin: http://rebind.example:{plain.port}")
    evil = (*evil, "Sec-Fetch-Site: same-origin")
    status, problem = ask(plain, "PUT", f"{TOPIC}-evil", *evil, body="{}")
    assert (status, problem.get("code"), problem.get("applied")) == (421, "misdirected_request", "no")
    assert "allowed_hosts" in problem["detail"]
    assert ask(plain, "GET", "/v1/topics", *evil)[0] == 421
    assert ask(plain, "GET", f"{TOPIC}-evil", own(plain))[0] == 404
    assert ask(plain, "PUT", TOPIC, own(plain), body="{}")[0] in (200, 201)
    assert ask(plain, "DELETE", TOPIC, *evil)[0] == 421
    assert ask(plain, "GET", TOPIC, own(plain))[0] == 200


@pytest.mark.parametrize(
    "name",
    ["localhost", "LocalHost", "localhost.", "localhost:", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:9",
     "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]:80"],
)  # fmt: skip
def test_names_of_this_machine_are_answered(plain: ThreadedServer, name: str) -> None:
    assert ask(plain, "GET", "/v1/topics", f"Host: {name}")[0] == 200


@pytest.mark.parametrize(
    "name",
    ["", "rebind.example", "localhost.example", "xlocalhost", "localhost..", "127.0.0.1.example",
     "127.0.0.1@evil.example", "evil.example:80@127.0.0.1",
     "10.0.0.1", "[::2]", "[::1].example", "[::1", "::1", "localhost:8080:80",
     "localhost:http", "localhost/evil", "0.0.0.0", "l\xf6calhost", "127.0.0.1, evil.example"],
)  # fmt: skip
def test_other_names_are_refused(plain: ThreadedServer, name: str) -> None:
    status, problem = ask(plain, "GET", "/v1/topics", f"Host: {name}")
    assert (status, problem.get("code")) == (421, "misdirected_request")


def test_the_name_in_the_target_counts_too(plain: ThreadedServer) -> None:
    assert ask(plain, "GET", "http://localhost/v1/topics", own(plain))[0] == 200
    assert ask(plain, "GET", "http://rebind.example/v1/topics", own(plain))[0] == 421
    assert ask(plain, "GET", "HTTP://rebind.example:80?x=/healthz", own(plain))[0] == 421
    assert ask(plain, "GET", "http://localhost/v1/topics", "Host: rebind.example")[0] == 421
    assert ask(plain, "GET", "http://user@localhost/v1/topics", own(plain))[0] == 421


def test_how_many_names_there_are(plain: ThreadedServer) -> None:
    assert ask(plain, "GET", "/v1/topics")[0] == 400
    assert ask(plain, "GET", "/v1/topics", own(plain), own(plain))[0] == 400
    # No browser speaks it, and probes of load balancers may.
    assert ask(plain, "GET", "/v1/topics", version="1.0")[0] == 200
    assert ask(plain, "GET", "/v1/topics", "Host: rebind.example", version="1.0")[0] == 421


def test_health_is_answered_under_any_name(plain: ThreadedServer) -> None:
    for path in ("/healthz", "/readyz", "/healthz?x=1"):
        assert ask(plain, "GET", path, "Host: 10.1.2.3:80")[0] in (200, 422), path
    assert ask(plain, "POST", "/healthz", "Host: 10.1.2.3:80")[0] == 421
    assert ask(plain, "GET", "/healthz/../v1/topics", "Host: 10.1.2.3:80")[0] == 421


def test_a_kept_connection_is_asked_each_time(plain: ThreadedServer) -> None:
    """The heads of plain requests are remembered by a connection: with another name it is another head."""
    ask(plain, "PUT", TOPIC, own(plain), body="{}")
    path = f"{TOPIC}/partitions/0/records?offset=0"
    with socket.create_connection(("127.0.0.1", plain.port), timeout=30) as connection:
        statuses = []
        for name in ["localhost"] * 3 + ["localhosu"]:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nAccept: application/json\r\n\r\n".encode())
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(65_536)
            statuses.append(int(received.split(b" ", 2)[1]))
    assert statuses == [200, 200, 200, 421]


SITES = ["cross-site", "same-site", "same-origin, cross-site", "nonsense"]


@pytest.mark.parametrize("site", SITES)
def test_a_page_of_another_site_changes_nothing(plain: ThreadedServer, site: str) -> None:
    ask(plain, "PUT", TOPIC, own(plain), body="{}")
    before = ask(plain, "GET", f"{TOPIC}/partitions/0/epochs", own(plain))[1]
    page = (own(plain), "Origin: http://elsewhere.example", f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: no-cors")
    for path in (f"{TOPIC}/partitions/0/epochs", f"{TOPIC}/retention/run", "/v1/producers", "/v1/transactions/t/abort"):
        status, problem = ask(plain, "POST", path, *page)
        assert (status, problem.get("code"), problem.get("applied")) == (403, "cross_site_request", "no"), path
    assert ask(plain, "GET", f"{TOPIC}/partitions/0/epochs", own(plain))[1] == before
    # What changes nothing is not refused: the browser keeps the answer from the page.
    assert ask(plain, "GET", "/v1/topics", *page)[0] == 200


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "http://127.0.0.1:1", "http://localhost", "x"])
def test_an_older_browser_tells_the_origin_alone(plain: ThreadedServer, origin: str) -> None:
    status, problem = ask(plain, "POST", "/v1/producers", own(plain), f"Origin: {origin}")
    assert (status, problem.get("code")) == (403, "cross_site_request")


def test_own_pages_and_programs_go_on(plain: ThreadedServer) -> None:
    origin = f"Origin: http://127.0.0.1:{plain.port}"
    assert ask(plain, "POST", "/v1/producers", own(plain))[0] == 200
    assert ask(plain, "POST", "/v1/producers", own(plain), origin)[0] == 200
    assert ask(plain, "POST", "/v1/producers", own(plain), origin, "Sec-Fetch-Site: same-origin")[0] == 200
    assert ask(plain, "POST", "/v1/producers", own(plain), "Sec-Fetch-Site: none")[0] == 200


def test_configured_names_are_answered_and_their_pages_trusted(tmp_path: Path) -> None:
    names = ["db.example", ".intern.example", "*.Wild.example", "10.1.2.3", "[fd00::1]"]
    with ThreadedServer(tmp_path / "data", allowed_hosts=names) as server:
        allowed = [
            "db.example:80",
            "DB.example.",
            "intern.example",
            "a.b.intern.example",
            "x.wild.example",
            "10.1.2.3:8",
        ]
        for name in [*allowed, "[fd00:0::1]:80", "localhost"]:
            assert ask(server, "GET", "/v1/topics", f"Host: {name}")[0] == 200, name
        for name in ["a.db.example", "xintern.example", "intern.example.evil.example", "10.1.2.4"]:
            assert ask(server, "GET", "/v1/topics", f"Host: {name}")[0] == 421, name
        proxied = (own(server), "Origin: https://db.example", "Sec-Fetch-Site: cross-site")
        assert ask(server, "POST", "/v1/producers", *proxied)[0] == 200
        assert ask(server, "POST", "/v1/producers", own(server), "Origin: https://db.example.evil.example")[0] == 403


def test_every_name_can_be_allowed(tmp_path: Path) -> None:
    with ThreadedServer(tmp_path / "data", allowed_hosts=["*"]) as server:
        assert ask(server, "GET", "/v1/topics", "Host: any.example")[0] == 200
        page = ("Host: any.example", "Origin: http://elsewhere.example", "Sec-Fetch-Site: cross-site")
        assert ask(server, "POST", "/v1/producers", *page)[0] == 403


@pytest.mark.parametrize(
    "settings", [{"host": "0.0.0.0", "insecure_no_authentication": True}, {"authentication": True}]
)
def test_elsewhere_and_with_authentication_no_name_is_compared(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Containers and load balancers use names that the service cannot know."""
    with ThreadedServer(tmp_path / "data", **{"allowed_hosts": [], **settings}) as server:
        expected = 401 if "authentication" in settings else 200
        assert ask(server, "GET", "/v1/topics", "Host: balancer.example")[0] == expected
    with ThreadedServer(tmp_path / "data", **settings, allowed_hosts=["balancer.example"]) as server:
        assert ask(server, "GET", "/v1/topics", "Host: balancer.example")[0] == expected
        assert ask(server, "GET", "/v1/topics", "Host: other.example")[0] == 421


def test_the_command_takes_names_and_judges_them(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--allowed-host", "db.example", "--allowed-host", ".more.example") as process:
        port = int(process.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: x.more.example\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    refused = ServerProcess(tmp_path / "other", "--allowed-host", "http://db.example")
    assert refused.wait() == 2
    assert "leave out scheme, port and path" in refused.errors()


def test_the_check_finds_a_service_that_does_not_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the rule as it was, none."""
    monkeypatch.setattr("app.http.connection.connection_limits.rule_of", lambda _: None)
    with ThreadedServer(tmp_path / "data", allowed_hosts=[]) as server:
        with pytest.raises(AssertionError):
            test_a_rebound_name_is_refused_and_nothing_is_done(server)
        with pytest.raises(AssertionError):
            test_a_page_of_another_site_changes_nothing(server, "cross-site")
