"""The externally visible steps of turning a topic's tiered storage off and on, and crashes there.

As `deletion_steps`, whose method this is: the product has no hooks for its steps, each is an effect
that can be observed. `DisablingSteps` numbers the steps of one topic from a moment on; the same
seed has the same steps up to the first crash. With a plan it ends one node's process right after
the step of that number: what was done by then stays done, nothing follows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from ottla.base.ids import NO_LEADER, REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.log.partition_log import PartitionLog
from ottla.testing.sim.net import MS
from ottla.testing.sim.scheduler import ProcessDied
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.testing.sim.watch.observations import (
    LogOpened,
    PartitionFenced,
    RemoteSegmentChanged,
    TieringSet,
)
from ottla.tiered.object_names import ObjectKind, parse_manifest_name, parse_object_name

if TYPE_CHECKING:
    from ottla.log.log_retention import LogRetention
    from ottla.testing.sim.node import SimNode
    from ottla.testing.sim.sim import Sim

DISABLE_REMOTE_TOPIC, REPORT_PURGES = 1001, 1007


class Step(Enum):
    """What has just happened."""

    STATE = "the tiering state is committed"
    ZNODES = "the controller has written to ZooKeeper"
    ORDERED = "a broker has received DisableRemoteTopic"
    ANSWERED = "the controller has received the response"
    FENCED = "a fence is committed"
    STARTED = "a replica has moved its log start"
    FILLED = "a follower's local log begins earlier"
    SEGMENT = "a record of a segment is committed"
    LISTED = "a manifest is written"
    DELETED = "the objects of a segment are deleted"
    REPORTED = "the controller has received ReportPurges"
    TAKEN = "a broker has received the response"


class Role(Enum):
    """Who crashes: whoever is that at the step."""

    CONTROLLER = "controller"
    LEADER = "leader"
    FOLLOWER = "follower"
    METADATA_LEADER = "metadata-leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisablingCrash:
    """One crash. `number`: of the step, from 1."""

    number: int
    role: Role
    down_ms: int = 4_000

    def __str__(self) -> str:
        return f"step-{self.number}-{self.role.value}"


class DisablingSteps:
    """The steps in one topic's partition 0, from now on.

    Fields: `seen`: the steps so far. `victims`: the nodes that could crash at each, by role.
    """

    def __init__(self, sim: "Sim", topic_id: Uuid, plan: DisablingCrash | None = None) -> None:
        self.seen: list[Step] = []
        self.victims: list[dict[Role, int]] = []
        self._sim = sim
        self._topic_id = topic_id
        self._plan = plan
        self._requests: dict[tuple[int, int, bytes], Step] = {}
        """Requests of a kind that is followed, and the step that their responses are."""
        self._last: tuple[Step, int] | None = None
        """With its time: what happens in one moment is one step."""
        self._is_over = False
        sim.observe(self._observed)
        sim.net.observe(self._frame)
        self._follow_store()
        for node in sim.nodes.values():
            partition = None if node.broker is None else node.broker.replicas.hosted()
            for each in partition or ():
                if each.topic_id == topic_id and each.log is not None:
                    self._follow_log(node, each.log)
        if sim.zookeeper is not None:
            sim.zookeeper.model.observe(self._znode_written)

    def end(self) -> None:
        """Take no further steps."""
        self._is_over = True

    # -- what is seen --------------------------------------------------------------------------

    def _observed(self, observation: Any) -> None:
        match observation:
            case TieringSet(after=after) if after.topic_id == self._topic_id:
                self._reached(Step.STATE)
            case PartitionFenced(topic_id=self._topic_id):
                self._reached(Step.FENCED)
            case RemoteSegmentChanged(topic_id=self._topic_id):
                self._reached(Step.SEGMENT)
            case LogOpened(topic_id=self._topic_id, node=node_id, log=log):
                self._follow_log(self._sim.nodes[node_id], log)

    def _follow_log(self, node: "SimNode", log: PartitionLog) -> None:
        for name in ("advance_log_start", "delete_records"):
            self._follow_call(node, log, name)
        followed = _FollowedRetention(log.retention, lambda: self._reached(Step.FILLED, by=node))
        log.retention = cast("LogRetention", followed)

    def _follow_call(self, node: "SimNode", log: PartitionLog, name: str) -> None:
        plain: Callable[..., Any] = getattr(log, name)

        def watched(*given: Any, **named: Any) -> Any:
            start = log.log_start_offset
            result = plain(*given, **named)
            if log.log_start_offset > start:
                self._reached(Step.STARTED, by=node)
            return result

        setattr(log, name, watched)

    def _frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        if what == "request":
            key, correlation_id = int.from_bytes(frame[4:6], "big"), frame[8:12]
            if key == DISABLE_REMOTE_TOPIC:
                self._requests[source, target, correlation_id] = Step.ANSWERED
                self._reached(Step.ORDERED, by=self._sim.nodes[target])
            elif key == REPORT_PURGES:
                self._requests[source, target, correlation_id] = Step.TAKEN
                self._reached(Step.REPORTED, by=self._sim.nodes[target])
        elif what == "response":
            step = self._requests.pop((target, source, frame[4:8]), None)
            if step is not None:
                self._reached(step, by=self._sim.nodes[target])

    def _follow_store(self) -> None:
        store = self._sim.object_store
        before = store.on_change

        def changed(name: str, old: bytes | None, new: bytes | None) -> None:
            before(name, old, new)
            if parse_manifest_name(name) is not None:
                if new is not None:
                    self._reached(Step.LISTED)
                return
            found = parse_object_name(name)
            if new is None and found is not None and found.kind is ObjectKind.LOG:
                self._reached(Step.DELETED)

        store.on_change = changed

    def _znode_written(self, written: Any) -> None:
        assert self._sim.zookeeper is not None
        if written.client == self._sim.zookeeper.controller_id:
            self._reached(Step.ZNODES)

    # -- the crash -----------------------------------------------------------------------------

    def _victims(self) -> dict[Role, int]:
        """Return who could crash now. A node that is two of them is listed once."""
        sim = self._sim
        topic = sim.image.topics.by_id(self._topic_id)
        metadata = sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        assert topic is not None
        assert metadata is not None
        partition = topic.partitions[0]
        listed = {
            Role.LEADER: partition.leader,
            Role.METADATA_LEADER: metadata.partitions[0].leader,
        }
        listed[Role.FOLLOWER] = next(
            (each for each in partition.replicas if each not in listed.values()), NO_LEADER
        )
        listed[Role.CONTROLLER] = controller_of(sim).id
        found: dict[Role, int] = {}
        for role, node_id in listed.items():
            node = sim.nodes.get(node_id)
            if node is not None and node.alive and node_id not in found.values():
                found[role] = node_id
        return found

    def _reached(self, step: Step, by: "SimNode | None" = None) -> None:
        """Note a step, and crash if it is the planned one; `by`: the node that is running now."""
        at = step, self._sim.scheduler.now_us
        if self._is_over or at == self._last:
            return
        self._last = at
        self.seen.append(step)
        victims = self._victims()
        self.victims.append(victims)
        plan, sim = self._plan, self._sim
        if plan is None or len(self.seen) != plan.number:
            return
        self._is_over = True
        if plan.role not in victims:
            return
        sim.mark("crashed-at-step")
        victim = sim.nodes[victims[plan.role]]

        def back() -> None:
            sim.scheduler.after(plan.down_ms * MS, victim.restart)

        victim.die(lose_unflushed=False, then=back)
        if by is victim:
            raise ProcessDied


class _FollowedRetention:
    """A log's retention; `lowered` is called when it has moved the local log start down."""

    def __init__(self, plain: "LogRetention", lowered: Callable[[], None]) -> None:
        self._plain = plain
        self._lowered = lowered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def lower_local_start(self, truncation_count: int) -> bool:
        is_lowered = self._plain.lower_local_start(truncation_count)
        if is_lowered:
            self._lowered()
        return is_lowered
