"""Tables that pandas, polars, pyarrow and DuckDB read as they are; none of them is needed."""

from __future__ import annotations

import html
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from tidewater_ssd.errors import PlanError

if TYPE_CHECKING:
    from tidewater_ssd import _native

#: A value of a table.
Value = float | int | str | bool | None


class Table:
    """Columns of one length, with units in their names.

    >>> import tidewater_ssd as tw
    >>> table = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=100").time_series
    >>> table.columns[:3]
    ['time_s', 'read_iops', 'write_iops']

    ``polars.DataFrame(table)``, ``pyarrow.table(table)`` (with its ``to_pandas()``) and DuckDB's
    ``SELECT ... FROM table`` read it without a copy.
    """

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __len__(self) -> int:
        return len(self._native)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._native.columns

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column; `None` where a row has none."""
        return self._native.column(column)

    def rows(self) -> Iterator[dict[str, Value]]:
        """The rows, each as a dictionary."""
        names = self.columns
        for values in zip(*(self[name] for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def __iter__(self) -> Iterator[dict[str, Value]]:
        return self.rows()

    def write(self, path: str | PathLike[str]) -> None:
        """Writes it as .parquet, .arrow or .csv, by the ending of the name."""
        self._native.write(path)

    def to_pandas(self) -> Any:
        """The table as a data frame of pandas, which needs pyarrow for it."""
        try:
            import pyarrow
        except ImportError as error:
            raise PlanError("pandas reads tables by pyarrow", help="install pyarrow, or use rows()") from error
        return pyarrow.table(self).to_pandas()

    def to_polars(self) -> Any:
        """The table as a data frame of polars."""
        try:
            import polars
        except ImportError as error:
            raise PlanError("polars is not installed", help="install polars, or use rows()") from error
        return polars.DataFrame(self)

    def __repr__(self) -> str:
        return f"<Table: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        shown = 20
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = []
        for row, _ in zip(self.rows(), range(shown), strict=False):
            body.append("<tr>" + "".join(f"<td>{_shown(value)}</td>" for value in row.values()) + "</tr>")
        more = f"<p>{len(self) - shown} more rows</p>" if len(self) > shown else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def _shown(value: Value) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else html.escape(str(value))
