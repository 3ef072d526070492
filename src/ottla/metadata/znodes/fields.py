"""Reading and writing the JSON object of a znode.

The reader states what it expects; anything else is a `ZnodeError`, which names the path.
Fields that were not read are kept (`rest`), so that a rewrite does not lose what a newer
version, or another tool, has written (KAFKA-12835).
"""

from typing import Any, Final

import msgspec
from immutables import Map

from ottla.base.limits import ZNODE_NESTING_MAX

Extra = Map[str, Any]
"""Fields that Ottla does not know, by name."""

NO_EXTRA: Final[Extra] = Map()

DIGITS_MAX: Final = 20
"""Of a number that is written as text: 64 bits have no more."""


class ZnodeError(Exception):
    """A znode does not hold what it should."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Fields:
    """A JSON object under a path; each field that is read is checked."""

    def __init__(self, path: str, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values
        self._taken: set[str] = set()

    def fail(self, reason: str) -> ZnodeError:
        """Return the error that names this znode."""
        return ZnodeError(self.path, reason)

    def has(self, name: str) -> bool:
        """Tell whether a field is there, and not null."""
        self._taken.add(name)
        return self.values.get(name) is not None

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer. Raises: ZnodeError where it is none, or missing without a default."""
        if default is not None and not self.has(name):
            return default
        return self._of(name, int, "an integer")  # type: ignore[no-any-return]

    def flag(self, name: str) -> bool:
        """Return a boolean. Raises: ZnodeError."""
        return self._of(name, bool, "true or false")  # type: ignore[no-any-return]

    def text(self, name: str) -> str:
        """Return a string. Raises: ZnodeError."""
        return self._of(name, str, "a string")  # type: ignore[no-any-return]

    def decimal(self, name: str) -> int:
        """Return an integer that is written as a string. Raises: ZnodeError."""
        return decimal(self.path, self.text(name), name)

    def timestamp_ms(self) -> int:
        """Return when the znode was written, 0 where it is missing: nothing depends on it."""
        try:
            return self.decimal("timestamp")
        except ZnodeError:
            return 0

    def ids(self, name: str) -> tuple[int, ...]:
        """Return a list of integers. Raises: ZnodeError."""
        return integers(self.path, self._of(name, list, "a list of integers"), name)

    def items(self, name: str) -> list[Any]:
        """Return a list. Raises: ZnodeError."""
        return self._of(name, list, "a list")  # type: ignore[no-any-return]

    def object(self, name: str) -> "Fields":
        """Return an object, nothing where the field is missing. Raises: ZnodeError."""
        if not self.has(name):
            return Fields(self.path, {})
        return Fields(self.path, self._of(name, dict, "an object"))

    def rest(self) -> Extra:
        """Return the fields that were not read."""
        if len(self._taken) >= len(self.values) and self._taken.issuperset(self.values):
            return NO_EXTRA
        return Map({name: each for name, each in self.values.items() if name not in self._taken})

    def _of(self, name: str, kind: type[Any], expected: str) -> Any:
        self._taken.add(name)
        if name not in self.values:
            raise self.fail(f"{name} is missing: expected {expected}")
        value = self.values[name]
        # Not `isinstance`: true and false are no integers here.
        if type(value) is not kind:
            raise self.fail(f"{name} is {shown(value)}: expected {expected}")
        return value


def parse(path: str, data: bytes) -> Fields:
    """Return the object in a znode's data. Raises: ZnodeError."""
    try:
        values = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ZnodeError(path, f"expected JSON, found {shown(bytes(data))}: {error}") from None
    except RecursionError:
        raise _nested(path) from None
    # A text with fewer brackets, as all but those of topics are, needs no look.
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > ZNODE_NESTING_MAX and _is_nested_beyond(values, ZNODE_NESTING_MAX):
        raise _nested(path)
    if not isinstance(values, dict):
        raise ZnodeError(path, f"expected a JSON object, found {shown(values)}")
    return Fields(path, values)


def written(values: dict[str, Any], extra: Extra = NO_EXTRA) -> bytes:
    """Return an object's JSON without blanks, in the order given, then the extra fields."""
    return msgspec.json.encode({**values, **extra} if extra else values)


def integers(path: str, values: object, what: str) -> tuple[int, ...]:
    """Return a list of integers as a tuple. Raises: ZnodeError."""
    if not isinstance(values, list) or not all(type(each) is int for each in values):
        raise ZnodeError(path, f"{what} is {shown(values)}: expected a list of integers")
    return tuple(values)


def decimal(path: str, text: str, what: str) -> int:
    """Return the integer that a text is. Raises: ZnodeError."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > DIGITS_MAX:
        raise ZnodeError(path, f"{what} is {shown(text)}: expected a decimal number")
    return int(text)


def _nested(path: str) -> ZnodeError:
    return ZnodeError(path, f"expected JSON of {ZNODE_NESTING_MAX} levels at most, found more")


def _is_nested_beyond(value: object, levels: int) -> bool:
    """Tell whether there is a list or an object below so many of them, one in another."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def shown(value: object) -> str:
    """Return a value for an error's text, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
