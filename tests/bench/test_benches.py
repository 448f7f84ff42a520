"""Every bench runs, on little data and for moments: rows come out and are complete. No figure is judged."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from bench import plots, report
from bench.__main__ import BENCHES
from bench.compare import compile_in
from bench.histogram import Histogram, histogram_of
from bench.machine import choose_cores, running_on
from bench.requests import batch_of_bytes
from bench.rows import Goal, Row, Sample, interval_of, row_of
from rollway.records import parse_header
from rollway.records.compiled import is_compiled

ROOT = Path(__file__).parents[2]


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, check=False, text=True, timeout=300
    )


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_a_bench_gives_complete_rows(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    data = tmp_path / "data"
    answer = run_bench("--smoke", "--only", name, "--data-dir", str(data), "--json", str(path))
    assert answer.returncode == 0, answer.stderr
    rows, machine, about = report.read_json([path])
    assert rows
    assert {"processor", "cores", "congestion"} <= set(machine)
    assert about["rounds"] == 1
    for row in rows:
        assert row.bench == name
        assert row.name
        assert row.unit
        assert row.value is not None or row.note, row
        assert row.value is None or (math.isfinite(row.value) and row.value >= 0)
        if row.limit_value:  # CPU time of a moment may be none
            assert row.limit
            assert row.ratio is not None
        elif row.limit and row.limit_value is None:
            assert row.note, f"{row.name}: a limit that was not measured says why"
        if row.goal is not None and row.value is not None and not row.note:
            assert row.met is not None
    assert not list(data.iterdir()), "the data of a run go with it"


def test_an_unknown_bench_is_one_sentence() -> None:
    answer = run_bench("--only", "nothing")
    assert answer.returncode == 1
    assert answer.stderr.startswith("bench: There is no bench nothing; there are ")
    assert answer.stderr.count("\n") == 1


def test_ctrl_c_ends_the_run_with_its_servers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--only", "tiny", "--seconds", "30", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("*/tiny/limits.log")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip().endswith("bench: stopped.")
    assert not list(tmp_path.iterdir())


def test_a_row_takes_the_median_of_the_rounds_and_of_their_ratios() -> None:
    ours = [Sample(10.0, 1.0, 0.5), Sample(30.0, 0.9, 0.4), Sample(20.0, 0.8, 0.3)]
    limits = [Sample(20.0), Sample(30.0), Sample(80.0)]
    row = row_of("b", "n", "MB/s", ours, limit="nginx", limits=limits, goal=Goal("ratio", ">=", 0.5))
    assert (row.value, row.limit_value, row.ratio) == (20.0, 30.0, 0.5)
    assert (row.server_cpu, row.generator_cpu, row.limit_server_cpu) == (0.9, 0.4, None)
    assert row.met is True
    assert Row.from_json(json.loads(json.dumps(row.as_json()))) == row


def test_a_goal_that_was_not_measured_is_neither_met_nor_missed() -> None:
    assert Row("b", "n", None, "MB/s", goal=Goal("value", ">=", 1)).met is None
    assert Row("b", "n", 1.0, "MB/s", goal=Goal("ratio", ">=", 1)).met is None
    assert Row("b", "n", 0.1, "s/GB", goal=Goal("value", "<=", 0.2)).met is True


def test_the_table_is_markdown_of_one_width() -> None:
    row = Row("b", "n", 123456.0, "requests/s", "nginx", 1.5, 0.5, Goal("ratio", ">=", 0.9), 1.0, 0.5)
    lines = report.markdown([row], {"cores": 2}).splitlines()
    assert lines[:3] == ["# Results of make bench", "", "- cores: 2"]
    assert max(len(line) for line in lines if not line.startswith("|")) <= 140
    table = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in table} == {len(report.HEADINGS) + 1}
    assert "| 123,456 requests/s | nginx | 1.50 | 0.50 | ≥ 0.9 x | no | 100 % / 50 % |" in table[2]


def test_the_table_has_the_fsyncs_that_were_measured_beside_a_row() -> None:
    figures = {"fsync_p50_ms": 0.1, "fsync_p90_ms": 0.15, "fsync_p99_ms": 0.2, "fsync_p99.9_ms": 2.0}
    ours = Row("b", "n", 1.0, "ms", extra={"p50_ms": 1.0, **figures})
    beside = Row("b", "n", 1.0, "ms", limit_extra=figures)
    assert [report.cells(row)[-1] for row in (ours, beside, Row("b", "n", 1.0, "ms"))] == [
        "0.10 / 0.20 / 2.00",
        "0.10 / 0.20 / 2.00",
        "",
    ]


def test_a_goal_is_missed_when_the_whole_interval_of_the_ratio_is_beyond_it() -> None:
    assert interval_of([0.5, 1.0, 2.0, 3.0, 4.0]) is None
    assert interval_of([6.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == (1.0, 6.0)
    assert interval_of([float(number) for number in range(15)]) == (3.0, 11.0)

    def row(*ratios: float) -> Row:
        ours = [Sample(ratio) for ratio in ratios]
        return row_of("b", "n", "ms", ours, limits=[Sample(1.0)] * len(ours), goal=Goal("ratio", ">=", 0.95))

    assert row(*[0.9] * 11, *[1.0] * 4).met is True
    assert row(*[0.9] * 12, *[1.0] * 3).met is False
    assert row(0.9, 0.9, 1.0).met is False, "of few rounds the median counts"
    assert Row.from_json(row(*[0.9] * 15).as_json()) == row(*[0.9] * 15)


def test_the_share_of_samples_whose_interval_misses_the_median_is_below_a_twentieth() -> None:
    draw = random.Random(11)
    missed = 0
    for _ in range(2000):
        found = interval_of([draw.lognormvariate(0, 1) for _ in range(15)])
        assert found is not None
        missed += not found[0] <= 1 <= found[1]
    assert 30 <= missed <= 100


def test_a_percentile_is_near_what_was_counted_and_never_above_the_longest() -> None:
    histogram = histogram_of([number / 1000 for number in range(1, 1001)])
    assert histogram.percentile(50) == pytest.approx(0.5, rel=0.005)
    assert histogram.percentile(99) == pytest.approx(0.99, rel=0.005)
    assert histogram.percentile(100) == 1.0
    assert Histogram().table() == {"p50_ms": 0, "p90_ms": 0, "p99_ms": 0, "p99.9_ms": 0, "p100_ms": 0}


def test_each_plot_is_made_of_its_rows(tmp_path: Path) -> None:
    rows = [
        Row("produce", "raw produce, 1 KiB", 20_000.0, "requests/s", "bare", 30_000.0, 0.67),
        Row("produce", "raw produce, 1 MiB", 2000.0, "MB/s", "bare", 2500.0, 0.8),
        Row("fetch", "raw fetch, 1 MiB", 5000.0, "MB/s", "nginx", 6000.0, 0.83),
        Row("fetch", "raw fetch, 1 MiB, CPU", 0.2, "s/GB", "nginx", 0.1, 2.0),
        Row("latency", "raw produce, p99", 1.0, "ms", extra={"rate": 5.0, "p50_ms": 1, "p99_ms": 2, "p99.9_ms": 3}),
        Row(
            "latency",
            "durable produce, p50",
            1.0,
            "ms",
            "bare",
            extra={"rate": 5.0, "p50_ms": 1, "p99_ms": 2, "p100_ms": 3},
            limit_extra={"p50_ms": 1, "p99_ms": 2, "fsync_p50_ms": 1, "fsync_p99_ms": 2},
        ),
        Row("scale", "raw fetch of 4 KiB, a service of 1,000 partitions", 9.0, "requests/s", "one", 10.0, 0.9),
        Row("fsync", "group fsync, 32 clients, 1 KiB, 1,000 partitions", 9.0, "requests/s", "one", 10.0, 0.9),
        Row(
            "waking",
            "long poll, append to answer, p99 of 1,000 waiters woken at once",
            9.0,
            "ms",
            "bare sends",
            10.0,
            extra={"p50_ms": 1, "p99_ms": 2},
            limit_extra={"p50_ms": 1, "p99_ms": 2},
        ),
    ]
    written = plots.draw(rows, tmp_path)
    assert {path.stem for path in written} == set(plots.PLOTS)
    assert all(path.read_text("utf-8").startswith("<?xml") for path in written)
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in plots.draw(rows, tmp_path)] == before
    assert plots.draw([], tmp_path) == []


def test_two_revisions_are_compared_and_the_work_tree_goes(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    trees = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, check=True).stdout
    command = [sys.executable, "-m", "bench.compare", "HEAD", "--smoke", "--only", "tiny"]
    answer = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data"), "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    rows, _, about = report.read_json([path])
    assert rows
    assert all(row.limit_value is not None and row.ratio is not None for row in rows)
    assert [row.name.endswith(", this revision again") for row in rows] == [False, True] * (len(rows) // 2)
    assert about["other"].startswith("HEAD (")
    assert subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, check=True).stdout == trees


@pytest.mark.skipif(not is_compiled(), reason="there is no compiler")
def test_of_another_revision_only_what_differs_is_compiled(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
    differing = tree / "app/metrics/distributions_c.pyx"
    differing.write_text(differing.read_text("utf-8") + "\nOTHER = 1\n", "utf-8")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compile_in(tree)
    for source in tree.rglob("*.pyx"):
        theirs = source.with_suffix(suffix)
        ours = ROOT / theirs.relative_to(tree)
        assert (theirs.read_bytes() == ours.read_bytes()) == (source != differing), source
    answer = subprocess.run(
        [sys.executable, "-c", "from app.metrics.distributions_c import OTHER; print(OTHER)"],
        cwd=tree,
        capture_output=True,
        check=False,
        text=True,
    )
    assert answer.stdout == "1\n", answer.stderr


def test_an_unknown_revision_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.compare", "no-such-revision", "--data-dir", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert answer.returncode == 1
    assert answer.stderr.strip() == "bench: There is no revision no-such-revision."


def test_a_flame_graph_shows_the_service(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.flame_graphs", "--smoke", "--seconds", "0.3", "--only", "raw-produce"]
    answer = subprocess.run(
        [*command, "--output", str(tmp_path / "out"), "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    if "Operation not permitted" in answer.stderr or "Permission denied" in answer.stderr:
        pytest.skip("this system does not let one process look into another")
    assert answer.returncode == 0, answer.stderr
    assert "(app/" in (tmp_path / "out/flame-raw-produce.svg").read_text("utf-8")


def test_generated_batches_have_the_size_that_was_asked() -> None:
    for size in (1024, 4096, 65536):
        batch, records = batch_of_bytes(size)
        assert len(batch) == size
        assert parse_header(batch).record_count == records


def test_servers_and_the_generator_are_on_cores_of_their_own_whoever_asks() -> None:
    cores = choose_cores()
    with running_on(cores.generator):
        assert choose_cores() == cores
    assert cores.server != cores.generator or len(os.sched_getaffinity(0)) == 1
