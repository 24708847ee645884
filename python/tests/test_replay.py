"""Runs, their figures, tables and errors."""

import _thread
import gc
import json
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import tidewater_ssd as tw
from tidewater_ssd import _native
from tidewater_ssd.errors import in_python
from tidewater_ssd.result import figures

#: Seconds that a busy machine may take for what is done at once.
PATIENCE = 60
JOB = "rw=randwrite,bs=4k,iodepth=16,number_ios=2000"
TABLE: dict[str, list[object]] = {
    "op": ["write", "read", "w", "trim"],
    "offset": [0, 0, 8192, 0],
    "bytes": [4096, 4096, 4096, 4096],
    "time_us": [0, 10, 20.5, 30],
}


@pytest.fixture(scope="module")
def result() -> tw.Result:
    return tw.Drive("tiny").replay(JOB, seed=3, requests=True)


def test_equal_inputs_and_seeds_make_equal_records(result: tw.Result) -> None:
    again = tw.Drive("tiny").replay(tw.Job(rw="randwrite", bs="4k", iodepth=16, number_ios=2000), seed=3)
    other = tw.Drive("tiny").replay(JOB, seed=4)
    measured = {"wall_seconds", "user_cpu_seconds", "bytes_per_touched_page"}

    def fixed(one: tw.Result) -> dict[str, object]:
        return {name: value for name, value in one.record.items() if name not in measured}

    assert fixed(again) == fixed(result)
    assert fixed(other) != fixed(result)


def test_figures_are_attributes_of_the_record(result: tw.Result) -> None:
    assert result.requests == result.record["requests"] == 2000
    assert result.latency_us.write.p99 == result.record["latency_us"]["write"]["p99"]
    assert result.profile.settings["nand.channels"] == tw.Drive("tiny")["nand.channels"]
    assert result.recovery is None and result.slc is None
    assert result.figure("latency_us.write.p99") == result.latency_us["write"].p99
    assert result.figure("latency_us.read.p99") != result.figure("latency_us.read.p99")
    assert "p99" in dir(result.latency_us.write) and "requests=2000" in repr(tw.Record(result.record))
    with pytest.raises(AttributeError, match="there are all, write"):
        _ = result.latency_us.read
    with pytest.raises(AttributeError, match="no field 'iop'"):
        _ = result.iop


def test_a_record_is_what_the_command_reads(result: tw.Result, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(result.to_json())
    assert tw.Result.read(file).record == result.record == json.loads(result.to_json())
    back = pickle.loads(pickle.dumps(result))
    assert back.record == result.record


def test_reports_are_pages(result: tw.Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text() == page and page.startswith("<!DOCTYPE html>")
    assert "srcdoc" in result._repr_html_() and "<script" not in result._repr_html_()
    assert "random writes of 4 KiB" in result.summary()


def test_requests_are_rows(result: tw.Result, tmp_path: Path) -> None:
    table = result.requests_table
    assert table is not None and len(table) == 2000
    assert sum(table["length_bytes"]) == result.bytes_written
    mean = sum(table["latency_us"]) / len(table)
    assert mean == pytest.approx(result.latency_us.write.mean)
    for name in ["requests.csv", "requests.parquet", "requests.arrow"]:
        tw.Drive("tiny").replay(JOB, seed=3, requests=tmp_path / name)
        table.write(tmp_path / f"again-{name}")
    lines = (tmp_path / "requests.csv").read_text().splitlines()
    assert len(lines) == 2001 and lines[0] == ",".join(table.columns)
    again = (tmp_path / "again-requests.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in again] == [line.split(",")[0] for line in lines]


def test_tables_are_read_without_a_library(result: tw.Result) -> None:
    for name in ["time-series", "latencies", "dies", "wear"]:
        table = result.table(name)
        assert len(table) == len(list(table.rows())) > 0
    assert list(result.table("wear"))[0].keys() == {"erases", "blocks"}
    assert "<td>" in result.time_series._repr_html_()
    with pytest.raises(tw.PlanError, match="no table"):
        result.table("days")
    with pytest.raises(tw.PlanError, match="there is no column"):
        result.time_series["days"]


def test_a_table_of_columns_is_a_trace() -> None:
    run = tw.Drive("tiny").replay(tw.Trace(TABLE))
    assert run.requests_by_operation == {"read": 1, "write": 2, "deallocate": 1}
    assert run.workload.source == "data frame"
    again = tw.Drive("tiny").replay(pickle.loads(pickle.dumps(tw.Trace(TABLE))))
    assert again.record["latency_us"] == run.record["latency_us"]


def test_the_requests_of_a_run_are_a_trace(result: tw.Result) -> None:
    table = result.requests_table
    assert table is not None
    again = tw.Drive("tiny").replay(tw.Trace(table, queue_depth=16))
    assert again.requests_by_operation == result.requests_by_operation
    assert again.bytes_written == result.bytes_written


def test_traces_that_are_wrong_name_their_line(tmp_path: Path) -> None:
    with pytest.raises(tw.TraceError, match="the table has no trace: its columns are a") as error:
        tw.Trace({"a": [1]})
    assert "it needs an operation" in str(error.value.help)
    file = tmp_path / "bad.csv"
    file.write_text("0,w,0,4096\n1,w,zero,4096\n")
    with pytest.raises(tw.TraceError) as error:
        tw.Drive("tiny").replay(tw.Trace(file, columns="time_us,op,offset,bytes"))
    assert error.value.line == 2
    with pytest.raises(tw.TraceError, match="no such file"):
        tw.Drive("tiny").replay("missing.csv")
    with pytest.raises(tw.TraceError, match="a number|an offset") as error:
        tw.Drive("tiny").replay({"op": ["w"], "offset": ["x"], "bytes": [1]})
    assert error.value.line == 1


def test_drives_that_are_wrong_name_their_key() -> None:
    with pytest.raises(tw.ProfileError) as error:
        tw.Drive("generic", {"nand.chanels": 2})
    assert (error.value.key, error.value.suggestion) == ("nand.chanels", "nand.channels")
    with pytest.raises(tw.ProfileError) as error:
        tw.Drive("generci")
    assert (error.value.key, error.value.suggestion) == (None, "generic")
    with pytest.raises(tw.ProfileError) as error:
        tw.Drive("generic", {"nand": {"channels": 0}})
    assert error.value.key == "nand.channels" and "1 to" in str(error.value)
    assert isinstance(pickle.loads(pickle.dumps(error.value)), tw.ProfileError)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_drive_goes_through_toml_and_pickle() -> None:
    drive = tw.Drive("tlc-client", {"nand.channels": 2, "memory": {"dram": {"size": "32MiB"}}})
    again = tw.Drive.from_toml(drive.toml())
    own = {"name", "description"}
    assert {key: again[key] for key in again.values.keys() - own} == {
        key: drive[key] for key in drive.values.keys() - own
    }
    assert pickle.loads(pickle.dumps(drive)) == drive
    assert drive.with_settings({"nand.ways": 2})["nand.ways"] == "2"


def test_advice_names_arguments_of_python() -> None:
    with pytest.raises(tw.PlanError) as error:
        tw.Drive("generic").replay("rw=read")
    assert "capacity=" in str(error.value) and "--" not in str(error.value)
    with pytest.raises(tw.PlanError):
        tw.Drive("tiny").replay("rw=nothing")


def test_messages_of_the_program_name_arguments_too() -> None:
    with pytest.raises(tw.TidewaterError) as error:
        tw.serve("generic")
    assert 'capacity="64GiB"' in str(error.value) and "--" not in str(error.value)
    run = tw.Drive("generic").replay("rw=randwrite,bs=4k,size=16m,number_ios=5000")
    said = " ".join(run.warnings)
    assert said and said == in_python(" ".join(run.record["warnings"]))
    assert "--" not in said and "--" not in run.summary()


def test_what_is_given_in_the_wrong_form_is_refused_in_words_of_python() -> None:
    tiny: Any = tw.Drive("tiny")
    any_drive: Any = tw.Drive
    rows = {"op": ["w"], "offset": [0, 1], "bytes": [4096]}
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: tw.compare(tiny, JOB, {"seeds": [1]}), "seeds in vary: there is no such key; did you mean `seed`"),
        (lambda: tw.compare(tiny, JOB, {"queue_depth": [0]}), "expected 1 to 65535"),
        (lambda: tw.compare(tiny, JOB, {"nand.channels": []}), "nand.channels in vary: an empty list"),
        (lambda: tw.compare(tiny, JOB, "seed"), "what varies is a dictionary"),  # type: ignore[arg-type]
        (lambda: any_drive("generic", [("nand.channels", 1)]), "settings are a dictionary"),
        (lambda: tw.Drive("no-such"), "`tidewater_ssd.profiles\\(\\)` names them all"),
        (lambda: tw.Drive("/no/x.toml"), "Drive\\('generic'\\).toml\\(\\)` is a text to edit"),
        (lambda: tw.Drive("tiny", {"nand.channels": "x"}), "`tidewater_ssd.keys\\(\\)` says what"),
        (lambda: tiny.replay(rows), "different lengths: op 1, offset 2, bytes 1"),
        (lambda: tiny.replay(tw.Trace("sample", columns="timestamp,op")), "^columns=: there is no column"),
        (lambda: tiny.replay(JOB, requests="/no/x.csv"), "cannot write /no/x.csv: No such file or directory$"),
    ]
    for call, words in calls:
        with pytest.raises(tw.TidewaterError, match=words) as error:
            call()
        assert "--" not in str(error.value), error.value
    # Numbers of other libraries are whole, and have a point.
    assert tw.Drive("tiny", {"nand.channels": 2.0}, capacity=float(8 << 20))["nand.channels"] == "2"


def test_figures_that_there_are_not_are_refused(result: tw.Result) -> None:
    for name, meant in [
        ("latency_us.write.p9", "latency_us.write.p99"),
        ("write_amplificaton", "write_amplification"),
        ("latency_us.wirte.mean", "latency_us.write.mean"),
    ]:
        with pytest.raises(tw.PlanError, match="no figure is called") as error:
            result.figure(name)
        assert error.value.suggestion == meant and meant in str(error.value)
    for name in ["profile", "profile.name", "latency_us.write", "", "partial.x"]:
        with pytest.raises(tw.PlanError, match="no figure is called"):
            result.figure(name)
    # Those that a run has no number for are none.
    for name in ["latency_us.read.p99", "recovery.seconds", "slc.fill", "requests_by_operation.flush"]:
        assert result.figure(name) != result.figure(name)
    assert all(isinstance(result.figure(name), float) for name in figures())


@pytest.mark.parametrize("wrong", [1.5, -1, 2**63, "1", None, True])
def test_whole_numbers_are_whole(wrong: Any, tmp_path: Path) -> None:
    drive, calls = tw.Drive("tiny"), list[Callable[[], object]]()
    calls.append(lambda: drive.replay(JOB, seed=wrong))
    calls.append(lambda: tw.compare(drive, JOB, {"nand.channels": [1]}, seed=wrong))
    calls.append(lambda: tw.serve(drive, seed=wrong))
    calls.append(lambda: tw.probe(drive, seed=wrong))
    calls.append(lambda: tw.experiment("x", seed=wrong))
    calls.append(lambda: tw.sweep(drive, JOB, {"nand.channels": [1]}, sample=1, sample_seed=wrong, out=tmp_path / "a"))
    calls.append(lambda: tw.Trace(TABLE, warm_up=wrong))
    if not isinstance(wrong, str):
        calls.append(lambda: tw.compare(drive, JOB, {"seed": [1, wrong]}))
    if wrong is not None:
        calls.append(lambda: tw.sweep(drive, JOB, {"seed": [1]}, jobs=wrong, out=tmp_path / "b"))
        calls.append(lambda: tw.sweep(drive, JOB, {"nand.channels": [1]}, sample=wrong, out=tmp_path / "c"))
        calls.append(lambda: tw.Trace(TABLE, queue_depth=wrong))
        calls.append(lambda: tw.Trace(TABLE, repeat=wrong))
        calls.append(lambda: tw.Job("rw=read", queue_depth=wrong))
    for call in calls:
        with pytest.raises(tw.PlanError, match="expected a whole number from") as error:
            call()
        assert isinstance(error.value, ValueError) and repr(wrong) in str(error.value)


def test_keys_that_there_are_not_are_refused() -> None:
    drive = tw.Drive("tiny")
    with pytest.raises(tw.ProfileError) as error:
        drive["nand.chanels"]
    assert (error.value.key, error.value.suggestion) == ("nand.chanels", "nand.channels")
    assert "nand.channels" in drive and "nand.chanels" not in drive


def test_the_version_is_that_of_the_distribution() -> None:
    assert tw.__version__ == metadata.version("tidewater-ssd")


def test_help_lists_every_column_that_a_trace_takes() -> None:
    about = tw.Trace.__doc__ or ""
    names = _native.trace_columns()
    assert len(names) > 25 and [name for name in names if f"``{name}``" not in about] == []
    rest = {"op": ["w", "w"], "offset": [0, 4096], "bytes": [4096, 4096]}
    places = {"offset", "offset_bytes", "address", "sector", "lba", "lba_4k"}
    for name in names:
        if name.startswith(("time", "arrival")) or name == "device":
            columns = {**rest, name: [1, 2]}
        else:
            kind = "op" if name.startswith("op") else "offset" if name in places else "bytes"
            values: list[Any] = ["w", "r"] if name in {"op", "operation"} else [0, 1] if kind != "bytes" else [8, 8]
            columns = {**{key: value for key, value in rest.items() if key != kind}, name: values}
        assert tw.Drive("tiny").replay(columns).requests == 2, name


def trace_of(columns: str, change: Callable[[list[int]], list[int]] = list) -> dict[str, list[Any]]:
    """A thousand random writes over 1.2 MiB, one each millisecond, under these names: time, offset, length."""
    rows = [change([at * 1000, at * 7919 % 300 * 4096, 4096 << at % 3]) for at in range(1000)]
    values = zip(columns.split(","), zip(*rows, strict=True), strict=True)
    return {"op": ["write"] * 1000, **{name: list(column) for name, column in values}}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (trace_of("time_us,bytes,offset", lambda row: [row[0], row[1] + 4096, row[2]]), "offset and length swapped"),
        (trace_of("time_us,offset,bytes", lambda row: [row[0], row[1], row[2] // 512]), "`sectors`, `kib`"),
        (trace_of("time_us,offset,bytes", lambda row: [row[0], row[1] // 4096, row[2]]), "`sector`, `lba`"),
        (trace_of("time_ns,offset,bytes", lambda row: [row[0] // 10, row[1], row[2]]), "came within"),
        (trace_of("time_s,offset,bytes"), "apart on average"),
    ],
    ids=["swapped", "sectors", "blocks", "fast", "slow"],
)
def test_a_trace_that_looks_misread_is_doubted(table: dict[str, list[Any]], words: str, tmp_path: Path) -> None:
    drive = tw.Drive("tiny", capacity="12MiB")
    with pytest.warns(tw.RunWarning, match=words) as warned:
        run = drive.replay(tw.Trace(table, wrap=True))
    assert warned[0].filename == __file__, "the caller's line"
    assert any(said.startswith("the trace may be misread: ") and words in said for said in run.warnings)
    with pytest.warns(tw.RunWarning, match=words):
        tw.compare(drive, tw.Trace(table, wrap=True), {"seed": [1]})
    # A file of the same rows.
    lines = "".join(",".join(map(str, row)) + "\n" for row in zip(*table.values(), strict=True))
    (tmp_path / "a.csv").write_text(lines)
    with pytest.warns(tw.RunWarning, match=words):
        drive.replay(tw.Trace(tmp_path / "a.csv", columns=",".join(table), wrap=True))


def test_a_trace_that_is_right_raises_no_doubt() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tw.Drive("tiny", capacity="12MiB").replay(trace_of("time_us,offset,bytes"))
        # At a queue depth, times do not count.
        tw.Drive("tiny", capacity="12MiB").replay(tw.Trace(trace_of("time_s,offset,bytes"), queue_depth=4))


def test_dates_have_the_unit_of_their_type() -> None:
    rest = {"op": ["w", "w"], "offset": [0, 4096], "bytes": [4096, 4096]}
    day = datetime(2024, 1, 1, tzinfo=timezone.utc)
    for times in [[day, day + timedelta(seconds=2)], [timedelta(0), timedelta(seconds=2)]]:
        assert tw.Drive("tiny").replay({**rest, "time": times}).simulated_seconds == pytest.approx(2, rel=0.01)
        polars = pytest.importorskip("polars")
        for name in ["time", "time_us", "time_s"]:
            run = tw.Drive("tiny").replay(polars.DataFrame({**rest, name: times}))
            assert run.simulated_seconds == pytest.approx(2, rel=0.01), name


def test_a_power_cut_has_a_recovery() -> None:
    job = "rw=randwrite,bs=4k,number_ios=100000"
    run = tw.Drive("tiny").replay(job, power_cut="10ms")
    assert run.recovery is not None and run.recovery.pages_read > 0
    assert run.simulated_seconds == pytest.approx(0.01, rel=0.1)
    # A number is in seconds, as all figures of the record are.
    again = tw.Drive("tiny").replay(job, power_cut=0.01)
    assert again.record["recovery"] == run.record["recovery"] and again.simulated_seconds == run.simulated_seconds
    several = tw.compare(tw.Drive("tiny"), job, {"power_cut": [0.005, "10ms"]})
    assert several[1].record["recovery"] == run.record["recovery"]
    wrong: Any
    for wrong in [-1, float("nan"), 1e9, [1]]:
        with pytest.raises(tw.PlanError, match="power_cut=.*expected seconds"):
            tw.Drive("tiny").replay(job, power_cut=wrong)
    with pytest.raises(tw.PlanError, match="^power_cut=: no number$"):
        tw.Drive("tiny").replay(job, power_cut="soon")


def test_a_panic_is_an_exception() -> None:
    with pytest.raises(tw.InternalError, match="internal error in Tidewater: the map is wrong"):
        _native.fail("the map is wrong")


LONG = "rw=randwrite,bs=4k,iodepth=16,time_based=1,runtime=100000"


def test_ctrl_c_ends_a_run() -> None:
    times: list[float] = []
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait(PATIENCE)
        times.append(time.monotonic())
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as stopped:
        tw.Drive("tiny").replay(LONG, progress=lambda share: begun.set())
    answered = time.monotonic() - times[0]
    thread.join()
    print(f"after {answered * 1000:.0f} ms")
    assert answered < PATIENCE
    # What was done by then is not lost.
    assert isinstance(stopped.value, tw.Interrupted)
    run = stopped.value.run
    assert run is not None and run.partial and run.requests > 0 and "in .run" in str(stopped.value)
    assert run.summary() and len(run.time_series) > 0


def test_other_threads_run_meanwhile_and_their_runs_too() -> None:
    ticks: list[int] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    results: list[tw.Result] = []
    runs = [threading.Thread(target=lambda: results.append(tw.Drive("tiny").replay(JOB, seed=3))) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=50000")
    done.set()
    thread.join()
    assert len(results) == 4 and len({run.iops for run in results}) == 1
    assert len(ticks) > 10


def test_a_function_sees_the_progress_and_may_end_the_run() -> None:
    shares: list[float] = []
    tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=200000", progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0

    class Enough(Exception):
        pass

    def end(share: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        tw.Drive("tiny").replay(LONG, progress=end)


def resident_kib() -> int:
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])


def grows_by(runs: int) -> int:
    """KiB that the process grows by over so many runs, once it has made some."""

    def make(count: int) -> None:
        for seed in range(count):
            run = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=200", seed=seed, requests=True)
            assert len(run.time_series) > 0 and run.record and run.requests_table is not None
            tw.Drive("tiny").replay(tw.Trace(TABLE))
            with pytest.raises(tw.PlanError):
                tw.Drive("tiny").replay("rw=nothing")

    make(30)
    gc.collect()
    before = resident_kib()
    make(runs)
    gc.collect()
    return resident_kib() - before


def test_runs_leave_no_memory_behind() -> None:
    # A record that stayed would be 100 KiB each time.
    assert grows_by(100) < 4096


@pytest.mark.slow
def test_a_thousand_runs_leave_no_memory_behind() -> None:
    assert grows_by(1000) < 8192


def test_the_package_is_imported_quickly_and_needs_no_other() -> None:
    code = """
import sys, time
begin = time.process_time()
import tidewater_ssd
took = time.process_time() - begin
others = {"pandas", "polars", "pyarrow", "numpy", "matplotlib", "tqdm"} & set(sys.modules)
print(took, *others)
"""
    took = []
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        printed = ended.stdout.split()
        assert len(printed) == 1, printed
        took.append(float(printed[0]))
    # 50 ms is what is asked for; processor time, for other processes' sake, and with room for slower machines.
    assert min(took) < 0.2, took
