"""From a command line to spark-submit: which one, with which Java and Python, and what it is told."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollway.spark.java import JavaNotFoundError, java_home
from rollway.spark.jobs.errors import JobError

DEFAULT_MASTER = "local[*,4]"
"""All cores, and four attempts of each task, as a cluster has them."""

SCRIPT = Path(__file__).with_name("submitted.py")
LOGGING = Path(__file__).with_name("log4j2.properties")

# A value that cannot be made of a row is null, and rejected with its reason, and does not end the job with a Java
# exception.
DEFAULT_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
# What may stand behind a name in a file of java.util.Properties.
_NAME = re.compile(r"[\s=:]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What spark-submit is told beside the job: its own options, in its own words."""

    master: str = DEFAULT_MASTER
    deploy_mode: str | None = None
    settings: tuple[str, ...] = ()
    packages: str | None = None
    jars: str | None = None
    properties_file: str | None = None
    log_level: str = "off"

    @property
    def is_cluster(self) -> bool:
        """Whether the driver runs in the cluster, and not in this process."""
        return self.deploy_mode == "cluster"

    def options(self, name: str, defaults_file: Path | None = None) -> list[str]:
        """As they stand on the command line, before the program. ``defaults_file`` is Spark's ``spark-defaults.conf``,
        which it reads unless it is given another."""
        line = ["--master", self.master, "--name", name]
        for option, value in (
            ("--deploy-mode", self.deploy_mode),
            ("--packages", self.packages),
            ("--jars", self.jars),
            ("--properties-file", self.properties_file),
        ):
            line += [] if value is None else [option, value]
        file = Path(self.properties_file) if self.properties_file is not None else defaults_file
        given = {each.partition("=")[0] for each in self.settings} | _names_in(file)
        for key, value in DEFAULT_SETTINGS.items():
            line += [] if key in given else ["--conf", f"{key}={value}"]
        for each in self.settings:
            line += ["--conf", each]
        if "spark.driver.extraJavaOptions" not in given:
            # One argument: spark-submit splits it at spaces.
            line += [
                "--driver-java-options",
                f"-Dlog4j2.configurationFile={LOGGING.as_uri()} -Drollway.log.level={self.log_level}",
            ]
        return line


def _names_in(properties: Path | None) -> set[str]:
    """The settings in a file as Spark reads it; none where there is no such file, which Spark says itself."""
    try:
        lines = [] if properties is None else properties.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {_NAME.split(line.strip(), maxsplit=1)[0] for line in lines if not line.strip().startswith(("#", "!"))}


def find_spark_submit(environment: Mapping[str, str]) -> str:
    """The one of ``SPARK_HOME``, else the one in the package pyspark of this interpreter.

    Raises:
        JobError: there is none.
    """
    home = environment.get("SPARK_HOME")
    if not home:
        found = importlib.util.find_spec("pyspark")
        if found is None or found.origin is None:
            raise JobError("There is no Spark: install rollway[spark], or set SPARK_HOME.")
        home = str(Path(found.origin).parent)
    submit = Path(home) / "bin" / "spark-submit"
    if not submit.exists():
        raise JobError(f"There is no {submit}: SPARK_HOME is wrong, or Spark is not installed completely.")
    return str(submit)


def submit(submission: Submission, arguments: Sequence[str]) -> None:
    """Make this process a driver; the first session made in it has the JVM that spark-submit starts.

    With deploy mode cluster this process becomes spark-submit instead, which runs the line ``arguments`` there, and
    ends with its exit status. Otherwise spark-submit does not run the program: it would write its stderr to stdout.

    Raises:
        JobError: there is no Spark or no Java for it.
    """
    spark_submit = find_spark_submit(os.environ)
    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except JavaNotFoundError as error:
        raise JobError(f"{error}.") from None
    # Workers must run what the driver runs: with another interpreter they have other packages, or none.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # As spark-submit finds it.
    settings = Path(os.environ.get("SPARK_CONF_DIR") or Path(spark_submit).parents[1] / "conf")
    options = submission.options(f"rollway-spark {arguments[0]}", settings / "spark-defaults.conf")
    if not submission.is_cluster:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(spark_submit, [spark_submit, *options, str(SCRIPT), *arguments])  # noqa: S606 - no shell is wanted
