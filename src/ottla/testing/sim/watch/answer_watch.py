"""Measures how long nodes take to answer simulated clients, against each request's own time limit.

Only the time counts in which the node's process ran and the connection was open. A request queued
behind another one of its connection has not begun.
"""

from collections.abc import Callable

from ottla.host.forwarder import METADATA_WAIT_MS
from ottla.testing.history.nodes import RequestHeld
from ottla.testing.sim.net import MS, Network, Pipe
from ottla.wire.codec import decode
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.registry import APIS, request_type

LOOK_FROM_MS = 1_000
"""Requests that are answered sooner are not checked."""

LIMITS = ("timeout_ms", "max_wait_ms")
"""The fields of requests that hold a time limit."""

GROUP_KEYS = frozenset({11, 14})
"""JoinGroup and SyncGroup: they wait for other members."""

GROUP_LIMIT_MS = 5 * 60_000

PRODUCE = 0
LOCAL_KEYS = frozenset({PRODUCE, 1, 12, 13, 15, 16, 18, 23})
"""What the broker itself answers: Produce and Fetch, and at once Heartbeat, LeaveGroup,
DescribeGroups, ListGroups, ApiVersions and OffsetForLeaderEpoch. All others may be forwarded to a
controller, whose response waits until the broker's own metadata has caught up
(`ottla.host.forwarder`), or wait for a replicated log or a store."""

DEFAULT_LIMIT_MS = 27_000
"""Of requests without one: see `ottla.broker.forwarding.controller_limits`."""


class AnswerWatch:
    """Watches the connections of a network; `report` is called with each slow request."""

    def __init__(self, net: Network, report: Callable[[RequestHeld], None]) -> None:
        self._net = net
        self._report = report
        net.held = self._held

    def _held(self, pipe: Pipe, frame: bytes, began_us: int, answered: bool) -> None:
        process, now_us = pipe.listener.process, self._net.scheduler.now_us
        began_us = max(began_us, process.held_until_us, process.busy_until_us)
        held_ms = (now_us - began_us) // MS
        if pipe.source >= 0 or held_ms < LOOK_FROM_MS or not process.alive or process.paused:
            return
        if is_one_way(frame):
            return
        api, limit_ms = limit_of(frame)
        self._report(
            RequestHeld(
                pipe.source,
                pipe.listener.place,
                process.incarnation,
                api,
                held_ms,
                limit_ms,
                answered,
                now_us // MS,
            )
        )

    def finish(self) -> None:
        """Report the requests that are unanswered in the end."""
        for pipe in self._net.pipes.values():
            pipe.report_held(answered=False)


def is_one_way(frame: bytes) -> bool:
    """Tell whether a request has no response: Produce with acks=0."""
    if int.from_bytes(frame[4:6], "big") != PRODUCE:
        return False
    header, body_at = decode_request_header(memoryview(frame)[4:])
    body = memoryview(frame)[4 + body_at :]
    return decode(ProduceRequest, body, header.api_version, lenient=True).acks == 0


def limit_of(frame: bytes) -> tuple[str, int]:
    """Return a request's name and its time limit in milliseconds."""
    header, body_at = decode_request_header(memoryview(frame)[4:])
    name = APIS[header.api_key].name
    if header.api_key in GROUP_KEYS:
        return name, GROUP_LIMIT_MS
    body = memoryview(frame)[4 + body_at :]
    request: object = decode(request_type(header.api_key), body, header.api_version, lenient=True)
    own = [getattr(request, field, None) for field in LIMITS]
    limit_ms = next((each for each in own if isinstance(each, int)), 0)
    if header.api_key in LOCAL_KEYS:
        return name, limit_ms
    return name, (limit_ms if limit_ms > 0 else DEFAULT_LIMIT_MS) + METADATA_WAIT_MS
