"""Figures of many runs, by matplotlib."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from tidewater_ssd.errors import PlanError, nearest
from tidewater_ssd.result import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tidewater_ssd.runs import Runs


def plot(
    runs: Runs, x: str, y: str, *, hue: str | None = None, title: str | None = None, label: str | None = None
) -> Figure:
    """:meth:`Runs.plot`."""
    # Without pyplot: a figure that no window of its own shows, and that is freed with its last reference.
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise PlanError("figures are drawn by matplotlib", help="pip install 'matplotlib>=3.8'") from error
    from tidewater_ssd._figure import Shown

    series: dict[str, dict[str, list[float]]] = {}
    for place, group, value in _points(runs, x, y, hue):
        series.setdefault(group, {}).setdefault(place, []).append(value)
    places = list(dict.fromkeys(place for group in series.values() for place in group))
    if not places:
        raise PlanError(f"no run has {y}", help="name a column of table, or a path of the record")
    numbers, unit = _numbers(places)
    figure = Shown(figsize=(5.0, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    # Series stand beside each other, so that whiskers do not hide each other.
    gaps = [abs(a - b) for a, b in zip(sorted(numbers), sorted(numbers)[1:], strict=False)]
    aside = 0.06 * min(gaps, default=1.0)
    for position, (group, by_place) in enumerate(series.items()):
        shift = (position - (len(series) - 1) / 2) * aside
        at = [number + shift for place, number in zip(places, numbers, strict=True) if place in by_place]
        values = [by_place[place] for place in places if place in by_place]
        middle = [median(one) for one in values]
        below = [centre - min(one) for centre, one in zip(middle, values, strict=True)]
        above = [max(one) - centre for centre, one in zip(middle, values, strict=True)]
        order = sorted(range(len(at)), key=at.__getitem__)
        axes.errorbar(
            [at[i] for i in order],
            [middle[i] for i in order],
            yerr=[[below[i] for i in order], [above[i] for i in order]],
            marker="o",
            markersize=4,
            capsize=4,
            label=group or None,
        )
    # Values such as 1, 2, 4, ... 512 would lie upon each other.
    if min(numbers) > 0 and max(numbers) >= 32 * min(numbers):
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(numbers, [f"{place}" for place in places])
    axes.set_xlabel(x if not unit or unit in places[0] else f"{x} [{unit}]")
    axes.set_ylabel(label or y)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if hue is not None:
        axes.legend(title=hue)
    if title:
        axes.set_title(title)
    return figure


def _points(runs: Runs, x: str, y: str, hue: str | None) -> list[tuple[str, str, float]]:
    """Of each run its place on the axis, its colour and its value."""
    keys = {"queue_depth": "queue-depth", "power_cut": "power-cut"}
    for name in [x] if hue is None else [x, hue]:
        if keys.get(name, name) not in runs.vary:
            meant = nearest(name, runs.vary)
            raise PlanError(f"{name} does not vary", help=f"there are {', '.join(runs.vary)}", suggestion=meant)
    columns = runs.table.columns
    if y not in columns and y not in figures():
        meant = nearest(y, [*columns, *figures()])
        help = f"did you mean {meant!r}?" if meant else "name a column of table, or a path of the record"
        raise PlanError(f"no figure is called {y!r}", help=help, suggestion=meant)
    column = runs.table[y] if y in columns else None
    if column is not None and any(isinstance(value, str) for value in column):
        numbers = [name for name in columns if not any(isinstance(value, str) for value in runs.table[name])]
        raise PlanError(f"{y} is a text, and the y-axis has numbers", help=f"such as {', '.join(numbers[:6])}")
    found = []
    for at in range(len(runs)):
        value = column[at] if column is not None else _figure(runs, at, y)
        if value is not None and value == value:
            point = runs.point(at)
            found.append((point[keys.get(x, x)], point[keys.get(hue, hue)] if hue else "", float(value)))
    return found


def _figure(runs: Runs, at: int, name: str) -> float:
    from tidewater_ssd.errors import RunError

    try:
        return runs[at].figure(name)
    except RunError:
        # A run that failed has no figures.
        return float("nan")


def _numbers(places: list[str]) -> tuple[list[float], str]:
    """Where values stand on the axis: at their numbers where all have one of the same unit, else side by side."""
    parts = [re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\D*)", place) for place in places]
    units = {part[2] for part in parts if part}
    if all(parts) and len(units) == 1:
        return [float(part[1]) for part in parts if part], units.pop()
    return [float(at) for at in range(len(places))], ""
