"""Programs and checks for crash tests, in a file that is imported quickly."""

import os
from collections.abc import Callable
from pathlib import Path


def synced(acknowledge: Callable[[object], None]) -> None:
    """A program that does as it should."""
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    os.fsync(os.open(".", os.O_RDONLY))
    for number in range(5):
        os.write(log, b"%d\n" % number)
        os.fsync(log)
        acknowledge(number)


def lost(acknowledged: list[str]) -> list[str]:
    """A check that says what is gone."""
    return [id for id in acknowledged if id not in Path("log").read_text().split()]


def make_log() -> None:
    """A set-up."""
    Path("log").touch()


def fails_if_acknowledged(acknowledged: list[str]) -> None:
    """A check that raises."""
    assert "3" not in acknowledged, "three is here"
