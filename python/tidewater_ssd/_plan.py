"""What is to be run, as the text that `tidewater sweep` takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidewater_ssd.errors import PlanError

if TYPE_CHECKING:
    from tidewater_ssd.drive import Drive
    from tidewater_ssd.load import Load

#: A value of a setting: a number, or a text such as ``"7%"`` or ``"64MiB"``.
Scalar = str | int | float | bool
#: Values that vary: a list, a range of numbers, or a text such as ``"1..5"``.
Values = Scalar | Iterable[Scalar]


def refuse_code(value: object) -> None:
    """Refuses a class or a function: a policy in Python is no value of a setting."""
    if callable(value):
        raise PlanError(
            f"{getattr(value, '__name__', value)!r} is code, and settings are texts",
            help="vary buffer.write_policy over policies, or call drive.replay(load, policy=MyPolicy)",
        )


def whole(name: str, value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number within bounds; others are refused, by the name of the argument.

    >>> whole("seed", 7)
    7
    """
    import operator

    error = PlanError(f"{name}={value!r}: expected a whole number from {least} to {most}")
    if isinstance(value, bool):
        raise error
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise error from None
    if not least <= number <= most:
        raise error
    return number


def text_of(value: Scalar) -> str:
    """A value as profiles and plans have it."""
    refuse_code(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Whole numbers of other libraries come as 4.0.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def time_of(value: str | float) -> str:
    """A time as plans have it: a text with its unit, or a number of seconds.

    >>> time_of("2s"), time_of(0.0102464748745)
    ('2s', '10246474874ps')
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, (int, float)) or not 0 <= value < 2**64 / 1e12:
        raise PlanError(f"power_cut={value!r}: expected seconds, or a time such as \"10ms\"")
    return f"{round(value * 1e12)}ps"


def flat(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Settings by full keys: ``{"nand": {"channels": 4}}`` is ``[("nand.channels", "4")]``."""
    if not isinstance(settings, Mapping):
        raise PlanError(f"settings are a dictionary, not {settings!r}", help="such as {'nand.channels': 4}")
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += flat(value, f"{before}{key}.")
        elif isinstance(value, (list, tuple)):
            found.append((f"{before}{key}", ",".join(text_of(one) for one in value)))
        else:
            found.append((f"{before}{key}", text_of(value)))
    return found


def quoted(value: Scalar) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # JSON's text of a word is TOML's too, once DEL is written out.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def listed(values: Values) -> list[str]:
    """Values as a plan has them; a text stays whole, with its range."""
    if isinstance(values, (str, int, float)):
        return [text_of(values)]
    return [text_of(value) for value in values]


def plan(
    drive: Drive,
    load: Load | None,
    *,
    precondition: str,
    seed: int,
    power_cut: str | float | None = None,
    vary: Mapping[str, Values] | None = None,
    sample: int | None = None,
    sample_seed: int = 1,
    skip: Sequence[str] = (),
) -> str:
    """The text of a plan."""
    seed = whole("seed", seed)
    lines = [f"profile = {quoted(drive.profile)}", f"precondition = {quoted(precondition)}", f"seed = {seed}"]
    if skip:
        lines.append(f"skip = [{', '.join(quoted(one) for one in skip)}]")
    if drive.settings:
        lines += ["", "[set]", *(f"{quoted(key)} = {quoted(value)}" for key, value in drive.settings)]
    lines += ["", "[load]", *(load.lines() if load else ())]
    if power_cut is not None:
        lines.append(f"power-cut = {quoted(time_of(power_cut))}")
    if vary:
        varied = [f"{quoted(key)} = [{', '.join(map(quoted, listed(values)))}]" for key, values in vary.items()]
        # A sampled design draws from the values; seeds are made for each point of it.
        seeds = [line for line in varied if line.startswith('"seed"')]
        if sample is None:
            lines += ["", "[vary]", *varied]
        else:
            lines += ["", "[vary]", *seeds] if seeds else []
            points, design = whole("sample", sample, 1), whole("sample_seed", sample_seed)
            lines += ["", "[sample]", f"points = {points}", f"seed = {design}", "[sample.vary]"]
            lines += [line for line in varied if line not in seeds]
    return "\n".join(lines) + "\n"
