"""Errors for request values that the protocol cannot encode: the field and its allowed values.

Options are checked when parsed. This covers values from files and from brokers.
"""

from collections.abc import Iterator
from typing import Any

from ottla.cli.errors import CommandError, UsageError, shown
from ottla.wire.errors import EncodeError
from ottla.wire.schema import STRING, Array, Primitive, WireType, spec_of

_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
"""Bits of signed integers, by struct format letter."""


def encode_failure(request: object, error: EncodeError) -> CommandError | UsageError:
    """Return the exception for a request that cannot be encoded. It names the field where known.

    Text that is not UTF-8 can only come from the command line: a UsageError.
    """
    what = type(request).__name__.removesuffix("Request")
    for path, type_, value in _values(request, what):
        if type_ is STRING and isinstance(value, str) and not is_text(value):
            return UsageError(f"{shown(value)}: expected text in UTF-8 ({path})")
        bits = _BITS.get(type_.code)
        if bits is not None and isinstance(value, int):
            highest = 2 ** (bits - 1) - 1
            if not -highest - 1 <= value <= highest:
                return CommandError(f"{path} {value}: expected {-highest - 1} to {highest}")
    return CommandError(f"{what} cannot be encoded: {error}")


def is_text(value: str) -> bool:
    """Tell whether the value can be encoded in UTF-8; an argument of other bytes cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _values(message: Any, path: str) -> Iterator[tuple[str, Primitive, Any]]:
    for each in spec_of(type(message)).fields:
        yield from _parts(each.type, getattr(message, each.name), f"{path}.{each.name}")


def _parts(type_: WireType, value: Any, path: str) -> Iterator[tuple[str, Primitive, Any]]:
    if value is None:
        return
    if isinstance(type_, Array):
        for each in value:
            yield from _parts(type_.element, each, path)
    elif isinstance(type_, Primitive):
        yield path, type_, value
    else:
        yield from _values(value, path)
