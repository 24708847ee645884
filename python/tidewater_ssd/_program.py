"""The program `tidewater`, which comes with the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tidewater_ssd.errors import PlanError, RunError


def program() -> str:
    """The path of the program: of the package's own, or what the environment variable TIDEWATER_PROGRAM names.

    >>> program().rsplit("/", 1)[-1]
    'tidewater'
    """
    if given := os.environ.get("TIDEWATER_PROGRAM"):
        return given
    own = Path(__file__).parent / "_bin" / "tidewater"
    if not own.is_file():
        raise RunError("this build of the package has no program", help="set TIDEWATER_PROGRAM to the path of one")
    return str(own)


def main() -> NoReturn:
    """The console script: it becomes the program."""
    try:
        path = program()
        os.execv(path, [path, *sys.argv[1:]])
    except (OSError, RunError) as error:
        sys.exit(f"tidewater: {error}")


def call(arguments: Sequence[str], *, accept: Sequence[int] = (0,)) -> str:
    """Runs the program; what it prints. Its errors are exceptions; Ctrl-C ends it."""
    printed, said, code = run(arguments)
    if code not in accept:
        raise failure(said, code)
    return printed


def run(arguments: Sequence[str]) -> tuple[str, str, int]:
    """Runs the program; what it prints, what it says of errors, and its exit status. Ctrl-C ends it."""
    child = subprocess.Popen([program(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        printed, said = child.communicate()
    except BaseException:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
    return printed, said, child.returncode


def failure(said: str, code: int) -> PlanError | RunError:
    """What the program says in its last lines, as an exception. Code 2: it can't be had as it was asked for."""
    lines = [line.split(": ", 1) for line in said.splitlines() if line.startswith(("error: ", "help: "))]
    found = {name: text for name, text in lines}
    kind = PlanError if code == 2 else RunError
    return kind(found.get("error", said.strip() or f"the program ended with {code}"), help=found.get("help"))
