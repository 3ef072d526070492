"""The externally visible steps of a topic's deletion, and crashes right after one of them.

The product has no hooks for its steps. Each step is an effect that can be observed: a message that
arrives, a rename on a disk, a change of the metadata. `STEPS` lists them in the order of a deletion
without failures. In addition, `NTH_DISK` and `NTH_ZNODE` stand for every single write of a node to
its disk, or to ZooKeeper, from the request on.

A `Crash` waits for one step and ends one node's process there: what was done by then stays done,
nothing follows.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.base.ids import Uuid
from ottla.testing.sim.net import MS
from ottla.testing.sim.scheduler import ProcessDied
from ottla.testing.sim.watch.observations import (
    DeletionConfirmed,
    DeletionSet,
    PartitionDirGone,
    TopicKnown,
    TopicSet,
)

if TYPE_CHECKING:
    from ottla.testing.sim.node import SimNode
    from ottla.testing.sim.sim import Sim

STOP_REPLICA, DELETE_TOPICS, ENVELOPE, DELETE_REPLICAS = 5, 20, 58, 1002


class Step(Enum):
    """What has just happened. "The broker" is one that has replicas and is not the controller."""

    ASKED = "the controller has received the request"
    NOTED = "the ledger has an entry"
    BEGUN = "the ledger lists replicas as started"
    FORGOTTEN = "the broker's image does not have the topic any more"
    RENAMED = "the broker has renamed a replica's directory"
    ORDERED = "the broker has received StopReplica or DeleteReplicas"
    DURABLE = "the broker has synced its log directory after that"
    ANSWERED = "the controller has received the broker's response"
    CONFIRMED = "the ledger lists a replica of the broker as deleted"
    GONE = "the topic has been removed from the metadata"
    FINISHED = "the ledger has the receipt"
    REMOVED = "the broker has begun to delete the files"
    NTH_DISK = "the node is about to write to its disk, for the n-th time"
    NTH_ZNODE = "the node has written to ZooKeeper, for the n-th time"


STEPS = tuple(each for each in Step if each not in (Step.NTH_DISK, Step.NTH_ZNODE))


class Victim(Enum):
    """Who crashes."""

    BROKER = "broker"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPlan:
    """One crash. `nth`: counts the steps of one kind from 1; `power`: the machine loses power."""

    step: Step
    victim: Victim
    nth: int = 1
    power: bool = False
    down_ms: int = 5_000

    def __str__(self) -> str:
        words = [self.step.name.lower(), self.victim.value]
        words += [str(self.nth)] if self.nth > 1 or self.step.name.startswith("NTH") else []
        return "-".join([*words, *(["power"] if self.power else [])])


class Crash:
    """Waits for the step of a plan in the deletion of one topic, from now on."""

    def __init__(self, sim: "Sim", plan: CrashPlan, topic_id: Uuid) -> None:
        self.plan = plan
        self.controller = controller_of(sim)
        self.broker = next(
            node for node in sim.nodes.values() if node.is_broker and node is not self.controller
        )
        self.victim = self.controller if plan.victim is Victim.CONTROLLER else self.broker
        self._sim = sim
        self._topic_id = topic_id
        self._count = 0
        self._orders: set[tuple[int, int, bytes]] = set()
        """StopReplica and DeleteReplicas requests to the broker: (from, to, correlation id)."""
        self._is_ordered = False
        self._is_over = False
        sim.observe(self._observed)
        sim.net.arrived = self._frame
        for node in sim.nodes.values():
            node.disk_written = self._wrote
        if sim.zookeeper is not None:
            sim.zookeeper.model.observe(self._written)

    # -- what is seen --------------------------------------------------------------------------

    def _observed(self, observation: Any) -> None:
        broker_id = self.broker.id
        match observation:
            case TopicKnown(topic_id=self._topic_id, node=node, is_there=False):
                if node == broker_id:
                    self._reached(Step.FORGOTTEN)
            case TopicSet(topic_id=self._topic_id, is_there=False):
                self._reached(Step.GONE)
            case PartitionDirGone(topic_id=self._topic_id, node=node) if node == broker_id:
                self._reached(Step.RENAMED)
            case DeletionConfirmed(topic_id=self._topic_id, node=node) if node == broker_id:
                self._reached(Step.CONFIRMED)
            case DeletionSet(after=after, before=before) if after is not None:
                if after.topic_id != self._topic_id:
                    return
                if before is None:
                    self._reached(Step.NOTED)
                if after.has_begun and (before is None or not before.has_begun):
                    self._reached(Step.BEGUN)
                if after.is_finished:
                    self._reached(Step.FINISHED)

    def _frame(self, what: str, source: int, target: int, frame: bytes) -> None:
        if what == "request":
            key, correlation_id = int.from_bytes(frame[4:6], "big"), frame[8:12]
            if key in (DELETE_TOPICS, ENVELOPE) and target == self.controller.id:
                self._reached(Step.ASKED, by=self.controller)
            elif key in (STOP_REPLICA, DELETE_REPLICAS) and target == self.broker.id:
                self._orders.add((source, target, correlation_id))
                self._is_ordered = True
                self._reached(Step.ORDERED, by=self.broker)
        elif what == "response" and (target, source, frame[4:8]) in self._orders:
            self._reached(Step.ANSWERED, by=self._sim.nodes[target])

    def _wrote(self, node: "SimNode", operation: str, path: str) -> None:
        """Called before each operation that changes a disk."""
        if node is self.broker and operation == "rmtree" and "-delete" in path:
            self._reached(Step.REMOVED, by=node)
        is_flush = operation == "sync_dir" and path in node.config.log_dirs
        if node is self.broker and is_flush and self._is_ordered:
            # The flush itself is done first.
            self._sim.scheduler.after(0, lambda: self._reached(Step.DURABLE))
        if node is self.victim:
            self._reached(Step.NTH_DISK, by=node)

    def _written(self, written: Any) -> None:
        if written.client == self.victim.id:
            self._reached(Step.NTH_ZNODE)

    # -- the crash -----------------------------------------------------------------------------

    def _reached(self, step: Step, by: "SimNode | None" = None) -> None:
        """Count a step, and crash if it is the planned one; `by`: the node that is running now."""
        if self._is_over or step is not self.plan.step:
            return
        self._count += 1
        if self._count < self.plan.nth:
            return
        self._is_over = True
        sim, victim, plan = self._sim, self.victim, self.plan
        sim.mark("crashed-at-step")

        def back() -> None:
            sim.scheduler.after(plan.down_ms * MS, victim.restart)

        victim.die(lose_unflushed=plan.power, then=back)
        if by is victim:
            raise ProcessDied


def controller_of(sim: "Sim") -> "SimNode":
    """Return the active controller."""
    for node in sim.nodes.values():
        runtime = node.runtime
        rules = sim.zookeeper is not None and sim.zookeeper.controller_id == node.id
        if rules or (runtime is not None and runtime.active):
            return node
    raise AssertionError("there is no controller")
