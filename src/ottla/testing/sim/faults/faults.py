"""The rates of faults of a simulated cluster.

A seed draws its own mix from `Faults.ROUGH`: each kind is off in some histories, seldom in others,
frequent in the rest, because some faults hide others.
"""

from dataclasses import dataclass, fields, replace
from random import Random
from typing import ClassVar

from ottla.testing.sim.net import NetFaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Rates of faults.

    Fields: chances per frame: it is `slow`, its connection goes `silent` or is `broken`, it is
            delivered `twice`. Times a minute, in the whole cluster: a node `crashes`, is `stopped`
            cleanly or `paused`, links are `cut`, a disk becomes slow (`slow_disks`) or full
            (`full_disks`), one of several log directories fails (`bad_log_dirs`), a wall clock is
            set (`jumps`). Shares: of crashes, those with a loss of `power` and those during a disk
            write (`writing`); of elections, those after which the elected node crashes at once
            (`elected`). `drift_ppm`: the largest drift of a clock; `wall_ms`: the largest error of
            a wall clock. `tuned`: timeouts and sizes are drawn, too. `swarm`: the seed draws which
            of these there are. `directed`: also the faults of `directed_faults`, with rates that
            the seed draws.
    """

    slow: float = 0.0
    silent: float = 0.0
    broken: float = 0.0
    twice: float = 0.0
    crashes: float = 0.0
    stopped: float = 0.0
    paused: float = 0.0
    cut: float = 0.0
    slow_disks: float = 0.0
    full_disks: float = 0.0
    bad_log_dirs: float = 0.0
    power: float = 0.0
    writing: float = 0.0
    elected: float = 0.0
    drift_ppm: int = 0
    wall_ms: int = 0
    jumps: float = 0.0
    tuned: bool = False
    swarm: bool = False
    directed: bool = False

    NONE: ClassVar["Faults"]
    ROUGH: ClassVar["Faults"]

    def mix(self, random: Random) -> "Faults":
        """Return the faults of one history."""
        if not self.swarm:
            return self
        drawn: dict[str, float | int] = {}
        for each in fields(self):
            most = getattr(self, each.name)
            if isinstance(most, bool):
                continue
            share = random.choice((0.0, 0.25, 1.0))
            drawn[each.name] = type(most)(most * share)
        return replace(self, **drawn, swarm=False)  # type: ignore[arg-type]

    def of_network(self) -> NetFaults:
        """Return what concerns frames."""
        return NetFaults(slow=self.slow, silent=self.silent, broken=self.broken, twice=self.twice)

    def __str__(self) -> str:
        given = (
            f"{each.name}={getattr(self, each.name):g}"
            for each in fields(self)
            if getattr(self, each.name)
        )
        return " ".join(given) or "none"


Faults.NONE = Faults()
Faults.ROUGH = Faults(
    slow=0.02,
    silent=0.001,
    broken=0.004,
    twice=0.01,
    crashes=5.0,
    stopped=2.0,
    paused=4.0,
    cut=5.0,
    slow_disks=2.0,
    full_disks=0.5,
    bad_log_dirs=0.5,
    power=0.7,
    writing=0.5,
    elected=0.15,
    drift_ppm=300,
    wall_ms=20_000,
    jumps=1.0,
    tuned=True,
    swarm=True,
    directed=True,
)
