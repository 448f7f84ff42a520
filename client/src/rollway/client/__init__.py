"""A blocking client of the service over HTTP, for tasks, drivers and scripts.

``RollwayClient(ClientSettings(url))`` has a method for each call of the service. A request that got no response is sent
again. That is safe, because the service recognises a request that it has carried out. A lasting failure is a
``RollwayError`` with one sentence.

whole_answers   connections that detect truncated responses
transport       reused connections; which requests are sent again, when, and how often
answers         the responses of the service as dataclasses
settings        the address, the credential, and the timeouts
errors          one error for each way in which a caller can react
silence         lines in the log while the service does not respond
client          one typed method for each call
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
    AnswerTooLargeError,
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
    "AnswerTooLargeError",
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
