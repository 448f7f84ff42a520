"""What each program does with its generated client, and how it says so.

A program prints ``ok STEP`` for each step that worked and ``failed STEP: why`` for one that did not, on a line of its
own each; what else it prints is not read. It does all steps, in any order. Its environment:

- ``ROLLWAY_URL``: the service. Every request but one carries a key.
- ``ROLLWAY_API_KEY``: the key, to be sent as ``Authorization: Bearer``.
- ``ROLLWAY_PREFIX``: how the names of its topics, applications, transactions and keys begin.
- ``ROLLWAY_CONTENTS``: a file with the table of ``contents_document``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from tests.support.every_value import CONTENTS, Content

STEPS: dict[str, str] = {
    "topic": "create a topic of two partitions with max.message.bytes, read its configuration back",
    "produce": "send records with key, headers and timestamp, durably; fetch them as they were",
    "contents utf8": "each content of the table goes in and comes back, told apart",
    "contents base64": "the same with encoding=base64",
    "contents json": "the same with encoding=json",
    "raw batches": "fetch record batches as bytes, send them to another partition, find the same records there",
    "lines": "send two records as lines, fetch them as lines",
    "long poll": "wait at the log end for a record that comes meanwhile",
    "offset by time": "find the offset of a timestamp, and earliest and latest of several partitions at once",
    "idempotency key": "send a request twice with one key: one record, the same offset",
    "transaction": "records of a transaction are seen by readers of committed records when it is committed",
    "job": "begin a load job, enlist an attempt, send its records, commit the job",
    "paging": "list five topics, two a page",
    "not found": "404 is a problem with the code unknown_topic_or_partition",
    "gone": "410 is a problem with log_start_offset",
    "beyond the end": "416 is a problem with log_end_offset",
    "precondition": "412 is a problem with log_end_offset",
    "authentication": "a request without the key is refused with 401",
}
"""Each step, in words."""


def contents_document(contents: Mapping[str, Content] = CONTENTS) -> str:
    """The table of contents for programs: a list of objects with these members.

    ``name``, ``base64`` (the bytes; null: none), ``text`` (the bytes as text; null: they are no UTF-8, or none) and
    ``json`` (the bytes are JSON that ``encoding=json`` shows as it is; its value is what a parser makes of ``text``).

    With encoding=utf8 a content is sent and comes back as ``value`` if ``text`` is given, with encoding=json as
    ``value`` if ``json`` is true, and else, and with encoding=base64, as ``value_base64``. Nothing is null.
    """
    return json.dumps(
        [
            {
                "name": name,
                "base64": None if content.data is None else base64.b64encode(content.data).decode(),
                "text": content.text,
                "json": content.is_json,
            }
            for name, content in contents.items()
        ]
    )
