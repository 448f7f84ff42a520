"""The service over HTTP, for programs that wait for its answers: tasks, drivers, scripts.

``RollwayClient(ClientSettings(url))`` has a method for each thing to ask. Requests that get no answer are sent again,
which is safe; what goes wrong for good is a ``RollwayError`` with one sentence.
"""

from rollway.client.answers import (
    Appended,
    Fetched,
    Isolation,
    Job,
    JobAttempt,
    JobMode,
    JobPartition,
    OffsetAnswer,
    OffsetAsk,
    PartitionOffsets,
    Place,
    SplitPartition,
    SplitRange,
    Splits,
    Topic,
)
from rollway.client.client import RollwayClient
from rollway.client.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidAnswerError,
    JobConflictError,
    JobNotFoundError,
    OffsetOutOfRangeError,
    ProblemError,
    ProducerFencedError,
    RollwayError,
    ServiceUnavailableError,
    TopicExistsError,
    TopicNotFoundError,
    TopicReplacedError,
)
from rollway.client.settings import ClientSettings

__all__ = [
    "Appended",
    "AuthenticationError",
    "AuthorizationError",
    "ClientSettings",
    "Fetched",
    "InvalidAnswerError",
    "Isolation",
    "Job",
    "JobAttempt",
    "JobConflictError",
    "JobMode",
    "JobNotFoundError",
    "JobPartition",
    "OffsetAnswer",
    "OffsetAsk",
    "OffsetOutOfRangeError",
    "PartitionOffsets",
    "Place",
    "ProblemError",
    "ProducerFencedError",
    "RollwayClient",
    "RollwayError",
    "ServiceUnavailableError",
    "SplitPartition",
    "SplitRange",
    "Splits",
    "Topic",
    "TopicExistsError",
    "TopicNotFoundError",
    "TopicReplacedError",
]
