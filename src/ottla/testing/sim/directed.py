"""Puts the directed faults of a history together: which there are, and how often."""

from random import Random
from typing import TYPE_CHECKING

from ottla.testing.sim.directed_faults import NO_RATES, DirectedFaults, DirectedRates
from ottla.testing.sim.directed_scripts import AlterPartitionFaults, ShortLeaderships, SyncErrors
from ottla.testing.sim.faults import Faults
from ottla.testing.sim.late_requests import LateRequests

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

__all__ = ["DirectedFaults", "directed_faults", "directed_tuning"]


def directed_tuning(random: Random, faults: Faults) -> dict[str, str]:
    """Return the properties that a seed draws: checkpoints that are young at a loss of power."""
    if not faults.directed:
        return {}
    drawn = {
        "log.flush.offset.checkpoint.interval.ms": random.choice((500, 4_000, 60_000)),
        "log.flush.start.offset.checkpoint.interval.ms": random.choice((500, 4_000, 60_000)),
    }
    return {name: str(value) for name, value in drawn.items()}


def directed_faults(sim: "Sim", random: Random) -> DirectedFaults:
    """Return what strikes in a history, with rates that its seed draws; nothing where not asked."""
    rates = DirectedRates().mix(random) if sim.faults.directed else NO_RATES
    faults = DirectedFaults(sim, random, rates)
    if rates.short_leaderships:
        faults.parts.append(ShortLeaderships(faults))
    if rates.sync_errors:
        faults.parts.append(SyncErrors(faults))
    if rates.alter_partition:
        faults.parts.append(AlterPartitionFaults(faults))
    if rates.late:
        faults.parts.append(LateRequests(faults))
    return faults
