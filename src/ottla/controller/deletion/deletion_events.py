"""Events of deletions that are not decided yet, by topic; none is lost.

Events are taken to be decided together, some topics at a time. After `decided` they are done;
after `refused`, because something could not be written, they are kept and retried without
delaying other topics (`retry_queue`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.retry_queue import RetryQueue


@dataclass(slots=True)
class TopicEvents:
    """The undecided events of one topic's deletion; see `deletion_policy.DeletionWork`."""

    results: dict[Replica, Error] = field(default_factory=dict)
    lost: set[Replica] = field(default_factory=set)

    def add(self, later: "TopicEvents") -> None:
        """Add later events."""
        self.results |= later.results
        self.lost |= later.lost


class DeletionEvents:
    """See the module. One taken set at a time."""

    def __init__(self) -> None:
        self._events: dict[Uuid, TopicEvents] = {}
        self._queue: RetryQueue[Uuid] = RetryQueue()
        self._taken: dict[Uuid, TopicEvents] = {}

    def of(self, topic_id: Uuid) -> TopicEvents:
        """Return a topic's events, to be added to, and schedule the topic."""
        events = self._events.get(topic_id)
        if events is None:
            events = self._events[topic_id] = TopicEvents()
            self._queue.add((topic_id,))
        return events

    def schedule(self, topic_ids: Iterable[Uuid]) -> None:
        """Have the deletions of topics checked."""
        for topic_id in topic_ids:
            self.of(topic_id)

    def has_result(self, replica: Replica) -> bool:
        """Tell whether there is a result for a replica that was not taken yet."""
        events = self._events.get(replica.topic_id)
        return events is not None and replica in events.results

    @property
    def has_any(self) -> bool:
        """Tell whether there is something to take now."""
        return self._queue.has_any

    def take(self) -> Mapping[Uuid, TopicEvents]:
        """Return what to decide together; empty = nothing."""
        assert not self._taken, "what was taken was neither decided nor refused"
        self._taken = {each: self._events.pop(each) for each in self._queue.take()}
        return self._taken

    def decided(self) -> Mapping[Uuid, TopicEvents]:
        """What was taken is committed; return it."""
        taken, self._taken = self._taken, {}
        self._queue.done(taken)
        return taken

    def refused(self, now_ms: int) -> None:
        """What was taken could not be written, or not all of it."""
        taken, self._taken = self._taken, {}
        for topic_id, events in taken.items():
            events.add(self._events.get(topic_id, TopicEvents()))
            self._events[topic_id] = events
        self._queue.failed(list(taken), now_ms)

    @property
    def due_ms(self) -> int | None:
        """Return when the first topic that failed alone is retried, None = none did."""
        return self._queue.due_ms

    def end_pauses(self, now_ms: int) -> None:
        """Schedule the topics whose backoff is over."""
        self._queue.end_pauses(now_ms)
