"""The codecs of record batches, with bounded decompression.

The data comes from peers, so every decompression has a limit and uses little more memory than that,
whatever size the data claims. All functions are stateless and may run in any thread (zstd's
contexts may not be shared, so none is kept).

Sources: Kafka's CompressionType; KIP-57 (lz4: independent blocks, correct header checksum),
KIP-110 (zstd), KIP-390 (levels); the Xerial framing of snappy-java; RFC 1952; RFC 8878.
"""

import mmap
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame

from ottla.records.errors import CorruptBatch, RecordsTooLarge

Buffer = bytes | bytearray | memoryview
Expanded = bytes | bytearray | mmap.mmap

DECOMPRESSED_BYTES_MAX: Final = 256 << 20
"""The default limit of a decompressed batch."""


PIECE_BYTES: Final = 1 << 20
"""Decompressed in one call; larger results get memory of their own."""


class Codec(IntEnum):
    """The three low bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


NAMES: Final = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
KEEP_PRODUCERS_CODEC: Final = "producer"


def codec_of(name: str) -> Codec | None:
    """Return the codec that a `compression.type` names; None = as the producer sent it.

    Raises: ValueError for any other name.
    """
    if name == KEEP_PRODUCERS_CODEC:
        return None
    if name not in NAMES:
        raise ValueError(f"{name!r} is not a codec: expected {', '.join((*NAMES, 'producer'))}")
    return NAMES[name]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` compressed as Kafka's Java client would read it; None = the usual level."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return the original bytes; see `expand`."""
    expanded, size = expand(codec, data, limit)
    if isinstance(expanded, bytes):
        return expanded
    with memoryview(expanded) as view:
        return bytes(view[:size])


def expand(codec: Codec, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> tuple[Expanded, int]:
    """Return the original bytes and their size, for reading in place.

    The buffer may have further bytes, which are undefined. A large one is never copied or cleared
    as a whole: that would hold the GIL, and other threads, for tens of milliseconds.

    Raises: CorruptBatch where `data` is damaged, its subclass RecordsTooLarge where it would exceed
            `limit` bytes, or has more blocks than `blocks_max` allows; MemoryError.
    """
    if codec is Codec.NONE:
        if len(data) > limit:
            raise _too_long(limit)
        return bytes(data), len(data)
    return _DECOMPRESSORS[codec](data, limit)


class _Pieces:
    """The pieces of decompressed data: joined while they are small, else in an mmap."""

    __slots__ = ("_limit", "_parts", "_room", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes | mmap.mmap] = []
        self._room: mmap.mmap | None = None
        self.size = 0

    def add(self, part: bytes | mmap.mmap) -> None:
        """Take the next piece. Raises: RecordsTooLarge."""
        begin, self.size = self.size, self.size + len(part)
        if self.size > self._limit:
            raise _too_long(self._limit)
        if self._room is not None:
            self._room[begin : self.size] = part
            return
        self._parts.append(part)
        if self.size > PIECE_BYTES:
            self._room = _memory(self._limit + 1)
            self._room.write(b"".join(self._parts))
            self._parts = []

    def all(self) -> tuple[Expanded, int]:
        """Return all pieces, one behind the other, and their size."""
        if self._room is not None:
            return self._room, self.size
        return b"".join(self._parts), self.size


def _memory(size: int) -> mmap.mmap:
    """Return so many bytes of memory. Raises: MemoryError."""
    try:
        return mmap.mmap(-1, size)
    except OSError as error:
        # As an OSError it would be taken for one of the disk, and cost the log directory.
        raise MemoryError(f"no {size} bytes for decompressed records: {error}") from None


def blocks_max(limit: int) -> int:
    """Return the maximum number of blocks in data that decompresses to `limit` bytes at most.

    Each block costs a step, however small it is; writers put 32 KB and more into one.
    """
    return 64 + limit // 1024


def _too_long(limit: int) -> RecordsTooLarge:
    return RecordsTooLarge(f"the records decompress to more than the limit of {limit} bytes")


def check_single(codec: Codec, data: Buffer) -> None:
    """Raise CorruptBatch for data that `expand` accepts, but not every reader.

    Examples are several frames or streams, lz4's linked blocks, dictionaries: no Kafka client
    writes them, and some clients, or Kafka's own broker, fail on them. The data must have passed
    `expand`.
    """
    view = memoryview(data)
    if codec is Codec.LZ4:
        if not view[4] & _LZ4_INDEPENDENT or view[4] & _LZ4_DICTIONARY:
            raise CorruptBatch("lz4 data of linked blocks, or with a dictionary")
    elif codec is Codec.ZSTD:
        is_frame = view[:4] == _ZSTD_MAGIC and not view[4] & 3
        if not is_frame or _zstd_frame(view, 0, len(view))[0] != len(view):
            raise CorruptBatch("zstd data of several frames, or with a dictionary")
    elif codec is Codec.SNAPPY and view[:8] == _XERIAL_MAGIC:
        position = len(_XERIAL_HEADER)
        is_single = view[:position] == _XERIAL_HEADER
        while is_single and position < len(view):
            is_single = view[position : position + 8] != _XERIAL_MAGIC
            position += 4 + int.from_bytes(view[position : position + 4], "big")
        if not is_single:
            raise CorruptBatch("snappy data of several streams, or of another version")


# --- gzip -----------------------------------------------------------------------------------

_GZIP_WINDOW = 31
"""zlib's code for a 32 KB window with the gzip wrapper."""


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    # gzip.compress writes the time of day into the header; equal input must give equal output.
    coder = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return coder.compress(data) + coder.flush()


def _gzip_decompress(data: Buffer, limit: int) -> tuple[Expanded, int]:
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    pieces = _Pieces(limit)
    rest: Buffer = data
    while not decoder.eof:
        try:
            part = decoder.decompress(rest, PIECE_BYTES)
        except zlib.error as error:
            raise CorruptBatch(f"bad gzip data: {error}") from None
        pieces.add(part)
        rest = decoder.unconsumed_tail
        if not part and not rest and not decoder.eof:
            raise CorruptBatch("truncated gzip data")
    if decoder.unused_data:
        # No producer writes several members, and reading thousands of empty ones is quadratic.
        raise CorruptBatch(f"{len(decoder.unused_data)} bytes follow the gzip member")
    return pieces.all()


# --- snappy ---------------------------------------------------------------------------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 64
"""One element of snappy takes at least 2 bytes and makes at most 64."""
_length_of = struct.Struct(">i").unpack_from


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    assert level is None, "snappy has no levels"
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


def _snappy_block(block: memoryview, made: int, limit: int) -> bytes | mmap.mmap:
    """Decompress one raw block, after `made` bytes of earlier ones.

    A large one is decompressed into an mmap: what malloc gave for it, the arenas of the workers'
    threads would keep, up to 64 MB each.
    """
    try:
        length = cramjam.snappy.decompress_raw_len(block)
        if made + length > limit:
            raise _too_long(limit)
        if length > len(block) * _SNAPPY_RATIO_MAX:
            raise CorruptBatch(f"{len(block)} bytes of snappy cannot make {length}")
        if length <= PIECE_BYTES:
            return bytes(cramjam.snappy.decompress_raw(block))
        target = _memory(length)
        cramjam.snappy.decompress_raw_into(block, target)
        return target
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"bad snappy data: {error}") from None


def _snappy_decompress(data: Buffer, limit: int) -> tuple[Expanded, int]:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        whole = _snappy_block(view, 0, limit)  # Raw, as librdkafka and others write it.
        return whole, len(whole)
    pieces = _Pieces(limit)
    position = 0
    blocks = blocks_max(limit)
    while position < len(view):
        blocks -= 1
        if blocks < 0:
            raise _too_long(limit)
        if view[position : position + 8] == _XERIAL_MAGIC:  # Streams may follow one another.
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(view):
            raise CorruptBatch("truncated snappy data")
        (length,) = _length_of(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"a snappy block has length {length}")
        pieces.add(_snappy_block(view[position : position + length], pieces.size, limit))
        position += length
    if position != len(view):
        raise CorruptBatch("truncated snappy data")
    return pieces.all()


# --- lz4 ------------------------------------------------------------------------------------

_LZ4_KAFKA_DEFAULT_LEVEL = 9
"""Kafka calls its fast compressor level 9, and uses the slow ones for every other number."""
_LZ4_FIRST_READ_BYTES = 64 * 1024
_LZ4_INDEPENDENT = 0x20
_LZ4_DICTIONARY = 0x01
"""Flags of a frame, in its fifth byte."""


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_KAFKA_DEFAULT_LEVEL
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast else level,
        block_linked=False,  # Kafka's Java side cannot read linked blocks.
        store_size=False,
    )
    return compressed


def _lz4_decompress(data: Buffer, limit: int) -> tuple[Expanded, int]:
    decoder = lz4.frame.LZ4FrameDecompressor()
    pieces = _Pieces(limit)
    chunk: Buffer = data
    # The decoder reserves all that it may return: ask for little first, then for more.
    ask = max(_LZ4_FIRST_READ_BYTES, 4 * len(data))
    while not decoder.eof:
        try:
            part = decoder.decompress(
                chunk, max_length=min(ask, limit - pieces.size + 1, PIECE_BYTES)
            )
        except (RuntimeError, EOFError, ValueError) as error:
            raise CorruptBatch(f"bad lz4 data: {error}") from None
        if not part and not decoder.eof and decoder.needs_input:
            raise CorruptBatch("truncated lz4 data")
        pieces.add(part)
        chunk = b""
        ask *= 2
    if decoder.unused_data:
        raise CorruptBatch(f"{len(decoder.unused_data)} bytes follow the lz4 frame")
    return pieces.all()


# --- zstd -----------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def _zstd_decompress(data: Buffer, limit: int) -> tuple[Expanded, int]:
    view = memoryview(data)
    bound = _zstd_bound(view, limit)
    # One byte beyond the limit separates "exactly the limit" from "more than that".
    room = min(bound, limit + 1)
    target = bytearray(room) if room <= PIECE_BYTES else _memory(room)
    try:
        length = cramjam.zstd.decompress_into(view, target)
    except cramjam.DecompressionError as error:
        if bound > limit:
            raise _too_long(limit) from None
        raise CorruptBatch(f"bad zstd data: {error}") from None
    if length > limit:
        raise _too_long(limit)
    return target, length


def _zstd_bound(view: memoryview, limit: int) -> int:
    """Return a size that the frames in `view` cannot exceed, by adding up their blocks.

    Streaming writers, Kafka's Java client among them, store no content size, and a stored one
    may lie; a block however makes at most 128 KB, and its header says where the next one is.
    """
    position = 0
    total = 0
    blocks = blocks_max(limit)
    try:
        while position < len(view):
            magic = int.from_bytes(view[position : position + 4], "little")
            blocks -= 1
            if magic in _ZSTD_SKIPPABLE:
                position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
                continue
            if view[position : position + 4] != _ZSTD_MAGIC:
                raise CorruptBatch("bad zstd data: no frame where one should begin")
            position, size, blocks = _zstd_frame(view, position, blocks)
            if blocks < 0:
                raise _too_long(limit)
            total += size
    except IndexError:
        raise CorruptBatch("truncated zstd data") from None
    if position != len(view) or not position:
        raise CorruptBatch("truncated zstd data")
    return total


def _zstd_frame(view: memoryview, position: int, blocks: int) -> tuple[int, int, int]:
    """Return where the frame at `position` ends, a bound for what it makes, and blocks left."""
    descriptor = view[position + 4]
    single_segment = descriptor >> 5 & 1
    position += 5 + (1 - single_segment)  # The window's size: one byte, unless all is one segment.
    position += (0, 1, 2, 4)[descriptor & 3]  # The dictionary's id.
    position += (single_segment, 2, 4, 8)[descriptor >> 6]  # The content's size.
    size = 0
    last = 0
    while not last and blocks >= 0:
        blocks -= 1
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        if kind == 1:  # One byte, repeated.
            size += length
            position += 4
        else:
            size += length if kind == 0 else _ZSTD_BLOCK_BYTES_MAX
            position += 3 + length
    # A checksum may end the frame.
    return position + 4 * (descriptor >> 2 & 1), size, blocks


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], tuple[Expanded, int]]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
assert set(_COMPRESSORS) == set(_DECOMPRESSORS) == set(Codec) - {Codec.NONE}
