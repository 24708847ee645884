"""Temporary folders: they go away with their process, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidewater_ssd import _folder

JOB = "rw=randwrite,bs=4k,iodepth=16,number_ios=2000"
SWEEP = f"grid = tw.sweep(tw.Drive('tiny'), '{JOB}', {{'seed': [1]}})"
LONG = "rw=randwrite,bs=4k,iodepth=16,time_based=1,runtime=100000"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    line = [sys.executable, "-c", f"import os, signal, tidewater_ssd as tw\n{code}"]
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environment)


def left(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(_folder.PREFIX)]


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0", "def f():\n  f()\nf()"])
def test_a_folder_goes_away_with_its_process(end: str, tmp_path: Path) -> None:
    ended = run(f"{SWEEP}\nassert os.listdir({str(tmp_path)!r})\n{end}", tmp_path)
    assert (ended.returncode != 0) == bool(end), ended.stderr
    assert left(tmp_path) == []


def test_a_folder_goes_away_after_ctrl_c(tmp_path: Path) -> None:
    code = "import threading\nthreading.Timer(1, os.kill, [os.getpid(), signal.SIGINT]).start()\n"
    code += f"tw.sweep(tw.Drive('tiny'), '{LONG}', {{'seed': [1, 2]}})"
    assert "KeyboardInterrupt" in run(code, tmp_path).stderr
    assert left(tmp_path) == []


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    killed = run(f"{SWEEP}\nos.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert killed.returncode == -signal.SIGKILL
    (mine,) = left(tmp_path)
    code = f"{SWEEP}\nprint(grid.out, flush=True)\ninput()"
    line = [sys.executable, "-c", f"import tidewater_ssd as tw\n{code}"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
    ) as live:
        assert live.stdout is not None
        used = Path(live.stdout.readline().decode().strip()).parent
        (tmp_path / "tidewater-of-others").mkdir()
        # All are old enough to be looked at; a young one may be about to be locked.
        assert mine in left(tmp_path)
        old = time.time() - 2 * _folder.LEFT
        for name in left(tmp_path):
            os.utime(tmp_path / name, (old, old))
        _folder.remove_left(str(tmp_path))
        assert sorted(left(tmp_path)) == sorted([used.name, "tidewater-of-others"])
        live.communicate(b"\n")
    assert left(tmp_path) == ["tidewater-of-others"]
