"""Tables and traces through the libraries that users have."""

import sys
from datetime import datetime, timedelta

import pytest

import tidewater_ssd as tw

JOB = "rw=randrw,bs=4k,iodepth=8,number_ios=1500"


@pytest.fixture(scope="module")
def result() -> tw.Result:
    return tw.Drive("tiny").replay(JOB, seed=1, requests=True)


def test_every_library_reads_the_same_table(result: tw.Result) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    table = result.requests_table
    assert table is not None
    expected = sum(table["length_bytes"])
    assert polars.DataFrame(table)["length_bytes"].sum() == expected
    assert pyarrow.table(table)["length_bytes"].to_pandas().sum() == expected
    assert table.to_pandas()["length_bytes"].sum() == expected
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    requests = pyarrow.table(table)
    rows = duckdb.sql("SELECT sum(length_bytes), count(*) FROM requests").fetchall()
    assert rows == [(expected, len(requests))]
    # Read twice, it is the same: a stream shares the table's columns.
    assert pyarrow.table(table).equals(requests)
    assert pyarrow.schema(table) == requests.schema


def test_frames_of_every_library_are_traces(result: tw.Result) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    rows = {"time_us": [0.0, 5.5, 9.0], "op": ["read", "write", "write"], "offset": [0, 4096, 0], "bytes": [4096] * 3}
    runs = [
        tw.Drive("tiny").replay(frame)
        for frame in [pandas.DataFrame(rows), polars.DataFrame(rows), pyarrow.table(rows), rows]
    ]
    assert [run.requests_by_operation for run in runs] == [{"read": 1, "write": 2}] * 4
    assert len({run.simulated_seconds for run in runs}) == 1


def test_dates_categories_and_sectors_are_understood() -> None:
    polars = pytest.importorskip("polars")
    begin = datetime(2026, 3, 1)
    frame = polars.DataFrame(
        {
            "time": [begin + timedelta(milliseconds=at) for at in range(100)],
            "op": polars.Series(["write"] * 100).cast(polars.Categorical),
            "sector": range(0, 800, 8),
            "sectors": [8] * 100,
            "comment": ["not read"] * 100,
        }
    )
    run = tw.Drive("tiny").replay(frame)
    assert (run.bytes_written, run.requests) == (100 * 4096, 100)
    assert run.simulated_seconds == pytest.approx(0.099, rel=0.02)


def test_a_row_without_a_value_is_named() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"op": ["r", None], "offset": [0, 0], "bytes": [4096, 4096]})
    with pytest.raises(tw.TraceError, match="row 2: op has no value") as error:
        tw.Trace(frame)
    assert error.value.line == 2
    with pytest.raises(tw.TraceError, match="no rows"):
        tw.Trace(frame.head(0))


def test_pandas_without_pyarrow_makes_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"op": ["w", "r"], "offset": [0, 0], "bytes": [4096, 4096]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = tw.Drive("tiny").replay(frame)
    assert run.requests_by_operation == {"read": 1, "write": 1}
