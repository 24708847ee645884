"""What comes of a run."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from functools import cache, cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewater_ssd import _native
from tidewater_ssd._plan import plan
from tidewater_ssd._progress import Bar
from tidewater_ssd._view import paths
from tidewater_ssd.errors import Interrupted, PlanError, in_python, nearest
from tidewater_ssd.load import LoadLike, doubt, load_of
from tidewater_ssd.record import Record
from tidewater_ssd.table import Table

if TYPE_CHECKING:
    from tidewater_ssd.drive import Drive
    from tidewater_ssd.policy import PolicyFactory

#: ``True`` for a bar (tqdm), or a function of the share that is done, 0 to 1.
Progress = bool | Callable[[float], object]


class Result(Record):
    """A run: every figure of its record as an attribute, tables, and the report.

    >>> import tidewater_ssd as tw
    >>> result = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=1000", seed=7)
    >>> result.seed, result.profile.name, result.latency_us.write.count
    (7, 'tiny', 1000)
    >>> result.figure("latency_us.write.count")
    1000.0
    """

    #: What tells the run from others of its comparison or sweep; empty for a single run.
    label = ""
    #: What varies, and its values in this run.
    point: dict[str, str] = {}  # noqa: RUF012: replaced, never changed

    def __init__(
        self, native: _native.Run, label: str = "", point: dict[str, str] | None = None, text: str | None = None
    ) -> None:
        self._native = native
        # A record that was read stays as it was written, to the last digit.
        self._text = text
        self.label = label
        self.point = point or {}
        super().__init__(_Lazy(self))

    @cached_property
    def record(self) -> dict[str, Any]:
        """The whole record, as ``docs/reference/record.md`` describes it."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """The record as ``tidewater replay --json`` writes it, which ``tidewater report`` reads."""
        return self._text or self._native.json()

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Result:
        """The run of a record's file."""
        text = Path(path).read_text(encoding="utf-8")
        return cls(_native.Run.read(text), text=text)

    def figure(self, name: str) -> float:
        """A figure by its path, such as ``latency_us.read.p99``; NaN where the run has none: it made no reads.

        A name that is none of a figure is a :class:`PlanError` with a suggestion.
        """
        if name not in figures():
            meant = nearest(name, figures())
            help = f"did you mean {meant!r}?" if meant else "dir() of a result and of its parts lists them"
            raise PlanError(f"no figure is called {name!r}", help=help, suggestion=meant)
        found: Any = self
        for part in name.split("."):
            found = getattr(found, part, None)
        return float("nan") if found is None else float(found)

    def summary(self) -> str:
        """What the run comes to, in lines; its warnings are the last ones."""
        return in_python(self._native.summary())

    @property
    def warnings(self) -> list[str]:  # type: ignore[override]
        """What the user should know before believing the figures."""
        return [in_python(said) for said in self.record["warnings"]]

    def report(self, path: str | PathLike[str] | None = None) -> str:
        """The report, one HTML page; written to `path` where one is given."""
        page = self._native.page()
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def table(self, name: str) -> Table:
        """A table: ``time-series``, ``latencies`` (their distribution), ``dies`` or ``wear``."""
        return Table(self._native.table(name))

    @property
    def time_series(self) -> Table:
        """The run over virtual time, a row for each interval."""
        return self.table("time-series")

    @property
    def requests_table(self) -> Table | None:
        """A row for each request, where ``replay(requests=True)`` kept them."""
        found = self._native.requests()
        return None if found is None else Table(found)

    def __repr__(self) -> str:
        name = f" {self.label}" if self.label else ""
        return f"<Result{name}: {self.requests} requests on {self.profile.name}, {self.iops:.0f} IOPS>"

    def _repr_html_(self) -> str:
        page = html.escape(self._native.page(), quote=True)
        # The page's own script runs there, and sees nothing of the notebook.
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="700" style="border:0"></iframe>'

    def __reduce__(self) -> Any:
        return (_restore, (self.to_json(), self.label, self.point))


@cache
def figures() -> list[str]:
    """The paths of all figures that a run can have."""
    operations = ("all", "read", "write", "flush", "write_zeroes", "compare", "deallocate", "verify")
    return paths(Record, operations)


class _Lazy(dict[str, Any]):
    """The record, read when a field is first asked for."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self._result = result

    def get(self, name: str, default: Any = None) -> Any:
        return self._result.record.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self._result.record[name]


def _restore(text: str, label: str, point: dict[str, str]) -> Result:
    return Result(_native.Run.read(text), label, point, text)


def replay(
    drive: Drive,
    load: LoadLike,
    *,
    precondition: str,
    seed: int,
    power_cut: str | float | None,
    requests: bool | str | PathLike[str],
    policy: PolicyFactory | None,
    progress: Progress,
) -> Result:
    """:meth:`Drive.replay`."""
    given = load_of(load)
    text = plan(drive, given, precondition=precondition, seed=seed, power_cut=power_cut)
    file = None if isinstance(requests, bool) else fspath(requests)
    doubt(text, given.data, stacklevel=4)
    with Bar("replay", 1, progress) as bar:
        try:
            if policy is None:
                return Result(_native.replay(text, given.data, requests is True, file, bar.report))
            from tidewater_ssd.policy import native

            return Result(_native.replay_with(text, given.data, requests is True, file, bar.report, *native(policy)))
        except KeyboardInterrupt as stop:
            part: _native.Run | None = getattr(stop, "run", None)
            raise Interrupted(None if part is None else Result(part)) from None
