"""How far a replay with an identity is, so that each record is replayed once, however often it is begun again.

Step ``n`` is version ``n`` of a load application of the replay's own: whether it is written is known, and it is
written once. Where it ends is pinned before it is begun, as start positions of a group with its number; pins do not
change. So a step has the same offsets whoever writes it, and the next run goes on at the last one's end, in whatever
steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from rollway.client import RollwayClient
from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.reports import counted
from rollway.spark.jobs.writing import COMMITTED_STATES, LoadIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPositions:
    """The steps of one replay: ``source`` keeps where they end, ``target`` which of them are written.

    ``records`` is all that decides which records the replay has and what becomes of them.
    """

    source: RollwayClient
    target: RollwayClient
    topic: str
    topic_id: str
    identity: LoadIdentity
    records: tuple[object, ...]

    def step_identity(self, number: int) -> LoadIdentity:
        """Each step is a version of an application of its own replay; without an identity it has none either."""
        name, version = self.identity.application_id, self.identity.version
        return LoadIdentity() if name is None else LoadIdentity(application_id=f"{name}.{version}", version=number)

    def resume(self) -> tuple[int, Mapping[int, int]]:
        """How many steps are written, and the next offset of each partition, if there are any.

        Raises:
            JobError: where they ended is not known for such records.
        """
        application = self.step_identity(0).application_id
        if application is None:
            return 0, {}
        done = [job.version for job in self.target.list_jobs(application) if job.state in COMMITTED_STATES]
        if not done:
            return 0, {}
        ends = self.source.pinned_positions(self._group(max(done))).get(self.topic)
        if ends is None:
            raise JobError(
                f"The replay {self.identity.application_id} {self.identity.version}, of which "
                f"{_steps_are(max(done) + 1)} written, was begun with another --from, --until, --timestamps or "
                "--by-key, with another topic, or too long ago: it goes on as it was begun, or begins again with "
                "another --version."
            )
        return max(done) + 1, ends

    def pin(self, number: int, ends: Mapping[int, int]) -> Mapping[int, int]:
        """Where the step ends: there, unless that was decided before. Durable when it returns."""
        if self.identity.application_id is None:
            return ends
        topic_ids = {self.topic: self.topic_id}
        return self.source.pin_positions(self._group(number), {self.topic: ends}, topic_ids=topic_ids)[self.topic]

    def written(self, number: int) -> None:
        """The step is written: where the one before it ended is of no use any more."""
        if self.identity.application_id is not None and number > 0:
            self.source.forget_positions(self._group(number - 1))

    def _group(self, number: int) -> str:
        digest = hashlib.sha256(json.dumps(self.records).encode()).hexdigest()[:16]
        return f"{self.step_identity(number).application_id}.{digest}.{number}"


def _steps_are(count: int) -> str:
    return f"{counted(count, 'step')} {'is' if count == 1 else 'are'}"
