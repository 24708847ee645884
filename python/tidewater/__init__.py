"""Tidewater: a software-defined solid-state drive.

>>> import tidewater as tw
>>> drive = tw.Drive("tiny", {"ftl.gc_victim": "cost-benefit"})
>>> result = drive.replay(tw.Job(rw="randwrite", bs="4k", iodepth=16, number_ios=20_000), seed=1)
>>> result.write_amplification >= 1
True
"""

from tidewater.drive import Drive, Key, keys, profiles
from tidewater.errors import InternalError, PlanError, ProfileError, RunError, TidewaterError, TraceError
from tidewater.load import ArrowStream, Job, Load, Trace
from tidewater.record import Record
from tidewater.result import Result
from tidewater.runs import Comparison, Grid, Runs, compare, sweep
from tidewater.table import Table

__all__ = [
    "ArrowStream",
    "Comparison",
    "Drive",
    "Grid",
    "InternalError",
    "Job",
    "Key",
    "Load",
    "PlanError",
    "ProfileError",
    "Record",
    "Result",
    "RunError",
    "Runs",
    "Table",
    "TidewaterError",
    "Trace",
    "TraceError",
    "compare",
    "keys",
    "profiles",
    "sweep",
]
