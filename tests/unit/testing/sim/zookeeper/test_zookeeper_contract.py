"""The simulator's model of ZooKeeper keeps what a session promises.

Method: the checks that the driver of a real server passes, too (`tests.zookeeper_checks`), in
virtual time and with several seeds, so that messages meet in different orders.
"""

from collections.abc import Callable

import pytest

from tests.unit.testing.sim.zookeeper.zookeeper_bench import ModelBench
from tests.zookeeper_bench import Bench
from tests.zookeeper_checks import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("chroot", ["", "/clusters/one"], ids=["root", "chroot"])
def test_the_model_keeps_the_contract(check: Callable[[Bench], None], chroot: str) -> None:
    for seed in range(5):
        bench = ModelBench(seed, chroot=chroot)
        check(bench)
        assert bench.problems == []
