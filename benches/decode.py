"""How fast batches become Arrow columns, against plain Python and aiokafka, in one run.

Data: 4 MB a set, made by this program: records of 100 bytes (13 of key, 85 of value) and of 1 KB,
in batches of 16 and 64 KB (1 KB: 256 KB), per codec. All three verify checksums and end with the
same columns: key, value, offset, timestamp (the set with headers: those too). CPU time, the best
of a few rounds; believe the ratios.

Run: `python benches/decode.py`; exit code 1 where the decoders disagree.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch

from ottla.records.batch import iter_headers
from ottla.records.builder import concatenate, encode_batch
from ottla.records.columnar import decode, encode, schema_of
from ottla.records.compression import Codec
from ottla.records.record import iter_records

T0_MS = 1_700_000_000_000
SET_BYTES = 4 * 1024 * 1024
ROW_OF = attrgetter("key", "value", "offset", "timestamp", "headers")
COLUMNS = ("key", "value", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class DataSet:
    """What one row of the report measures."""

    name: str
    log: bytes
    records: int
    record_bytes: int
    headers: bool


TEXT = b"".join(b'{"id":%d,"level":"info"},' % (i * 7919 % 10_007) for i in range(2000))


def make(name: str, value_bytes: int, batch_bytes: int, codec: Codec, headers: int) -> DataSet:
    """Return a log of about SET_BYTES of records."""
    size = value_bytes + 13
    pairs = [(f"header-{i}", b"value") for i in range(headers)]
    count = SET_BYTES // size
    a_batch = batch_bytes // size

    def at(i: int) -> int:
        return i * 131 % (len(TEXT) - value_bytes)

    rows = [
        (b"key-%09d" % i, TEXT[at(i) : at(i) + value_bytes], pairs, T0_MS + i // 10)
        for i in range(count)
    ]
    batches = [encode_batch(rows[i : i + a_batch], codec=codec) for i in range(0, count, a_batch)]
    return DataSet(name, concatenate(batches, base_offset=0), count, size, headers > 0)


def data_sets() -> list[DataSet]:
    """Return the sets, the plain ones first."""
    kb = 1024
    sets = [
        make("100 B none 64 KB", 85, 64 * kb, Codec.NONE, 0),
        make("100 B none 16 KB", 85, 16 * kb, Codec.NONE, 0),
        make("100 B 2 headers", 85, 64 * kb, Codec.NONE, 2),
    ]
    sets += [
        make(f"100 B {codec.name.lower()}", 85, 64 * kb, codec, 0)
        for codec in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
    ]
    return [*sets, make("1 KB none 256 KB", 1011, 256 * kb, Codec.NONE, 0)]


def best(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Return the least CPU seconds of some rounds, and what the last one made."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def columnar(data: DataSet) -> pa.Table:
    """Decode with Ottla's vectorised decoder."""
    names = COLUMNS if data.headers else COLUMNS[:4]
    return pa.Table.from_batches(list(decode(data.log, columns=names, timestamp="ms")))


def plain(data: DataSet) -> pa.Table:
    """Decode with Ottla's plain decoder, a named tuple a record."""
    return tabulate(data, map(ROW_OF, iter_records(data.log)))


def aiokafka(data: DataSet) -> pa.Table:
    """Decode with aiokafka's compiled reader, an object a record."""
    return tabulate(data, rows_of_aiokafka(data.log))


def rows_of_aiokafka(log: bytes) -> Iterator[tuple[Any, ...]]:
    for position, header in iter_headers(log):
        batch = DefaultRecordBatch(bytearray(log[position : position + header.size_in_bytes]))
        assert batch.validate_crc()
        for r in batch:
            yield r.key, r.value, r.offset, r.timestamp, r.headers


def tabulate(data: DataSet, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """Return the rows as columns."""
    columns: list[Any] = list(zip(*rows, strict=True))
    names = COLUMNS if data.headers else COLUMNS[:4]
    if data.headers:
        columns[4] = [[{"key": k, "value": v} for k, v in pairs] for pairs in columns[4]]
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(columns, schema_of(names, timestamp="ms").types, strict=False)
    ]
    return pa.table(arrays, names=list(names))


DECODERS = ((columnar, 5), (plain, 2), (aiokafka, 2))
"""With how many rounds each gets: the slow ones vary less."""


def main() -> int:
    """Print the report; return the exit code."""
    print(f"{'set':18}{'columnar':>20}{'plain Python':>20}{'aiokafka':>20}{'ratios':>15}")
    for data in data_sets():
        timed = [best(partial(d, data), rounds) for d, rounds in DECODERS]
        if not all(table.equals(timed[0][1]) for _, table in timed):
            print(f"{data.name}: the decoders disagree", file=sys.stderr)
            return 1
        rates = [data.records / seconds for seconds, _ in timed]
        columns = [f"{r / 1e3:8,.0f}k/s{r * data.record_bytes / 1e6:6,.0f}MB/s" for r in rates]
        ratios = f"{rates[0] / rates[1]:8.1f}x{rates[0] / rates[2]:6.1f}x"
        print(f"{data.name:18}{''.join(columns)}{ratios}")
    report_encoding()
    return 0


def report_encoding() -> None:
    """Print what the way back takes, at 100 B."""
    data = make("100 B", 85, 64 * 1024, Codec.NONE, 0)
    (rows,) = (
        pa.Table.from_batches(list(decode(data.log, columns=("key", "value", "timestamp"))))
        .combine_chunks()
        .to_batches()
    )
    listed = [(r.key, r.value, r.headers, r.timestamp) for r in iter_records(data.log)]
    fast, _ = best(lambda: encode(rows, timestamp_ms=T0_MS), 3)
    slow, _ = best(lambda: encode_batch(listed), 2)
    rates = [data.records / s / 1000 for s in (fast, slow)]
    print(
        f"{'encode 100 B':18}{rates[0]:8,.0f}k/s{'':10}{rates[1]:8,.0f}k/s"
        f"{'':30}{rates[0] / rates[1]:8.1f}x"
    )


if __name__ == "__main__":
    sys.exit(main())
