"""The state of a replay: what is to be copied where, decided once, and how far each partition is.

A directory or an object store, one for each replay: `replay.json` is written once, by the first
run; `progress/<partition>` is the next offset to copy, rewritten by the one task that copies the
partition once the cluster has acknowledged what is below.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.ids import Uuid, parse_uuid, uuid_text
from ottla.spark.errors import OptionError
from ottla.spark.jobs.documents import (
    JournalError,
    OffsetRange,
    decode_document,
    decode_ranges,
    encode_document,
    encode_ranges,
)
from ottla.spark.jobs.heartbeat import RunningError
from ottla.spark.jobs.target_store import TargetStore

VERSION: Final = 1
JOB: Final = "replay.json"
ALIVE: Final = "alive"
PROGRESS: Final = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What is replayed.

    Fields: `topic`, `topic_id`: the source. `to`, `to_id`: the target.
            `asked`: the options that the ranges were made from, by name; a later run must have the
            same.
            `ranges`: what is copied.
            `creator`: of the run that wrote it, unique.
    """

    topic: str
    topic_id: Uuid
    to: str
    to_id: Uuid
    asked: Mapping[str, str]
    ranges: tuple[OffsetRange, ...]
    creator: str


def encode(job: ReplayJob) -> bytes:
    """Return the job as JSON."""
    document = {
        "version": VERSION,
        "topic": job.topic,
        "topic_id": uuid_text(job.topic_id),
        "to": job.to,
        "to_id": uuid_text(job.to_id),
        "asked": dict(sorted(job.asked.items())),
        "ranges": encode_ranges(job.ranges),
        "creator": job.creator,
    }
    return encode_document(document)


def decode(data: bytes) -> ReplayJob:
    """Return the job of these bytes. Raises: JournalError."""

    def job(document: Any) -> ReplayJob:
        return ReplayJob(
            topic=str(document["topic"]),
            topic_id=parse_uuid(document["topic_id"]),
            to=str(document["to"]),
            to_id=parse_uuid(document["to_id"]),
            asked={str(name): str(value) for name, value in document["asked"].items()},
            ranges=decode_ranges(document["ranges"]),
            creator=str(document["creator"]),
        )

    return decode_document(JOB, data, VERSION, job)


def read_job(store: TargetStore) -> ReplayJob | None:
    """Return the job of a state; None = it has none. Raises: JournalError, RemoteStorageError."""
    data = store.read_whole(JOB) if store.has_root() else None
    return None if data is None else decode(data)


def create_job(store: TargetStore, job: ReplayJob) -> None:
    """Write the job. Raises: RunningError where another run has written one meanwhile."""
    if not store.put_if_absent(JOB, encode(job)):
        raise RunningError(f"another replay has begun with the state {store.uri}")


def check_same(job: ReplayJob, asked: Mapping[str, str]) -> None:
    """Raise OptionError where a state is of another replay."""
    for name in sorted({*job.asked, *asked}):
        found, wanted = job.asked.get(name, ""), asked.get(name, "")
        if found != wanted:
            raise OptionError(
                f"the state is of another replay: its {name} is {found or 'not set'}, not "
                f"{wanted or 'set'}. Use another state"
            )


def read_progress(store: TargetStore, each: OffsetRange) -> int:
    """Return the next offset to copy of a range. Raises: JournalError, RemoteStorageError."""
    data = store.read_whole(f"{PROGRESS}/{each.partition}")
    if data is None:
        return each.start
    text = data.decode(errors="replace").strip()
    if not (text.isascii() and text.isdecimal() and each.start <= int(text) <= each.end):
        raise JournalError(
            f"{PROGRESS}/{each.partition} is {text[:40]}: expected {each.start} to {each.end}"
        )
    return int(text)


def write_progress(store: TargetStore, partition: int, offset: int) -> None:
    """Record that everything below an offset is copied."""
    store.put(f"{PROGRESS}/{partition}", b"%d\n" % offset)
