"""A broker knows where it listens and whether it may lead. Method: by hand, and round trips."""

from hypothesis import given, settings

from ottla.metadata.brokers import BrokerImage, Endpoint, broker_of, record_of
from ottla.metadata.image import EMPTY, ClusterImage
from tests.drawn import examples

from .images import ID, brokers


@settings(max_examples=examples(50))
@given(brokers(5))
def test_a_broker_survives_its_record(broker: BrokerImage) -> None:
    assert broker_of(record_of(broker)) == broker


def test_a_broker_is_found_by_listener_and_active_unless_fenced_or_leaving() -> None:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
    plain = BrokerImage(id=1, epoch=5, incarnation_id=ID, endpoints=(endpoint,), fenced=False)
    assert plain.endpoint("PLAINTEXT") is endpoint
    assert plain.endpoint("OTHER") is None
    leaving = BrokerImage(
        id=2, epoch=5, incarnation_id=ID, endpoints=(), fenced=False, in_controlled_shutdown=True
    )
    fenced = BrokerImage(id=3, epoch=5, incarnation_id=ID, endpoints=())
    assert (plain.active, leaving.active, fenced.active) == (True, False, False)
    image = ClusterImage(brokers=EMPTY.brokers.update({1: plain, 2: leaving, 3: fenced}))
    assert [each for each in range(5) if image.is_active(each)] == [1]
    assert image.broker_ids() == [1, 2, 3]
