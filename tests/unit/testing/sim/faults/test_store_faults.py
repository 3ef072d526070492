"""The store's faults begin, come and go as the seed says, and end.

Method: the model of the store in virtual time.
"""

from collections import Counter
from random import Random

from ottla.testing.sim import StoreFaults
from ottla.testing.sim.faults.store_faults import StoreFaultInjector
from ottla.testing.sim.object_store import ObjectStoreFaults, ObjectStoreModel
from ottla.testing.sim.scheduler import Scheduler

SECOND_US = 1_000_000


def raised(name: str, error: BaseException) -> None:
    raise error


def test_a_seed_draws_a_mix() -> None:
    mixes = [StoreFaults.ROUGH.mix(Random(seed)) for seed in range(50)]
    assert mixes == [StoreFaults.ROUGH.mix(Random(seed)) for seed in range(50)]
    assert {each.lies for each in mixes} == {0.0, 0.0125, 0.05}
    assert {each.list_lag_ms for each in mixes} == {0, 2_000, 8_000}
    assert StoreFaults.NONE.mix(Random(1)) == StoreFaults.NONE


def test_outages_come_and_go_and_all_faults_end() -> None:
    scheduler = Scheduler(raised)
    model = ObjectStoreModel(scheduler, Random(1))
    marks: Counter[str] = Counter()
    faults = StoreFaults(refused=0.1, outages=20)
    injector = StoreFaultInjector(model, faults, Random(2), lambda name: marks.update([name]))
    assert model.faults == ObjectStoreFaults()
    injector.begin()
    seen = set()
    for second in range(1, 120):
        scheduler.run_until(second * SECOND_US)
        seen.add((model.faults.refused, model.faults.is_down))
    assert seen == {(0.1, True), (0.1, False)}
    assert marks["store-outage"] > 2
    injector.stop()
    scheduler.run_until(300 * SECOND_US)
    assert model.faults == ObjectStoreFaults()
