"""What `ottla tier describe` prints: a line for each partition, or one JSON object.

    orders (nc7W6NGyQ3Sj9S3JvQ0xkA): ENABLED, tiered epoch 1
    PARTITION  LEADER  TIERS                 REMOTE      LOCAL          HIGH WATERMARK  ...
    0          2       [======####------]    0..4119     3900..5011     5012            ...

The bar is the partition from its log start to its log end: `=` is in the remote tier alone, `#` in
both, `-` on local disks alone. Ranges are inclusive.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.base.ids import uuid_text
from ottla.cli.tier.tier_waits import missing_lines, purge_lines, purge_text
from ottla.metadata.tiering import DisablePolicy, TieringState
from ottla.wire.messages.describe_remote_log import RemoteLogPartition, RemoteLogTopic
from ottla.wire.messages.describe_topic_tiering import DescribedTopicTiering

TITLES = (
    "PARTITION",
    "LEADER",
    "TIERS",
    "REMOTE",
    "LOCAL",
    "HIGH WATERMARK",
    "REMOTE SIZE",
    "LOCAL SIZE",
    "LAG",
    "LAST ERROR",
)
NOTHING = "-"
BAR_WIDTH = 20
UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True, slots=True)
class TopicTiers:
    """A topic, and of each partition its number, its leader (-1 = none) and its tiers.

    `controller`: what the controller says of the topic; None = it has not answered.
    """

    topic: RemoteLogTopic
    rows: Sequence[tuple[int, tuple[int, RemoteLogPartition]]]
    controller: DescribedTopicTiering | None = None


def table_lines(topics: Iterable[TopicTiers]) -> Iterator[str]:
    """Yield for each topic its state, what it waits for, titles, and a line for each partition."""
    for number, each in enumerate(topics):
        if number:
            yield ""
        yield _topic_line(each)
        if each.controller is not None:
            lines = [*missing_lines(each.controller), *purge_lines(each.controller)]
            yield from (f"  waiting for {line}" for line in lines)
        rows = [TITLES, *(_row(leader, row) for _, (leader, row) in each.rows)]
        yield from table(rows)


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        yield "  ".join(map(str.ljust, cells, widths)).rstrip()


def _topic_line(tiers: TopicTiers) -> str:
    topic = tiers.topic
    if not topic.state:
        return f"{topic.name} ({uuid_text(topic.topic_id)}): not tiered"
    line = (
        f"{topic.name} ({uuid_text(topic.topic_id)}): {state_text(topic)}, "
        f"tiered epoch {topic.tiered_epoch}"
    )
    if topic.purge_pending:
        line += f", purge pending{purge_text(row for _, (_, row) in tiers.rows)}"
    return line


def state_text(topic: RemoteLogTopic) -> str:
    """Return the tiering state, with the policy by which it was disabled."""
    if topic.state not in set(TieringState):
        return f"state {topic.state}"
    text = TieringState(topic.state).name
    if topic.policy and topic.policy in set(DisablePolicy):
        text += f" ({DisablePolicy(topic.policy).name.lower()})"
    return text


def _row(leader: int, row: RemoteLogPartition) -> tuple[str, ...]:
    if row.error_code:
        error = row.error_message or f"error {row.error_code}"
        who = NOTHING if leader < 0 else str(leader)
        return (str(row.partition), who, *[NOTHING] * 7, error)
    lag = NOTHING
    if row.lag_segments >= 0:
        lag = "0" if not row.lag_segments else f"{row.lag_segments} ({size_text(row.lag_bytes)})"
    return (
        str(row.partition),
        str(leader),
        bar(row),
        _range(row.log_start_offset, row.remote_end_offset),
        _range(row.local_start_offset, row.log_end_offset - 1),
        str(row.high_watermark),
        NOTHING if row.remote_bytes < 0 else size_text(row.remote_bytes),
        size_text(row.local_bytes),
        lag,
        row.last_error or NOTHING,
    )


def _range(first: int, last: int) -> str:
    return f"{first}..{last}" if last >= first >= 0 else NOTHING


def bar(row: RemoteLogPartition, width: int = BAR_WIDTH) -> str:
    """Return the partition's tiers as a bar; each character is a share of its offsets."""
    start, end = row.log_start_offset, row.log_end_offset
    if end <= start:
        return f"[{'':{width}}]"
    marks = []
    for each in range(width):
        # The first offset of the share: a tier shows where it holds that.
        offset = start + (end - start) * each // width
        is_remote = offset <= row.remote_end_offset
        is_local = offset >= row.local_start_offset
        marks.append("#" if is_remote and is_local else "=" if is_remote else "-")
    return f"[{''.join(marks)}]"


def size_text(size_bytes: int) -> str:
    """Return a size in its largest unit."""
    for unit_bytes, name in UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {name}"
    return f"{size_bytes} B"


def json_text(topics: Iterable[TopicTiers]) -> str:
    """Return the topics as one JSON object; what there is none of is null."""
    return json.dumps({"topics": [_topic_json(each) for each in topics]})


def _topic_json(tiers: TopicTiers) -> dict[str, Any]:
    topic = tiers.topic
    known = topic.state in set(TieringState)
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "state": TieringState(topic.state).name if known else None,
        "tiered_epoch": topic.tiered_epoch if topic.state else None,
        "policy": DisablePolicy(topic.policy).name.lower() if topic.policy else None,
        "remote_floor_epoch": topic.remote_floor_epoch if topic.state else None,
        "purge_pending": topic.purge_pending,
        "missing": None if tiers.controller is None else _missing_json(tiers.controller),
        "purge_leaderless": (
            None if tiers.controller is None else list(tiers.controller.purge_leaderless)
        ),
        "partitions": [_row_json(leader, row) for _, (leader, row) in tiers.rows],
    }


def _missing_json(topic: DescribedTopicTiering) -> list[dict[str, Any]]:
    return [
        {
            "broker": each.broker_id if each.broker_id >= 0 else None,
            "is_leader": each.is_leader,
            "partitions": list(each.partitions),
            "why": line,
        }
        for each, line in zip(topic.missing, missing_lines(topic), strict=True)
    ]


def _row_json(leader: int, row: RemoteLogPartition) -> dict[str, Any]:
    if row.error_code:
        return {
            "partition": row.partition,
            "leader": None if leader < 0 else leader,
            "error": row.error_message or f"error {row.error_code}",
        }
    remote = row.remote_end_offset >= row.log_start_offset
    return {
        "partition": row.partition,
        "leader": leader,
        "leader_epoch": row.leader_epoch,
        "remote_start": row.log_start_offset if remote else None,
        "remote_end": row.remote_end_offset if remote else None,
        "remote_bytes": row.remote_bytes if row.remote_bytes >= 0 else None,
        "remote_segments": row.remote_segments if row.remote_segments >= 0 else None,
        "deleting_segments": row.deleting_segments if row.deleting_segments >= 0 else None,
        "purge_segments_left": _known(row.purge_segments_left),
        "purge_segments_deleted": _known(row.purge_segments_deleted),
        "purge_late_writes_ms": _known(row.purge_late_writes_ms),
        "local_start": row.local_start_offset,
        "local_end": row.log_end_offset,
        "local_bytes": row.local_bytes,
        "high_watermark": row.high_watermark,
        "last_stable_offset": row.last_stable_offset,
        "lag_bytes": row.lag_bytes if row.lag_bytes >= 0 else None,
        "lag_segments": row.lag_segments if row.lag_segments >= 0 else None,
        "last_error": row.last_error,
    }


def _known(count: int) -> int | None:
    return None if count < 0 else count
