"""AllocateProducerIds gives each block once. Method: the real decider on an image in memory."""

from ottla.base.errors import Error
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

from ..controller_harness import Controller


def test_blocks_and_refusals() -> None:
    controller = Controller()
    blocks = [
        controller.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0) for _ in range(2)
    ]
    assert [(each.producer_id_start, each.producer_id_len) for each in blocks] == [
        (0, 1_000),
        (1_000, 1_000),
    ]
    answer = controller.ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=9), 0)
    assert (answer.error_code, answer.producer_id_len) == (Error.STALE_BROKER_EPOCH, 0)
