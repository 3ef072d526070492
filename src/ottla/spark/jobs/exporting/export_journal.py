"""The journal of an export: what a target has, and how far its last run came. Pure.

An entry is one numbered, immutable object in the target, written only if there is none of its
number: of two exports at a time, one wins. The last entry is the whole state. A run

1. appends BEGUN: its ranges of offsets. Its files are written where no reader looks (staged);
2. appends COMMITTED: its files and the offsets that are exported now. This is the commit point;
3. moves its files to where readers look, and appends PUBLISHED.

A run that was killed before its commit has no effect: the next one appends DISCARDED, after which
the killed one cannot commit, and deletes what is staged. A run that was killed after its commit is
completed by the next one: a move that was done already is recognized. So a record is never in the
table twice, whatever was killed when.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from ottla.base.ids import Uuid, parse_uuid, uuid_text
from ottla.spark.jobs.documents import (
    JournalError,
    OffsetRange,
    decode_document,
    decode_ranges,
    encode_document,
    encode_ranges,
)

VERSION: Final = 1
DIRECTORY: Final = "_ottla"
"""Spark, and others that read directories as tables, skip names with a leading underscore."""
JOURNAL: Final = f"{DIRECTORY}/journal"
STAGED: Final = f"{DIRECTORY}/staged"


class Phase(Enum):
    """How far a run is."""

    BEGUN = "begun"
    COMMITTED = "committed"
    PUBLISHED = "published"
    DISCARDED = "discarded"


NEXT: Final[Mapping[Phase | None, frozenset[Phase]]] = {
    None: frozenset({Phase.BEGUN}),
    Phase.BEGUN: frozenset({Phase.COMMITTED, Phase.DISCARDED}),
    Phase.COMMITTED: frozenset({Phase.PUBLISHED}),
    Phase.PUBLISHED: frozenset({Phase.BEGUN}),
    Phase.DISCARDED: frozenset({Phase.BEGUN}),
}
"""The phases that may follow. None = the journal is empty."""
assert NEXT.keys() == {None, *Phase}
assert all(NEXT.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file of a run: `name` is that for readers, `start` and `end` its offsets."""

    name: str
    partition: int
    start: int
    end: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a target holds; it is the same in all entries of a journal, but for the topic id."""

    topic: str
    topic_id: Uuid
    format: str
    partition_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry.

    Fields: `number`: of the entry, from 0. `run`: unique for each run.
            `offsets`: the next offset to export, by partition; with BEGUN and DISCARDED that of
            before the run.
            `ranges`: of the run. `files`: of the run, with COMMITTED only.
    """

    number: int
    phase: Phase
    run: str
    table: Table
    offsets: Mapping[int, int]
    ranges: tuple[OffsetRange, ...]
    files: tuple[ExportedFile, ...] = field(default=())


def entry_name(number: int) -> str:
    """Return the object name of an entry."""
    return f"{JOURNAL}/{number:020}.json"


def staged_name(run: str, name: str) -> str:
    """Return where a file is until its run is committed."""
    return f"{STAGED}/{run}/{name}"


# What follows


def begun(
    last: Entry | None,
    run: str,
    table: Table,
    offsets: Mapping[int, int],
    ranges: tuple[OffsetRange, ...],
) -> Entry:
    """Return the entry that begins a run. `offsets`: exported before it."""
    return follow(
        last,
        Entry(
            number=0 if last is None else last.number + 1,
            phase=Phase.BEGUN,
            run=run,
            table=table,
            offsets=offsets,
            ranges=ranges,
        ),
    )


def committed(last: Entry, files: tuple[ExportedFile, ...]) -> Entry:
    """Return the entry that commits a run with its files."""
    offsets = {**last.offsets, **{each.partition: each.end for each in last.ranges}}
    entry = replace(last, phase=Phase.COMMITTED, number=last.number + 1, files=files)
    return follow(last, replace(entry, offsets=offsets))


def published(last: Entry) -> Entry:
    """Return the entry that says that all files of a run are where readers look."""
    return follow(last, replace(last, phase=Phase.PUBLISHED, number=last.number + 1, files=()))


def discarded(last: Entry) -> Entry:
    """Return the entry after which a run cannot commit any more."""
    return follow(last, replace(last, phase=Phase.DISCARDED, number=last.number + 1))


def follow(last: Entry | None, entry: Entry) -> Entry:
    """Return the entry. Raises: JournalError unless it may follow the last one."""
    phase = None if last is None else last.phase
    if entry.phase not in NEXT[phase]:
        raise JournalError(
            f"{entry.phase.value} does not follow {'nothing' if phase is None else phase.value}"
        )
    is_same_run = last is not None and last.run == entry.run
    if is_same_run == (entry.phase is Phase.BEGUN):
        raise JournalError(f"run {entry.run} {entry.phase.value} follows another run's entry")
    return entry


# Bytes


def encode(entry: Entry) -> bytes:
    """Return the entry as JSON."""
    table = entry.table
    document = {
        "version": VERSION,
        "phase": entry.phase.value,
        "run": entry.run,
        "topic": table.topic,
        "topic_id": uuid_text(table.topic_id),
        "format": table.format,
        "partition_by": table.partition_by,
        "offsets": {str(key): value for key, value in sorted(entry.offsets.items())},
        "ranges": encode_ranges(entry.ranges),
        "files": [
            [each.name, each.partition, each.start, each.end, each.rows, each.size_bytes]
            for each in entry.files
        ],
    }
    return encode_document(document)


def decode(number: int, data: bytes) -> Entry:
    """Return the entry of these bytes. Raises: JournalError."""

    def entry(document: Any) -> Entry:
        return Entry(
            number=number,
            phase=Phase(document["phase"]),
            run=str(document["run"]),
            table=Table(
                topic=str(document["topic"]),
                topic_id=parse_uuid(document["topic_id"]),
                format=str(document["format"]),
                partition_by=str(document["partition_by"]),
            ),
            offsets={int(key): int(value) for key, value in document["offsets"].items()},
            ranges=decode_ranges(document["ranges"]),
            files=tuple(_file(*each) for each in document["files"]),
        )

    return decode_document(entry_name(number), data, VERSION, entry)


def _file(
    name: str, partition: int, start: int, end: int, rows: int, size_bytes: int
) -> ExportedFile:
    return ExportedFile(
        name=str(name),
        partition=int(partition),
        start=int(start),
        end=int(end),
        rows=int(rows),
        size_bytes=int(size_bytes),
    )
