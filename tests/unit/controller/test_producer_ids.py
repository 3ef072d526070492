"""Producer ids come in blocks that never overlap. Method: blocks one after another."""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.limits import PRODUCER_IDS_PER_BLOCK
from ottla.controller.producer_ids import PRODUCER_ID_MAX, allocate_producer_ids
from ottla.metadata.records import ProducerIdsRecord

from .builders import THREE, advance, after


def test_blocks_follow_one_another() -> None:
    image = THREE
    for turn, broker_id in enumerate((1, 2, 1)):
        decided = allocate_producer_ids(image, broker_id=broker_id, broker_epoch=100 + broker_id)
        assert decided.reply == (turn * PRODUCER_IDS_PER_BLOCK, PRODUCER_IDS_PER_BLOCK)
        image = after(image, decided)
    assert image.producer_ids.next_producer_id == 3 * PRODUCER_IDS_PER_BLOCK


@pytest.mark.parametrize(
    ("broker_id", "epoch", "error"),
    [
        (9, 0, Error.BROKER_ID_NOT_REGISTERED),
        (1, 100, Error.STALE_BROKER_EPOCH),
        (1, 102, Error.STALE_BROKER_EPOCH),
    ],
)
def test_refusals(broker_id: int, epoch: int, error: Error) -> None:
    with pytest.raises(ApiError) as caught:
        allocate_producer_ids(THREE, broker_id=broker_id, broker_epoch=epoch)
    assert caught.value.error is error


def test_the_ids_end() -> None:
    last = ProducerIdsRecord(broker_id=1, next_producer_id=PRODUCER_ID_MAX - 5)
    with pytest.raises(ApiError):
        allocate_producer_ids(advance(THREE, [last]), broker_id=1, broker_epoch=101)
