"""Logs on served devices."""

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewater_ssd as tw
from tidewater_ssd import _program

try:
    _program.program()
except tw.RunError:
    pytest.skip("the wheel was built without programs", allow_module_level=True)

#: Seconds that a busy machine may take for what is done at once.
PATIENCE = 60


@pytest.fixture
def device() -> Iterator[tw.Device]:
    with tw.serve("villars", capacity="64MiB") as device:
        yield device


def data(log: tw.Log, start: int | None = None) -> list[bytes]:
    return [record.data for record in log.tail(start, timeout=0.05)]


def test_what_is_appended_is_read_back_in_order(device: tw.Device) -> None:
    with tw.Log(device) as log:
        assert log.start == 0 and log.end == 0
        written = [log.append(f"record {i}".encode() * (i + 1)) for i in range(200)]
        assert written == sorted(written) and all(a.end <= b.lsn for a, b in zip(written, written[1:]))
        log.wait(written[-1], "RING")
        log.wait(written[-1].end, "DESTAGED")
        log.wait()
        assert data(log) == [f"record {i}".encode() * (i + 1) for i in range(200)]
        assert data(log, written[150].lsn)[0] == b"record 150" * 151
        assert b"record 3" in log.read(written[3].lsn, written[3].end - written[3].lsn)
        status = log.status()
        assert status["destaged"] >= written[-1].end and status["open"] and not status["broken"]
        assert "DESTAGED" == status["level"] and "power loss" in status["destaged_survives"]


def test_whatever_has_a_buffer_is_a_record_and_text_is_none(device: tw.Device) -> None:
    array = pytest.importorskip("numpy").arange(6, dtype="uint16").reshape(2, 3)
    with tw.Log(device) as log:
        for given in [b"", bytearray(b"ab"), memoryview(b"abcdef")[::2], array, array.T]:
            log.append(given)
        log.wait()
        assert data(log) == [b"", b"ab", b"ace", array.tobytes(), array.T.tobytes()]
        for wrong in ["text", 17, None]:
            with pytest.raises(TypeError):
                log.append(wrong)  # type: ignore[arg-type]
        assert log.end == log.status()["ring"]


def test_a_record_may_be_longer_than_what_is_read_at_once(device: tw.Device) -> None:
    with tw.Log(device) as log:
        most = int(log.status()["ring_bytes"])
        long = os.urandom(most // 2)
        log.append(b"before")
        log.append(long, timeout=10)
        log.wait(level="DESTAGED")
        assert data(log) == [b"before", long]
        with pytest.raises(tw.LogError) as refused:
            log.append(bytes(most * 2))
        assert refused.value.errno == errno.EINVAL
        with pytest.raises(tw.PlanError):
            log.read(0, 1 << 60)


def test_threads_append_to_one_log(device: tw.Device) -> None:
    with tw.Log(device, level="RING") as log:

        def append(name: int) -> None:
            for i in range(300):
                log.wait(log.append(f"{name} {i}".encode(), timeout=30), timeout=30)

        threads = [threading.Thread(target=append, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.wait()
        found = data(log)
        assert len(found) == 1200
        for name in range(4):
            mine = [record for record in found if record.startswith(f"{name} ".encode())]
            assert mine == [f"{name} {i}".encode() for i in range(300)]


def test_a_tail_gives_records_as_they_come(device: tw.Device) -> None:
    with tw.Log(device) as log:
        records = log.tail()
        later = threading.Timer(0.1, log.append, [b"late"])
        later.start()
        assert next(records) == tw.LogRecord(0, b"late")
        later.join()


def test_a_wait_ends_with_its_time_and_with_a_signal(device: tw.Device) -> None:
    with tw.Log(device) as log:
        begun = time.monotonic()
        with pytest.raises(tw.LogError) as late:
            log.wait(1 << 30, "RING", timeout=0.1)
        assert late.value.errno == errno.ETIMEDOUT and 0.1 <= time.monotonic() - begun < PATIENCE
        main = threading.main_thread().ident
        assert main is not None
        signals = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
        signals.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            log.wait(1 << 30, "RING", timeout=2 * PATIENCE)
        assert time.monotonic() - begun < PATIENCE
        signals.join()


def test_a_lane_has_one_log_and_a_closed_one_does_nothing(device: tw.Device) -> None:
    with tw.Log(device) as log:
        with pytest.raises(tw.LogError) as busy:
            tw.Log(device)
        assert busy.value.errno == errno.EBUSY
        kept = log
    with pytest.raises(tw.RunError, match="closed"):
        kept.append(b"late")
    kept.close()
    with tw.Log(device) as log:
        log.append(b"again")


def test_what_cannot_be_opened_says_why(device: tw.Device, tmp_path: Path) -> None:
    with pytest.raises(tw.LogError) as unknown:
        tw.Log("tcp:localhost")
    assert unknown.value.errno == errno.EINVAL
    with pytest.raises(tw.LogError) as nothing:
        tw.Log(f"vfio-user:{tmp_path}/none.sock")
    assert nothing.value.errno == errno.ENOENT
    with pytest.raises(tw.LogError) as lanes:
        tw.Log(device, lane=200)
    assert lanes.value.errno == errno.ENODEV
    with pytest.raises(tw.PlanError, match="REMOTE_DESTAGED"):
        tw.Log(device, level="SOMEWHERE")
    with pytest.raises(tw.LogError) as alone:
        tw.Log(device, level="REMOTE_RING")
    assert alone.value.errno == errno.EOPNOTSUPP
    with tw.Log(device) as log:
        for time_of_none in [-1.0, float("nan")]:
            with pytest.raises(tw.PlanError, match="seconds"):
                log.append(b"", timeout=time_of_none)
        with pytest.raises(tw.LogError) as there:
            log.append(b"x", timeout=1)
            log.read(1 << 20, 64, timeout=0.05)
        assert there.value.errno == errno.ETIMEDOUT


def test_a_log_outlives_its_device(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with tw.serve("villars", capacity="64MiB", image=tmp_path / "image", ring=ring) as device:
        log = tw.Log(device)
        log.append(b"first")
        log.wait()
        where = device.vfio_user
        device._process.kill()
        device._process.wait()
        second = log.append(b"second")
        log.wait(second, "RING")
        with pytest.raises(tw.LogError):
            log.reattach()
    with tw.serve("villars", capacity="64MiB", image=tmp_path / "image", ring=ring) as device:
        assert device.vfio_user != where
        log.close()
        with tw.Log(device) as log:
            assert log.start == second.end
            log.append(b"third")
            log.wait()
            assert data(log) == [b"first", b"second", b"third"]
            log.trim(second.lsn)


def test_children_of_a_fork_append_too(device: tw.Device) -> None:
    with tw.Log(device) as log:
        child = os.fork()
        if child == 0:
            try:
                log.append(b"of the child")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        log.append(b"of the parent")
        log.wait()
        assert data(log) == [b"of the child", b"of the parent"]
