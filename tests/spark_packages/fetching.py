"""Gets Spark's packages for Kafka and Avro: ``python -m tests.spark_packages.fetching``.

They are behind the Spark that the other tests use: what is published decides which versions are tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers import packages
from bench.peers.peer import CannotRunError
from rollway.spark.jobs.files.file_sources import AVRO_PACKAGE
from rollway.spark.jobs.topics import KAFKA_PACKAGE

KAFKA_VERSION = "4.2.0"
AVRO_VERSION = "4.1.1"
"""There is none of 4.2, and this one works there."""

_OWN_JARS = ("spark-sql-kafka", "spark-token-provider-kafka", "spark-avro", "kafka-clients", "commons-pool2")
"""What Spark itself does not have: another Scala or Hadoop beside its own breaks it."""


def jars_in(cache: Path) -> dict[str, str]:
    """By the package's name, jars as ``spark.jars`` takes them.

    Raises:
        CannotRunError: they are not there and Maven cannot get them.
    """
    found = {}
    for name, package, version in (("kafka", KAFKA_PACKAGE, KAFKA_VERSION), ("avro", AVRO_PACKAGE, AVRO_VERSION)):
        group, _, artifact = package.partition(":")
        libraries = packages.maven(f"spark-{name}", [(group, artifact, version)], cache, may_install=True)
        jars = [path for path in sorted(Path(libraries).parent.glob("*.jar")) if path.name.startswith(_OWN_JARS)]
        if not any(path.name.startswith(artifact) for path in jars):
            raise CannotRunError(f"{package}:{version} is not among what Maven has brought to {libraries}.")
        found[name] = ",".join(map(str, jars))
    return found


def main(arguments: list[str]) -> int:
    """Fetch into the directory that is given."""
    cache = Path(arguments[0]).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    try:
        jars_in(cache)
    except CannotRunError as error:
        print(f"Spark's packages cannot be had: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
