"""Write policies in Python."""

import _thread
import functools
import hashlib
import itertools
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidewater_ssd as tw
from tidewater_ssd import policy as policy_module

DRIVE = tw.Drive("tiny", {"buffer.write_policy": "lru", "buffer.write_size": "128KiB"})
#: The same, whose policy is free to vary.
VARIED = tw.Drive("tiny", {"buffer.write_size": "128KiB"})
MIX = "rw=randrw,bs=4k,iodepth=8,number_ios=3000"
#: Seconds that a busy machine may take for what is done at once.
PATIENCE = 60
LONG = "rw=randwrite,bs=4k,number_ios=100000000"


class Lru(tw.Policy):
    """The page that was not written for longest leaves first."""

    def __init__(self, setting: tw.PolicySetting) -> None:
        self.pages: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, page: object) -> bool:
        return page in self.pages

    def __len__(self) -> int:
        return len(self.pages)

    def __iter__(self) -> Iterator[int]:
        return iter(self.pages)

    def write(self, page: int, run: range, room: bool) -> bool:
        held = page in self.pages
        if held or room:
            self.pages[page] = None
            self.pages.move_to_end(page)
        return held

    def remove(self, page: int) -> bool:
        return self.pages.pop(page, False) is None

    def evict(self, most: int) -> Iterable[tw.Leaving]:
        return [self.pages.popitem(last=False)[0] for _ in range(min(most, len(self.pages)))]


class SecondChance(Lru):
    """First in, first out; but a page that was written again stays for another round."""

    def __init__(self, setting: tw.PolicySetting) -> None:
        super().__init__(setting)
        self.again: set[int] = set()

    def write(self, page: int, run: range, room: bool) -> bool:
        if page in self.pages:
            self.again.add(page)
            return True
        if room:
            self.pages[page] = None
        return False

    def remove(self, page: int) -> bool:
        self.again.discard(page)
        return super().remove(page)

    def evict(self, most: int) -> Iterator[int]:
        while most > 0 and self.pages:
            page, _ = self.pages.popitem(last=False)
            if page in self.again:
                self.again.remove(page)
                self.pages[page] = None
            else:
                most -= 1
                yield page


class Blocks(Lru):
    """The block of the oldest page leaves, with its pages of the read cache and padding for all others."""

    cooperates = True

    def __init__(self, setting: tw.PolicySetting) -> None:
        super().__init__(setting)
        self.setting = setting
        self.in_cache: set[int] = set()

    def cached(self, page: int) -> None:
        self.in_cache.add(page)

    def uncached(self, page: int) -> None:
        self.in_cache.discard(page)

    def evict(self, most: int) -> Iterator[tw.Leaving]:
        if not self.pages:
            return
        first = next(iter(self.pages)) // self.setting.block * self.setting.block
        for page in range(first, min(first + self.setting.block, self.setting.units)):
            if self.remove(page):
                yield page
            else:
                yield (page, "cached" if page in self.in_cache else "padding")


class KeepsClean(Lru):
    """Pages that were read are held too, and leave first."""

    keeps_clean = True

    def __init__(self, setting: tw.PolicySetting) -> None:
        super().__init__(setting)
        self.clean: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, page: object) -> bool:
        return page in self.pages or page in self.clean

    def __len__(self) -> int:
        return len(self.pages) + len(self.clean)

    def __iter__(self) -> Iterator[int]:
        yield from self.pages
        yield from self.clean

    def write(self, page: int, run: range, room: bool) -> bool:
        was_clean = self.clean.pop(page, False) is None
        return super().write(page, run, room or was_clean) or was_clean

    def remove(self, page: int) -> bool:
        was_clean = self.clean.pop(page, False) is None
        return super().remove(page) or was_clean

    def fill(self, page: int) -> None:
        self.clean[page] = None

    def is_clean(self, page: int) -> bool:
        return page in self.clean

    def drop_clean(self) -> int | None:
        return self.clean.popitem(last=False)[0] if self.clean else None


def fixed(result: tw.Result) -> dict[str, Any]:
    """A record without what is measured in real time, and without the policy's name."""
    record = dict(result.record)
    for name in ["wall_seconds", "user_cpu_seconds", "bytes_per_touched_page", "profile"]:
        record.pop(name, None)
    return {**record, "write_buffer": {**record["write_buffer"], "policy": "?"}}


@pytest.mark.parametrize("policy", [Lru, SecondChance, Blocks, KeepsClean])
def test_good_policies_conform_and_run(policy: tw.PolicyFactory) -> None:
    tw.check_policy(policy)
    drive = DRIVE.with_settings({"buffer.read_policy": "lru", "buffer.read_size": "64KiB"})
    run = drive.replay(MIX, policy=policy, seed=2)
    assert run.requests == 3000 and run.write_buffer.evictions > 10
    assert fixed(drive.replay(MIX, policy=policy, seed=2)) == fixed(run)
    if policy is Blocks:
        assert run.write_buffer.padding_reads > 0


@pytest.mark.parametrize("options", [{}, {"precondition": "steady"}, {"power_cut": "20ms"}])
def test_an_lru_in_python_has_the_record_of_the_built_in_one(options: dict[str, str]) -> None:
    built_in = DRIVE.replay(MIX, seed=5, **options)  # type: ignore[arg-type]
    ours = DRIVE.replay(MIX, seed=5, policy=Lru, **options)  # type: ignore[arg-type]
    assert fixed(ours) == fixed(built_in)
    assert built_in.write_buffer.policy == "lru" and ours.write_buffer.policy == "python:Lru"
    assert ours.profile.settings["buffer.write_policy"] == "python:Lru"
    assert ours.record["profile"]["changed"][-1] == "buffer.write_policy=python:Lru"
    assert "python:Lru" in ours.report() and "tidewater replay --profile" not in ours.report()


def test_the_name_in_the_record_has_the_arguments_of_a_partial() -> None:
    class Sized(Lru):
        def __init__(self, setting: tw.PolicySetting, share: float = 1.0) -> None:
            super().__init__(setting)

    run = DRIVE.replay(MIX, policy=functools.partial(Sized, share=0.5))
    assert run.write_buffer.policy == "python:Sized(share=0.5)"


def test_a_policy_gets_the_setting_of_its_buffer() -> None:
    seen: list[tw.PolicySetting] = []

    def make(setting: tw.PolicySetting) -> tw.Policy:
        seen.append(setting)
        return Lru(setting)

    run = DRIVE.replay(MIX, policy=make, power_cut="20ms")
    assert run.write_buffer.policy == "python:make"
    assert len(seen) == 2 and seen[0] == seen[1], "once more when the power is back"
    assert seen[0].capacity == 32 and seen[0].units * 4096 == run.capacity_bytes


class Missing(ValueError):
    """An exception of a user's own."""


class Raises(Lru):
    """A policy that raises when pages are to leave."""

    def evict(self, most: int) -> Iterable[tw.Leaving]:
        raise Missing("in evict")


def failing(method: str, error: type[BaseException] = Missing) -> type[Lru]:
    """A policy one of whose methods raises, after some calls."""
    calls = 0

    def raises(self: Lru, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise error(f"in {method}")
        return getattr(Lru, method)(self, *arguments)

    return type("Failing", (Lru,), {method: raises})


@pytest.mark.parametrize("method", ["write", "evict", "__contains__", "__len__"])
def test_an_exception_of_a_method_is_what_the_caller_gets(method: str) -> None:
    with pytest.raises(Missing, match=f"^in {method}$") as error:
        DRIVE.replay(MIX, policy=failing(method))
    assert error.traceback[-1].name == "raises", "it shows where in the policy it was raised"
    assert DRIVE.replay(MIX).requests == 3000


def test_exceptions_elsewhere_reach_the_caller_too() -> None:
    class Unmade(Lru):
        def __init__(self, setting: tw.PolicySetting) -> None:
            raise Missing("in the constructor")

    with pytest.raises(Missing, match="in the constructor"):
        DRIVE.replay(MIX, policy=Unmade)
    with pytest.raises(TypeError, match=r"abstract"):
        DRIVE.replay(MIX, policy=tw.Policy)
    with pytest.raises(TypeError, match="which is no tidewater_ssd.Policy"):
        DRIVE.replay(MIX, policy=lambda setting: setting)  # type: ignore[arg-type,return-value]
    with pytest.raises(SystemExit):
        DRIVE.replay(MIX, policy=failing("write", SystemExit))

    def stop(share: float) -> None:
        raise Missing("in progress")

    with pytest.raises(Missing, match="in progress"):
        DRIVE.replay(LONG, policy=Lru, progress=stop)
    with pytest.raises(Missing, match="in __iter__"):
        DRIVE.replay(MIX, policy=with_method("__iter__", raising("in __iter__")), power_cut="20ms")


def raising(words: str) -> Callable[..., Any]:
    def method(self: Lru, *arguments: Any) -> Any:
        raise Missing(words)

    return method


def with_method(name: str, method: Callable[..., Any]) -> type[Lru]:
    return type("Wrong", (Lru,), {name: method})


BREACHES: list[tuple[str, Callable[..., Any], str]] = [
    ("evict", lambda self, most: [*Lru.evict(self, most), 9999], "evict gave page 9999, which is not held"),
    ("evict", lambda self, most: [], r"evict gave no dirty page, and \d+ are held"),
    ("evict", lambda self, most: list(self.pages)[:1], r"evict gave page \d+ away, and the policy still contains it"),
    ("evict", lambda self, most: None, "evict returned None, where a list of pages is expected"),
    ("evict", lambda self, most: ["one"], "evict gave 'one', where a page"),
    ("evict", lambda self, most: [-1], "evict gave -1, where a page"),
    ("evict", lambda self, most: [(1, "dirty")], r"evict gave \(1, 'dirty'\), where a page"),
    ("evict", lambda self, most: [*Lru.evict(self, most), (3, "cached")], "page 3 from the read cache, which does not"),
    ("evict", lambda self, most: itertools.repeat(3), r"evict gave more than \d+ pages, and the drive has no more"),
    ("__len__", lambda self: len(self.pages) + (len(self.pages) > 3), "its length is 5, and it holds 4 pages"),
    ("write", lambda self, page, run, room: None, "write returned None, where it must say whether the page is held"),
    ("write", lambda self, page, run, room: not Lru.write(self, page, run, room), r"write said that page \d+ is held"),
    ("write", lambda self, page, run, room: False, r"after a write its length is 0, and it holds 1 page"),
    ("__contains__", lambda self, page: True, r"contains said that page \d+ is held, and it is not"),
]


@pytest.mark.parametrize(("method", "wrong", "words"), BREACHES, ids=lambda value: str(value)[:24])
def test_a_policy_that_breaks_its_contract_is_an_error_in_words(
    method: str, wrong: Callable[..., Any], words: str
) -> None:
    policy = with_method(method, wrong)
    with pytest.raises(tw.PolicyError, match=words) as error:
        DRIVE.replay(MIX, policy=policy)
    assert str(error.value).startswith("write policy python:Wrong: ") and error.value.rule is None
    with pytest.raises(tw.PolicyError) as found:
        tw.check_policy(policy)
    assert found.value.rule == "every answer is right" and "; in a buffer of " in str(found.value)


def test_the_suite_finds_what_no_single_run_may_show() -> None:
    class Drawn(Lru):
        """Takes pages by the numbers of the whole program."""

        def evict(self, most: int) -> list[tw.Leaving]:
            page = random.choice(list(self.pages)) if self.pages else None
            return [] if page is None or not self.remove(page) else [page]

    with pytest.raises(tw.PolicyError) as error:
        tw.check_policy(Drawn)
    assert error.value.rule in {"equal operations have equal results", "a copy goes on as the original"}

    class Locked(Lru):
        def __init__(self, setting: tw.PolicySetting) -> None:
            super().__init__(setting)
            self.lock = threading.Lock()

    with pytest.raises(tw.PolicyError, match="cannot pickle") as error:
        tw.check_policy(Locked)
    assert error.value.rule == "a copy goes on as the original" and str(error.value).endswith("after: copy")
    assert isinstance(error.value.__cause__, TypeError)

    with pytest.raises(tw.PolicyError, match="every answer is right: Missing: in remove; .* after: write 0, remove 0"):
        tw.check_policy(with_method("remove", raising("in remove")))


def interrupted(seconds: float, call: Callable[[], object]) -> float:
    """How long it takes from Ctrl-C to the end of a call."""
    at: list[float] = []

    def interrupt() -> None:
        time.sleep(seconds)
        at.append(time.monotonic())
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()
    return time.monotonic() - at[0]


class Endless(Lru):
    """Never comes back from its first eviction."""

    def evict(self, most: int) -> Iterable[tw.Leaving]:
        while True:
            pass


def test_ctrl_c_ends_runs_and_checks() -> None:
    reads = "rw=randread,bs=4k,number_ios=100000000"
    for call in [
        lambda: DRIVE.replay(LONG, policy=Lru),
        lambda: DRIVE.replay(reads, policy=Lru),
        lambda: DRIVE.replay(LONG, policy=Endless),
        lambda: tw.check_policy(Endless),
        lambda: tw.Drive("generic", capacity="64GiB").replay(LONG, policy=Lru, precondition="steady"),
    ]:
        assert interrupted(0.3, call) < PATIENCE
    tw.check_policy(Lru)


def test_other_threads_run_meanwhile_and_their_runs_too() -> None:
    results: list[tw.Result] = []
    runs = [threading.Thread(target=lambda: results.append(DRIVE.replay(MIX, policy=Lru, seed=3))) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(results) == 3 and all(fixed(run) == fixed(results[0]) for run in results)


def test_a_daemon_threads_run_does_not_disturb_the_end_of_a_program() -> None:
    program = """
import threading, time
import tidewater_ssd as tw
from test_policy import LONG, Lru
threading.Thread(target=lambda: tw.Drive("tiny").replay(LONG, policy=Lru), daemon=True).start()
time.sleep(0.3)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, timeout=600)
        assert (ended.returncode, ended.stderr) == (0, b"")


def policy_name(policy: type[tw.Policy]) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return f"python:{__name__}:{policy.__name__}@{digest}"


def test_policies_vary_in_comparisons_under_their_names_with_the_digest_of_their_source() -> None:
    vary = {"buffer.write_policy": ["lru", Lru, f"{__name__}:SecondChance"], "seed": [1, 2]}
    job = "rw=randwrite,random_distribution=zipf:1.1,bs=4k,iodepth=8,number_ios=3000"
    runs = tw.compare(VARIED, job, vary, jobs=2)
    assert [run.write_buffer.policy for run in runs] == ["lru"] * 2 + [policy_name(Lru)] * 2 + [
        policy_name(SecondChance)
    ] * 2
    assert [run.point["buffer.write_policy"] for run in runs][2] == policy_name(Lru)
    builtin, lru, second = (runs[at].write_buffer.hit_ratio for at in (0, 2, 4))
    assert 0 < second != lru
    assert builtin == lru == DRIVE.replay(job, policy=Lru, seed=1).write_buffer.hit_ratio


def test_sweeps_keep_runs_of_policies_and_make_them_again_when_the_source_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).read_text().split("class SecondChance")[0]
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []
    for version in ["", "# another\n"]:
        (tmp_path / "own_policy.py").write_text(source + version)
        sys.modules.pop("own_policy", None)
        vary = {"buffer.write_policy": ["own_policy:Lru"], "seed": range(2)}
        grid = tw.sweep(VARIED, MIX, vary, out=tmp_path / "study", jobs=2) if not names else None
        if grid is None:
            # Runs of another source belong to another study.
            with pytest.raises(tw.PlanError, match="another study"):
                tw.sweep(VARIED, MIX, vary, out=tmp_path / "study")
            grid = tw.sweep(VARIED, MIX, vary, out=tmp_path / "other")
        assert grid.failures == {} and len(grid) == 2
        names.append(grid[0].write_buffer.policy)
    assert names[0] != names[1] and all(name.startswith("python:own_policy:Lru@") for name in names)
    with pytest.raises(tw.PlanError, match="is a write policy in Python"):
        tw.Drive("tiny", {"buffer.write_policy": names[0]}).replay(MIX)


def test_workers_import_policies_and_refuse_another_source() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        grid = tw.sweep(VARIED, MIX, {"buffer.write_policy": [Lru, "lru"], "seed": [1]}, executor=workers)
    assert grid.failures == {} and {run.write_buffer.policy for run in grid} == {policy_name(Lru), "lru"}
    with pytest.raises(tw.PlanError, match="the source of .* is another one here"):
        policy_module.found(policy_name(Lru)[:-12] + "0" * 12)


def test_a_policy_that_fails_is_a_row_with_its_reason() -> None:
    grid = tw.sweep(VARIED, MIX, {"buffer.write_policy": [Raises, "lru"]})
    (reason,) = grid.failures.values()
    assert "Missing: in evict" in reason and len(list(grid)) == 1
    with pytest.raises(tw.TidewaterError, match="in evict"):
        tw.compare(VARIED, MIX, {"buffer.write_policy": [Raises]})


def test_what_has_no_name_or_is_no_policy_does_not_vary() -> None:
    class Inside(Lru):
        pass

    for nameless in [Inside, functools.partial(Lru), lambda setting: Lru(setting)]:
        with pytest.raises(tw.PlanError, match="has no name by which other processes find it"):
            tw.compare(VARIED, MIX, {"buffer.write_policy": [nameless]})
    with pytest.raises(tw.PlanError, match="the policy no_such:Lru can't be had"):
        tw.compare(VARIED, MIX, {"buffer.write_policy": ["no_such:Lru"]})
    with pytest.raises(tw.PlanError, match="'Lru' is code") as error:
        tw.sweep(VARIED, MIX, {"policy": [Lru]})
    assert "vary buffer.write_policy" in str(error.value.help)
    with pytest.raises(tw.PlanError, match="is code"):
        tw.Drive("tiny", {"buffer.write_policy": Lru})
    with pytest.raises(tw.PlanError, match="a policy is a class"):
        DRIVE.replay(MIX, policy="lru")  # type: ignore[arg-type]
    with pytest.raises(tw.PlanError, match="the drive has no write buffer") as refused:
        tw.Drive("tiny", {"buffer.write_policy": "none"}).replay(MIX, policy=Lru)
    assert "give it one" in str(refused.value.help)
