"""Plays scenarios: a time of faults, healing, settling, and the verdict on the whole history.

Safety is checked over the whole history, liveness only after healing: then each client of a topic
that is not deleted must be served, and all replicas must settle and agree (see `settling`).
"""

import gc
import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial

from ottla.metadata.features import ledger_enabled
from ottla.testing.checkers.verdict import judge
from ottla.testing.history.history import History, Progress
from ottla.testing.history.topics import KEEPS_ALL, Outcome
from ottla.testing.scenarios.groups import figures_of
from ottla.testing.scenarios.loading import load_scenario
from ottla.testing.scenarios.log_files import read_replica_logs
from ottla.testing.scenarios.offsets_logs import read_offsets_logs
from ottla.testing.scenarios.processes import in_processes
from ottla.testing.scenarios.recorder import Recorder
from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.scenario import Scenario, Story
from ottla.testing.scenarios.settling import read_logs, unsettled
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.scenarios.tier_logs import TierLogs
from ottla.testing.scenarios.watches.coordinator_watch import CoordinatorWatch
from ottla.testing.scenarios.watches.durability_watch import DurabilityWatch
from ottla.testing.scenarios.watches.node_watch import NodeWatch
from ottla.testing.scenarios.watches.quorum_fetch_watch import QuorumFetchWatch
from ottla.testing.scenarios.watches.request_watch import RequestWatch
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.shared_decoding import decoded_once
from ottla.testing.sim.watch.answer_watch import AnswerWatch
from ottla.testing.sim.watch.deletions import deletions_left, is_purging, partition_dirs_left
from ottla.testing.sim.watch.log_watch import LogWatch
from ottla.testing.sim.watch.tier_watch import TierWatch
from ottla.testing.sim.watch.tiering_watch import TieringWatch
from ottla.testing.sim_clients import Backfiller, Producer, TransactionWriter

REST = "rest: all replicas in sync and equal"
WRITES = "writes to "
"""How a story calls what its producers must achieve after healing."""
LOOK_MS = 500
REMOVAL_MS = 5_000
"""How long after `log.segment.delete.delay.ms` a deleted directory may take to be removed."""
PURGE_MS = 600_000
"""How long the purge of a deleted topic's objects may take: it waits until nothing that was sent to
the store can be executed any more, which a copy of another leader may take four minutes for."""
REPEATED_MARK = "request-twice"
UNCLEAN = "unclean.leader.election.enable"

TRACKED_MAX = 5_000_000
"""New objects until a garbage collection, some 500 MB."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """What to play with each seed. `file` None = a scenario that the seed draws.

    `zookeeper`: over ZooKeeper, whatever the scenario says.
    """

    file: str | None = None
    seconds: float | None = None
    zookeeper: bool = False


def play_all(seeds: Iterable[int], options: PlayOptions, *, workers: int = 1) -> Iterator[Report]:
    """Play seeds, in as many processes; yield the reports in the order of the seeds."""
    if workers == 1:
        for seed in seeds:
            yield play(seed, options)
        return
    yield from in_processes(partial(play, options=options), seeds, workers=workers)


def play(seed: int, options: PlayOptions) -> Report:
    """Play one seed."""
    scenario = load_scenario(options.file) or draw_scenario(seed)
    if options.zookeeper:
        scenario = replace(scenario, zookeeper=True)
    if options.seconds is not None:
        scenario = replace(scenario, seconds=options.seconds)
    report = play_scenario(seed, scenario)
    return replace(report, file=options.file, seconds=options.seconds, zookeeper=options.zookeeper)


def play_scenario(seed: int, scenario: Scenario) -> Report:
    """Play a scenario with a seed."""
    with _few_collections(), decoded_once():
        return _play_scenario(seed, scenario)


def _play_scenario(seed: int, scenario: Scenario) -> Report:
    run = Run(seed, scenario)
    try:
        run.rough()
        run.calm()
    except Exception as error:
        # Errors of nodes are witnesses. This one is of the story, a client or the simulator.
        error.add_note(f"seed {seed}, at {run.story.now_ms} ms of scenario {scenario.name!r}")
        raise
    return run.report()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage after a history, and hardly ever during it.

    Most objects of a history live to its end; collecting over them would take a tenth of the time.
    By the end of this block the history must be garbage: else it is examined once in vain. What was
    there before, modules and their functions, is not examined.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(TRACKED_MAX)
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        gc.set_threshold(*thresholds)


class Run:
    """One scenario under one seed, step by step."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.seed = seed
        self.scenario = scenario
        self.history = History()
        self._began = time.perf_counter()
        self.sim = Sim(
            seed,
            brokers=scenario.brokers,
            controllers=scenario.controllers,
            combined=scenario.combined,
            zookeeper=scenario.zookeeper,
            faults=scenario.faults,
            store_faults=scenario.store_faults,
            config=dict(scenario.config),
        )
        unclean = scenario.config.get(UNCLEAN) == "true"
        recorder = Recorder(self.history, unclean=unclean, zookeeper=scenario.zookeeper)
        self.sim.observe(recorder.observe)
        self._nodes = NodeWatch(self.sim, self.history)
        RequestWatch(self.sim, self.history)
        QuorumFetchWatch(self.sim, self.history)
        CoordinatorWatch(self.sim, self.history)
        log_watch = LogWatch(self.sim, self.history.log_events.append)
        DurabilityWatch(self.sim, self.history, log_watch)
        tier_watch = TierWatch(self.sim, self.history.tiers.events.append, log_watch)
        self._tiers = TierLogs(self.sim, tier_watch)
        self._tier_watch = tier_watch
        self._tiering = TieringWatch(self.sim, self.history.tiers, tier_watch)
        self._answers = AnswerWatch(self.sim.net, self.history.requests_held.append)
        self.story = Story(self.sim, self.history)
        self._story_end = self.story.run(scenario.story(self.story))
        self.rough_ms = 0
        self._alive: set[str] = set()
        self._progress_seen = 0
        """What has made progress after healing, in the first so many entries of the history."""

    def rough(self) -> None:
        """Run the story under faults."""
        limit_ms = round(self.scenario.seconds * 1000)
        if self.scenario.ends_with_story:
            self._until(lambda: self._story_end.done, limit_ms)
        else:
            self.sim.run(ms=limit_ms)
        self.rough_ms = self.story.now_ms

    def calm(self) -> None:
        """Heal the cluster, wait until all clients are served, stop them, wait for the replicas."""
        sim, story, history = self.sim, self.story, self.history
        sim.heal()
        history.healed_ms = story.now_ms
        history.expected = [*story.expected(), REST]
        limit_ms = round(self.scenario.settle_seconds * 1000)
        self._serve(limit_ms)
        story.admin.stop()
        self._until(lambda: all(each.is_done for each in self._writers), limit_ms)
        for consumer in story.consumers:
            consumer.stop()
        for reader in story.tier_readers:
            reader.stop()
        for patient_client in story.patient_clients:
            patient_client.stop()
        if (groups := story.groups) is not None:
            groups.stop()
            self._until(lambda: groups.is_done, limit_ms)
        left = self._settle(limit_ms)
        self._nodes.finish()
        self._answers.finish()
        # A request that was in flight at the healing may change a topic only now.
        left = left or self._settle(limit_ms)
        if left:
            history.expected += left
        else:
            history.progress.append(Progress(REST, story.now_ms))
        history.ended_ms = story.now_ms
        history.replica_logs = list(read_replica_logs(sim))
        history.logs = list(read_logs(sim, self._tiers.values))
        self._tiers.read_into(history)
        history.tiers.given_up = self._tier_watch.given_up
        history.tiers.disablements_left = self._tiering.disabling() + self._tiering.purging()
        history.groups.logs = list(read_offsets_logs(sim))
        history.topics = {topic.id for topic in sim.image.topics}
        history.disks_failed = sim.failed_disks
        history.requests_repeated = sim.marks[REPEATED_MARK] > 0
        for topic in sim.image.topics:
            spec = story.topics.get(topic.name)
            if spec is not None and spec.promise != KEEPS_ALL:
                history.promises[topic.id] = spec.promise
        history.errors += [(at_ms, f"{where}: {what}") for at_ms, where, what in sim.problems]

    def _serve(self, limit_ms: int) -> None:
        """Wait until all clients are served; writers stop once each partition has taken a write.

        Readers, and the commits of groups, must reach the end of a log: it would move on for ever.
        """
        end_ms = self.story.now_ms + limit_ms
        self._until(lambda: not any(each.startswith(WRITES) for each in self._missing()), limit_ms)
        for writer in self._writers:
            writer.stop()
        self._until(lambda: not self._missing(), end_ms - self.story.now_ms)

    @property
    def _writers(self) -> list[Producer | TransactionWriter | Backfiller]:
        story = self.story
        return [*story.producers, *story.transaction_writers, *story.backfillers]

    def _settle(self, limit_ms: int) -> list[str]:
        """Wait until, at one moment, the replicas have settled and no deletion is unfinished.

        Return what has not settled. What follows at once finds the cluster at rest.
        """
        history = self.history
        while True:
            began_ms = self.story.now_ms
            self._until(lambda: not self._unsettled(), limit_ms)
            left = self._unsettled()
            self._wait_for_deletions(limit_ms)
            self._until(lambda: not self._tiering.purging(), PURGE_MS)
            left = left or self._tiering.purging()
            has_failed = left or history.deletions_left or history.partition_dirs_left
            if has_failed or self.story.now_ms == began_ms:
                return left

    def _unsettled(self) -> list[str]:
        return unsettled(self.sim) or self._tiering.disabling() or self._tiers.unsettled()

    def _wait_for_deletions(self, limit_ms: int) -> None:
        """Wait until deletions have finished, and their directories are removed."""
        sim, history = self.sim, self.history
        delay_ms = max(node.config["log.segment.delete.delay.ms"] for node in sim.nodes.values())

        def unfinished() -> list[str]:
            return [*deletions_left(sim), *partition_dirs_left(sim)]

        known: set[str] = set()
        # Another deletion may have begun meanwhile.
        while not known.issuperset(left := unfinished()):
            known.update(left)
            self._until(lambda: is_purging(sim) or not deletions_left(sim), limit_ms)
            if is_purging(sim):
                self._until(lambda: not deletions_left(sim), PURGE_MS)
            self._until(lambda: not unfinished(), delay_ms + REMOVAL_MS)
        history.deletions_left = deletions_left(sim)
        history.partition_dirs_left = partition_dirs_left(sim)
        if self.scenario.zookeeper or ledger_enabled(sim.image.features):
            history.receipts = {each.topic_id for each in sim.image.deletions.receipts()}

    def _missing(self) -> set[str]:
        healed_ms = self.history.healed_ms
        assert healed_ms is not None
        fresh = self.history.progress[self._progress_seen :]
        self._progress_seen += len(fresh)
        self._alive.update(each.what for each in fresh if each.at_ms >= healed_ms)
        return set(self.story.expected()) - self._alive

    def _until(self, holds: Callable[[], bool], limit_ms: int) -> None:
        end_ms = self.story.now_ms + limit_ms
        while not holds() and self.story.now_ms < end_ms:
            self.sim.run(ms=LOOK_MS)

    def report(self) -> Report:
        """Return the verdict and the figures."""
        history, scenario, sim = self.history, self.scenario, self.sim
        judgement = judge(
            history,
            tolerated=scenario.tolerated,
            acknowledged_min=scenario.acknowledged_min,
            names=scenario.checkers,
        )
        outcomes = [write.outcome for write in history.writes]
        return Report(
            seed=self.seed,
            scenario=scenario.name,
            cluster=_cluster(scenario),
            faultless=scenario.faults == Faults.NONE,
            mix=_rates(sim),
            marks=dict(sorted(sim.marks.items())),
            virtual_ms=history.ended_ms,
            rough_ms=self.rough_ms,
            writes=len(outcomes),
            acknowledged=outcomes.count(Outcome.ACKNOWLEDGED),
            failed=outcomes.count(Outcome.FAILED),
            unknown=outcomes.count(Outcome.UNKNOWN),
            reads=len(history.reads),
            leader_changes=history.leader_changes(),
            controller_changes=history.controller_changes(),
            judgement=judgement,
            digest=_digest(sim.digest, history),
            steps=sim.scheduler.steps,
            wall_seconds=time.perf_counter() - self._began,
            groups=figures_of(history),
            refusals=tuple(f"{what}: {error.name}" for what, error in self.story.admin.refusals),
        )


def _cluster(scenario: Scenario) -> str:
    if scenario.zookeeper:
        return f"{scenario.brokers} brokers over ZooKeeper"
    if scenario.combined:
        return f"{scenario.brokers} nodes, {scenario.controllers} of them controllers, too"
    return f"{scenario.brokers} brokers, {scenario.controllers} controllers"


def _rates(sim: Sim) -> dict[str, float]:
    """Return the drawn faults by name, without those of rate 0."""
    named = {each.name: float(getattr(sim.faults, each.name)) for each in fields(sim.faults)}
    given = sim.store_faults.faults
    named |= {f"store_{each.name}": float(getattr(given, each.name)) for each in fields(given)}
    directed = sim.directed.rates
    named |= {f"directed_{each.name}": getattr(directed, each.name) for each in fields(directed)}
    if sim.zookeeper is not None:
        rates = sim.zookeeper.rates
        named |= {f"zookeeper_{each.name}": getattr(rates, each.name) for each in fields(rates)}
    return {name: rate for name, rate in named.items() if rate}


def _digest(of_sim: str, history: History) -> str:
    """Return the digest of the simulation and of the clients' results."""
    digest = hashlib.sha256(of_sim.encode())
    for write in history.writes:
        digest.update(repr((write.values, write.outcome.value, write.offset)).encode())
    digest.update(repr((len(history.reads), len(history.metadata), history.ended_ms)).encode())
    return digest.hexdigest()[:16]
