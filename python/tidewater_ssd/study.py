"""Experiments of papers, and probes: by the program that comes with the package."""

from __future__ import annotations

import json
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from tidewater_ssd._folder import Folder
from tidewater_ssd._plan import whole
from tidewater_ssd._program import call
from tidewater_ssd.drive import Drive
from tidewater_ssd.errors import PlanError, nearest


class Finding:
    """What a probe found out about one thing."""

    def __init__(self, stage: str, verdict: dict[str, Any]) -> None:
        #: The stage that asked.
        self.stage = stage
        #: What was asked.
        self.what: str = verdict["what"]
        #: The answer: ``found``, ``absent`` and so on.
        self.verdict: str = verdict["answer"]
        #: Its size, and the range that it is within.
        self.bytes: int | None = verdict.get("bytes")
        self.range_bytes: tuple[int, int] | None = tuple(verdict["range_bytes"]) if verdict.get("range_bytes") else None
        #: Where it is.
        self.place: str | None = verdict.get("place")
        #: From 0 to 1.
        self.confidence: float = verdict["confidence"]
        #: Why.
        self.because: str = verdict["because"]

    def __repr__(self) -> str:
        size = f", {self.bytes} bytes" if self.bytes is not None else ""
        return f"<Finding {self.what}: {self.verdict}{size} ({self.confidence:.2f})>"


class Probe(list[Finding]):
    """What :func:`probe` found, and its whole record."""

    def __init__(self, text: str, page: str) -> None:
        #: The record, as docs/reference/probe.md describes it.
        self.record: dict[str, Any] = json.loads(text)
        self._page = page
        stages = self.record["stages"]
        super().__init__(Finding(stage["name"], verdict) for stage in stages for verdict in stage.get("verdicts", []))

    def report(self, path: str | PathLike[str] | None = None) -> str:
        """The page with the plots; written to `path` where one is given."""
        return _written(self._page, path)


def probe(
    target: Drive | str | PathLike[str],
    *,
    stages: list[str] | None = None,
    largest_cache: str | None = None,
    precondition: str | None = None,
    seed: int = 1,
    destroy: str | None = None,
) -> Probe:
    """Infers caches and layout of a drive from timing alone: of a simulated one, a block device or a file.

    destroy
        ``"DATA-LOSS-CONFIRMED"`` allows stages that write on a real drive: all data on it is lost.

    >>> import tidewater_ssd as tw
    >>> found = tw.probe(tw.Drive("tiny"), stages=["read-cache"], largest_cache="1MiB")
    >>> found[0].stage
    'read-cache'
    """
    arguments = ["probe", "--seed", str(whole("seed", seed))]
    if isinstance(target, Drive):
        arguments.append(target.profile)
        for key, value in target.settings:
            arguments += ["--set", f"{key}={value}"]
    else:
        arguments.append(fspath(target))
    options = [
        ("--stages", ",".join(stages) if stages else None),
        ("--largest-cache", largest_cache),
        ("--precondition", precondition),
        ("--destroy", destroy),
    ]
    for option, given in options:
        if given is not None:
            arguments += [option, given]
    return Probe(*_documents(arguments))


class Experiment:
    """A paper's experiment that was run: what the paper says beside what was measured."""

    def __init__(self, text: str, page: str) -> None:
        #: The document, as docs/reference/experiment.md describes it.
        self.record: dict[str, Any] = json.loads(text)
        self._page = page

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.record["name"])

    @property
    def checks(self) -> list[dict[str, Any]]:
        """Each statement of the paper, what was expected, what was measured, and whether it holds."""
        found: list[dict[str, Any]] = self.record["checks"]
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What was measured, raw: each row by the names of its columns."""
        names = [column["name"] for column in self.record["columns"]]
        return [dict(zip(names, row, strict=True)) for row in self.record["rows"]]

    def report(self, path: str | PathLike[str] | None = None) -> str:
        """The page with the figures; written to `path` where one is given."""
        return _written(self._page, path)

    def __repr__(self) -> str:
        return f"<Experiment {self.name}: {len(self.checks)} checks>"


def experiments() -> list[str]:
    """The names of the built-in experiments."""
    return [line.split()[0] for line in call(["experiment", "list"]).splitlines() if line.strip()]


def experiment(
    name: str | PathLike[str],
    *,
    quick: bool = False,
    seed: int = 1,
    jobs: int | None = None,
    traces: str | PathLike[str] | None = None,
) -> Experiment:
    """Repeats an experiment of a paper, and checks each of its statements.

    quick
        Measures a tenth: some checks that hold in a full run may fail.
    """
    if not fspath(name):
        raise PlanError("an experiment without a name", help="experiments() lists them")
    seed = whole("seed", seed)
    known = [] if Path(name).exists() else experiments()
    if known and fspath(name) not in known:
        meant = nearest(fspath(name), known)
        help = f"did you mean {meant!r}?" if meant else "experiments() lists them; or give the path of a TOML file"
        raise PlanError(f"there is no experiment {fspath(name)!r}", help=help, suggestion=meant)
    arguments = ["experiment", "run", fspath(name), "--seed", str(seed)]
    if quick:
        arguments.append("--quick")
    if jobs is not None:
        arguments += ["--jobs", str(whole("jobs", jobs, 1))]
    if traces is not None:
        arguments += ["--traces", fspath(traces)]
    # Checks that do not hold are a result as well.
    return Experiment(*_documents(arguments, accept=(0, 3)))


def _documents(arguments: list[str], accept: tuple[int, ...] = (0,)) -> tuple[str, str]:
    with Folder() as folder:
        json_file, page = folder / "document.json", folder / "page.html"
        call([*arguments, "--json", str(json_file), "--report", str(page)], accept=accept)
        return json_file.read_text(), page.read_text()


def _written(page: str, path: str | PathLike[str] | None) -> str:
    if path is not None:
        Path(path).write_text(page, encoding="utf-8")
    return page
