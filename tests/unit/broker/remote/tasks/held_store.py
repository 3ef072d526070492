"""One kind of operation on a broker's store that is held until the test says so.

A held operation is sent when it is released, also if it was cancelled or has timed out meanwhile: a
store may execute late what it was sent.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.object_store import Call, Failure, SettableCall, StoreError
from tests.unit.broker.remote.copy_bench import Life


class HeldStore:
    """See the module. `names`: the first argument of each held operation, in order."""

    def __init__(self, life: Life, operation: str) -> None:
        self.names: list[str] = []
        self._held: list[Callable[[], None]] = []
        self._operation = operation
        self._timers = life.environment.timers
        self._calls = life.environment.calls
        self._store: Any = self._calls._store
        self._calls._store = self  # type: ignore[assignment]

    def __getattr__(self, operation: str) -> Callable[..., Call[Any]]:
        begin = getattr(self._store, operation)
        if operation != self._operation:
            return begin  # type: ignore[no-any-return]

        def call(*args: Any, **options: Any) -> Call[Any]:
            outer: SettableCall[Any] = SettableCall()

            def came(result: Any) -> None:
                if not outer.result.done:
                    outer.result.complete(result)

            timed_out = StoreError(Failure.TIMED_OUT, "it is held")
            self._timers.at(options["deadline_ms"], lambda: came(timed_out))
            self.names.append(args[0])
            self._held.append(lambda: begin(*args, **options).result.then(came))
            return outer

        return call

    def let_pass(self) -> None:
        """Hold nothing from now on; what is held stays so."""
        self._calls._store = self._store

    def release(self) -> None:
        """Send what is held, and hold nothing from now on."""
        self.let_pass()
        held, self._held = self._held, []
        for each in held:
            each()
