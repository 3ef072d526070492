"""Rounds of faults on a cluster of three replicas: what is done to whom, and what it cost.

A round takes nodes away in one of twenty ways and gives them all back; the next begins as soon as
every partition takes records again, while replicas still catch up. `Scene` knows who leads at the
moment, does the damage, and measures.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ottla.testing import Cluster

from .clients import eventually
from .fault_load import Load
from .leader_watch import NOBODY, QUORUM, LeaderWatch

QUICK_SESSIONS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "4",
}
"""What differs from Kafka's defaults: a silent broker is given up after 2 s instead of 9 s. The
quorum's timeouts are the defaults."""

LONGER_THAN_A_SESSION = 2.6
LONGER_THAN_A_FETCH = 2.6
"""Of a voter, which gives its leader up after controller.quorum.fetch.timeout.ms = 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one round cost, in seconds but for `partitions`, which lost their leader."""

    name: str
    nodes: tuple[int, ...]
    partitions: int
    leaderless: float
    """The longest time in which one partition had no leader that answers."""
    controllerless: float
    unacknowledged: float
    """The longest time without an acknowledgement on one partition: what the producer sees."""
    whole: float
    """From the first fault until every partition took records again, with all nodes up."""


class Scene:
    """A cluster under load and watch. Each act is on one node, now."""

    def __init__(self, cluster: Cluster, load: Load, watch: LeaderWatch) -> None:
        self.cluster = cluster
        self.load = load
        self.watch = watch
        self._touched: list[int] = []

    # -- who -----------------------------------------------------------------------------------

    def leader(self, partition: int, besides: int = NOBODY) -> int:
        """Return who leads a partition; wait for one, another than `besides`."""
        return eventually(
            lambda: self.watch.leader(partition),
            lambda found: found not in (NOBODY, besides),
            what=f"a leader of {partition} besides {besides}",
        )

    def other_leader(self, node: int) -> int:
        """Return a broker besides `node`: one that leads, where there is any."""
        leaders = [self.leader(each) for each in range(self.load.partitions)]
        brokers = [plan.id for plan in self.cluster.brokers]
        return next(each for each in (*leaders, *brokers) if each != node)

    @property
    def controller(self) -> int:
        """Return the active controller; wait for one."""
        return self.leader(QUORUM)

    def next_controller(self, old: int) -> int:
        """Return the active controller once it is another one."""
        return self.leader(QUORUM, besides=old)

    # -- what ----------------------------------------------------------------------------------

    def kill(self, *nodes: int) -> None:
        """Kill nodes (SIGKILL) that live."""
        for node in nodes:
            if self.cluster.state(node) not in ("dead", "stopped"):
                self.cluster.kill(node)
                self._note(node, is_final=True)

    def pause(self, *nodes: int) -> None:
        """Freeze nodes (SIGSTOP)."""
        for node in nodes:
            if self.cluster.state(node) not in ("dead", "stopped", "paused"):
                self.cluster.pause(node)
                self._note(node, is_final=False)

    def resume(self, *nodes: int) -> None:
        """Let frozen nodes go on (SIGCONT)."""
        for node in nodes:
            if self.cluster.state(node) == "paused":
                self.cluster.resume(node)
                self.watch.over(node)

    def stop(self, node: int) -> None:
        """Stop a node in order (SIGTERM)."""
        self.cluster.stop(node)
        self._note(node, is_final=True)

    def start(self, *nodes: int) -> None:
        """Start nodes that died or were stopped, without waiting for them."""
        for node in nodes:
            if self.cluster.state(node) in ("dead", "stopped"):
                self.cluster.start(node)
                self.watch.over(node)

    def give_back(self) -> None:
        """Let all nodes run again."""
        for plan in self.cluster.nodes:
            self.resume(plan.id)
            self.start(plan.id)

    def wait(self, seconds: float) -> None:
        """Let a fault last: it is the fault's length, not a guess at another's progress."""
        time.sleep(seconds)

    def _note(self, node: int, *, is_final: bool) -> None:
        self.watch.fault(node, is_final=is_final)
        self._touched.append(node)

    # -- how much ------------------------------------------------------------------------------

    def run(self, act: "Act") -> Cost:
        """Run one round to its end; return what it cost."""
        self._touched = []
        begin = time.monotonic()
        act(self)
        self.give_back()
        self.load.wait_progress()
        eventually(
            lambda: self.watch.leader(QUORUM), lambda found: found != NOBODY, what="a controller"
        )
        end = time.monotonic()
        lost = [
            max(after - before for before, after in spans)
            for each in range(self.load.partitions)
            if (spans := self.watch.outages(each, begin, end))
        ]
        quorum = self.watch.outages(QUORUM, begin, end)
        return Cost(
            name=act.__name__.replace("_", " "),
            nodes=tuple(dict.fromkeys(self._touched)),
            partitions=len(lost),
            leaderless=max(lost, default=0.0),
            controllerless=max((after - before for before, after in quorum), default=0.0),
            unacknowledged=self.load.longest_gap(begin, end),
            whole=end - begin,
        )


Act = Callable[[Scene], None]


# -- the rounds --------------------------------------------------------------------------------


def leader_killed(scene: Scene) -> None:
    first = scene.leader(0)
    scene.kill(first)
    scene.leader(0, besides=first)


def controller_killed(scene: Scene) -> None:
    old = scene.controller
    scene.kill(old)
    scene.next_controller(old)


def leader_paused(scene: Scene) -> None:
    first = scene.leader(1)
    scene.pause(first)
    scene.wait(LONGER_THAN_A_SESSION)
    scene.leader(1, besides=first)


def controller_paused(scene: Scene) -> None:
    old = scene.controller
    scene.pause(old)
    scene.wait(LONGER_THAN_A_FETCH)
    scene.next_controller(old)


def leader_restarted_in_order(scene: Scene) -> None:
    scene.stop(scene.leader(2))


def leader_bounced(scene: Scene) -> None:
    """Killed and started at once: nobody notices before it is back (KAFKA-7235)."""
    first = scene.leader(0)
    scene.kill(first)
    scene.start(first)


def leader_paused_for_a_moment(scene: Scene) -> None:
    scene.pause(scene.leader(1))
    scene.wait(0.5)


def two_leaders_killed_in_a_row(scene: Scene) -> None:
    first = scene.leader(2)
    scene.kill(first)
    scene.kill(scene.leader(2, besides=first))
    scene.wait(0.5)


def next_leader_killed_while_the_first_is_paused(scene: Scene) -> None:
    first = scene.leader(0)
    scene.pause(first)
    scene.kill(scene.leader(0, besides=first))
    scene.resume(first)


def two_controllers_killed_in_a_row(scene: Scene) -> None:
    first = scene.controller
    scene.kill(first)
    second = scene.next_controller(first)
    scene.start(first)
    scene.kill(second)
    scene.next_controller(second)


def all_but_one_paused(scene: Scene) -> None:
    """Fewer than min.insync.replicas answer: nothing may be acknowledged alone."""
    scene.pause(*[plan.id for plan in scene.cluster.nodes[:2]])
    scene.wait(LONGER_THAN_A_SESSION)


def leader_killed_while_the_controller_is_paused(scene: Scene) -> None:
    old = scene.controller
    scene.pause(old)
    scene.kill(scene.other_leader(old))
    scene.wait(LONGER_THAN_A_FETCH)


def controller_killed_and_leader_paused(scene: Scene) -> None:
    old = scene.controller
    scene.kill(old)
    scene.pause(scene.other_leader(old))
    scene.start(old)
    scene.wait(1.0)


def leader_stopped_while_the_controller_is_killed(scene: Scene) -> None:
    old = scene.controller
    scene.kill(old)
    scene.stop(scene.other_leader(old))


def all_killed(scene: Scene) -> None:
    scene.kill(*[plan.id for plan in scene.cluster.nodes])


def all_paused(scene: Scene) -> None:
    """Clocks jump, and every session, lease and timeout is over at once."""
    nodes = [plan.id for plan in scene.cluster.nodes]
    scene.pause(*nodes)
    scene.wait(LONGER_THAN_A_SESSION)
    for node in nodes:
        scene.resume(node)
        scene.wait(0.2)


def each_killed_as_the_one_before_starts(scene: Scene) -> None:
    before: int | None = None
    for plan in scene.cluster.brokers:
        scene.kill(plan.id)
        if before is not None:
            scene.start(before)
        before = plan.id
        scene.wait(0.7)


def each_restarted_in_order(scene: Scene) -> None:
    for plan in scene.cluster.brokers:
        scene.stop(plan.id)
        scene.start(plan.id)


def leader_paused_resumed_and_killed(scene: Scene) -> None:
    first = scene.leader(1)
    scene.pause(first)
    scene.leader(1, besides=first)
    scene.resume(first)
    scene.kill(first)
    scene.start(first)
    scene.pause(scene.leader(1, besides=first))
    scene.wait(0.3)


def leader_and_controller_killed(scene: Scene) -> None:
    old = scene.controller
    scene.kill(old, scene.other_leader(old))
    scene.wait(1.0)


ROUNDS: tuple[Act, ...] = (
    leader_killed,
    controller_killed,
    leader_paused,
    controller_paused,
    leader_restarted_in_order,
    leader_bounced,
    leader_paused_for_a_moment,
    two_leaders_killed_in_a_row,
    next_leader_killed_while_the_first_is_paused,
    two_controllers_killed_in_a_row,
    all_but_one_paused,
    leader_killed_while_the_controller_is_paused,
    controller_killed_and_leader_paused,
    leader_stopped_while_the_controller_is_killed,
    all_killed,
    all_paused,
    each_killed_as_the_one_before_starts,
    each_restarted_in_order,
    leader_paused_resumed_and_killed,
    leader_and_controller_killed,
)


@contextmanager
def under_load(
    cluster: Cluster, topic: str, partitions: int, value_bytes: int = 0
) -> Iterator[Scene]:
    """Write to, read from and watch a topic of the cluster; check all of it at the end."""
    with (
        LeaderWatch(cluster, topic) as watch,
        Load(cluster, topic, partitions, value_bytes) as load,
    ):
        yield Scene(cluster, load, watch)
    load.check()


NAME_WIDTH = max(len(act.__name__) for act in ROUNDS)


def heading() -> str:
    """Return the line above the rows."""
    return (
        f"{'round':{NAME_WIDTH + 4}} nodes          leaders lost  no leader  no controller"
        "  no acknowledgement   in all"
    )


def row(number: int, cost: Cost) -> str:
    """Return a round as a line."""
    return (
        f"{number:2}. {cost.name:{NAME_WIDTH}} {','.join(map(str, cost.nodes)):14} "
        f"{cost.partitions:12}  {cost.leaderless:7.2f} s  {cost.controllerless:11.2f} s "
        f" {cost.unacknowledged:16.2f} s  {cost.whole:5.1f} s"
    )


def table(costs: Sequence[Cost]) -> list[str]:
    """Return the lines of a table."""
    return [heading(), *(row(number, each) for number, each in enumerate(costs, 1))]
