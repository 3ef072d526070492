"""Encodes and decodes declared messages at any of their versions.

The functions that do the work are compiled for each class and version on first use and kept.
Encoding fails with EncodeError (our bug), decoding with WireError (the peer's bytes).
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from ottla.wire.compile_decode import (
    Decoder,
    StepDecoder,
    compile_decoder,
    compile_step_decoder,
)
from ottla.wire.compile_encode import (
    Cut,
    Encoder,
    StepEncoder,
    compile_encoder,
    compile_step_encoder,
)
from ottla.wire.errors import EncodeError, WireError
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Array, Chunk, Records, StructSpec, spec_of

T = TypeVar("T")

UNLIMITED = 2**62
"""More elements than any buffer can hold."""

PARTS_JOINED_MIN = 4096
"""Parts of an encoded message that are joined before it goes on: each is an object of its own."""

_ENCODERS: dict[tuple[type, int], Encoder] = {}
_Kind = Callable[[Buffer], bytes | memoryview]

_DECODERS: dict[tuple[type, int], tuple[Decoder, _Kind]] = {}
"""With each, what to read from. Indexing bytes is faster than indexing a view, which is only
taken where RECORDS must not be copied."""


_STEP_ENCODERS: dict[tuple[type, int], StepEncoder] = {}
_STEP_DECODERS: dict[tuple[type, int], StepDecoder] = {}


def encode(message: object, version: int) -> bytes:
    """Return the bytes of a message; a RECORDS value must be made of bytes-like chunks."""
    parts, _ = encode_parts(message, version)
    try:
        return b"".join(parts)
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__}: {error}") from None


def encode_chunks(message: object, version: int) -> list[Chunk]:
    """Return the message as a list of chunks to send in order, RECORDS chunks uncopied."""
    chunks, _ = gather(*encode_parts(message, version))
    return chunks


def encode_parts(message: object, version: int) -> tuple[list[Any], list[Cut]]:
    """Return the message's parts, and which of them are chunks of RECORDS values."""
    cls = type(message)
    encoder = _ENCODERS.get((cls, version))
    if encoder is None:
        encoder = _ENCODERS[cls, version] = compile_encoder(cls, version)
    parts: list[Any] = []
    cuts: list[Cut] = []
    try:
        encoder(message, parts, cuts)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{cls.__name__} version {version}: {error}") from error
    return parts, cuts


def gather(parts: list[Any], cuts: list[Cut]) -> tuple[list[Chunk], int]:
    """Join what lies between the cuts, leave the parts at the cuts; return them and their size.

    The first chunk is always of bytes, maybe none.
    """
    chunks: list[Chunk] = []
    total = start = 0
    for cut, size in cuts:
        if cut > start or not chunks:
            joined = b"".join(parts[start:cut])
            chunks.append(joined)
            total += len(joined)
        chunks.append(parts[cut])
        total += size
        start = cut + 1
    if start < len(parts) or not chunks:
        joined = b"".join(parts[start:])
        chunks.append(joined)
        total += len(joined)
    return chunks, total


def decode(
    cls: type[T],
    buffer: Buffer,
    version: int,
    offset: int = 0,
    *,
    lenient: bool = False,
    elements_max: int = UNLIMITED,
) -> T:
    """Return the message that fills `buffer` from `offset` to its end.

    `lenient` lets bytes follow the message, as Kafka's brokers do with requests: librdkafka's
    Metadata v13 for all topics has three too many. RECORDS values are views of `buffer`, so it
    must stay unchanged while they are used; all else is copied. Raises WireError whatever is
    wrong with the bytes, TooManyElementsError where the arrays hold more than `elements_max`.
    """
    known = _DECODERS.get((cls, version))
    if known is None:
        view: _Kind = memoryview if holds_records(spec_of(cls)) else bytes
        known = _DECODERS[cls, version] = (compile_decoder(cls, version), view)
    decoder, kind = known
    try:
        data = kind(buffer)
        made, position = decoder(data, offset, elements_max)
    except (struct.error, IndexError):
        raise WireError(f"{cls.__name__} version {version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{cls.__name__} version {version}: {error}") from None
    if position != len(data) and not lenient:
        extra = len(data) - position
        raise WireError(f"{cls.__name__} version {version} is followed by {extra} bytes too many")
    message: T = made
    return message


def decode_in_steps(
    cls: type[T], data: bytes, version: int, offset: int, *, elements_max: int
) -> Generator[None, None, T]:
    """Return what a lenient `decode` of a message without RECORDS returns; yield between steps.

    Raises: WireError, TooManyElementsError.
    """
    decoder = _STEP_DECODERS.get((cls, version))
    if decoder is None:
        decoder = _STEP_DECODERS[cls, version] = compile_step_decoder(cls, version)
    try:
        made, _ = yield from decoder(data, offset, elements_max)
    except (struct.error, IndexError):
        raise WireError(f"{cls.__name__} version {version} ends too early") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{cls.__name__} version {version}: {error}") from None
    message: T = made
    return message


def encode_parts_in_steps(
    message: object, version: int
) -> Generator[None, None, tuple[list[Any], list[Cut]]]:
    """Return what `encode_parts` returns, joined if there are many; yield between steps."""
    cls = type(message)
    encoder = _STEP_ENCODERS.get((cls, version))
    if encoder is None:
        encoder = _STEP_ENCODERS[cls, version] = compile_step_encoder(cls, version)
    done: list[Any] = []
    parts: list[Any] = []
    cuts: list[Cut] = []
    has_records = holds_records(spec_of(cls))
    try:
        for _ in encoder(message, parts, cuts):
            if len(parts) >= PARTS_JOINED_MIN and not has_records:
                done.append(b"".join(parts))
                parts.clear()
            yield
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{cls.__name__} version {version}: {error}") from error
    return (done + parts if done else parts), cuts


def records_view(records: Records | None) -> memoryview:
    """Return a decoded RECORDS value as the view it is; null is an empty one."""
    if records is None:
        return memoryview(b"")
    assert isinstance(records, bytes | bytearray | memoryview), "not a decoded value"
    return memoryview(records)


def holds_records(spec: StructSpec) -> bool:
    """Return whether the message has a RECORDS field anywhere."""
    for each in spec.fields:
        inner = each.type.element if isinstance(each.type, Array) else each.type
        if isinstance(inner, type):
            if holds_records(spec_of(inner)):
                return True
        elif inner.name == "records":
            return True
    return False
