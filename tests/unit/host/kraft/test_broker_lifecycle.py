"""A broker registers, catches up, is unfenced, sends heartbeats and shuts down, in that order.

Method: a controller that answers by hand and a follower whose offset the test sets; every request
and its time are checked.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.host.kraft.broker_lifecycle import NEXT, BrokerLifecycle, BrokerState, LifecycleConfig
from ottla.metadata.brokers import BrokerImage
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tests.unit.host.harness import CLUSTER_ID, Harness

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
    """An image whose offset the test sets."""

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


class Bench:
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
    bench = Bench()
    bench.lifecycle.start()
    request = bench.waiting
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
    bench = Bench()
    bench.lifecycle.start()
    waits = []
    for _ in range(9):
        bench.answer(failure)
        waits.append(bench.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000, 1_000]
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=3))
    assert bench.epochs == [3]
    assert bench.next_call()[0] <= 1, "the first heartbeat comes at once"


def test_the_start_ends_when_no_registration_succeeds_in_time() -> None:
    bench = Bench()
    bench.lifecycle.start()
    bench.answer(ApiError(Error.REQUEST_TIMED_OUT))
    for _ in range(100):
        bench.harness.advance(1_000)
        if bench.waiting:
            bench.answer(ApiError(Error.REQUEST_TIMED_OUT))
    outcome = bench.lifecycle.milestones.registered.value
    assert isinstance(outcome, ApiError)
    assert "60000 ms" in outcome.message
    assert bench.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert bench.lifecycle.milestones.controlled_shutdown.done
    assert all(moment <= 60_000 for moment, _, _ in bench.calls)


def test_the_time_limit_does_not_matter_once_registered() -> None:
    bench = Bench()
    bench.run()
    for _ in range(100):
        bench.beat(fenced=False)
    assert bench.harness.clock.elapsed_ms > 60_000
    assert bench.lifecycle.state is BrokerState.RUNNING


# -- catching up and unfencing -----------------------------------------------------------------


def test_logs_may_load_once_the_image_has_the_registration() -> None:
    bench = Bench()
    bench.register(epoch=30)
    assert bench.lifecycle.milestones.registered.value == 30
    assert [offset for offset, _ in bench.follower.waiting] == [30]
    # The controller may think so first; that is not enough.
    bench.beat(caught_up=True)
    assert not bench.lifecycle.milestones.caught_up.done
    assert bench.lifecycle.state is BrokerState.STARTING
    bench.follower.grow(30)
    assert bench.lifecycle.milestones.caught_up.done
    bench.beat(caught_up=True)
    assert bench.lifecycle.state is BrokerState.RECOVERY


def test_heartbeats_have_offset_epoch_and_want_fence() -> None:
    bench = Bench()
    bench.register(epoch=30)
    bench.follower.grow(22)
    request = bench.beat(caught_up=False)
    assert (request.broker_epoch, request.current_metadata_offset) == (30, 22)
    assert (request.want_fence, request.want_shut_down) == (True, False)
    bench.follower.grow(31)
    bench.lifecycle.ready_to_unfence()
    request = bench.beat()
    assert (request.current_metadata_offset, request.want_fence) == (31, False)


def test_a_start_does_not_wait_out_heartbeat_intervals() -> None:
    bench = Bench()
    bench.run()
    assert bench.harness.clock.elapsed_ms < 100


def test_loading_logs_for_long_keeps_the_heartbeat_interval() -> None:
    bench = Bench()
    bench.register()
    bench.follower.grow(30)
    bench.beat()
    assert bench.lifecycle.state is BrokerState.RECOVERY
    bench.beat()
    moments = []
    for _ in range(3):
        moments.append(bench.next_call()[0])
        bench.answer(
            BrokerHeartbeatResponse(error_code=0, is_caught_up=True, should_shut_down=False)
        )
    assert moments == [2_000] * 3
    assert not bench.lifecycle.milestones.unfenced.done


def test_a_change_while_a_heartbeat_is_in_flight_is_sent_right_after_it() -> None:
    bench = Bench()
    bench.run()
    bench.next_call()
    bench.lifecycle.propagate_dir_failure(DIRECTORIES[0])
    assert len(bench.calls) == len({id(request) for _, request, _ in bench.calls})
    bench.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    waited, request = bench.next_call()
    assert waited <= 1
    assert request.offline_log_dirs == (DIRECTORIES[0],)


# -- running -----------------------------------------------------------------------------------


def test_a_running_broker_reports_every_interval() -> None:
    bench = Bench()
    bench.run()
    waits = []
    for _ in range(4):
        waits.append(bench.next_call()[0])
        bench.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    assert waits == [2_000] * 4


def test_lost_heartbeats_are_retried() -> None:
    bench = Bench()
    bench.run()
    bench.next_call()
    waits = []
    for _ in range(3):
        bench.answer(ApiError(Error.NETWORK_EXCEPTION))
        waits.append(bench.next_call()[0])
    assert waits == [100, 200, 400]
    bench.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
    bench.next_call()
    bench.answer(ApiError(Error.NETWORK_EXCEPTION))
    assert bench.next_call()[0] == 100


def test_the_backoff_of_heartbeats_is_a_session_at_most() -> None:
    bench = Bench()
    bench.run()
    bench.next_call()
    waits = []
    for _ in range(9):
        bench.answer(ApiError(Error.NETWORK_EXCEPTION))
        waits.append(bench.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_600, 3_200, 6_400, 9_000, 9_000]


@pytest.mark.parametrize("error", [Error.STALE_BROKER_EPOCH, Error.BROKER_ID_NOT_REGISTERED])
def test_an_unregistered_broker_registers_again_and_takes_the_new_epoch(error: Error) -> None:
    bench = Bench()
    bench.run()
    bench.beat(error=error)
    _, request = bench.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == INCARNATION
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=90))
    assert bench.epochs == [30, 90]
    assert bench.beat(fenced=False).broker_epoch == 90
    assert bench.lifecycle.state is BrokerState.RUNNING


def test_other_refusals_do_not_lead_to_a_registration() -> None:
    bench = Bench()
    bench.run()
    bench.beat(error=Error.UNKNOWN_SERVER_ERROR)
    assert isinstance(bench.next_call()[1], BrokerHeartbeatRequest)


def test_a_fenced_running_broker_sends_the_next_heartbeat_soon() -> None:
    bench = Bench()
    bench.run()
    bench.beat(fenced=True)
    assert bench.next_call()[0] == 100


# -- leaving -----------------------------------------------------------------------------------


def test_controlled_shutdown_polls_until_it_is_granted() -> None:
    bench = Bench()
    bench.run()
    controlled_shutdown = bench.lifecycle.begin_controlled_shutdown()
    assert bench.beat(fenced=False).want_shut_down
    waited, _ = bench.next_call()
    assert waited == 50, "a broker that led little goes at once"
    waits = []
    for _ in range(7):
        bench.answer(BrokerHeartbeatResponse(error_code=0, is_fenced=False, should_shut_down=False))
        waits.append(bench.next_call()[0])
    assert waits == [100, 200, 400, 800, 1_600, 2_000, 2_000]
    assert not controlled_shutdown.done
    bench.answer(BrokerHeartbeatResponse(error_code=0, should_shut_down=True))
    assert controlled_shutdown.done
    assert bench.lifecycle.state is BrokerState.SHUTTING_DOWN
    bench.harness.advance(60_000)
    assert bench.waiting is None


def test_controlled_shutdown_ends_at_its_timeout() -> None:
    bench = Bench()
    bench.run()
    controlled_shutdown = bench.lifecycle.begin_controlled_shutdown()
    while not controlled_shutdown.done:
        if bench.waiting is not None:
            bench.answer(BrokerHeartbeatResponse(error_code=0, should_shut_down=False))
        bench.harness.advance(1_000)
    assert CONFIG.shutdown_timeout_ms <= bench.harness.clock.elapsed_ms < 310_000


def test_controlled_shutdown_ends_without_a_controller() -> None:
    bench = Bench()
    bench.run()
    controlled_shutdown = bench.lifecycle.begin_controlled_shutdown()
    bench.beat(fenced=False)
    response_ms = bench.harness.clock.elapsed_ms
    while not controlled_shutdown.done:
        if bench.waiting is not None:
            bench.answer(ApiError(Error.NETWORK_EXCEPTION))
        bench.harness.advance(10)
    silence_ms = bench.harness.clock.elapsed_ms - response_ms
    assert (
        CONFIG.shutdown_response_timeout_ms <= silence_ms < CONFIG.shutdown_response_timeout_ms + 20
    )
    assert bench.lifecycle.state is BrokerState.SHUTTING_DOWN


def test_a_new_controller_gets_the_request_at_once() -> None:
    bench = Bench()
    bench.run()
    bench.lifecycle.controller_changed()
    bench.next_call()
    for _ in range(6):
        bench.answer(ApiError(Error.NETWORK_EXCEPTION))
        bench.next_call()
    bench.answer(ApiError(Error.NETWORK_EXCEPTION))  # The next wait is 6.4 s.
    bench.lifecycle.controller_changed()
    assert bench.next_call()[0] <= 1


def test_two_requests_are_one_shutdown() -> None:
    bench = Bench()
    bench.run()
    assert (
        bench.lifecycle.begin_controlled_shutdown() is bench.lifecycle.begin_controlled_shutdown()
    )


@pytest.mark.parametrize("when", ["before", "starting", "recovery"])
def test_a_broker_that_does_not_serve_yet_stops_without_controlled_shutdown(when: str) -> None:
    bench = Bench()
    if when != "before":
        bench.register()
    if when == "recovery":
        bench.follower.grow(30)
        bench.beat()
    assert bench.lifecycle.begin_controlled_shutdown().done
    bench.harness.advance(60_000)
    assert bench.lifecycle.state is BrokerState.SHUTTING_DOWN


def test_a_response_after_the_end_is_ignored() -> None:
    bench = Bench()
    bench.lifecycle.start()
    bench.lifecycle.close()
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=3))
    assert bench.epochs == []
    assert bench.lifecycle.epoch == -1


# -- states ------------------------------------------------------------------------------------


def test_states_only_go_forward_and_all_end_in_shutting_down() -> None:
    for state, followed in NEXT.items():
        assert all(after > state for after in followed)
        assert not followed or BrokerState.SHUTTING_DOWN in followed


def test_an_illegal_transition_is_an_assertion() -> None:
    bench = Bench()
    bench.run()
    start: Callable[[], None] = bench.lifecycle.start
    with pytest.raises(AssertionError, match="RUNNING to STARTING"):
        start()


# -- restarts ----------------------------------------------------------------------------------


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
    bench = Bench(replace(CONFIG, previous_broker_epoch=previous))
    bench.image = registered
    bench.lifecycle.start()
    request = bench.waiting
    assert (request.previous_broker_epoch, request.superseded_broker_epoch) == expected


def test_each_attempt_names_the_registration_in_the_image() -> None:
    """A dead process's registration reached the controller between two attempts of this one."""
    bench = Bench()
    bench.lifecycle.start()
    assert bench.waiting.superseded_broker_epoch == -1
    bench.image = a_registration(25, b"x", DIRECTORIES)
    bench.answer(
        BrokerRegistrationResponse(error_code=Error.DUPLICATE_BROKER_REGISTRATION, broker_epoch=-1)
    )
    _, again = bench.next_call()
    assert (again.previous_broker_epoch, again.superseded_broker_epoch) == (25, 25)


def test_a_broker_whose_id_was_taken_has_lost_nothing_since_its_own_registration() -> None:
    bench = Bench(replace(CONFIG, previous_broker_epoch=-1))
    bench.run()
    bench.image = a_registration(40, b"x", DIRECTORIES)
    bench.beat(error=Error.STALE_BROKER_EPOCH)
    _, again = bench.next_call()
    assert isinstance(again, BrokerRegistrationRequest)
    assert (again.previous_broker_epoch, again.superseded_broker_epoch) == (40, 40)


def test_a_broker_that_finds_data_loss_registers_as_another_process() -> None:
    bench = Bench()
    bench.register()
    bench.follower.grow(30)
    bench.beat()
    bench.image = a_registration(30, b"\1", DIRECTORIES)
    another = Uuid(b"\5" * 16)
    bench.next_call()
    unclean = bench.lifecycle.register_as_unclean(another)
    bench.beat()
    _, request = bench.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.incarnation_id == another
    assert (request.previous_broker_epoch, request.superseded_broker_epoch) == (-1, 30)
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=50))
    assert not unclean.done
    bench.follower.grow(50)
    assert unclean.done
    assert (bench.epochs, bench.lifecycle.epoch) == ([30, 50], 50)
    bench.lifecycle.ready_to_unfence()
    assert bench.beat(fenced=False).broker_epoch == 50
    assert bench.lifecycle.state is BrokerState.RUNNING


def test_a_response_to_the_clean_registration_does_not_count_for_the_unclean_one() -> None:
    bench = Bench()
    bench.register()
    bench.follower.grow(30)
    bench.beat(error=Error.STALE_BROKER_EPOCH)
    _, previous = bench.next_call()
    assert isinstance(previous, BrokerRegistrationRequest)
    unclean = bench.lifecycle.register_as_unclean(Uuid(b"\5" * 16))
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=45))
    _, request = bench.next_call()
    assert isinstance(request, BrokerRegistrationRequest)
    assert (request.incarnation_id, request.previous_broker_epoch) == (Uuid(b"\5" * 16), -1)
    bench.answer(BrokerRegistrationResponse(error_code=0, broker_epoch=50))
    bench.follower.grow(50)
    assert unclean.done
    assert bench.epochs == [30, 50]
