"""Idle times of topics: for how long no client has used a topic, as observed by this broker.

A use is a produce, a consumer's fetch, a plan to read remote segments (DescribeRemoteLog) or an
offset commit, successful or not; a follower's fetch is none. A request sets a flag, on the counters
of its topic or, for commits, here. A check every `ottla.topic.idle.check.interval.ms` clears the
flags, and adds the time since the last check to the topics without one. At most one interval is
added in a check: in a longer gap the process was suspended, and no use could have set its flag. The
wall clock is not used.

Counting restarts from zero when the topic, or its limit, is new here, and when the replicas of the
topic or of the offsets topic change, since a removed replica's observations are lost. Idle times
are saved over a clean shutdown (`saved`); the time while the broker is down does not count.

After each check the idle times are reported to the controller (ReportIdleTopics).
Source: `ottla.controller.idle`, which decides on the reports.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ApiError, Error, error_of
from ottla.base.ids import INTERNAL_TOPICS, OFFSETS_TOPIC, Uuid
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.broker.metrics import TopicMetrics
from ottla.controller.idle import NO_TOKEN, replicas_of
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.topic_config import ttl_of
from ottla.metadata.topics import TopicImage
from ottla.wire.messages import report_idle_topics as wire

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder

log = logging.getLogger(__name__)

NOTHING_SEEN = 0


class SavedIdleTime(NamedTuple):
    """A topic's idle time, with the brokers that observed the topic."""

    replicas: tuple[int, ...]
    coordinators: tuple[int, ...]
    idle_ms: int


@dataclass(slots=True)
class _Counted:
    """A topic that has a limit; counted since `since_ms` (monotonic), or since the last check."""

    name: str
    replicas: tuple[int, ...]
    since_ms: int
    idle_ms: int = NOTHING_SEEN

    def begin(self, now_ms: int) -> None:
        """Restart from zero."""
        self.since_ms, self.idle_ms = now_ms, NOTHING_SEEN


class IdleTopics:
    """The topics with a limit, as one broker observes them.

    `metrics` returns the counters of the topics that it hosts; `forwarder` leads to the controller;
    `saved`: what the process before this one counted, where it ended cleanly.
    """

    def __init__(
        self,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        metrics: Callable[[], Collection[TopicMetrics]],
        forwarder: "Forwarder",
        clock: Clock,
        timers: Timers,
        interval_ms: int,
        saved: Mapping[Uuid, SavedIdleTime] | None = None,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metrics = metrics
        self._forwarder = forwarder
        self._clock = clock
        self._timers = timers
        self._interval_ms = interval_ms
        self._saved = dict(saved or {})
        self._image: ClusterImage = EMPTY
        self._offsets: TopicImage | None = None
        self._coordinators: tuple[int, ...] = ()
        self._topics: dict[Uuid, _Counted] = {}
        self._committed: set[Uuid] = set()
        self._last_look_ms = clock.monotonic_ms()
        self._timer: Timer | None = None
        self._in_flight = self._is_started = self._is_over = False
        self._token = NO_TOKEN
        self._failure = Error.NONE

    # -- what happens --------------------------------------------------------------------------

    def committed(self, topic_id: Uuid) -> None:
        """Note an attempt to commit an offset of a topic."""
        if topic_id in self._topics or topic_id in self._saved:
            self._committed.add(topic_id)

    def apply(self, delta: ClusterDelta) -> None:
        """Apply a metadata change."""
        self._image = delta.image
        now_ms = self._clock.monotonic_ms()
        self._follow_coordinators(delta.image.topics.by_name(OFFSETS_TOPIC), now_ms)
        for topic_id in delta.deleted_topics:
            self._topics.pop(topic_id, None)
        for topic in delta.created_topics.values():
            self._consider(topic, now_ms)
        for topic_id, change in delta.changed_topics.items():
            counted = self._topics.get(topic_id)
            if counted is not None:
                replicas = replicas_of(change.new)
                if replicas != counted.replicas:
                    counted.replicas = replicas
                    counted.begin(now_ms)
        for resource_type, name in delta.changed_configs:
            changed = delta.image.topics.by_name(name)
            if resource_type == ResourceType.TOPIC and changed is not None:
                self._consider(changed, now_ms)
        self._arm()

    def _follow_coordinators(self, offsets: TopicImage | None, now_ms: int) -> None:
        if offsets is self._offsets:
            return  # As with nearly all changes, of which there may be thousands.
        self._offsets = offsets
        coordinators = replicas_of(offsets)
        if coordinators != self._coordinators:
            self._coordinators = coordinators
            for each in self._topics.values():
                each.begin(now_ms)

    def _consider(self, topic: TopicImage, now_ms: int) -> None:
        if ttl_of(self._image, topic.name) < 0 or topic.name in INTERNAL_TOPICS:
            self._topics.pop(topic.id, None)
            return
        if topic.id in self._topics:
            return
        counted = self._topics[topic.id] = _Counted(topic.name, replicas_of(topic), now_ms)
        saved = self._saved.pop(topic.id, None)
        if saved is not None and saved[:2] == (counted.replicas, self._coordinators):
            counted.idle_ms = saved.idle_ms

    def saved(self) -> dict[Uuid, SavedIdleTime]:
        """Return the idle times, to be saved for the next process."""
        return {
            topic_id: SavedIdleTime(each.replicas, self._coordinators, each.idle_ms)
            for topic_id, each in self._topics.items()
        }

    # -- time ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic checks."""
        self._is_started = True
        self._arm()

    def stop(self) -> None:
        """Check for the last time, without a report."""
        if self._is_over:
            return
        self._is_over = True
        self._look()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Schedule the next check where there are topics to check."""
        if self._timer is not None or not self._is_started or self._is_over:
            return
        if self._topics or self._saved:
            due_ms = self._clock.monotonic_ms() + self._interval_ms
            self._timer = self._timers.at(due_ms, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._look()
        self._report()
        self._arm()

    def _look(self) -> None:
        """Clear the flags, and add the elapsed time to the topics without one."""
        now_ms, last_look_ms = self._clock.monotonic_ms(), self._last_look_ms
        self._last_look_ms = now_ms
        self._saved.clear()  # Uses of topics that are not known by now have not been flagged.
        here = self._image.brokers.get(self._node_id)
        limit_ms = self._interval_ms if here is not None and not here.fenced else 0
        marks = {each.topic: each for each in self._metrics()}
        for topic_id, counted in self._topics.items():
            mark = marks.get(counted.name)
            if topic_id in self._committed or (mark is not None and mark.is_used):
                counted.begin(now_ms)
            else:
                elapsed_ms = now_ms - max(last_look_ms, counted.since_ms)
                counted.idle_ms += min(max(elapsed_ms, 0), limit_ms)
        for mark in marks.values():
            mark.is_used = False
        self._committed.clear()

    # -- the controller ------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the idle times of the topics that this broker observes."""
        rows = tuple(
            wire.IdleTopic(topic_id=topic_id, replicas=each.replicas, idle_ms=each.idle_ms)
            for topic_id, each in self._topics.items()
            if self._node_id in each.replicas or self._node_id in self._coordinators
        )
        if self._in_flight or not rows:
            return
        self._in_flight = True
        request = wire.ReportIdleTopicsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            token=self._token,
            coordinators=self._coordinators,
            topics=rows,
        )
        self._forwarder.call(request, timeout_ms=self._interval_ms).then(self._response_received)

    def _response_received(self, response: object) -> None:
        self._in_flight = False
        if isinstance(response, ApiError):
            failure = response.error
        else:
            assert isinstance(response, wire.ReportIdleTopicsResponse)
            failure = error_of(response.error_code)
            if failure is Error.NONE:
                self._token = response.token
        if failure is not Error.NONE and failure is not self._failure:
            log.info("ReportIdleTopics failed: %s; retrying at the next check", failure.name)
        self._failure = failure
