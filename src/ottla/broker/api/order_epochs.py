"""The epochs of a controller's order to a broker, where the broker follows the metadata log.

Only an older epoch is refused: the controller may know a newer one before this broker does
(KAFKA-9839).
"""

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.broker.core import Broker


def check_order_epochs(broker: Broker, *, controller_epoch: int, broker_epoch: int) -> Error:
    """Return why an order is refused; note the controller's epoch if it is not.

    `broker_epoch`: of the registration that is meant; -1 = any.
    """
    if NO_EPOCH != broker_epoch < broker.epoch:
        return Error.STALE_BROKER_EPOCH
    if controller_epoch < max(broker.controller_epoch, broker.image.position[1]):
        return Error.STALE_CONTROLLER_EPOCH
    broker.controller_epoch = controller_epoch
    return Error.NONE
