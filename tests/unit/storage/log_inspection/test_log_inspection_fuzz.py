"""``storage.log_inspection`` on files with any bytes in them."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.log_inspection import verify_directory
from tests.support.kafka_directory import NOON_MS, KafkaDirectory, snapshot, two_segments


@given(data=st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_content_of_any_file_makes_it_fail(data: st.DataObject) -> None:
    """Whatever bytes are where, there is a report."""
    with tempfile.TemporaryDirectory() as name:
        made = KafkaDirectory(Path(name) / "data")
        partition = made.add_partition("orders-0", two_segments())
        made.checkpoint("recovery-point-offset-checkpoint", ("orders", 0, 30))
        made.configure("orders", {})
        (partition / f"{20:020d}.snapshot").write_bytes(snapshot((7, 0, 9, 9, 9, NOON_MS, -1, -1)))
        (partition / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 4, 5))
        if data.draw(st.booleans()):
            made.stop_uncleanly()
        files = sorted(path for path in made.path.rglob("*") if path.is_file())
        for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3)):
            content = bytearray(path.read_bytes())
            position = data.draw(st.integers(0, len(content)))
            length = data.draw(st.integers(0, 40))
            content[position : position + length] = data.draw(st.binary(max_size=40))
            path.write_bytes(content)
        report = verify_directory(made.path)
        assert all(finding.sentence.endswith(".") for finding in report.findings)
