"""Loads: traces and jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Protocol

from tidewater_ssd import _native
from tidewater_ssd._plan import Scalar, quoted, text_of, whole
from tidewater_ssd.errors import RunWarning, TraceError, in_python

if TYPE_CHECKING:
    from pathlib import Path


class ArrowStream(Protocol):
    """A table of any library that speaks Arrow: pandas, polars, pyarrow, DuckDB, and the tables of this package."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Load:
    """What a drive is given to do: :class:`Trace` or :class:`Job`."""

    def __init__(self, options: Mapping[str, Scalar | None]) -> None:
        self._options = {key: value for key, value in options.items() if value is not None and value is not False}

    def lines(self) -> list[str]:
        """Its lines in a plan."""
        return [f"{key.replace('_', '-')} = {_plain(key, value)}" for key, value in self._options.items()]

    @property
    def data(self) -> _native.Data | None:
        """A trace in memory."""
        return None

    def at(self, folder: Path) -> Load:
        """The same load for other processes: by full paths, a trace in memory as a file in this folder."""
        return self


class Trace(Load):
    """A trace: a file's path, the name of a bundled sample, a data frame, or any table that speaks Arrow.

    A table has a row for each request, with one column of each of these kinds, and others, which are passed over:

    - the operation: ``op`` (or ``operation``: read, write, trim, flush, R, W, ...), ``op_1w`` (1 is a write, 0 a read)
      or ``op_1r`` (1 is a read)
    - where it begins: ``offset`` (or ``offset_bytes``, ``address``) in bytes, ``sector`` or ``lba`` in units of 512
      bytes, ``lba_4k`` in units of 4,096 bytes
    - its length: ``bytes`` (or ``size``, ``length``, ``size_bytes``, ``length_bytes``), ``sectors`` or ``blocks`` of
      512 bytes, ``blocks_4k`` of 4,096 bytes, ``kib``
    - when it comes, which may be left out: ``time`` or ``timestamp`` (dates, or a number of seconds), ``time_s``,
      ``time_ms``, ``time_us`` (or ``arrival_us``), ``time_ns``, ``time_100ns``; columns of dates have their own unit
    - ``device``, which may be left out: each has addresses of its own

    format, columns
        How a text is read: the name of a format (found by content otherwise), or the names of its columns, such as
        ``"time_us,op,offset,bytes"``.
    slice
        The part of it, such as ``"0..100000"``.
    device, skip_bad, compact
        The device of it; malformed lines are skipped; ranges that no request touches are left out.
    speedup, queue_depth
        Arrivals come so many times faster; or so many requests are kept outstanding whatever the times say.
    repeat, wrap, warm_up
        Passes over it; addresses past the drive's end wrap around; requests before the measurement.

    >>> import tidewater_ssd as tw
    >>> table = {"op": ["write", "read"], "offset": [0, 4096], "bytes": [4096, 4096], "time_us": [0, 50]}
    >>> tw.Drive("tiny").replay(tw.Trace(table)).requests_by_operation
    {'read': 1, 'write': 1}
    """

    def __init__(
        self,
        source: str | PathLike[str] | ArrowStream | Mapping[str, Any] | Sequence[str | PathLike[str]],
        *,
        format: str | None = None,
        columns: str | Sequence[str] | None = None,
        slice: str | None = None,
        device: str | None = None,
        skip_bad: bool = False,
        compact: bool = False,
        repeat: int | None = None,
        queue_depth: int | None = None,
        speedup: float | None = None,
        wrap: bool = False,
        warm_up: int = 0,
    ) -> None:
        self._paths: list[str] = []
        self._data: _native.Data | None = None
        if isinstance(source, (str, PathLike)):
            self._paths = [fspath(source)]
        elif hasattr(source, "__arrow_c_stream__") or isinstance(source, Mapping):
            self._data = _data(source)
            if columns is not None or format is not None:
                raise TraceError("a table says by its columns what it is", help="leave format and columns out")
            columns = self._data.columns
        else:
            self._paths = [fspath(path) for path in source]
        if queue_depth is not None:
            queue_depth = whole("queue_depth", queue_depth, 1, 65535)
        if repeat is not None:
            repeat = whole("repeat", repeat, 1)
        warm_up = whole("warm_up", warm_up)
        super().__init__(
            {
                "format": format,
                "columns": columns if columns is None or isinstance(columns, str) else ",".join(columns),
                "slice": slice,
                "device": device,
                "skip_bad": skip_bad,
                "compact": compact,
                "repeat": repeat,
                "queue_depth": queue_depth,
                "speedup": speedup,
                "wrap": wrap,
                "warm_up": warm_up or None,
            }
        )

    def lines(self) -> list[str]:
        paths = self._paths or ["data frame"]
        return [f"trace = [{', '.join(map(quoted, paths))}]", *super().lines()]

    @property
    def data(self) -> _native.Data | None:
        return self._data

    def at(self, folder: Path) -> Trace:
        if self._data is None:
            # The bundled sample has its name before any file.
            filed = Trace([path if path == "sample" else full(path) for path in self._paths])
        else:
            place = folder / f"{self._data.digest()}.csv"
            if not place.exists():
                folder.mkdir(parents=True, exist_ok=True)
                part = place.with_suffix(f".{os.getpid()}")
                self._data.write(part)
                part.replace(place)
            filed = Trace(str(place))
        filed._options = dict(self._options)
        return filed

    def __repr__(self) -> str:
        what = f"{len(self._data)} rows" if self._data else ", ".join(self._paths)
        return f"Trace({what}{''.join(f', {key}={value!r}' for key, value in self._options.items())})"


class Job(Load):
    """A fio job: its text, the path of its file, or its options.

    >>> Job(rw="randwrite", bs="4k", iodepth=32, size="16m")
    Job('rw=randwrite,bs=4k,iodepth=32,size=16m')
    """

    def __init__(
        self,
        job: str | PathLike[str] = "",
        *,
        queue_depth: int | None = None,
        speedup: float | None = None,
        slice: str | None = None,
        wrap: bool = False,
        warm_up: int = 0,
        **options: Scalar,
    ) -> None:
        given = [f"{key}={text_of(value)}" for key, value in options.items()]
        if queue_depth is not None:
            queue_depth = whole("queue_depth", queue_depth, 1, 65535)
        warm_up = whole("warm_up", warm_up)
        #: Its text, or the path of its file.
        self.job = ",".join([*([fspath(job)] if job else []), *given])
        super().__init__(
            {"queue_depth": queue_depth, "speedup": speedup, "slice": slice, "wrap": wrap, "warm_up": warm_up or None}
        )

    def lines(self) -> list[str]:
        return [f"job = {quoted(self.job)}", *super().lines()]

    def at(self, folder: Path) -> Job:
        filed = Job(full(self.job))
        filed._options = dict(self._options)
        return filed

    def __repr__(self) -> str:
        return f"Job({self.job!r}{''.join(f', {key}={value!r}' for key, value in self._options.items())})"


LoadLike = Load | str | PathLike[str] | ArrowStream | Mapping[str, Any]


def load_of(given: LoadLike) -> Load:
    """What is given as a load: of a text, a job has ``key=value``."""
    if isinstance(given, Load):
        return given
    if isinstance(given, str) and re.match(r"[a-z_0-9]+=", given):
        return Job(given)
    return Trace(given)


def doubt(plan: str, data: _native.Data | None, *, stacklevel: int) -> None:
    """Warns before a run whose trace looks misread: columns that are swapped, or in other units."""
    for said in _native.doubts(plan, data):
        import warnings

        warnings.warn(in_python(said), RunWarning, stacklevel=stacklevel)


def full(path: str) -> str:
    """The full path of what is a file; any other text as it is."""
    return os.path.abspath(path) if os.path.isfile(path) else path


def _plain(key: str, value: Scalar) -> str:
    """An option in TOML: numbers and switches without quotes."""
    return quoted(value) if isinstance(value, (str, bool)) else repr(value)


def _data(source: Any) -> _native.Data:
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return _native.Data(source.__arrow_c_stream__())
        except ImportError:
            # pandas makes a stream with pyarrow alone; without it, its columns are lists.
            source = {str(name): list(source[name]) for name in source.columns}
    columns = {str(name): list(source[name]) for name in source}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise TraceError(f"the columns of the table have different lengths: {said}")
    return _native.Data.of_columns([_texts(name, values) for name, values in columns.items()])


def _texts(name: str, values: list[Any]) -> tuple[str, list[str]]:
    """A column as texts; dates become seconds."""
    if values and hasattr(values[0], "timestamp"):
        return "time_s", [repr(value.timestamp()) for value in values]
    if values and hasattr(values[0], "total_seconds"):
        return "time_s", [repr(value.total_seconds()) for value in values]
    return name, [text_of(value) for value in values]
