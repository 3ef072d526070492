"""Watches the nodes of a history; input of `checkers_nodes`.

- Each image that a node publishes is compared with a replay of the committed metadata log from
  its first record; at the end also the image that a start would load from the node's disk.
- Four times a second, and whenever the metadata changes a partition, the log ends of in-sync
  and eligible replicas are recorded. A replica counts once its broker's current incarnation is
  registered: after a loss of power the controller has updated the ISR by then.
- At the same times leaders are compared with their followers, as far as these follow them in the
  same leader epoch: their logs only grow then.
"""

from dataclasses import fields
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.broker.partition import Partition
from ottla.host.kraft.quorum_replay import load_image, records_of
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.log.partition_log import PartitionLog
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.raft.batches import LogBatch
from ottla.testing.history.history import History
from ottla.testing.history.nodes import (
    REPLICATION,
    EpochSeen,
    MemberSeen,
    ReplayCompared,
    RuleBroken,
    StartRefused,
)
from ottla.testing.history.topics import TopicPartition
from ottla.testing.scenarios.leftovers import left_over
from ottla.testing.scenarios.settling import brokers_of
from ottla.testing.sim import Sim
from ottla.testing.sim.net import MS
from ottla.testing.sim.watch import observations as seen

IMAGES_KEPT = 256
"""Offsets whose images are kept: nodes that lag further behind are not compared."""
LOOK_MS = 250
LEFT_LOOKS, LEFT_PAUSE_MS = 35, 1_000
"""A controller's request on a silent connection times out after 30 s."""


class MetadataReplay:
    """The committed metadata log, replayed from its first record: the expected images."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY
        self._next_offset = 0
        self._images: dict[int, ClusterImage] = {}

    def committed(self, batch: LogBatch) -> None:
        """Replay the next batch; any other batch is ignored."""
        if batch.base_offset != self._next_offset:
            return
        self._next_offset = batch.next_offset
        records = records_of(batch)
        last = batch.next_offset - 1
        self.image = replay(self.image, records, offset=last, epoch=batch.epoch).image
        self._images[last] = self.image
        if len(self._images) > IMAGES_KEPT:
            del self._images[next(iter(self._images))]

    def at(self, offset: int) -> ClusterImage | None:
        """Return the image at an offset; None = not kept, or not the end of a batch."""
        return self._images.get(offset)


PARTS = tuple(each.name for each in fields(ClusterImage))


def different_parts(
    one: ClusterImage,
    other: ClusterImage,
    before: tuple[ClusterImage, ClusterImage] = (EMPTY, EMPTY),
) -> tuple[str, ...]:
    """Return the names of the parts of two images that are not equal.

    `before`: two images that were equal. Most parts are still those objects, and not compared.
    """
    known, known_other = before
    return tuple(
        name
        for name in PARTS
        if (part := getattr(one, name)) is not getattr(known, name)
        or getattr(other, name) is not getattr(known_other, name)
        if part != getattr(other, name)
    )


class Replica(NamedTuple):
    """A hosted partition whose log can be read."""

    partition: Partition
    log: PartitionLog


Replicas = dict[int, dict[TopicPartition, Replica]]
"""By broker."""


class NodeWatch:
    """Writes a history of nodes, from its start until `finish`."""

    def __init__(self, sim: Sim, history: History) -> None:
        self._sim = sim
        self._history = history
        self._replay = MetadataReplay()
        self._committed: dict[TopicPartition, int] = {}
        self._epochs: dict[tuple[TopicPartition, int, int], tuple[int, int]] = {}
        self._equal: dict[int, tuple[ClusterImage, ClusterImage]] = {}
        """Of each node, the last image that was equal to the replayed one, and that one."""
        self._leaders: dict[TopicPartition, dict[int, int]] = {}
        """By leader epoch."""
        sim.observe(self._observe)
        self._look_again()

    def _look_again(self) -> None:
        self._sim.scheduler.after(LOOK_MS * MS, self._look_again)
        self.look()

    def _observe(self, observation: seen.Observation) -> None:
        match observation:
            case seen.HighWatermarkMoved():
                key = (observation.topic_id, observation.partition)
                if observation.leads:
                    self._committed[key] = max(observation.offset, self._committed.get(key, 0))
            case seen.ImagePublished():
                if self._sim.zookeeper is None:
                    self._compare(
                        observation.node, observation.incarnation, observation.image, "its image"
                    )
            case seen.MetadataCommitted():
                self._replay.committed(observation.batch)
            case seen.PartitionSet():
                self._look_at(observation)
            case seen.LeadershipBegan():
                self._look_at_beginning(observation)
            case seen.DiskRefused():
                self._history.starts_refused.append(
                    StartRefused(
                        observation.node,
                        observation.incarnation,
                        observation.reason,
                        observation.at_ms,
                    )
                )

    # -- metadata ------------------------------------------------------------------------------

    def _compare(self, node: int, incarnation: int, image: ClusterImage, source: str) -> None:
        offset = image.position[0]
        expected = self._replay.at(offset)
        if expected is None:
            return
        different = different_parts(image, expected, self._equal.get(node, (EMPTY, EMPTY)))
        if not different:
            self._equal[node] = (image, expected)
        compared = ReplayCompared(node, incarnation, offset, source, different, self._sim.now_ms)
        self._history.replays.append(compared)

    def _compare_disks(self) -> None:
        """Compare the image that a start would load from each disk: snapshot and log."""
        for node in self._sim.nodes.values():
            core = node.core
            if core is None or core._node_dirs is None or self._sim.zookeeper is not None:
                continue
            try:
                image = load_image(core._node_dirs.quorum)
            except (MetadataDamaged, OSError) as error:
                refused = StartRefused(node.id, node.incarnation, str(error), self._sim.now_ms)
                self._history.starts_refused.append(refused)
                continue
            self._compare(
                node.id, node.incarnation, image, "its newest snapshot and the log behind it"
            )

    # -- replicas ------------------------------------------------------------------------------

    def look(self) -> None:
        """Record the log ends of all live replicas."""
        replicas = self._replicas()
        for topic in self._sim.image.topics:
            for number, state in topic.in_order():
                self._members(topic.id, number, state, replicas)

    def _look_at(self, observation: seen.PartitionSet) -> None:
        key = (observation.topic_id, observation.partition)
        before, state = observation.before, observation.state
        replicas = self._replicas()
        self._members(*key, state, replicas)
        self._leaders.setdefault(key, {})[state.leader_epoch] = state.leader
        if before is not None and before.leader_epoch == state.leader_epoch:
            joined = set(state.isr) - set(before.isr)
            self._newcomers(key, state, joined, replicas)

    def _replicas(self) -> Replicas:
        """Return the replicas of each broker whose current incarnation is registered."""
        found: Replicas = {}
        registered = self._sim.image.brokers
        for node_id, broker in brokers_of(self._sim):
            known = registered.get(node_id)
            if known is not None and known.epoch == broker.epoch:
                found[node_id] = {
                    (each.topic_id, each.partition_id): Replica(each, each.log)
                    for each in broker.replicas.hosted()
                    if each.log is not None and not each.log.failed
                }
        return found

    def _members(
        self, topic_id: Uuid, number: int, state: PartitionImage, replicas: Replicas
    ) -> None:
        key = (topic_id, number)
        committed = self._committed.get(key, 0)
        leader = _leader(key, state, replicas)
        led = None
        if leader is not None:
            self._rules(key, state.leader, leader, replicas)
            led = _epoch_below(leader.log, committed)
        for node_id in (*state.isr, *state.elr):
            replica = replicas.get(node_id, {}).get(key)
            if replica is None:
                continue
            self._epoch(key, node_id, replica.partition)
            epochs = (-1, -1) if led is None else (_epoch_below(replica.log, committed), led)
            self._history.members.append(
                MemberSeen(
                    key,
                    node_id,
                    self._sim.nodes[node_id].incarnation,
                    node_id in state.elr,
                    committed,
                    replica.log.log_end_offset,
                    *epochs,
                    self._sim.now_ms,
                )
            )

    def _rules(
        self, key: TopicPartition, leader_id: int, leader: Replica, replicas: Replicas
    ) -> None:
        """Compare a leader with what its followers are."""
        epoch = leader.partition.leader_epoch
        if leader.log.latest_epoch < epoch:
            reason = f"leads in epoch {epoch}, of which its log does not know"
            self._rule_broken(key, leader_id, reason)
        for node, follower in leader.partition.followers.items():
            replica = replicas.get(node, {}).get(key)
            if replica is None or replica.partition.leader_epoch != epoch:
                continue
            if follower.broker_epoch != self._sim.image.brokers[node].epoch:
                continue
            if follower.log_end_offset > replica.log.log_end_offset:
                reason = f"ends before where its leader of epoch {epoch} takes it for"
                self._rule_broken(key, node, reason)

    def _newcomers(
        self, key: TopicPartition, state: PartitionImage, joined: set[int], replicas: Replicas
    ) -> None:
        """Check where the logs of replicas end that join the in-sync ones of a leader."""
        leader = _leader(key, state, replicas)
        if leader is None:
            return
        for node in sorted(joined):
            replica = replicas.get(node, {}).get(key)
            if replica is not None and (
                replica.log.log_end_offset < leader.partition.epoch_start_offset
            ):
                reason = f"joined below the start of its leader's epoch {state.leader_epoch}"
                self._rule_broken(key, node, reason)

    def _look_at_beginning(self, began: seen.LeadershipBegan) -> None:
        """Check that a leader counts on nothing from before an epoch in which another one led."""
        key = (began.topic_id, began.partition)
        leaders = self._leaders.get(key, {})
        between = range(began.former_epoch + 1, began.epoch)
        others = [each for each in between if leaders.get(each, began.node) != began.node]
        if others and began.known:
            reason = (
                f"leads in epoch {began.epoch} and counts on what it knew of {began.known} "
                f"before another broker led in {others}"
            )
            self._rule_broken(key, began.node, reason)

    def _rule_broken(self, key: TopicPartition, node: int, reason: str) -> None:
        self._history.rules_broken.append(
            RuleBroken(REPLICATION, key, node, reason, self._sim.now_ms)
        )

    def _epoch(self, key: TopicPartition, node_id: int, partition: Partition) -> None:
        incarnation = self._sim.nodes[node_id].incarnation
        now = partition.leader_epoch, partition.partition_epoch
        if self._epochs.get((key, node_id, incarnation)) != now:
            self._epochs[key, node_id, incarnation] = now
            self._history.epochs_seen.append(
                EpochSeen(key, node_id, incarnation, *now, self._sim.now_ms)
            )

    def finish(self) -> None:
        """Make the last checks, when the cluster is calm."""
        self.look()
        self._compare_disks()
        # Resources with a deadline may be about to be released.
        for _look in range(LEFT_LOOKS):
            left = list(left_over(self._sim))
            if all(each.kept <= each.most for each in left):
                break
            self._sim.run(ms=LEFT_PAUSE_MS)
        self._history.left_over += left


def _leader(key: TopicPartition, state: PartitionImage, replicas: Replicas) -> Replica | None:
    """Return the leader's replica; None where it does not lead in that epoch."""
    leader = replicas.get(state.leader, {}).get(key)
    if leader is None or not leader.partition.is_leader:
        return None
    return leader if leader.partition.leader_epoch == state.leader_epoch else None


def _epoch_below(log: PartitionLog, offset: int) -> int:
    last = offset - 1
    return log.epoch_of(last) if log.log_start_offset <= last < log.log_end_offset else -1
