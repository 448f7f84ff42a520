"""Transactional ids of the attempts of load jobs. They say whose they are, so that a start finds that out again."""

from __future__ import annotations

from typing import NamedTuple

from schemas.names import INTERNAL_ID_PREFIX

PREFIX = f"{INTERNAL_ID_PREFIX}_job."
_PARTS_BEFORE_APPLICATION = 4


class AttemptName(NamedTuple):
    """What the transactional id of an attempt says. Task and attempt are the caller's numbers."""

    job_id: str
    task: int
    attempt: int
    producer_id: int
    application_id: str

    def __str__(self) -> str:
        return f"{PREFIX}{'.'.join(map(str, self))}"


def is_attempt(transactional_id: str) -> bool:
    """Whether this is the transactional id of an attempt; no client can give itself such a one."""
    return transactional_id.startswith(PREFIX)


def parse_attempt(transactional_id: str) -> AttemptName:
    """What ``str`` made this of.

    Raises:
        ValueError: it is no id of an attempt.
    """
    parts = transactional_id.removeprefix(PREFIX).split(".", _PARTS_BEFORE_APPLICATION)
    if not is_attempt(transactional_id) or len(parts) <= _PARTS_BEFORE_APPLICATION:
        raise ValueError(f"{transactional_id!r} is no id of an attempt")
    job_id, task, attempt, producer_id, application_id = parts
    return AttemptName(job_id, int(task), int(attempt), int(producer_id), application_id)


def application_of(transactional_id: str) -> str:
    """The application whose attempt this is; the id itself when it is none's."""
    if not is_attempt(transactional_id):
        return transactional_id
    try:
        return parse_attempt(transactional_id).application_id
    except ValueError:
        return transactional_id
