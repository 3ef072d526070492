"""Waiters for an image are completed once, or give up and are removed.

Method: a publisher, changed by records that tests make.
"""

from ottla.base.timers import Timers
from ottla.host.kraft.metadata_follower import Publisher
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage

from .harness import FakeClock
from .quorum_harness import a_topic


def publish(publisher: Publisher, number: int) -> None:
    """Publish a change of one record at offset `number`."""
    publisher.publish(replay(publisher.image, [a_topic(number)], offset=number, epoch=1))


def test_a_waiter_that_gives_up_is_removed_at_once() -> None:
    """The image of a broker without metadata does not change: nothing else would remove it."""
    publisher = Publisher(lambda delta: None, clock=FakeClock(), timers=Timers())
    checked: list[int] = []

    def check(image: ClusterImage) -> bool:
        checked.append(image.position[0])
        return False

    waits = [publisher.until(check) for _ in range(3)]
    for wait in waits[:2]:
        wait.complete(None)
    assert list(publisher._waiting) == waits[2:]
    checked.clear()
    publish(publisher, 1)
    assert (checked, waits[2].done) == ([1], False)


def test_a_waiter_may_complete_others() -> None:
    publisher = Publisher(lambda delta: None, clock=FakeClock(), timers=Timers())
    checked: list[int] = []

    def check(image: ClusterImage) -> bool:
        checked.append(image.position[0])
        return True

    def give_up(_: None) -> None:
        second.complete(None)

    first = publisher.caught_up_to(1)
    second = publisher.until(lambda image: image.position[0] > 0 and check(image))
    first.then(give_up)
    publish(publisher, 1)
    assert (first.done, second.done, checked) == (True, True, [])
    assert not publisher._waiting
