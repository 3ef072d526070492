"""Watches topics whose tiered storage is turned off and on again; input of `checkers.tiering`.

- Each tiering state of the committed metadata is noted.
- When a topic becomes DISABLED: the committed fences of its partitions must say so, and with delete
  no in-sync replica may count on remote segments any more.
- From then on no leader's log may start earlier than its records did.

Nothing here changes the history: a seed has the same one without it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.ids import NO_LEADER, Uuid
from ottla.log.partition_log import PartitionLog
from ottla.metadata.configs import ResourceType
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.metadata.topic_config import COPY_DISABLE, REMOTE_STORAGE
from ottla.testing.history.tiers import DisabledEarly, StartWentBack, TierHistory, TieringSeen
from ottla.testing.history.topics import TopicPartition
from ottla.testing.sim.net import MS
from ottla.testing.sim.watch import observations as seen
from ottla.testing.sim.watch.tier_watch import TierWatch

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

LOOK_MS = 500
NEW_MS = 1_000
"""What is younger may have begun after the controller had decided what is committed now."""


class TieringWatch:
    """Fills the part of a history about tiering states."""

    def __init__(self, sim: "Sim", history: TierHistory, tiers: TierWatch) -> None:
        self._sim = sim
        self._history = history
        self._tiers = tiers
        self._led_ms: dict[TopicPartition, tuple[int, int]] = {}
        """The leader epoch of each partition, and since when it is committed."""
        self._begins: dict[TopicPartition, int] = {}
        """Where partitions of topics that were DISABLED with delete began then."""
        self._back: set[tuple[TopicPartition, int]] = set()
        sim.observe(self._observe)

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.PartitionSet():
                key = observation.topic_id, observation.partition
                epoch = observation.state.leader_epoch
                if self._led_ms.get(key, (-1, 0))[0] != epoch:
                    self._led_ms[key] = epoch, observation.at_ms
            case seen.TieringSet():
                self._changed(observation.before, observation.after)

    def _changed(self, before: TopicTiering | None, after: TopicTiering) -> None:
        now_ms = self._sim.now_ms
        state, policy = after.state.name, after.policy.name
        self._history.tiering.append(
            TieringSeen(
                after.topic_id,
                state,
                policy,
                after.tiered_epoch,
                after.remote_floor_epoch,
                after.purge_pending,
                now_ms,
            )
        )
        if before is None:
            return
        if before.state is not after.state:
            self._sim.mark(f"tiering-{state}-{policy}".lower().removesuffix("-none"))
        if before.purge_pending and not after.purge_pending:
            self._sim.mark("tiering-purged")
        if after.state is TieringState.DISABLED and before.state is TieringState.DISABLING:
            for key in self._partitions(after.topic_id):
                self._disabled(key, after)

    def _partitions(self, topic_id: Uuid) -> list[TopicPartition]:
        topic = self._sim.image.topics.by_id(topic_id)
        if topic is None or self._sim.image.deletions.is_queued(topic_id):
            return []
        return [(topic_id, number) for number, _ in topic.in_order()]

    # -- DISABLED ------------------------------------------------------------------------------

    def _disabled(self, key: TopicPartition, tiering: TopicTiering) -> None:
        """Check what brokers have acknowledged."""
        fence = self._tiers.ledgers[key].fence
        is_fenced = fence is not None and fence.tiered_epoch >= tiering.tiered_epoch
        # A broker that is gone may be the leader still, until another one is elected.
        leader = self._sim.image.brokers.get(self._leader(key))
        is_led = leader is not None and not leader.fenced and self._is_old(self._led_ms[key][1])
        if not is_fenced and (is_led or tiering.policy is DisablePolicy.DELETE):
            self._report_early(key, f"no fence with tiered epoch {tiering.tiered_epoch} is there")
        if tiering.policy is not DisablePolicy.DELETE:
            return
        topic = self._sim.image.topics.by_id(key[0])
        assert topic is not None
        for node_id in topic.partitions[key[1]].isr:
            log = self._old_log(node_id, key)
            if log is not None and log.has_remote_prefix:
                text = f"the log of node {node_id}, in sync, starts at {log.log_start_offset}, and "
                text += f"its local log at {log.local_log_start_offset}"
                self._report_early(key, text)
        led = self._old_log(self._leader(key), key)
        if led is not None:
            if not self._begins:
                self._look()
            self._begins[key] = max(begin_of(led), self._begins.get(key, 0))

    def _report_early(self, key: TopicPartition, cause: str) -> None:
        self._history.events.append(DisabledEarly(key, cause, self._sim.now_ms))

    def _leader(self, key: TopicPartition) -> int:
        topic = self._sim.image.topics.by_id(key[0])
        return NO_LEADER if topic is None else topic.partitions[key[1]].leader

    def _is_old(self, at_ms: int) -> bool:
        return at_ms + NEW_MS < self._sim.now_ms

    def _old_log(self, node_id: int, key: TopicPartition) -> PartitionLog | None:
        """Return the log of a registered broker, which it has had for some time."""
        log = None if node_id == NO_LEADER else self._tiers.registered_log(node_id, key)
        return (
            log if log is not None and self._is_old(self._tiers.opened_ms(node_id, key)) else None
        )

    # -- log starts ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Check that no leader's log starts earlier than it did."""
        self._sim.scheduler.after(LOOK_MS * MS, self._look)
        for key, begin in self._begins.items():
            node_id = self._leader(key)
            log = self._old_log(node_id, key)
            if log is None or (key, node_id) in self._back or not goes_back(log, begin):
                continue
            if self._is_old(self._led_ms[key][1]) and self._tiers.leads(node_id, key):
                self._back.add((key, node_id))
                start = log.log_start_offset
                self._history.events.append(
                    StartWentBack(key, node_id, begin, start, self._sim.now_ms)
                )

    # -- for the end of a history --------------------------------------------------------------

    def disabling(self) -> list[str]:
        """Return the topics that are DISABLING, or not what their configuration says, in words."""
        found = []
        for name, each in self._states():
            config = self._config(name)
            is_on = config.get(REMOTE_STORAGE) == "true" and config.get(COPY_DISABLE) != "true"
            if each.state is TieringState.DISABLING:
                found.append(f"{name} is DISABLING in tiered epoch {each.tiered_epoch}")
            elif is_on is not each.copies:
                found.append(f"{name} is {each.state.name}, and its configuration is {config}")
        return found

    def _config(self, name: str) -> Mapping[str, str]:
        """Return a topic's configuration as a broker has it, who reads it in both modes."""
        brokers = (node.broker for node in self._sim.nodes.values() if node.broker is not None)
        image = next((each.image for each in brokers), self._sim.image)
        return image.configs.of(ResourceType.TOPIC, name)

    def purging(self) -> list[str]:
        """Return the topics whose purge is pending, in words."""
        return [
            f"the purge of {name} up to tiered epoch {each.remote_floor_epoch} is pending"
            for name, each in self._states()
            if each.purge_pending
        ]

    def _states(self) -> list[tuple[str, TopicTiering]]:
        image = self._sim.image
        found = [(topic.name, image.tiering.get(topic.id)) for topic in image.topics]
        return [(name, each) for name, each in found if each is not None]


def begin_of(log: PartitionLog) -> int:
    """Return the offset below which a log has no records, so that it may never start there again.

    Where DeleteRecords has moved its start within a segment, a crash may undo that, as in Kafka.
    """
    return min(log.log_start_offset, log.segments.first.base_offset)


def goes_back(log: PartitionLog, begin: int) -> bool:
    """Tell whether a log starts earlier than `begin` with records that it does not have itself.

    It may have them: replicas begin their segments at different offsets, and a crash may take a
    follower's log start back to the beginning of its first one, as in Kafka.
    """
    return log.log_start_offset < min(begin, log.segments.first.base_offset)
