"""A class graded on the workers of a Dask cluster, some of which get lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Undisturbed
from tests.small_class import Run, grade, left

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


def test_a_cluster_gives_the_same_scores_and_survives_the_loss_of_a_worker(
    undisturbed: Undisturbed, cluster: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    address = cluster.scheduler_address
    with Run(undisturbed.submissions, out, "--cluster", address) as run:
        run.when(lambda: run.graded() > 1)
        psutil.Process(cluster.workers[0].pid).kill()
        status, said = run.end()
    assert status == 3, said
    assert left(out) == undisturbed.left


def test_a_cluster_that_is_not_there_is_a_sentence(
    undisturbed: Undisturbed, tmp_path: Path
) -> None:
    done = grade(undisturbed.submissions, tmp_path / "out", "--cluster", "tcp://127.0.0.1:9")
    assert done.returncode == 2
    assert "No Dask scheduler answers" in done.stderr and "Traceback" not in done.stderr
