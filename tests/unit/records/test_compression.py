"""Every codec must read what Kafka's clients write, write what they read, and stay bounded.

Method: round trips; aiokafka's and kafka-python's own codecs as counterparts; the exact framing
that Java needs; bombs, cuts and flipped bits, with the memory watched.
"""

import contextlib
import errno
import mmap
import random
import struct
import tracemalloc
import zlib

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.compression import Codec, codec_of, compress, decompress, expand
from ottla.records.errors import CorruptBatch, RecordsTooLarge
from tests.drawn import examples

CODECS = list(Codec)
PACKERS = CODECS[1:]
SIZES = (0, 1, 100, 32 * 1024, 32 * 1024 + 1, 200_000)
MEGABYTE = 1 << 20

THEIRS = {
    Codec.GZIP: [(m.gzip_encode, m.gzip_decode) for m in (aiokafka.codec, kafka.codec)],
    Codec.SNAPPY: [(aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode)],
    Codec.LZ4: [(m.lz4_encode, m.lz4_decode) for m in (aiokafka.codec, kafka.codec)],
    Codec.ZSTD: [(aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode)],
}


def sample(size: int) -> bytes:
    """Return bytes of which half compress well and half do not."""
    rng = random.Random(size)
    return (b"a line of a log, " * (size // 34 + 1))[: size // 2] + rng.randbytes(size - size // 2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", SIZES)
def test_round_trip(codec: Codec, size: int) -> None:
    data = sample(size)
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, size) == data
    assert decompress(codec, memoryview(bytearray(packed)), size + 1) == data
    if size:
        with pytest.raises(CorruptBatch, match="limit"):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", PACKERS)
@pytest.mark.parametrize("size", SIZES)
def test_other_clients_agree(codec: Codec, size: int) -> None:
    data = sample(size)
    for encode, decode in THEIRS[codec]:
        assert decompress(codec, encode(data), size) == data
        if size:  # python-snappy's stand-ins refuse an empty stream.
            assert decode(compress(codec, data)) == data


@given(st.binary(max_size=2000), st.sampled_from(CODECS))
def test_any_bytes_return(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-5, 1, 22))]
)
def test_levels(codec: Codec, levels: tuple[int, ...]) -> None:
    data = sample(100_000)
    for level in levels:
        assert decompress(codec, compress(codec, data, level), len(data)) == data


def test_names() -> None:
    assert [codec_of(codec.name.lower()) for codec in CODECS] == CODECS
    assert codec_of("uncompressed") is Codec.NONE
    assert codec_of("producer") is None
    with pytest.raises(ValueError, match="'brotli' is not a codec"):
        codec_of("brotli")


def test_equal_input_gives_equal_output() -> None:
    for codec in CODECS:
        assert compress(codec, sample(1000)) == compress(codec, sample(1000))
    assert compress(Codec.GZIP, b"x")[4:8] == bytes(4)  # No time of day.


def test_lz4_blocks_are_independent() -> None:
    """Kafka's Java reader refuses linked blocks (KIP-57)."""
    flags = compress(Codec.LZ4, sample(200_000))[4]
    assert flags & 0x20
    linked = lz4.frame.compress(sample(200_000), block_linked=True)
    assert decompress(Codec.LZ4, linked, 200_000) == sample(200_000)  # We do read them.


def test_snappy_framing() -> None:
    data = sample(70_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert decompress(Codec.SNAPPY, packed + packed, 140_000) == data + data
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Codec.SNAPPY, raw, 70_000) == data


def test_a_large_block_of_snappy_leaves_the_memory_with_its_records() -> None:
    """With malloc each thread that has decompressed one would keep the memory of it."""
    data = sample(3 * MEGABYTE)
    raw = bytes(cramjam.snappy.compress_raw(data))
    expanded, size = expand(Codec.SNAPPY, raw, 3 * MEGABYTE)
    assert isinstance(expanded, mmap.mmap)
    assert expanded[:size] == data
    framed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", len(raw)) + raw
    assert decompress(Codec.SNAPPY, framed + framed, 6 * MEGABYTE) == data + data
    for damaged in (raw[:-5], raw + b"\x00\x00"):
        with pytest.raises(CorruptBatch, match="bad snappy data"):
            expand(Codec.SNAPPY, damaged, 3 * MEGABYTE)


def test_zstd_sizes_may_be_absent_split_or_skipped() -> None:
    writer = cramjam.zstd.Compressor(3)
    writer.compress(sample(300_000))
    streamed = bytes(writer.finish())  # As Java does, no content size.
    assert decompress(Codec.ZSTD, streamed, 300_000) == sample(300_000)
    skippable = struct.pack("<II", 0x184D2A55, 3) + b"abc"
    both = skippable + streamed + compress(Codec.ZSTD, b"tail")
    assert decompress(Codec.ZSTD, both, 300_004) == sample(300_000) + b"tail"


def zstd_bomb() -> bytes:
    """Return 1,000 repeated-byte blocks of 128 KB in a frame that says it holds 5 bytes."""
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    return b"\x28\xb5\x2f\xfd" + b"\x00\x58" + block * 1000 + b"\x01\x00\x00"


BOMBS = [(codec, compress(codec, bytes(64 * MEGABYTE))) for codec in PACKERS] + [
    (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(100)),
    (Codec.SNAPPY, b"\x80\x80\x20" + bytes(100)),
    (Codec.ZSTD, zstd_bomb()),
    (Codec.LZ4, lz4.frame.compress(bytes(64 * MEGABYTE), store_size=True)),
]


@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_bomb_takes_little_more_memory_than_its_limit(codec: Codec, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, bomb, MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEGABYTE


def test_many_small_pieces_stay_linear() -> None:
    """A member or block a byte of content: refused, or read in one pass."""
    member = compress(Codec.GZIP, b"")
    with pytest.raises(CorruptBatch, match="follow the gzip member"):
        decompress(Codec.GZIP, member * 50_000, MEGABYTE)
    frame = compress(Codec.LZ4, b"")
    with pytest.raises(CorruptBatch, match="follow the lz4 frame"):
        decompress(Codec.LZ4, frame * 50_000, MEGABYTE)
    frames = compress(Codec.ZSTD, b"a") * 5_000
    assert decompress(Codec.ZSTD, frames, 32 * MEGABYTE) == b"a" * 5_000
    block = struct.pack(">i", 3) + b"\x01\x00a"
    packed = compress(Codec.SNAPPY, b"") + block * 20_000
    assert decompress(Codec.SNAPPY, packed, 32 * MEGABYTE) == b"a" * 20_000


def test_more_pieces_than_the_limit_is_worth_are_too_many() -> None:
    """Each costs a step of Python, also where it makes nothing."""
    nothing = compress(Codec.ZSTD, b"")
    block = struct.pack(">i", 1) + b"\x00"
    for codec, packed in (
        (Codec.ZSTD, nothing * 5_000),
        (Codec.SNAPPY, compress(Codec.SNAPPY, b"") + block * 5_000),
    ):
        assert decompress(codec, packed, 32 * MEGABYTE) == b""
        with pytest.raises(RecordsTooLarge):
            decompress(codec, packed, MEGABYTE)


@pytest.mark.parametrize("codec", PACKERS)
def test_a_cut_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, sample(3000))
    for length in (*range(40), len(packed) // 2, len(packed) - 1):
        if codec is Codec.SNAPPY and length == 16:
            continue  # Exactly the header: a stream of no blocks.
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length], 3000)


@pytest.mark.parametrize("codec", PACKERS)
@settings(max_examples=examples(300))
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_corrupt_or_harmless(codec: Codec, at: int, bit: int) -> None:
    packed = bytearray(compress(codec, sample(3000)))
    packed[at % len(packed)] ^= 1 << bit
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, packed, 100_000)) <= 100_000


@settings(max_examples=examples(300))
@given(st.binary(max_size=100), st.sampled_from(PACKERS))
def test_noise_is_corrupt_or_short(noise: bytes, codec: Codec) -> None:
    with contextlib.suppress(CorruptBatch):
        assert len(decompress(codec, noise, 1000)) <= 1000


def test_a_hand_made_gzip_stream() -> None:
    stored = b"\x01" + struct.pack("<HH", 2, 2 ^ 0xFFFF) + b"hi"
    head = bytes.fromhex("1f8b08000000000000ff")
    packed = head + stored + struct.pack("<II", zlib.crc32(b"hi"), 2)
    assert decompress(Codec.GZIP, packed, 2) == b"hi"
    with pytest.raises(CorruptBatch, match="bad gzip data"):
        decompress(Codec.GZIP, packed[:-1] + b"\x01", 2)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_lack_of_memory_is_no_error_of_the_disk(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a log is read, an OSError takes its log directory offline."""
    packed = compress(codec, bytes(2 * MEGABYTE))

    def none_left(*_: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", none_left)
    with pytest.raises(MemoryError):
        decompress(codec, packed)
