"""Crash tests: the guide's example by pytest, and programs, checks and errors of other kinds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import crash_programs as log
import pytest

import tidewater_ssd as tw
from tidewater_ssd import _program

try:
    _program.program()
except tw.RunError:
    pytest.skip("the wheel was built without programs", allow_module_level=True)

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide/crash-testing.md"


def _why_no_fuse() -> str:
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"no file systems in user space here: /dev/fuse: {error.strerror}"
    return ""


needs_fuse = pytest.mark.skipif(bool(_why_no_fuse()), reason=_why_no_fuse())


@needs_fuse
@pytest.mark.skipif(not GUIDE.exists(), reason="the guide is not here")
def test_the_guides_test_fails_as_printed_and_passes_with_its_syncs(tmp_path: Path) -> None:
    page = GUIDE.read_text()
    (example,) = re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)
    assert len([line for line in example.splitlines() if line]) <= 10
    (said,) = re.findall(r"^```text\n(power cut after.*?)^```", page, re.M | re.S)
    test = tmp_path / "test_log.py"

    def pytest_runs() -> subprocess.CompletedProcess[str]:
        options = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]
        command = [sys.executable, "-m", "pytest", *options, str(test)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    test.write_text(example)
    ran = pytest_runs()
    assert ran.returncode == 1 and said in ran.stdout, ran.stdout + ran.stderr
    file = next(tmp_path.glob("base/*/crash-test.failure"))
    again = [_program.program(), "crash-test", "--replay", str(file)]
    assert subprocess.run(again, capture_output=True, check=False, cwd=tmp_path).returncode == 1

    synced = example.replace("        acknowledge(", "        os.fsync(log.fileno())\n        acknowledge(")
    test.write_text("import os\n" + synced)
    ran = pytest_runs()
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_fuse
def test_functions_scripts_and_commands_are_programs_and_checks(tmp_path: Path) -> None:
    result = tw.crash_test(log.synced, log.lost, cuts=30, failure=tmp_path / "none")
    assert (result.failures, result.smallest, result.file) == (0, None, None) and result.states > 5, result
    assert result.record["acknowledged"] == 5 and "0 failed" in result.text

    script = tmp_path / "program.py"
    script.write_text("open('log', 'a').write('a')")
    result = tw.crash_test(script, "test -e log", failure=tmp_path / "one", lose=["unsynced", "one"], jobs=1)
    assert result.failures == 1 and result.smallest is not None and "#0 create log" in result.smallest
    assert result.smallest.startswith("power cut after") and result.text.endswith(result.smallest)
    assert result.file == tmp_path / "one" and result.file.is_file()
    result = tw.crash_test(script, ["test", "-e", "log"], setup=log.make_log, failure=tmp_path / "two")
    assert result.failures == 0 and result.states > 0

    result = tw.crash_test(
        log.synced, log.fails_if_acknowledged, cuts=30, keep_going=True, rules="ext4", failure=tmp_path / "three"
    )
    assert result.failures > 1 and result.smallest is not None and "three is here" in result.smallest


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tw.PlanError, match="check= is no function at the top of a file"):
        tw.crash_test(["true"], lambda ids: None)
    with pytest.raises(tw.PlanError, match="unexpected argument 'colour"):
        tw.crash_test(["true"], "true", colour="blue")
    with pytest.raises(tw.PlanError, match="ext5"):
        tw.crash_test(["true"], "true", rules="ext5")
    with monkeypatch.context() as inside, pytest.raises(tw.PlanError, match="__main__"):
        inside.setenv("TIDEWATER_MOUNT", "/")
        tw.crash_test(["true"], "true")
    program = tmp_path / "tidewater"
    monkeypatch.setenv("TIDEWATER_PROGRAM", str(program))
    with pytest.raises(tw.RunError, match=f"{program}: No such file"):
        tw.crash_test(["true"], "true")
    # Without FUSE, the command's own words.
    help = "modprobe fuse; a container needs --device /dev/fuse and --cap-add SYS_ADMIN"
    program.write_text(f"#!/bin/sh\necho 'error: /dev/fuse is not there' >&2\necho 'help: {help}' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(tw.RunError, match="^/dev/fuse is not there; modprobe .* needs /dev/fuse and the capability"):
        tw.crash_test(["true"], "true")


@needs_fuse
def test_a_program_that_fails_is_no_failing_state(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(tw.RunError, match="exit status: 3 before any power cut"):
        tw.crash_test("echo why; exit 3", "true", failure=tmp_path / "none")
    assert "why\n" in capfd.readouterr().err
