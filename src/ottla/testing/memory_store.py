"""The metadata port in memory, with results that tests control.

`MemoryMetadata` is the stored metadata; each elected controller gets a `MemoryStore` of its epoch,
and earlier ones are fenced. Tests inject results by a store's `faults`, and delay appends with
`hold`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.base.errors import ApiError
from ottla.base.pending import Pending, completed
from ottla.controller.metadata_port import Appended, Committed, Conflict, Fenced, Unknown
from ottla.controller.step import Step
from ottla.metadata.delta import ClusterDelta, delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record

Listener = Callable[[ClusterDelta], None]

RECORDS_PER_PART_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The injected result of an append.

    Fields: `answer`: the result. `parts`: how many parts of the step are written before it.
            `others`: records that another writer writes then.
    """

    answer: Appended
    parts: int = 0
    others: tuple[Record, ...] = ()


class MemoryMetadata:
    """The stored metadata. `epoch`: of the controller that may write."""

    def __init__(self, image: ClusterImage = EMPTY) -> None:
        self.image = image
        self.epoch = 0
        self.store: MemoryStore | None = None

    def elect(self, *, records_per_part_max: int = RECORDS_PER_PART_MAX) -> "MemoryStore":
        """Elect another controller; return its store."""
        self.epoch += 1
        self.store = MemoryStore(self, self.epoch, records_per_part_max)
        return self.store

    def write(self, records: Iterable[Record]) -> ClusterDelta:
        """Store records; stores see them when they refresh."""
        count, _epoch = self.image.position
        delta = replay(self.image, records, offset=count + 1, epoch=self.epoch)
        self.image = delta.image
        return delta

    def observe(self, *records: Record) -> None:
        """Write as a client that is not the controller; the active controller's store sees it."""
        self.write(records)
        if self.store is not None:
            self.store.refresh()


class MemoryStore:
    """See `ottla.controller.metadata_port.MetadataPort`.

    Fields: `faults`: the results of the next appends, one each; later ones succeed.
            `steps`: the appended steps. `fenced`: it writes nothing any more.
    """

    is_pipelined = False

    def __init__(self, stored: MemoryMetadata, epoch: int, records_per_part_max: int) -> None:
        self.image = stored.image
        self.epoch = epoch
        self.faults: deque[Fault] = deque()
        self.steps: list[Step] = []
        self.fenced = False
        self._stored = stored
        self._records_per_part_max = records_per_part_max
        self._listeners: list[Listener] = []
        self._waiting: deque[Callable[[], None]] | None = None
        self._busy = False

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each change from now on."""
        self._listeners.append(listener)

    @property
    def committed_image(self) -> ClusterImage:
        """Return the image: what is in it is stored."""
        return self.image

    def append(self, step: Step, epoch: int) -> Pending[Appended | ApiError]:
        """Write a step, or return the result of the next fault."""
        if not step.records:
            return completed(Committed(()))
        assert not self._busy, "one append at a time"
        self._busy = True
        self.steps.append(step)
        answer: Pending[Appended | ApiError] = Pending()

        def do() -> None:
            outcome = self._append(step, epoch)
            self._busy = False
            answer.complete(outcome)

        if self._waiting is None:
            do()
        else:
            self._waiting.append(do)
        return answer

    def hold(self) -> None:
        """Hold all appends from now on."""
        self._waiting = deque()

    def release(self) -> None:
        """Process the held appends, and hold no more."""
        waiting, self._waiting = self._waiting, None
        for do in waiting or ():
            do()

    def refresh(self) -> None:
        """Publish what others wrote."""
        if not self.fenced and self.image is not self._stored.image:
            self._publish(delta_between(self.image, self._stored.image))

    def _append(self, step: Step, epoch: int) -> Appended:
        if epoch != self._stored.epoch or self.fenced:
            self.fenced = True
            return Fenced()
        parts = list(self._parts(step))
        fault = self.faults.popleft() if self.faults else None
        written = parts if fault is None else parts[: fault.parts]
        blind = fault is not None and isinstance(fault.answer, Unknown)
        deltas = []
        for part in written:
            deltas.append(self._stored.write(part))
            if not blind:
                self._publish(deltas[-1])
        if fault is None:
            return Committed(tuple(deltas))
        if isinstance(fault.answer, Fenced):
            self._stored.epoch += 1
            self.fenced = True
        if fault.others:
            self._stored.write(fault.others)
        self.refresh()
        return fault.answer

    def _parts(self, step: Step) -> Iterable[Sequence[Record]]:
        if step.atomic:
            return (step.records,) if step.records else ()
        size = self._records_per_part_max
        starts = range(0, len(step.records), size)
        return (step.records[start : start + size] for start in starts)

    def _publish(self, delta: ClusterDelta) -> None:
        self.image = delta.image
        for listener in tuple(self._listeners):
            listener(delta)


__all__ = ["Committed", "Conflict", "Fault", "Fenced", "MemoryMetadata", "MemoryStore", "Unknown"]
