"""``python -m bench.flame_graphs``: where the time of each path goes, sampled by py-spy while the load runs."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bench import bench_fetch, bench_fsync, bench_json, bench_produce
from bench.machine import choose_cores, running_on
from bench.processes import BenchError
from bench.rollway_server import RollwayServer
from bench.runs import failures_told, progress, run_program, work_directory
from bench.scenes import Scene

SAMPLES_PER_SECOND = 500


def scenes(smoke: bool) -> dict[str, Scene]:
    """One scene for each path."""
    produce = {scene.name: scene for scene in bench_produce.scenes(smoke)}
    fetch = {scene.name: scene for scene in bench_fetch.scenes(smoke)}
    json_produce, json_fetch = bench_json.scenes(smoke)
    return {
        "raw-produce": produce["raw produce, 1 KiB"],
        "raw-produce-large": produce["raw produce, 1 MiB" if not smoke else "raw produce, 64 KiB"],
        "raw-fetch": fetch["raw fetch, 4 KiB"],
        "raw-fetch-large": fetch["raw fetch, 1 MiB"],
        "json-produce": json_produce,
        "json-fetch": json_fetch,
        "group-fsync": bench_fsync.scenes(smoke)[0],
    }


def py_spy() -> str:
    """The py-spy beside this interpreter, or the one on PATH.

    Raises:
        BenchError: there is none.
    """
    found = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if found is None:
        raise BenchError("Flame graphs need py-spy: make flame-graphs installs it.")
    return found


@contextlib.contextmanager
def sampled(server: RollwayServer, path: Path, title: str) -> Iterator[None]:
    """Sample ``server`` meanwhile, and write its flame graph to ``path``.

    Raises:
        BenchError: py-spy may not look into the process, or wrote nothing.
    """
    command = [py_spy(), "record", "--format", "flamegraph", "--output", str(path), "--pid", str(server.pid)]
    command += ["--rate", str(SAMPLES_PER_SECOND), "--duration", "3600", "--nonblocking"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
    if not path.is_file():
        lines = said.strip().splitlines()
        raise BenchError(f"py-spy wrote no {title}: {lines[-1] if lines else 'it said nothing'}")


def trimmed(path: Path, title: str) -> None:
    """Take out what is of this machine: the command line, which py-spy takes for a title; and blanks at line ends."""
    text = re.sub(r">[^<>]*py-spy record [^<]*<", f">Rollway under {title}<", path.read_text("utf-8"))
    lines = [line.rstrip() for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def record(name: str, scene: Scene, server: RollwayServer, output: Path, seconds: float) -> Path:
    """The flame graph of one scene.

    Raises:
        BenchError: the load or py-spy failed.
    """
    scene.prepare(server)
    measure = scene.measure(server)
    measure(min(0.3, seconds))
    path = output / f"flame-{name}.svg"
    path.unlink(missing_ok=True)
    turns = max(1, round(seconds / min(seconds, scene.seconds_max)))
    with sampled(server, path, name):
        for _ in range(turns):
            measure(seconds)
    trimmed(path, name.replace("-", " "))
    return path


def main(
    output: Annotated[Path, typer.Option(help="Where the files go.")] = Path("bench-results"),
    only: Annotated[list[str] | None, typer.Option(help="This path only; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each path is sampled.", min=0.1)] = 5.0,
    smoke: Annotated[bool, typer.Option(help="With little data.")] = False,
    data_dir: Annotated[Path, typer.Option(help="Where data lie meanwhile.")] = Path(),
) -> None:
    """Record a flame graph of each path."""
    with failures_told("bench"):
        chosen = scenes(smoke)
        unknown = [name for name in only or [] if name not in chosen]
        if unknown:
            raise BenchError(f"There is no path {unknown[0]}; there are {', '.join(chosen)}.")
        output.mkdir(parents=True, exist_ok=True)
        cores = choose_cores()
        with work_directory(data_dir.resolve()) as directory, running_on(cores.generator):
            for name in only or list(chosen):
                with RollwayServer(directory / name, cores.server) as server:
                    path = record(name, chosen[name], server, output.resolve(), seconds)
                progress.print(f"{path.name}: {path.stat().st_size // 1024} KiB", highlight=False)


if __name__ == "__main__":
    run_program(main)
