"""UnregisterBroker removes a broker. Method: the real decider on an image in memory."""

from ottla.base.errors import Error
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

from ..controller_harness import Controller


def test_a_broker_goes_once() -> None:
    controller = Controller()
    answer = controller.ask(UnregisterBrokerRequest(broker_id=1), 0)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    assert controller.image.broker_ids() == []
    answer = controller.ask(UnregisterBrokerRequest(broker_id=1), 0)
    assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED
    assert "Broker 1" in answer.error_message
