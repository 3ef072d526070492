"""A KRaft controller and brokers that are records, for the tests of orders to brokers."""

from dataclasses import dataclass, field

from ottla.controller.step import Decision, Step
from ottla.host.kraft.controller_node import ControllerNode
from ottla.metadata.records import BrokerRegistrationChangeRecord, Record
from tests.unit.host.fake_brokers import FakeBrokers
from tests.unit.host.harness import Harness
from tests.unit.host.kraft.test_controller_node import SESSION_MS


@dataclass
class ControllerCluster:
    """See the module. A subclass starts `controller`."""

    harness: Harness = field(default_factory=Harness)
    brokers: FakeBrokers = field(default_factory=FakeBrokers)
    controller: ControllerNode = field(init=False)

    def write(self, *records: Record) -> None:
        """Have records committed."""
        self.controller.run(lambda _image: Decision(Step(records), None))
        self.send_heartbeats()
        self.harness.workers.run()

    def send_heartbeats(self) -> None:
        """Let all brokers send one."""
        for broker_id in self.controller.image.brokers:
            self.controller.context.liveness.touch(broker_id, self.harness.clock.monotonic_ms())

    def fence(self, broker_id: int, *, fenced: bool = True) -> None:
        """Fence a broker, or let it come back as the process that it was."""
        epoch = self.controller.image.brokers[broker_id].epoch
        change = 1 if fenced else -1
        self.write(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=change)
        )

    def wait(self, ms: int, *, commits: bool = True) -> None:
        """Let time pass; all brokers that are not fenced send heartbeats meanwhile."""
        while ms > 0:
            self.send_heartbeats()
            step = min(ms, SESSION_MS // 2)
            self.harness.advance(step)
            if commits:
                self.harness.workers.run()
            ms -= step
