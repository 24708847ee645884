"""Policies of the write buffer in Python: for teaching and for trying an idea. They are slow."""

from __future__ import annotations

import atexit
import functools
import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tidewater_ssd import _native
from tidewater_ssd.errors import PlanError


@dataclass(frozen=True)
class PolicySetting:
    """What a policy is made for."""

    #: Pages that the buffer takes.
    capacity: int
    #: Pages of a logical block: what the translation layer merges or erases as one.
    block: int
    #: Logical pages of the drive.
    units: int
    #: Pages of the read cache beside the buffer.
    cached: int
    #: Pages of a run of writes that is sequential.
    sequential: int


# Runs of daemon threads stop there: they must not call a policy while the interpreter is taken down.
atexit.register(_native.interpreter_ends)

#: A page that leaves the buffer: its number; or a clean page that goes to flash along with dirty ones of its block,
#: because the read cache has it or because it is to be read from flash.
Leaving: TypeAlias = int | tuple[int, Literal["cached", "padding"]]


class Policy(ABC):
    """A replacement policy of the write buffer: it decides which dirty pages leave next, and does no I/O.

    Pages are numbers. The buffer keeps to its capacity, knows what pages hold, and takes what leaves to flash; the
    policy keeps the order. Each answer is checked: the first wrong one ends the run with a :class:`PolicyError`, and an
    exception that a method raises ends it with that exception. :func:`check_policy` tries a policy on its own.

    A policy is a collection: ``page in policy``, ``len(policy)`` and iteration are about the pages that it holds. It is
    copied by :func:`copy.deepcopy`, and has to decide by what it was asked alone: use no clock, and no random numbers
    but those of a ``random.Random(1)`` of its own.

    First in, first out, but a page that was written again stays for another round:

    >>> import tidewater_ssd as tw
    >>> class SecondChance(tw.Policy):
    ...     def __init__(self, setting):
    ...         self.again = {}
    ...     def __contains__(self, page):
    ...         return page in self.again
    ...     def __len__(self):
    ...         return len(self.again)
    ...     def __iter__(self):
    ...         return iter(self.again)
    ...     def write(self, page, run, room):
    ...         held = page in self.again
    ...         if held or room:
    ...             self.again[page] = held
    ...         return held
    ...     def remove(self, page):
    ...         return self.again.pop(page, None) is not None
    ...     def evict(self, most):
    ...         while self.again and most > 0:
    ...             page = next(iter(self.again))
    ...             if self.again.pop(page):
    ...                 self.again[page] = False
    ...             else:
    ...                 most -= 1
    ...                 yield page
    >>> tw.check_policy(SecondChance)
    >>> result = tw.Drive("tiny").replay("rw=randwrite,bs=4k,number_ios=1000", policy=SecondChance)
    >>> result.write_buffer.policy
    'python:SecondChance'
    """

    #: Whether it holds clean pages beside dirty ones: then what is read from flash is offered to it, by :meth:`fill`.
    keeps_clean: bool = False
    #: Whether it wants to know what the read cache holds, by :meth:`cached` and :meth:`uncached`.
    cooperates: bool = False

    def __init__(self, setting: PolicySetting) -> None:  # noqa: B027: a policy need not keep its setting
        """A policy that holds no page."""

    @abstractmethod
    def __contains__(self, page: object) -> bool:
        """Whether the page is held."""

    @abstractmethod
    def __len__(self) -> int:
        """Pages held."""

    @abstractmethod
    def __iter__(self) -> Iterator[int]:
        """Every page held, in any order."""

    @abstractmethod
    def write(self, page: int, run: range, room: bool) -> bool:
        """The page is written, by a command that writes the pages `run`. Whether it was held.

        A page that is not held is taken in if there is `room`; if there is none, nothing changes: the same page comes
        again once others have left.
        """

    @abstractmethod
    def remove(self, page: int) -> bool:
        """The page is deallocated or written through: it is held no more. Whether it was held."""

    @abstractmethod
    def evict(self, most: int) -> Iterable[Leaving]:
        """Takes out the dirty pages that leave together next, in the order in which they go to flash.

        At least one, if any dirty page is held; a policy that knows no blocks gives about `most`. With them may go
        clean pages of the same block: ``(page, "cached")`` for one that the read cache has, ``(page, "padding")`` for
        one to be read from flash.
        """

    def read(self, page: int) -> bool:
        """The page is read. Whether it is held. Called of policies that keep clean pages."""
        return page in self

    def fill(self, page: int) -> None:
        """Takes in a clean page that is not held. Called of policies that keep clean pages."""
        raise NotImplementedError(f"{type(self).__name__} keeps clean pages, and has no method fill")

    def is_clean(self, page: int) -> bool:
        """Whether the page is held and clean."""
        return False

    def drop_clean(self) -> int | None:
        """Takes out the clean page that leaves before any dirty one, if there is such a page."""
        return None

    def cached(self, page: int) -> None:
        """The read cache has taken in a page that is not dirty here. Called of policies that cooperate."""

    def uncached(self, page: int) -> None:
        """The read cache has a page no more. Called of policies that cooperate."""


#: What makes a policy: its class, or a function, such as a ``functools.partial`` of it.
PolicyFactory: TypeAlias = Callable[[PolicySetting], Policy]


def check_policy(policy: PolicyFactory) -> None:
    """Holds a policy to its contract, as the built-in ones are held to it: about ten thousand random operations.

    A :class:`PolicyError` says which rule was broken, what was wrong, and the fewest operations found that lead to it;
    an exception of the policy's is its cause.
    """
    _native.check_policy(*native(policy))


def native(policy: PolicyFactory) -> tuple[Callable[[int, int, int, int, int], Policy], str]:
    """A policy as the module in Rust takes it: what makes it, and its name."""
    if not callable(policy):
        raise PlanError(
            f"a policy is a class or a function that makes one, not {policy!r}", help="give policy=MyPolicy, its class"
        )

    def make(*setting: int) -> Policy:
        made = policy(PolicySetting(*setting))
        if not isinstance(made, Policy):
            raise TypeError(f"{name_of(policy)} made {made!r}, which is no tidewater_ssd.Policy")
        return made

    return make, name_of(policy)


def name_of(policy: Any) -> str:
    """What a policy is called in records: the class's name, with the arguments of a partial."""
    if isinstance(policy, functools.partial):
        given = [repr(value) for value in policy.args]
        given += [f"{key}={value!r}" for key, value in policy.keywords.items()]
        return f"{name_of(policy.func)}({', '.join(given)})"
    return str(getattr(policy, "__name__", type(policy).__name__))


#: What makes a policy in Rust, and the texts of plans that name one.
Made: TypeAlias = Callable[[int, int, int, int, int], Policy]
_PREFIX = "python:"


def named(policy: PolicyFactory) -> str:
    """What plans and records call a policy: ``python:MODULE:NAME@HASH``, the hash that of its module's source.

    It is found again by its name, in this process and in others, so it stands at the top of its module.
    """
    module, name = getattr(policy, "__module__", None), getattr(policy, "__qualname__", None)
    if not module or not name or "<" in name:
        raise PlanError(
            f"{name_of(policy)} has no name by which other processes find it",
            help="give a class or a function at the top of a module; for parameters, a function that sets them",
        )
    return f"{_PREFIX}{module}:{name}@{_digest(policy, module)}"


def _digest(policy: PolicyFactory, module: str) -> str:
    try:
        file = inspect.getsourcefile(sys.modules[module])
        # What the module has beside the class decides what it does, too.
        source = Path(file).read_bytes() if file and Path(file).is_file() else inspect.getsource(policy).encode()
    except (KeyError, OSError, TypeError) as error:
        raise PlanError(
            f"the source of {name_of(policy)} can't be read: {error}", help="define it in a file, and import it"
        ) from None
    return hashlib.sha256(source).hexdigest()[:12]


def found(text: str) -> PolicyFactory:
    """The policy that ``MODULE:NAME`` means, or the name of one in a plan, whose source has to be the same here."""
    path, _, digest = text.removeprefix(_PREFIX).partition("@")
    module, _, name = path.partition(":")
    try:
        policy: Any = import_module(module)
        for part in name.split("."):
            policy = getattr(policy, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise PlanError(f"the policy {path} can't be had: {error}", help="as in my_module:MyPolicy") from None
    if digest and named(policy) != text:
        raise PlanError(f"the source of {path} is another one here", help="give all workers the same file")
    return policy  # type: ignore[no-any-return]


def by_name(names: Iterable[str]) -> dict[str, Made]:
    """The policies among values of settings, as the module in Rust takes them."""
    return {name: native(found(name))[0] for name in names if name.startswith(_PREFIX)}
