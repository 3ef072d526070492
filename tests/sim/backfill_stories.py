"""Short stories of a topic that is backfilled, each built around one failure of a grant's holder.

Method: as `tier_stories`. The topic gets remote storage when it has some closed segments, and the
leader's own copies are slow, so that there is something to grant. A holder executes the product's
steps of a copy, and fails where the story says so.
"""

from collections.abc import Callable
from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.testing.scenarios.scenario import Scenario, Story
from ottla.testing.scenarios.settling import log_of
from ottla.testing.sim.scheduler import Process
from ottla.testing.sim_clients import Dialogue
from ottla.testing.sim_clients.backfiller import AT_COMMIT, Mishap, RunningCopy
from ottla.tiered.granted_copy import (
    CopyFailed,
    CopyTarget,
    GrantedCopy,
)

from .tier_stories import CONFIG, TOPIC, Stage, scenario_of, spec

CLOSED = 5
"""Segments that are closed when the topic gets remote storage."""
LOG_PUT = 7
"""The number of the step that writes a small segment's log, without a transaction index: behind the
grant, the fetch and its batches, and four small objects."""
LONG_MS = 60_000
QUOTA = {
    "remote.log.manager.copy.max.bytes.per.second": "3000",
    "remote.log.manager.copy.quota.window.num": "1",
}
"""A leader copies a segment in some half a second."""


class Holders:
    """What a story's holders act through."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client = stage.story.client("holder")
        self.client.follow(TOPIC)
        self._store = stage.sim.object_store.client(
            Process("holder"), clock=stage.sim.clock, read_file=_no_file
        )

    def copy(
        self,
        *,
        lease_ms: int = LONG_MS,
        mishap: Mishap | None = None,
        at: int = AT_COMMIT,
        stalled_ms: int = 0,
    ) -> Dialogue[None]:
        """Take a grant and copy; what became of it is a mark."""
        client = self.client
        while True:
            yield client.refresh()
            if not client.partitions_of(TOPIC):
                continue
            target = CopyTarget(TOPIC, *self.stage.key)
            running = RunningCopy(
                client, self._store, target, self.stage.sim.mark, mishap, at, stalled_ms
            )
            copy = GrantedCopy(
                target,
                Uuid(client.dice.random_bytes(16)),
                lease_ms=lease_ms,
                now_ms=client.clock.monotonic_ms,
            )
            try:
                outcome = yield from running.run(copy)
            except CopyFailed:
                continue
            if running.is_granted:
                if outcome is not None:
                    self.stage.sim.mark(f"backfill-{outcome.state}")
                return


def _no_file(path: str) -> bytes:
    raise FileNotFoundError(path)


def _segments(stage: Stage) -> int:
    """Return how many segments the leader's log has."""
    node = stage.sim.nodes.get(stage.story.leader_of(TOPIC))
    broker = None if node is None else node.broker
    log = None if broker is None else log_of(broker, stage.key)
    return 0 if log is None else len(log.local_segments())


def _begin(story: Story) -> Dialogue[tuple[Stage, Holders]]:
    """Create the topic, have some segments closed, and turn remote storage on."""
    stage = Stage(story)
    topic = spec(remote_storage_enable="false")
    yield from story.create(topic)
    story.produce(topic, interval_ms=60)
    story.read_tiers(topic, interval_ms=1_500)
    yield from stage.until(lambda: _segments(stage) > CLOSED)
    yield from story.admin.configure(TOPIC, {"remote.storage.enable": "true"})
    return stage, Holders(stage)


def dead_holder(story: Story) -> Dialogue[None]:
    """A holder dies; those of the next segments commit, and are kept until its lease ends."""
    stage, holders = yield from _begin(story)
    yield from holders.copy(lease_ms=8_000, mishap=Mishap.DEATH, at=LOG_PUT)
    for _ in range(2):
        yield from holders.copy()
    yield 3_000  # Local retention has its chance.
    yield from stage.until_more("COPY_FINISHED", 4)
    stage.over()


def other_store(story: Story) -> Dialogue[None]:
    """A holder writes to another store than the brokers', and commits."""
    stage, holders = yield from _begin(story)
    yield from holders.copy(mishap=Mishap.OTHER_STORE)
    yield from stage.until_more("COPY_FINISHED", 2)
    stage.over()


def stalled_holder(story: Story) -> Dialogue[None]:
    """A holder stalls before a write, until its lease has ended and its objects are deleted."""
    stage, holders = yield from _begin(story)
    yield from holders.copy(lease_ms=1_500, mishap=Mishap.STALL, at=LOG_PUT, stalled_ms=12_000)
    yield from stage.until_more("COPY_FINISHED", 2)
    stage.over()


def dead_leader(story: Story) -> Dialogue[None]:
    """A leader dies between a grant and its commit; the next one does not know the grant."""
    stage, holders = yield from _begin(story)
    story.run(holders.copy(mishap=Mishap.STALL, stalled_ms=6_000))
    yield from stage.until(lambda: stage.sim.marks["backfill-stalled"] > 0)
    leader = stage.leader
    leader.crash(lose_unflushed=False)
    yield from stage.until_led(but=leader)
    leader.restart()
    yield 7_000
    yield from holders.copy()
    yield from stage.until(lambda: stage.sim.marks["backfill-failed"] > 0)
    stage.over()


STORIES = {each.__name__: each for each in (dead_holder, other_store, stalled_holder, dead_leader)}


def scenario(name: str, *, zookeeper: bool = False) -> Scenario:
    """Return what plays a story."""
    story: Callable[[Story], Dialogue[None]] = STORIES[name]
    made = scenario_of(story, zookeeper=zookeeper)
    return replace(made, config=dict(CONFIG) | QUOTA)
