"""A copier that is held at one of its operations, and goes on when the test says so.

What it sends from the held operation on neither reaches the store nor the metadata topic until
`release`; then all of it does, also what was cancelled meanwhile: a store may execute late what it
was sent.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.object_store import Call, SettableCall
from ottla.base.pending import Pending
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import MetadataRecord
from tests.unit.broker.remote.copy_bench import Life


class HeldCopier:
    """See the module. `names`: all operations; the one at `hold_at` is held, from 0 on."""

    def __init__(self, life: Life, hold_at: int | None) -> None:
        self.hold_at = hold_at
        self.names: list[str] = []
        self.is_released = False
        self._held: list[Callable[[], None]] = []
        environment = life.environment
        self._metadata = environment.metadata
        self._store = environment.calls._store
        environment.metadata = self
        environment.calls._store = _Store(self, self._store)  # type: ignore[assignment]

    @property
    def is_held(self) -> bool:
        return bool(self._held)

    def begin(self, name: str, operation: Callable[[], None]) -> None:
        """Begin an operation, now or when it is released."""
        holds = self.hold_at is not None and len(self.names) >= self.hold_at
        self.names.append(name)
        if holds and not self.is_released:
            self._held.append(operation)
        else:
            operation()

    def release(self) -> None:
        self.is_released = True
        held, self._held = self._held, []
        for operation in held:
            operation()

    # -- the segment metadata ------------------------------------------------------------------

    def append(self, record: MetadataRecord) -> Pending[ApiError | None]:
        done: Pending[ApiError | None] = Pending()

        def came(error: ApiError | None) -> None:
            done.complete(error)

        name = f"append {type(record).__name__}"
        self.begin(name, lambda: self._metadata.append(record).then(came))
        return done

    def remote_log(self, topic_id: Any, partition: int) -> RemoteLog | None:
        return self._metadata.remote_log(topic_id, partition)

    def replayed(self, topic_id: Any, partition: int) -> RemoteLog | None:
        return self._metadata.replayed(topic_id, partition)


class _Store:
    def __init__(self, copier: HeldCopier, store: Any) -> None:
        self._copier = copier
        self._store = store

    def __getattr__(self, operation: str) -> Callable[..., Call[Any]]:
        def call(*args: Any, **options: Any) -> Call[Any]:
            outer: SettableCall[Any] = SettableCall()

            def came(result: Any) -> None:
                if not outer.result.done:
                    outer.result.complete(result)

            def begin() -> None:
                getattr(self._store, operation)(*args, **options).result.then(came)

            self._copier.begin(operation, begin)
            return outer

        return call
