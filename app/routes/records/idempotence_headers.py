"""Request headers that make it safe to send the same produce request again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Header, Request

from app.access.needs import AccessOf
from app.problems import kinds
from app.problems.problem import Fault, Problem, invalid
from app.produce.idempotence import Idempotence, ProducerStamp, RequestKey, parse_key
from log_model.producers import KEYED_PRODUCER_ID_MIN
from schemas.base import WholeNumber

EPOCH_MAX = 2**15 - 1
SEQUENCE_MAX = 2**31 - 1

_NAMES = ("Producer-Id", "Producer-Epoch", "Base-Sequence", "Idempotency-Key")
_BY_LOWER_NAME = {name.lower().encode(): name for name in _NAMES}
# Contains no quote and no backslash: generators of clients would write them into their code unescaped.
_KEY_PATTERN = r"^([\x21\x23-\x7e][\x21-\x7e]{0,254}|\x22([\x21\x23-\x5b\x5d-\x7e]|\x5c[\x22\x5c]){1,255}\x22)$"

ProducerIdHeader = Annotated[
    Annotated[int, WholeNumber(0, KEYED_PRODUCER_ID_MIN - 1)] | None,
    Header(
        alias="Producer-Id",
        description="Id of the idempotent producer of the records. Needs Producer-Epoch and Base-Sequence, and one "
        "partition. Not for record batches, which contain it.",
    ),
]
ProducerEpochHeader = Annotated[
    Annotated[int, WholeNumber(0, EPOCH_MAX)] | None,
    Header(alias="Producer-Epoch", description="Epoch of the producer."),
]
BaseSequenceHeader = Annotated[
    Annotated[int, WholeNumber(0, SEQUENCE_MAX)] | None,
    Header(
        alias="Base-Sequence",
        description="Sequence of the first record. Each next record has the next sequence; 0 follows 2147483647.",
    ),
]
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="A text that identifies this request: 1 to 255 visible ASCII characters, quoted or not. A request "
        "sent again with its key appends nothing twice. It gets the first response, with Idempotent-Replayed: true.",
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
    """Return the producer's stamp or the key that identifies the request when it comes again; ``None`` without both.

    Raises:
        Problem: 400 if some of the producer's headers are missing, 422 if the headers contradict each other.
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
        faults = [Fault(name, "missing", "this header is missing") for name in missing]
        raise invalid(faults, detail, kind=kinds.INCOMPLETE_PRODUCER)
    return ProducerStamp(producer_id, producer_epoch, base_sequence)


def _parse_key(text: str) -> str:
    key = parse_key(text)
    if key is None:
        raise refused_header("Idempotency-Key", "must be 1 to 255 visible ASCII characters, quoted or not")
    return key


def _request_key(instead: str) -> Callable[..., Awaitable[RequestKey | None]]:
    """Return a dependency that reads the key of a request, and refuses the producer's headers with 422.

    ``instead`` is the advice in the refusal. If the headers were ignored, a retry could append the records twice.
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
    """Return a dependency that refuses the header Transactional-Id; ``instead`` is the advice in the refusal.

    If the header were ignored, readers would see the records before the commit, and an abort would not remove them.
    """

    async def refuse(request: Request) -> None:
        if "transactional-id" in request.headers:
            raise refused_header("Transactional-Id", f"not taken here; {instead}", code="unsupported_header")

    return refuse


def refused_header(name: str, detail: str, *, code: str = "invalid_header") -> Problem:
    """Return the 422 for a header that is wrong for this request."""
    return invalid([Fault(name, code, detail)])


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
