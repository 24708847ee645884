"""Progress, as a bar or by a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from tidewater_ssd.errors import PlanError


class Bar:
    """Follows so many runs: a bar of tqdm, a function that takes the share done, or nothing."""

    def __init__(self, name: str, runs: int, wanted: bool | Callable[[float], object]) -> None:
        self._runs = max(runs, 1)
        self._bar: Any = None
        #: What takes the number of runs done, parts of them included.
        self.report: Callable[[float], object] | None = None
        if wanted is True:
            try:
                from tqdm.auto import tqdm
            except ImportError as error:
                raise PlanError("a bar is drawn by tqdm", help="pip install 'tqdm>=4.66'") from error
            form = "{l_bar}{bar}| {n:.1f}/{total} [{elapsed}<{remaining}]"
            self._bar = tqdm(total=self._runs, desc=name, unit="run", bar_format=form)
            self.report = self._to
        elif callable(wanted):
            tell = wanted
            self.report = lambda done: tell(min(done / self._runs, 1.0))

    def _to(self, done: float) -> None:
        self._bar.n = min(done, self._runs)
        self._bar.refresh()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.report:
            self.report(self._runs)
        if self._bar is not None:
            self._bar.close()
