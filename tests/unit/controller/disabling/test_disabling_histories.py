"""Goal: in any order of events a topic that becomes DISABLED is that on all brokers, and it ends.

Method: random histories of brokers that die, restart and learn late, leaders that move, answers
that are lost, controllers that die between their writes, and operators who turn remote storage on
and off. After each change the harness checks what a topic that becomes DISABLED promises; once
all is healed, every topic is DISABLED. Broken variants of the rules must be detected.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.controller.disabling import acknowledgements, disabling_manager
from ottla.metadata.tiering import TieringState
from tests.unit.controller.disabling_harness import ENABLE, MODES, POLICY, DisablingHarness

SEEDS = 60
STEPS = 80
FINISHED_MIN = 30
"""Disablements that end in all seeds together before they are healed: else they show little."""


def broker_moves(cluster: DisablingHarness) -> Iterator[Callable[[], object]]:
    for each, machine in cluster.machines.items():
        if machine.epoch is None:
            yield lambda b=each: cluster.start(b)
            continue
        yield lambda b=each: cluster.learn(b)
        yield lambda b=each: cluster.learn(b)
        if sum(map(cluster._runs, cluster.machines)) > 1:
            yield lambda b=each: cluster.stop(b)
        yield lambda b=each: cluster.start(b)  # Before the cluster has seen that it died.
        if machine.queue:
            for answer in (True, True, True, False):
                yield lambda b=each, a=answer: cluster.carry_out(b, answer=a)


def controller_moves(cluster: DisablingHarness) -> Iterator[Callable[[], object]]:
    yield cluster.elect
    yield lambda: cluster.wait(700)
    if cluster.work is not None:
        yield cluster.decide
        yield cluster.decide
        yield lambda: cluster.decide(dies=True)
        yield lambda: cluster.decide(refused=True)


def topic_moves(cluster: DisablingHarness, dice: Random) -> Iterator[Callable[[], object]]:
    for name in ("t", "u"):
        partition = cluster.partition(name)
        live = [each for each in partition.replicas if cluster._runs(each)]
        if live and partition.leader != NO_LEADER:
            yield lambda n=name, b=dice.choice(live): cluster.lead(b, n)
        values = {POLICY: dice.choice(("retain", "delete")), ENABLE: dice.choice(("true", "false"))}
        named = {key.replace(".", "_"): value for key, value in values.items()}
        yield lambda n=name, v=named: cluster.configure(n, **v)
        yield lambda n=name, r=tuple(dice.sample(range(1, 4), 2)): cluster.reassign(r, n)


def play(seed: int) -> DisablingHarness:
    dice = Random(seed)
    cluster = DisablingHarness(MODES["kraft" if seed % 2 else "zookeeper"])
    cluster.create("t")
    cluster.create("u", {0: (2, 3)})
    for _ in range(STEPS):
        if cluster.work is not None and not cluster.is_active:
            cluster.elect()
        moves = [
            *broker_moves(cluster),
            *controller_moves(cluster),
            *topic_moves(cluster, dice),
        ]
        dice.choice(moves)()
    return cluster


def test_what_is_disabled_is_so_on_all_brokers_and_every_disablement_ends() -> None:
    finished = 0
    for seed in range(SEEDS):
        cluster = play(seed)
        finished += cluster.finished
        cluster.heal()
        assert not cluster.wrongs, f"seed {seed}"
        for tiering in cluster.image.tiering.values():
            assert tiering.state is not TieringState.DISABLING, f"seed {seed}"
        assert not any(machine.queue for machine in cluster.machines.values())
    assert finished > FINISHED_MIN


class AnyLeaderEpoch(acknowledgements.Acknowledgement):
    """Broken: counts in any leader epoch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and (self[0], self[2]) == (other[0], other[2])

    __hash__ = None  # type: ignore[assignment]


class AnyRegistration(acknowledgements.Acknowledgement):
    """Broken: counts under any registration, for any role."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple)

    __hash__ = None  # type: ignore[assignment]


def counts_all_answers(
    manager: disabling_manager.DisablingManager,
    broker_id: int,
    broker_epoch: int,
    replica: disabling_manager.DisabledReplica,
    result: disabling_manager.Result,
) -> Error:
    """Broken: an answer is an acknowledgement, whatever it says."""
    tiering = acknowledgements.disabling_state(manager._image, replica.topic_id)
    if tiering is not None:
        topic = manager._image.topics.by_id(replica.topic_id)
        assert topic is not None
        is_leader = topic.partitions[replica.partition].leader == broker_id
        complied = acknowledgements.Acknowledgement(broker_epoch, replica.leader_epoch, is_leader)
        manager._acknowledgements.add(tiering, (replica.partition, broker_id), complied)
    return Error.NONE


def wrongs() -> Iterator[str]:
    return (wrong for seed in range(SEEDS) for wrong in play(seed).wrongs)


@pytest.mark.parametrize("broken", [AnyLeaderEpoch, AnyRegistration])
def test_an_acknowledgement_of_another_epoch_is_detected(
    broken: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disabling_manager, "Acknowledgement", broken)
    assert any(wrongs())


def test_an_answer_that_is_no_acknowledgement_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disabling_manager.DisablingManager, "_judge", counts_all_answers)
    assert any("still copies" in each for each in wrongs())


def test_a_partition_without_a_leader_that_is_not_waited_for_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = acknowledgements.missing

    def without(*given: object) -> Iterator[acknowledgements.Missing]:
        for each in real(*given):  # type: ignore[arg-type]
            if each.reason is not acknowledgements.Reason.NO_LEADER:
                yield each

    monkeypatch.setattr(acknowledgements, "missing", without)
    monkeypatch.setattr(disabling_manager, "missing", without)
    assert any("has no leader" in each for each in wrongs())
