"""A simulated cluster works, and its whole history follows from the seed.

Method: a cluster with a writer, run twice; the second time also in another process under another
hash seed.
"""

import os
import subprocess
import sys

import pytest

from ottla.testing.sim import Faults, NoProgress, Sim

from .requests import Writer

RUN_MS = 20_000


def history(seed: int, faults: Faults, ms: int = RUN_MS) -> tuple[Sim, Writer]:
    sim = Sim(seed, faults=faults)
    writer = Writer(sim)
    sim.run(ms=ms)
    return sim, writer


def test_a_cluster_without_faults_serves() -> None:
    sim, writer = history(1, Faults.NONE)
    assert writer.acknowledged > 50
    assert writer.failed == 0
    assert sim.problems == []
    assert sim.marks["controller-elected"] == 1
    assert sim.marks.keys() <= {"controller-elected", "error-not-controller"}
    assert all(node.serves for node in sim.nodes.values())
    assert sim.leaderless() == 0
    ends = {
        tuple(
            (each.topic, each.partition_id, each.log.log_end_offset)
            for each in node.broker.replicas.hosted()
            if each.log is not None
        )
        for node in sim.nodes.values()
        if node.broker is not None
    }
    assert len(ends) == 1, "all brokers hold the same"


@pytest.mark.forms(1)
@pytest.mark.parametrize("seed", [3, 5])
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    sim, writer = history(seed, Faults.ROUGH)
    assert sim.marks.total() > 3
    again = sim.again()
    other = Writer(again)
    again.run(ms=RUN_MS)
    assert (again.digest, other.acknowledged) == (sim.digest, writer.acknowledged)
    assert again.marks == sim.marks
    assert history(seed + 1, Faults.ROUGH)[0].digest != sim.digest


def test_the_hash_seed_of_python_changes_nothing() -> None:
    command = (
        "from ottla.testing.sim import Faults\n"
        "from tests.unit.testing.sim.test_sim import history\n"
        "print(history(2, Faults.ROUGH, 12_000)[0].digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "77")
    }
    assert len(digests) == 1


def test_a_missing_condition_raises_with_the_seed() -> None:
    with pytest.raises(NoProgress, match="seed 9"), Sim(9) as sim:
        sim.run_until(lambda: False, limit_ms=50)
