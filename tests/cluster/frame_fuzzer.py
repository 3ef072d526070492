"""A fuzzer that talks from within valid sessions: see `test_frame_fuzzer`."""

import random
import selectors
import socket
import time
from contextlib import suppress
from typing import Any

from ottla.base.ids import NO_UUID
from ottla.broker.dispatch import load_apis
from ottla.client.connection import Connection
from ottla.records.builder import encode_batch
from ottla.testing import Cluster
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from .clients import eventually
from .frame_mutations import Facts, Mutator, valid
from .raw import connect, encoded, port_of

BURST = 500
SECONDS = 20.0
WAIT_SECONDS = 0.4
"""How long a burst's answers are waited for: some requests wait by right, or are unfinished."""

NOT_ASKED = frozenset({57, 64})
"""UpdateFeatures and UnregisterBroker change the cluster for everybody, where they are valid."""

STATEFUL = (0, 1, 8, 9, 11, 12, 13, 14, 22)
"""Produce, Fetch and what members of groups say: asked for half of the time."""

SENTINEL = encoded(ApiVersionsRequest(), 0, correlation_id=0x5EED)


class Session:
    """What one client knows of a broker by asking it as intended: a topic, a group's member and its
    generation, a producer's id, an open fetch session.
    """

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._number = number
        self.topic = "fuzz"
        self.facts: Facts = {}
        with Connection("127.0.0.1", port_of(cluster), client_id="fuzz", timeout=SECONDS) as asking:
            self._asking = asking
            self._know()

    def _ask(self, request: Any, response: type, version: int) -> Any:
        return self._asking.ask(request, response, timeout=SECONDS, version=version)

    def _know(self) -> None:
        group, topic = f"fuzz-{self._number}", self.topic
        topic_id = self._made_topic()
        batch = encode_batch([(b"k", b"v" * 50, (), int(time.time() * 1000))])
        self.facts |= {
            "topic": topic,
            "name": topic,
            "topic_name": topic,
            "topic_names": ("fuzz-scratch",),
            "DeleteTopicState.name": "fuzz-scratch",
            "DeleteTopicState.topic_id": NO_UUID,
            "MetadataRequestTopic.topic_id": NO_UUID,
            "CreatableTopic.name": "fuzz-scratch",
            "AlterableConfig.name": "retention.ms",
            "AlterConfigsResource.resource_name": topic,
            "JoinGroupRequestProtocol.name": "range",
            "topic_id": topic_id,
            "group_id": group,
            "groups": (group,),
            "groups_names": ("fuzz-none",),
            "key": group,
            "coordinator_keys": (group,),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "session_timeout_ms": 6_000,
            "rebalance_timeout_ms": 1_000,
            "metadata": b"\x00\x01\x00\x00\x00\x00",
            "records": batch,
            "acks": 1,
            "timeout_ms": 500,
            "max_wait_ms": 50,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "partition_max_bytes": 1 << 16,
            "resource_type": 2,
            "resource_name": topic,
            "config_operation": 0,
            "value": "1000000",
            "num_partitions": 1,
            "replication_factor": 1,
            "count": 2,
            "timestamp": -1,
            "replica_id": -1,
            "broker_ids": (1,),
            "replicas": (1,),
            "transactional_id": None,
            "generation_id": -1,
        }
        self._join(group)
        self._open_fetch_session()
        self._produce()

    def _made_topic(self) -> Any:
        """Return the topic's id; it is made again where a damaged request has deleted it."""
        new = CreatableTopic(
            name=self.topic, num_partitions=2, replication_factor=1, assignments=(), configs=()
        )
        self._ask(CreateTopicsRequest(topics=(new,)), CreateTopicsResponse, 5)
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=self.topic),))

        def look() -> Any:
            [found] = self._ask(wanted, MetadataResponse, 12).topics
            return found.topic_id if not found.error_code and found.partitions else None

        return eventually(look, what="the topic to be there")

    def _join(self, group: str) -> None:
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))

        def found() -> bool:
            answer = self._ask(asked, FindCoordinatorResponse, 4)
            return answer.coordinators[0].error_code == 0

        eventually(found, what="the group's coordinator")

        def join(member_id: str) -> Any:
            self.facts["member_id"] = member_id
            request = valid(JoinGroupRequest, 5, {**self.facts, "group_instance_id": None})
            return self._ask(request, JoinGroupResponse, 5)

        def joined() -> Any:
            first = join("")
            second = join(first.member_id)
            return second if second.error_code == 0 else None

        member = eventually(joined, what="the member to join")
        self.facts["generation_id"] = member.generation_id
        self.facts["generation_id_or_member_epoch"] = member.generation_id
        synced = self._ask(valid(SyncGroupRequest, 4, self.facts), SyncGroupResponse, 4)
        assert synced.error_code == 0
        beat = self._ask(valid(HeartbeatRequest, 3, self.facts), HeartbeatResponse, 3)
        assert beat.error_code == 0

    def _open_fetch_session(self) -> None:
        self.facts |= {"session_id": 0, "session_epoch": 0}
        opened = self._ask(valid(FetchRequest, 11, self.facts), FetchResponse, 11)
        assert opened.error_code == 0
        self.facts |= {"session_id": opened.session_id, "session_epoch": 1}

    def _produce(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        got = self._ask(request, InitProducerIdResponse, 4)
        assert got.error_code == 0
        self.facts |= {
            "records": encode_batch(
                [(b"k", b"v" * 50, (), int(time.time() * 1000))],
                producer_id=got.producer_id,
                producer_epoch=got.producer_epoch,
                base_sequence=0,
            ),
            "producer_id": got.producer_id,
            "producer_epoch": got.producer_epoch,
        }
        answer = self._ask(valid(ProduceRequest, 9, self.facts), ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


class Fuzzer:
    """Sends bursts of damaged requests to a broker, each on a connection of its own.

    Fields: `seed`: decides everything but the session's ids; `last`: the frames of the last burst.
            `answered`, `closed`, `silent`: what became of connections so far.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.seed = seed
        self.last: list[bytes] = []
        self.answered = self.closed = self.silent = 0
        self.bursts = 0
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._mutator = Mutator(self._dice)
        self._apis = {
            key: endpoint
            for key, endpoint in load_apis().items()
            if endpoint.api.is_for_clients and key not in NOT_ASKED
        }

    def burst(self, count: int = BURST) -> None:
        """Open a session, send `count` frames, wait for what comes."""
        self.bursts += 1
        facts = Session(self._cluster, self.bursts).facts
        self.last = [self._frame(facts) for _ in range(count)]
        with selectors.DefaultSelector() as selector:
            rest = [self._send(frame, selector) for frame in self.last]
            for raw, data in rest:
                with suppress(OSError):
                    raw.sendall(data)
            self._receive(selector)

    def _frame(self, facts: Facts) -> bytes:
        dice = self._dice
        keys = STATEFUL if dice.random() < 0.5 else tuple(self._apis)
        endpoint = self._apis[dice.choice(keys)]
        version = dice.choice(endpoint.api.versions)
        return self._mutator.frame(valid(endpoint.request, version, facts), version)

    def _send(self, frame: bytes, selector: selectors.BaseSelector) -> tuple[socket.socket, bytes]:
        """Send a frame, or its begin; return its socket with what is to be sent later."""
        raw = connect(self._cluster)
        data = frame + SENTINEL
        cut = self._dice.randrange(1, len(data)) if self._dice.random() < 0.3 else len(data)
        with suppress(OSError):
            raw.sendall(data[:cut])
        selector.register(raw, selectors.EVENT_READ)
        return raw, data[cut:]

    def _receive(self, selector: selectors.BaseSelector) -> None:
        """Read until each connection is closed or has answered, or none says anything any more."""
        heard: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while selector.get_map() and time.monotonic() < deadline:
            ready = selector.select(WAIT_SECONDS)
            if not ready:
                break
            for key, _ in ready:
                raw: Any = key.fileobj
                data = b""
                with suppress(OSError):
                    data = raw.recv(1 << 16)
                if data:
                    heard.add(key.fd)
                    if b"\x00\x00\x5e\xed" not in data:
                        continue
                    self.answered += 1
                else:
                    self.closed += 1
                selector.unregister(raw)
                raw.close()
        for key in list(selector.get_map().values()):
            self.silent += 1
            silent: Any = key.fileobj
            selector.unregister(silent)
            silent.close()
