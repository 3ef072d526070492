"""`/brokers/topics/T/tieredstorage`: a topic's tiering state.

`state` holds all of it as JSON, also where the partitions of a restored topic began.
`tiered_epoch` has the epoch alone, as decimal text: what the state says counts, and the controller
writes the other one again where it differs.
Source: KIP-950, whose draft names both nodes.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from ottla.base.ids import Uuid
from ottla.metadata.tiering import (
    FIRST_EPOCH,
    NO_FLOOR,
    DisablePolicy,
    RestoredPartition,
    TieringState,
    TopicTiering,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import (
    NO_EXTRA,
    Extra,
    Fields,
    decimal,
    integers,
    parse,
    shown,
    written,
)

VERSION: Final = 1

_STATES: Final = {each.name: each for each in TieringState}
_POLICIES: Final = {each.name.lower(): each for each in DisablePolicy}


def decode_tiering(topic: str, topic_id: Uuid, data: bytes) -> tuple[TopicTiering, Extra]:
    """Return a topic's state, and the fields that Ottla does not know. Raises: ZnodeError."""
    fields = parse(paths.tiering_state(topic), data)
    version = fields.number("version")
    if version < VERSION:
        raise fields.fail(f"version is {version}: expected {VERSION} or more")
    state, policy = fields.text("state"), fields.text("policy")
    if state not in _STATES:
        raise fields.fail(f"state is {shown(state)}: expected {', '.join(_STATES)}")
    if policy not in _POLICIES:
        raise fields.fail(f"policy is {shown(policy)}: expected {', '.join(_POLICIES)}")
    tiering = TopicTiering(
        topic_id=topic_id,
        state=_STATES[state],
        tiered_epoch=_epoch(fields, "tiered_epoch", FIRST_EPOCH),
        policy=_POLICIES[policy],
        remote_floor_epoch=_epoch(fields, "remote_floor_epoch", NO_FLOOR),
        purge_pending=fields.flag("purge_pending"),
        restored=_restored(fields) if fields.has("restored") else (),
    )
    return tiering, fields.rest()


def _epoch(fields: Fields, name: str, lowest: int) -> int:
    epoch = fields.number(name)
    if not lowest <= epoch < 1 << 31:
        raise fields.fail(f"{name} is {epoch}: expected an epoch of {lowest} or more")
    return epoch


def _restored(fields: Fields) -> tuple[RestoredPartition, ...]:
    """Return where partitions began, in order. Raises: ZnodeError."""
    found = tuple(_restored_partition(fields, each) for each in fields.items("restored"))
    if any(later.partition <= each.partition for each, later in pairwise(found)):
        raise fields.fail("restored is out of order: expected each partition once, in order")
    return found


def _restored_partition(fields: Fields, value: object) -> RestoredPartition:
    if not isinstance(value, dict):
        raise fields.fail(f"restored has {shown(value)}: expected an object for each partition")
    each = Fields(fields.path, value)
    partition = RestoredPartition(
        partition=each.number("partition"),
        leader_epoch=_epoch(each, "leader_epoch", 0),
        log_start_offset=each.number("log_start_offset"),
        end_offset=each.number("end_offset"),
        epochs=tuple(_pairs(each)),
    )
    if partition.partition < 0 or not 0 <= partition.log_start_offset <= partition.end_offset:
        raise fields.fail(f"restored has {shown(value)}: expected a range of offsets")
    return partition


def _pairs(fields: Fields) -> Iterator[tuple[int, int]]:
    """Yield the leader epochs of a partition, with their start offsets. Raises: ZnodeError."""
    for each in fields.items("epochs"):
        pair = integers(fields.path, each, "an entry of epochs")
        if len(pair) != 2:
            raise fields.fail(f"epochs has {shown(each)}: expected a leader epoch and an offset")
        yield pair[0], pair[1]


def encode_tiering(tiering: TopicTiering, extra: Extra = NO_EXTRA) -> bytes:
    """Return the data of the state's znode."""
    values: dict[str, object] = {
        "version": VERSION,
        "state": tiering.state.name,
        "tiered_epoch": tiering.tiered_epoch,
        "policy": tiering.policy.name.lower(),
        "remote_floor_epoch": tiering.remote_floor_epoch,
        "purge_pending": tiering.purge_pending,
    }
    if tiering.restored:
        values["restored"] = [_restored_json(each) for each in tiering.restored]
    return written(values, extra)


def _restored_json(partition: RestoredPartition) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": partition.log_start_offset,
        "end_offset": partition.end_offset,
        "epochs": partition.epochs,
    }


def decode_tiered_epoch(topic: str, data: bytes) -> int:
    """Return the epoch that the other znode has. Raises: ZnodeError."""
    path = paths.tiered_epoch(topic)
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        text = repr(data)
    return decimal(path, text.strip(), "the tiered epoch")


def encode_tiered_epoch(tiering: TopicTiering) -> bytes:
    """Return the data of the epoch's znode."""
    return str(tiering.tiered_epoch).encode("ascii")
