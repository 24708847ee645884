"""The fixture of pytest for crash tests; pytest finds it by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidewater_ssd.crash import Command, CrashTest, crash_test


@pytest.fixture
def tidewater_crash_test(tmp_path: Path) -> Callable[..., CrashTest]:
    """``tidewater_crash_test(program, check, **options)``: as :func:`tidewater_ssd.crash_test`; a failing state fails
    the test with the smallest failure, which is kept in ``tmp_path``."""

    def test(program: Command, check: Command, **options: Any) -> CrashTest:
        result = crash_test(program, check, **{"failure": tmp_path / "crash-test.failure", **options})
        if result.failures:
            pytest.fail(result.text, pytrace=False)
        return result

    return test
