"""What goes wrong, as exceptions: all of them are :class:`TidewaterError`."""

from __future__ import annotations

from typing import Any

__all__ = [
    "InternalError",
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
        self.message = message
        self.help = _in_python(help) if help else None
        super().__init__(f"{message}; {self.help}" if self.help else message)

    def __reduce__(self) -> Any:
        # Exceptions of workers come back whole.
        return (_restore, (type(self), self.args, self.__dict__))


class RunWarning(UserWarning):
    """Figures of runs that can't be believed, or not for what they seem to say."""


class ProfileError(TidewaterError, ValueError):
    """A profile, a key or a value that does not do.

    >>> import tidewater as tw
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
    """What was asked for can't be had: a wrong job, values that can't vary, a table that is not there."""


class RunError(TidewaterError, RuntimeError):
    """What was begun, and went wrong."""


class LogError(RunError):
    """Why an operation on a log failed."""

    #: The error as a number of the system (:mod:`errno`): ``EAGAIN`` the ring is full, ``ENOSPC`` trim the log,
    #: ``ENXIO`` the bytes are gone, ``ETIMEDOUT`` wait again, ``EPIPE`` the device has gone, ``ESTALE`` reattach.
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


class InternalError(TidewaterError, RuntimeError):
    """A bug of Tidewater's; please report it."""


def _restore(kind: type[TidewaterError], args: tuple[Any, ...], state: dict[str, Any]) -> TidewaterError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _in_python(text: str) -> str:
    """Options of the command line as the arguments that they are here: ``--queue-depth`` is ``queue_depth=``."""
    import re

    return re.sub(r"--([a-z][a-z-]+)", lambda match: match[1].replace("-", "_") + "=", text)
