"""Reports to the controller what this broker has purged, and what is left (ReportPurges).

Reports are repeated for as long as there is anything to report: a new controller knows none. An
answer that a topic is unknown stops them for a while only, since it may be of a controller that was
deposed. A report has a limited number of partitions; the next one continues behind them.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla.base.errors import ApiError, Error, error_of
from ottla.base.ids import Uuid
from ottla.base.timers import Timer
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.wire.messages import report_purges as wire

if TYPE_CHECKING:
    from ottla.broker.ports import Forwarder

logger = logging.getLogger(__name__)

REPORT_INTERVAL_MS: Final = 10_000
REPORT_SOON_MS: Final = 200
"""After a partition was purged: others follow."""
UNKNOWN_PAUSE_MS: Final = 60_000
"""For how long a topic is not reported that the controller does not know."""
REPORT_PARTITIONS_MAX: Final = 2_000
REPORT_TIMEOUT_MS: Final = 10_000

Key = tuple[Uuid, int]
"""Topic id and partition."""

Rows = Callable[[Key | None], Iterator[tuple[Key, wire.PurgedPartition]]]
"""Yields what is to be reported, in order, from a partition on; None = all."""


class PurgeReporter:
    """See the module. `is_needed`: tells whether there is anything to report, now or later."""

    def __init__(
        self,
        environment: RemoteEnvironment,
        forwarder: "Forwarder",
        broker_epoch: Callable[[], int],
        *,
        rows: Rows,
        is_needed: Callable[[], bool],
    ) -> None:
        self._environment = environment
        self._forwarder = forwarder
        self._broker_epoch = broker_epoch
        self._rows = rows
        self._is_needed = is_needed
        self._timer: Timer | None = None
        self._next: Key | None = None
        """Where the next report begins; None = at the first partition."""
        self._unknown_until_ms: dict[Uuid, int] = {}
        self._in_flight = self._is_closed = False
        self._failure = Error.NONE

    def may_report(self, topic_id: Uuid, first: Key | None) -> bool:
        """Tell whether to report a topic now, in a report that begins at `first`: not one that the
        controller has just said it does not know."""
        if first is not None and topic_id < first[0]:
            return False
        until_ms = self._unknown_until_ms.get(topic_id)
        if until_ms is None:
            return True
        if until_ms > self._environment.clock.monotonic_ms():
            return False
        del self._unknown_until_ms[topic_id]
        return True

    def forget(self, topic_id: Uuid) -> None:
        """Drop what is noted of a topic: there is something new to report of it, or nothing."""
        self._unknown_until_ms.pop(topic_id, None)

    def arm(self, after_ms: int = REPORT_INTERVAL_MS) -> None:
        """Report in that time, or earlier if that is planned."""
        if self._in_flight or self._is_closed or not self._is_needed():
            return
        due_ms = self._environment.clock.monotonic_ms() + after_ms
        if self._timer is None or self._timer.at_ms > due_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._environment.timers.at(due_ms, self._report)

    def close(self) -> None:
        """Report nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        self._timer = None
        rows = list(islice(self._rows(self._next), REPORT_PARTITIONS_MAX + 1))
        self._next = None
        if len(rows) > REPORT_PARTITIONS_MAX:
            self._next = rows.pop()[0]
        if not rows:
            self.arm()
            return
        topics: dict[Uuid, list[wire.PurgedPartition]] = {}
        for (topic_id, _), row in rows:
            topics.setdefault(topic_id, []).append(row)
        request = wire.ReportPurgesRequest(
            broker_id=self._environment.node_id,
            broker_epoch=self._broker_epoch(),
            topics=tuple(
                wire.PurgedTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )
        self._in_flight = True
        self._forwarder.call(request, timeout_ms=REPORT_TIMEOUT_MS).then(self._answered)

    def _answered(self, response: object) -> None:
        self._in_flight = False
        if isinstance(response, ApiError):
            failure = response.error
        else:
            assert isinstance(response, wire.ReportPurgesResponse)
            failure = error_of(response.error_code)
            self._note_unknown(response)
        if failure not in (Error.NONE, self._failure):
            logger.info(
                "ReportPurges failed: %s; retrying in %d ms", failure.name, REPORT_INTERVAL_MS
            )
        self._failure = failure
        is_more = self._next is not None and failure is Error.NONE
        self.arm(REPORT_SOON_MS if is_more else REPORT_INTERVAL_MS)

    def _note_unknown(self, response: wire.ReportPurgesResponse) -> None:
        until_ms = self._environment.clock.monotonic_ms() + UNKNOWN_PAUSE_MS
        for each in response.topics:
            if each.error_code == Error.UNKNOWN_TOPIC_ID:
                self._unknown_until_ms[each.topic_id] = until_ms
