"""A busy cluster: idempotent and plain producers, a consumer, and an admin client.

Two topics: one that is never deleted, whose records must all exist in the end, and one that gets
partitions, is deleted and created again. Both have min.insync.replicas=2: with 1, a loss of power
may lose acknowledged records without breaking a promise. A seed may add topics that promise less,
see `storage`, and topics with remote storage, see `tiering`.
"""

from dataclasses import dataclass

from ottla.testing.scenarios.groups import NO_GROUPS, GroupsWorkload
from ottla.testing.scenarios.scenario import Story
from ottla.testing.scenarios.storage import NO_STORAGE, StorageWorkload
from ottla.testing.scenarios.tiering import NO_TIERING, TieringWorkload
from ottla.testing.sim_clients import Dialogue, TopicSpec

TWO_COPIES = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The rates of the clients.

    Fields: `interval_ms`: the mean time between batches of all idempotent producers together; the
            others are slower. `change_ms`: the mean time between admin requests.
    """

    partitions: int = 3
    replication_factor: int = 3
    passing_partitions: int = 1
    passing_replication_factor: int = 3
    producers: int = 1
    in_flight_max: int = 5
    interval_ms: int = 120
    read_ms: int = 600
    change_ms: int = 8_000
    groups: GroupsWorkload = NO_GROUPS
    storage: StorageWorkload = NO_STORAGE
    tiering: TieringWorkload = NO_TIERING

    @property
    def steady(self) -> TopicSpec:
        """The topic that is never deleted."""
        return TopicSpec(
            name="steady",
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            configs=TWO_COPIES,
        )

    @property
    def passing(self) -> TopicSpec:
        """The topic that is deleted and created again."""
        return TopicSpec(
            name="passing",
            partitions=self.passing_partitions,
            replication_factor=self.passing_replication_factor,
            configs=TWO_COPIES,
        )

    def story(self, story: Story) -> Dialogue[None]:
        """Start all clients, then make admin requests until the end."""
        steady, passing = self.steady, self.passing
        yield from story.create(steady)
        story.produce(
            steady,
            clients=self.producers,
            interval_ms=self.interval_ms * self.producers,
            in_flight_max=self.in_flight_max,
        )
        story.produce(steady, interval_ms=6 * self.interval_ms, idempotent=False)
        story.consume(steady, interval_ms=self.read_ms)
        story.ask()
        yield from story.create(passing)
        story.produce(passing, interval_ms=10 * self.interval_ms, steady=False)
        story.groups = self.groups.begin(story, steady)
        if self.storage.topics:
            story.run(self.storage.story(story))
        if self.tiering.topics:
            story.run(self.tiering.story(story))
        yield from story.admin.keep_changing(
            steady, passing, brokers=story.broker_ids, interval_ms=self.change_ms
        )
