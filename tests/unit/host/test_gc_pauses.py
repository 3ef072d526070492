"""Objects that survive a long collection are not traversed again, until many more are frozen.

Method: a fake collector; and the real one, with which nothing must leak.
"""

import gc

from ottla.host.gc_pauses import GROWTH_MIN, PAUSE_NS, GcPauseLimiter


class Collector:
    """Fields: `live`: objects that are tracked; `aside`: those set aside of them."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.live = 0
        self.aside = 0
        self.pauses = GcPauseLimiter(self, lambda: self.now_ns)

    def freeze(self) -> None:
        self.aside = self.live

    def unfreeze(self) -> None:
        self.aside = 0

    def get_freeze_count(self) -> int:
        return self.aside

    def collect(self, generation: int = 2, *, took_ns: int = PAUSE_NS + 1) -> None:
        info = {"generation": generation}
        self.pauses.on_collection("start", info)
        self.now_ns += took_ns
        self.pauses.on_collection("stop", info)


def test_what_survives_a_long_collection_is_set_aside() -> None:
    collector = Collector()
    collector.live = 1_000
    collector.collect(took_ns=PAUSE_NS)
    assert collector.aside == 0
    collector.collect()
    assert collector.aside == 1_000


def test_collections_of_the_young_change_nothing() -> None:
    collector = Collector()
    collector.live = 1_000
    collector.collect(0)
    collector.collect(1)
    assert collector.aside == 0


def test_once_twice_as_much_is_set_aside_everything_is_looked_at() -> None:
    collector = Collector()
    kept = collector.live = 500_000
    collector.collect()
    limit = 2 * kept + GROWTH_MIN
    collector.live = limit
    collector.collect()
    assert collector.aside == limit
    collector.live = limit + 1
    collector.collect()
    assert collector.aside == 0, "the next one finds what has become garbage among them"
    collector.live = 600_000
    collector.collect()
    assert collector.aside == 600_000
    collector.live = limit + 2
    collector.collect()
    assert collector.aside == limit + 2, "counted from what the last full look left"


def test_the_real_collector_supports_the_protocol() -> None:
    ticks = iter(range(0, 10**12, PAUSE_NS + 1))
    pauses = GcPauseLimiter(ticks_ns=lambda: next(ticks))
    gc.callbacks.append(pauses.on_collection)
    try:
        kept = [[number] for number in range(1_000)]
        gc.collect()
        assert gc.get_freeze_count() > len(kept)
    finally:
        gc.callbacks.remove(pauses.on_collection)
        gc.unfreeze()
