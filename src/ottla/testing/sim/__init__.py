"""Whole clusters in one process and in virtual time. See `ottla.testing.sim.sim`."""

from ottla.testing.sim.faults import Faults
from ottla.testing.sim.sim import NoProgress, Sim, SimClientPort

__all__ = ["Faults", "NoProgress", "Sim", "SimClientPort"]
