"""Drives: a profile, and what is changed in it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from tidewater_ssd import _native
from tidewater_ssd._plan import Scalar, flat, text_of
from tidewater_ssd.errors import ProfileError, nearest

if TYPE_CHECKING:
    from tidewater_ssd.load import LoadLike
    from tidewater_ssd.policy import PolicyFactory
    from tidewater_ssd.result import Progress, Result


class Drive:
    """A drive: a built-in profile, the path of a profile's file, or a dictionary, with settings changed.

    Settings are named as :func:`keys` lists them, or nested; values may be numbers. Wrong ones are refused at once.

    >>> import tidewater_ssd as tw
    >>> drive = tw.Drive("tiny", {"nand": {"channels": 4}, "buffer.write_policy": "lru"}, capacity="32MiB")
    >>> drive["nand.channels"], drive["drive.capacity"]
    ('4', '32MiB')
    >>> tw.Drive({"base": "tiny", "nand": {"ways": 1}})
    Drive('tiny', {'nand.ways': '1'})
    """

    #: The built-in profile's name, or the path of its file.
    profile: str
    #: What is changed, in order, as text.
    settings: tuple[tuple[str, str], ...]

    def __init__(
        self,
        profile: str | PathLike[str] | Mapping[str, Any] = "generic",
        settings: Mapping[str, Any] | None = None,
        *,
        capacity: Scalar | None = None,
    ) -> None:
        changed: list[tuple[str, str]] = []
        if isinstance(profile, Mapping):
            changed += flat({key: value for key, value in profile.items() if key != "base"})
            profile = str(profile.get("base", "generic"))
        changed += flat(settings or {})
        if capacity is not None:
            changed.append(("drive.capacity", text_of(capacity)))
        self.profile = fspath(profile)
        self.settings = tuple(changed)
        #: One line on what it is.
        self.about: str
        #: What a reader of its results should know.
        self.notes: list[str]
        self.about, self._values, self.notes = _native.drive(self.profile, changed)

    @classmethod
    def from_toml(cls, text: str, *, capacity: Scalar | None = None) -> Drive:
        """The drive of a profile as TOML.

        >>> Drive.from_toml('base = "tiny"\\n[nand]\\nchannels = 4')
        Drive('tiny', {'nand.channels': '4'})
        """
        base, changed = _native.changes(text)
        return cls(base, dict(changed), capacity=capacity)

    def toml(self) -> str:
        """The profile as TOML: every setting with its meaning, its range and the reason for its default."""
        return _native.show(self.profile, list(self.settings))

    @property
    def values(self) -> dict[str, str]:
        """Every setting with its value."""
        return dict(self._values)

    def __getitem__(self, key: str) -> str:
        if key not in self._values:
            meant = nearest(key, self._values)
            help = f"did you mean {meant!r}?" if meant else "tidewater_ssd.keys() lists them"
            raise ProfileError(f"no such key: {key!r}", help=help, key=str(key), suggestion=meant)
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    #: Its settings are in :attr:`values`.
    __iter__ = None

    def with_settings(self, settings: Mapping[str, Any]) -> Drive:
        """The same drive with more settings changed."""
        return Drive(self.profile, {**dict(self.settings), **dict(flat(settings))})

    def replay(
        self,
        load: LoadLike,
        *,
        precondition: str = "fresh",
        seed: int = 1,
        power_cut: str | float | None = None,
        requests: bool | str | PathLike[str] = False,
        policy: PolicyFactory | None = None,
        progress: Progress = False,
    ) -> Result:
        """Runs a load on the drive: a trace's path, a :class:`Trace`, a data frame, a :class:`Job` or its text.

        precondition
            What the drive has been through: ``fresh``, ``filled`` or ``steady``.
        seed
            Of every random choice; equal inputs and seeds make equal records.
        power_cut
            The power is cut at this time of the drive's clock, such as ``"2s"`` (a number is in seconds); see
            ``recovery`` of the result.
        requests
            Keeps a row for each request in memory, or writes them to a file (.parquet, .arrow, .csv).
        policy
            The write buffer's policy in place of the drive's: a subclass of :class:`Policy`, or a function that makes
            one. It is slow, and runs on the caller's thread.
        progress
            ``True`` for a bar (tqdm), or a function of the share done, 0 to 1.

        Other Python threads run meanwhile. Ctrl-C ends the run with :class:`Interrupted`, whose ``run`` has what was
        done. A trace whose columns or units look mistaken gives a :class:`RunWarning` before the run.

        >>> import tidewater_ssd as tw
        >>> result = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=1000")
        >>> result.requests, result.latency_us.write.count
        (1000, 1000)
        """
        from tidewater_ssd.result import replay

        return replay(
            self,
            load,
            precondition=precondition,
            seed=seed,
            power_cut=power_cut,
            requests=requests,
            policy=policy,
            progress=progress,
        )

    def __repr__(self) -> str:
        changed = f", {dict(self.settings)!r}" if self.settings else ""
        return f"Drive({self.profile!r}{changed})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drive) and (self.profile, self.settings) == (other.profile, other.settings)

    def __hash__(self) -> int:
        return hash((self.profile, self.settings))


def profiles() -> list[str]:
    """The names of the built-in profiles.

    >>> "generic" in profiles()
    True
    """
    return _native.profiles()


class Key:
    """A setting that a profile has."""

    def __init__(self, name: str, takes: str, meaning: str, why: str) -> None:
        #: Its name, such as ``nand.channels``.
        self.name = name
        #: What it takes, in words.
        self.takes = takes
        #: What it is.
        self.meaning = meaning
        #: Why its default is what it is, and where it comes from.
        self.why = why

    def __repr__(self) -> str:
        return f"Key({self.name}: {self.meaning} ({self.takes}))"


def keys() -> dict[str, Key]:
    """Every setting of a profile by its name.

    >>> keys()["nand.channels"].takes
    'an integer from 1 to 64'
    """
    return {key[0]: Key(*key) for key in _native.keys()}
