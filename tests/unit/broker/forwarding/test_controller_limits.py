"""Each request to the controller is answered within its limit, whatever the controller can write.

Method: the real table of APIs with the real handlers, a controller that never answers, time by
hand. `tests/sim/test_controller_limits.py` has the same requests in whole clusters.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.api.base import CONTROLLERS, Context
from ottla.broker.dispatch import Dispatcher, load_apis, read_header
from ottla.broker.forwarding.controller_limits import LimitedController
from ottla.broker.forwarding.controller_unavailable import ControllerUnavailable
from ottla.broker.metrics import error_finder
from ottla.broker.ports import Connection, Listener
from ottla.controller.step import Decision, Step
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.registry import response_type
from tests.controller_requests import FROM_MEMORY, REQUESTS, all_keys, limit_ms, version_of
from tests.unit.base.scripted_turns import ScriptedTurns
from tests.unit.broker.controller_harness import Controller

BEGIN_MS = 10_000
REQUEST_TIMEOUT_MS = 10_000
DEFAULT_MS = 9_000
LISTENER = "NODES"
CASES = [
    pytest.param(key, zookeeper, id=f"{key}-{'zookeeper' if zookeeper else 'kraft'}")
    for key in sorted(all_keys() - FROM_MEMORY)
    for zookeeper in (False, True)
    if load_apis()[key].api.answers_on(zookeeper=zookeeper)
]


class Stuck(Controller):
    """Is in office, and cannot write."""

    def __init__(self) -> None:
        super().__init__({"request.timeout.ms": str(REQUEST_TIMEOUT_MS)})
        self.asked = 0

    def run(self, decide: Any, *, deadline_ms: int | None = None) -> Pending[Any]:
        self.asked += 1
        self.deadlines.append(deadline_ms)
        return Pending()


def ask(controller: Controller, key: int, timers: Timers, *, zookeeper: bool) -> Any:
    version = version_of(key)
    frame = memoryview(encode_request(REQUESTS[key], version, 77, "me"))[4:]
    header, body_at = read_header(frame)
    endpoint = load_apis()[key]
    only_nodes = endpoint.api.answers_on(zookeeper=zookeeper) <= CONTROLLERS
    listener = Listener.CONTROLLER if only_nodes else Listener.CLIENT
    broker: Any = SimpleNamespace(config=SimpleNamespace(inter_broker_listener_name=LISTENER))
    ctx = Context(
        header,
        Connection("c1", listener, LISTENER, "h", 1),
        BEGIN_MS,
        BEGIN_MS,
        cast(Any, None),
        broker,
        controller,
        cast(Any, ControllerUnavailable(broker)),
    )
    dispatcher = Dispatcher(load_apis(), timers=timers, turns=ScriptedTurns(), zookeeper=zookeeper)
    return dispatcher.dispatch(ctx, frame, body_at)


def errors_of(key: int, chunks: Any) -> set[int]:
    """Return all error codes of a response."""
    message = decode_response(response_type(key), b"".join(chunks)[4:], version_of(key))[1]
    find, found = error_finder(response_type(key)), Counter[int]()
    assert find is not None
    find(message, found)
    return set(found)


def test_each_api_of_the_controller_is_tried_here() -> None:
    """A new one belongs into the table, with a limit that it keeps."""
    assert set(REQUESTS) == all_keys()
    assert {case.values[0] for case in CASES} == all_keys() - FROM_MEMORY


@pytest.mark.parametrize(("key", "zookeeper"), CASES)
def test_a_controller_that_cannot_write_answers_within_the_limit(key: int, zookeeper: bool) -> None:
    controller, timers = Stuck(), Timers()
    outcome = ask(controller, key, timers, zookeeper=zookeeper)
    assert controller.asked, "else this shows nothing"
    due_ms = BEGIN_MS + limit_ms(key, DEFAULT_MS)
    assert controller.deadlines == [due_ms]
    timers.run_due(due_ms - 1)
    assert not outcome.done
    timers.run_due(due_ms)
    assert errors_of(key, outcome.value) == {Error.REQUEST_TIMED_OUT}


@pytest.mark.parametrize("key", sorted(FROM_MEMORY))
def test_what_is_answered_from_memory_waits_for_no_write(key: int) -> None:
    controller = Stuck()
    outcome = ask(controller, key, Timers(), zookeeper=False)
    assert controller.asked == 0
    assert not isinstance(outcome, Pending)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_a_positive_timeout_has_the_default_limit(timeout_ms: int) -> None:
    controller, timers = Stuck(), Timers()
    request = CreateTopicsRequest(topics=(), timeout_ms=timeout_ms)
    limited = LimitedController(controller, request, timers, since_ms=BEGIN_MS)
    answer: Pending[Any] = limited.run(lambda image: Decision(Step(), 1))
    timers.run_due(BEGIN_MS + DEFAULT_MS - 1)
    assert not answer.done
    timers.run_due(BEGIN_MS + DEFAULT_MS)
    assert isinstance(answer.value, ApiError)


def test_an_answer_in_time_is_passed_on_and_leaves_no_timer() -> None:
    timers = Timers()
    kept: Pending[Any] = Pending()
    for decided in (completed("now"), kept):
        controller: Any = SimpleNamespace(
            context=Controller().context, run=lambda _, deadline_ms, it=decided: it
        )
        answer: Pending[Any] = LimitedController(
            controller, CreateTopicsRequest(topics=()), timers, since_ms=0
        ).run(lambda image: Decision(Step(), 1))
        kept.complete("later") if decided is kept else None
        assert answer.value in ("now", "later")
        assert timers.next_ms() is None
