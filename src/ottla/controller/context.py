"""What deciders get besides the image: properties, randomness, broker liveness."""

from dataclasses import dataclass, field

from ottla.base.ports import Dice
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.deletion.purge_reports import PurgeReports
from ottla.controller.disabling.acknowledgements import Acknowledgements
from ottla.controller.idle import IdleReports
from ottla.controller.mode_policy import KRAFT_MODE, ModePolicy
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionContext:
    """The environment of the active controller.

    Fields: `config`: its own properties: defaults of new topics, delete.topic.enable.
            `cluster_id`: what a broker must name on registration.
            `liveness`: soft state; `activate` it when the controller becomes active.
            `mode`: the rules of KRaft or ZooKeeper mode.
            `idle`: the brokers' reports of idle topics; soft state of one controller epoch.
            `purges`: their reports of dead remote segments; as well.
            `acknowledgements`: theirs that tiered storage is disabled; as well.
    """

    config: NodeConfig
    cluster_id: str
    dice: Dice
    liveness: BrokerLiveness
    mode: ModePolicy = KRAFT_MODE
    idle: IdleReports = field(default_factory=IdleReports)
    purges: PurgeReports = field(default_factory=PurgeReports)
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)


def next_offset(image: ClusterImage) -> int:
    """Return the offset that the next record of the metadata log gets."""
    return image.position[0] + 1
