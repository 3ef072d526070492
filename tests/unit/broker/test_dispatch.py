"""A request finds its handler, and one that cannot be answered ends its connection, no other.

Method: the real table of APIs for what is served; scripted endpoints for how answers travel.
"""

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.base.limits import (
    LONG_REQUEST_BYTES_MIN,
    REQUEST_ELEMENTS_MAX,
    REQUEST_WITHOUT_RECORDS_BYTES_MAX,
)
from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.api.base import CLIENTS, Api, Context, InSteps, RunsOn
from ottla.broker.dispatch import (
    Dispatcher,
    Endpoint,
    LongOutcome,
    advertised,
    load_apis,
    read_header,
)
from ottla.broker.ports import CloseConnection, Connection, Forwarded, Listener
from ottla.wire.frames import decode_response, encode_request, encode_response
from ottla.wire.messages.abandon_purge import AbandonPurgeRequest
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_partitions import CreatePartitionsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_deletions import DescribeDeletionsRequest
from ottla.wire.messages.describe_idle_topics import DescribeIdleTopicsRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest
from ottla.wire.messages.describe_topic_tiering import DescribeTopicTieringRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from ottla.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.restore_topic import RestoreTopicRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from ottla.wire.messages.update_features import UpdateFeaturesRequest
from ottla.wire.registry import response_type
from ottla.wire.schema import spec_of
from tests.unit.base.scripted_turns import ScriptedTurns

HEARTBEAT = 12
TABLE = load_apis()


def connection(listener: Listener = Listener.CLIENT) -> Connection:
    return Connection(id="c1", listener=listener, listener_name="L", client_host="h", client_port=1)


def ask(
    dispatcher: Dispatcher,
    request: object,
    version: int,
    *,
    listener: Listener = Listener.CLIENT,
    embedded: bool = False,
    **parts: Any,
) -> Any:
    frame = memoryview(encode_request(request, version, 77, "me"))[4:]
    header, body_at = read_header(frame)
    ctx = Context(header, connection(listener), 0, 0, node=None, **parts)  # type: ignore[arg-type]
    return dispatcher.dispatch(ctx, frame, body_at, embedded=embedded)


def scripted(handle: Callable[..., Any], **api: Any) -> Dispatcher:
    declared = Api(key=HEARTBEAT, versions=range(4), listeners=CLIENTS, **api)
    endpoint = Endpoint(declared, handle, HeartbeatRequest, "Heartbeat")
    return Dispatcher({HEARTBEAT: endpoint}, timers=Timers(), turns=ScriptedTurns())


BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def body_of(chunks: Any, version: int = 0) -> Any:
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, message = decode_response(HeartbeatResponse, frame[4:], version)
    assert correlation_id == 77
    return message


def test_every_api_is_served_on_its_declared_listeners() -> None:
    assert list(TABLE) == sorted(TABLE)
    clients = advertised(TABLE, Listener.CLIENT)
    controllers = advertised(TABLE, Listener.CONTROLLER)
    assert {0, 1, 3, 18, 19} <= set(clients)
    assert not {58, 59, 62, 63, 67} & set(clients), "what nodes say to each other is not offered"
    assert {1, 18, 58, 62, 63} <= set(controllers)
    assert 0 not in controllers


def test_ottlas_own_keys_are_listed_to_ottlas_clients_only() -> None:
    """Other clients may have tables of keys, and no row for it."""
    for zookeeper in (False, True):
        others = advertised(TABLE, Listener.CLIENT, zookeeper=zookeeper)
        own = advertised(TABLE, Listener.CLIENT, zookeeper=zookeeper, to_ottla=True)
        assert set(own) - set(others) == {1003, 1005, 1006, 1008, 1009, 1010, 1011, 1012}
        assert all(key < 1000 for key in others)


@pytest.mark.parametrize("answer", ["now", "kept", "later"])
def test_an_answer_bears_the_requests_number(answer: str) -> None:
    response = HeartbeatResponse(error_code=3)
    pending: Pending[Any] = Pending()
    made = {"now": response, "kept": completed(response), "later": pending}[answer]
    outcome = ask(scripted(lambda _ctx, _request: made), BEAT, 0)
    if answer == "later":
        assert not outcome.done
        pending.complete(response)
        outcome = outcome.value
    assert body_of(outcome).error_code == 3


@pytest.mark.parametrize("throttle_ms", [0, 250])
@pytest.mark.parametrize("answer", ["now", "kept", "later", "in steps"])
def test_the_throttle_of_a_response_mutes_its_connection(answer: str, throttle_ms: int) -> None:
    response = HeartbeatResponse(error_code=0, throttle_time_ms=throttle_ms)
    pending: Pending[Any] = Pending()
    made = {"kept": completed(response), "later": pending}.get(answer, response)
    dispatcher = scripted(lambda _ctx, _request: made, large_answers=answer == "in steps")
    frame = memoryview(encode_request(BEAT, 3, 77, "me"))[4:]
    header, body_at = read_header(frame)
    ctx = Context(header, connection(), 0, 0, node=None)  # type: ignore[arg-type]
    dispatcher.dispatch(ctx, frame, body_at)
    if answer == "later":
        assert ctx.connection.take_throttle_ms() == 0
        pending.complete(response)
    assert ctx.connection.take_throttle_ms() == throttle_ms
    assert ctx.connection.take_throttle_ms() == 0


@pytest.mark.parametrize("answer", [None, completed(None)])
def test_no_answer_is_none(answer: Any) -> None:
    assert ask(scripted(lambda _ctx, _request: answer), BEAT, 0) is None


def test_a_late_answer_that_cannot_be_encoded_ends_its_own_connection_only() -> None:
    results: list[Any] = []
    pending: Pending[Any] = Pending()
    ask(scripted(lambda _ctx, _request: pending), BEAT, 0).then(results.append)
    assert pending.complete(HeartbeatResponse(error_code="no number"))  # type: ignore[arg-type]
    assert results == [None]


@pytest.mark.parametrize(
    ("request_", "version", "listener", "said"),
    [
        (ApiVersionsRequest(), 0, Listener.CLIENT, "API key 18 is not served"),
        (BEAT, 0, Listener.CONTROLLER, "API key 12 is not served on this listener"),
        (BEAT, 4, Listener.CLIENT, "version 4 of Heartbeat is not served"),
    ],
)
def test_what_is_not_served_ends_the_connection(
    request_: object, version: int, listener: Listener, said: str
) -> None:
    def handle(_ctx: Context, _request: object) -> Any:
        raise AssertionError("must not be asked")

    with pytest.raises(CloseConnection, match=said):
        ask(scripted(handle), request_, version, listener=listener)


def test_only_what_brokers_forward_may_be_embedded() -> None:
    """An embedded Fetch would wait here, and fail in the producer's request that completes it."""

    def handle(_ctx: Context, _request: object) -> Any:
        raise AssertionError("must not be asked")

    with pytest.raises(CloseConnection, match="Heartbeat requests are not forwarded"):
        ask(scripted(handle), BEAT, 0, embedded=True)
    forwarded = {key for key, each in TABLE.items() if each.api.is_forwarded}
    assert {19, 20, 37, 43, 44, 45} <= forwarded
    assert not {0, 1, 3, 8, 52, 56, 58, 62, 63} & forwarded


def test_an_unknown_version_of_api_versions_is_answered_in_the_first() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x4d" + b"whatever follows"
    header, body_at = read_header(memoryview(frame))
    assert (header.api_version, header.correlation_id, body_at) == (99, 77, len(frame))
    ctx = Context(header, connection(), 0, 0, node=None)  # type: ignore[arg-type]
    chunks: Any = Dispatcher(TABLE, timers=Timers(), turns=ScriptedTurns()).dispatch(
        ctx, memoryview(frame), body_at
    )
    _, response = decode_response(ApiVersionsResponse, b"".join(chunks)[4:], 0)
    assert response.error_code == Error.UNSUPPORTED_VERSION
    (own,) = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\x7f\xff\x00\x00\x00\x00\x00\x01",
        b"\x00\x03\x00\x63\x00\x00\x00\x01",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x09short",
    ],
)
def test_garbage_ends_the_connection(frame: bytes) -> None:
    with pytest.raises(CloseConnection):
        read_header(memoryview(frame))


def test_a_body_that_ends_early_ends_the_connection() -> None:
    frame = memoryview(encode_request(BEAT, 0, 77, "me"))[4:-1]
    header, body_at = read_header(frame)
    ctx = Context(header, connection(), 0, 0, node=None)  # type: ignore[arg-type]
    with pytest.raises(CloseConnection, match="malformed Heartbeat request"):
        scripted(lambda _ctx, _request: None).dispatch(ctx, frame, body_at)


class Forwarder:
    """Keeps what is forwarded and its promise."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.answer: Pending[Forwarded] = Pending()

    def forward(self, _ctx: Context, frame: bytes) -> Pending[Forwarded]:
        self.frames.append(bytes(frame))
        return self.answer


class Broker:
    cluster_id = "c"
    dice = None
    image = None
    config = SimpleNamespace(zookeeper_connect=None)

    def __init__(self) -> None:
        self.forwarder = Forwarder()


def test_the_controllers_requests_are_forwarded_as_they_came() -> None:
    def handle(_ctx: Context, _request: object) -> Any:
        raise AssertionError("a broker does not decide")

    broker = Broker()
    dispatcher = scripted(handle, runs_on=RunsOn.CONTROLLER)
    outcome = ask(dispatcher, BEAT, 0, broker_or_none=broker)
    assert broker.forwarder.frames == [encode_request(BEAT, 0, 77, "me")[4:]]
    broker.forwarder.answer.complete(b"abc")
    assert outcome.value == [b"\0\0\0\3", b"abc"]


@pytest.mark.parametrize("throttle_ms", [0, 250])
def test_the_throttle_of_a_forwarded_response_mutes_its_connection(throttle_ms: int) -> None:
    broker = Broker()
    request_ = CreateTopicsRequest(topics=(), timeout_ms=1)
    dispatcher = Dispatcher(TABLE, timers=Timers(), turns=ScriptedTurns())
    for version in TABLE[19].api.versions:
        broker.forwarder.answer = Pending()
        frame = memoryview(encode_request(request_, version, 77, "me"))[4:]
        header, body_at = read_header(frame)
        ctx = Context(header, connection(), 0, 0, node=None, broker_or_none=broker)  # type: ignore[arg-type]
        outcome = dispatcher.dispatch(ctx, frame, body_at)
        assert isinstance(outcome, Pending)
        has_throttle = version >= 2
        response = CreateTopicsResponse(
            topics=(), throttle_time_ms=throttle_ms if has_throttle else 0
        )
        frame_sent = b"".join(encode_response(response, version, 77))
        broker.forwarder.answer.complete(frame_sent[4:])
        assert b"".join(outcome.value or ()) == frame_sent
        assert ctx.connection.take_throttle_ms() == (throttle_ms if has_throttle else 0)


def test_a_forwarded_response_has_its_throttle_in_front() -> None:
    """It is read there: see `peek_throttle_ms`."""
    for key, endpoint in TABLE.items():
        fields = spec_of(response_type(key)).fields
        for version in endpoint.api.versions if endpoint.api.is_forwarded else ():
            names = [each.name for each in fields if version in each.versions]
            assert "throttle_time_ms" not in names[1:], (endpoint.name, version)


def test_what_the_controller_could_not_answer_ends_the_connection() -> None:
    broker = Broker()
    dispatcher = scripted(lambda *_: None, runs_on=RunsOn.CONTROLLER)
    outcome = ask(dispatcher, BEAT, 0, broker_or_none=broker)
    broker.forwarder.answer.complete(None)
    assert outcome.done
    assert outcome.value is None


FORWARDED = (
    DescribeQuorumRequest(topics=()),
    CreateTopicsRequest(topics=(), timeout_ms=1),
    DeleteTopicsRequest(topics=(), topic_names=(), timeout_ms=1),
    AlterConfigsRequest(resources=(), validate_only=False),
    CreatePartitionsRequest(topics=(), timeout_ms=1, validate_only=False),
    ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1),
    IncrementalAlterConfigsRequest(resources=(), validate_only=False),
    AlterPartitionReassignmentsRequest(timeout_ms=1, topics=()),
    ListPartitionReassignmentsRequest(timeout_ms=1, topics=None),
    UpdateFeaturesRequest(timeout_ms=1, feature_updates=()),
    UnregisterBrokerRequest(broker_id=1),
    DescribeDeletionsRequest(topics=()),
    DescribeIdleTopicsRequest(),
    DescribeTopicTieringRequest(),
    AbandonPurgeRequest(topic_id=NO_UUID),
    RestoreTopicRequest(name="t", topic_id=NO_UUID, tiered_epoch=1, configs=(), partitions=()),
)
"""What clients ask controllers through brokers."""


@pytest.mark.parametrize("request_", FORWARDED, ids=lambda each: type(each).__name__)
def test_clients_get_a_timeout_where_no_controller_answers(request_: Any) -> None:
    broker = Broker()
    key = spec_of(type(request_)).key
    assert key is not None
    version = TABLE[key].api.versions[-1]
    outcome = ask(
        Dispatcher(TABLE, timers=Timers(), turns=ScriptedTurns()),
        request_,
        version,
        broker_or_none=broker,
    )
    assert not outcome.done
    broker.forwarder.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
    chunks = outcome.value
    assert chunks is not None
    decoded = decode_response(response_type(key), b"".join(chunks)[4:], version)[1]
    error = getattr(decoded, "error_code", Error.REQUEST_TIMED_OUT)
    assert error == Error.REQUEST_TIMED_OUT


def test_every_client_api_of_controllers_is_covered_above() -> None:
    asked = {spec_of(type(each)).key for each in FORWARDED}
    forwarded = {
        key
        for key, each in TABLE.items()
        if each.api.runs_on is RunsOn.CONTROLLER and Listener.CLIENT in each.api.listeners
    }
    assert asked == forwarded


def test_on_the_controller_they_are_decided() -> None:
    dispatcher = scripted(
        lambda _ctx, _request: HeartbeatResponse(error_code=0), runs_on=RunsOn.CONTROLLER
    )
    outcome = ask(dispatcher, BEAT, 0, controller_or_none=object())
    assert body_of(outcome).error_code == 0


def long_request(count: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(
        key_type=0, coordinator_keys=tuple(f"group-{number}" for number in range(count))
    )


class LongWork:
    """FindCoordinator with a handler that takes a millisecond for each key."""

    def __init__(self) -> None:
        self.turns = ScriptedTurns()
        self.seen: list[str] = []
        self.connection = connection()
        endpoint = Endpoint(
            Api(key=10, versions=range(7), listeners=CLIENTS),
            InSteps(self._handle),
            FindCoordinatorRequest,
            "FindCoordinator",
        )
        self.dispatcher = Dispatcher({10: endpoint}, timers=Timers(), turns=self.turns)

    def _handle(
        self, _ctx: Context, request: FindCoordinatorRequest
    ) -> Generator[None, None, FindCoordinatorResponse]:
        for key in request.coordinator_keys:
            self.seen.append(key)
            self.turns.now_ns += 1_000_000
            yield
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(key=key, node_id=1, host="h", port=1, error_code=0) for key in self.seen
            )
        )

    def ask(self, frame: bytes) -> Any:
        lent = bytearray(frame[4:])
        header, body_at = read_header(memoryview(lent))
        ctx = Context(header, self.connection, 0, 0, node=None)  # type: ignore[arg-type]
        try:
            return self.dispatcher.dispatch(ctx, memoryview(lent), body_at)
        finally:
            lent[:] = b"\xaa" * len(lent)  # As the next read does.


def test_a_long_request_is_handled_in_turns() -> None:
    work = LongWork()
    request = long_request(1000)
    outcome = work.ask(encode_request(request, 4, 77, "me"))
    assert isinstance(outcome, LongOutcome)
    assert outcome.held_bytes > LONG_REQUEST_BYTES_MIN
    assert 0 < len(work.seen) < 10
    assert work.turns.run_all() > 100
    frame = b"".join(outcome.value or ())
    _, answer = decode_response(FindCoordinatorResponse, frame[4:], 4)
    assert tuple(each.key for each in answer.coordinators) == request.coordinator_keys


def test_long_requests_that_wait_keep_their_bytes() -> None:
    work = LongWork()
    frames = [encode_request(long_request(2000), 4, 77, "me") for _ in range(5)]
    outcomes = [work.ask(frame) for frame in frames]
    work.turns.run_all()
    assert all(outcome.value for outcome in outcomes)
    assert len(work.seen) == 5 * 2000


def test_a_long_request_of_one_who_is_gone_is_dropped() -> None:
    work = LongWork()
    outcome = work.ask(encode_request(long_request(1000), 4, 77, "me"))
    work.connection.closed.complete(None)
    work.turns.run_all()
    assert len(work.seen) < 10
    assert not outcome.done


@pytest.mark.parametrize(
    "damage", [lambda frame: frame[:-1], lambda frame: frame[:3000] + b"\xff" * 1000]
)
def test_a_malformed_long_request_ends_the_connection(damage: Callable[[bytes], bytes]) -> None:
    work = LongWork()
    with pytest.raises(CloseConnection, match="malformed"):
        work.ask(damage(encode_request(long_request(1000), 4, 77, "me")))
    assert not work.seen


def test_a_delayed_request_closes_the_connection_later_with_the_reason() -> None:
    work = LongWork()
    for _ in range(3):
        work.ask(encode_request(long_request(2000), 4, 77, "me"))
    outcome = work.ask(encode_request(long_request(2000), 4, 77, "me")[:-1])
    work.turns.run_all()
    assert outcome.value is None
    assert "malformed FindCoordinator" in (work.connection.refusal or "")


def test_requests_beyond_every_client_end_the_connection() -> None:
    work = LongWork()
    with pytest.raises(CloseConnection, match="too many elements"):
        work.ask(encode_request(long_request(REQUEST_ELEMENTS_MAX + 1), 4, 77, "me"))
    keys = ("x" * 1000,) * (REQUEST_WITHOUT_RECORDS_BYTES_MAX // 1000)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
    with pytest.raises(CloseConnection, match="bytes"):
        work.ask(encode_request(request, 4, 77, "me"))


def test_requests_between_nodes_do_not_wait_for_clients() -> None:
    for key, endpoint in TABLE.items():
        if not endpoint.api.is_for_clients:
            assert not endpoint.is_long(10_000_000), key
