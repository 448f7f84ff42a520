"""The headers with which a request says that it may be sent again."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Header, Request

from app.access.needs import AccessOf
from app.problems.problems import Problem
from app.produce.idempotence import Idempotence, ProducerStamp, RequestKey
from schemas.base import WholeNumber
from storage.producers.repeated_requests import KEYED_PRODUCER_ID_MIN

EPOCH_MAX = 2**15 - 1
SEQUENCE_MAX = 2**31 - 1

_NAMES = ("Producer-Id", "Producer-Epoch", "Base-Sequence", "Idempotency-Key")
_BY_LOWER_NAME = {name.lower().encode(): name for name in _NAMES}
_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_QUOTED_KEY = re.compile(r'"((?:[!#-\[\]-~]|\\["\\])+)"', re.ASCII)
# Without a quote or a backslash in it, which generators of clients would write into their code as they are.
_KEY_PATTERN = r"^([\x21\x23-\x7e][\x21-\x7e]{0,254}|\x22([\x21\x23-\x5b\x5d-\x7e]|\x5c[\x22\x5c]){1,255}\x22)$"

ProducerIdHeader = Annotated[
    Annotated[int, WholeNumber(0, KEYED_PRODUCER_ID_MIN - 1)] | None,
    Header(
        alias="Producer-Id",
        description="The idempotent producer whose records these are; with Producer-Epoch and Base-Sequence, in "
        "requests to one partition. Record batches carry it themselves.",
    ),
]
ProducerEpochHeader = Annotated[
    Annotated[int, WholeNumber(0, EPOCH_MAX)] | None,
    Header(alias="Producer-Epoch", description="The epoch of the producer."),
]
BaseSequenceHeader = Annotated[
    Annotated[int, WholeNumber(0, SEQUENCE_MAX)] | None,
    Header(
        alias="Base-Sequence",
        description="The sequence of the first record; the others count on, 0 following 2147483647.",
    ),
]
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Any text that names this request and no other: 1 to 255 visible ASCII characters, quoted or not. "
        "Sent again with it, the request is answered as the first time, with Idempotent-Replayed: true.",
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
        json_schema_extra={"pattern": _KEY_PATTERN},
    ),
]


async def idempotence_of(
    request: Request,
    access: AccessOf,
    producer_id: ProducerIdHeader = None,
    producer_epoch: ProducerEpochHeader = None,
    base_sequence: BaseSequenceHeader = None,
    idempotency_key: IdempotencyKeyHeader = None,
) -> Idempotence | None:
    """What the request is known by when it comes again; ``None`` when it will not.

    Raises:
        Problem: 400 when some of the producer's headers are missing, 422 when they make no sense.
    """
    names = [_BY_LOWER_NAME[name] for name, _ in request.scope["headers"] if name in _BY_LOWER_NAME]
    if not names:
        return None
    for name in names:
        if names.count(name) > 1:
            raise refused_header(name, "this header occurs twice", code="duplicate_header")
    if idempotency_key is not None:
        if len(names) > 1:
            raise refused_header("Idempotency-Key", "a request has a key or the sequences of a producer, not both")
        return RequestKey(_parse_key(idempotency_key), access.principal)
    if producer_id is None or producer_epoch is None or base_sequence is None:
        missing = [name for name in _NAMES[:3] if name not in names]
        detail = f"{', '.join(missing)} missing: Producer-Id, Producer-Epoch and Base-Sequence belong together"
        faults = [{"pointer": name, "code": "missing", "detail": "this header is missing"} for name in missing]
        raise Problem(400, "incomplete_producer", detail, errors=faults)
    return ProducerStamp(producer_id, producer_epoch, base_sequence)


def _parse_key(text: str) -> str:
    """The key in any of its two forms: plain, or as a quoted string of RFC 8941."""
    quoted = _QUOTED_KEY.fullmatch(text)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else text
    if _KEY.fullmatch(key) is None or (text.startswith('"') and not quoted):
        raise refused_header("Idempotency-Key", "must be 1 to 255 visible ASCII characters, quoted or not")
    return key


def _request_key(instead: str) -> Callable[..., Awaitable[RequestKey | None]]:
    """A dependency: the key of a request that takes no producer from its headers.

    The other headers are refused with 422, and ``instead`` says what to do: ignored, they would let a retry append
    twice.
    """

    async def request_key_of(
        request: Request, access: AccessOf, idempotency_key: IdempotencyKeyHeader = None
    ) -> RequestKey | None:
        names = [_BY_LOWER_NAME[name] for name, _ in request.scope["headers"] if name in _BY_LOWER_NAME]
        for name in names:
            if name != "Idempotency-Key":
                raise refused_header(name, f"not taken here; {instead}", code="unsupported_header")
        if len(names) > 1:
            raise refused_header("Idempotency-Key", "this header occurs twice", code="duplicate_header")
        return None if idempotency_key is None else RequestKey(_parse_key(idempotency_key), access.principal)

    return request_key_of


def no_transactional_id(instead: str) -> Callable[[Request], Awaitable[None]]:
    """A dependency that refuses the header Transactional-Id, as ``instead`` says what to do.

    Ignored, it would show at once what is meant to be shown by a commit, and leave behind what is meant to be aborted.
    """

    async def refuse(request: Request) -> None:
        if "transactional-id" in request.headers:
            raise refused_header("Transactional-Id", f"not taken here; {instead}", code="unsupported_header")

    return refuse


def refused_header(name: str, detail: str, *, code: str = "invalid_header") -> Problem:
    """The 422 for a header that is wrong here."""
    return Problem(
        422, "invalid_request", f"{name}: {detail}", errors=[{"pointer": name, "code": code, "detail": detail}]
    )


RequestKeyOf = Annotated[
    RequestKey | None, Depends(_request_key("give producer_id, producer_epoch and base_sequence in the body"))
]
BatchesKeyOf = Annotated[RequestKey | None, Depends(_request_key("record batches carry their producer themselves"))]
TopicKeyOf = Annotated[
    RequestKey | None,
    Depends(
        _request_key(
            "sequences count the records of one partition; send them to "
            "/v1/topics/{topic}/partitions/{partition}/records, or send the request with an Idempotency-Key"
        )
    ),
]
IdempotenceOf = Annotated[Idempotence | None, Depends(idempotence_of)]
