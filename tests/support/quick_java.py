"""How the JVMs of the tests start: quickly. They compile little, and map their classes from an archive if there is one.

A start of Spark costs 20 s of CPU time as it comes, 11 s with little compiled, and 6 s with the archive too; the tests
start dozens. The archive is this machine's and this Java's own (``tests.spark.class_archive`` writes it); a Java that
can't use it ignores it. Right for tests, and wrong for measurements.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def quick_java() -> str:
    """Options of such a JVM."""
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else QUICK_JAVA


def set_quick_java(environment: MutableMapping[str, str]) -> None:
    """Have spark-submit, which every driver is started by, use these options for its JVMs."""
    environment.setdefault("SPARK_SUBMIT_OPTS", quick_java())
    environment.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)
