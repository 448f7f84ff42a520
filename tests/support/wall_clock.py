"""A wall clock that a test steps under a running service, as a time server or a resumed machine would.

The service is an ordinary ``rollway serve``. A small library that is loaded before all others adds the step to every
reading of the wall clock, in Python and in C alike, and leaves elapsed time as it is. The step is read from a file.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*machine_clock)(clockid_t, struct timespec *);

static long step_seconds(void) {
    char text[32];
    int file = open(getenv("WALL_CLOCK_STEP"), O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    return atol(text);
}

int clock_gettime(clockid_t which, struct timespec *reading) {
    if (!machine_clock) machine_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int result = machine_clock(which, reading);
    if (!result && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) reading->tv_sec += step_seconds();
    return result;
}

int gettimeofday(struct timeval *restrict reading, void *restrict zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    reading->tv_sec = now.tv_sec;
    reading->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *reading) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (reading) *reading = now.tv_sec;
    return now.tv_sec;
}
"""


class WallClock:
    """The wall clock of the services that are started with its ``environment``."""

    def __init__(self, directory: Path) -> None:
        """Skips the test where there is no C compiler."""
        self._step = directory / "wall-clock-step"
        self.set(0)
        self.environment = {"LD_PRELOAD": str(_library()), "WALL_CLOCK_STEP": str(self._step)}

    def set(self, seconds: int) -> None:
        """Be this far ahead of the machine's clock, from now on; negative: behind it."""
        written = self._step.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._step)


@functools.cache
def _library() -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a wall clock is stepped by a library in C, and there is no compiler")
    directory = Path(tempfile.mkdtemp(prefix="wall-clock-"))
    source, library = directory / "wall_clock.c", directory / "wall_clock.so"
    source.write_text(_SOURCE)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", os.fspath(library), os.fspath(source), "-ldl"]
    subprocess.run(command, check=True)
    return library
