"""Whole clusters in one process and in virtual time, with faults drawn from one seed.

Knows the host's ports and implements them: network, disks, clocks, ZooKeeper.
Start at `sim.py`, then `node.py` and `ports.py`; `faults` injects, `watch` observes.
"""

from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.faults.store_faults import StoreFaults
from ottla.testing.sim.sim import NoProgress, Sim, SimClientPort

__all__ = ["Faults", "NoProgress", "Sim", "SimClientPort", "StoreFaults"]
