"""Spark loads while tasks fail, workers, drivers and services die, and answers get lost: every row is there once.

CI runs some scenarios once; ``make spark-fault-test ROUNDS=20`` runs all of them so many times, and those of a
standalone cluster. ``SPARK_FAULT_SEED`` repeats the random choices of a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark_faults.cluster import cluster
from tests.spark_faults.harness import Stand, stand
from tests.spark_faults.scenarios import ALL, IN_SHORT, Scenario
from tests.spark_faults.speculation import SCENARIOS as OF_CLUSTERS

ROUNDS = int(os.environ.get("SPARK_FAULT_ROUNDS", "1"))


def run_rounds(stand: Stand, scenario: Scenario) -> None:
    try:
        for number in range(1, ROUNDS + 1):
            stand.proxy.reset()
            scenario(stand)
            stand.note(f"{scenario.__name__}: {number} of {ROUNDS}")
    except BaseException:
        # The next scenario shall not fall over what this one has left.
        stand.start_over()
        raise
    stand.proxy.reset()


def test_a_few_of_them_once(tmp_path: Path) -> None:
    with stand(tmp_path) as made:
        for scenario in IN_SHORT:
            made.proxy.reset()
            scenario(made)
            made.note(scenario.__name__)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with stand(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
def test_each_of_them_many_times(local: Stand, scenario: Scenario) -> None:
    run_rounds(local, scenario)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(directory) as (master, settings), stand(directory, master=master, **settings) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("scenario", OF_CLUSTERS, ids=lambda scenario: scenario.__name__)
def test_a_cluster_that_speculates(standalone: Stand, scenario: Scenario) -> None:
    run_rounds(standalone, scenario)
