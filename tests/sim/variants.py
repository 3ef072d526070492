"""Ottla with one rule broken: each variant replaces one function of the product, for a while.

What a variant breaks is a rule that some promise rests on. The simulator is worth something only
if it notices: `test_variants` says within how many seeds.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Any

from ottla.base.errors import Error
from ottla.base.pending import Pending, completed
from ottla.broker.fetch import delayed_fetch
from ottla.broker.partition import Partition
from ottla.controller.brokers import brokers as brokers_module
from ottla.controller.elections import partition_change
from ottla.controller.metadata_port import Committed
from ottla.controller.partitions import isr as isr_module
from ottla.controller.step import Step
from ottla.host.kraft.metadata_log import MetadataLog
from ottla.host.kraft.quorum_storage import QuorumStorage
from ottla.log.partition_log import PartitionLog
from ottla.metadata.image import PartitionImage
from ottla.raft.events import VoteRequestReceived
from ottla.raft.node import RaftNode
from ottla.raft.roles import Role
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.workload import Workload
from ottla.testing.sim import Faults

from .deletion_story import topics_come_and_go
from .deletion_variants import (
    confirms_what_it_has_not_deleted,
    counts_orders_as_done,
    deletes_by_name,
    deletes_successors,
    deletes_what_lags,
    forgets_who_was_down,
    hears_of_the_dead_again,
    keeps_the_bytes,
)
from .replaced import replaced

# -- the quorum --------------------------------------------------------------------------------


@contextmanager
def votes_twice() -> Iterator[None]:
    """A voter grants its vote to several candidates in one epoch."""

    def grants(self: RaftNode, event: VoteRequestReceived) -> bool:
        up_to_date = event.log_end.rank >= self.log.end.rank
        if event.pre_vote:
            return up_to_date and not self.has_fetched_from_leader
        return up_to_date and self.role is not Role.LEADER

    with replaced(RaftNode, "grants", grants):
        yield


@contextmanager
def forgets_its_vote() -> Iterator[None]:
    """The file quorum-state is not written: after a restart epoch and vote are lost."""
    with replaced(QuorumStorage, "store_election", lambda self, state: None):
        yield


@contextmanager
def compares_no_logs() -> Iterator[None]:
    """A voter votes for candidates that lack what it has."""
    grants = RaftNode.grants

    def generous(self: RaftNode, event: VoteRequestReceived) -> bool:
        end = max(event.log_end, self.log.end, key=lambda each: each.rank)
        return grants(self, replace(event, log_end=end))

    with replaced(RaftNode, "grants", generous):
        yield


@contextmanager
def skips_truncation_of_metadata() -> Iterator[None]:
    """A member keeps what its leader does not have."""
    with replaced(RaftNode, "_truncate", lambda self, leader_end: None):
        yield


@contextmanager
def answers_before_the_commit() -> Iterator[None]:
    """A controller answers when it has appended, before the commit."""

    append = MetadataLog.append

    def answer_at_once(self: MetadataLog, step: Step, epoch: int) -> Pending[Any]:
        appended = append(self, step, epoch)
        return completed(Committed(())) if step.records else appended

    with replaced(MetadataLog, "append", answer_at_once):
        yield


# -- the controller ----------------------------------------------------------------------------


@contextmanager
def elects_outside_the_isr() -> Iterator[None]:
    """Whatever replica is alive may lead."""
    led = partition_change._with_leader

    def anyone(goal: PartitionImage, *rest: Any) -> Any:
        context = rest[-1]
        alive = [
            each
            for each, directory in zip(goal.replicas, goal.directories, strict=True)
            if context.is_acceptable(each, directory)
        ]
        if alive and goal.leader not in alive:
            return replace(goal, leader=alive[0], isr=(alive[0],), elr=()), False
        return led(goal, *rest)

    with replaced(partition_change, "_with_leader", anyone):
        yield


@contextmanager
def forgets_the_last_members() -> Iterator[None]:
    """An in-sync set runs empty without a note of who was in it."""
    with (
        replaced(partition_change, "_with_elr", lambda partition, goal, *rest: goal),
        replaced(partition_change, "_with_last_known_elr", lambda partition, goal, *rest: goal),
    ):
        yield


@contextmanager
def ignores_the_leader_epoch() -> Iterator[None]:
    """A previous leader may change the ISR, in whatever epoch."""

    def fault(image: Any, broker_id: int, partition: Any, wanted: Any) -> Error:
        return Error.UNKNOWN_TOPIC_OR_PARTITION if partition is None else Error.NONE

    with replaced(isr_module, "_fault", fault):
        yield


@contextmanager
def takes_every_start_for_clean() -> Iterator[None]:
    """A broker that lost its unflushed data stays eligible to lead."""
    leave = brokers_module.remove_from_isrs

    def clean(*arguments: Any, unclean: bool) -> Any:
        return leave(*arguments, unclean=False)

    with replaced(brokers_module, "remove_from_isrs", clean):
        yield


# -- brokers -----------------------------------------------------------------------------------


@contextmanager
def acknowledges_before_the_isr_has_it() -> Iterator[None]:
    """acks=all is answered as soon as the leader has it."""
    with replaced(Partition, "committed", lambda self, next_offset: Error.NONE):
        yield


@contextmanager
def commits_what_the_leader_has() -> Iterator[None]:
    """The high watermark is the leader's log end."""

    def advance(self: Partition) -> bool:
        assert self.log is not None
        return self.log.advance_high_watermark(self.log.log_end_offset)

    with replaced(Partition, "advance_high_watermark", advance):
        yield


@contextmanager
def ignores_min_insync_replicas() -> Iterator[None]:
    """A leader that is alone acknowledges."""
    with replaced(Partition, "min_isr", property(lambda self: 1)):
        yield


@contextmanager
def sees_no_divergence() -> Iterator[None]:
    """A leader does not return diverging epochs to followers: none truncates."""
    with replaced(delayed_fetch, "divergence", lambda requested, log: None):
        yield


@contextmanager
def follows_without_producers() -> Iterator[None]:
    """A follower keeps records, but not which producer's sequence they end."""
    append = PartitionLog.append_as_follower

    def without_producers(*arguments: Any, **named: Any) -> Any:
        with replaced(PartitionLog, "_note_producer", lambda *_: None):
            return append(*arguments, **named)

    with replaced(PartitionLog, "append_as_follower", without_producers):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A broken rule, where it shows, and what may notice it.

    Fields: `by`: the checkers of which one must find it.
    """

    breaks: Callable[[], AbstractContextManager[None]]
    scenario: Scenario
    by: tuple[str, ...]


SEEDS_MAX = 100
"""Within how many seeds each variant must be found out. Most take fewer than ten, but which seed
shows what shifts with every change of the product, and some show in one seed of six only."""


def scenario(name: str, faults: Faults, *, seconds: float = 40, **workload: Any) -> Scenario:
    """Return a small cluster in which everything happens often."""
    busy = Workload(**({"partitions": 2, "interval_ms": 60, "change_ms": 1_500} | workload))
    return Scenario(
        name=name,
        story=busy.story,
        combined=True,
        faults=faults,
        config=HASTY,
        seconds=seconds,
        settle_seconds=60,
    )


def deletions(name: str, faults: Faults, *, zookeeper: bool) -> Scenario:
    """Return a small cluster whose topics come and go all the time."""
    timing = {"zookeeper.session.timeout.ms": "3000"} if zookeeper else HASTY
    return Scenario(
        name=name,
        story=topics_come_and_go,
        combined=True,
        zookeeper=zookeeper,
        faults=faults,
        config={**timing, "log.segment.delete.delay.ms": "1000"},
        seconds=20,
    )


def quorum(name: str, faults: Faults) -> Scenario:
    """Return controllers that elect all the time, and hardly anything else."""

    def story(story: Story) -> Dialogue[None]:
        story.run(come_and_go(story))
        for number in count():
            yield from story.admin.create(TopicSpec(name=f"t{number}", replication_factor=1))
            yield 300

    return Scenario(
        name=name,
        story=story,
        brokers=1,
        controllers=3,
        faults=faults,
        config={**HASTY, "controller.quorum.election.timeout.ms": "80"},
        seconds=20,
        acknowledged_min=0,
    )


def come_and_go(story: Story) -> Dialogue[None]:
    """Kill controllers, and start them again a moment later."""
    below = story.sim.dice.below
    nodes = [node for _, node in sorted(story.sim.nodes.items()) if node.is_controller]
    while True:
        yield 20 + below(200)
        node = nodes[below(len(nodes))]
        node.crash(lose_unflushed=False)
        yield 1 + below(30)
        node.restart()


HASTY = MappingProxyType(
    {
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.fetch.timeout.ms": "700",
        "controller.quorum.election.backoff.max.ms": "100",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "400",
        "replica.lag.time.max.ms": "1500",
    }
)
"""Timeouts with which elections follow each other."""

ELECTIONS = Faults(elected=0.5, crashes=10, cut=15, paused=10, slow=0.02)
MOVES = Faults(crashes=15, stopped=5, paused=10, cut=15, slow=0.02)
SLOW = Faults(crashes=20, cut=15, paused=10, slow=0.25, broken=0.02)
SILENT = Faults(crashes=10, stopped=30, cut=10, paused=20, silent=0.01, broken=0.02)
POWER = Faults(crashes=30, stopped=15, power=0.5)
VOTES = Faults(elected=0.5, cut=30, slow=0.2)

AWAY = Faults(crashes=30, stopped=10, paused=10, slow=0.05, broken=0.02, twice=0.05)

LATE = Faults(twice=0.5, slow=0.05)

LOST = ("acknowledged write lost", "read lost", "two values at one offset")
QUORUM = ("two leaders in one epoch", "metadata lost or reordered", "acknowledged topic lost")
RULES = ("partition rules broken",)

VARIANTS = (
    Variant(breaks=votes_twice, scenario=quorum("votes", VOTES), by=QUORUM),
    Variant(
        breaks=forgets_its_vote,
        scenario=quorum("votes", VOTES),
        by=QUORUM,
    ),
    Variant(breaks=compares_no_logs, scenario=scenario("elections", ELECTIONS), by=LOST + QUORUM),
    Variant(
        breaks=skips_truncation_of_metadata,
        scenario=scenario("elections", ELECTIONS),
        by=(*QUORUM, "no progress"),
    ),
    Variant(
        breaks=answers_before_the_commit,
        scenario=scenario("elections", ELECTIONS),
        by=(*QUORUM, "assertion failed"),
    ),
    Variant(breaks=elects_outside_the_isr, scenario=scenario("moves", MOVES), by=LOST + RULES),
    Variant(breaks=forgets_the_last_members, scenario=scenario("moves", MOVES), by=LOST + RULES),
    Variant(breaks=ignores_the_leader_epoch, scenario=scenario("silent", SILENT), by=LOST + RULES),
    Variant(breaks=takes_every_start_for_clean, scenario=scenario("power", POWER), by=LOST),
    Variant(breaks=acknowledges_before_the_isr_has_it, scenario=scenario("slow", SLOW), by=LOST),
    Variant(breaks=commits_what_the_leader_has, scenario=scenario("moves", MOVES), by=LOST),
    Variant(breaks=ignores_min_insync_replicas, scenario=scenario("moves", MOVES), by=LOST),
    Variant(breaks=sees_no_divergence, scenario=scenario("moves", MOVES), by=LOST),
    Variant(
        breaks=follows_without_producers,
        scenario=scenario("silent", SILENT),
        by=("idempotent write twice", "producer reordered"),
    ),
    # In KRaft a broker deletes replicas before DeleteReplicas arrives: it proves nothing new.
    Variant(
        breaks=confirms_what_it_has_not_deleted,
        scenario=deletions("deletions", AWAY, zookeeper=True),
        by=("receipt untrue",),
    ),
    *(
        Variant(
            breaks=breaks,
            scenario=deletions("deletions", AWAY, zookeeper=zookeeper),
            by=("receipt untrue",),
        )
        for zookeeper in (False, True)
        for breaks in (counts_orders_as_done, forgets_who_was_down)
    ),
    Variant(
        breaks=keeps_the_bytes,
        scenario=deletions("deletions", Faults.NONE, zookeeper=True),
        by=("deletion not finished",),
    ),
    Variant(
        breaks=deletes_by_name,
        scenario=deletions("orders come late", LATE, zookeeper=True),
        by=("living replica deleted",),
    ),
    Variant(
        breaks=deletes_successors,
        scenario=deletions("orders come late", LATE, zookeeper=False),
        by=("living replica deleted",),
    ),
    Variant(
        breaks=hears_of_the_dead_again,
        scenario=deletions("orders come late", LATE, zookeeper=True),
        by=("deleted topic came back",),
    ),
    *(
        Variant(
            breaks=deletes_what_lags,
            scenario=deletions("deletions", AWAY, zookeeper=zookeeper),
            by=("living replica deleted",),
        )
        for zookeeper in (False, True)
    ),
)
