"""Draws the directed faults of a history, and their rates."""

from random import Random

from ottla.testing.sim.faults.checkpoint_faults import CheckpointFaults
from ottla.testing.sim.faults.directed_faults import NO_RATES, DirectedFaults, DirectedRates
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
from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.faults.late_requests import LateRequests
from ottla.testing.sim.faults.tier_faults import CHANCES as TIER_CHANCES
from ottla.testing.sim.faults.tier_faults import TierFaults
from ottla.testing.sim.ports import SimulatedCluster

REMOTE_STORAGE = "remote.log.storage.system.enable"
SLOW_FLUSH_CHANCES = (0.0, 0.05, 0.3)

__all__ = ["DirectedFaults", "directed_faults", "directed_tuning"]


def directed_tuning(random: Random, faults: Faults, *, zookeeper: bool = False) -> dict[str, str]:
    """Return the properties that a seed draws, such as checkpoint intervals.

    Frequent flushes keep recovery points near the log ends, so that truncations go below them; a
    short metadata log makes lagging nodes fetch snapshots.
    """
    if not faults.directed:
        return {}
    drawn = {
        "log.flush.offset.checkpoint.interval.ms": random.choice((500, 4_000, 60_000)),
        "log.flush.start.offset.checkpoint.interval.ms": random.choice((500, 4_000, 60_000)),
    }
    if random.random() < 0.4:
        interval_ms = random.choice((200, 1_500))
        drawn["log.flush.interval.ms"] = drawn["log.flush.scheduler.interval.ms"] = interval_ms
    if random.random() < 0.4 and not zookeeper:
        drawn["metadata.max.retention.bytes"] = 6_000
        drawn["metadata.log.segment.min.bytes"] = 1_000
        drawn["metadata.log.segment.bytes"] = random.choice((1_500, 5_000))
        drawn["metadata.log.max.record.bytes.between.snapshots"] = random.choice((1_500, 6_000))
    return {name: str(value) for name, value in drawn.items()}


def directed_faults(sim: SimulatedCluster, random: Random) -> DirectedFaults:
    """Return the directed faults of a history, with rates that its seed draws, if it has any."""
    leaderships = Random(f"{sim.seed}/quorum leaderships")
    rates = DirectedRates().mix(random, leaderships) if sim.faults.directed else NO_RATES
    faults = DirectedFaults(sim, random, rates)
    if rates.short_leaderships:
        faults.parts.append(ShortLeaderships(faults))
    if rates.sync_errors:
        faults.parts.append(SyncErrors(faults))
    if rates.alter_partition:
        faults.parts.append(AlterPartitionFaults(faults))
    if sim.zookeeper is None and rates.split_votes:
        faults.parts.append(SplitVotes(faults))
    if sim.zookeeper is None and rates.quorum_commits:
        faults.parts.append(QuorumCommits(faults))
    if sim.zookeeper is None and rates.quorum_leaderships:
        part = QuorumLeaderships(faults, leaderships, rates.quorum_leaderships)
        faults.parts.append(part)
    if rates.late:
        faults.parts.append(LateRequests(faults))
    if sim.faults.directed:
        own = Random(f"{sim.seed}/checkpoint faults")
        chance = own.choice(SLOW_FLUSH_CHANCES)
        if chance:
            faults.parts.append(CheckpointFaults(faults, own, chance))
    if sim.faults.directed and sim.properties[-1].get(REMOTE_STORAGE) == "true":
        own = Random(f"{sim.seed}/tier faults")
        chance = own.choice(TIER_CHANCES)
        if chance:
            faults.parts.append(TierFaults(faults, own, chance))
    return faults
