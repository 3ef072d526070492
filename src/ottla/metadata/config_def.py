"""The definition of a configuration property: its type, default, allowed values and documentation.

Values are parsed as Kafka parses them: text is trimmed, booleans are true or false in
any case, lists are split at commas. Source: ConfigDef.java; ConfigEntry.ConfigType.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
from typing import Any, Final

from ottla.base.errors import ApiError, Error

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class Type(IntEnum):
    """A property's type; DescribeConfigs' values."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(IntEnum):
    """Whether a broker's property can be changed while it runs, and for which brokers."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on a parsed value; `expected` completes "expected …"."""

    expected: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One property. `default` is typed; None = not set."""

    name: str
    type: Type
    default: Any
    doc: str
    check: Check | None = None
    update: Update = Update.READ_ONLY
    internal: bool = False
    """Left out of listings: for tests, as Kafka's internal properties are."""

    @property
    def expected(self) -> str:
        """Return a text with the values that the property takes."""
        kind = _KINDS[self.type]
        return kind if self.check is None else f"{kind} {self.check.expected}".strip()


@dataclass(frozen=True, slots=True)
class Problem:
    """A property with an invalid value."""

    name: str
    value: str | None
    reason: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f"={self.value}"
        return f"{self.name}{shown}: {self.reason}"


class ConfigError(ValueError):
    """Properties that a node cannot start with: each with its name, value and what is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """A set of properties."""

    keys: Mapping[str, ConfigKey]
    defaults: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "defaults", {key.name: key.default for key in self.keys.values()})

    @classmethod
    def of(cls, *keys: ConfigKey) -> "ConfigDef":
        """Make a set; a name must come once, and a default must pass its own check."""
        by_name = {key.name: key for key in keys}
        assert len(by_name) == len(keys), "a property is defined twice"
        for key in keys:
            if key.default is not None and key.check is not None:
                assert key.check.accepts(key.default), key.name
        return cls(by_name)

    def similar(self, name: str) -> str | None:
        """Return the property whose name is most like `name`."""
        close = get_close_matches(name, self.keys, n=1, cutoff=0.8)
        return close[0] if close else None


def parse_value(key: ConfigKey, text: str) -> Any:
    """Return the typed value of `text`; raise ConfigError with what was expected."""
    try:
        value = _PARSERS[key.type](text.strip())
    except ValueError:
        value = None
    if value is None or (key.check is not None and not key.check.accepts(value)):
        raise ConfigError([Problem(key.name, text, f"expected {key.expected}")])
    return value


def format_value(type_: Type, value: Any) -> str | None:
    """Return a typed value as Kafka's tools print it; `parse_value` reads it back."""
    if value is None:
        return None
    if type_ is Type.BOOLEAN:
        return "true" if value else "false"
    if type_ is Type.LIST:
        return ",".join(value)
    if type_ is Type.DOUBLE:
        return _double_text(value)
    return str(value)


def invalid_config(message: str) -> ApiError:
    """Return the error for an invalid configuration."""
    return ApiError(Error.INVALID_CONFIG, message)


def _double_text(value: float) -> str:
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


def _integer_parser(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        # int() alone would take "1_000" and other scripts' digits.
        if not _INTEGER.match(text):
            raise ValueError(text)
        value = int(text)
        if not -limit <= value < limit:
            raise ValueError(text)
        return value

    return parse


def _parse_double(text: str) -> float:
    value = float(text)
    if "_" in text or value != value:
        raise ValueError(text)
    return value


def parse_list(text: str) -> tuple[str, ...]:
    """Split at commas; blanks around them do not count; an empty text is an empty list."""
    return tuple(re.split(r"\s*,\s*", text.strip())) if text.strip() else ()


_PARSERS: Final[dict[Type, Callable[[str], Any]]] = {
    Type.BOOLEAN: _parse_boolean,
    Type.STRING: str,
    Type.INT: _integer_parser(32),
    Type.SHORT: _integer_parser(16),
    Type.LONG: _integer_parser(64),
    Type.DOUBLE: _parse_double,
    Type.LIST: parse_list,
    Type.CLASS: str,
    Type.PASSWORD: str,
}
_KINDS: Final = {
    Type.BOOLEAN: "true or false",
    Type.STRING: "text",
    Type.INT: "a 32-bit integer",
    Type.SHORT: "a 16-bit integer",
    Type.LONG: "a 64-bit integer",
    Type.DOUBLE: "a number",
    Type.LIST: "a list with commas",
    Type.CLASS: "a class name",
    Type.PASSWORD: "a password",
}
assert set(_PARSERS) == set(_KINDS) == set(Type)


def at_least(minimum: float) -> Check:
    """Return the check for numbers from `minimum` up."""
    return Check(f"of at least {minimum}", lambda value: bool(value >= minimum))


def between(minimum: float, maximum: float) -> Check:
    """Return the check for numbers from `minimum` to `maximum`."""
    return Check(f"from {minimum} to {maximum}", lambda value: bool(minimum <= value <= maximum))


def one_of(*names: str) -> Check:
    """Return the check for one of a few words, written exactly so."""
    return Check(f"out of {', '.join(names)}", lambda value: value in names)


def each_of(*names: str) -> Check:
    """Return the check for a list of words out of a few."""
    return Check(f"out of {', '.join(names)}", lambda value: all(each in names for each in value))


# What properties of topics and of brokers have in common.
COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVELS: Final = Check("from 1 to 9, or -1", lambda value: bool(1 <= value <= 9 or value == -1))
LZ4_LEVELS: Final = between(1, 17)
ZSTD_LEVELS: Final = between(-131_072, 22)
SEGMENT_BYTES_MIN: Final = 1024 * 1024
DAY_MS: Final = 24 * 3_600_000
