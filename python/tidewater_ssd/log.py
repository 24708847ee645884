"""The log of a drive with a fast side."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewater_ssd import _native

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tidewater_ssd.live import Device


class Written(NamedTuple):
    """Where a record was written: offsets in the stream of the log."""

    #: Where it begins: its log sequence number.
    lsn: int
    #: Where it ends: what to wait for.
    end: int


class LogRecord(NamedTuple):
    """A record that was read back."""

    #: Where it begins: its log sequence number.
    lsn: int
    #: What was appended.
    data: bytes


class Log:
    """A log that is written in this process: an append is a few stores into the ring, which is mapped.

    Threads may share it, and children of a fork append too. A context manager, at whose end the lane is free again.

    target
        A :class:`Device` of :func:`serve`, ``"vfio-user:SOCKET"``, several of these with commas between them (the log
        is on the primary of a group), or ``"cluster:etcd=HOST:PORT/NAME"``. The device has to lend its ring: ``ring=``
        of :func:`serve`, or the same option of the command ``tidewater serve``.
    lane
        Which of the device's lanes, 0 to 15; one has one log at a time.
    level
        What :meth:`wait` waits for if it is not said there: ``"RING"``, ``"DESTAGED"``, ``"REMOTE_RING"`` or
        ``"REMOTE_DESTAGED"``; :meth:`status` says what each survives. By default one that survives a loss of power.

    >>> import tidewater_ssd as tw
    >>> with tw.serve("villars", capacity="64MiB") as device, tw.Log(device) as log:
    ...     commit = log.append(b"commit 17")
    ...     log.wait(commit)
    ...     [record.data for record in log.tail(commit.lsn, timeout=0)]
    [b'commit 17']
    """

    def __init__(self, target: Device | str, lane: int = 0, *, level: str | None = None) -> None:
        where = target if isinstance(target, str) else f"vfio-user:{target.vfio_user}"
        self._native, (self._start, _) = _native.Log.open(where, lane, level)

    def append(self, data: Buffer, *, timeout: float = 1.0) -> Written:
        """Appends a record. It is in the ring when this returns; :meth:`wait` says when it, and all before it, last.

        A ring that is full is waited for, ``timeout`` seconds long.
        """
        return Written(*self._native.append(data, timeout))

    def wait(self, written: Written | int | None = None, level: str | None = None, timeout: float = 10.0) -> None:
        """Waits until a record and all before it are at a level; without a record, all that was appended so far.

        A number is an offset in the stream, such as :attr:`Written.end`. After a :class:`LogError` with ``ETIMEDOUT``
        it may be waited for again.
        """
        if written is None:
            written = self._native.end
        self._native.wait(written.end if isinstance(written, Written) else written, level, timeout)

    def read(self, offset: int, size: int, timeout: float = 10.0) -> bytes:
        """Bytes of the stream, headers of records included, from the ring or from flash."""
        return self._native.read(offset, size, timeout)

    def tail(self, start: int | None = None, *, timeout: float | None = None) -> Iterator[LogRecord]:
        """The records from an offset on, and then each as it is appended, by any writer of the lane.

        start
            Where it begins; by default the oldest that can be read.
        timeout
            Ends when nothing came for so many seconds. By default it goes on for ever.
        """
        offset = int(self.status()["oldest"] or 0) if start is None else start
        while True:
            records, offset = self._native.records(offset, 1.0 if timeout is None else timeout)
            yield from (LogRecord(*record) for record in records)
            if not records and timeout is not None:
                return

    def trim(self, offset: int) -> None:
        """Nothing before this offset is needed any more: its room may be used again."""
        self._native.trim(offset)

    def reattach(self) -> int:
        """Connects anew, after the device has gone or the stream was found stale. Returns where the stream goes on.

        Of one device, what was appended beyond is lost, and may be appended again; of a group, it is appended on the
        new primary at the same offsets.
        """
        self._start, _ = self._native.reattach()
        return self._start

    def status(self) -> dict[str, Any]:
        """Offsets of the stream, and what each level survives. ``oldest`` is ``None`` while the device is away."""
        return dict(self._native.status())

    @property
    def start(self) -> int:
        """Where the stream went on when the log was opened, or connected anew."""
        return self._start

    @property
    def end(self) -> int:
        """End of what was appended so far, by any writer."""
        return self._native.end

    def close(self) -> None:
        """Gives the lane back."""
        self._native.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidewater.Log from {self._start}>"
