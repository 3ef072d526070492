"""What faults act on, and watches look at: a simulated cluster and its nodes.

`sim.Sim`, `node.SimNode` and `zookeeper_mode.SimZooKeeper` are these. The faults and the nodes
know one another through this module alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ottla.base.zookeeper import OpenSession
from ottla.broker.core import Broker
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.net import Network
from ottla.testing.sim.object_store import ObjectStoreModel
from ottla.testing.sim.scheduler import Call, DiskPace, Process, Scheduler, SimClock
from ottla.testing.sim.watch.observations import Observer
from ottla.testing.sim.watch.partition_dir_watch import PartitionDirWatch
from ottla.testing.sim.zookeeper.zookeeper import ZooKeeperModel


class SimulatedNode(Protocol):
    """See `ottla.testing.sim.node.SimNode`."""

    id: int
    is_broker: bool
    is_controller: bool
    incarnation: int
    config: NodeConfig
    disk: SimDisk
    pace: DiskPace
    clock: SimClock
    partition_dirs: PartitionDirWatch

    @property
    def alive(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    @property
    def leads(self) -> bool: ...
    @property
    def broker(self) -> Broker | None: ...
    @property
    def runtime(self) -> ControllerRuntime | None: ...
    def restart(self) -> None: ...
    def stop(self, *, back_after_ms: int | None = None) -> None: ...
    def crash(self, *, lose_unflushed: bool = True) -> None: ...
    def crash_within(self, operations: int, *, lose_unflushed: bool, then: Call) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class SimulatedEnsemble(Protocol):
    """See `ottla.testing.sim.zookeeper.zookeeper_mode.SimZooKeeper`."""

    controller_id: int
    model: ZooKeeperModel

    def opener(self, node_id: int, process: Process, timeout_ms: int) -> OpenSession: ...


class SimulatedCluster(Protocol):
    """See `ottla.testing.sim.sim.Sim`."""

    seed: int
    faults: Faults
    scheduler: Scheduler
    net: Network
    object_store: ObjectStoreModel
    image: ClusterImage
    marks: Counter[str]
    partition_leaders: Counter[int]
    min_insync_replicas: int

    @property
    def nodes(self) -> Mapping[int, SimulatedNode]: ...
    @property
    def properties(self) -> Sequence[Mapping[str, str]]: ...
    @property
    def zookeeper(self) -> SimulatedEnsemble | None: ...
    @property
    def places(self) -> Sequence[int]: ...
    @property
    def now_ms(self) -> int: ...
    def is_whole(self, node_id: int, *, since_incarnation: int) -> bool: ...
    def observe(self, observer: Observer) -> None: ...
    def notify(self, observation: Any) -> None: ...
    def delta(self, delta: ClusterDelta) -> None: ...
    def mark(self, name: str) -> None: ...
    def note(self, text: str) -> None: ...
    def problem(self, where: str, error: BaseException | str) -> None: ...
