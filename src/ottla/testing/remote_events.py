"""What the brokers of a test's cluster did in its object store, to assert on.

    copied = [each.start_offset for each in cluster.remote_events("copy", topic="orders")]
    assert copied == [0, 100, 200]

Source: LocalTieredStorageEvent, which Kafka's tests of tiered storage use so.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.base.ids import Uuid
from ottla.tiered.object_names import ObjectKind, parse_object_name

KINDS: Final = {"put": "copy", "get": "fetch", "delete": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEvent:
    """An operation on an object of a remote segment that succeeded.

    Fields: `kind`: copy, fetch or delete; `node`: the broker that did it; `object_kind`: which of
            the segment's files; `size_bytes`: written or read, 0 of a deletion.
    """

    kind: str
    node: int
    time_ms: int
    topic: str
    topic_id: Uuid
    partition: int
    start_offset: int
    segment_id: Uuid
    object_kind: ObjectKind
    size_bytes: int


def read_events(directory: Path) -> list[RemoteEvent]:
    """Return the events of all nodes, in the order of their time; manifests are left out."""
    lines = (line for path in sorted(directory.glob("*.jsonl")) for line in _lines(path))
    events = [event for line in lines if (event := _event(line)) is not None]
    return sorted(events, key=lambda event: event.time_ms)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # Else it is being written, or its node was killed meanwhile.
            yield json.loads(line)


def _event(line: dict[str, Any]) -> RemoteEvent | None:
    name = parse_object_name(line["object"])
    if name is None:
        return None
    return RemoteEvent(
        kind=KINDS[line["event"]],
        node=line["node"],
        time_ms=line["time_ms"],
        topic=name.topic,
        topic_id=name.topic_id,
        partition=name.partition,
        start_offset=name.start_offset,
        segment_id=name.segment_id,
        object_kind=name.kind,
        size_bytes=line["bytes"],
    )
