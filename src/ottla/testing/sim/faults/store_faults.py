"""The faults of the object store of a simulated cluster: their rates, and the injector.

As with `faults`, a seed draws its own mix from `StoreFaults.ROUGH`, from another random stream.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from typing import ClassVar

from ottla.testing.sim.object_store import MS, ObjectStoreFaults, ObjectStoreModel

MINUTE_US = 60_000 * MS
OUTAGES_MS = (1_000, 5_000, 20_000, 40_000)
"""The longest time of an outage; of these one is drawn for each."""


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class StoreFaults(ObjectStoreFaults):
    """The faults of a history; a value, which is not changed.

    Fields: those of the store's model, and `outages`: times a minute that the whole store refuses
            everything for a while. `swarm`: the seed draws which of these there are.
    """

    outages: float = 0.0
    swarm: bool = False

    NONE: ClassVar["StoreFaults"]
    ROUGH: ClassVar["StoreFaults"]

    def mix(self, random: Random) -> "StoreFaults":
        """Return the faults of one history."""
        if not self.swarm:
            return self
        drawn: dict[str, float | int] = {}
        for each in fields(self):
            most = getattr(self, each.name)
            if not isinstance(most, bool):
                drawn[each.name] = type(most)(most * random.choice((0.0, 0.25, 1.0)))
        return replace(self, **drawn, swarm=False)  # type: ignore[arg-type]


StoreFaults.NONE = StoreFaults()
StoreFaults.ROUGH = StoreFaults(
    slow=0.1,
    refused=0.1,
    hanging=0.02,
    lost_answers=0.1,
    lies=0.05,
    partial_deletes=0.5,
    list_lag_ms=8_000,
    outages=1.5,
    swarm=True,
)


class StoreFaultInjector:
    """Injects the faults of a history, from `begin` until `stop`."""

    def __init__(
        self,
        model: ObjectStoreModel,
        faults: StoreFaults,
        random: Random,
        mark: Callable[[str], None],
    ) -> None:
        self.faults = faults
        self._model = model
        self._random = random
        self._mark = mark
        self._is_stopped = False

    def begin(self) -> None:
        """Begin."""
        given = self.faults
        if given == StoreFaults.NONE:
            return  # A story may have faults of its own.
        self._model.faults = replace(given)
        if given.outages:
            self._next_outage()

    def stop(self) -> None:
        """Inject no further faults. What was sent before may still be answered late, or never."""
        self._is_stopped = True
        if self.faults != StoreFaults.NONE:
            self._model.faults = ObjectStoreFaults()

    def _next_outage(self) -> None:
        pause_us = int(self._random.expovariate(self.faults.outages) * MINUTE_US)
        self._model.scheduler.after(pause_us, self._outage)

    def _outage(self) -> None:
        if self._is_stopped:
            return
        self._mark("store-outage")
        self._model.faults.is_down = True
        length_ms = self._random.randrange(500, self._random.choice(OUTAGES_MS))
        self._model.scheduler.after(length_ms * MS, self._end_outage)

    def _end_outage(self) -> None:
        if not self._is_stopped:
            self._model.faults.is_down = False
            self._next_outage()
