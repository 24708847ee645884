"""The examples of the README and of the guide run as they stand, each page in one go."""

import random
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["python/README.md", "docs/guide/python.md", "README.md", "docs/README.md"]
PAGES = [page for page in (ROOT / name for name in NAMES) if page.exists()]


def write_csv(path: Path) -> None:
    """A trace of a user's own: random writes and reads over 768 MiB."""
    draws = random.Random(1)
    lines = ["time_us,op,offset,bytes"]
    for at in range(20000):
        op = draws.choice(["read", "write", "write", "write"])
        lines.append(f"{at * 40},{op},{draws.randrange(49152) * 16384},16384")
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "my.csv")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    assert len(blocks) >= (4 if page in PAGES[:2] else 1)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page.name}, example {number + 1}", "exec"), names)


@pytest.mark.skipif(not PAGES, reason="the README is not here")
def test_the_readme_has_no_links_into_the_sources() -> None:
    # It is all that a user of the wheel has.
    links = re.findall(r"\]\(([^)]*)\)", PAGES[0].read_text())
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_first_example_is_short_and_draws_whiskers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    if not PAGES:
        pytest.skip("the README is not here")
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "my.csv")
    (first, *_) = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text(), re.M | re.S)
    assert len(first.splitlines()) < 20
    names: dict[str, object] = {}
    exec(compile(first, "README", "exec"), names)
    grid: object = names["grid"]
    assert len(grid) == 30  # type: ignore[arg-type]
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    values = grid.table["write_amplification"]  # type: ignore[attr-defined]
    assert min(values) > 1 and len(set(values[:5])) > 1
