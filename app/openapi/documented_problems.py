"""The errors of each route for the OpenAPI document, from the table of kinds: statuses, codes and examples."""

from __future__ import annotations

from typing import Any

from app.problems import kinds
from app.problems.kind import At
from app.problems.problem import MEDIA_TYPE, Problem
from schemas.base import Schema

_CODES = frozenset(kind.code for kind in kinds.ALL)
_PATH = "/v1/topics/readings"


def _codes(group: At) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kind.code for kind in kinds.ALL if group in kind.at))


AUTHENTICATED = _codes(At.AUTHENTICATED)
BODY = _codes(At.BODY)
NAMED = _codes(At.NAMED)
EPOCH = _codes(At.EPOCH)
WRITE = _codes(At.WRITE)
CHANGE = _codes(At.CHANGE)
PRODUCE = (*BODY, *NAMED, *WRITE, *_codes(At.PRODUCE))
PRODUCER = (*BODY, *WRITE, *_codes(At.PRODUCER))
TRANSACTION = (*PRODUCER, *_codes(At.TRANSACTION))
CONTROL = (*BODY, *NAMED, *WRITE, *_codes(At.CONTROL))
READ = (*NAMED, *_codes(At.READ))
MULTI_FETCH = (*BODY, *_codes(At.MULTI_FETCH))


def problems(*codes: str, progress: type[Schema] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's ``responses`` for the kinds of these codes, and for those that every route has.

    ``progress`` documents the member of that name in the 503 of a start.

    Raises:
        ValueError: no kind has one of the codes.
    """
    wanted = {*codes, *_codes(At.ALL)}
    if unknown := wanted - _CODES:
        raise ValueError(f"no kind of problem has the code {', '.join(sorted(unknown))}")
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds.ALL:
        if kind.code not in wanted:
            continue
        content: dict[str, Any] = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {}}
        response = responses.setdefault(kind.status, {"description": "", "content": {MEDIA_TYPE: content}})
        titles = dict.fromkeys(filter(None, (*response["description"].split("; "), kind.title)))
        response["description"] = "; ".join(titles)
        for name in kind.headers:
            response.setdefault("headers", {})[name] = {"$ref": f"#/components/headers/{name}"}
        members = {name: member.schema for name, member in kind.members.items()}
        examples = {name: member.example for name, member in kind.members.items()}
        if progress is not None and kind is kinds.STARTING:
            document = progress.model_json_schema()
            members["progress"] = {"anyOf": [document, {"type": "null"}]}
            examples["progress"] = document["examples"][0]
        content = response["content"][MEDIA_TYPE]
        if members:
            own = {"title": kind.component, "type": "object", "properties": members}
            content["schema"] = {"allOf": [{"$ref": "#/components/schemas/Problem"}, own]}
        # Kinds of one code and status differ in whether the request is applied.
        name = kind.code if kind.code not in content["examples"] else f"{kind.code}_applied_{kind.applied}"
        example = Problem(kind, kind.when, **examples).document(_PATH)
        content["examples"][name] = {"summary": kind.when, "value": example}
    return responses
