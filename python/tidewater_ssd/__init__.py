"""Tidewater: a software-defined solid-state drive.

>>> import tidewater_ssd as tw
>>> drive = tw.Drive("tiny", {"ftl.gc_victim": "cost-benefit"})
>>> result = drive.replay(tw.Job(rw="randwrite", bs="4k", iodepth=16, number_ios=20_000), seed=1)
>>> result.write_amplification >= 1
True
"""

from typing import TYPE_CHECKING, Any

from tidewater_ssd import _native
from tidewater_ssd.drive import Drive, Key, keys, profiles
from tidewater_ssd.errors import (
    InternalError,
    Interrupted,
    LogError,
    PlanError,
    PolicyError,
    ProfileError,
    RunError,
    RunWarning,
    TidewaterError,
    TraceError,
)
from tidewater_ssd.load import ArrowStream, Job, Load, Trace
from tidewater_ssd.policy import Leaving, Policy, PolicyFactory, PolicySetting, check_policy
from tidewater_ssd.record import Record
from tidewater_ssd.result import Result
from tidewater_ssd.runs import Comparison, Grid, Runs, compare, sweep
from tidewater_ssd.table import Table

if TYPE_CHECKING:
    from tidewater_ssd.crash import CrashTest, crash_test
    from tidewater_ssd.live import Device, serve
    from tidewater_ssd.log import Log, LogRecord, Written
    from tidewater_ssd.study import Experiment, Finding, Probe, experiment, experiments, probe

__all__ = [
    "ArrowStream",
    "Comparison",
    "CrashTest",
    "Device",
    "Drive",
    "Experiment",
    "Finding",
    "Grid",
    "InternalError",
    "Interrupted",
    "Job",
    "Key",
    "Leaving",
    "Load",
    "Log",
    "LogError",
    "LogRecord",
    "PlanError",
    "Policy",
    "PolicyError",
    "PolicyFactory",
    "PolicySetting",
    "Probe",
    "ProfileError",
    "Record",
    "Result",
    "RunError",
    "RunWarning",
    "Runs",
    "Table",
    "TidewaterError",
    "Trace",
    "TraceError",
    "Written",
    "__version__",
    "check_policy",
    "compare",
    "crash_test",
    "experiment",
    "experiments",
    "keys",
    "probe",
    "profiles",
    "serve",
    "sweep",
]

#: The version of the package, which is that of the program in it.
__version__ = _native.version()

#: What is imported when it is first used: it takes modules that few programs need.
_LATER = {
    "crash": ["CrashTest", "crash_test"],
    "live": ["Device", "serve"],
    "log": ["Log", "LogRecord", "Written"],
    "study": ["Experiment", "Finding", "Probe", "experiment", "experiments", "probe"],
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"tidewater_ssd.{module}"), name)
    raise AttributeError(f"module 'tidewater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
