"""A broker that is unregistered leads nothing and is gone; its partitions keep naming it.

Method: decisions on a replayed image.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.brokers.unregister import unregister_broker
from ottla.controller.topics.create_topics import NewTopic, create_topics

from ..builders import THREE, after, context


def test_a_broker_goes() -> None:
    around = context()
    wanted = [NewTopic(name="t", assignments=((0, (1,)),))]
    image = after(THREE, create_topics(THREE, wanted, validate_only=False, context=around))
    around.liveness.touch(1, 0)
    decided = unregister_broker(image, 1, context=around)
    changed = after(image, decided)
    assert changed.broker_ids() == [2, 3]
    topic = changed.topics.by_name("t")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (NO_LEADER, (1,))
    assert not around.liveness.is_alive(1, 0)


def test_nobody_of_that_id() -> None:
    with pytest.raises(ApiError) as caught:
        unregister_broker(THREE, 9, context=context())
    assert caught.value.error is Error.BROKER_ID_NOT_REGISTERED
