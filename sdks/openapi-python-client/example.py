"""Create a topic, append a record as JSON, read it back, and handle an error, with openapi-python-client."""

import os

from rollway_client import AuthenticatedClient
from rollway_client.api.records import fetch_records, produce_records
from rollway_client.api.topics import ensure_topic
from rollway_client.models import (
    Encoding,
    FetchResult,
    LogStartProblem,
    Problem,
    ProducedRecord,
    RecordList,
    TopicSpecification,
)

client = AuthenticatedClient(
    base_url=os.environ["ROLLWAY_URL"], token=os.environ["ROLLWAY_API_KEY"], headers={"Client-Id": "example"}
)
ensure_topic.sync("example", client=client, body=TopicSpecification(partitions=1))

records = RecordList(records=[ProducedRecord(key="kitchen", value={"celsius": 21.5})])
produce_records.sync("example", 0, client=client, body=records, encoding=Encoding.JSON)

answer = fetch_records.sync("example", 0, client=client, offset="earliest", encoding=Encoding.JSON)
match answer:
    case FetchResult():
        for record in answer.records:
            print(record.offset, record.key, record.value)
    case LogStartProblem():
        print("those records are deleted; the log begins at", answer.log_start_offset)
    case Problem():
        print(answer.code, answer.detail, "again" if answer.retryable else "for good")
