"""`/controller` and `/controller_epoch`: the active controller, and its election's epoch.

`/controller` is ephemeral. One whose `kraftControllerEpoch` is not -1 belongs to a KRaft
controller that is migrating the cluster, which Ottla does not do: a controller that reads one
must not compete with it. Version 1 (before 3.4) lacks that field.
Source: ControllerZNode, ControllerEpochZNode, Kafka 3.9; KIP-866.
"""

from dataclasses import dataclass
from typing import Final

from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, decimal, parse, written

NO_KRAFT_EPOCH: Final = -1
FIRST_EPOCH: Final = 0
"""The epoch when `/controller_epoch` is created; the first election sets 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerZnode:
    """The content of the znode."""

    broker_id: int
    timestamp_ms: int = 0
    kraft_controller_epoch: int = NO_KRAFT_EPOCH
    extra: Extra = NO_EXTRA


def decode_controller(data: bytes) -> ControllerZnode:
    """Return the active controller. Raises: ZnodeError."""
    fields = parse(paths.CONTROLLER, data)
    fields.number("version", 1)
    return ControllerZnode(
        broker_id=fields.number("brokerid"),
        timestamp_ms=fields.timestamp_ms(),
        kraft_controller_epoch=fields.number("kraftControllerEpoch", NO_KRAFT_EPOCH),
        extra=fields.rest(),
    )


def encode_controller(znode: ControllerZnode) -> bytes:
    """Return the znode's data."""
    values: dict[str, object] = {
        "version": 2,
        "brokerid": znode.broker_id,
        "timestamp": str(znode.timestamp_ms),
        "kraftControllerEpoch": znode.kraft_controller_epoch,
    }
    return written(values, znode.extra)


def decode_controller_epoch(data: bytes) -> int:
    """Return the epoch of the last election. Raises: ZnodeError."""
    text = data.decode("utf-8", "replace").strip()
    return decimal(paths.CONTROLLER_EPOCH, text, "the epoch")


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the znode's data."""
    return b"%d" % epoch
