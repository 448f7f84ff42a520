"""The start of spark-submit: its place, its Java and Python, and its arguments."""

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
"""All cores, and four attempts of each task, as in a cluster."""

SCRIPT = Path(__file__).with_name("submitted.py")
LOGGING = Path(__file__).with_name("log4j2.properties")

# Without ANSI mode a failed cast is null. The row is then rejected with a reason, instead of a Java exception that ends
# the job.
DEFAULT_SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
# Characters that may follow a name in a file of java.util.Properties.
_NAME = re.compile(r"[\s=:]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The options of spark-submit beside the job, in its own form."""

    master: str = DEFAULT_MASTER
    deploy_mode: str | None = None
    settings: tuple[str, ...] = ()
    packages: str | None = None
    jars: str | None = None
    properties_file: str | None = None
    log_level: str = "off"

    @property
    def is_cluster(self) -> bool:
        """True if the driver runs in the cluster, and not in this process."""
        return self.deploy_mode == "cluster"

    def options(self, name: str, defaults_file: Path | None = None) -> list[str]:
        """Return the options for the command line, before the program. ``defaults_file`` is Spark's
        ``spark-defaults.conf``, which Spark reads unless there is a properties file."""
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
    """Return the names of the settings in a file of Spark; none if there is no such file, which Spark itself
    reports."""
    try:
        lines = [] if properties is None else properties.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {_NAME.split(line.strip(), maxsplit=1)[0] for line in lines if not line.strip().startswith(("#", "!"))}


def find_spark_submit(environment: Mapping[str, str]) -> str:
    """Return the spark-submit in ``SPARK_HOME``, else the one in the package pyspark of this interpreter.

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
    """Make this process a driver. Its first session gets the JVM that spark-submit starts.

    With deploy mode cluster this process becomes spark-submit instead, which runs ``arguments`` in the cluster; the
    exit status is spark-submit's. Otherwise spark-submit does not run the program: it would write its stderr to stdout.

    Raises:
        JobError: there is no Spark or no Java for it.
    """
    spark_submit = find_spark_submit(os.environ)
    try:
        os.environ["JAVA_HOME"] = str(java_home())
    except JavaNotFoundError as error:
        raise JobError(f"{error}.") from None
    # Workers must run the driver's interpreter: another one has other packages, or none.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The folder where spark-submit looks.
    settings = Path(os.environ.get("SPARK_CONF_DIR") or Path(spark_submit).parents[1] / "conf")
    options = submission.options(f"rollway-spark {arguments[0]}", settings / "spark-defaults.conf")
    if not submission.is_cluster:
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(spark_submit, [spark_submit, *options, str(SCRIPT), *arguments])  # noqa: S606 - no shell is wanted
