"""Sweeps on local clusters of Dask and Ray, in which a worker is killed during the sweep."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import plimsoll
import psutil
import pyarrow
import pytest
from common import ROOT, SHORT, SWEEP, keys, samples

sys.path.insert(0, str(ROOT / "bindings/python/examples"))

#: The length of a run; long enough that several points run on every worker after the kill.
LENGTH_MS = 400


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    path.write_text(SHORT.replace("length_ms = 20", f"length_ms = {LENGTH_MS}") + SWEEP)
    return path


@pytest.fixture(scope="module")
def whole(experiment: Path) -> pyarrow.Table:
    """The samples of the whole sweep in this process, which nothing disturbs."""
    return plimsoll.run(experiment)


class Killer(threading.Thread):
    """Kills the process that `victim` returns, once it returns one."""

    def __init__(self, victim: Callable[[], int | None]) -> None:
        super().__init__(daemon=True)
        self.victim = victim
        self.killed: int | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        while self.killed is None and not self.ended.wait(0.01):
            pid = self.victim()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.killed = pid

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()


def check(table: pyarrow.Table, whole: pyarrow.Table) -> None:
    """Checks that no sample is lost or doubled, and that all are those of an undisturbed run."""
    assert len(set(keys(table))) == table.num_rows == whole.num_rows
    assert samples(table).equals(samples(whole))


def test_a_sweep_on_dask_survives_the_death_of_a_worker(
    experiment: Path, whole: pyarrow.Table
) -> None:
    from distributed import Client, LocalCluster
    from on_dask import sweep

    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": None}
    lost: list[str] = []
    with LocalCluster(host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        pids: dict[str, int] = client.run(os.getpid)

        def victim() -> int | None:
            """A worker that runs a point and has results, once a few points have ended."""
            tasks = list(cluster.scheduler.tasks.values())
            if sum(task.state == "memory" for task in tasks) < 5:
                return None
            for worker in list(cluster.scheduler.workers.values()):
                results = [task.key for task in list(worker.has_what)]
                if worker.processing and results:
                    lost.extend(results)
                    return pids[worker.address]
            return None

        with Killer(victim) as killer:
            table = sweep(client, str(experiment))
        assert killer.killed is not None, "the sweep ended before a worker was killed"
        after = set(client.run(os.getpid).values())
        assert killer.killed not in after
        # The worker took its results with it, so Dask had to run their points a second time.
        for key in lost:
            steps = [(step[1], step[2]) for step in cluster.scheduler.story(key)]
            assert steps.count(("processing", "memory")) == 2, f"{key}: {steps}"
    check(table, whole)


@pytest.fixture
def cluster_of_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import ray

    # Ray replaces 127.0.0.1 by an address that other computers can reach, and then listens on all
    # addresses. A test must not.
    monkeypatch.setattr("ray._private.services.resolve_ip_for_localhost", lambda host: host)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
    )
    assert ray.util.get_node_ip_address() == "127.0.0.1"
    yield
    ray.shutdown()


def victim_of_ray(began: list[float]) -> Callable[[], int | None]:
    """Returns a function that chooses a worker that runs a point.

    The function appends the time to `began` each time it finds such a worker. It chooses the worker
    once a second has passed since the first time.
    """

    def victim() -> int | None:
        for process in psutil.Process().children(recursive=True):
            try:
                # Ray names a worker's process after the task that the worker runs.
                if process.name().startswith("ray::run"):
                    began.append(time.monotonic())
                    return process.pid if began[-1] - began[0] > 1 else None
            except psutil.NoSuchProcess:
                continue
        return None

    return victim


def test_a_sweep_on_ray_survives_the_death_of_a_worker(
    experiment: Path, whole: pyarrow.Table, cluster_of_ray: None
) -> None:
    from on_ray import sweep

    began: list[float] = []
    with Killer(victim_of_ray(began)) as killer:
        table = sweep(str(experiment))
        ended = time.monotonic()
    assert killer.killed is not None, "the sweep ended before a worker was killed"
    assert ended - began[-1] > 0.2, "the sweep ended when the worker was killed"
    assert not psutil.pid_exists(killer.killed)
    check(table, whole)


def test_a_killed_worker_of_ray_loses_its_point_if_ray_may_not_retry(
    experiment: Path, cluster_of_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill of the test above really ends a point, so only a retry can complete the sweep."""
    import on_ray
    from ray.exceptions import WorkerCrashedError

    monkeypatch.setattr(on_ray, "run", on_ray.run.options(max_retries=0))
    with Killer(victim_of_ray([])) as killer, pytest.raises(WorkerCrashedError):
        on_ray.sweep(str(experiment))
    assert killer.killed is not None
