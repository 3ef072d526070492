"""Makes the classes of declared messages: frozen, slotted, keyword-only dataclasses, quickly.

`@dataclass(frozen=True, slots=True)` generates and compiles six methods for each class, about a
millisecond; with the 500 classes of Kafka's protocol a broker would start half a second later.
Its frozen `__init__` also costs more than the rest of encoding. So here
- the guards, equality, hash and repr are shared functions, written into each class;
- `__new__` is compiled at a class's first use. It fills a *shell*, a class with the same slots
  but without guards, then turns the object into the real class, which plain CPython allows for
  classes of equal layout. Decoders do the same.
`dataclasses.dataclass` still registers the fields, so `fields`, `replace` and `asdict` work.
"""

import dataclasses
from typing import Any, TypeVar, cast

T = TypeVar("T")

REQUIRED: Any = dataclasses.MISSING
"""The default of a field that every caller must pass."""


_SHELLS: dict[type, type] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """What `schema.field` leaves in a class body: opaque facts, and the default."""

    spec: Any
    default: Any


def build(cls: type[T], columns: dict[str, Column]) -> tuple[type[T], type]:
    """Return the value class made from `cls`, and its shell."""
    for name, column in columns.items():
        setattr(cls, name, dataclasses.field(default=column.default))
    # A docstring must be there, or dataclass computes one from the signature, which is slow.
    cls.__doc__ = cls.__doc__ or cls.__name__
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    namespace = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in columns and name not in ("__dict__", "__weakref__")
    }
    slots = tuple(columns)
    namespace |= _SHARED
    namespace["__slots__"] = slots
    made = cast(type[T], type(cls.__name__, (), namespace))
    shell = _SHELLS[made] = type(f"{cls.__name__}Shell", (), {"__slots__": slots})
    return made, shell


def _first_new(cls: type, **values: Any) -> Any:
    """Stand in for a class's `__new__` until its first call, which compiles the real one."""
    scope: dict[str, Any] = {"shell": _SHELLS[cls], "real": cls}
    parameters, body = [], []
    for number, each in enumerate(dataclasses.fields(cls)):
        if each.default is REQUIRED:
            parameters.append(each.name)
        else:
            scope[f"default_{number}"] = each.default
            parameters.append(f"{each.name}=default_{number}")
        body.append(f"    made.{each.name} = {each.name}\n")
    star = ", *, " if parameters else ""
    source = (
        f"def __new__(cls{star}{', '.join(parameters)}):\n"
        f"    made = shell()\n{''.join(body)}    made.__class__ = real\n    return made\n"
    )
    exec(compile(source, f"<{cls.__name__}.__new__>", "exec"), scope)
    cls.__new__ = scope["__new__"]  # type: ignore[method-assign]
    return cls(**values)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__slots__])


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self is other or _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _rebuild(cls: type[T], values: tuple[Any, ...]) -> T:
    return cls(**dict(zip(cls.__slots__, values, strict=True)))  # type: ignore[attr-defined]


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuild, (self.__class__, _values(self))


_SHARED: dict[str, Any] = {
    "__new__": _first_new,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__reduce__": _reduce,
}
