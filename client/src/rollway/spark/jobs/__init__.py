"""Jobs for everyday work with topics, as functions and as ``rollway-spark JOB``.

``load`` (files into a topic), ``export`` (a topic into Parquet, incrementally), ``copy`` (topic to topic, also from and
to Kafka), ``compare`` (topic against topic or files), ``replay`` (the records of a range of time are produced again, as
fast as they came). Each function takes a session and a request, and returns a ``JobReport``. A failure is a
``JobError``, a ``RollwayError`` or an error of Spark.

Example::

    readings = TopicAddress(topic="readings", url="http://127.0.0.1:8080")
    report = export(spark, ExportRequest(source=readings, destination="/data/readings"))
    print(report.text())
"""

from rollway.spark.jobs.comparing.compare_job import CompareRequest, compare
from rollway.spark.jobs.copy_job import CopyRequest, copy
from rollway.spark.jobs.errors import JobError, JobUsageError, RejectedRowsError
from rollway.spark.jobs.exporting.export_job import ExportRequest, export
from rollway.spark.jobs.expressions import RecordExpressions
from rollway.spark.jobs.files.file_sources import FileSource
from rollway.spark.jobs.loading.load_job import LoadRequest, Rejects, load
from rollway.spark.jobs.places import EARLIEST, LATEST, Place, parse_place
from rollway.spark.jobs.progress import ConsoleProgress, Progress, SilentProgress
from rollway.spark.jobs.replaying.replay_job import ReplayRequest, replay
from rollway.spark.jobs.reports import JobReport
from rollway.spark.jobs.topics import TopicAddress
from rollway.spark.jobs.writing import LoadIdentity

__all__ = [
    "EARLIEST",
    "LATEST",
    "CompareRequest",
    "ConsoleProgress",
    "CopyRequest",
    "ExportRequest",
    "FileSource",
    "JobError",
    "JobReport",
    "JobUsageError",
    "LoadIdentity",
    "LoadRequest",
    "Place",
    "Progress",
    "RecordExpressions",
    "RejectedRowsError",
    "Rejects",
    "ReplayRequest",
    "SilentProgress",
    "TopicAddress",
    "compare",
    "copy",
    "export",
    "load",
    "parse_place",
    "replay",
]
