"""BrokerHeartbeat moves brokers between their states, in every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

from ..controller_harness import DIRECTORY, Controller, versions_of


def beat(**changes: object) -> BrokerHeartbeatRequest:
    values: dict[str, object] = {
        "broker_id": 1,
        "broker_epoch": 1,
        "current_metadata_offset": 1,
        "want_fence": False,
        "want_shut_down": False,
        **changes,
    }
    return BrokerHeartbeatRequest(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", versions_of(63))
def test_every_version(version: int) -> None:
    controller = Controller()
    answer = controller.ask(beat(), version)
    assert answer.error_code == Error.NONE
    assert (answer.is_caught_up, answer.is_fenced, answer.should_shut_down) == (True, False, False)
    answer = controller.ask(beat(want_fence=True), version)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert controller.image.brokers[1].fenced
    answer = controller.ask(beat(want_shut_down=True), version)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)


def test_refusals() -> None:
    controller = Controller()
    answer = controller.ask(beat(broker_epoch=7), 1)
    assert (answer.error_code, answer.is_fenced) == (Error.STALE_BROKER_EPOCH, True)
    answer = controller.ask(beat(broker_id=7), 1)
    assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED


def test_a_heartbeat_counts_from_its_arrival() -> None:
    controller = Controller()
    controller.ask(beat(), 1, now_ms=7_000)
    assert controller.context.liveness.is_alive(1, 7_001)


def test_failed_log_dirs_are_reported() -> None:
    controller = Controller()
    answer = controller.ask(beat(offline_log_dirs=(DIRECTORY,)), 1)
    assert answer.error_code == Error.NONE
