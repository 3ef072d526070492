"""Who waits for the image to grow is told once, or gives up and is forgotten.

Method: a publisher alone, changed by records that tests make.
"""

from ottla.base.timers import Timers
from ottla.host.metadata_follower import Publisher
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage

from .harness import FakeClock
from .quorum_harness import a_topic


def publish(publisher: Publisher, number: int) -> None:
    """Publish a change of one record at offset `number`."""
    publisher.publish(replay(publisher.image, [a_topic(number)], offset=number, epoch=1))


def test_a_waiter_that_gives_up_is_removed_at_once() -> None:
    """The image of a broker that hears nothing does not grow: nothing else would forget him."""
    publisher = Publisher(lambda delta: None, clock=FakeClock(), timers=Timers())
    looked: list[int] = []

    def look(image: ClusterImage) -> bool:
        looked.append(image.position[0])
        return False

    waits = [publisher.until(look) for _ in range(3)]
    for wait in waits[:2]:
        wait.complete(None)
    assert list(publisher._waiting) == waits[2:]
    looked.clear()
    publish(publisher, 1)
    assert (looked, waits[2].done) == ([1], False)


def test_a_waiter_may_complete_others() -> None:
    publisher = Publisher(lambda delta: None, clock=FakeClock(), timers=Timers())
    looked: list[int] = []

    def look(image: ClusterImage) -> bool:
        looked.append(image.position[0])
        return True

    def give_up(_: None) -> None:
        second.complete(None)

    first = publisher.caught_up_to(1)
    second = publisher.until(lambda image: image.position[0] > 0 and look(image))
    first.then(give_up)
    publish(publisher, 1)
    assert (first.done, second.done, looked) == (True, True, [])
    assert not publisher._waiting
