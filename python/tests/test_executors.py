"""Sweeps on the executors of other libraries: the same table, also when a worker dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Any

import pytest

import tidewater_ssd as tw

ROWS = {"op": ["write", "read"] * 2000, "offset": [4096 * (at % 500) for at in range(4000)], "bytes": [4096] * 4000}
RUNS = 16
#: Of anything that should end at once.
LIMIT_SECONDS = 120


def sweep(out: Path, executor: Executor | None = None, jobs: int | None = None) -> bytes:
    """The table of a small sweep of a trace in memory, in a folder that is new."""
    rmtree(out, ignore_errors=True)
    vary = {"buffer.write_policy": ["none", "lru"], "seed": range(RUNS // 2)}
    load = tw.Trace(ROWS, queue_depth=8, repeat=5)
    grid = tw.sweep(tw.Drive("tiny"), load, vary, out=out, executor=executor, jobs=jobs)
    assert not grid.failures
    return (out / "table.parquet").read_bytes()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # One for all: the table has the path of the trace.
    return tmp_path_factory.mktemp("sweep") / "out"


@pytest.fixture(scope="module")
def reference(out: Path) -> bytes:
    return sweep(out, jobs=1)


class Fatal(Executor):
    """Another executor, one of whose workers gets SIGKILL when the second run has ended."""

    def __init__(self, within: Executor, victim: int) -> None:
        self.within, self.victim = within, victim
        self.ended = 0
        self.left: int | None = None
        self.lock = Lock()

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future = self.within.submit(work, *arguments, **named)
        future.add_done_callback(self._one_ended)
        return future

    def _one_ended(self, _: Future[Any]) -> None:
        with self.lock:
            self.ended += 1
            if self.left is None and self.ended >= 2:
                self.left = RUNS - self.ended
                os.kill(self.victim, signal.SIGKILL)


def is_alive(process: int) -> bool:
    """Whether it runs: one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def killed_in_the_midst(workers: Fatal) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while workers.left is not None and is_alive(workers.victim) and time.monotonic() < deadline:
        time.sleep(0.01)
    return workers.left is not None and workers.left > 0 and not is_alive(workers.victim)


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        cluster.get_client() as client,
    ):
        yield client


def test_dask_makes_the_same_table(reference: bytes, out: Path, dask: Any) -> None:
    assert sweep(out, dask.get_executor()) == reference
    assert len(list((out / "traces").iterdir())) == 1


def test_a_dask_worker_that_is_killed_changes_nothing(reference: bytes, out: Path, dask: Any) -> None:
    workers = Fatal(dask.get_executor(), next(iter(dask.run(os.getpid).values())))
    assert sweep(out, workers) == reference
    assert killed_in_the_midst(workers)


def loky(**options: Any) -> Executor:
    found: Executor = pytest.importorskip("joblib.externals.loky").get_reusable_executor(max_workers=2, **options)
    return found


def test_loky_makes_the_same_table(reference: bytes, out: Path) -> None:
    assert sweep(out, loky()) == reference


def test_a_loky_worker_that_is_killed_changes_nothing(reference: bytes, out: Path) -> None:
    executor = loky()
    workers = Fatal(executor, executor.submit(os.getpid).result(LIMIT_SECONDS))
    with pytest.warns(UserWarning, match="made here"):
        table = sweep(out, workers)
    assert table == reference
    assert killed_in_the_midst(workers)
    # The next one has workers again.
    assert loky().submit(os.getpid).result(LIMIT_SECONDS) != workers.victim


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_ray_makes_the_same_table(reference: bytes, out: Path, ray: Any) -> None:
    from tidewater_ssd.executors import Ray

    def refuse() -> None:
        raise tw.PlanError("this worker has another build", help="install the same wheel")

    with Ray() as workers:
        assert sweep(out, workers) == reference
        assert isinstance(workers.submit(refuse).exception(LIMIT_SECONDS), tw.PlanError)
    with pytest.raises(RuntimeError, match="shut down"):
        workers.submit(os.getpid)


def test_a_ray_worker_that_is_killed_changes_nothing(reference: bytes, out: Path, ray: Any) -> None:
    from tidewater_ssd.executors import Ray

    with Ray() as inner:
        workers = Fatal(inner, inner.submit(os.getpid).result(LIMIT_SECONDS))
        assert sweep(out, workers) == reference
    assert killed_in_the_midst(workers)


def test_mpi_makes_the_same_table(reference: bytes, out: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("no mpiexec beside this Python")
    (tmp_path / "study.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "from mpi4py.futures import MPIPoolExecutor\n"
        "from test_executors import sweep\n"
        "if __name__ == '__main__':\n"
        "    with MPIPoolExecutor() as workers:\n"
        "        sweep(Path(sys.argv[1]), workers)\n"
    )
    command = [str(mpiexec), "-n", "3", sys.executable, "-m", "mpi4py.futures", "study.py", str(out)]
    there = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    made = subprocess.run(
        command, cwd=tmp_path, env=there, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert made.returncode == 0, made.stderr
    assert (out / "table.parquet").read_bytes() == reference
