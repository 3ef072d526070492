"""Events of a cluster's nodes, from their files."""

import json
from pathlib import Path

from ottla.base.ids import Uuid
from ottla.testing.remote_events import RemoteEvent, read_events
from ottla.tiered.object_names import ObjectKind

TOPIC_ID = "AQEBAQEBAQEBAQEBAQEBAQ"
SEGMENT_ID = "AgICAgICAgICAgICAgICAg"
SEGMENT = f"orders-{TOPIC_ID}/3/{40:020}-{SEGMENT_ID}"


def line(time_ms: int, node: int, event: str, name: str) -> bytes:
    fields = {"time_ms": time_ms, "node": node, "event": event, "object": name, "bytes": 9}
    return json.dumps(fields).encode() + b"\n"


def test_events_of_all_nodes_in_the_order_of_time(tmp_path: Path) -> None:
    one = line(10, 1, "put", f"{SEGMENT}.log") + line(30, 1, "delete", f"{SEGMENT}.index")
    (tmp_path / "1.jsonl").write_bytes(one + line(40, 1, "put", f"{SEGMENT}.log")[:-5])
    (tmp_path / "2.jsonl").write_bytes(
        line(20, 2, "get", f"{SEGMENT}.log") + line(5, 2, "put", f"orders-{TOPIC_ID}/3/manifest/1")
    )
    found = read_events(tmp_path)
    assert [(each.time_ms, each.node, each.kind) for each in found] == [
        (10, 1, "copy"),
        (20, 2, "fetch"),
        (30, 1, "delete"),
    ]
    assert found[0] == RemoteEvent(
        kind="copy",
        node=1,
        time_ms=10,
        topic="orders",
        topic_id=Uuid(b"\1" * 16),
        partition=3,
        start_offset=40,
        segment_id=Uuid(b"\2" * 16),
        object_kind=ObjectKind.LOG,
        size_bytes=9,
    )


def test_without_files_there_are_none(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none") == []
