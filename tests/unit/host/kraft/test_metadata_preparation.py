"""A change that a broker prepares for is published once it is ready, and those after it wait.

Method: a publisher, with preparations that the test completes.
"""

from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.host.kraft.metadata_follower import Publisher
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.records import RemoveTopicRecord, TopicRecord
from tests.unit.host.harness import FakeClock


class Followed:
    """A publisher, what it published, and the preparations under way."""

    def __init__(self) -> None:
        self.published: list[ClusterDelta] = []
        self.prepared: list[ClusterDelta] = []
        self.ready: Pending[None] = completed(None)
        timers = Timers()
        self.publisher = Publisher(
            self.published.append, clock=FakeClock(), timers=timers, prepare=self._prepare
        )

    def _prepare(self, delta: ClusterDelta) -> Pending[None]:
        self.prepared.append(delta)
        return self.ready

    def commit(self, *records: TopicRecord | RemoveTopicRecord) -> ClusterDelta:
        image = self.publisher.committed_image
        delta = replay(image, records, offset=image.position[0] + len(records), epoch=1)
        self.publisher.publish(delta)
        return delta


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=Uuid(bytes([number]) * 16))


def test_what_needs_no_preparation_is_published_at_once() -> None:
    followed = Followed()
    first = followed.commit(topic(1))
    assert followed.published == [first]
    assert followed.publisher.image is followed.publisher.committed_image


def test_nothing_is_published_before_it_is_prepared_nor_what_comes_after_it() -> None:
    followed = Followed()
    followed.ready = Pending()
    first = followed.commit(topic(1))
    second = followed.commit(topic(2))
    third = followed.commit(RemoveTopicRecord(topic_id=topic(1).topic_id))
    awaited = followed.publisher.caught_up_to(first.image.position[0])
    assert followed.published == []
    assert followed.prepared == [first], "one at a time: the next one may name what goes yet"
    assert followed.publisher.offset == -1
    assert followed.publisher.committed_image is third.image
    assert not awaited.done

    ready, followed.ready = followed.ready, completed(None)
    ready.complete(None)
    assert followed.published == [first, second, third]
    assert followed.publisher.image is third.image
    assert awaited.done


def test_a_change_that_waited_is_prepared_in_its_turn() -> None:
    followed = Followed()
    first_ready = followed.ready = Pending()
    first = followed.commit(topic(1))
    second = followed.commit(topic(2))
    second_ready = followed.ready = Pending()
    first_ready.complete(None)
    assert followed.published == [first]
    assert followed.prepared == [first, second]
    second_ready.complete(None)
    assert followed.published == [first, second]


def test_a_broker_that_stops_gets_no_more_changes() -> None:
    followed = Followed()
    followed.ready = Pending()
    followed.commit(topic(1))
    followed.commit(topic(2))
    followed.publisher.close()
    followed.ready.complete(None)
    assert followed.published == []
