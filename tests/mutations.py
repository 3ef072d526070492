"""Produced batches with something wrong in them, under a checksum that is right.

Method: sound batches of several shapes and codecs; of each, header fields get other values, the
records' bytes are changed before they are compressed, the compressed bytes are changed after, and
what only an odd or hostile writer makes is made by hand. All from one seed.
"""

import struct
from collections.abc import Iterator
from random import Random
from typing import Final

import cramjam
import lz4.frame

from ottla.records.batch import BatchHeader, parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import Codec, compress
from ottla.records.record import record_bytes
from ottla.records.varint import encode_varint

EXTREMES: Final = (0, 1, -1, -2, 5, 63, 64, 8191, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63))
INT16, INT32, INT64 = (1 << 15, 1 << 31, 1 << 63)
FIELDS: Final = {
    "attributes": INT16,
    "last_offset_delta": INT32,
    "base_timestamp": INT64,
    "max_timestamp": INT64,
    "producer_id": INT64,
    "producer_epoch": INT16,
    "base_sequence": INT32,
    "record_count": INT32,
}


def sound(now_ms: int) -> dict[str, bytes]:
    """Return batches that anybody may send."""
    rows = [(b"key-%d" % i, b"value %d" % i * (i % 5), (), now_ms + i) for i in range(12)]
    headers = (("trace", b"0123456789"), ("none", None), ("é", b""))
    shapes = {
        "one": [(b"k", b"v", (), now_ms)],
        "alike": [(b"k%02d" % i, b"v" * 20, (), now_ms + i // 9) for i in range(90)],
        "keys": rows,
        "headers": [
            (key, value, headers[: 1 + i % 3], time) for i, (key, value, _, time) in enumerate(rows)
        ],
        "nulls": [(b"k", None, (), now_ms - i) for i in range(5)],
    }
    found = {
        f"{name}, {codec.name}": encode_batch(shape, codec=codec)
        for name, shape in shapes.items()
        for codec in Codec
    }
    idempotent = {"producer_id": 1000, "producer_epoch": 0, "base_sequence": 0}
    found["idempotent"] = encode_batch(rows, **idempotent)
    return found


def mutated(seed: int, count: int, now_ms: int) -> Iterator[tuple[str, bytes]]:
    """Yield `count` batches with what was done to them; some are sound after all."""
    random = Random(seed)
    originals = sound(now_ms)
    yield from originals.items()
    yield from by_hand(now_ms).items()
    names = sorted(originals)
    for number in range(count):
        name = random.choice(names)
        batch = originals[name]
        kind = random.choice(KINDS)
        yield f"{number}: {name}, {kind.__name__}", kind(random, batch)


def _fields(random: Random, batch: bytes) -> bytes:
    header = parse_header(batch)
    changed = {}
    for _ in range(random.choice([1, 1, 2])):
        name = random.choice(sorted(FIELDS))
        bound = FIELDS[name]
        value = getattr(header, name)
        new = random.choice([value + 1, value - 1, value ^ 1 << random.randrange(16), *EXTREMES])
        changed[name] = (new + bound) % (2 * bound) - bound
    return seal(header._replace(**changed), batch[61:])


def _counts(random: Random, batch: bytes) -> bytes:
    header = parse_header(batch)
    count = random.choice(
        [header.record_count + 1, header.record_count - 1, 1, 2, 1000, 30_000_000]
    )
    return seal(header._replace(record_count=count, last_offset_delta=count - 1), batch[61:])


def _records(random: Random, batch: bytes) -> bytes:
    """Change bytes of the records themselves, and compress them again."""
    header = parse_header(batch)
    data = bytearray(record_bytes(batch, 0, header))
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        at = random.randrange(len(data))
        data[at] = random.choice([0, 1, 2, 3, 127, 128, 255, data[at] ^ 1 << random.randrange(8)])
    return seal(header, compress(header.compression, data))


def _lengths(random: Random, batch: bytes) -> bytes:
    """Cut, extend, repeat or move bytes within the records."""
    header = parse_header(batch)
    data = record_bytes(batch, 0, header)
    at, end = sorted(random.choices(range(len(data) + 1), k=2))
    data = random.choice(
        [
            data[:at],
            data[:at] + data[end:],
            data + data[at:end],
            data[:at] + random.choice(VARINTS) + data[at + 1 :],
            data[:at] + random.choice(VARINTS) + data[at:],
            data + bytes(random.randrange(1, 9)),
        ]
    )
    return seal(header, compress(header.compression, data))


def _compressed(random: Random, batch: bytes) -> bytes:
    """Change or cut the bytes as they are sent."""
    data = bytearray(batch[61:])
    if random.random() < 0.3:
        del data[random.randrange(len(data)) :]
    else:
        for _ in range(random.choice([1, 1, 2])):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return seal(parse_header(batch), bytes(data))


VARINTS: Final = (
    *(encode_varint(value) for value in EXTREMES),
    b"\x80\x00",
    b"\x81\x80\x80\x80\x00",
    b"\xff" * 10,
    b"\xff" * 9 + b"\x01",
)
KINDS: Final = (_fields, _counts, _records, _records, _lengths, _compressed)


def _record(*fields: int | bytes) -> bytes:
    body = b"\0" + b"".join(f if isinstance(f, bytes) else encode_varint(f) for f in fields)
    return encode_varint(len(body)) + body


def by_hand(now_ms: int) -> dict[str, bytes]:
    """Return what no accident makes."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, now_ms, now_ms, -1, -1, -1, 1)
    end = (4, b"key!", 5, b"value", 0)
    sections = {
        "negative timestamp delta": _record(-now_ms - 5, 0, *end),
        "timestamp beyond microseconds": _record(2**62, 0, *end),
        "timestamp beyond 64 bits": _record(2**63 - 1, 0, *end),
        "offset delta 1": _record(0, 1, *end),
        "offset delta -1": _record(0, -1, *end),
        "offset delta 2^31 - 1": _record(0, 2**31 - 1, *end),
        "key of length -2": _record(0, 0, -2, 1, b"v", 0),
        "value of length -2": _record(0, 0, 1, b"k", -2, 0),
        "key beyond the record": _record(0, 0, 400, b"k", 1, b"v", 0),
        "-1 headers": _record(0, 0, 1, b"k", 1, b"v", -1),
        "headers that are not there": _record(0, 0, 1, b"k", 1, b"v", 7),
        "2^31 - 1 headers": _record(0, 0, 1, b"k", 1, b"v", 2**31 - 1),
        "header without a key": _record(0, 0, 1, b"k", 1, b"v", 1, -1, 1, b"h"),
        "header key that is not UTF-8": _record(0, 0, 1, b"k", 1, b"v", 1, 2, b"\xff\xfe", 0),
        "header value of length -2": _record(0, 0, 1, b"k", 1, b"v", 1, 1, b"h", -2),
        "empty header key": _record(0, 0, 1, b"k", 1, b"v", 1, 0, 0),
        "attributes of a record": _record(0, 0, *end).replace(b"\0", b"\xff", 1),
        "overlong varints": b"\x16\0" + b"\x80\0" * 2 + b"\x02k\x02v" + b"\x80\0",
    }
    good = _record(0, 0, *end)
    long = _record(0, 0, 1, b"k", 100_000, bytes(100_000), 0)
    linked = lz4.frame.compress(long, block_linked=True, store_size=False)
    odd = {
        "lz4 of linked blocks": (Codec.LZ4, bytes(linked)),
        "lz4 that says its size": (Codec.LZ4, bytes(lz4.frame.compress(good, store_size=True))),
        "two lz4 frames": (
            Codec.LZ4,
            compress(Codec.LZ4, good[:3]) + compress(Codec.LZ4, good[3:]),
        ),
        "two gzip members": (
            Codec.GZIP,
            compress(Codec.GZIP, good[:3]) + compress(Codec.GZIP, good[3:]),
        ),
        "two zstd frames": (
            Codec.ZSTD,
            compress(Codec.ZSTD, good[:3]) + compress(Codec.ZSTD, good[3:]),
        ),
        "zstd behind a skippable frame": (
            Codec.ZSTD,
            struct.pack("<II", 0x184D2A50, 3) + b"abc" + compress(Codec.ZSTD, good),
        ),
        "zstd behind an empty frame": (
            Codec.ZSTD,
            compress(Codec.ZSTD, b"") + compress(Codec.ZSTD, good),
        ),
        "raw snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(good))),
        "two snappy streams": (
            Codec.SNAPPY,
            compress(Codec.SNAPPY, good[:3]) + compress(Codec.SNAPPY, good[3:]),
        ),
    }
    packed = {
        name: seal(header._replace(attributes=codec), section)
        for name, (codec, section) in odd.items()
    }
    return {name: seal(header, section) for name, section in sections.items()} | packed
