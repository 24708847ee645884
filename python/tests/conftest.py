"""The closing line that scripts/test.sh adds up."""

import time
from typing import Any

BEGUN = time.monotonic()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Counts, in the words of Rust's test runner."""
    stats = terminalreporter.stats
    passed, failed = (sum(len(stats.get(kind, [])) for kind in kinds) for kinds in [["passed"], ["failed", "error"]])
    ignored, took = len(stats.get("deselected", [])), time.monotonic() - BEGUN
    word = "FAILED" if failed else "ok"
    terminalreporter.write_line(
        f"test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; "
        f"0 filtered out; finished in {took:.2f}s"
    )
