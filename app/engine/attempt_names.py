"""Transactional ids of the attempts of load jobs. They name their job, so that a start can read it back."""

from __future__ import annotations

from typing import NamedTuple

from schemas.names import INTERNAL_ID_PREFIX

PREFIX = f"{INTERNAL_ID_PREFIX}_job."
_PARTS_BEFORE_APPLICATION = 4


class AttemptName(NamedTuple):
    """The parts of the transactional id of an attempt. Task and attempt are the caller's numbers."""

    job_id: str
    task: int
    attempt: int
    producer_id: int
    application_id: str

    def __str__(self) -> str:
        return f"{PREFIX}{'.'.join(map(str, self))}"


def is_attempt(transactional_id: str) -> bool:
    """Return whether this is the transactional id of an attempt. No client can choose such an id."""
    return transactional_id.startswith(PREFIX)


def parse_attempt(transactional_id: str) -> AttemptName:
    """Return the name that ``str`` made this id of.

    Raises:
        ValueError: this is no id of an attempt.
    """
    parts = transactional_id.removeprefix(PREFIX).split(".", _PARTS_BEFORE_APPLICATION)
    if not is_attempt(transactional_id) or len(parts) <= _PARTS_BEFORE_APPLICATION:
        raise ValueError(f"{transactional_id!r} is no id of an attempt")
    job_id, task, attempt, producer_id, application_id = parts
    return AttemptName(job_id, int(task), int(attempt), int(producer_id), application_id)


def application_of(transactional_id: str) -> str:
    """Return the application whose attempt has this id; the id itself if it is no attempt's."""
    if not is_attempt(transactional_id):
        return transactional_id
    try:
        return parse_attempt(transactional_id).application_id
    except ValueError:
        return transactional_id
