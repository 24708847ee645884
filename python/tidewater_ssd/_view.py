"""Parts of a record by attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

T = TypeVar("T")


class View:
    """A part of a record: its fields are attributes; `None` where a record has none."""

    __slots__ = ("_data",)
    #: Fields that are parts themselves, and fields of several parts.
    _part: ClassVar[Mapping[str, type[View]]] = {}
    _parts: ClassVar[Mapping[str, type[View]]] = {}
    #: Every field.
    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # A class of users' own, and that of results, may have other attributes.
        if cls.__module__ == "tidewater_ssd.record":
            cls._fields = tuple(cls.__annotations__)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Any:
        if name not in type(self)._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(type(self)._fields)}")
        value = self._data.get(name)
        if value is None:
            return None
        if kind := type(self)._part.get(name):
            return kind(value)
        if kind := type(self)._parts.get(name):
            return Map(value, kind) if isinstance(value, dict) else tuple(kind(part) for part in value)
        return Map(value) if isinstance(value, dict) else value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *type(self)._fields]

    def __repr__(self) -> str:
        plain = (name for name in type(self)._fields if _is_plain(self._data.get(name)))
        return f"{type(self).__name__}({', '.join(f'{name}={self._data[name]!r}' for name in plain)})"


class Map(Mapping[str, T], Generic[T]):
    """Values by name: ``latency_us["read"]`` and ``latency_us.read`` are the same."""

    __slots__ = ("_data", "_kind")

    def __init__(self, data: Mapping[str, Any], kind: type[View] | None = None) -> None:
        self._data = data
        self._kind = kind

    def __getitem__(self, name: str) -> T:
        kind: Any = self._kind
        found: T = kind(self._data[name]) if kind else self._data[name]
        return found

    def __getattr__(self, name: str) -> T:
        if name.startswith("__") or name not in self._data:
            raise AttributeError(f"there is no {name!r}; there are {', '.join(self._data) or 'none'}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        return repr(dict(self))


def paths(kind: type[View], names: tuple[str, ...], before: str = "") -> list[str]:
    """The paths of all numbers of a part, where parts that are called by operations may have any of these names."""
    found: list[str] = []
    for field in kind._fields:
        takes = str(kind.__annotations__[field]).removesuffix(" | None")
        part, each = kind._part.get(field), kind._parts.get(field)
        if takes in {"int", "float", "bool"}:
            found.append(before + field)
        elif part is not None:
            found += paths(part, names, f"{before}{field}.")
        elif takes.startswith("Map[") and each is not None:
            found += [path for name in names for path in paths(each, names, f"{before}{field}.{name}.")]
        elif takes == "Map[int]":
            found += [f"{before}{field}.{name}" for name in names]
    return found


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int, float, str))
