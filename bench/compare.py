"""``python -m bench.compare REV``: this revision of Rollway against another, in turns, on the same loads.

The other is checked out into a work tree of its own. Where both have the same locked dependencies it runs with this
interpreter; else it gets a ``.venv``, from its own Makefile.

A second service of this revision is measured in the same rounds, as a control: its ratio to the first is 1 but for what
the machine did. A row is below the bound when the whole 95 % interval of its ratio is.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from bench import bench_fetch, bench_fsync, bench_json, bench_produce, bench_tiny, report
from bench.machine import choose_cores, description, running_on
from bench.processes import ROOT, BenchError
from bench.rollway_server import RollwayServer, Source
from bench.rounds import in_turns
from bench.rows import Goal, Plan, Row, row_of
from bench.runs import failures_told, progress, revision, run_program, say, work_directory

SCENES = {
    "tiny": bench_tiny.scenes,
    "produce": bench_produce.scenes,
    "fsync": bench_fsync.scenes,
    "fetch": bench_fetch.scenes,
    "json": bench_json.scenes,
}
LOCK = Path("requirements/service.lock")
BOUND = 0.95


class Compared(NamedTuple):
    """A load on both revisions, and on a second service of this one."""

    row: Row
    """This revision, with the other as its limit."""
    control: Row
    """The second service, with the first as its limit."""


def git(*arguments: str) -> str:
    """The output of git in this repository.

    Raises:
        BenchError: it failed, in git's words.
    """
    answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False, text=True)
    if answer.returncode:
        said = answer.stderr.strip().splitlines()
        raise BenchError(f"git {arguments[0]} failed: {said[-1] if said else 'it said nothing'}.")
    return answer.stdout.strip()


@contextlib.contextmanager
def checked_out(rev: str) -> Iterator[Source]:
    """A tree of ``rev`` with what it needs to run, gone afterwards.

    Raises:
        BenchError: there is no such revision, or its dependencies cannot be installed.
    """
    try:
        commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
    except BenchError:
        raise BenchError(f"There is no revision {rev or 'without a name: say REV=...'}.") from None
    with tempfile.TemporaryDirectory(prefix="rollway-compare-") as directory:
        tree = Path(directory) / "tree"
        git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield Source(f"{rev} ({commit[:10]})", tree, interpreter_for(tree))
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            git("worktree", "prune")


def interpreter_for(tree: Path) -> str:
    """The Python that has what ``tree`` depends on.

    Raises:
        BenchError: it could not be installed.
    """
    if (tree / LOCK).is_file() and (tree / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        compile_in(tree)
        return sys.executable
    say("installing what the other revision depends on")
    answer = subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"], cwd=tree, capture_output=True, check=False, text=True
    )
    if answer.returncode:
        said = (answer.stderr or answer.stdout).strip().splitlines()
        raise BenchError(f"The other revision cannot be set up: {said[-1] if said else 'make said nothing'}")
    return str(tree / ".venv/bin/python")


def compile_in(tree: Path) -> None:
    """Compile what ``tree`` has to compile, as installing it would, but for what is compiled here from equal sources.

    Raises:
        BenchError: it could not be compiled.
    """
    _take_compiled(tree)
    for directory in (tree / "client", tree):
        if "ext-modules" not in (directory / "pyproject.toml").read_text("utf-8"):
            continue
        say("compiling the other revision")
        # Where its modules lie, as --inplace does: but that looks for what is up to date elsewhere.
        beside = "src" if (directory / "src").is_dir() else "."
        build = [sys.executable, "-c", "from setuptools import setup; setup()", "build_ext", "--build-lib", beside]
        answer = subprocess.run(build, cwd=directory, capture_output=True, check=False, text=True)
        if answer.returncode:
            raise BenchError(f"The other revision cannot be compiled: {answer.stderr.strip().splitlines()[-1:]}")


def _take_compiled(tree: Path) -> None:
    """Copy the modules whose source is equal here. The copies are newer than it, so nothing has to be compiled."""
    for source in tree.rglob("*.pyx"):
        ours = ROOT / source.relative_to(tree)
        made = [ours.with_suffix(".c"), ours.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))]
        if all(path.is_file() for path in (ours, *made)) and ours.read_bytes() == source.read_bytes():
            for path in made:
                shutil.copyfile(path, source.with_name(path.name))


def compare(plan: Plan, names: list[str], other: Source, bound: float = BOUND) -> Iterator[Compared]:
    """Each load on this revision, beside the other and beside this one again.

    Raises:
        BenchError: one of them failed.
    """
    cores = choose_cores()
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(RollwayServer(plan.data_dir / "here", cores.server))
        there = stack.enter_context(RollwayServer(plan.data_dir / "there", cores.server, other))
        again = stack.enter_context(RollwayServer(plan.data_dir / "again", cores.server))
        for name in names:
            for scene in SCENES[name](plan.smoke):
                contestants = {}
                for label, server in (("here", here), ("there", there), ("again", again)):
                    scene.prepare(server)
                    contestants[label] = scene.measure(server)
                samples = in_turns(plan, f"{name}, {scene.name}", contestants)
                yield Compared(
                    row_of(
                        scene.bench,
                        scene.name,
                        scene.unit,
                        samples["here"],
                        limit=other.name,
                        limits=samples["there"],
                        goal=Goal("ratio", ">=", bound),
                    ),
                    row_of(
                        scene.bench,
                        f"{scene.name}, this revision again",
                        scene.unit,
                        samples["again"],
                        limit=revision(),
                        limits=samples["here"],
                    ),
                )


def interval_text(row: Row) -> str:
    """The 95 % interval of a row's ratio."""
    return report.MISSING if row.interval is None else "{:.2f}-{:.2f}".format(*row.interval)


def show(compared: list[Compared], other: str) -> None:
    """The ratios, and CPU per request beside them, which other programs disturb less than rates."""
    table = Table(title=f"{revision()} against {other}", title_justify="left")
    columns = (
        *("what", "this", "other", "ratio", "95 %", "goal", "met", "control", "its 95 %"),
        *("CPU us/request", "other's", "CPU, server/load"),
    )
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for row, control in compared:
        cells = report.cells(row)
        table.add_row(
            row.name,
            cells[1],
            *cells[3:5],
            interval_text(row),
            *cells[5:7],
            report.figure(control.ratio),
            interval_text(control),
            report.figure(row.extra.get("server_us_per_request")),
            report.figure(row.limit_extra.get("server_us_per_request")),
            cells[7],
        )
    Console(width=max(160, Console().width)).print(table)


def main(
    rev: Annotated[str, typer.Argument(help="The other revision: a commit, branch or tag.")],
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SCENES)}; repeatable.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds; below six there is no interval.", min=1)] = 15,
    seconds: Annotated[float, typer.Option(help="How long each is measured in a round.", min=0.01)] = 0.5,
    bound: Annotated[
        float, typer.Option(help="The least ratio: a row whose whole interval is below it fails.")
    ] = BOUND,
    smoke: Annotated[bool, typer.Option(help="One short round with little data: whether all of it runs.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write everything measured to this file.")] = None,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile: the disk that is measured.")] = Path(),
) -> None:
    """Compare this revision with another on the same loads."""
    names = only or list(SCENES)
    if smoke:
        rounds, seconds = 1, 0.05
    with failures_told("bench"):
        unknown = [name for name in names if name not in SCENES]
        if unknown:
            raise BenchError(f"There is nothing to compare called {unknown[0]}; there are {', '.join(SCENES)}.")
        compared: list[Compared] = []
        with (
            checked_out(rev) as other,
            work_directory(data_dir.resolve()) as directory,
            running_on(choose_cores().generator),
        ):
            for found in compare(Plan(rounds, seconds, smoke, directory, say), names, other, bound):
                compared.append(found)
                for row in found:
                    text = f"{row.name}: {row.ratio or 0:.2f} times ({interval_text(row)})"
                    progress.print(text, highlight=False, soft_wrap=True)
        show(compared, other.name)
        below = [row.name for row, _ in compared if row.met is False]
        if json is not None:
            about = {"revision": revision(), "other": other.name, "rounds": rounds, "seconds": seconds}
            report.write_json(json, [row for found in compared for row in found], description(), about)
        if below and not smoke:
            raise BenchError(f"Below {bound:g} of {other.name}: {'; '.join(below)}.")


if __name__ == "__main__":
    run_program(main)
