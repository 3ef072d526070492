"""Injects the faults of a history at random times.

It keeps within the bound of the durability guarantee (DESIGN 7): fewer than min.insync.replicas
brokers lose unflushed data before the first of them is back in all its ISRs.
"""

from collections.abc import Callable, Sequence
from random import Random

from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedCluster, SimulatedNode

MINUTE_US = 60_000 * MS
NEVER = 1 << 62
"""An incarnation that does not come: the disk still refuses writes."""
HOT_CHANCE = 0.5
"""The share of faults that choose a node that leads something."""


class FaultInjector:
    """Injects the faults of a history, until `stop`."""

    def __init__(self, sim: SimulatedCluster, faults: Faults, random: Random) -> None:
        self._sim = sim
        self._random = random
        self._stopped = False
        self.faults = faults
        self._lost: dict[int, int] = {}
        """Brokers that lost unflushed data; the incarnation in which they may have recovered."""
        self.failed_disks: set[int] = set()
        """Brokers whose disks were to refuse operations."""
        kinds: tuple[tuple[float, Callable[[], None]], ...] = (
            (faults.crashes, self._crash),
            (faults.stopped, self._stop),
            (faults.paused, self._pause),
            (faults.cut, self._cut),
            (faults.slow_disks, self._slow_disk),
            (faults.full_disks, self._full_disk),
            (faults.bad_log_dirs, self._fail_log_dir),
            (faults.jumps, self._jump),
        )
        for rate, act in kinds:
            if rate:
                self._again(rate, act)

    def stop(self) -> None:
        """Inject no further faults."""
        self._stopped = True

    def _again(self, rate: float, act: Callable[[], None]) -> None:
        def strike() -> None:
            if not self._stopped:
                act()
                self._again(rate, act)

        self._sim.scheduler.after(int(self._random.expovariate(rate) * MINUTE_US), strike)

    def _later(self, least_ms: int, most_ms: int, act: Callable[[], None]) -> None:
        def unless_healed() -> None:
            if not self._stopped:
                act()

        self._sim.scheduler.after(self._random.randrange(least_ms, most_ms) * MS, unless_healed)

    # -- targets -------------------------------------------------------------------------------

    def _victim(self) -> SimulatedNode | None:
        """Return a running node; often one that leads the quorum or a partition."""
        sim, random = self._sim, self._random
        running = [node for node in sim.nodes.values() if node.alive and not node.paused]
        if not running:
            return None
        leaders = [node for node in running if node.leads]
        if leaders and random.random() < HOT_CHANCE:
            return random.choice(leaders)
        return random.choice(running)

    # -- faults --------------------------------------------------------------------------------

    def _crash(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.crash(victim)

    def crash(self, victim: SimulatedNode) -> None:
        """Crash a node and restart it; with a loss of power where the bound allows it."""
        self._kill(victim, loses=self._random.random() < self.faults.power)

    def strike(self, victim: SimulatedNode, way: str) -> None:
        """Inject "crash", "power", "stop" or "pause" into a node; it comes back."""
        match way:
            case "stop":
                victim.stop(back_after_ms=self._random.randrange(20, 8_000))
            case "pause":
                victim.pause()
                self._later(100, self._random.choice((1_000, 6_000)), victim.resume)
            case _:
                loses = way == "power" and self._sim.zookeeper is None
                self._kill(victim, loses=loses, away_ms=(400, 4_000))

    def _kill(
        self, victim: SimulatedNode, *, loses: bool, away_ms: Sequence[int] = (400, 4_000, 15_000)
    ) -> None:
        loses = loses and self.may_lose_power(victim)
        if loses:
            self.note_loss(victim)

        def back() -> None:
            self._later(20, self._random.choice(away_ms), victim.restart)

        if self._random.random() < self.faults.writing:
            operations = self._random.choice((1, 3, 10, 30))
            victim.crash_within(operations, lose_unflushed=loses, then=back)
        else:
            victim.crash(lose_unflushed=loses)
            back()

    def note_loss(self, victim: SimulatedNode) -> None:
        """Record that a broker loses unflushed data now."""
        if victim.is_broker:
            self._lost[victim.id] = victim.incarnation + 1

    def may_lose_power(self, victim: SimulatedNode) -> bool:
        """Tell whether the durability guarantee holds if this node loses unflushed data."""
        if not victim.is_broker:
            return True  # A controller flushes what it acknowledges.
        sim = self._sim
        self._lost = {
            node_id: incarnation
            for node_id, incarnation in self._lost.items()
            if not sim.is_whole(node_id, since_incarnation=incarnation)
        }
        return len({*self._lost, victim.id}) < sim.min_insync_replicas

    def may_refuse_writes(self, node: SimulatedNode) -> bool:
        """Tell whether a disk may fail; if so, its broker counts as one that lost data meanwhile.

        After a refused write the unflushed data of a log directory is not trusted: the broker is
        not an eligible leader replica any more, as after a loss of power.
        """
        if not self.may_lose_power(node):
            return False
        if node.is_broker:
            self._lost[node.id] = NEVER
            self.failed_disks.add(node.id)
        return True

    def writes_again(self, node: SimulatedNode) -> None:
        """Record that a disk accepts writes again; its broker counts as one that lost data."""
        if self._lost.get(node.id) == NEVER:
            self._lost[node.id] = node.incarnation

    def elected(self, node_id: int) -> None:
        """Perhaps crash a node that has just become leader or controller."""
        if self._stopped or self._random.random() >= self.faults.elected:
            return
        node = self._sim.nodes[node_id]

        def strike() -> None:
            if node.alive and not node.paused and not self._stopped:
                self._sim.mark("crash-after-election")
                self.crash(node)

        self._sim.scheduler.after(self._random.randrange(20 * MS), strike)

    def _stop(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.stop(back_after_ms=self._random.randrange(20, 8_000))

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.pause()
            self._later(100, self._random.choice((1_000, 6_000, 20_000)), victim.resume)

    def _cut(self) -> None:
        """Cut one place off from some others, in one direction or both."""
        sim, random = self._sim, self._random
        victim = random.choice(list(sim.nodes))
        others = [place for place in sim.places if place != victim and random.random() < 0.7]
        ways = random.choice(((0,), (1,), (0, 1)))
        links = {((victim, each), (each, victim))[way] for each in others for way in ways}
        sim.mark("cut-one-way" if len(ways) == 1 else "cut-both-ways")
        sim.net.cut |= links
        # Links come back one by one, in another order than they went.
        for link in sorted(links, key=lambda _: random.random()):
            self._later(100, 9_000, lambda link=link: sim.net.cut.discard(link))  # type: ignore[misc]

    def _slow_disk(self) -> None:
        node = self._random.choice(list(self._sim.nodes.values()))
        self._sim.mark("disk-slow")
        node.pace.slowest_us = self._random.choice((80, 400, 2_000)) * MS

        def well() -> None:
            node.pace.slowest_us = 4 * MS

        self._later(500, 12_000, well)

    def _full_disk(self) -> None:
        node = self._random.choice(list(self._sim.nodes.values()))
        if not self.may_refuse_writes(node):
            return
        self._sim.mark("disk-full")
        node.disk.capacity = node.disk.used_bytes() + self._random.randrange(20_000)

        def free() -> None:
            node.disk.capacity = None
            self.writes_again(node)

        self._later(500, 15_000, free)

    def _fail_log_dir(self) -> None:
        """Let a log directory fail; a broker uses it again only after a restart."""
        random = self._random
        several = [node for node in self._sim.nodes.values() if len(node.config.log_dirs) > 1]
        if not several:
            return
        node = random.choice(several)
        if not self.may_refuse_writes(node):
            return
        self._sim.mark("log-dir-bad")
        fault = node.disk.fail(path=f"{random.choice(node.config.log_dirs)}/", times=None)

        def mended() -> None:
            if fault in node.disk.faults:
                node.disk.faults.remove(fault)
            self.writes_again(node)
            node.stop(back_after_ms=random.randrange(20, 2_000))

        self._later(1_000, 15_000, mended)

    def _jump(self) -> None:
        """Set a node's wall clock."""
        node = self._random.choice(list(self._sim.nodes.values()))
        self._sim.mark("clock-set")
        node.clock.wall_offset_ms = self._random.randint(-self.faults.wall_ms, self.faults.wall_ms)
