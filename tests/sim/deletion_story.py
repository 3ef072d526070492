"""A story about topics that come and go all the time, under a few names.

Each name's topic is made with another number of partitions and replicas than the last one, written
to and read; soon after it is deleted and made again, while it may be about to grow, to move or to
have its leaders changed. A steady topic is written to beside them.
"""

from ottla.base.zookeeper import Create, ZkCode, ZkError
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_preferred_election
from ottla.testing.scenarios import Dialogue, Story, TopicSpec
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener

TWO_COPIES = {"min.insync.replicas": "2"}
STEADY = TopicSpec(name="steady", partitions=1, replication_factor=3, configs=TWO_COPIES)
NAMES = ("left", "right")

ELECTIONS = 30
"""How often a tool asks for one: for about as long as a deletion takes to be noted."""


def topics_come_and_go(story: Story) -> Dialogue[None]:
    """Let it begin."""
    yield from story.create(STEADY)
    story.produce(STEADY, interval_ms=200)
    for name in NAMES:
        passing = TopicSpec(name=name, configs=TWO_COPIES)
        story.produce(passing, interval_ms=250, steady=False)
        story.consume(passing, steady=False)
        story.run(_comes_and_goes(story, name))


def _comes_and_goes(story: Story, name: str) -> Dialogue[None]:
    admin, below = story.admin, story.sim.dice.below
    while not story.is_over:
        spec = TopicSpec(
            name=name,
            partitions=1 + below(3),
            replication_factor=2 + below(2),
            configs=TWO_COPIES,
        )
        yield from admin.create_anew(spec)
        yield 100 + below(2_000)
        yield admin.client.refresh()
        match below(5):
            case 0:
                story.run(admin.grow(name, spec.partitions + 1))
            case 1:
                story.run(admin.reassign(name, 0, _some(story, spec.replication_factor)))
            case 2 if story.sim.zookeeper is None:
                story.run(admin.elect(name, 0))
            case 2:
                story.run(elect_by_znode(story, name))
        yield below(30)
        yield from admin.delete(name)


def _some(story: Story, count: int) -> tuple[int, ...]:
    left, below = list(story.broker_ids), story.sim.dice.below
    return tuple(left.pop(below(len(left))) for _ in range(count))


def elect_by_znode(story: Story, name: str) -> Dialogue[None]:
    """Ask for a preferred election as an old tool does, and again once it was tried, for a while.

    Unlike one that ElectLeaders asks for, it is under way for as long as it waits to be decided.
    """
    zookeeper = story.sim.zookeeper
    assert zookeeper is not None, "there are no znodes elsewhere"
    session = session_opener(zookeeper.model, "a tool")(lambda state: None)
    operation = Create(paths.PREFERRED_ELECTION, encode_preferred_election([(name, 0)]))
    for _each in range(ELECTIONS):
        created = yield session.multi((operation,))
        if isinstance(created, ZkError) and created.code is not ZkCode.NODE_EXISTS:
            break  # It gives up where ZooKeeper does not answer.
        yield 2
    yield session.close()
