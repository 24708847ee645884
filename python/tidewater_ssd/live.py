"""Served devices."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any

from tidewater_ssd._folder import Folder
from tidewater_ssd._plan import whole
from tidewater_ssd._program import failure, program
from tidewater_ssd.drive import Drive
from tidewater_ssd.errors import RunError, TidewaterError


class Device:
    """A device that this process serves; a context manager, at whose end it is shut down cleanly.

    Made by :func:`serve`.
    """

    def __init__(self, drive: Drive, arguments: list[str], folder: Folder) -> None:
        self._folder = folder
        place = Path(folder.name)
        #: The socket for ``tidewater status`` and ``tidewater fault``.
        self.control = str(place / "control.sock")
        #: The socket for a virtual machine's PCIe device, and for ``tidewater run --device vfio-user:SOCKET``.
        self.vfio_user = str(place / "vfio.sock")
        self._said = place / "said"
        self._last_words = ""
        begun = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self._said.open("wb") as said:
            ready.bind(str(place / "ready"))
            ready.settimeout(0.05)
            self._process = subprocess.Popen(
                [program(), "serve", *arguments, "--runtime-dir", folder.name, "--control", self.control]
                # It ends with this process, however that ends.
                + ["--vfio-user", self.vfio_user, "--stop-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                env={**os.environ, "NOTIFY_SOCKET": str(place / "ready")},
            )
            try:
                while not _arrives(ready):
                    if self._process.poll() is not None:
                        raise failure(self._said.read_text(), self._process.returncode)
                    if time.monotonic() - begun > 60:
                        raise RunError("the device is not ready after 60 seconds", help=self._said.read_text())
            except BaseException:
                self._process.kill()
                self._process.communicate()
                folder.remove()
                raise

    def ask(self, do: str, **keys: Any) -> dict[str, Any]:
        """Asks the control socket; docs/reference/control.md lists what it understands."""
        request = json.dumps({"do": do, **keys}).encode() + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
                control.connect(self.control)
                control.sendall(request)
                line = control.makefile().readline()
        except OSError as error:
            raise self._gone() from error
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok", False):
            raise RunError(str(answer.get("error", "the device refused")))
        return answer

    def _gone(self) -> RunError:
        words = self.said.strip().splitlines()
        help = f"it said last: {words[-1]}" if words else "serve the drive again"
        return RunError("the device has ended, and answers no more", help=help)

    def status(self) -> dict[str, Any]:
        """State and counters."""
        return self.ask("status")

    def metrics(self) -> str:
        """The metrics, in Prometheus' text format."""
        return str(self.ask("metrics")["text"])

    def fault(self, what: str, **keys: Any) -> None:
        """Injects a fault: ``link-loss``, ``fault-delay``, ``fault-status`` and so on, with its keys."""
        self.ask(what if what in {"link-loss", "power-cut"} or what.startswith("fault-") else f"fault-{what}", **keys)

    def power_cut(self, off_ms: int = 0) -> None:
        """Cuts the power, and restores it after this time."""
        self.ask("power-cut", off_ms=off_ms)

    @property
    def said(self) -> str:
        """What the program said so far, also after its end."""
        return self._said.read_text() if self._said.exists() else self._last_words

    def stop(self) -> None:
        """Flushes, shuts down cleanly, and waits for the end."""
        if self._process.poll() is None:
            try:
                self.ask("stop")
            except TidewaterError:
                # It ends before its answer is read, or has gone already.
                pass
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._last_words = self.said
        self._folder.remove()

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    drive: Drive | str = "generic",
    *,
    image: str | PathLike[str] = "memory",
    capacity: str | int | None = None,
    nvme_tcp: str | None = None,
    ring: bool | str | PathLike[str] | None = None,
    metrics: str | None = None,
    seed: int = 1,
) -> Device:
    """Serves a drive as a real NVMe device, to virtual machines (vfio-user) and remote hosts (NVMe/TCP).

    image
        The file of its data, made if missing; ``"memory"`` forgets.
    capacity
        Usable size of a new drive, such as ``"8GiB"`` (a number is in bytes). Memory is taken for what is written.
    nvme_tcp, metrics
        Addresses to serve at, such as ``"127.0.0.1:4420"``.
    ring
        Lets programs map the ring of a drive with a fast side: a file, or ``True`` for one that goes away with the
        device. By default where the drive has one.

    >>> import tidewater_ssd as tw
    >>> with tw.serve("tiny", capacity="8MiB") as device:
    ...     device.status()["state"]
    'serving'
    """
    drive = drive if isinstance(drive, Drive) else Drive(drive)
    seed = whole("seed", seed)
    folder = Folder()
    arguments = ["--profile", drive.profile, "--image", fspath(image), "--seed", str(seed)]
    for key, value in drive.settings:
        arguments += ["--set", f"{key}={value}"]
    if ring is None:
        ring = drive["fast.size"] != "0B"
    for option, given in [("--capacity", capacity), ("--nvme-tcp", nvme_tcp), ("--metrics", metrics)]:
        if given is not None:
            arguments += [option, str(given)]
    if ring:
        arguments += ["--ring", str(Path(folder.name) / "ring") if ring is True else fspath(ring)]
    return Device(drive, arguments, folder)


def _arrives(ready: socket.socket) -> bool:
    try:
        return b"READY=1" in ready.recv(4096)
    except TimeoutError:
        return False
