"""Short stories of a topic whose tiered storage is turned off and on, each around one moment.

As `tier_stories`, which has the stage and the topic: a leader restarts while segments are retained,
copying is turned on again right after a deletion, a leader dies before its fence is written. A
story takes a few seconds.
"""

from dataclasses import replace

from ottla.metadata.tiering import TieringState, TopicTiering
from ottla.testing.history.topics import KEEPS_ALL
from ottla.testing.scenarios.scenario import Scenario, Story
from ottla.testing.scenarios.tiering_off import DELETE, ON, POLICY, RETAIN
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.testing.sim_clients import Dialogue, TopicSpec

from .tier_stories import SEGMENT_BYTES, TOPIC, Stage, scenario_of, spec

UNANSWERED_MS = 2_000
"""How long brokers have to acknowledge what they can, while one cannot."""


class Switch(Stage):
    """A stage with the switch of the topic's tiered storage."""

    @property
    def tiering(self) -> TopicTiering:
        return self.sim.image.tiering[self.key[0]]

    def set(self, values: dict[str, str]) -> Dialogue[None]:
        yield from self.story.admin.configure(TOPIC, values)

    def until_state(self, state: TieringState) -> Dialogue[None]:
        yield from self.until(lambda: self.tiering.state is state)

    def off(self, values: dict[str, str]) -> Dialogue[None]:
        """Turn it off, and wait until all have acknowledged."""
        yield from self.set(values)
        yield from self.until_state(TieringState.DISABLED)

    def on(self) -> Dialogue[None]:
        """Turn it on, and wait until segments are copied."""
        yield from self.set(ON)
        yield from self.until_more("COPY_FINISHED", 4)

    def begin_transactions(self, topic: TopicSpec) -> Dialogue[None]:
        """Begin with two producers of transactions, and a read_committed consumer."""
        story = self.story
        yield from story.create(topic)
        for _ in range(2):
            story.write_transactions(topic, interval_ms=150)
        story.read_tiers(topic, interval_ms=700, committed_only=True)
        yield from self.begin(topic)

    def lead_anew(self) -> Dialogue[None]:
        """Kill the leader, and have it back once another one leads."""
        leader = self.leader
        leader.crash(lose_unflushed=False)
        yield from self.until_led(but=leader)
        leader.restart()

    def cut_off_the_metadata(self) -> None:
        """Let no replica reach the leader of the metadata: no fence is written."""
        self.cut(self.metadata_leader.id, *self.replicas)


def retained(story: Story) -> Dialogue[None]:
    """Segments are retained; the leader dies, comes back, and all is read; then copying goes on."""
    stage = Switch(story)
    yield from stage.begin(spec())
    yield from stage.off(RETAIN)
    leader = stage.leader
    leader.crash(lose_unflushed=False)
    yield from stage.until_led(but=leader)
    leader.restart()
    yield from stage.until_in_sync()
    yield 2_000
    yield from stage.on()
    stage.over()


def deleted(story: Story) -> Dialogue[None]:
    """Segments are deleted, of which the local logs have a part; copying begins again at once."""
    stage = Switch(story)
    yield from stage.begin(spec(local_retention_bytes=str(3 * SEGMENT_BYTES)))
    yield from stage.until_more("COPY_FINISHED", 4)
    yield from stage.off(DELETE)
    yield from stage.on()
    yield 1_000
    stage.over()


def unfenced(story: Story) -> Dialogue[None]:
    """The followers have acknowledged; the leader dies before it can write its fence."""
    stage = Switch(story)
    yield from stage.begin(spec(KEEPS_ALL, 2, min_insync_replicas="1"))
    yield from stage.lead_apart()
    leader = stage.leader
    stage.cut_off_the_metadata()
    yield from stage.set(DELETE)
    yield UNANSWERED_MS
    leader.crash(lose_unflushed=False)
    yield from stage.until_led(but=leader)
    yield UNANSWERED_MS
    stage.mend()
    leader.restart()
    yield from stage.until_state(TieringState.DISABLED)
    stage.over()


def edited(story: Story) -> Dialogue[None]:
    """The policy is edited while the topic is DISABLING, which is refused."""
    stage = Switch(story)
    yield from stage.begin(spec(KEEPS_ALL, 2, min_insync_replicas="1"))
    yield from stage.lead_apart()
    stage.cut_off_the_metadata()
    yield from stage.set(RETAIN)
    yield from stage.set({POLICY: DELETE[POLICY]})
    stage.mend()
    yield from stage.until_state(TieringState.DISABLED)
    stage.over()


def reelected(story: Story) -> Dialogue[None]:
    """The controller dies after the topic is DISABLED; the next one begins with what is stored."""
    stage = Switch(story)
    yield from stage.begin(spec())
    yield from stage.off(RETAIN)
    controller = controller_of(stage.sim)
    controller.crash(lose_unflushed=False)
    yield 2_000
    controller.restart()
    yield 6_000
    yield from stage.until_in_sync()
    stage.over()


def transactions_retained(story: Story) -> Dialogue[None]:
    """Transactions, of which some are aborted, are written and read while the topic is DISABLING:
    they begin in remote segments and end in local ones. Then another leader serves them."""
    stage = Switch(story)
    topic = spec(
        KEEPS_ALL, 2, min_insync_replicas="1", local_retention_bytes=str(2 * SEGMENT_BYTES)
    )
    yield from stage.begin_transactions(topic)
    yield from stage.lead_apart()
    stage.cut_off_the_metadata()
    yield from stage.set(RETAIN)
    yield UNANSWERED_MS
    assert stage.tiering.state is TieringState.DISABLING
    stage.mend()
    yield from stage.until_state(TieringState.DISABLED)
    yield from stage.lead_anew()
    yield from stage.until_in_sync(2)
    yield 2_000
    yield from stage.on()
    stage.over()


def transactions_deleted(story: Story) -> Dialogue[None]:
    """The same with delete: the log starts within transactions then. The leader has more local
    records than its followers, which copy these; then one of them leads."""
    stage = Switch(story)
    topic = spec(local_retention_bytes=str(2 * SEGMENT_BYTES))
    yield from stage.begin_transactions(topic)
    leader = stage.log_on(stage.leader)
    yield from stage.until(lambda: leader.local_log_start_offset > 0)
    config = replace(leader.config, local_retention_bytes=10**9, local_retention_ms=-1)
    leader.reconfigure(config)
    yield from stage.until_more("COPY_FINISHED", 6)
    yield from stage.set(DELETE)
    yield 200
    yield from stage.until_state(TieringState.DISABLED)
    yield from stage.lead_anew()
    yield from stage.until_in_sync()
    yield 3_000
    yield from stage.on()
    yield 1_000
    stage.over()


STORIES = {
    each.__name__: each
    for each in (
        retained,
        deleted,
        unfenced,
        edited,
        reelected,
        transactions_retained,
        transactions_deleted,
    )
}


def scenario(name: str, *, zookeeper: bool = False) -> Scenario:
    """Return what plays a story."""
    return scenario_of(STORIES[name], zookeeper=zookeeper)
