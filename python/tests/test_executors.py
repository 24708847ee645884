"""Sweeps on the executors of other packages: the table is the same bytes."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidewater as tw


def table_of(out: Path, executor: Any = None) -> bytes:
    vary = {"buffer.write_policy": ["none", "lru"], "seed": range(3)}
    tw.sweep(tw.Drive("tiny"), "rw=randwrite,bs=4k,number_ios=3000", vary, out=out, executor=executor)
    return (out / "table.parquet").read_bytes()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return table_of(tmp_path_factory.mktemp("reference"))


def test_loky_makes_the_same_table(reference: bytes, tmp_path: Path) -> None:
    loky = pytest.importorskip("joblib.externals.loky")
    workers = loky.get_reusable_executor(2)
    try:
        assert table_of(tmp_path, workers) == reference
    finally:
        workers.shutdown(wait=True)


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_makes_the_same_table(dask: Any, reference: bytes, tmp_path: Path) -> None:
    assert table_of(tmp_path, dask.get_executor()) == reference


def test_dask_makes_the_same_table_while_a_worker_is_killed(dask: Any, reference: bytes, tmp_path: Path) -> None:
    (victim, *_) = dask.run(os.getpid).values()

    def kill_at_first_run() -> None:
        runs = tmp_path / "runs"
        while not (runs.is_dir() and any(runs.iterdir())):
            threading.Event().wait(0.001)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill_at_first_run)
    killer.start()
    made = table_of(tmp_path, dask.get_executor())
    killer.join()
    assert made == reference
