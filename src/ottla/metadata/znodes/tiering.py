"""`/brokers/topics/T/tieredstorage`: a topic's tiering state.

`state` holds all of it as JSON. `tiered_epoch` has the epoch alone, as decimal text: what the
state says counts, and the controller writes the other one again where it differs.
Source: KIP-950, whose draft names both nodes.
"""

from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.tiering import (
    FIRST_EPOCH,
    NO_FLOOR,
    DisablePolicy,
    TieringState,
    TopicTiering,
)
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, Fields, decimal, parse, shown, written

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
    )
    return tiering, fields.rest()


def _epoch(fields: Fields, name: str, lowest: int) -> int:
    epoch = fields.number(name)
    if not lowest <= epoch < 1 << 31:
        raise fields.fail(f"{name} is {epoch}: expected an epoch of {lowest} or more")
    return epoch


def encode_tiering(tiering: TopicTiering, extra: Extra = NO_EXTRA) -> bytes:
    """Return the data of the state's znode."""
    assert not tiering.restored, "no topic is restored in ZooKeeper mode"
    values: dict[str, object] = {
        "version": VERSION,
        "state": tiering.state.name,
        "tiered_epoch": tiering.tiered_epoch,
        "policy": tiering.policy.name.lower(),
        "remote_floor_epoch": tiering.remote_floor_epoch,
        "purge_pending": tiering.purge_pending,
    }
    return written(values, extra)


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
