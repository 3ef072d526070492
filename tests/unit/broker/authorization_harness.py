"""A node for tests of authorization: a broker with groups, a controller, and who may do what.

`ask` sends a request's bytes through the dispatcher, as a connection does, and decodes the
response. `parts` lists the errors in a response, `state` what requests change.
"""

from collections.abc import Collection, Iterator, Set
from typing import Any, cast

from ottla.base.authorizer import Operation, Resource, ResourceType
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending, completed
from ottla.base.principal import ANONYMOUS, Principal
from ottla.base.turns import Turns
from ottla.broker.api.base import OPERATIONS_NOT_REQUESTED, Context
from ottla.broker.dispatch import Dispatcher, load_apis, read_header
from ottla.broker.ports import Listener
from ottla.host.forwarder import ControllerForwarder
from ottla.metadata.configs import ResourceType as ConfigType
from ottla.metadata.records import ConfigRecord, PartitionRecord, Record, TopicRecord
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages import offset_commit, offset_fetch, produce
from ottla.wire.messages.describe_quorum import DescribeQuorumResponse
from ottla.wire.registry import response_type
from ottla.wire.schema import Array, spec_of
from tests.unit.log.support import batch

from .controller_harness import Controller
from .group_harness import GroupHarness
from .harness import FakeQuorum

Question = tuple[Operation, Resource]

A_ID, B_ID = Uuid(b"topic a---------"), Uuid(b"topic b---------")
IDS = {"a": A_ID, "b": B_ID}
GROUPS = ("g", "h")
ALICE = Principal("User", "alice")


class Denying:
    """An authorizer that allows all but what `denied` says. `asked`: all questions, in order."""

    def __init__(self, *denied: Question, principal: Principal = ANONYMOUS) -> None:
        self.denied = frozenset(denied)
        self.principal = principal
        self.asked: list[Question] = []

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resources: Collection[Resource],
    ) -> Set[Resource]:
        assert resources, "a question about nothing"
        assert len(set(resources)) == len(resources), "a question twice"
        self.asked += [(operation, each) for each in resources]
        if principal != self.principal:
            return frozenset(resources)
        return {each for each in resources if (operation, each) not in self.denied}

    def authorize_by_resource_type(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        any_resource = (operation, Resource(resource_type, "*"))
        self.asked.append(any_resource)
        return any_resource not in self.denied


class _Quorum(FakeQuorum):
    committed_offset = -1

    def describe(self, ctx: Context, request: object) -> object:
        return DescribeQuorumResponse(error_code=0, topics=())


class AuthorizationHarness(GroupHarness):
    """Broker and controller 1 with topics a and b, a record in each, and groups g and h."""

    def __init__(self) -> None:
        self.controller_port = Controller()
        self.client_principal = ANONYMOUS
        self.response: Any = None
        """To the request that a test has sent."""
        self.authorizer = Denying()
        super().__init__()
        self.dispatcher = Dispatcher(
            load_apis(),
            timers=self.timers,
            turns=Turns(lambda: 0, lambda turn: self.timers.at(self.clock.elapsed_ms, turn)),
        )
        self.quorum = _Quorum()
        self.add_offsets_topic()
        for name, topic_id in IDS.items():
            self.add_topic(name, topic_id)
            self.ask(produced(name), 9)
        for group in GROUPS:
            self.ask(committed(group, "a", "b", offset=1), 8)
        self.authorizer.asked.clear()

    def commit(self, *records: Record) -> None:
        super().commit(*records)
        for each in records:
            if isinstance(each, TopicRecord | PartitionRecord | ConfigRecord):
                self.controller_port.write(each)

    def ask(self, request: Any, version: int, **how: Any) -> Any:
        key = spec_of(type(request)).key
        assert key is not None
        how = {"controller_or_none": self.controller_port, **how}
        principal = how.pop("principal", self.client_principal)
        ctx = self.context(key, version, authorizer=self.authorizer, **how)
        ctx.connection.principal = principal
        frame = memoryview(bytearray(encode_request(request, version, 7, "test")[4:]))
        header, body_at = read_header(frame)
        ctx.header = header
        outcome = self.dispatcher.dispatch(ctx, frame, body_at)
        if isinstance(outcome, Pending):
            self.settle(outcome, 10_000)
            outcome = outcome.value
        if outcome is None:
            return None
        data = b"".join(map(_bytes, cast(Any, outcome)))
        _, response = decode_response(response_type(key), memoryview(data)[4:], version)
        return response

    def ask_through_broker(self, request: Any, version: int) -> Any:
        """Ask a broker that is no controller; it forwards the request to this node."""
        self.broker.forwarder = ControllerForwarder(
            self, clock=self.clock, timers=self.timers, forward_timeout_ms=1_000
        )
        return self.ask(request, version, controller_or_none=None)

    # -- The controller, as brokers reach it, and its node --

    node_id = 1

    def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
        """Handle a request of the broker itself, whose principal is another one."""
        how = {"listener": Listener.CONTROLLER, "principal": Principal("User", "broker")}
        return completed(self.ask(request, version, **how))

    def withdraw(self, answer: Pending[Any]) -> bool:
        return False

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        _, body_at = read_header(frame)
        outcome = self.dispatcher.dispatch(ctx, frame, body_at, embedded=True)
        if isinstance(outcome, Pending):
            self.settle(outcome, 10_000)
            outcome = outcome.value
        return completed(b"".join(map(_bytes, cast(Any, outcome)))[4:])

    def state(self) -> dict[str, Any]:
        """Return what requests change, by topic and group.

        Of a topic: the number of partitions, the configuration, the bounds of the log, the offsets.
        """
        image, authorizer = self.controller_port.image, self.authorizer
        self.authorizer = Denying()
        groups: dict[str, tuple[tuple[str, int], ...]] = {}
        for group in GROUPS:
            fetched = self.ask(offset_fetch.OffsetFetchRequest(group_id=group, topics=None), 7)
            groups[group] = tuple(
                (topic.name, each.committed_offset)
                for topic in fetched.topics
                for each in topic.partitions
            )
        self.authorizer = authorizer
        topics: dict[str, object] = {}
        for name in ("a", "b", "new1", "new2"):
            topic = image.topics.by_name(name)
            log = self.log_dirs.get(name, 0)
            topics[name] = (
                None if topic is None else len(topic.partitions),
                image.configs.of(ConfigType.TOPIC, name),
                None if log is None else (log.log_start_offset, log.log_end_offset),
                tuple(
                    (group, part) for group in GROUPS for part in groups[group] if part[0] == name
                ),
            )
        return topics | groups


def _bytes(chunk: Any) -> bytes:
    if isinstance(chunk, bytes | bytearray | memoryview):
        return bytes(chunk)
    data = bytes(chunk.file.read_at(chunk.position, chunk.length))
    chunk.release()
    return data


def produced(*topics: str, **fields: Any) -> produce.ProduceRequest:
    """Return a request that appends a record to partition 0 of each topic."""
    return produce.ProduceRequest(
        acks=fields.pop("acks", 1),
        timeout_ms=1_000,
        topic_data=tuple(
            produce.TopicProduceData(
                name=topic,
                topic_id=IDS.get(topic, NO_UUID),
                partition_data=(produce.PartitionProduceData(index=0, records=batch(**fields)),),
            )
            for topic in topics
        ),
    )


def committed(group: str, *topics: str, offset: int) -> offset_commit.OffsetCommitRequest:
    """Return a request that commits an offset of partition 0 of each topic."""
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                topic_id=IDS.get(topic, NO_UUID),
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=None
                    ),
                ),
            )
            for topic in topics
        ),
    )


NAMES = (
    "name", "topic", "topic_id", "group_id", "key", "resource_name", "partition_index", "index",
    "partition_id", "partition",
)  # fmt: skip
ERRORS = (
    "error_code",
    "topic_config_error_code",
    "cluster_authorized_operations",
    "topic_authorized_operations",
    "authorized_operations",
)


def parts(response: Any) -> dict[str, int]:
    """Return each error code, and bit field of operations, by where it is."""
    return dict(_parts(response, ()))


def _parts(value: Any, above: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    spec = spec_of(type(value))
    label, named = above, False
    for field in spec.fields:
        if field.name in NAMES:
            found = getattr(value, field.name)
            if found not in (None, "", NO_UUID) and not (field.name == "topic_id" and named):
                label = (*label, _NAME_OF.get(found, str(found)))
                named = True
    place = "-".join(dict.fromkeys(label))
    for field in spec.fields:
        found = getattr(value, field.name)
        if field.name in ERRORS and found != OPERATIONS_NOT_REQUESTED:
            kind = "" if field.name == "error_code" else f" {field.name}"
            yield f"{place}{kind}", int(found)
        if isinstance(field.type, Array) and isinstance(field.type.element, type):
            for each in found or ():
                yield from _parts(each, label)


_NAME_OF: dict[Any, str] = {topic_id: name for name, topic_id in IDS.items()}


def made(cls: type, **values: Any) -> Any:
    """Return a request whose structs are given as dicts; what is not given is zero."""
    filled: dict[str, Any] = {}
    for field in spec_of(cls).fields:
        value = values.pop(field.name, field.default)
        element = field.type.element if isinstance(field.type, Array) else None
        if isinstance(element, type) and value is not None:
            value = tuple(
                made(element, **each) if isinstance(each, dict) else each for each in value
            )
        filled[field.name] = value
    assert not values, f"{cls.__name__} has no {', '.join(values)}"
    return cls(**filled)
