"""A broker knows where it listens and whether it may lead. Method: by hand, and round trips."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from ottla.base.ids import Uuid
from ottla.metadata.brokers import BrokerImage, Endpoint, broker_of, record_of
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
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


DIR, GONE = Uuid(b"d" * 16), Uuid(b"g" * 16)


@pytest.mark.parametrize(
    ("directory", "registered", "none_registered"),
    [
        (DIR, True, True),
        (GONE, False, True),
        (DIRECTORY_LOST, False, False),
        (DIRECTORY_UNASSIGNED, True, True),
        (DIRECTORY_MIGRATING, True, True),
    ],
)
def test_log_directories_are_offline_unless_they_are_registered_or_not_known(
    directory: Uuid, registered: bool, none_registered: bool
) -> None:
    broker = BrokerImage(id=1, epoch=5, incarnation_id=ID, endpoints=(), log_dirs=(DIR,))
    assert broker.has_online_dir(directory) == registered
    assert replace(broker, log_dirs=()).has_online_dir(directory) == none_registered
