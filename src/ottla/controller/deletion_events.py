"""What is to be decided of deletions, topic by topic, until it is: nothing that was heard is lost.

Notes are taken to be decided together, some topics at a time. What was `decided` is over; what was
`refused`, since something of it could not be written, is kept, and none of the others waits for it
(`retry_queue`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion_policy import Replica
from ottla.controller.retry_queue import RetryQueue


@dataclass(slots=True)
class TopicEvents:
    """What was heard of one topic's deletion; see `deletion_policy.Wish`."""

    results: dict[Replica, Error] = field(default_factory=dict)
    lost: set[Replica] = field(default_factory=set)

    def add(self, later: "TopicEvents") -> None:
        """Take in what was heard later."""
        self.results |= later.results
        self.lost |= later.lost


class DeletionEvents:
    """See the module. One taking at a time."""

    def __init__(self) -> None:
        self._events: dict[Uuid, TopicEvents] = {}
        self._queue: RetryQueue[Uuid] = RetryQueue()
        self._taken: dict[Uuid, TopicEvents] = {}

    def of(self, topic_id: Uuid) -> TopicEvents:
        """Return a topic's note, to be written on; it is to be looked at from now on."""
        events = self._events.get(topic_id)
        if events is None:
            events = self._events[topic_id] = TopicEvents()
            self._queue.add((topic_id,))
        return events

    def schedule(self, topic_ids: Iterable[Uuid]) -> None:
        """Have topics looked at."""
        for topic_id in topic_ids:
            self.of(topic_id)

    def has_result(self, replica: Replica) -> bool:
        """Tell whether an answer of a replica was heard that nobody has taken to decide it."""
        events = self._events.get(replica.topic_id)
        return events is not None and replica in events.results

    @property
    def has_any(self) -> bool:
        """Tell whether there is something to take now."""
        return self._queue.has_any

    def take(self) -> Mapping[Uuid, TopicEvents]:
        """Return what is to be decided together; empty = nothing is."""
        assert not self._taken, "what was taken was neither decided nor refused"
        self._taken = {each: self._events.pop(each) for each in self._queue.take()}
        return self._taken

    def decided(self) -> Mapping[Uuid, TopicEvents]:
        """Hear that what was taken is a fact; return it."""
        taken, self._taken = self._taken, {}
        self._queue.done(taken)
        return taken

    def refused(self, now_ms: int) -> None:
        """Hear that what was taken could not be written, or not all of it."""
        taken, self._taken = self._taken, {}
        for topic_id, events in taken.items():
            events.add(self._events.get(topic_id, TopicEvents()))
            self._events[topic_id] = events
        self._queue.failed(list(taken), now_ms)

    @property
    def due_ms(self) -> int | None:
        """Return when the first topic is tried again that was refused alone, None = none was."""
        return self._queue.due_ms

    def end_pauses(self, now_ms: int) -> None:
        """Have those taken again whose pause is over."""
        self._queue.end_pauses(now_ms)
