"""A loaded store over three brokers in a simulated ZooKeeper, for its tests."""

from functools import partial

from ottla.base.ids import Uuid
from ottla.controller.topics.create_partitions import create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.records import ProducerIdsRecord
from tests.metadata_port_checks import facts

from ...controller.builders import context
from .harness import Controller, ZooKeeperHarness

TOPIC_ID = Uuid(bytes(range(1, 17)))
CONTEXT = context()


def three_brokers() -> ZooKeeperHarness:
    """Return a cluster of three brokers without a controller."""
    sim = ZooKeeperHarness()
    sim.make_cluster()
    for broker_id in (1, 2, 3):
        sim.register(broker_id)
    return sim


def ruled(sim: ZooKeeperHarness) -> Controller:
    """Return a cluster's controller, loaded."""
    return sim.elect(sim.client("controller")).load()


def check_stored(controller: Controller) -> None:
    """The image is what is stored, and listeners got all of it."""
    assert facts(controller.reloaded().image) == facts(controller.store.image)
    if controller.deltas:
        assert controller.deltas[-1].image is controller.store.image
    for before, after in zip(controller.deltas, controller.deltas[1:], strict=False):
        assert after.before is before.image


CREATE = partial(create_topics, validate_only=False, context=CONTEXT)
GROW = partial(create_partitions, validate_only=False, context=CONTEXT)
NEXT_IDS = ProducerIdsRecord(broker_id=1, next_producer_id=5_000)


def create(controller: Controller, name: str, partitions: int = 2) -> object:
    wanted = NewTopic(name=name, partition_count=partitions, replication_factor=2)
    return controller.run(lambda image: CREATE(image, [wanted]))
