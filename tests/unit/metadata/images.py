"""Images for tests: hypothesis strategies for whole ones, and a small one built from records."""

from hypothesis import strategies as st
from immutables import Map

from ottla.base.ids import NO_UUID, Uuid
from ottla.metadata.deletions import (
    NOT_FINISHED,
    DeletionImage,
    DeletionsImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)
from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigsImage,
    ControllerImage,
    Endpoint,
    FeatureRange,
    PartitionImage,
    ProducerIdsImage,
    TopicImage,
    TopicsImage,
)
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering

ids = st.integers(0, 9)
names = st.text("ab._-", min_size=1, max_size=4)
epochs = st.integers(0, 1 << 40)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
endpoints = st.builds(Endpoint, names, names, st.integers(0, 65_535), st.integers(0, 3))
features = st.builds(FeatureRange, names, st.integers(0, 5), st.integers(5, 30))
ID = Uuid(bytes(range(16)))
OTHER = Uuid(bytes(range(16, 32)))
HERE = Uuid(b"h" * 16)
THERE = Uuid(b"t" * 16)
PARTITION = PartitionImage(
    replicas=(1, 2), directories=(HERE, THERE), isr=(1, 2), leader=1, leader_epoch=4
)

few = st.lists(ids, max_size=3, unique=True).map(tuple)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    """Draw a partition with one directory for each replica."""
    replicas = draw(st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple))
    return PartitionImage(
        replicas=replicas,
        directories=tuple(draw(uuids) for _ in replicas),
        isr=draw(few),
        removing_replicas=draw(few),
        adding_replicas=draw(few),
        elr=draw(few),
        last_known_elr=draw(few),
        leader=draw(st.integers(-1, 9)),
        leader_recovery_state=draw(st.integers(0, 1)),
        leader_epoch=draw(st.integers(0, 1 << 30)),
        partition_epoch=draw(st.integers(0, 1 << 30)),
    )


@st.composite
def brokers(draw: st.DrawFn, broker_id: int) -> BrokerImage:
    """Draw a broker of that id."""
    return BrokerImage(
        id=broker_id,
        epoch=draw(epochs),
        incarnation_id=draw(uuids),
        endpoints=tuple(draw(st.lists(endpoints, max_size=2))),
        features=tuple(draw(st.lists(features, max_size=2))),
        rack=draw(st.none() | names),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_dirs=tuple(draw(st.lists(uuids, max_size=2))),
    )


@st.composite
def controllers(draw: st.DrawFn, controller_id: int) -> ControllerImage:
    """Draw a controller of that id."""
    return ControllerImage(
        id=controller_id,
        incarnation_id=draw(uuids),
        zk_migration_ready=draw(st.booleans()),
        endpoints=tuple(draw(st.lists(endpoints, max_size=2))),
        features=tuple(draw(st.lists(features, max_size=2))),
    )


@st.composite
def topics(draw: st.DrawFn) -> TopicsImage:
    """Draw topics of different names and ids."""
    image = TopicsImage()
    for name in draw(st.lists(names, max_size=4, unique=True)):
        parts = Map(enumerate(draw(st.lists(partitions(), max_size=2))))
        topic_id = draw(uuids)
        if image.by_id(topic_id) is None:
            image = image.with_topic(TopicImage(name=name, id=topic_id, partitions=parts))
    return image


@st.composite
def configs(draw: st.DrawFn) -> ConfigsImage:
    """Draw overrides of a few resources."""
    image = ConfigsImage()
    for resource in draw(st.lists(st.tuples(st.sampled_from([2, 4]), names), max_size=3)):
        for name, value in draw(st.dictionaries(names, names, min_size=1, max_size=3)).items():
            image = image.with_value(resource, name, value)
    return image


standings = st.builds(
    ReplicaStatus, st.sampled_from(DeletionState), st.sampled_from(Reason), st.integers(-1, 107)
)


@st.composite
def one_deletion(draw: st.DrawFn) -> DeletionImage:
    """Draw an entry of the ledger."""
    deletion = DeletionImage(
        topic_id=draw(uuids.filter(lambda each: each != NO_UUID)),
        name=draw(names),
        policy=draw(st.sampled_from(Policy)),
        asked_ms=draw(epochs),
        halted=draw(st.sampled_from(HaltReason)),
        remote=draw(st.sampled_from(Remote)),
        finished_ms=draw(st.just(NOT_FINISHED) | epochs),
        leader_epoch=draw(st.integers(-1, 5)),
        segments_left=draw(st.integers(-1, 2**31 - 1)),
        bytes_left=draw(st.integers(-1, 2**63 - 1)),
    )
    rows = st.tuples(ids, standings, st.lists(ids, min_size=1, max_size=4))
    for broker_id, standing, numbers in draw(st.lists(rows, max_size=4)):
        deletion = deletion.with_status(broker_id, standing, numbers)
    return deletion


@st.composite
def deletions(draw: st.DrawFn) -> DeletionsImage:
    """Draw a ledger."""
    image = DeletionsImage()
    for each in draw(st.lists(one_deletion(), max_size=3)):
        image = image.with_deletion(each)
    return image


@st.composite
def tierings(draw: st.DrawFn, topic_id: Uuid) -> TopicTiering:
    """Draw the tiering state of a topic."""
    return TopicTiering(
        topic_id=topic_id,
        state=draw(st.sampled_from(TieringState)),
        tiered_epoch=draw(st.integers(1, 9)),
        policy=draw(st.sampled_from(DisablePolicy)),
        remote_floor_epoch=draw(st.integers(0, 9)),
        purge_pending=draw(st.booleans()),
    )


def some_of(topics: TopicsImage) -> st.SearchStrategy[list[Uuid]]:
    """Draw the ids of some topics."""
    listed = [each.id for each in topics]
    return st.lists(st.sampled_from(listed), unique=True) if listed else st.just([])


@st.composite
def clusters(draw: st.DrawFn) -> ClusterImage:
    """Draw a whole image."""
    drawn = draw(topics())
    return ClusterImage(
        features=Map(draw(st.dictionaries(names, st.integers(1, 30), max_size=3))),
        brokers=Map({each: draw(brokers(each)) for each in draw(few)}),
        controllers=Map({each: draw(controllers(each)) for each in draw(few)}),
        topics=drawn,
        configs=draw(configs()),
        producer_ids=ProducerIdsImage(draw(epochs)),
        deletions=draw(deletions()),
        tiering=Map({each: draw(tierings(each)) for each in draw(some_of(drawn))}),
        position=(draw(epochs), draw(ids)),
    )
