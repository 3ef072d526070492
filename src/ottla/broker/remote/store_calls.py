"""Operations on the object store with deadlines and retries, as dialogues.

Each attempt has a deadline, and is cancelled with the dialogue. What may succeed later is tried
again, after a backoff that doubles, until the time of the whole is over.

A write whose result is unknown may still be executed after its failure, even after a later delete
of the same object: `on_unknown` is called, and whoever deletes the object deletes it again once
LATE_WRITE_MS have passed. Beyond that is only what no store can recall: a broker that is suspended
within a write, and a rename that hangs for longer on the mount of a directory store.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.base.backoff import Backoff
from ottla.base.object_store import (
    NAMES_PER_DELETE_MAX,
    RETRIABLE,
    Call,
    Failure,
    ObjectInfo,
    ObjectStore,
    Page,
    Pool,
    Source,
    StoreError,
)
from ottla.base.ports import Buffer, Clock, Dice
from ottla.broker.remote.dialogue import Dialogue, wait_for_call

T = TypeVar("T")

ATTEMPT_MS_MAX: Final = 30_000
"""Deadline of an operation that transfers little."""

TRANSFER_BYTES_PER_MS_MIN: Final = 1024
"""A slower transfer is cancelled, some 1 MiB/s."""

LATE_WRITE_MS: Final = 60_000
"""A write whose caller has given up is executed within this time, or never. Exceptions: above."""

RETRIES: Final = Backoff(first_ms=500, max_ms=30_000)
"""remote.log.manager.task.retry.backoff.ms, ….max.ms."""


def transfer_ms_max(size_bytes: int) -> int:
    """Return the deadline of one transfer of so many bytes."""
    return ATTEMPT_MS_MAX + size_bytes // TRANSFER_BYTES_PER_MS_MIN


class StoreCalls:
    """The operations of one broker's tasks. `until_ms`, monotonic: no attempt goes beyond it."""

    def __init__(
        self, store: ObjectStore, clock: Clock, dice: Dice, backoff: Backoff = RETRIES
    ) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self.backoff = backoff

    def put(
        self,
        name: str,
        source: Source,
        size_bytes: int,
        *,
        until_ms: int,
        on_unknown: Callable[[], object],
    ) -> Dialogue[StoreError | None]:
        """Write an object; return the last error, or None."""
        result: StoreError | None = yield from self._repeat(
            lambda deadline_ms: self._store.put(
                name, source, pool=Pool.COPIER, deadline_ms=deadline_ms
            ),
            attempt_ms=transfer_ms_max(size_bytes),
            until_ms=until_ms,
            on_unknown=on_unknown,
        )
        return result

    def put_if_absent_once(self, name: str, data: Buffer) -> Dialogue[StoreError | None]:
        """Write a small object unless it exists; one attempt, since a repeated one may find it."""
        return (
            yield from self._once(
                lambda deadline_ms: self._store.put_if_absent(
                    name, data, pool=Pool.COPIER, deadline_ms=deadline_ms
                ),
                ATTEMPT_MS_MAX,
            )
        )

    def read(
        self, name: str, size_bytes_max: int, *, until_ms: int
    ) -> Dialogue[Buffer | StoreError]:
        """Read a small object as a whole."""
        return (
            yield from self._repeat(
                lambda deadline_ms: self._store.get_range(
                    name, 0, size_bytes_max, pool=Pool.COPIER, deadline_ms=deadline_ms
                ),
                attempt_ms=transfer_ms_max(size_bytes_max),
                until_ms=until_ms,
            )
        )

    def head(self, name: str, *, until_ms: int) -> Dialogue[ObjectInfo | StoreError]:
        """Return an object's size and time."""
        return (
            yield from self._repeat(
                lambda deadline_ms: self._store.head(
                    name, pool=Pool.COPIER, deadline_ms=deadline_ms
                ),
                attempt_ms=ATTEMPT_MS_MAX,
                until_ms=until_ms,
            )
        )

    def list_page(self, prefix: str, after: str, *, until_ms: int) -> Dialogue[Page | StoreError]:
        """Return one page of a listing."""
        return (
            yield from self._repeat(
                lambda deadline_ms: self._store.list_page(
                    prefix, after=after, pool=Pool.COPIER, deadline_ms=deadline_ms
                ),
                attempt_ms=ATTEMPT_MS_MAX,
                until_ms=until_ms,
            )
        )

    def list_page_once(self, prefix: str, after: str, *, pool: Pool) -> Dialogue[Page | StoreError]:
        """Return one page of a listing; one attempt."""
        return (
            yield from self._once(
                lambda deadline_ms: self._store.list_page(
                    prefix, after=after, pool=pool, deadline_ms=deadline_ms
                ),
                ATTEMPT_MS_MAX,
            )
        )

    def delete(
        self, names: Sequence[str], *, pool: Pool = Pool.EXPIRATION
    ) -> Dialogue[dict[str, StoreError]]:
        """Delete objects, one attempt for each; return the names that may be left."""
        left: dict[str, StoreError] = {}
        for first in range(0, len(names), NAMES_PER_DELETE_MAX):
            some = names[first : first + NAMES_PER_DELETE_MAX]
            result: Mapping[str, StoreError] | StoreError = yield from self._once(
                lambda deadline_ms, some=some: self._store.delete_many(  # type: ignore[misc]
                    some, pool=pool, deadline_ms=deadline_ms
                ),
                ATTEMPT_MS_MAX,
            )
            if isinstance(result, StoreError):
                left.update(dict.fromkeys(some, result))
            else:
                left.update(result)
        return left

    def remove_unfinished(self, prefix: str, *, pool: Pool) -> Dialogue[StoreError | None]:
        """Remove what writes below a directory have left that did not end; one attempt."""
        return (
            yield from self._once(
                lambda deadline_ms: self._store.remove_unfinished(
                    prefix, pool=pool, deadline_ms=deadline_ms
                ),
                ATTEMPT_MS_MAX,
            )
        )

    def _once(self, begin: Callable[[int], Call[T]], attempt_ms: int) -> Dialogue[T | StoreError]:
        return (yield from wait_for_call(begin(self._clock.monotonic_ms() + attempt_ms)))

    def _repeat(
        self,
        begin: Callable[[int], Call[T]],
        *,
        attempt_ms: int,
        until_ms: int,
        on_unknown: Callable[[], object] = lambda: None,
    ) -> Dialogue[T | StoreError]:
        failures = 0
        while True:
            left_ms = until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return StoreError(Failure.TIMED_OUT, "the time for the whole operation is over")
            result = yield from self._once(begin, min(attempt_ms, left_ms))
            if not isinstance(result, StoreError):
                return result
            if result.may_have_happened:
                on_unknown()
            failures += 1
            pause_ms = self.backoff.delay_ms(failures, self._dice)
            if result.failure not in RETRIABLE or pause_ms >= until_ms - self._clock.monotonic_ms():
                return result
            yield pause_ms
