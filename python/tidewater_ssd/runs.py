"""Many runs: comparisons, and sweeps that are kept in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewater_ssd import _native
from tidewater_ssd._plan import Scalar, Values, plan, refuse_code, time_of, whole
from tidewater_ssd._progress import Bar
from tidewater_ssd.drive import Drive
from tidewater_ssd.errors import PlanError, RunError, RunWarning, TidewaterError
from tidewater_ssd.load import Load, LoadLike, doubt, full, load_of
from tidewater_ssd.policy import Made, by_name, found, named, native
from tidewater_ssd.result import Progress, Result
from tidewater_ssd.table import Table

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from matplotlib.figure import Figure

#: Options of a run that vary, besides the keys of a profile, as they are called here.
_OPTIONS = {"queue_depth": "queue-depth", "power_cut": "power-cut"}

#: Those whose values are whole numbers.
_WHOLE = {"seed", "queue-depth"}


class Runs:
    """Runs side by side: a row for each with every figure, statistics over seeds, figures and a report.

    The object itself is a table that pandas, polars, pyarrow and DuckDB read.
    """

    def __init__(self, vary: Sequence[str]) -> None:
        #: What varies, in order.
        self.vary = list(vary)
        self._warnings: dict[str, list[str]] | None = None
        self._warned = False

    @property
    def table(self) -> Table:
        """A row for each run: what varies, and every figure with its unit in the name."""
        raise NotImplementedError

    @property
    def statistics(self) -> Table:
        """For each variant and figure: n, mean, median, 95 % confidence interval, and the paired t-test over seeds."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, at: int) -> Result:
        raise NotImplementedError

    def point(self, at: int) -> dict[str, str]:
        """What varies, in one run."""
        raise NotImplementedError

    def results(self) -> Iterator[Result]:
        """The runs that have a record."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Result]:
        return self.results()

    @property
    def warnings(self) -> dict[str, list[str]]:
        """What speaks against the figures of a run, in words; runs without such are left out."""
        if self._warnings is None:
            self._warnings = {run.label: said for run in self.results() if (said := run.warnings)}
        return self._warnings

    def _warn(self) -> None:
        """Says once that there are warnings."""
        if self._warned:
            return
        self._warned = True
        if self.warnings:
            import warnings

            label, said = next(iter(self.warnings.items()))
            text = f"{len(self.warnings)} of {len(self)} runs have warnings (see .warnings), such as {label}: {said[0]}"
            warnings.warn(text, RunWarning, stacklevel=3)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def frame(self, library: str | None = None) -> Any:
        """The table as a data frame of ``"polars"`` or ``"pandas"``; without a name, of the one that is installed."""
        import importlib.util

        if library is None:
            library = next((name for name in ("polars", "pandas") if importlib.util.find_spec(name)), None)
        if library == "polars":
            return self.table.to_polars()
        if library == "pandas":
            return self.table.to_pandas()
        raise PlanError("a frame takes polars or pandas", help="install one of them, or use table")

    def report(self, path: str | PathLike[str] | None = None, *, title: str | None = None) -> str:
        """The comparison as one HTML page; written to `path` where one is given."""
        runs = [(run.label, run._native) for run in self.results()]
        page = _native.comparison(runs, title or f"What {' and '.join(self.vary)} change")
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def plot(
        self, x: str, y: str, *, hue: str | None = None, title: str | None = None, label: str | None = None
    ) -> Figure:
        """A figure (matplotlib): medians over all that is not named, with whiskers from the least to the largest.

        x, hue
            What varies: along the axis, and by colour.
        y
            A figure: a column of the table, or a path of the record such as ``latency_us.read.p99``.
        title, label
            Above the figure, and beside its y-axis.
        """
        from tidewater_ssd.plot import plot

        self._warn()
        return plot(self, x, y, hue=hue, title=title, label=label)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


class Comparison(Runs):
    """What :func:`compare` gives."""

    def __init__(self, vary: Sequence[str], made: list[Result]) -> None:
        super().__init__(vary)
        self._made = made
        self._table, self._statistics = map(Table, _native.tables([(run.label, run._native) for run in made]))

    @property
    def table(self) -> Table:
        return self._table

    @property
    def statistics(self) -> Table:
        return self._statistics

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, at: int) -> Result:
        return self._made[at]

    def point(self, at: int) -> dict[str, str]:
        return dict(self._made[at].point)

    def results(self) -> Iterator[Result]:
        return iter(self._made)

    def __repr__(self) -> str:
        return f"<Comparison of {len(self)} runs over {', '.join(self.vary)}>"


class Grid(Runs):
    """What :func:`sweep` gives: runs that a folder keeps."""

    def __init__(self, vary: Sequence[str], native: _native.Sweep, out: Path, keeper: object) -> None:
        super().__init__(vary)
        self._native = native
        self._keeper = keeper
        #: The folder: ``runs/``, ``sweep.json``, ``table.parquet``, ``statistics.parquet``.
        self.out = out
        self._runs = native.runs()
        self._table, self._statistics = map(Table, native.tables())

    @property
    def table(self) -> Table:
        return self._table

    @property
    def statistics(self) -> Table:
        return self._statistics

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, at: int) -> Result:
        at = range(len(self))[at]
        label = self._runs[at][1]
        found = self._native.run(at)
        run, failure = found or (None, "it was not made")
        if run is None:
            raise RunError(f"{label}: {failure}" if failure else label)
        return Result(run, label, self.point(at))

    def point(self, at: int) -> dict[str, str]:
        return dict(self._runs[at][2])

    @property
    def failures(self) -> dict[str, str]:
        """The runs without a record, each with the reason."""
        reasons = zip(self.table["run"], self.table["failure"], strict=True)
        return {label: reason for label, reason in reasons if reason is not None}

    def results(self) -> Iterator[Result]:
        failed = [reason is not None for reason in self.table["failure"]]
        return (self[at] for at in range(len(self)) if not failed[at])

    def __repr__(self) -> str:
        return f"<Grid of {len(self)} runs over {', '.join(self.vary)} in {self.out}>"


def compare(
    drive: Drive,
    load: LoadLike | None,
    vary: Mapping[str, Any],
    *,
    precondition: str = "fresh",
    seed: int = 1,
    power_cut: str | float | None = None,
    jobs: int | None = None,
    progress: Progress = False,
) -> Comparison:
    """Runs a load on every combination of what varies, on every processor; records stay in memory.

    >>> import tidewater_ssd as tw
    >>> runs = tw.compare(tw.Drive("tiny"), "rw=randwrite,bs=4k,number_ios=2000", {"nand.channels": [1, 2]})
    >>> [run.label for run in runs]
    ['channels=1', 'channels=2']
    """
    names, policies = _named(vary)
    if jobs is not None:
        jobs = whole("jobs", jobs, 1)
    from tidewater_ssd._folder import Folder

    with Folder() as folder:
        given = _filed(load, folder)
        text = plan(drive, given, precondition=precondition, seed=seed, power_cut=power_cut, vary=names)
        doubt(text, None, stacklevel=3)
        with Bar("compare", _combinations(names), progress) as bar:
            made = _native.compare(text, jobs, bar.report, policies)
    return Comparison(list(names), [Result(run, label, dict(point)) for label, point, run in made])


def sweep(
    drive: Drive,
    load: LoadLike | None,
    vary: Mapping[str, Any],
    *,
    precondition: str = "fresh",
    seed: int = 1,
    power_cut: str | float | None = None,
    sample: int | None = None,
    sample_seed: int = 1,
    skip: Sequence[str] = (),
    out: str | PathLike[str] | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    retry_failed: bool = False,
    progress: Progress = False,
) -> Grid:
    """Runs a load on every combination of what varies; any number of runs, kept in a folder.

    vary
        Keys of a profile, ``profile``, ``trace``, ``job``, ``queue_depth``, ``speedup``, ``precondition``,
        ``power_cut`` and ``seed``, each with its values: a list, ``range(5)``, or a text such as ``"7%..28%+7%"``.
        Of ``buffer.write_policy`` also classes of policies in Python, or their names, as in ``"my_module:MyPolicy"``.
    sample, sample_seed
        So many points of a Latin hypercube in place of every combination; seeds vary at each.
    skip
        Combinations that are left out, such as ``"profile=tlc-client seed!=1"``.
    out
        The folder; a second call makes what is missing, and one of another study is refused. Without one it goes away
        with the result. `tidewater sweep` reads it, and makes its own runs: those of another build.
    executor
        Any ``concurrent.futures.Executor``: processes, Dask, Ray, MPI. Workers see `out` (on a cluster, a shared
        directory). What a worker that dies had begun is made again.
    jobs
        Runs at once in this process, without an executor; as many as there are processors and memory for.
    retry_failed
        Tries runs again that failed.

    >>> import tidewater_ssd as tw
    >>> grid = tw.sweep(tw.Drive("tiny"), "rw=randwrite,bs=4k,number_ios=2000",
    ...                 {"nand.channels": [1, 2], "seed": range(3)})
    >>> len(grid), grid.table["seed"]
    (6, [0, 1, 2, 0, 1, 2])
    """
    names, policies = _named(vary)
    if jobs is not None:
        jobs = whole("jobs", jobs, 1)
    keeper = None
    if out is None:
        from tidewater_ssd._folder import Folder

        keeper = Folder()
        out = Path(keeper.name) / "sweep"
    folder = Path(out)
    _native.Sweep.open(folder)
    traces = folder.absolute() / "traces"
    before = set(traces.iterdir()) if traces.is_dir() else set()
    given = _filed(load, traces)
    if drive.profile not in _native.profiles():
        drive = Drive(full(drive.profile), dict(drive.settings))
    text = plan(
        drive,
        given,
        precondition=precondition,
        seed=seed,
        power_cut=power_cut,
        vary=names,
        sample=sample,
        sample_seed=sample_seed,
        skip=skip,
    )
    try:
        native = _native.Sweep(text, folder, _build())
    except TidewaterError:
        # A folder of another study stays as it was.
        for trace in set(traces.iterdir()) - before if traces.is_dir() else ():
            trace.unlink()
        raise
    doubt(text, None, stacklevel=3)
    if retry_failed:
        native.forget_failed()
    with Bar("sweep", len(native.runs()), progress) as bar:
        if executor is not None:
            _spread(native, text, folder.absolute(), executor, bar, list(policies or ()))
        if missing := native.missing():
            if executor is not None:
                import warnings

                warnings.warn(f"{len(missing)} runs were lost by the executor, and are made here", stacklevel=2)
            native.make(jobs, bar.report, policies)
    return Grid(list(names), native, folder, keeper)


def _spread(
    native: _native.Sweep, text: str, folder: Path, executor: Executor, bar: Bar, policies: list[str]
) -> None:
    """Has workers make what is missing; runs of workers that died are handed out once more."""
    from concurrent.futures import CancelledError, wait

    for _ in range(2):
        missing = native.missing()
        done = len(native.runs()) - len(missing)
        try:
            pending: set[Future[None]] = {
                executor.submit(make_one, text, str(folder), at, *native.named(at), policies) for at in missing
            }
        except RuntimeError:
            # An executor whose worker died takes no more.
            return
        lost = False
        try:
            while pending:
                ended, pending = wait(pending, timeout=0.2)
                done += len(ended)
                for future in ended:
                    error = CancelledError() if future.cancelled() else future.exception()
                    if isinstance(error, PlanError):
                        raise error
                    lost |= error is not None
                if bar.report and ended:
                    bar.report(done)
        finally:
            for future in pending:
                future.cancel()
        if not lost:
            return


def make_one(
    text: str, folder: str, at: int, name: str, decided_by: list[str], policies: Sequence[str] = ()
) -> None:
    """Makes one run of a sweep, in a worker: the run at this place of the plan, under the name that it was given."""
    # Only the policy of this run is imported.
    used = [policy for policy in policies if f"policy {policy}" in decided_by]
    _native.make_one(text, folder, at, name, decided_by, _build(), by_name(used) or None)


_known_build: list[str] = []


def _build() -> str:
    """What tells this build from others: runs of another one are made again."""
    if not _known_build:
        _known_build.append(_native.build(str(_native.__file__)))
    return _known_build[0]


def _named(vary: Mapping[str, Any]) -> tuple[dict[str, Values], dict[str, Made] | None]:
    """What varies, as plans have it, and the policies in Python that are among it."""
    if not isinstance(vary, Mapping):
        raise PlanError(f"what varies is a dictionary, not {vary!r}", help="such as {'seed': range(5)}")
    if not vary:
        raise PlanError("nothing varies", help="name a key and its values, such as {'seed': range(5)}")
    policies: dict[str, Made] = {}

    # Values are looked at more than once.
    def kept(key: str, values: Any) -> Values:
        if key != "buffer.write_policy":
            refuse_code(values)
            return values if isinstance(values, (str, int, float)) else list(values)
        return [policy(value) for value in ([values] if isinstance(values, str) or callable(values) else values)]

    def policy(value: Any) -> Scalar:
        if isinstance(value, str) and ":" in value:
            value = found(value)
        if not callable(value):
            return value  # type: ignore[no-any-return]
        name = named(value)
        policies[name] = native(value)[0]
        return name

    names = {_OPTIONS.get(key, key): kept(key, values) for key, values in vary.items()}
    if "power-cut" in names and not isinstance(names["power-cut"], str):
        cuts = names["power-cut"]
        names["power-cut"] = [time_of(cut) for cut in ([cuts] if isinstance(cuts, (int, float)) else cuts)]
    for key, values in names.items():
        if key in _WHOLE and not isinstance(values, str):
            for value in [values] if isinstance(values, (int, float)) else values:
                # A text may be a range.
                if not isinstance(value, str):
                    whole(key.replace("-", "_"), value)
    return names, policies or None


def _combinations(vary: Mapping[str, Any]) -> int:
    count = 1
    for values in vary.values():
        # A range in a text is one word here: a bar that ends early does no harm.
        count *= 1 if isinstance(values, (str, int, float)) else len(list(values))
    return count


def _filed(load: LoadLike | None, folder: Path) -> Load | None:
    """The load, whose trace is a file: processes share it by its content."""
    if load is None:
        return None
    return load_of(load).at(folder)
