"""The table of contents that programs read says what the tests of the service say."""

from __future__ import annotations

import base64
import json

from sdks.steps import contents_document
from tests.support.every_value import CONTENTS


def test_the_table_for_programs_has_every_content() -> None:
    rows = json.loads(contents_document())
    assert [row["name"] for row in rows] == list(CONTENTS)
    for row, content in zip(rows, CONTENTS.values(), strict=True):
        data = None if row["base64"] is None else base64.b64decode(row["base64"], validate=True)
        assert data == content.data
        assert row["text"] == content.text
        assert row["json"] == content.is_json
        if row["json"]:
            assert json.loads(row["text"]) == content.shown("value", "json")["value"]
