"""A broker is removed from the cluster for good.

Its replicas stay in the partitions' assignments: those partitions have no leader until they are
reassigned or a broker of that id registers again. Source: KIP-631, UnregisterBroker; Kafka
4.0 unregisters a live broker too, which then cannot register under its old epoch.
"""

from ottla.base.errors import ApiError, Error
from ottla.controller.context import DecisionContext
from ottla.controller.elections.elections import remove_from_isrs
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import UnregisterBrokerRecord


def unregister_broker(
    image: ClusterImage, broker_id: int, *, context: DecisionContext
) -> Decision[None]:
    """Remove a broker. Raises: ApiError(BROKER_ID_NOT_REGISTERED)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(Error.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    removal = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    context.liveness.forget(broker_id)
    return Decision(
        Step((*remove_from_isrs(image, context.config, broker_id), removal), atomic=False), None
    )
