"""In a ZooKeeper cluster any broker may be the controller: which requests are forwarded.

Method: the real table of APIs for what is served; scripted endpoints and controllers.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api.base import BROKERS, CLIENTS, NOBODY, NOWHERE, Api, Context, RunsOn
from ottla.broker.dispatch import Dispatcher, Endpoint, advertised, load_apis, read_header
from ottla.broker.ports import CloseConnection, Connection, Forwarded, Listener
from ottla.wire.frames import encode_request
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.base.scripted_turns import ScriptedTurns

HEARTBEAT = 12
TABLE = load_apis()
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

BETWEEN_NODES = {4, 5, 6, 7, 56, 58, 67, 1001, 1004, 1007}
OF_A_QUORUM = {52, 53, 54, 55, 57, 59, 62, 63, 64, 73, 1002}


@dataclass
class Brokers:
    """The requests to the broker and its controller."""

    is_active: bool = False
    forwarded: list[bytes] = field(default_factory=list)

    def forward(self, _ctx: Context, frame: bytes) -> Pending[Forwarded]:
        self.forwarded.append(bytes(frame))
        return Pending()

    @property
    def broker(self) -> Any:
        config = SimpleNamespace(inter_broker_listener_name="INTERNAL")
        return SimpleNamespace(config=config, forwarder=self)


class Asked:
    """One request to a scripted endpoint; `handled` = it was decided here."""

    def __init__(self, brokers: Brokers, api: Api, *, name: str = "CLIENTS", **how: Any) -> None:
        self.handled = 0
        endpoint = Endpoint(api, self._handle, HeartbeatRequest, "Heartbeat")
        frame = memoryview(encode_request(BEAT, 0, 77, "me"))[4:]
        header, body_at = read_header(frame)
        connection = Connection("c", Listener.CLIENT, name, "h", 1)
        ctx = Context(header, connection, 0, 0, cast(Any, None), brokers.broker, cast(Any, brokers))
        self.outcome = Dispatcher(
            {HEARTBEAT: endpoint}, timers=Timers(), turns=ScriptedTurns(), zookeeper=True
        ).dispatch(ctx, frame, body_at, **how)

    def _handle(self, _ctx: Context, _request: Any) -> Any:
        self.handled += 1
        return HeartbeatResponse(error_code=0)


def an_api(**how: Any) -> Api:
    return Api(key=HEARTBEAT, versions=range(4), **{"runs_on": RunsOn.CONTROLLER, **how})


FOR_CLIENTS = an_api(listeners=CLIENTS)
FOR_NODES = an_api(listeners=NOWHERE, zookeeper=BROKERS, advertised=NOBODY)


def test_apis_between_nodes_are_not_advertised_to_clients() -> None:
    returned = set(advertised(TABLE, Listener.CLIENT, zookeeper=True))
    assert {0, 1, 3, 18, 19, 20, 37, 43, 45} <= returned
    assert not returned & (BETWEEN_NODES | OF_A_QUORUM)


def test_each_mode_serves_its_own() -> None:
    for key, endpoint in TABLE.items():
        here = Listener.CLIENT in endpoint.api.answers_on(zookeeper=True)
        there = Listener.CLIENT in endpoint.api.answers_on(zookeeper=False)
        if key in BETWEEN_NODES:
            assert here
        elif key in OF_A_QUORUM:
            assert not here
        else:
            assert here == there


def test_what_is_the_controllers_is_forwarded_where_another_broker_rules() -> None:
    brokers = Brokers(is_active=False)
    assert Asked(brokers, FOR_CLIENTS).handled == 0
    assert len(brokers.forwarded) == 1


def test_it_is_decided_here_where_this_is_the_active_controller() -> None:
    brokers = Brokers(is_active=True)
    assert Asked(brokers, FOR_CLIENTS).handled == 1
    assert brokers.forwarded == []


def test_what_was_forwarded_is_not_forwarded_again() -> None:
    """Two brokers that take each other for the controller would send it to and fro."""
    brokers = Brokers(is_active=False)
    assert Asked(brokers, FOR_CLIENTS, embedded=True).handled == 1
    assert brokers.forwarded == []


@pytest.mark.parametrize("is_active", [True, False])
def test_requests_between_nodes_are_never_forwarded(is_active: bool) -> None:
    brokers = Brokers(is_active=is_active)
    assert Asked(brokers, FOR_NODES, name="INTERNAL").handled == 1
    assert brokers.forwarded == []


def test_requests_between_nodes_are_served_on_the_inter_broker_listener_only() -> None:
    with pytest.raises(CloseConnection, match="between nodes only"):
        Asked(Brokers(is_active=True), FOR_NODES)
