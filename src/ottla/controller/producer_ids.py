"""Producer ids are handed to brokers in blocks. Source: ProducerIdControlManager; KIP-730."""

from ottla.base.errors import ApiError, Error
from ottla.base.limits import PRODUCER_IDS_PER_BLOCK
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ProducerIdsRecord

PRODUCER_ID_MAX = (1 << 63) - 1


def allocate_producer_ids(
    image: ClusterImage, *, broker_id: int, broker_epoch: int
) -> Decision[tuple[int, int]]:
    """Give a broker the next block; the reply is its first id and its length.

    Raises: ApiError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when
            all ids are gone.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(Error.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != broker_epoch:
        raise ApiError(
            Error.STALE_BROKER_EPOCH,
            f"Expected the broker epoch {broker.epoch}, but broker {broker_id} sent"
            f" {broker_epoch}.",
        )
    first = image.producer_ids.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_IDS_PER_BLOCK:
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    record = ProducerIdsRecord(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        next_producer_id=first + PRODUCER_IDS_PER_BLOCK,
    )
    return Decision(Step((record,)), (first, PRODUCER_IDS_PER_BLOCK))
