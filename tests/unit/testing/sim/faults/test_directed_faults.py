"""Each directed fault comes on its event, within the bound, and is decided by the seed alone.

Method: small clusters with one kind of fault at its full chance; the marks say what was done.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from random import Random

import pytest

from ottla.testing.history.topics import Promise
from ottla.testing.scenarios import Dialogue, Scenario, Story, TopicSpec
from ottla.testing.scenarios.runner import Run
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.faults.checkpoint_faults import CheckpointFaults
from ottla.testing.sim.faults.directed_faults import NO_RATES, DirectedFaults, DirectedRates, Part
from ottla.testing.sim.faults.directed_quorum import (
    QuorumCommits,
    QuorumLeaderships,
    SplitVotes,
)
from ottla.testing.sim.faults.directed_scripts import (
    AlterPartitionFaults,
    ShortLeaderships,
    SyncErrors,
)
from ottla.testing.sim.faults.fault_injector import FaultInjector
from ottla.testing.sim.faults.late_requests import LateRequests
from ottla.testing.sim.zookeeper.zookeeper_mode import FLUSHED

pytestmark = pytest.mark.drawn(6)

ORDERS = TopicSpec(
    name="orders",
    partitions=2,
    replication_factor=3,
    configs={"min.insync.replicas": "2", "segment.ms": "3000"},
)

CLEANED = TopicSpec(
    name="cleaned",
    replication_factor=3,
    configs={
        "min.insync.replicas": "2",
        "segment.ms": "1000",
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        "retention.bytes": "3000",
    },
    promise=Promise(compacted=True, trimmed=True),
)

HASTY = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "700",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "1500",
    "metadata.log.max.record.bytes.between.snapshots": "600",
}


OFTEN = {"log.retention.check.interval.ms": "1000", "log.cleaner.backoff.ms": "500"}


def orders_are_written(story: Story) -> Dialogue[None]:
    yield from story.create(ORDERS)
    story.produce(ORDERS, clients=2, interval_ms=80)


def keys_are_written(story: Story) -> Dialogue[None]:
    yield from story.create(CLEANED)
    story.produce(CLEANED, clients=2, interval_ms=80, keys=5)


def played(
    rates: DirectedRates,
    *parts: Callable[[DirectedFaults], Part],
    seed: int = 1,
    faults: Faults = Faults.NONE,
    combined: bool = False,
    zookeeper: bool = False,
    cleaned: bool = False,
    checkpoints: bool = False,
) -> Run:
    """Play fifteen seconds of a cluster with these directed faults."""
    config = {"zookeeper.session.timeout.ms": "3000"} if zookeeper else HASTY | OFTEN
    if checkpoints:
        config = config | {"log.flush.offset.checkpoint.interval.ms": "500"}
    scenario = Scenario(
        name="directed",
        story=keys_are_written if cleaned else orders_are_written,
        combined=combined,
        faults=faults,
        config=config,
        seconds=15,
        zookeeper=zookeeper,
    )
    run = Run(seed, scenario)
    directed = run.sim.directed
    directed.rates = rates
    directed.parts[:] = [part(directed) for part in parts]
    run.rough()
    run.calm()
    return run


SEEDS = (1, 2, 3, 4)
SHOWN_BY = {"election": 3}
"""Seeds that are played first, since they showed it when this was written."""
KINDS = (
    "roll",
    "vote",
    "snapshot",
    "registration",
    "directory",
    "start",
    "election",
    "acknowledged",
    "committed",
    "removal",
    "swap",
)


@pytest.mark.forms(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_follows_its_event(kind: str) -> None:
    cleaned = kind in ("removal", "swap")
    without = cleaned or kind in ("roll", "snapshot")
    crashes = Faults.NONE if without else Faults(crashes=20.0)
    wanted = {f"directed-{kind}", f"directed-{kind}-apart"}
    for seed in (SHOWN_BY.get(kind, 1), *SEEDS):  # The node may have crashed before the event.
        rates = replace(NO_RATES, **{kind: 1.0})
        run = played(rates, seed=seed, faults=crashes, cleaned=cleaned)
        assert run.report().is_kept, "\n".join(run.report().lines(full=True))
        marks = {name for name, times in run.sim.marks.items() if times}
        if wanted & marks:
            assert {"power-lost", "crashed"} & marks
            return
    raise AssertionError(f"none of the seeds {SEEDS} shows it")


def test_all_controllers_lose_their_power_at_once() -> None:
    run = played(replace(NO_RATES, quorum_power=20.0))
    marks = run.sim.marks
    assert marks["directed-quorum-power"] > 0
    assert marks["power-lost"] > 2 * marks["directed-quorum-power"]
    assert run.report().is_kept


def test_controllers_that_are_brokers_do_not() -> None:
    run = played(replace(NO_RATES, quorum_power=20.0), combined=True)
    assert run.sim.marks["directed-quorum-power"] == 0


@pytest.mark.forms(1)
@pytest.mark.parametrize(
    ("kind", "part", "marks"),
    [
        ("split_votes", SplitVotes, ("split-vote", "split-vote-lost")),
        ("quorum_commits", QuorumCommits, ("quorum-commit-struck", "power-lost")),
        (
            "quorum_leaderships",
            lambda directed: QuorumLeaderships(directed, Random(1), 12.0),
            ("directed-quorum-leaderships", "metadata-truncated"),
        ),
    ],
)
def test_quorum_scripts_run(
    kind: str, part: Callable[[DirectedFaults], Part], marks: tuple[str, ...]
) -> None:
    run = played(replace(NO_RATES, **{kind: 12.0}), part)
    for mark in marks:
        assert run.sim.marks[mark] > 0
    assert run.sim.marks["controller-elected"] > 1
    assert run.report().is_kept, "\n".join(run.report().lines(full=True))


def test_short_leaderships_of_the_quorum_leave_no_links_cut() -> None:
    sim = Sim(1)
    directed = DirectedFaults(sim, Random(1), NO_RATES)
    part = QuorumLeaderships(directed, Random(1), 12.0)
    directed.parts.append(part)
    directed.begin(FaultInjector(sim, Faults.NONE, Random(1)))
    voters = {each.id for each in sim.nodes.values() if each.is_controller}
    cut = []
    for _ in range(300):
        sim.run(ms=100)
        cut.append(set(sim.net.cut))
    assert sim.marks["directed-quorum-leaderships"] > 1
    assert set() in cut[cut.index(next(filter(None, cut))) :], "a run of the script ends"
    for links in filter(None, cut):
        assert {place for link in links for place in link} == voters
        (alone,) = set.intersection(*map(set, links))  # Two voters reach each other.
        assert links == {
            link for each in voters - {alone} for link in ((alone, each), (each, alone))
        }


def test_the_draws_for_the_quorum_leaderships_change_no_other_rate() -> None:
    rates = [DirectedRates().mix(Random(7), Random(own)) for own in range(40)]
    others = {replace(each, quorum_leaderships=0.0) for each in rates}
    assert len(others) == 1
    assert {each.quorum_leaderships for each in rates} == {0.0, 0.5, 2.0}


def test_leaders_crash_one_after_the_other() -> None:
    run = played(replace(NO_RATES, short_leaderships=20.0), ShortLeaderships)
    assert run.sim.marks["short-leadership"] > 2
    assert run.history.leader_changes() > 2
    assert run.report().is_kept


def test_alter_partition_is_disturbed() -> None:
    run = played(
        replace(NO_RATES, alter_partition=1.0), AlterPartitionFaults, faults=Faults(crashes=30.0)
    )
    assert run.sim.marks["alter-partition-troubled"] > 0
    assert run.report().is_kept


@pytest.mark.parametrize("zookeeper", [False, True])
def test_requests_arrive_late(zookeeper: bool) -> None:
    faults = Faults(crashes=10.0)
    run = played(replace(NO_RATES, late=1.0), LateRequests, faults=faults, zookeeper=zookeeper)
    assert run.sim.marks["request-late"] > 0


def test_a_failed_sync_takes_a_directory_and_comes_back() -> None:
    run = played(replace(NO_RATES, sync_errors=20.0), SyncErrors)
    assert run.sim.marks["sync-failed"] > 0
    assert run.report().is_kept


@pytest.mark.parametrize("zookeeper", [False, True])
def test_power_goes_after_a_checkpoint_within_a_slow_flush(zookeeper: bool) -> None:
    """Over ZooKeeper it never goes, where logs are flushed in the background."""
    run = played(
        NO_RATES,
        lambda directed: CheckpointFaults(directed, Random(1), 1.0),
        zookeeper=zookeeper,
        checkpoints=True,
    )
    marks = run.sim.marks
    assert marks["directed-checkpoint"] == marks["power-lost"]
    assert (marks["power-lost"] > 0) is not zookeeper
    assert run.report().is_kept


def test_jobs_are_split() -> None:
    run = played(replace(NO_RATES, split=1.0))
    assert run.report().is_kept


def test_brokers_lose_power_within_the_bound_only() -> None:
    """At no time are two brokers without what they had, with min.insync.replicas=2."""
    run = played(replace(NO_RATES, roll=1.0, registration=1.0), faults=Faults.NONE)
    assert run.sim.marks["power-lost"] > 1
    assert run.report().is_kept


def test_over_zookeeper_power_goes_only_where_all_is_flushed() -> None:
    flushed = {seed: Sim(seed, zookeeper=True, faults=Faults.ROUGH) for seed in range(12)}
    name, value = next(iter(FLUSHED.items()))
    with_power = {seed for seed, sim in flushed.items() if sim.directed.takes_power}
    assert 0 < len(with_power) < 12
    for seed, sim in flushed.items():
        assert (sim.properties[0].get(name) == value) is (seed in with_power)
        assert seed in with_power or sim.faults.power == 0


def test_the_seed_draws_rates_of_which_some_are_off() -> None:
    drawn = [Sim(seed, faults=Faults.ROUGH).directed.rates for seed in range(20)]
    for each in fields(DirectedRates):
        values = {getattr(rates, each.name) for rates in drawn}
        assert 0.0 in values
        assert len(values) > 1


def test_without_directed_faults_there_are_none() -> None:
    assert Sim(1, faults=Faults(crashes=1.0)).directed.rates == NO_RATES
