"""The program, served devices, probes and experiments."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidewater_ssd as tw
from tidewater_ssd import _program

try:
    _program.program()
except tw.RunError:
    pytest.skip("the wheel was built without programs", allow_module_level=True)


def test_the_console_script_is_the_program() -> None:
    script = Path(sys.executable).parent / "tidewater"
    said = subprocess.run([script, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith("tidewater 0.")
    failed = subprocess.run([script, "replay", "--no-such-option"], capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and "--no-such-option" in failed.stderr


def test_the_preload_library_is_beside_the_program() -> None:
    folder = Path(_program.program()).parent
    assert (folder / "libtidewater_shim.so").is_file() and os.access(folder / "tidewater", os.X_OK)


def test_an_image_outlives_its_device(tmp_path: Path) -> None:
    for _ in range(2):
        with tw.serve("tiny", capacity="8MiB", image=tmp_path / "image") as device:
            assert device.status()["capacity"] == "8MiB"
    assert (tmp_path / "image").stat().st_size > 0


def test_a_device_ends_with_the_process_that_serves_it() -> None:
    code = "import os, signal, tidewater_ssd as tw; device = tw.serve('tiny', capacity='8MiB'); print(device.control); "
    code += "print(device._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(ended.stdout.split()[-1])
    for _ in range(6000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it goes on")


def test_a_device_answers_and_takes_faults() -> None:
    with tw.serve("tiny", capacity="8MiB") as device:
        status = device.status()
        assert status["state"]
        assert "tidewater_" in device.metrics()
        device.fault("delay", by_ns=1000)
        assert len(device.ask("fault-list")["faults"]) == 1
        device.fault("clear")
        assert device.ask("fault-list")["faults"] == []
        device.power_cut()
        with pytest.raises(tw.RunError):
            device.ask("make-coffee")
        process = device._process
    assert process.returncode == 0
    assert not Path(device.control).exists()
    calls: list[Callable[[], object]] = [device.status, device.metrics, device.power_cut]
    for call in calls:
        with pytest.raises(tw.RunError, match="the device has ended"):
            call()
    assert "clean shutdown" in device.said
    device.stop()


def test_a_device_that_was_killed_says_so() -> None:
    with tw.serve("tiny", capacity="8MiB") as device:
        device._process.kill()
        device._process.wait()
        with pytest.raises(tw.RunError, match="the device has ended"):
            device.status()


def test_a_device_takes_the_memory_that_it_uses() -> None:
    with tw.serve("villars", capacity="64MiB") as device:
        status = Path(f"/proc/{device._process.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    # Its image has 2.3 GiB, of which a new drive has written none.
    assert resident < 500_000, f"{resident} KiB"


def test_a_device_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    (tmp_path / "image").write_text("no image of ours")
    with pytest.raises(tw.TidewaterError, match="image"):
        tw.serve("tiny", capacity="8MiB", image=tmp_path / "image")


def test_an_experiment_has_checks_and_rows(tmp_path: Path) -> None:
    names = tw.experiments()
    assert len(names) >= 25
    with pytest.raises(tw.PlanError, match="there is no experiment 'x-ssd/fig0'") as error:
        tw.experiment("x-ssd/fig0")
    assert error.value.suggestion in names


def test_a_probe_finds_what_the_profile_says() -> None:
    found = tw.probe(tw.Drive("tiny"), stages=["read-cache"], largest_cache="1MiB")
    assert found.record["stages"] and all(0 <= finding.confidence <= 1 for finding in found)
    assert {finding.verdict for finding in found} <= {"found", "absent", "cannot-tell"}
    assert found.report().startswith("<!DOCTYPE html>")
    with pytest.raises(tw.TidewaterError):
        tw.probe("/no/such/drive")
