"""InitProducerId hands out new ids, and refuses transactions so that clients stop at once."""

import pytest

from ottla.base.errors import Error
from ottla.broker.api.k22_init_producer_id import API, GRANT_TIMEOUT_MS
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

from ..harness import BrokerHarness


def request(
    transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


@pytest.fixture
def harness() -> BrokerHarness:
    """A broker with a block of ids from 1000 on."""
    harness = BrokerHarness()
    harness.begin(request(), 4)
    harness.controller.answer(
        AllocateProducerIdsResponse(error_code=0, producer_id_start=1000, producer_id_len=1000)
    )
    return harness


def test_version_6_is_unstable_in_kafka_and_not_served() -> None:
    assert list(API.versions) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", API.versions)
def test_every_version_gets_an_id(harness: BrokerHarness, version: int) -> None:
    answers = [harness.ask(request(), version) for _ in range(2)]
    assert [(one.error_code, one.producer_id, one.producer_epoch) for one in answers] == [
        (Error.NONE, 1001, 0),
        (Error.NONE, 1002, 0),
    ]


def test_a_known_id_is_replaced(harness: BrokerHarness) -> None:
    assert harness.ask(request(producer_id=1000, producer_epoch=3), 4).producer_id == 1001


def test_the_first_producer_waits_for_the_controller() -> None:
    harness = BrokerHarness()
    waiting = harness.begin(request(), 4)
    assert not waiting.done
    harness.clock.advance(GRANT_TIMEOUT_MS)
    assert waiting.value.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request("tx"), Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (request(""), Error.INVALID_REQUEST),
        (request(producer_id=5), Error.INVALID_REQUEST),
        (request(producer_epoch=5), Error.INVALID_REQUEST),
    ],
)
def test_refusals(harness: BrokerHarness, asked: InitProducerIdRequest, error: Error) -> None:
    answer = harness.ask(asked, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)
