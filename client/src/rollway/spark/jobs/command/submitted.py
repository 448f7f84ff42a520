"""What spark-submit runs in a cluster: the job's part of the command line once more, now beside a driver."""

import sys

from rollway.spark.jobs.command.cli import run_here

if __name__ == "__main__":
    sys.exit(run_here(sys.argv[1:]))
