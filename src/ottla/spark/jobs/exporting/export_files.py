"""The Parquet files of one task of an export: one partition and one date each.

Rows do not pass through the JVM. A file is written to a local temporary file, then to the target
where no reader looks; its name is unique for each attempt of a task, so that an attempt which Spark
repeats cannot mix with another one: only the files that a finished task names are published.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla.spark.jobs.exporting.export_journal import ExportedFile, staged_name
from ottla.spark.jobs.target_store import TargetStore

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""Those of `format("ottla")` with headers, in their order."""
FILE_BYTES: Final = 256 * 1024 * 1024
"""Of Arrow data in one file, before encoding and compression."""
GROUP_BYTES: Final = 32 * 1024 * 1024
"""Of Arrow data in one row group: what a task holds in memory for a file."""
FILES_OPEN_MAX: Final = 16
"""Of one task: records of a topic whose timestamps are not in order are of many dates."""
COMPRESSION: Final = "zstd"
BY_DATE, BY_NONE = "date", "none"
DATE: Final = "date"
"""The column of a record's date, by which tables are partitioned."""
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for null: of records without a timestamp, or beyond the years 1 to 9999."""
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = (np.datetime64("0001-01-01", "D") - np.datetime64(0, "D")).astype(int)
_LAST_DAY: Final = (np.datetime64("9999-12-31", "D") - np.datetime64(0, "D")).astype(int)
_NO_TIMESTAMP_US: Final = -1_000

Place = tuple[int, str | None]
"""Partition and date of a file; None = files are not partitioned."""


@dataclass(slots=True)
class _OpenFile:
    """A file under way. `size`: of its Arrow data; `waiting`: of the next row group."""

    path: str
    writer: Any
    first: int
    last: int
    rows: int = 0
    size: int = 0
    waiting: list[Any] = field(default_factory=list)
    waiting_bytes: int = 0

    def write(self, batch: Any) -> None:
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.size += batch.nbytes
        self.rows += batch.num_rows
        self.last = batch.column("offset")[-1].as_py()
        if self.waiting_bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting))
            self.waiting, self.waiting_bytes = [], 0


class ParquetFiles:
    """Writes the rows of one task. Use as a context manager; `finish` returns the files.

    Fields: `run`: of the export; `partition_by`: date or none; `has_date`: files have a column of
            their date, too, not only their directories.
    Raises: RemoteStorageError, OSError.
    """

    def __init__(
        self, store: TargetStore, run: str, partition_by: str, *, has_date: bool = False
    ) -> None:
        self._store = store
        self._run = run
        self._by_date = partition_by == BY_DATE
        self._has_date = has_date
        self._attempt = os.urandom(4).hex()
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-export-")
        self._open: dict[Place, _OpenFile] = {}
        self._finished: list[ExportedFile] = []

    def __enter__(self) -> "ParquetFiles":
        return self

    def __exit__(self, *error: object) -> None:
        self._directory.cleanup()

    def write(self, batch: Any) -> None:
        """Write the rows of one partition, in the order of offsets."""
        if not batch.num_rows:
            return
        partition = batch.column("partition")[0].as_py()
        for day, some in self._by_dates(batch):
            rows = with_date(some, day) if self._has_date and day is not None else some
            place = partition, day
            file = self._open.get(place) or self._begin(place, rows)
            file.write(rows)
            if file.size >= FILE_BYTES:
                self._end(place)

    def finish(self) -> list[ExportedFile]:
        """Write what is open; return all files."""
        for place in list(self._open):
            self._end(place)
        return self._finished

    def _by_dates(self, batch: Any) -> Iterator[tuple[str | None, Any]]:
        if not self._by_date:
            yield None, batch
            return
        days = days_of(batch.column("timestamp"))
        distinct = np.unique(days)
        if len(distinct) == 1:
            yield date_text(int(distinct[0])), batch
            return
        for day in distinct.tolist():
            yield date_text(day), batch.filter(pa.array(days == day))

    def _begin(self, place: Place, rows: Any) -> _OpenFile:
        if len(self._open) >= FILES_OPEN_MAX:
            self._end(max(self._open, key=lambda each: self._open[each].size))
        handle, path = tempfile.mkstemp(dir=self._directory.name)
        os.close(handle)
        writer = pq.ParquetWriter(path, rows.schema, compression=COMPRESSION)
        first = rows.column("offset")[0].as_py()
        file = self._open[place] = _OpenFile(path, writer, first, first)
        return file

    def _end(self, place: Place) -> None:
        partition, day = place
        file = self._open.pop(place)
        file.flush()
        file.writer.close()
        directory = "" if day is None else f"{DATE}={day}/"
        name = f"{directory}{partition:05}-{file.first:020}-{self._run}-{self._attempt}.parquet"
        self._store.put_file(staged_name(self._run, name), file.path)
        size_bytes = os.path.getsize(file.path)
        Path(file.path).unlink()
        self._finished.append(
            ExportedFile(
                name=name,
                partition=partition,
                start=file.first,
                end=file.last + 1,
                rows=file.rows,
                size_bytes=size_bytes,
            )
        )


def with_date(batch: Any, text: str) -> Any:
    """Return the rows with a column of their date; `text`: as `date_text` has it."""
    day = None if text == NO_DATE else date.fromisoformat(text)
    column = pa.repeat(pa.scalar(day, pa.date32()), batch.num_rows)
    return batch.append_column(DATE, column)


def days_of(timestamps: Any) -> Any:
    """Return the days since 1970 of timestamps in microseconds, in UTC."""
    micros = pc.fill_null(timestamps.cast(pa.int64()), _NO_TIMESTAMP_US).to_numpy()
    days = micros // _DAY_US
    days[micros == _NO_TIMESTAMP_US] = _LAST_DAY + 1
    return days


def date_text(day: int) -> str:
    """Return the date of a day, in the form of a directory."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return NO_DATE
    return str(np.datetime64(day, "D"))
