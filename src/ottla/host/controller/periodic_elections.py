"""The periodic elections of an active controller, in both modes: unclean ones, and the rebalance.

Preferred leader rebalance runs where auto.leader.rebalance.enable is set. Unclean elections are
also held at once, where they may have become possible.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.elections.elections import ElectUncleanly, elect_uncleanly
from ottla.controller.elections.leader_rebalance import balance
from ottla.controller.step import Decision
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.controller.periodic import Periodic
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


class PeriodicElections:
    """The elections of one controller, while it is started.

    `runtime` returns the runtime that decides. `first_rebalance_ms`: the delay of the first
    rebalance of an epoch; None = one interval.
    """

    def __init__(
        self,
        runtime: Callable[[], ControllerRuntime],
        config: NodeConfig,
        *,
        clock: Clock,
        timers: Timers,
        first_rebalance_ms: int | None = None,
    ) -> None:
        def periodic(
            elect: Callable[[ClusterImage, NodeConfig], Decision[bool]], interval_ms: int
        ) -> Periodic:
            return Periodic(
                lambda: runtime().run(lambda image: elect(image, config)),
                interval_ms=interval_ms,
                clock=clock,
                timers=timers,
            )

        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._first_rebalance_ms = first_rebalance_ms
        self._rebalances = bool(config["auto.leader.rebalance.enable"])
        self._unclean = periodic(elect_uncleanly, config["unclean.leader.election.interval.ms"])
        self._rebalance = periodic(
            balance, 1_000 * config["leader.imbalance.check.interval.seconds"]
        )

    def start(self) -> None:
        """Begin: this controller is active."""
        self._unclean.start()
        if not self._rebalances:
            return
        if self._first_rebalance_ms is None:
            self._rebalance.start()
        else:
            at_ms = self._clock.monotonic_ms() + self._first_rebalance_ms
            self._timer = self._timers.at(at_ms, self._begin_to_rebalance)

    def stop(self) -> None:
        """End, with the controller's epoch."""
        if self._timer is not None:
            self._timer.cancel()
        self._unclean.stop()
        self._rebalance.stop()

    def elect_uncleanly(self) -> None:
        """Hold unclean elections at once."""
        self._unclean.now()

    def on_effect(self, effect: Any) -> None:
        """Run an effect of a decision."""
        if isinstance(effect, ElectUncleanly):
            self.elect_uncleanly()

    def _begin_to_rebalance(self) -> None:
        self._rebalance.start()
        self._rebalance.now()
