"""What deciders know besides the image: this node's configuration, chance, who is alive."""

from dataclasses import dataclass, field

from ottla.base.ports import Dice
from ottla.controller.assignment import KRAFT_ASSIGNMENTS, AssignmentPolicy
from ottla.controller.idle import IdleReports
from ottla.controller.liveness import BrokerLiveness
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """The active controller's surroundings.

    Fields: `config`: its own properties: defaults of new topics, delete.topic.enable.
            `cluster_id`: what a broker must name on registration.
            `liveness`: soft state; `activate` it when the controller becomes active.
            `assignments`: which brokers a chosen assignment may name.
            `idle`: what brokers say of topics that nobody uses; soft state, too, by office.
    """

    config: NodeConfig
    cluster_id: str
    dice: Dice
    liveness: BrokerLiveness
    assignments: AssignmentPolicy = KRAFT_ASSIGNMENTS
    idle: IdleReports = field(default_factory=IdleReports)


def next_offset(image: ClusterImage) -> int:
    """Return the offset that the next record of the metadata log gets."""
    return image.position[0] + 1
