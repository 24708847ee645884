"""Comparisons and sweeps: in this process, in others, and in those that die."""

import os
import signal
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import tidewater_ssd as tw
from tidewater_ssd import runs

JOB = "rw=randwrite,bs=4k,iodepth=16,number_ios=3000"


def sweep(out: Path, executor: Executor | None = None, load: tw.Load | str = JOB) -> tw.Grid:
    vary = {"buffer.write_policy": ["none", "lru"], "seed": range(3)}
    return tw.sweep(tw.Drive("tiny"), load, vary, out=out, executor=executor)


def table_of(folder: Path) -> bytes:
    return (folder / "table.parquet").read_bytes()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "reference"
    assert len(sweep(out)) == 6
    return out


def test_a_sweep_is_a_table_with_statistics(reference: Path) -> None:
    grid = sweep(reference)
    assert grid.vary == ["buffer.write_policy", "seed"]
    assert grid.table["seed"] == [0, 1, 2, 0, 1, 2] and grid.table["failure"] == [None] * 6
    assert grid.table["buffer.write_policy"] == ["none"] * 3 + ["lru"] * 3
    assert grid[4].point == {"buffer.write_policy": "lru", "seed": "1"}
    assert grid[-1].figure("iops") == grid.table["iops"][5]
    assert set(grid.statistics["n"]) == {3}
    assert [run.label for run in grid] == grid.table["run"]
    assert "What buffer.write_policy and seed change" in grid.report()
    with pytest.raises(IndexError):
        grid[6]


def test_a_second_call_makes_nothing_and_another_folder_the_same_table(reference: Path, tmp_path: Path) -> None:
    records = {file.name: file.stat().st_mtime_ns for file in (reference / "runs").iterdir()}
    sweep(reference)
    assert {file.name: file.stat().st_mtime_ns for file in (reference / "runs").iterdir()} == records
    sweep(tmp_path / "other")
    assert table_of(tmp_path / "other") == table_of(reference)


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    sweep(tmp_path / "study")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "study").rglob("*") if file.is_file()}
    rows = {"op": ["write"] * 50, "offset": list(range(0, 204800, 4096)), "bytes": [4096] * 50}
    other = "rw=randwrite,bs=8k,iodepth=16,number_ios=3000"
    loads: list[tw.Load | str] = [other, tw.Trace(rows)]
    for load in loads:
        with pytest.raises(tw.PlanError, match="study: holds another study: 6 runs of rw=randwrite") as error:
            sweep(tmp_path / "study", load=load)
        assert "give another directory with out=, or remove" in str(error.value)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "study").rglob("*") if file.is_file()} == before
    assert len(sweep(tmp_path / "study")) == 6


def test_processes_and_threads_make_the_same_table(reference: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        sweep(tmp_path / "processes", processes)
    with ThreadPoolExecutor(2) as threads:
        sweep(tmp_path / "threads", threads)
    assert table_of(tmp_path / "processes") == table_of(tmp_path / "threads") == table_of(reference)


class Fatal(ProcessPoolExecutor):
    """Kills one of its workers when the third run is handed out."""

    handed_out = 0

    def submit(self, work, /, *arguments, **named):  # type: ignore[no-untyped-def]
        Fatal.handed_out += 1
        if Fatal.handed_out == 3:
            os.kill(next(iter(self._processes)), signal.SIGKILL)
        return super().submit(work, *arguments, **named)


def test_a_worker_that_is_killed_changes_nothing(reference: Path, tmp_path: Path) -> None:
    with Fatal(1, mp_context=get_context("spawn")) as workers, pytest.warns(UserWarning, match="made here"):
        sweep(tmp_path / "killed", workers)
    assert Fatal.handed_out >= 3
    assert table_of(tmp_path / "killed") == table_of(reference)


class Forgetful(Executor):
    """Loses every run at first."""

    def __init__(self) -> None:
        self.handed_out = 0

    def submit(self, work, /, *arguments, **named):  # type: ignore[no-untyped-def]
        self.handed_out += 1
        future: Future[None] = Future()
        if self.handed_out <= 6:
            future.set_exception(OSError("the node went away"))
        else:
            future.set_result(work(*arguments, **named))
        return future


def test_runs_that_were_lost_are_handed_out_again(reference: Path, tmp_path: Path) -> None:
    workers = Forgetful()
    sweep(tmp_path / "lost", workers)
    assert workers.handed_out == 12
    assert table_of(tmp_path / "lost") == table_of(reference)


def test_a_trace_in_memory_is_in_the_folder_once(tmp_path: Path) -> None:
    rows = {"op": ["write", "read"] * 50, "offset": list(range(0, 409600, 4096)), "bytes": [4096] * 100}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        grid = sweep(tmp_path / "a", processes, tw.Trace(rows))
    assert len(list((tmp_path / "a/traces").iterdir())) == 1
    assert grid[0].requests == 100
    sweep(tmp_path / "b", None, tw.Trace(rows))
    assert sorted(file.name for file in (tmp_path / "a/runs").iterdir()) == sorted(
        file.name for file in (tmp_path / "b/runs").iterdir()
    )


def test_workers_in_another_directory_find_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("mine.csv").write_text("".join(f"{at},w,{at * 4096},4096\n" for at in range(100)))
    Path("mine.toml").write_text('base = "tiny"\n')
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=os.chdir, initargs=("/",)) as workers:
        trace = tw.Trace("mine.csv", columns="time_us,op,offset,bytes")
        grid = tw.sweep(tw.Drive("mine.toml"), trace, {"seed": [1, 2]}, out="out", executor=workers)
    assert grid.failures == {} and [run.requests for run in grid] == [100, 100]


def test_a_worker_of_another_build_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = runs.make_one

    def other(*arguments: object) -> None:
        monkeypatch.setattr(runs, "_known_build", ["another"])
        make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "make_one", other)
    with ThreadPoolExecutor(1) as workers, pytest.raises(tw.PlanError, match="another build"):
        sweep(tmp_path / "out", workers)


def test_failures_are_rows_with_their_reason(tmp_path: Path) -> None:
    vary = {"drive.capacity": ["8MiB", "12MiB"]}
    grid = tw.sweep(tw.Drive("tiny"), "rw=randwrite,bs=4k,size=12m,number_ios=100", vary, out=tmp_path / "out")
    assert list(grid.failures) == ["capacity=8MiB"] and "8 MiB" in next(iter(grid.failures.values()))
    assert len(list(grid)) == 1 and grid.table["iops"][0] is None
    with pytest.raises(tw.RunError, match="capacity=8MiB"):
        grid[0]


def test_a_slip_of_the_pen_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(tw.ProfileError) as refused:
        tw.sweep(tw.Drive("tiny"), JOB, {"nand.chanels": [1, 2]}, out=tmp_path / "out")
    assert refused.value.suggestion == "nand.channels"
    with pytest.raises(tw.ProfileError, match="did you mean `generic`"):
        tw.sweep(tw.Drive("tiny"), JOB, {"profile": ["tiny", "genric"]}, out=tmp_path / "out")


def test_what_speaks_against_figures_is_said() -> None:
    job = "rw=randwrite,bs=4k,size=16m,number_ios=500"
    runs = tw.compare(tw.Drive("generic", capacity="1GiB"), job, {"seed": [1, 2]}, precondition="steady")
    said = ["all writes stayed in the write buffer: no flash was programmed"]
    assert runs.warnings == {"seed=1": said, "seed=2": said}
    with pytest.warns(tw.RunWarning, match="2 of 2 runs have warnings .* such as seed=1: "):
        runs.plot(x="seed", y="write_amplification")


def test_a_sampled_sweep_has_its_points_and_seeds() -> None:
    vary = {"nand.channels": [1, 2, 4], "nand.ways": [1, 2], "seed": range(2)}
    grid = tw.sweep(tw.Drive("tiny"), JOB, vary, sample=3, skip=["nand.channels=4"])
    assert len(grid) == 4 and set(grid.table["seed"]) == {0, 1}


def test_what_cannot_vary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tw.PlanError, match="nothing varies"):
        tw.compare(tw.Drive("tiny"), JOB, {})
    with pytest.raises(tw.PlanError, match="no load"):
        tw.compare(tw.Drive("tiny"), None, {"seed": [1]})
    with pytest.raises((tw.PlanError, tw.ProfileError), match="no such key"):
        tw.compare(tw.Drive("tiny"), JOB, {"nand.chanels": [1]})
    (tmp_path / "file").write_text("mine")
    with pytest.raises(tw.PlanError, match="none of a sweep"):
        tw.sweep(tw.Drive("tiny"), JOB, {"seed": [1]}, out=tmp_path)


def test_a_comparison_does_not_depend_on_the_number_of_jobs() -> None:
    vary = {"queue_depth": [1, 8], "seed": "1..2"}
    several = tw.compare(tw.Drive("tiny"), JOB, vary, jobs=3)
    one = tw.compare(tw.Drive("tiny"), JOB, vary, jobs=1)
    assert len(one) == 4 and list(one.table.rows()) == list(several.table.rows())
    assert one.statistics["n"][0] == 2


def test_loads_and_profiles_vary_too() -> None:
    jobs = ["rw=read,bs=4k,number_ios=100", "rw=write,bs=4k,number_ios=100"]
    by_job = tw.compare(tw.Drive("tiny"), None, {"job": jobs})
    assert [run.requests_by_operation for run in by_job] == [{"read": 100}, {"write": 100}]


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    shares: list[float] = []
    tw.sweep(tw.Drive("tiny"), JOB, {"seed": [1, 2]}, out=tmp_path / "out", progress=shares.append)
    assert shares[-1] == 1.0 and shares == sorted(shares)
    pytest.importorskip("tqdm")
    tw.compare(tw.Drive("tiny"), JOB, {"seed": [1, 2]}, progress=True)


def test_a_figure_has_medians_and_whiskers_over_seeds(reference: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    grid = sweep(reference)
    figure = grid.plot(x="buffer.write_policy", y="latency_us.write.p99")
    (axes,) = figure.axes
    bars: Any = axes.containers[0]
    line, _, (whiskers,) = bars.lines
    heights = sorted(grid[at].latency_us.write.p99 for at in range(3))
    assert line.get_ydata()[0] == heights[1]
    ends = whiskers.get_segments()[0]
    assert sorted(float(y) for _, y in ends) == pytest.approx([heights[0], heights[2]])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["none", "lru"]
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 1000
    seeds = grid.plot(x="seed", y="iops", hue="buffer.write_policy", title="seeds")
    legend = seeds.axes[0].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["none", "lru"]
    with pytest.raises(tw.PlanError, match="does not vary"):
        grid.plot(x="nand.channels", y="iops")
    with pytest.raises(tw.PlanError, match="no run has"):
        grid.plot(x="seed", y="latency_us.read.p99")
    with pytest.raises(tw.PlanError, match="profile is a text"):
        grid.plot(x="seed", y="profile")
    for name, meant in [("iop", "iops"), ("latency_us.write.p9", "latency_us.write.p99")]:
        with pytest.raises(tw.PlanError, match="no figure is called") as error:
            grid.plot(x="seed", y=name)
        assert error.value.suggestion == meant


def test_frames_are_of_the_library_that_is_asked_for(reference: Path) -> None:
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    grid = sweep(reference)
    assert isinstance(grid.frame("polars"), polars.DataFrame) and isinstance(grid.frame("pandas"), pandas.DataFrame)
    assert isinstance(grid.frame(), polars.DataFrame)
    groups = grid.frame().group_by("buffer.write_policy").agg(polars.median("write_amplification"))
    assert groups.shape == (2, 2)
    assert polars.DataFrame(grid).shape == grid.frame().shape
    with pytest.raises(tw.PlanError):
        grid.frame("numpy")
