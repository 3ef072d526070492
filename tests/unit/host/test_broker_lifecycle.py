"""A broker registers, catches up, is unfenced, keeps in touch and leaves, in that order.

Method: a controller that answers by hand and a follower whose offset the test sets; every request
is looked at, and when it was sent.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.host.broker_lifecycle import NEXT, BrokerLifecycle, BrokerState, LifecycleConfig
from ottla.metadata.brokers import BrokerImage
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

from .harness import CLUSTER_ID, Harness

INCARNATION = Uuid(b"\1" * 16)
DIRECTORIES = (Uuid(b"\3" * 16), Uuid(b"\2" * 16))
CONFIG = LifecycleConfig(
    broker_id=4,
    cluster_id=CLUSTER_ID,
    incarnation_id=INCARNATION,
    listeners=(("PLAINTEXT", "here", 9092, 0),),
    features=(("metadata.version", 25, 25),),
    log_dirs=DIRECTORIES,
    previous_broker_epoch=17,
)


class Follower:
    """An image that grows when told."""

    def __init__(self) -> None:
        self.offset = -1
        self.waiting: list[tuple[int, Pending[None]]] = []

    def caught_up_to(self, offset: int) -> Pending[None]:
        pending: Pending[None] = Pending()
        self.waiting.append((offset, pending))
        return pending

    def grow(self, offset: int) -> None:
        self.offset = offset
        for wanted, pending in self.waiting:
            if wanted <= offset:
                pending.complete(None)


class Desk:
    """The broker, and the controller's side of its calls."""

    def __init__(self, config: LifecycleConfig = CONFIG) -> None:
        self.harness = Harness()
        self.calls: list[tuple[int, Any, Pending[Any]]] = []
        self.follower = Follower()
        self.epochs: list[int] = []
        self.image: BrokerImage | None = None
        self.lifecycle = BrokerLifecycle(
            config,
            self,
            self.follower,
            clock=self.harness.clock,
            timers=self.harness.timers,
            on_epoch=self.epochs.append,
            registration=lambda: self.image,
        )

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        assert timeout_ms < CONFIG.session_timeout_ms
        assert not self.waiting, "one request at a time"
        answer: Pending[Any] = Pending()
        self.calls.append((self.harness.clock.elapsed_ms, request, answer))
        return answer

    @property
    def waiting(self) -> Any:
        """Return the request that is not answered yet."""
        open_calls = [request for _, request, answer in self.calls if not answer.done]
        return open_calls[0] if open_calls else None

    def answer(self, response: Any) -> None:
        self.calls[-1][2].complete(response)

    def next_call(self, limit_ms: int = 60_000) -> tuple[int, Any]:
        """Let time pass until a request is sent; return how long that took, and the request."""
        begin = self.harness.clock.elapsed_ms
        while self.waiting is None and self.harness.clock.elapsed_ms - begin < limit_ms:
            self.harness.advance(1)
        assert self.waiting is not None, "no request came"
        return self.calls[-1][0] - begin, self.waiting

    def register(self, epoch: int = 30) -> None:
        self.lifecycle.start()
        self.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=epoch))

    def beat(
        self, *, caught_up: bool = True, fenced: bool = True, leave: bool = False, error: int = 0
    ) -> BrokerHeartbeatRequest:
        """Answer the next heartbeat; return it."""
        _, request = self.next_call()
        assert isinstance(request, BrokerHeartbeatRequest)
        self.answer(
            BrokerHeartbeatResponse(
                error_code=error, is_caught_up=caught_up, is_fenced=fenced, should_shut_down=leave
            )
        )
        return request

    def run(self) -> None:
        """Bring the broker to RUNNING."""
        self.register()
        self.follower.grow(30)
        self.beat()
        self.lifecycle.ready_to_unfence()
        self.beat(fenced=False)
        assert self.lifecycle.state is BrokerState.RUNNING


# -- registration ------------------------------------------------------------------------------


def test_the_registration_request_has_all_fields() -> None:
    desk = Desk()
    desk.lifecycle.start()
    request = desk.waiting
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.broker_id, request.cluster_id) == (4, CLUSTER_ID)
    assert (request.incarnation_id, request.previous_broker_epoch) == (INCARNATION, 17)
    assert request.log_dirs == tuple(sorted(DIRECTORIES))
    (listener,) = request.listeners
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "here", 9092)
    (feature,) = request.features
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == (
        "metadata.version",
        25,
        25,
    )


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(Error.REQUEST_TIMED_OUT),
        BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION),
        BrokerRegistrationResponse(error_code=9_999),
    ],
    ids=["no answer", "duplicate", "unknown"],
)
def test_a_failed_registration_is_retried_with_backoff(failure: Any) -> None:
    desk = Desk()
    desk.lifecycle.start()
    waits = []
    for _ in range(9):
        desk.answer(failure)
        waits.append(desk.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000, 1_000]
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=3))
    assert desk.epochs == [3]
    assert desk.next_call()[0] <= 1, "the first heartbeat comes at once"


def test_the_start_ends_when_no_registration_succeeds_in_time() -> None:
    desk = Desk()
    desk.lifecycle.start()
    desk.answer(ApiError(Error.REQUEST_TIMED_OUT))
    for _ in range(100):
        desk.harness.advance(1_000)
        if desk.waiting:
            desk.answer(ApiError(Error.REQUEST_TIMED_OUT))
    outcome = desk.lifecycle.milestones.registered.value
    assert isinstance(outcome, ApiError)
    assert "60000 ms" in outcome.message
    assert desk.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert desk.lifecycle.milestones.controlled_shutdown.done
    assert all(moment <= 60_000 for moment, _, _ in desk.calls)


def test_the_time_limit_does_not_matter_once_registered() -> None:
    desk = Desk()
    desk.run()
    for _ in range(100):
        desk.beat(fenced=False)
    assert desk.harness.clock.elapsed_ms > 60_000
    assert desk.lifecycle.state is BrokerState.RUNNING


# -- catching up and unfencing -----------------------------------------------------------------


def test_logs_may_load_once_the_image_has_the_registration() -> None:
    desk = Desk()
    desk.register(epoch=30)
    assert desk.lifecycle.milestones.registered.value == 30
    assert [offset for offset, _ in desk.follower.waiting] == [30]
    # The controller may think so first; that is not enough.
    desk.beat(caught_up=True)
    assert not desk.lifecycle.milestones.caught_up.done
    assert desk.lifecycle.state is BrokerState.STARTING
    desk.follower.grow(30)
    assert desk.lifecycle.milestones.caught_up.done
    desk.beat(caught_up=True)
    assert desk.lifecycle.state is BrokerState.RECOVERY


def test_heartbeats_have_offset_epoch_and_want_fence() -> None:
    desk = Desk()
    desk.register(epoch=30)
    desk.follower.grow(22)
    request = desk.beat(caught_up=False)
    assert (request.broker_epoch, request.current_metadata_offset) == (30, 22)
    assert (request.want_fence, request.want_shut_down) == (True, False)
    desk.follower.grow(31)
    desk.lifecycle.ready_to_unfence()
    request = desk.beat()
    assert (request.current_metadata_offset, request.want_fence) == (31, False)


def test_a_start_does_not_wait_out_heartbeat_intervals() -> None:
    desk = Desk()
    desk.run()
    assert desk.harness.clock.elapsed_ms < 100


def test_loading_logs_for_long_keeps_the_heartbeat_interval() -> None:
    desk = Desk()
    desk.register()
    desk.follower.grow(30)
    desk.beat()
    assert desk.lifecycle.state is BrokerState.RECOVERY
    desk.beat()
    moments = []
    for _ in range(3):
        moments.append(desk.next_call()[0])
        desk.answer(
            BrokerHeartbeatResponse(error_code=0, is_caught_up=True, should_shut_down=False)
        )
    assert moments == [2_000] * 3
    assert not desk.lifecycle.milestones.unfenced.done


def test_a_change_while_a_heartbeat_is_in_flight_is_sent_right_after_it() -> None:
    desk = Desk()
    desk.run()
    desk.next_call()
    desk.lifecycle.propagate_dir_failure(DIRECTORIES[0])
    assert len(desk.calls) == len({id(request) for _, request, _ in desk.calls})
    desk.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    waited, request = desk.next_call()
    assert waited <= 1
    assert request.offline_log_dirs == (DIRECTORIES[0],)


# -- running -----------------------------------------------------------------------------------


def test_a_running_broker_reports_every_interval() -> None:
    desk = Desk()
    desk.run()
    waits = []
    for _ in range(4):
        waits.append(desk.next_call()[0])
        desk.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    assert waits == [2_000] * 4


def test_lost_heartbeats_are_retried() -> None:
    desk = Desk()
    desk.run()
    desk.next_call()
    waits = []
    for _ in range(3):
        desk.answer(ApiError(Error.NETWORK_EXCEPTION))
        waits.append(desk.next_call()[0])
    assert waits == [100, 200, 400]
    desk.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    desk.next_call()
    desk.answer(ApiError(Error.NETWORK_EXCEPTION))
    assert desk.next_call()[0] == 100


def test_the_backoff_of_heartbeats_is_a_session_at_most() -> None:
    desk = Desk()
    desk.run()
    desk.next_call()
    waits = []
    for _ in range(9):
        desk.answer(ApiError(Error.NETWORK_EXCEPTION))
        waits.append(desk.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 6_400, 9_000, 9_000]


@pytest.mark.parametrize("error", [Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED])
def test_an_unregistered_broker_registers_again_and_takes_the_new_epoch(error: Error) -> None:
    desk = Desk()
    desk.run()
    desk.beat(error=error)
    _, request = desk.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == INCARNATION
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=90))
    assert desk.epochs == [30, 90]
    assert desk.beat(fenced=False).broker_epoch == 90
    assert desk.lifecycle.state is BrokerState.RUNNING


def test_other_refusals_do_not_lead_to_a_registration() -> None:
    desk = Desk()
    desk.run()
    desk.beat(error=Error.UNKNOWN_SERVER_ERROR)
    assert isinstance(desk.next_call()[1], BrokerHeartbeatRequest)


def test_a_fenced_running_broker_sends_the_next_heartbeat_soon() -> None:
    desk = Desk()
    desk.run()
    desk.beat(fenced=True)
    assert desk.next_call()[0] == 100


# -- leaving -----------------------------------------------------------------------------------


def test_controlled_shutdown_polls_until_it_is_granted() -> None:
    desk = Desk()
    desk.run()
    controlled_shutdown = desk.lifecycle.begin_controlled_shutdown()
    assert desk.beat(fenced=False).want_shut_down
    waited, _ = desk.next_call()
    assert waited == 50, "a broker that led little goes at once"
    waits = []
    for _ in range(7):
        desk.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
        waits.append(desk.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_600, 2_000, 2_000]
    assert not controlled_shutdown.done
    desk.answer(BrokerHeartbeatResponse(error_code=0, should_shut_down=True))
    assert controlled_shutdown.done
    assert desk.lifecycle.state is BrokerState.SHUTTING_DOWN
    desk.harness.advance(60_000)
    assert desk.waiting is None


def test_controlled_shutdown_ends_at_its_timeout() -> None:
    desk = Desk()
    desk.run()
    controlled_shutdown = desk.lifecycle.begin_controlled_shutdown()
    while not controlled_shutdown.done:
        if desk.waiting is not None:
            desk.answer(BrokerHeartbeatResponse(error_code=0, should_shut_down=False))
        desk.harness.advance(1_000)
    assert CONFIG.shutdown_timeout_ms <= desk.harness.clock.elapsed_ms < 310_000


def test_controlled_shutdown_ends_without_a_controller() -> None:
    desk = Desk()
    desk.run()
    controlled_shutdown = desk.lifecycle.begin_controlled_shutdown()
    desk.beat(fenced=False)
    heard_ms = desk.harness.clock.elapsed_ms
    while not controlled_shutdown.done:
        if desk.waiting is not None:
            desk.answer(ApiError(Error.NETWORK_EXCEPTION))
        desk.harness.advance(10)
    silence_ms = desk.harness.clock.elapsed_ms - heard_ms
    assert (
        CONFIG.shutdown_response_timeout_ms <= silence_ms < CONFIG.shutdown_response_timeout_ms + 20
    )
    assert desk.lifecycle.state is BrokerState.SHUTTING_DOWN


def test_a_new_controller_gets_the_request_at_once() -> None:
    desk = Desk()
    desk.run()
    desk.lifecycle.controller_changed()
    desk.next_call()
    for _ in range(6):
        desk.answer(ApiError(Error.NETWORK_EXCEPTION))
        desk.next_call()
    desk.answer(ApiError(Error.NETWORK_EXCEPTION))  # The next wait is 6.4 s.
    desk.lifecycle.controller_changed()
    assert desk.next_call()[0] <= 1


def test_two_requests_are_one_shutdown() -> None:
    desk = Desk()
    desk.run()
    assert desk.lifecycle.begin_controlled_shutdown() is desk.lifecycle.begin_controlled_shutdown()


@pytest.mark.parametrize("when", ["before", "starting", "recovery"])
def test_a_broker_that_does_not_serve_yet_stops_without_controlled_shutdown(when: str) -> None:
    desk = Desk()
    if when != "before":
        desk.register()
    if when == "recovery":
        desk.follower.grow(30)
        desk.beat()
    assert desk.lifecycle.begin_controlled_shutdown().done
    desk.harness.advance(60_000)
    assert desk.lifecycle.state is BrokerState.SHUTTING_DOWN


def test_a_response_after_the_end_is_ignored() -> None:
    desk = Desk()
    desk.lifecycle.start()
    desk.lifecycle.close()
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=3))
    assert desk.epochs == []
    assert desk.lifecycle.epoch == -1


# -- states ------------------------------------------------------------------------------------


def test_states_only_go_forward_and_all_end_in_shutting_down() -> None:
    for state, following in NEXT.items():
        assert all(after > state for after in following)
        assert not following or BrokerState.SHUTTING_DOWN in following


def test_an_illegal_transition_is_an_assertion() -> None:
    desk = Desk()
    desk.run()
    start: Callable[[], None] = desk.lifecycle.start
    with pytest.raises(AssertionError, match="RUNNING to STARTING"):
        start()


# -- other lives -------------------------------------------------------------------------------


def a_registration(epoch: int, incarnation: bytes, log_dirs: tuple[Uuid, ...]) -> BrokerImage:
    return BrokerImage(
        id=4,
        epoch=epoch,
        incarnation_id=Uuid(incarnation * 16),
        endpoints=(),
        features=(),
        rack=None,
        log_dirs=log_dirs,
    )


@pytest.mark.parametrize(
    ("previous", "registered", "expected"),
    [
        (17, None, (17, -1)),
        (17, a_registration(17, b"x", DIRECTORIES), (17, 17)),
        # It was registered after the note, and lost nothing either.
        (17, a_registration(20, b"x", DIRECTORIES), (20, 20)),
        (-1, a_registration(20, b"x", DIRECTORIES), (-1, 20)),
        # The image is older than the note.
        (17, a_registration(9, b"x", DIRECTORIES), (17, 9)),
        # With other directories, it may have lost what was in those.
        (17, a_registration(20, b"x", DIRECTORIES[:1]), (17, 20)),
        # Nothing proves that another machine of this id does not run.
        (17, a_registration(20, b"x", (Uuid(b"\7" * 16),)), (17, -1)),
        (17, a_registration(20, b"\1", DIRECTORIES), (17, -1)),
    ],
)
def test_previous_and_superseded_epochs_of_a_registration(
    previous: int, registered: BrokerImage | None, expected: tuple[int, int]
) -> None:
    desk = Desk(replace(CONFIG, previous_broker_epoch=previous))
    desk.image = registered
    desk.lifecycle.start()
    request = desk.waiting
    assert (request.previous_broker_epoch, request.superseded_broker_epoch) == expected


def test_each_attempt_names_the_registration_in_the_image() -> None:
    """A dead process's registration reached the controller between two attempts of this one."""
    desk = Desk()
    desk.lifecycle.start()
    assert desk.waiting.superseded_broker_epoch == -1
    desk.image = a_registration(25, b"x", DIRECTORIES)
    desk.answer(
        BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION, broker_epoch=-1)
    )
    _, again = desk.next_call()
    assert (again.previous_broker_epoch, again.superseded_broker_epoch) == (25, 25)


def test_a_broker_whose_id_was_taken_has_lost_nothing_since_its_own_registration() -> None:
    desk = Desk(replace(CONFIG, previous_broker_epoch=-1))
    desk.run()
    desk.image = a_registration(40, b"x", DIRECTORIES)
    desk.beat(error=Error.STALE_BROKER_EPOCH)
    _, again = desk.next_call()
    assert isinstance(again, BrokerRegistrationRequest)
    assert (again.previous_broker_epoch, again.superseded_broker_epoch) == (40, 40)


def test_a_broker_that_finds_data_loss_registers_as_another_process() -> None:
    desk = Desk()
    desk.register()
    desk.follower.grow(30)
    desk.beat()
    desk.image = a_registration(30, b"\1", DIRECTORIES)
    another = Uuid(b"\5" * 16)
    desk.next_call()
    unclean = desk.lifecycle.register_as_unclean(another)
    desk.beat()
    _, request = desk.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == another
    assert (request.previous_broker_epoch, request.superseded_broker_epoch) == (-1, 30)
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=50))
    assert not unclean.done
    desk.follower.grow(50)
    assert unclean.done
    assert (desk.epochs, desk.lifecycle.epoch) == ([30, 50], 50)
    desk.lifecycle.ready_to_unfence()
    assert desk.beat(fenced=False).broker_epoch == 50
    assert desk.lifecycle.state is BrokerState.RUNNING


def test_a_response_to_the_clean_registration_does_not_count_for_the_unclean_one() -> None:
    desk = Desk()
    desk.register()
    desk.follower.grow(30)
    desk.beat(error=Error.STALE_BROKER_EPOCH)
    _, previous = desk.next_call()
    assert isinstance(previous, BrokerRegistrationRequest)
    unclean = desk.lifecycle.register_as_unclean(Uuid(b"\5" * 16))
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=45))
    _, request = desk.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.incarnation_id, request.previous_broker_epoch) == (Uuid(b"\5" * 16), -1)
    desk.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=50))
    desk.follower.grow(50)
    assert unclean.done
    assert desk.epochs == [30, 50]
