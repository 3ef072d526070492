"""The admin client retries, and records a deletion before it sends it.

Method: a fake broker, in virtual time.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.testing.sim_clients import Dialogue
from ottla.testing.sim_clients.admin import TRIES_MAX, Admin
from ottla.testing.sim_clients.topic import TopicSpec

from .fake import CREATE, DELETE, LOST_AFTER, TOPIC, TOPIC_ID, FakeCluster

OTHER_ID = Uuid(bytes(15) + b"\x08")


def create(cluster: FakeCluster) -> tuple[Admin, Error | None]:
    admin = Admin(cluster.client("a"))
    end = admin.client.run(admin.create(TopicSpec(name=TOPIC)))
    cluster.steps.run(30_000)
    return admin, end.value if end.done else None


def test_a_creation_is_retried_until_it_succeeds() -> None:
    cluster = FakeCluster()
    cluster.script[CREATE] = [
        Error.INVALID_REPLICATION_FACTOR,
        LOST_AFTER,
        Error.TOPIC_ALREADY_EXISTS,
    ]
    assert create(cluster)[1] is Error.NONE
    assert len(cluster.requests) == 3


def test_an_error_that_is_not_retriable_is_recorded() -> None:
    cluster = FakeCluster()
    cluster.script[CREATE] = [Error.INVALID_CONFIG]
    admin, error = create(cluster)
    assert error is Error.INVALID_CONFIG
    assert admin.refusals == [("create orders", Error.INVALID_CONFIG)]


def test_retries_end() -> None:
    cluster = FakeCluster()
    cluster.script[CREATE] = [Error.NOT_CONTROLLER] * 100
    assert create(cluster)[1] is Error.NOT_CONTROLLER
    assert len(cluster.requests) == TRIES_MAX


def test_a_deletion_is_recorded_before_it_is_sent() -> None:
    cluster = FakeCluster()
    admin, _error = create(cluster)
    admin.client.refresh()
    cluster.steps.run(1_000)
    cluster.script[DELETE] = [LOST_AFTER]
    end = admin.client.run(admin.delete(TOPIC))
    assert cluster.history.deleted == {TOPIC_ID}
    cluster.steps.run(1_000)
    assert end.value is Error.NONE
    assert admin.client.partitions_of(TOPIC) == []


def test_a_creation_is_retried_while_the_deleted_topic_has_the_name() -> None:
    """Over ZooKeeper a deleted topic exists until all its replicas are gone."""
    cluster = FakeCluster()
    admin, _error = create(cluster)
    admin.client.refresh()
    cluster.steps.run(1_000)
    admin.client.run(admin.delete(TOPIC))
    cluster.steps.run(1_000)
    cluster.script[CREATE] = [Error.TOPIC_ALREADY_EXISTS, Error.TOPIC_ALREADY_EXISTS, LOST_AFTER]
    cluster.script[CREATE] += [Error.TOPIC_ALREADY_EXISTS]
    end = admin.client.run(admin.create_anew(TopicSpec(name=TOPIC)))
    cluster.steps.run(1_000)
    assert not end.done
    cluster.topic_id = OTHER_ID
    cluster.steps.run(30_000)
    assert end.value is Error.NONE
    assert admin.client.ids == {TOPIC: OTHER_ID}
    assert cluster.script[CREATE] == []


def test_acknowledged_topics_are_recorded() -> None:
    cluster = FakeCluster()
    admin, _error = create(cluster)
    admin.client.refresh()
    cluster.steps.run(1_000)
    admin.client.run(admin.delete(TOPIC))
    cluster.steps.run(1_000)
    acknowledged = cluster.history.topics_acknowledged
    assert [(each.topic_id, each.is_deletion) for each in acknowledged] == [
        (TOPIC_ID, False),
        (TOPIC_ID, True),
    ]


def test_a_success_is_recorded_as_progress() -> None:
    cluster = FakeCluster()
    create(cluster)
    assert [incarnation.what for incarnation in cluster.history.progress] == ["changes of metadata"]


def test_one_that_is_stopped_sends_nothing_more() -> None:
    """Or what it changes is under way while the logs are read in the end."""
    cluster = FakeCluster()
    admin, _error = create(cluster)
    admin.client.refresh()
    cluster.steps.run(1_000)
    before = len(cluster.requests)

    def sleeps_through_it() -> Dialogue[None]:
        yield 100
        yield from admin.delete(TOPIC)

    ends = [
        admin.client.run(sleeps_through_it()),
        admin.client.run(
            admin.keep_changing(
                TopicSpec(name=TOPIC), TopicSpec(name="other"), brokers=(1,), interval_ms=50
            )
        ),
    ]
    admin.stop()
    cluster.steps.run(60_000)
    assert cluster.requests[before:] == []
    assert cluster.history.deleted == set(), "it was not requested"
    assert not any(end.done for end in ends)


def test_one_that_is_stopped_does_not_retry() -> None:
    cluster = FakeCluster()
    admin = Admin(cluster.client("a"))
    cluster.script[CREATE] = [LOST_AFTER]
    end = admin.client.run(admin.create(TopicSpec(name=TOPIC)))
    admin.stop()
    cluster.steps.run(60_000)
    assert len(cluster.requests) == 1
    assert not end.done
