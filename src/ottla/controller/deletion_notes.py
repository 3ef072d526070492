"""What is to be decided of deletions, topic by topic, until it is: nothing that was heard is lost.

Notes are taken to be decided together, some topics at a time. What was `decided` is over; what was
`refused`, since something of it could not be written, is kept. Nobody knows what that was, so it
is taken again in halves, until the one topic that cannot be written is alone; that one gets a
pause, and is taken alone after it, and none of the others waits for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion_policy import Replica

RETRY_FIRST_MS: Final = 500
RETRY_MS_MAX: Final = 60_000
"""How long what failed is left alone: twice as long each time, within these."""

TOPICS_PER_DECISION_MAX: Final = 1_000
"""Others have their turn on the loop between two decisions."""


@dataclass(slots=True)
class Pause:
    """How long something that failed is left alone. `due_ms`: until when, None = it is not."""

    due_ms: int | None = None
    _failures: int = 0
    _ended_ms: int = 0

    def begin(self, now_ms: int) -> None:
        """Leave it alone, unless it is."""
        if self.due_ms is not None:
            return
        if now_ms - self._ended_ms > RETRY_MS_MAX:
            self.forget()  # The last attempt did not fail.
        self.due_ms = now_ms + min(RETRY_FIRST_MS << min(self._failures, 20), RETRY_MS_MAX)
        self._failures += 1

    def forget(self) -> None:
        """Let the next pause be short: it works again."""
        self._failures = 0

    def end(self, now_ms: int) -> bool:
        """End the pause where its time has come; tell whether it has."""
        if self.due_ms is None or now_ms < self.due_ms:
            return False
        self.due_ms, self._ended_ms = None, now_ms
        return True


@dataclass(slots=True)
class Note:
    """What was heard of one topic's deletion; see `deletion_policy.Wish`."""

    answers: dict[Replica, Error] = field(default_factory=dict)
    lost: set[Replica] = field(default_factory=set)
    retry: set[int] = field(default_factory=set)

    def add(self, later: "Note") -> None:
        """Take in what was heard later."""
        self.answers |= later.answers
        self.lost |= later.lost
        self.retry |= later.retry


class Notes:
    """See the module. One taking at a time. What it costs does not grow with how many are paused:
    it is asked after each event and each decision, and each of those is decided by itself."""

    def __init__(self) -> None:
        self._notes: dict[Uuid, Note] = {}
        self._unpaused: set[Uuid] = set()
        """Those of the notes whose topics have no pause."""
        self._taken: dict[Uuid, Note] = {}
        self._parts: list[list[Uuid]] = []
        self._pauses: dict[Uuid, Pause] = {}
        """Of topics that were refused alone, until they are decided."""
        self._due: list[tuple[int, Uuid]] = []
        """A heap of the pauses that are not over."""

    def of(self, topic_id: Uuid) -> Note:
        """Return a topic's note, to be written on; it is to be looked at from now on."""
        note = self._notes.get(topic_id)
        if note is None:
            note = Note()
            self._put(topic_id, note)
        return note

    def _put(self, topic_id: Uuid, note: Note) -> None:
        self._notes[topic_id] = note
        if topic_id not in self._pauses:
            self._unpaused.add(topic_id)

    def look_at(self, topic_ids: Iterable[Uuid]) -> None:
        """Have topics looked at."""
        for topic_id in topic_ids:
            self.of(topic_id)

    def is_retried(self, topic_id: Uuid, broker_id: int) -> bool:
        """Tell whether a topic's failed replicas on a broker are to be tried again."""
        note = self._notes.get(topic_id)
        return note is not None and broker_id in note.retry

    def has_answer(self, replica: Replica) -> bool:
        """Tell whether an answer of a replica was heard that nobody has taken to decide it."""
        note = self._notes.get(replica.topic_id)
        return note is not None and replica in note.answers

    # -- deciding ------------------------------------------------------------------------------

    @property
    def is_any(self) -> bool:
        """Tell whether there is something to take now."""
        return bool(self._parts or self._unpaused)

    def take(self) -> Mapping[Uuid, Note]:
        """Return what is to be decided together, at most so many topics; empty = nothing is."""
        assert not self._taken, "what was taken was neither decided nor refused"
        if self._parts:
            topic_ids = self._parts.pop()
        else:
            topic_ids = sorted(self._unpaused)[:TOPICS_PER_DECISION_MAX]
        self._taken = {each: self._notes.pop(each) for each in topic_ids}
        self._unpaused.difference_update(topic_ids)
        return self._taken

    def decided(self) -> Mapping[Uuid, Note]:
        """Hear that what was taken is a fact; return it."""
        taken, self._taken = self._taken, {}
        for topic_id in taken:
            if self._pauses.pop(topic_id, None) is not None and topic_id in self._notes:
                self._unpaused.add(topic_id)
        return taken

    def refused(self, now_ms: int) -> None:
        """Hear that what was taken could not be written, or not all of it."""
        taken, self._taken = self._taken, {}
        for topic_id, note in taken.items():
            note.add(self._notes.pop(topic_id, Note()))
            self._put(topic_id, note)
        topic_ids = list(taken)
        if len(topic_ids) > 1:
            middle = len(topic_ids) // 2
            self._parts += [topic_ids[middle:], topic_ids[:middle]]
        for topic_id in topic_ids if len(topic_ids) == 1 else ():
            self._pause(topic_id, now_ms)

    def _pause(self, topic_id: Uuid, now_ms: int) -> None:
        pause = self._pauses.setdefault(topic_id, Pause())
        assert pause.due_ms is None, "it was taken before its pause was over"
        pause.begin(now_ms)
        assert pause.due_ms is not None
        heappush(self._due, (pause.due_ms, topic_id))
        self._unpaused.discard(topic_id)

    # -- pauses --------------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        """Return when the first pause is over, None = there is none."""
        return self._due[0][0] if self._due else None

    def end_pauses(self, now_ms: int) -> None:
        """Have those taken again whose pause is over."""
        while self._due and self._due[0][0] <= now_ms:
            _, topic_id = heappop(self._due)
            is_over = self._pauses[topic_id].end(now_ms)
            assert is_over
            self._parts.append([topic_id])
