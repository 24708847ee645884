"""What goes wrong, as exceptions: all of them are :class:`TidewaterError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewater_ssd.result import Result

__all__ = [
    "InternalError",
    "Interrupted",
    "LogError",
    "PlanError",
    "PolicyError",
    "ProfileError",
    "RunError",
    "RunWarning",
    "TidewaterError",
    "TraceError",
]


class TidewaterError(Exception):
    """Why there is no result."""

    #: What to do about it, where that is known.
    help: str | None

    def __init__(self, message: str, *, help: str | None = None) -> None:
        self.message = in_python(message)
        self.help = in_python(help) if help else None
        super().__init__(f"{self.message}; {self.help}" if self.help else self.message)

    def __reduce__(self) -> Any:
        # Exceptions of workers come back whole.
        return (_restore, (type(self), self.args, self.__dict__))


class RunWarning(UserWarning):
    """Figures of runs that can't be believed, or not for what they seem to say."""


class ProfileError(TidewaterError, ValueError):
    """A profile, a key or a value that does not do.

    >>> import tidewater_ssd as tw
    >>> try:
    ...     tw.Drive("generic", {"nand.chanels": 4})
    ... except tw.ProfileError as error:
    ...     print(error.key, "->", error.suggestion)
    nand.chanels -> nand.channels
    """

    #: The key in question, such as ``nand.channels``.
    key: str | None
    #: What was perhaps meant.
    suggestion: str | None

    def __init__(
        self, message: str, *, help: str | None = None, key: str | None = None, suggestion: str | None = None
    ) -> None:
        super().__init__(message, help=help)
        self.key = key
        self.suggestion = suggestion


class TraceError(TidewaterError, ValueError):
    """A trace that can't be read."""

    #: The line, counted from 1; of a data frame, the row.
    line: int | None

    def __init__(self, message: str, *, help: str | None = None, line: int | None = None) -> None:
        super().__init__(message, help=help)
        self.line = line


class PlanError(TidewaterError, ValueError):
    """What was asked for can't be had: a wrong job, values that can't vary, a figure or a table that is not there."""

    #: What was perhaps meant.
    suggestion: str | None

    def __init__(self, message: str, *, help: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(message, help=help)
        self.suggestion = suggestion


class RunError(TidewaterError, RuntimeError):
    """What was begun, and went wrong."""


class LogError(RunError):
    """Why an operation on a log failed."""

    #: The error as a number of the system (:mod:`errno`): ``EAGAIN`` the ring is full, ``ENOSPC`` trim the log,
    #: ``ENXIO`` the bytes are gone, ``ETIMEDOUT`` wait again, ``EPIPE`` the device has gone, ``EHOSTDOWN`` it
    #: has not answered for 30 s, ``ESTALE`` reattach.
    errno: int | None

    def __init__(self, message: str, *, help: str | None = None, errno: int | None = None) -> None:
        super().__init__(message, help=help)
        self.errno = errno


class PolicyError(TidewaterError, RuntimeError):
    """A write policy in Python that broke its contract."""

    #: The rule of :func:`tidewater.check_policy` that it broke; None where a run came upon it.
    rule: str | None

    def __init__(self, message: str, *, help: str | None = None, rule: str | None = None) -> None:
        super().__init__(message, help=help)
        self.rule = rule


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a replay. What was done by then is not lost.

    >>> import tidewater_ssd as tw
    >>> try:
    ...     run = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=1000")
    ... except tw.Interrupted as stop:
    ...     run = stop.run
    """

    #: The run as far as it came, with ``partial`` set; ``None`` where it had not begun to serve requests.
    run: Result | None

    def __init__(self, run: Result | None = None) -> None:
        self.run = run
        super().__init__(f"after {run.requests} requests, which are in .run" if run else "before the first request")


class InternalError(TidewaterError, RuntimeError):
    """A bug of Tidewater's; please report it."""


def _restore(kind: type[TidewaterError], args: tuple[Any, ...], state: dict[str, Any]) -> TidewaterError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def in_python(text: str) -> str:
    """Options, commands and keys of the command line as what they are here.

    >>> in_python("try --precondition steady, or --queue-depth N")
    'try precondition="steady", or queue_depth=N'
    >>> in_python("use --set nand.ways=1 --set nand.channels=2, or give --capacity, as in --capacity 64GiB")
    'use {"nand.ways": "1", "nand.channels": "2"}, or give capacity=, as in capacity="64GiB"'
    >>> in_python("load.power-cut: no number; `tidewater profile list` names them")
    'power_cut=: no number; `tidewater_ssd.profiles()` names them'
    """
    import re

    def settings(match: re.Match[str]) -> str:
        pairs = re.findall(r"--set ([a-z_.-]+)=(\S*[^\s,;.):])", match[0])
        return "{" + ", ".join(f'"{key}": "{value}"' for key, value in pairs) + "}"

    def argument(match: re.Match[str]) -> str:
        name, value = match[1].replace("-", "_"), match[2] or ""
        plain = not value or value.isupper() or value.isdigit()
        return f"{name}={value}" if plain else f'{name}="{value}"'

    for pattern, here in _COMMANDS:
        text = re.sub(pattern, here, text)
    if "--" not in text:
        return text
    text = re.sub(r"--set [a-z_.-]+=\S*[^\s,;.):](?: --set [a-z_.-]+=\S*[^\s,;.):])*", settings, text)
    value = r"(?: <[A-Z_]+>|[ =](fresh|filled|steady|[A-Z]+\b|[0-9]\w*(?:\.\w+)*%?))?"
    return re.sub(r"(?<![\w-])--([a-z][a-z-]*[a-z])" + value, argument, text)


#: Words of the program besides its options, and what stands here in their place.
_COMMANDS = [
    (r"`tidewater profile list`", "`tidewater_ssd.profiles()`"),
    (
        r"`tidewater profile show (\S+) > \S+` makes a file to edit",
        r"`tidewater_ssd.Drive('\1').toml()` is a text to edit",
    ),
    (r"`tidewater profile show \S+` lists every key with a value that it takes", "`tidewater_ssd.keys()` says what"),
    (r";? ?see --help for the options and examples", ""),
    (r"^load\.power-cut: ", "power_cut=: "),
    (r"^load\.queue-depth: ", "queue_depth=: "),
    (r"^load\.([a-z]+): ", r"\1=: "),
    (r"(?:^|(?<= ))--vary ([\w.-]+): ", r"\1 in vary: "),
    (r"^vary\.([\w.-]+): (?:\1: )?", r"\1 in vary: "),
    (r"\bqueue-depth, speedup, precondition, power-cut\b", "queue_depth, speedup, precondition, power_cut"),
    (r"needs --device /dev/fuse and --cap-add SYS_ADMIN", "needs /dev/fuse and the capability SYS_ADMIN"),
    (r" \(os error \d+\)", ""),
]


def nearest(name: object, known: Iterable[str]) -> str | None:
    """What was perhaps meant by a name that is none of those."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(str(name), list(known), 1, 0.6)), None)
