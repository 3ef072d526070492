"""KRaft's control records: LeaderChange, SnapshotHeader and SnapshotFooter.

Only what kraft.version 0 writes. The values are wire messages without a frame; their first
field repeats the version that they are written in.

Source: LeaderChangeMessage.json, SnapshotHeaderRecord.json, SnapshotFooterRecord.json,
KRaftVersionRecord.json, ControlRecordUtils; KIP-595, KIP-630.
"""

from ottla.records.control import ControlType, build_control
from ottla.wire.codec import decode, encode
from ottla.wire.messages.control_records import (
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)

VERSION = 0


def leader_change_batch(
    *,
    base_offset: int,
    epoch: int,
    leader_id: int,
    voters: tuple[int, ...],
    granting_voters: tuple[int, ...],
    timestamp: int,
) -> bytes:
    """Return the batch that begins an epoch."""
    value = LeaderChangeMessage(
        version=VERSION,
        leader_id=leader_id,
        voters=_named(voters),
        granting_voters=_named(granting_voters),
    )
    return build_control(
        ControlType.LEADER_CHANGE,
        encode(value, VERSION),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def _named(voters: tuple[int, ...]) -> tuple[LeaderChangeMessageVoter, ...]:
    return tuple(LeaderChangeMessageVoter(voter_id=voter) for voter in voters)


def decode_leader_change(value: bytes) -> LeaderChangeMessage:
    """Return the message in a control record's value; raise WireError where it is none."""
    version = int.from_bytes(value[:2], "big")
    return decode(LeaderChangeMessage, value, version)


def snapshot_header_batch(*, epoch: int, timestamp: int, last_contained_ms: int) -> bytes:
    """Return a snapshot's first batch. `last_contained_ms`: of the last record that it covers."""
    value = SnapshotHeaderRecord(version=VERSION, last_contained_log_timestamp=last_contained_ms)
    return build_control(
        ControlType.SNAPSHOT_HEADER,
        encode(value, VERSION),
        timestamp=timestamp,
        base_offset=0,
        leader_epoch=epoch,
    )


def decode_snapshot_header(value: bytes) -> SnapshotHeaderRecord:
    """Return the header in a control record's value; raise WireError where it is none."""
    return decode(SnapshotHeaderRecord, value, VERSION)


def snapshot_footer_batch(*, base_offset: int, epoch: int, timestamp: int) -> bytes:
    """Return a snapshot's last batch, without which it is incomplete."""
    return build_control(
        ControlType.SNAPSHOT_FOOTER,
        encode(SnapshotFooterRecord(version=VERSION), VERSION),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=epoch,
    )
