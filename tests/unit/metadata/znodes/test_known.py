"""Goal: what is known of znodes after a multi is what a read would return.

Method: a value with every field set, and each operation on it; the histories compare the rest.
"""

from immutables import Map

from ottla.base.zookeeper import Check, Create, Delete, SetData, Stat
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.known import (
    KnownConfig,
    KnownNode,
    KnownTopic,
    KnownZnodes,
    after_operations,
)

from ...controller.builders import uuid

EXTRA = Map({"era": 1})
TOPIC = KnownTopic(
    version=4,
    format=5,
    is_whole=False,
    extra=EXTRA,
    czxid=9,
    partitions=Map({0: KnownNode(2, EXTRA), 1: None}),
)
KNOWN = KnownZnodes(
    topics=Map({"t": TOPIC}),
    unreadable=Map({"u": "why"}),
    configs=Map({(2, "t"): KnownConfig(3, EXTRA, Map({"a": "b"}))}),
    deletions=Map({uuid("old"): KnownNode(1)}),
    feature=KnownNode(6, EXTRA),
    producer_ids=KnownNode(7, EXTRA),
    marked=frozenset({"t"}),
)


def fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__slots__}  # type: ignore[attr-defined]


def test_a_change_below_a_topic_keeps_all_the_rest() -> None:
    after = after_operations(KNOWN, [Delete(paths.state("t", 0))], None)
    assert fields(after) | {"topics": None} == fields(KNOWN) | {"topics": None}
    topic = after.topics["t"]
    assert fields(topic) | {"partitions": None} == fields(TOPIC) | {"partitions": None}
    assert topic.partitions == Map({0: None, 1: None})


def test_versions_are_foretold_or_taken_from_the_answers() -> None:
    operations = [
        Check(paths.CONTROLLER_EPOCH, 1),
        SetData(paths.state("t", 0), b"", 2),
        SetData(paths.FEATURE, b"", 6),
    ]
    predicted = after_operations(KNOWN, operations, None)
    assert predicted.state("t", 0) == KnownNode(3, EXTRA)
    assert predicted.feature == KnownNode(7, EXTRA)
    known = after_operations(KNOWN, operations, [None, Stat(0, 0, 8, 0, 0, 0, 0), None])
    assert known.state("t", 0) == KnownNode(8, EXTRA)
    assert known.feature == KnownNode(7, EXTRA)


def test_a_topic_that_is_written_again_bears_its_id_from_then_on() -> None:
    after = after_operations(KNOWN, [SetData(paths.topic("t"), b"", 4)], None)
    topic = after.topics["t"]
    assert (topic.version, topic.format, topic.is_whole, topic.extra) == (5, 5, True, EXTRA)


def test_nodes_come_and_go() -> None:
    made = after_operations(
        KnownZnodes(),
        [
            Create(paths.config((4, "")), b'{"version":1,"config":{"x":"y"}}'),
            Create(paths.topic("t"), b"..."),
            Create(paths.partitions("t")),
            Create(paths.partition("t", 0)),
            Create(paths.state("t", 0), b"..."),
            Create(paths.marker("t")),
            Create(paths.deletion(uuid("t")), b"..."),
            Create(paths.PRODUCER_IDS, b"..."),
            Create(paths.CONFIG_CHANGE, b"...", sequential=True),
        ],
        None,
    )
    assert made == KnownZnodes(
        topics=Map({"t": KnownTopic(partitions=Map({0: KnownNode()}))}),
        configs=Map({(4, ""): KnownConfig(values=Map({"x": "y"}))}),
        deletions=Map({uuid("t"): KnownNode()}),
        producer_ids=KnownNode(),
        marked=frozenset({"t"}),
    )
    gone = after_operations(
        made,
        [
            Delete(paths.state("t", 0)),
            Delete(paths.partition("t", 0)),
            Delete(paths.partitions("t")),
            Delete(paths.topic("t")),
            Delete(paths.config((4, ""))),
            Delete(paths.marker("t")),
            Delete(paths.deletion(uuid("t"))),
        ],
        None,
    )
    assert gone == KnownZnodes(producer_ids=KnownNode())
