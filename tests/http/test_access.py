"""Authentication of a real server: TLS, certificates, revocation, failures, and secrets that must show up nowhere."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.access.failures import ADDRESSES_MAX, FailureLimit
from app.cli import run
from app.problems.problem import Problem
from rollway.records import decode_batch, split_batches
from tests.support.access import Authority, JwtIssuer, bearer, make_keys
from tests.support.servers import ServerProcess, ThreadedServer, http_client

ADMIN = {"authentication": True, "super_users": ["User:admin"]}
RAW = "application/vnd.kafka.record-batch.v2"


@contextlib.contextmanager
def secured(tmp_path: Path, *principals: str, **settings: object) -> Iterator[tuple[ThreadedServer, list[str]]]:
    """A service with a key for each principal."""
    keys = make_keys(tmp_path / "data", *principals)
    with ThreadedServer(tmp_path / "data", **{**ADMIN, **settings}) as server:
        yield server, keys


def allow(url: str, admin: str, principal: str, operation: str, topic: str) -> None:
    entry = {"principal": principal, "operation": operation, "resource_type": "topic", "resource_name": topic}
    answer = httpx.post(f"{url}/v1/acls", json={"acls": [entry]}, headers=bearer(admin))
    assert answer.status_code == 200, answer.text


# TLS and certificates


@pytest.mark.parametrize("required", ["optional", "required"])
def test_tls_and_client_certificates(tmp_path: Path, required: str) -> None:
    """Also: the zero-copy road is closed under TLS, and raw records come all the same."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    client_files = authority.issue("client", O="Acme, Inc.", CN="orders")
    [admin] = make_keys(tmp_path / "data", "User:admin")
    settings = {
        **ADMIN,
        "tls_certificate": certificate,
        "tls_key": key,
        "tls_client_ca": authority.file,
        "tls_client_certificates": required,
        "super_users": ["User:admin", "Certificate:CN=orders,O=Acme\\, Inc."],
    }
    trusting = ssl.create_default_context(cafile=str(authority.file))
    named = ssl.create_default_context(cafile=str(authority.file))
    named.load_cert_chain(*client_files)
    with ThreadedServer(tmp_path / "data", **settings) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with http_client(url, verify=named) as client:
            assert client.put("/v1/topics/a").status_code == 201
            records = "/v1/topics/a/partitions/0/records"
            values = [f"{number:06d}" * 100 for number in range(2_000)]
            for start in range(0, len(values), 500):
                sent = [{"value": value} for value in values[start : start + 500]]
                assert client.post(records, json={"records": sent}).status_code == 200
            raw = client.get(records, params={"offset": 0, "max_bytes": 2**26}, headers={"Accept": RAW})
            assert raw.status_code == 200
            batches = [decode_batch(batch) for batch in split_batches(raw.content)]
            assert sum(len(batch.values) for batch in batches) == len(values)
            assert client.get("/metrics").status_code == 200
        with http_client(url, verify=trusting) as stranger:
            if required == "required":
                with pytest.raises(httpx.TransportError):
                    stranger.get("/healthz")
            else:
                assert stranger.get("/v1/topics").status_code == 401
                assert stranger.get("/v1/topics", headers=bearer(admin)).status_code == 200


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    ours, theirs = Authority(tmp_path), Authority(tmp_path / "theirs")
    certificate, key = ours.issue("server")
    context = ssl.create_default_context(cafile=str(ours.file))
    context.load_cert_chain(*theirs.issue("client", CN="admin"))
    settings = {**ADMIN, "tls_certificate": certificate, "tls_key": key, "tls_client_ca": ours.file}
    with (
        ThreadedServer(tmp_path / "data", **settings) as server,
        http_client(server.url.replace("127.0.0.1", "localhost"), verify=context) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.get("/v1/topics")


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({"ROLLWAY_AUTHENTICATION": "true", "ROLLWAY_HOST": "0.0.0.0"}, "secrets would travel in the clear"),
        ({"ROLLWAY_HOST": "0.0.0.0"}, "can be reached from other machines without authentication"),
        ({"ROLLWAY_TLS_CERTIFICATE": "x.pem"}, "tls_key"),
        ({"ROLLWAY_TLS_CERTIFICATE": "x.pem", "ROLLWAY_TLS_KEY": "x.key"}, "x.pem"),
        ({"ROLLWAY_AUTHENTICATION": "true", "ROLLWAY_JWT_KEYS_FILE": "x.json"}, "jwt_issuer"),
        ({"ROLLWAY_JWT_ALGORITHMS": "HS256"}, "HS256"),
        ({"ROLLWAY_JWT_ALGORITHMS": "none"}, "none"),
        ({"ROLLWAY_TRUSTED_PROXIES": "proxy.example"}, "trusted_proxies"),
        ({"ROLLWAY_SUPER_USERS": "admin"}, "'admin'"),
        ({"ROLLWAY_SUPER_USERS": "user:admin"}, "User:name"),
        ({"ROLLWAY_SUPER_USERS": "User:a,User:b"}, "separated by ;"),
        ({"ROLLWAY_SUPER_USERS": "User:*"}, "'User:*'"),
    ],
)
def test_settings_that_would_be_unsafe_are_a_sentence(tmp_path: Path, environment: dict[str, str], part: str) -> None:
    process = ServerProcess(tmp_path / "data", environment=environment)
    assert process.read_line() == ""
    assert process.wait() != 0
    assert part in process.errors()
    assert "Traceback" not in process.errors()


# Bearers


def test_a_secret_in_the_clear_is_refused_unread_but_for_a_trusted_proxy(tmp_path: Path) -> None:
    """Peers are this machine here, so the rule is asked directly."""
    with secured(tmp_path, "User:admin", trusted_proxies=["10.0.0.0/8"]) as (server, [admin]):
        authenticator = server.service.authenticator
        scope = {"headers": [(b"authorization", f"Bearer {admin}".encode())], "scheme": "http", "extensions": {}}
        for peer, scheme, is_taken in [
            ("192.0.2.7", "http", False),
            ("192.0.2.7", "https", True),
            ("10.1.2.3", "http", True),
            ("::ffff:10.1.2.3", "http", True),
            ("127.0.0.1", "http", True),
            ("::1", "http", True),
        ]:
            asked = {**scope, "client": (peer, 1), "scheme": scheme}
            if is_taken:
                assert authenticator.access_of(asked).principal == "User:admin", peer
            else:
                with pytest.raises(Problem) as refused:
                    authenticator.access_of(asked)
                assert refused.value.code == "tls_required"


def test_forwarded_headers_are_believed_from_trusted_proxies_alone(tmp_path: Path) -> None:
    with secured(tmp_path, "User:admin", trusted_proxies=["10.0.0.0/8"]) as (server, _):
        client_of = server.service.authenticator._client_of
        headers = [(b"x-forwarded-for", b"203.0.113.9, 198.51.100.4, 10.0.0.2")]
        assert client_of({"client": ("10.0.0.1", 1), "headers": headers}) == "198.51.100.4"
        assert client_of({"client": ("192.0.2.7", 1), "headers": headers}) == "192.0.2.7"
        assert client_of({"client": ("10.0.0.1", 1), "headers": [(b"x-forwarded-for", b"x")]}) == "10.0.0.1"


def test_odd_authorization_headers_are_401(tmp_path: Path) -> None:
    with secured(tmp_path, "User:admin") as (server, [admin]):
        basic = base64.b64encode(f"admin:{admin}".encode()).decode()
        for value in ("Bearer", f"Basic {basic}", admin, f"Bearer {admin} x", f"Bearer {admin},", "\xff"):
            answer = httpx.get(f"{server.url}/v1/topics", headers=[("Authorization", value.encode("latin-1"))])
            assert answer.status_code == 401, value
            assert admin not in answer.text
        twice = httpx.get(f"{server.url}/v1/topics", headers=[("Authorization", f"Bearer {admin}")] * 2)
        assert twice.status_code == 401
        assert httpx.get(f"{server.url}/v1/topics", headers={"authorization": f"bearer {admin}"}).status_code == 200


def test_many_failures_of_one_address_are_429_and_a_good_secret_still_works(tmp_path: Path) -> None:
    with (
        secured(tmp_path, "User:admin", authentication_failures_per_minute=3) as (server, [admin]),
        http_client(server.url) as client,
    ):
        statuses = [client.get("/v1/topics", headers=bearer("wrong")).status_code for _ in range(6)]
        assert statuses == [401, 401, 401, 429, 429, 429]
        refused = client.get("/v1/topics", headers=bearer("wrong"))
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/v1/topics", headers=bearer(admin)).status_code == 200
        assert client.get("/v1/topics").status_code == 401
        assert "rollway_authentication_failures_total 7.0" in client.get("/metrics", headers=bearer(admin)).text


def test_failures_are_forgotten_with_time_and_remembered_of_so_many_addresses() -> None:
    now = [0]
    limit = FailureLimit(60, lambda: now[0])
    assert [limit.note("192.0.2.1") for _ in range(60)] == [None] * 60
    assert limit.note("192.0.2.1") == 1_001
    now[0] += 1_000
    assert limit.note("192.0.2.1") is None
    assert limit.note("192.0.2.1") is not None
    assert [limit.note(f"2001:db8::{number:x}") for number in range(61)][-1] is not None, "one /64 is one client"
    for number in range(ADDRESSES_MAX + 500):
        limit.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(limit) == ADDRESSES_MAX


# Revocation


def test_what_is_revoked_is_refused_from_the_next_request_on(tmp_path: Path) -> None:
    with secured(tmp_path, "User:admin", "User:reader") as (server, [admin, reader]), http_client(server.url) as client:
        assert client.put("/v1/topics/a", headers=bearer(admin)).status_code == 201
        allow(server.url, admin, "User:reader", "READ", "a")
        grants = [{"operations": ["READ"], "resource_name": "a"}]
        specification = {"grants": grants, "expires_at": int(time.time() * 1000) + 3_600_000}
        token = client.post("/v1/tokens", json=specification, headers=bearer(reader)).json()
        records = "/v1/topics/a/partitions/0/records?offset=0"
        assert client.get(records, headers=bearer(token["token"])).status_code == 200
        mine = client.get("/v1/tokens", headers=bearer(reader)).json()["data"]
        assert [each["token_id"] for each in mine] == [token["token_id"]]
        # A token is not its issuer: it makes, lists and revokes none.
        assert client.post("/v1/tokens", json=specification, headers=bearer(token["token"])).status_code == 403
        assert client.get("/v1/tokens", headers=bearer(token["token"])).json() == {"data": []}
        assert client.delete(f"/v1/tokens/{token['token_id']}", headers=bearer(token["token"])).status_code == 404
        # Its issuer loses the right, and gets it back.
        removed = client.delete("/v1/acls", params={"principal": "User:reader"}, headers=bearer(admin))
        assert len(removed.json()["data"]) == 1
        assert client.get(records, headers=bearer(token["token"])).status_code == 404
        allow(server.url, admin, "User:reader", "READ", "a")
        assert client.get(records, headers=bearer(token["token"])).status_code == 200
        # The issuer's key ends, and the token with it.
        key_id = reader.split("_")[1]
        assert client.delete(f"/v1/keys/{key_id}", headers=bearer(admin)).status_code == 204
        assert client.get(records, headers=bearer(reader)).status_code == 401
        assert client.get(records, headers=bearer(token["token"])).status_code == 401
        assert client.delete(f"/v1/keys/{key_id}", headers=bearer(admin)).status_code == 404


@pytest.mark.parametrize("lost", ["key", "right"])
def test_a_long_poll_that_waits_is_refused_when_its_key_or_right_is_gone(tmp_path: Path, lost: str) -> None:
    with secured(tmp_path, "User:admin", "User:reader") as (server, [admin, reader]):
        url = f"{server.url}/v1/topics/a"
        assert httpx.put(url, headers=bearer(admin)).status_code == 201
        allow(server.url, admin, "User:reader", "READ", "a")
        answers: list[httpx.Response] = []

        def poll() -> None:
            place = f"{url}/partitions/0/records?offset=0&wait_ms=30000"
            answers.append(httpx.get(place, headers=bearer(reader), timeout=60))

        waiting = threading.Thread(target=poll)
        waiting.start()
        while "rollway_waiting_fetches 1.0" not in httpx.get(f"{server.url}/metrics", headers=bearer(admin)).text:
            pass
        if lost == "key":
            gone = httpx.delete(f"{server.url}/v1/keys/{reader.split('_')[1]}", headers=bearer(admin))
        else:
            gone = httpx.delete(f"{server.url}/v1/acls?principal=User:reader", headers=bearer(admin))
        assert gone.is_success
        appended = httpx.post(f"{url}/records", json={"records": [{"value": "secret"}]}, headers=bearer(admin))
        assert appended.status_code == 200
        waiting.join()
        assert answers[0].status_code == (401 if lost == "key" else 404)
        assert "secret" not in answers[0].text


@pytest.mark.parametrize("lost", ["key", "right"])
def test_a_stream_of_records_ends_when_its_key_or_right_is_gone(tmp_path: Path, lost: str) -> None:
    with secured(tmp_path, "User:admin", "User:w") as (server, [admin, writer]), http_client(server.url) as client:
        assert client.put("/v1/topics/a", headers=bearer(admin)).status_code == 201
        allow(server.url, admin, "User:w", "WRITE", "a")
        place = "/v1/topics/a/partitions/0"

        def end_offset() -> int:
            found: int = client.get(place, headers=bearer(admin)).json()["log_end_offset"]
            return found

        def lines() -> Iterator[bytes]:
            yield b'{"value":"before"}\n'
            while end_offset() < 1:
                pass
            if lost == "key":
                assert client.delete(f"/v1/keys/{writer.split('_')[1]}", headers=bearer(admin)).status_code == 204
            else:
                assert client.delete("/v1/acls", params={"principal": "User:w"}, headers=bearer(admin)).is_success
            yield b'{"value":"after"}\n'

        headers = {**bearer(writer), "Content-Type": "application/x-ndjson"}
        with http_client(server.url) as other:
            answer = other.post(f"{place}/records", content=lines(), headers=headers)
        *_, last = answer.text.splitlines()
        assert json.loads(last)["error"]["status"] == (401 if lost == "key" else 404)
        assert end_offset() == 1


def test_revoking_while_many_ask(tmp_path: Path) -> None:
    """No answer after the revocation's is a success."""
    with secured(tmp_path, "User:admin", "User:busy") as (server, [admin, busy]):
        revoked = threading.Event()
        late: list[int] = []

        def ask() -> None:
            with http_client(server.url, headers=bearer(busy)) as client:
                while True:
                    was_revoked = revoked.is_set()
                    status = client.get("/v1/topics").status_code
                    if was_revoked:
                        late.append(status)
                        return

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        gone = httpx.delete(f"{server.url}/v1/keys/{busy.split('_')[1]}", headers=bearer(admin))
        revoked.set()
        for thread in threads:
            thread.join()
        assert gone.status_code == 204
        assert set(late) <= {401, 429}


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_keys_and_acls_survive_a_kill(tmp_path: Path) -> None:
    [admin] = make_keys(tmp_path / "data", "User:admin")
    environment = {"ROLLWAY_AUTHENTICATION": "true", "ROLLWAY_SUPER_USERS": "User:admin"}
    with ServerProcess(tmp_path / "data", environment=environment) as process:
        made = httpx.post(f"{process.url}/v1/keys", json={"principal": "User:w"}, headers=bearer(admin)).json()
        assert httpx.put(f"{process.url}/v1/topics/a", headers=bearer(admin)).status_code == 201
        allow(process.url, admin, "User:w", "WRITE", "a")
        process.kill()
    with ServerProcess(tmp_path / "data", environment=environment) as again:
        answer = httpx.get(f"{again.url}/v1/topics/a", headers=bearer(made["api_key"]))
        assert answer.status_code == 200
        again.kill()
    acls = tmp_path / "data/rollway/access/acls.json"
    acls.write_bytes(acls.read_bytes().replace(b"WRITE", b"READ "))
    process = ServerProcess(tmp_path / "data", environment=environment)
    assert process.read_line() == ""
    assert process.wait() == 1
    assert str(acls) in process.errors()


def test_a_new_file_of_jwt_keys_is_used_and_old_keys_are_not_believed(tmp_path: Path) -> None:
    issuer = JwtIssuer(tmp_path)
    with secured(tmp_path, "User:admin", **issuer.settings()) as (server, _), http_client(server.url) as client:
        token = issuer.token("somebody")
        assert client.get("/v1/topics", headers=bearer(token)).status_code == 200
        issuer.file.write_text("nonsense")
        assert client.get("/v1/topics", headers=bearer(token)).status_code == 200
        issuer.write_keys({"third": issuer.stranger})
        deadline = time.monotonic() + 20
        while client.get("/v1/topics", headers=bearer(token)).status_code != 401:
            assert time.monotonic() < deadline


# Canaries


@pytest.mark.needs_local("it runs the service as a process of its own, to restart, kill or measure it")
def test_secrets_and_values_show_up_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted in every place a client can put them, looked for in logs at every level, metrics, errors and files."""
    issuer = JwtIssuer(tmp_path)
    [admin] = make_keys(tmp_path / "data", "User:admin")
    value, wrong = "canary-value-4711", f"rwk_{'a' * 16}_{'CANARYSECRET' * 3 + 'CANARY4'}"
    settings = issuer.settings()
    environment = {
        "ROLLWAY_AUTHENTICATION": "true",
        "ROLLWAY_SUPER_USERS": "User:admin",
        "ROLLWAY_LOG_LEVEL": "debug",
        "ROLLWAY_ACCESS_LOG": "true",
        **{f"ROLLWAY_{name.upper()}": str(setting) for name, setting in settings.items()},
    }
    answers: list[str] = []
    with ServerProcess(tmp_path / "data", environment=environment) as process:
        with http_client(process.url, headers=bearer(admin)) as client:
            assert client.put("/v1/topics/a").status_code == 201
            made = client.post("/v1/keys", json={"principal": "User:other"}).json()
            later_ms = int(time.time() * 1000) + 3_600_000
            grants = [{"operations": ["READ"], "resource_name": "a"}]
            token = client.post("/v1/tokens", json={"grants": grants, "expires_at": later_ms}).json()
            jwts = [issuer.token("somebody"), *issuer.bad_tokens("somebody").values()]
            records = "/v1/topics/a/partitions/0/records"
            sent = client.post(records, json={"records": [{"key": value, "value": value}]})
            assert sent.status_code == 200
            for secret in (admin, wrong, made["api_key"], token["token"], *jwts):
                for method, place, body in [
                    ("GET", "/v1/topics", None),
                    ("GET", "/v1/keys", None),
                    ("GET", "/nowhere", None),
                    ("POST", records, {"records": [{"value": value, "surprise": value}]}),
                    ("POST", "/v1/keys", {"principal": value}),
                    ("GET", "/v1/acls", None),
                    ("GET", "/v1/tokens", None),
                    ("GET", "/metrics", None),
                    ("GET", "/readyz", None),
                    ("GET", "/openapi.json", None),
                ]:
                    answers.append(client.request(method, place, json=body, headers=bearer(secret)).text)
        assert run(["topics", "list", "--server", process.url, "--api-key", wrong]) == 1
        assert run(["topics", "list", "--server", process.url, "--api-key", f"{admin}\n"]) == 2
        assert run(["topics", "list", "--server", "http://192.0.2.1", "--api-key", admin]) == 2
        process.stop()
        logs = process.errors()
    printed = capsys.readouterr()
    secrets = [admin, wrong, made["api_key"], token["token"]]
    canaries = [secret.split("_", 2)[2] for secret in secrets] + [
        part for text in jwts for part in text.split(".")[2:] if part
    ]
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert "rollway.audit" in logs
    assert "DEBUG" in logs
    for canary in canaries:
        assert canary not in logs
        assert canary not in printed.out + printed.err
        assert not any(canary in answer for answer in answers)
        for path in files:
            assert canary.encode() not in path.read_bytes(), path
    # Values are in the log's segments, and in no file or line of ours.
    assert value not in logs
    assert all(value.encode() not in path.read_bytes() for path in files if path.suffix not in {".log", ".journal"})
    assert not any(value in answer for answer in answers if "invalid" not in answer)


def test_the_audit_log_says_who_did_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "rollway.audit"),
        secured(tmp_path, "User:admin", "User:nobody") as (server, [admin, nobody]),
        http_client(server.url) as client,
    ):
        client.put("/v1/topics/a", headers=bearer(admin))
        client.delete("/v1/topics/a", headers=bearer(nobody))
        client.post("/v1/keys", json={"principal": "User:new"}, headers=bearer(admin))
        client.get("/v1/topics", headers=bearer("wrong"))
    lines = [record.getMessage() for record in caplog.records if record.name == "rollway.audit"]
    assert "denied DELETE on topic:a to User:nobody" in lines
    assert any(line.startswith("created key rwk_") and line.endswith("of User:new by User:admin") for line in lines)
    assert any(line.startswith("authentication failed from 127.0.0.1") for line in lines)
    assert any(line.startswith("allowed") and line.endswith("to User:admin") for line in lines)


# Commands


@pytest.mark.needs_local("it looks into the data directory")
def test_the_first_key_is_made_offline_and_the_rest_by_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "deep" / "data"

    def printed(*arguments: str, status: int = 0) -> str:
        assert run(arguments) == status, capsys.readouterr().err
        return capsys.readouterr().out

    admin = printed("keys", "create", "--data-dir", str(data_dir), "--principal", "User:admin").strip()
    assert admin.startswith("rwk_")
    printed("acls", "add", "--data-dir", str(data_dir), "--principal", "User:x", "--operation", "read", "--topic", "o*")
    assert "no operation" in _refused(capsys, "acls", "add", "--data-dir", str(data_dir), *_acl("FLY"))
    with ThreadedServer(data_dir, **ADMIN) as server:
        monkeypatch.setenv("ROLLWAY_SERVER", server.url)
        assert "say who you are" in _refused(capsys, "topics", "list")
        assert "in use by a service" in _refused(capsys, "keys", "list", "--data-dir", str(data_dir))
        monkeypatch.setenv("ROLLWAY_API_KEY", admin)
        printed("topics", "create", "orders")
        other = json.loads(printed("keys", "create", "--principal", "User:x", "--json"))
        assert printed("topics", "list", "--api-key", other["api_key"]).count("orders") == 1
        printed("acls", "add", "--principal", "User:x", "--operation", "WRITE", "--topic", "orders")
        (tmp_path / "lines").write_text("one\ntwo\n")
        printed("produce", "orders", str(tmp_path / "lines"), "--api-key", other["api_key"])
        assert "orders" in printed("acls", "list", "--principal", "User:x")
        # Each of the commands that came later: as who ROLLWAY_API_KEY says, and as who the option says.
        assert "No transaction is open" in printed("transactions", "list")
        assert "no such load job" in printed("jobs", "list")
        assert "Nothing is pinned" in printed("positions", "show", "readers")
        for command in (["positions", "show", "readers"], ["transactions", "abort", "loader"]):
            assert "User:x" in _refused(capsys, *command, "--api-key", other["api_key"])
        token = printed(
            *("tokens", "create", "--operation", "READ", "--topic", "orders", "--expires", "2027-06-01T00:00:00Z"),
            *("--api-key", other["api_key"]),
        ).strip()
        assert "one" in printed("fetch", "orders", "--api-key", token)
        assert token.split("_")[1] in printed("tokens", "list")
        printed("tokens", "revoke", token.split("_")[1])
        assert "wrong or revoked" in _refused(capsys, "fetch", "orders", "--api-key", token)
        assert "Removed 1 ACL" in printed("acls", "remove", *_acl("WRITE", "orders"))
        printed("keys", "revoke", other["key_id"])
        assert other["key_id"] not in printed("keys", "list")
        assert "wrong or revoked" in _refused(capsys, "topics", "list", "--api-key", other["api_key"])


def _acl(operation: str, topic: str = "o") -> list[str]:
    return ["--principal", "User:x", "--operation", operation, "--topic", topic]


def _refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 1
    return capsys.readouterr().err
