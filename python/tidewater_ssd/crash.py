"""Crash tests: every state that a power cut can leave of a program's files, and a check of each."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from tidewater_ssd import _program
from tidewater_ssd.errors import PlanError, RunError

#: A command as a list of its arguments, a line for ``sh``, the path of a script, or a function at the top of a file.
Command: TypeAlias = Sequence[str | PathLike[str]] | str | PathLike[str] | Callable[..., object]

# A function runs in an interpreter of its own, without this package. The mount is no place to import from.
_RUN = """\
import sys
sys.path[0], module, name, kind = sys.argv[1:]
import importlib, os
call = getattr(importlib.import_module(module), name)
if kind == "check":
    lost = list(call(sys.stdin.read().split("\\n")[:-1]) or ())
    print(*("lost %s" % id for id in lost), sep="\\n")
    sys.exit(bool(lost))
if kind == "program":
    call(lambda id: os.write(3, b"%s\\n" % str(id).encode()))
else:
    call()
"""


@dataclass(frozen=True)
class CrashTest:
    """The result of :func:`crash_test`."""

    #: States that were checked, each once.
    states: int
    #: How many of them failed: at most one or two, without ``keep_going``.
    failures: int
    #: The result in words.
    text: str
    #: The smallest failure in words; None where every state passed.
    smallest: str | None
    #: The file that holds it, for ``tidewater crash-test --replay FILE``.
    file: Path | None
    #: All counts, and the smallest failure, as ``tidewater crash-test --json`` has them.
    record: dict[str, Any]


def crash_test(
    program: Command,
    check: Command,
    *,
    setup: Command | None = None,
    cuts: int = 200,
    seed: int = 1,
    rules: str = "strict",
    lose: str | Iterable[str] = ("unsynced", "all-but", "one", "random"),
    failure: str | PathLike[str] = "crash-test.failure",
    **options: str | int | PathLike[str],
) -> CrashTest:
    """Runs a program once on a file system that knows what is durable, and a check on each state of a power cut.

    ``program``, ``check`` and ``setup`` work in the current directory, and are argument lists, lines for ``sh``, paths
    of scripts, or functions at the top of a file, which is imported in a new interpreter. A program that is a function
    is called with a function that acknowledges an id; a check with the list of ids acknowledged before the cut, and
    returns those that are lost, or raises. ``options`` are the command's others: ``keep_going=True``, ``at="write"``.
    A state that fails is no exception; :class:`RunError` says that the program failed, or that there is no FUSE.
    """
    if "TIDEWATER_MOUNT" in os.environ:
        raise PlanError("a crash test in a crash test", help='put the call under `if __name__ == "__main__":`')
    lose = lose if isinstance(lose, str) else ",".join(lose)
    named = {"cuts": cuts, "seed": seed, "rules": rules, "lose": lose, "failure": failure, **options}
    arguments = [f"--check={_line(check, 'check')}"]
    arguments += [f"--setup={_line(setup, 'setup')}"] if setup is not None else []
    for name, value in named.items():
        flag = "--" + name.replace("_", "-")
        arguments += ([flag] if value else []) if isinstance(value, bool) else [f"{flag}={value}"]
    arguments += ["--", *_arguments(program, "program")]
    with tempfile.TemporaryDirectory(prefix="tidewater-") as folder:
        result = Path(folder) / "result.json"
        try:
            printed, said, code = _program.run(["crash-test", f"--json={result}", *arguments])
        except OSError as error:
            raise RunError(f"{_program.program()}: {error.strerror}") from error
        if code not in (0, 1) or not result.exists():
            sys.stderr.write(said)  # with what the program said
            raise _program.failure(said, code)
        record = json.loads(result.read_text())
    smallest = printed.split("\n\n", 1)[1].split(":\n", 1)[1].rstrip("\n") if record["smallest"] else None
    file = Path(failure).absolute() if smallest is not None else None
    return CrashTest(record["tried"], record["failed"], printed.rstrip("\n"), smallest, file, record)


def _line(of: Command, kind: str) -> str:
    """A command as a line for a shell."""
    return of if isinstance(of, str) else shlex.join(_arguments(of, kind))


def _arguments(of: Command, kind: str) -> list[str]:
    """A command as its arguments."""
    if isinstance(of, str):
        return ["sh", "-c", of]
    if isinstance(of, PathLike):
        path = os.path.abspath(of)
        return [sys.executable, path] if path.endswith(".py") else [path]
    if isinstance(of, Sequence):
        return [fspath(argument) for argument in of]
    name, module = getattr(of, "__name__", ""), getattr(of, "__module__", "")
    source = Path(getattr(sys.modules.get(module), "__file__", None) or "").resolve()
    if not source.is_file() or getattr(of, "__qualname__", "") != name or not name.isidentifier():
        raise PlanError(f"{kind}= is no function at the top of a file", help="give one, or a list of arguments")
    # By its full name where its packages are the folders above it, so that it may import relatively.
    parts = module.split(".")
    if source.with_suffix("").parts[-len(parts) :] != tuple(parts):
        module, parts = source.stem, [source.stem]
    return [sys.executable, "-c", _RUN, str(source.parents[len(parts) - 1]), module, name, kind]
