"""The value of a topic setting comes back in an error only as far as it helps: the body was larger than the request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

LONG = "x" * 100_000


@pytest.mark.parametrize(
    "value", [LONG, [LONG], {LONG: 1}, ",".join(["delete"] * 20_000)], ids=["text", "list", "object", "policy"]
)
def test_a_long_value_is_not_sent_back(client: httpx.Client, topic: str, value: Any) -> None:
    names = ["cleanup.policy", "compression.type", "preallocate", "retention.ms"]
    refused = client.patch(topic, json={"config": dict.fromkeys(names, value)})
    assert refused.status_code == 422
    assert len(refused.content) < 5_000
    assert all(len(fault["detail"]) < 300 for fault in refused.json()["errors"])


def test_a_short_one_is_shown(client: httpx.Client, topic: str) -> None:
    refused = client.patch(topic, json={"config": {"compression.type": "gzipp", "cleanup.policy": "x" * 51}})
    gzip, policy = (
        fault["detail"] for fault in sorted(refused.json()["errors"], key=lambda each: each["pointer"])[::-1]
    )
    assert gzip.endswith("not 'gzipp'")
    assert policy.endswith(f"not '{'x' * 51}...")
