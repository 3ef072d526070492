"""A model of an object store in virtual time: what it holds, its faults, and its history.

    model = ObjectStoreModel(scheduler, Random(7))
    store = model.client(process, clock=clock, read_file=disk.read_bytes)

A node's operations arrive after a delay, are executed at once, and are answered after another one.
A node that dies, or gives up, recalls nothing: what it has sent may still be executed, even after
its next process has started.

Faults, each a rate per operation: `slow` (seconds instead of milliseconds), `refused` (not
executed, UNAVAILABLE), `hanging` (executed or not, never answered), `lost_answers` (executed,
UNAVAILABLE), `lies` (a put reports success and stores nothing), `partial_deletes` (some names
fail). Listings may be `list_lag_ms` old. `is_down` refuses everything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from ottla.base.object_store import (
    NAMES_PER_DELETE_MAX,
    OBJECTS_PER_PAGE_MAX,
    Call,
    Failure,
    FileSource,
    ObjectInfo,
    Page,
    Pool,
    SettableCall,
    Source,
    StoreError,
    check_name,
)
from ottla.base.ports import Buffer, Clock
from ottla.testing.sim.scheduler import START_MS, Process, Scheduler

T = TypeVar("T")

MS: Final = 1000
"""Microseconds."""


@dataclass(slots=True, unsafe_hash=True)
class ObjectStoreFaults:
    """Rates of faults, and how late listings are. See the module.

    A model's own may be changed at any time; those that others have are values.
    """

    slow: float = 0.0
    refused: float = 0.0
    hanging: float = 0.0
    lost_answers: float = 0.0
    lies: float = 0.0
    partial_deletes: float = 0.0
    list_lag_ms: int = 0
    is_down: bool = False


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """An operation that was executed. `fault`: what was wrong with it, or nothing."""

    at_ms: int
    client: str
    operation: str
    names: tuple[str, ...]
    result: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified_ms: int


def ignore(name: str, before: bytes | None, after: bytes | None) -> None:
    """Do nothing with a change."""


class ObjectStoreModel:
    """The store. `objects` are its contents; tests look at them and change nothing."""

    def __init__(
        self, scheduler: Scheduler, random: Random, faults: ObjectStoreFaults | None = None
    ) -> None:
        self.faults = ObjectStoreFaults() if faults is None else faults
        self.history: list[StoreEvent] = []
        self.scheduler = scheduler
        self.random = random
        self.on_change: Callable[[str, bytes | None, bytes | None], None] = ignore
        """Called after each change with a name, and the content before and after."""
        self._objects: dict[str, _Object] = {}
        self._changes: list[tuple[int, str, _Object | None]] = []
        """Time, name and the object before the change: listings are computed back from it."""

    def __contains__(self, name: str) -> bool:
        return name in self._objects

    @property
    def objects(self) -> Mapping[str, bytes]:
        """Return the contents by name."""
        return {name: each.data for name, each in sorted(self._objects.items())}

    def client(
        self, process: Process, *, clock: Clock, read_file: Callable[[str], bytes]
    ) -> "ModelStore":
        """Return the store as one process of a node uses it; `read_file` reads that node's disk."""
        return ModelStore(self, process, clock, read_file)

    # -- executed operations -------------------------------------------------------------------

    def put(self, name: str, data: bytes, *, replace: bool) -> StoreError | None:
        """Write an object."""
        if not replace and name in self._objects:
            return StoreError(Failure.EXISTS, name)
        self._change(name, _Object(data, START_MS + self.scheduler.now_ms))
        return None

    def get(self, name: str) -> _Object | StoreError:
        """Return an object."""
        return self._objects.get(name) or StoreError(Failure.NOT_FOUND, name)

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        if name in self._objects:
            self._change(name, None)

    def listed(self) -> Mapping[str, _Object]:
        """Return what a listing shows: the contents of `list_lag_ms` ago."""
        shown = dict(self._objects)
        since_ms = self.scheduler.now_ms - self.faults.list_lag_ms
        for at_ms, name, before in reversed(self._changes):
            if at_ms <= since_ms:
                break
            if before is None:
                shown.pop(name, None)
            else:
                shown[name] = before
        return shown

    def _change(self, name: str, after: _Object | None) -> None:
        before = self._objects.get(name)
        self._changes.append((self.scheduler.now_ms, name, before))
        if after is None:
            del self._objects[name]
        else:
            self._objects[name] = after
        self.on_change(
            name, None if before is None else before.data, None if after is None else after.data
        )


class ModelStore:
    """A client of the model. See `ottla.base.object_store.ObjectStore`.

    Fields: `resized`: the last sizes of each pool that were set; the model has no pools.
    """

    def __init__(
        self,
        model: ObjectStoreModel,
        process: Process,
        clock: Clock,
        read_file: Callable[[str], bytes],
    ) -> None:
        self._model = model
        self._process = process
        self._clock = clock
        self._read_file = read_file
        self.resized: dict[Pool, tuple[int, int]] = {}

    def close(self) -> None:
        """Do nothing: operations end with the process."""

    def resize(self, pool: Pool, running_max: int, queued_max: int) -> None:
        """Note the sizes."""
        self.resized[pool] = (running_max, queued_max)

    def put(self, name: str, source: Source, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port. The content is read when the operation starts."""
        check_name(name)
        data = self._content(source)
        if isinstance(data, StoreError):
            call: SettableCall[None] = SettableCall()
            call.result.complete(data)
            return call
        return self._start(
            "put", (name,), deadline_ms, lambda: self._model.put(name, data, replace=True)
        )

    def put_if_absent(self, name: str, data: Buffer, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port."""
        check_name(name)
        content = bytes(data)
        return self._start(
            "put_if_absent",
            (name,),
            deadline_ms,
            lambda: self._model.put(name, content, replace=False),
        )

    def get_range(
        self, name: str, start: int, length: int, *, pool: Pool, deadline_ms: int
    ) -> Call[Buffer]:
        """See the port."""
        check_name(name)
        assert start >= 0
        assert length > 0

        def read() -> Buffer | StoreError:
            found = self._model.get(name)
            if isinstance(found, StoreError):
                return found
            if start >= len(found.data):
                return StoreError(Failure.INVALID, f"{name} has {len(found.data)} bytes")
            return found.data[start : start + length]

        call: SettableCall[Buffer] = self._start("get_range", (name,), deadline_ms, read)
        return call

    def head(self, name: str, *, pool: Pool, deadline_ms: int) -> Call[ObjectInfo]:
        """See the port."""
        check_name(name)

        def look() -> ObjectInfo | StoreError:
            found = self._model.get(name)
            return found if isinstance(found, StoreError) else _info(name, found)

        return self._start("head", (name,), deadline_ms, look)

    def list_page(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = OBJECTS_PER_PAGE_MAX,
        pool: Pool,
        deadline_ms: int,
    ) -> Call[Page]:
        """See the port."""
        assert 0 < limit <= OBJECTS_PER_PAGE_MAX
        below = f"{prefix}/" if prefix else ""

        def look() -> Page:
            listed = self._model.listed()
            names = sorted(name for name in listed if name.startswith(below) and name > after)
            page = tuple(_info(name, listed[name]) for name in names[:limit])
            return Page(page, is_last=len(names) <= limit)

        return self._start("list_page", (prefix,), deadline_ms, look)

    def delete_many(
        self, names: Sequence[str], *, pool: Pool, deadline_ms: int
    ) -> Call[Mapping[str, StoreError]]:
        """See the port."""
        assert 0 < len(names) <= NAMES_PER_DELETE_MAX
        for name in names:
            check_name(name)

        def delete() -> dict[str, StoreError]:
            failed: dict[str, StoreError] = {}
            is_partial = self._drawn(self._model.faults.partial_deletes)
            for name in names:
                if is_partial and self._model.random.random() < 0.3:
                    failed[name] = StoreError(Failure.UNAVAILABLE, f"{name}: internal error")
                else:
                    self._model.delete(name)
            return failed

        return self._start("delete_many", tuple(names), deadline_ms, delete)

    def remove_unfinished(self, prefix: str, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port. The model's writes leave nothing: this takes no time, and never fails."""
        check_name(prefix)
        call: SettableCall[None] = SettableCall()
        call.result.complete(None)
        return call

    # -- one operation -------------------------------------------------------------------------

    def _content(self, source: Source) -> bytes | StoreError:
        if not isinstance(source, FileSource):
            return bytes(source)
        try:
            data = self._read_file(source.path)
        except OSError as error:
            return StoreError(Failure.SOURCE, f"{source.path}: {error.strerror}")
        if len(data) != source.size_bytes:
            return StoreError(Failure.SOURCE, f"{source.path} has {len(data)} bytes")
        return data

    def _drawn(self, rate: float) -> bool:
        return rate > 0 and self._model.random.random() < rate

    def _delay_us(self) -> int:
        random = self._model.random
        if self._drawn(self._model.faults.slow):
            return random.randrange(1_000 * MS, 20_000 * MS)
        return random.randrange(1 * MS, 30 * MS)

    def _start(
        self,
        operation: str,
        names: tuple[str, ...],
        deadline_ms: int,
        execute: Callable[[], T | StoreError],
    ) -> SettableCall[T]:
        scheduler, faults = self._model.scheduler, self._model.faults
        call: SettableCall[T] = SettableCall()
        wait_us = max(0, deadline_ms - self._clock.monotonic_ms()) * MS

        def settle(result: Any) -> None:
            call.result.complete(result)

        timed_out = StoreError(Failure.TIMED_OUT, "no response by the deadline")
        deadline = scheduler.after(wait_us, lambda: settle(timed_out), self._process)
        call.result.then(lambda _: deadline.cancel())
        is_hanging = self._drawn(faults.hanging)
        is_lost, is_lie = self._drawn(faults.lost_answers), self._drawn(faults.lies)

        def answer(result: Any) -> None:
            if not is_hanging:
                scheduler.after(self._delay_us(), lambda: settle(result), self._process)

        def arrive() -> None:
            if faults.is_down or self._drawn(faults.refused):
                answer(StoreError(Failure.UNAVAILABLE, "503 Slow Down"))
                return
            if is_lie and operation == "put":
                self._note(operation, names, "ok", "lie")
                answer(None)
                return
            result = execute()
            fault = "no answer" if is_hanging else "lost answer" if is_lost else ""
            text = str(result.failure.value) if isinstance(result, StoreError) else "ok"
            self._note(operation, names, text, fault)
            answer(StoreError(Failure.UNAVAILABLE, "connection reset") if is_lost else result)

        if not (is_hanging and self._drawn(0.5)):
            scheduler.after(self._delay_us(), arrive)
        return call

    def _note(self, operation: str, names: tuple[str, ...], result: str, fault: str) -> None:
        at_ms = self._model.scheduler.now_ms
        self._model.history.append(
            StoreEvent(at_ms, self._process.name, operation, names, result, fault)
        )


def _info(name: str, found: _Object) -> ObjectInfo:
    return ObjectInfo(name, len(found.data), found.modified_ms)
