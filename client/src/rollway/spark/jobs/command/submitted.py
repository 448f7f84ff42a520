"""The program that spark-submit runs in a cluster: it runs the job's part of the command line beside the driver."""

import sys

from rollway.spark.jobs.command.cli import run_here

if __name__ == "__main__":
    sys.exit(run_here(sys.argv[1:]))
