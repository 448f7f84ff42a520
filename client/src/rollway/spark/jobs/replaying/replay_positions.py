"""The progress of a replay with an identity: each record is replayed once, however often the replay is started again.

Step ``n`` is version ``n`` of a load application for this replay, so that it is written once, and the service knows
whether it was. The end of a step is pinned before the step begins, as start positions of a group with its number; pins
do not change. So a step has the same offsets in every run, and the next run continues at the end of the last step, with
steps of any length.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from rollway.client import RollwayClient
from rollway.spark.jobs.errors import JobError
from rollway.spark.jobs.reports import counted
from rollway.spark.jobs.writing import LoadIdentity
from rollway.spark.write.load_jobs import COMMITTED_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPositions:
    """The steps of one replay. The service ``source`` keeps their ends, and ``target`` knows which of them are written.

    ``records`` are all parameters that decide on the records of the replay and their form.
    """

    source: RollwayClient
    target: RollwayClient
    topic: str
    topic_id: str
    identity: LoadIdentity
    records: tuple[object, ...]

    def step_identity(self, number: int) -> LoadIdentity:
        """Return the identity of a step: a version of the replay's application. A replay without an identity has
        none."""
        name, version = self.identity.application_id, self.identity.version
        return LoadIdentity() if name is None else LoadIdentity(application_id=f"{name}.{version}", version=number)

    def resume(self) -> tuple[int, Mapping[int, int]]:
        """Return the number of written steps, and the next offset of each partition if there are any.

        Raises:
            JobError: the service has no end of the last step for these parameters.
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
        """Pin the end of a step, unless it is pinned already, and return it. Durable on return."""
        if self.identity.application_id is None:
            return ends
        topic_ids = {self.topic: self.topic_id}
        return self.source.pin_positions(self._group(number), {self.topic: ends}, topic_ids=topic_ids)[self.topic]

    def written(self, number: int) -> None:
        """Forget the end of the previous step, after this step was written."""
        if self.identity.application_id is not None and number > 0:
            self.source.forget_positions(self._group(number - 1))

    def _group(self, number: int) -> str:
        digest = hashlib.sha256(json.dumps(self.records).encode()).hexdigest()[:16]
        return f"{self.step_identity(number).application_id}.{digest}.{number}"


def _steps_are(count: int) -> str:
    return f"{counted(count, 'step')} {'is' if count == 1 else 'are'}"
