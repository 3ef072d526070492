"""A recovery point checkpoint that is written while a flush is in progress, then a loss of power.

The checkpoint must not count what the flush has not synced yet: the next start would take a segment
for durable that lost its end. A flush takes some milliseconds and a checkpoint is written every few
seconds, so the two hardly ever meet by chance. Here, a new segment makes the flush of the previous
one slow, and the node loses its power right after the next checkpoint of that log directory. All
draws are of a stream of their own, so that the other directed faults of a seed stay the same.
"""

from random import Random

from ottla.log.names import RECOVERY_POINTS
from ottla.testing.sim.faults.directed_faults import BACK_MS, DirectedFaults, Part
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedNode

SLOW_MS = 6_000
"""How long a slow flush takes; at a random moment of it the files are synced."""
QUIET_MS = (8_000, 30_000)
"""The time between two slow flushes."""


class CheckpointFaults(Part):
    """See the module. `chance`: that the flush of a new segment's predecessor is slow."""

    def __init__(self, faults: DirectedFaults, random: Random, chance: float) -> None:
        self._faults = faults
        self._random = random
        self._chance = chance
        self._quiet_until_us = 0
        self._slow: tuple[int, int, str] | None = None
        """The node and incarnation of the slow flush, and the log directory."""

    def disk_used(self, node: SimulatedNode, operation: str, path: str) -> None:
        """Let a flush be slow, or cut the power soon after the checkpoint that is written now."""
        if operation == "open" and path.endswith(".log"):
            if self._may_begin(node) and not node.disk.exists(path):
                self._begin(node, path)
        elif operation == "write_atomic" and path.endswith(RECOVERY_POINTS):
            incarnation = node.incarnation
            if self._slow == (node.id, incarnation, path.rpartition("/")[0]):
                self._slow = None
                # After this event: the write is done then.
                delay_us = self._random.choice((0, 1, 5)) * MS
                self._faults.later(delay_us, lambda: self._strike(node, incarnation))

    def _may_begin(self, node: SimulatedNode) -> bool:
        now_us = self._faults.sim.scheduler.now_us
        if now_us < self._quiet_until_us or self._random.random() >= self._chance:
            return False
        return self._faults.may_lose_power(node)

    def _begin(self, node: SimulatedNode, path: str) -> None:
        scheduler, random = self._faults.sim.scheduler, self._random
        self._quiet_until_us = scheduler.now_us + random.randrange(*QUIET_MS) * MS
        log_dir = path.rpartition("/")[0].rpartition("/")[0]
        slow = self._slow = (node.id, node.incarnation, log_dir)
        node.pace.next_job_us = SLOW_MS * MS

        def over() -> None:
            if self._slow is slow:
                self._slow = None

        scheduler.after(SLOW_MS * MS, over)

    def _strike(self, node: SimulatedNode, incarnation: int) -> None:
        faults = self._faults
        if not node.alive or node.paused or node.incarnation != incarnation:
            return
        if faults.fault_injector is None or not faults.may_lose_power(node):
            return
        faults.sim.mark("directed-checkpoint")
        faults.fault_injector.note_loss(node)
        node.crash(lose_unflushed=True)
        back_ms = self._random.randrange(20, self._random.choice(BACK_MS))
        faults.later(back_ms * MS, node.restart)
