"""A simulated node: a machine with a disk, and the lives of the process on it.

A life is the product's `NodeCore` on simulated ports, started and stopped by the product's own
steps. A crash ends a life without a word; its disk keeps what was written (the process died) or
what was synced (the power failed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError
from ottla.base.pending import Pending, completed
from ottla.broker.api.base import Connection, Context, Listener
from ottla.broker.core import Broker
from ottla.broker.dispatch import Outcome
from ottla.host.controller_runtime import ControllerRuntime
from ottla.host.node_core import Endpoints, NodeCore
from ottla.host.node_dirs import StartError
from ottla.host.node_ports import Address, NodePorts
from ottla.host.quorum_storage import MetadataDamaged
from ottla.host.steps import drive
from ottla.host.storage import format_storage
from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim.cleanings import SimCleanings
from ottla.testing.sim.deletions import KnownMetadata, folder_watch
from ottla.testing.sim.directed_faults import FOLLOWED
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.marks import ErrorMarks
from ottla.testing.sim.net import MS, Door
from ottla.testing.sim.observations import Acknowledged, DiskRefused, NodeChanged, Watch
from ottla.testing.sim.split_jobs import SplitJobs
from ottla.testing.sim.transport import links_from
from ottla.testing.sim.world import (
    Call,
    DiskPace,
    Process,
    ProcessDied,
    SimClock,
    SimDice,
    SimTimers,
    SimWorkers,
)
from ottla.wire.registry import PRODUCE

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

CLUSTER_ID = "c2ltdWxhdGVkIGNsdXN0ZQ"
SUPERVISOR_MS = 2_000
"""After how long a process that ended by itself is started again."""

CRC_AT = 17
"""Where a batch's checksum is."""


WRITES = frozenset(
    {"append", "write_at", "truncate", "sync", "mkdir", "rename", "remove", "sync_dir"}
    | {"rmtree", "write_atomic"}
)
"""The disk operations that a crash may come before."""


@dataclass(slots=True)
class Doom:
    """A crash that waits for a disk operation."""

    operations: int
    lose_unflushed: bool
    then: Call


class SimNode:
    """One node of a simulated cluster. `life` counts its processes from 1."""

    def __init__(self, sim: "Sim", properties: Mapping[str, str], random: Random) -> None:
        self._sim = sim
        self._random = random
        self.config = NodeConfig.parse(dict(properties))
        self.id: int = self.config.node_id
        self.is_broker = self.config.is_broker
        self.is_controller = self.config.is_controller
        self.life = 0
        self.boots = 1
        self.core: NodeCore | None = None
        self.serves = False
        """Whether this life's start has come to its end."""
        self.pace = DiskPace(Random(random.getrandbits(64)))
        faults = sim.faults
        drift, off = faults.drift_ppm, faults.wall_ms
        self.clock = SimClock(
            sim.world,
            drift_ppm=random.randint(-drift, drift),
            booted_us=random.randrange(10**9),
            wall_offset_ms=random.randint(-off, off),
        )
        self.disk = SimDisk(now_ms=self.clock.now_ms)
        self.disk.on_operation = self._disk_used
        self.folders = folder_watch(sim, self)
        self.known = KnownMetadata()
        self._process: Process | None = None
        self._doors: list[Door] = []
        self._stopping = False
        self._leave_start: Callable[[], None] = lambda: None
        self._back_after_ms: int | None = None
        self._doom: Doom | None = None
        self._split: SplitJobs | None = None
        self.disk_written: Callable[[SimNode, str, str], None] | None = None
        """Called with each operation that changes the disk, before it is done."""
        if sim.zookeeper is None:
            format_storage(
                self.disk,
                log_dirs=self.config.log_dirs,
                metadata_log_dir=self.config.metadata_log_dir,
                node_id=self.id,
                cluster_id=CLUSTER_ID,
                dice=SimDice(Random(random.getrandbits(64))),
                clock=self.clock,
            )
            self.disk.settle()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Tell whether a process runs, paused or not."""
        return self._process is not None

    @property
    def paused(self) -> bool:
        """Tell whether the process is stopped by a signal."""
        return self._process is not None and self._process.paused

    @property
    def broker(self) -> Broker | None:
        """Return the broker of this life, once its logs are loaded."""
        core = self.core
        return None if core is None or core.broker is None else core.broker.broker

    @property
    def runtime(self) -> ControllerRuntime | None:
        """Return the controller of this life."""
        core = self.core
        return None if core is None or core.controller is None else core.controller.runtime

    @property
    def leads(self) -> bool:
        """Tell whether it is the controller or leads a partition, as the metadata says."""
        runtime, zookeeper = self.runtime, self._sim.zookeeper
        if runtime is not None and runtime.active:
            return True
        if zookeeper is not None and zookeeper.ruler == self.id:
            return True
        return self.is_broker and self.id in self._sim.partition_leaders

    @property
    def address(self) -> Address:
        """Return where clients reach it: its broker, else its controller."""
        listeners = self.config.broker_listeners or self.config.controller_listeners
        return listeners[0].host, listeners[0].port

    # -- life ----------------------------------------------------------------------------------

    def restart(self) -> None:
        """Start a process where none runs."""
        if self._process is not None:
            return
        sim, random = self._sim, self._random
        self.life += 1
        self.serves = self._stopping = False
        process = self._process = Process(f"node {self.id}, life {self.life}", self.life)
        self._doors = []
        timers = SimTimers(sim.world, self.clock, process)
        split = self._split = SplitJobs(
            sim.world,
            process,
            Random(f"{sim.seed}/split {self.id} {self.life}"),
            lambda: sim.directed.split,
            self.pace,
        )
        workers = SimWorkers(sim.world, process, Random(random.getrandbits(64)), self.pace, split)
        ports = NodePorts(
            clock=self.clock,
            dice=SimDice(Random(random.getrandbits(64))),
            disk=self.disk,
            timers=timers,
            workers=workers,
            connect=links_from(sim.net, self.id, process, self._answered),
            cleanings=SimCleanings(self.disk, workers),
            ticks_ns=lambda: 0,
            boot_id=f"boot {self.boots}",
            open_zookeeper=None
            if sim.zookeeper is None
            else sim.zookeeper.opener(
                self.id, process, self.config["zookeeper.session.timeout.ms"]
            ),
        )
        core = self.core = NodeCore(
            self.config, ports, on_failure=lambda reason: self._failed(process, reason)
        )
        watch = self._watch = Watch(
            core,
            life=self.life,
            now_ms=lambda: sim.world.now_ms,
            tell=sim.tell,
            on_delta=sim.delta,
            mark=sim.mark,
        )
        self._errors = ErrorMarks(core)
        self._watch_produce(core)
        self._tell("started")
        sim.world.after(0, lambda: self._boot(process, core, watch), process)

    def _boot(self, process: Process, core: NodeCore, watch: Watch) -> None:
        try:
            core.open()
            folders = core._node_dirs
            assert folders is not None
            self.known.opened(core)
            if self._sim.zookeeper is None:
                watch.opened(folders.quorum)
        except (StartError, OSError, MetadataDamaged) as error:
            self._refused(error)
            core.close()
            self._ended(process, f"cannot open its folders: {error}")
            return
        process.after = lambda: self._look(watch)
        self._leave_start = drive(
            core.start_roles(SimNodeListeners(self, process)),
            lambda end: self._started(process, end),
        )

    def _started(self, process: Process, end: Exception | None) -> None:
        if end is None:
            self.serves = True
            # What came before it served was kept until now.
            process.held_until_us = self._sim.world.now_us
            self._tell("serves")
            return
        self._refused(end)
        if not isinstance(end, StartError | OSError | MetadataDamaged):
            self._sim.problem(process.name, end)
        self._ended(process, f"the start failed: {end}")

    def _refused(self, error: Exception) -> None:
        """Tell where a start ended for what the disk held."""
        if isinstance(error, MetadataDamaged) or "Duplicate log directories" in str(error):
            now_ms = self._sim.world.now_ms
            self._sim.tell(DiskRefused(now_ms, self.id, self.life, str(error)))

    def _failed(self, process: Process, reason: str) -> None:
        """The roles cannot go on: the process stops as well as it can, then ends."""
        self._sim.mark("node-failed")
        if process is self._process and not self._stopping:
            # Not at once: it is said from the midst of something.
            self._sim.world.after(0, lambda: self._stop(process, reason), process)

    def stop(self, *, back_after_ms: int | None = None) -> None:
        """Ask the process to stop cleanly, as a signal does; perhaps start it again then."""
        process = self._process
        self._back_after_ms = back_after_ms
        if process is not None and not self._stopping:
            self._sim.world.after(0, lambda: self._stop(process, "stopped"), process)

    def _stop(self, process: Process, reason: str) -> None:
        core = self.core
        if process is not self._process or self._stopping or core is None:
            return
        self._stopping = True
        self.serves = False
        # What is half made must stand still before it is taken down.
        self._leave_start()

        def stopped(end: Exception | None) -> None:
            if end is not None and not isinstance(end, OSError):
                self._sim.problem(process.name, end)
            core.close()
            self._ended(process, reason)

        drive(core.stop_roles(SimNodeListeners(self, process)), stopped)

    def _ended(self, process: Process, reason: str) -> None:
        """The process has ended by itself; unless it was told to, it is started again."""
        if process is not self._process:
            return
        self._end(silently=False)
        self.disk.kill()
        self._tell("stopped" if reason == "stopped" else f"ended: {reason}")
        if reason != "stopped":
            self._sim.mark("node-ended-by-itself")
            self._sim.world.after(self._random.randrange(SUPERVISOR_MS) * MS, self.restart)
        elif self._back_after_ms is not None:
            self._sim.world.after(self._back_after_ms * MS, self.restart)

    def crash(self, *, lose_unflushed: bool = True) -> None:
        """End the process at once; with the power, also what was written and not synced."""
        if self._process is None:
            return
        self._end(silently=lose_unflushed)
        if lose_unflushed:
            lost = self.disk.lose_power(self._random)
            self.folders.look(after_power_loss=True)
            self.boots += 1
            self._sim.mark("power-lost")
            if lost:
                self._sim.mark("unsynced-lost")
        else:
            self.disk.kill()
            self._sim.mark("crashed")
        self._tell("lost power" if lose_unflushed else "crashed")

    def crash_within(self, operations: int, *, lose_unflushed: bool, then: Call) -> None:
        """Crash in the midst of the disk operation after so many more; `then` follows."""
        self._doom = Doom(operations, lose_unflushed, then)

    def die(self, *, lose_unflushed: bool, then: Call) -> None:
        """Crash at once, even from the midst of something; `then` follows."""
        if self._process is not None and self._process.alive:
            self._doomed(Doom(0, lose_unflushed, then))

    def forgive(self) -> None:
        """Let a crash that still waits not come."""
        if self._process is None or self._process.alive:
            self._doom = None

    def _doomed(self, doom: "Doom") -> None:
        """Die now; what is under way does not come to its end."""
        process = self._process
        assert process is not None
        process.alive = False

        def buried() -> None:
            self.crash(lose_unflushed=doom.lose_unflushed)
            doom.then()

        self._sim.world.after(0, buried)

    def _end(self, *, silently: bool) -> None:
        process = self._process
        assert process is not None
        self.mark_errors()
        self._doom = None
        process.alive = False
        process.waiting.clear()
        self._process = None
        if self._split is not None:
            self._split.abort()
        self.core = None
        self.serves = False
        self._sim.net.vanish(process, silently=silently)

    def pause(self) -> None:
        """Stop the process's clock hand: it does nothing, its sockets still stand."""
        if self._process is not None:
            self._process.paused = True
            self._sim.mark("paused")
            self._tell("paused")

    def resume(self) -> None:
        """Let it go on where it was."""
        if self._process is not None and self._process.paused:
            self._sim.world.resume(self._process)
            self._tell("resumed")

    def mark_errors(self) -> None:
        """Mark which error codes this life told since the last time."""
        if self._process is not None:
            self._sim.marks.update(self._errors.take())

    def _tell(self, what: str) -> None:
        self._sim.tell(NodeChanged(self._sim.world.now_ms, self.id, self.life, what))

    def _look(self, watch: Watch) -> None:
        watch.look()
        self.folders.look()

    def _disk_used(self, operation: str, path: str) -> None:
        """A disk call of the loop itself holds up all that the process does."""
        writes = operation in WRITES
        if writes:
            if self._split is not None:
                self._split.pause()
            self.folders.used(operation, path)
            if self.disk_written is not None and self._process is not None:
                self.disk_written(self, operation, path)
        pace, process = self.pace, self._process
        if operation in FOLLOWED and process is not None and process.alive:
            self._sim.directed.disk_used(self, operation, path)
        if writes and self._doom is not None and process is not None:
            self._doom.operations -= 1
            if self._doom.operations <= 0:
                if process.alive:
                    self._sim.mark("crashed-while-writing")
                    self._doomed(self._doom)
                raise ProcessDied
        if pace.slowest_us > 10 * MS and not pace.in_thread and process is not None:
            until_us = self._sim.world.now_us + pace.work_us() // 10
            process.busy_until_us = max(process.busy_until_us, until_us)

    # -- doors ---------------------------------------------------------------------------------

    def take_door(self, process: Process, address: Address, kind: Listener, name: str) -> None:
        """Listen at an address, closed yet."""
        core, watch = self.core, self._watch
        assert core is not None

        def handle(connection: Connection, frame: memoryview) -> Outcome:
            watch.touched = True
            return core.handle(connection, frame)

        door = Door(process, self.id, kind, name, handle)
        self._doors.append(door)
        self._sim.net.listen(address, door)

    def _answered(self) -> None:
        self._watch.touched = True

    def open_doors(self) -> None:
        """Let requests in."""
        for door in self._doors:
            door.is_open = True

    def close_doors(self) -> None:
        """Let no more in, and end the connections."""
        for door in self._doors:
            door.is_open = False
            self._sim.net.close(door)

    # -- watching ------------------------------------------------------------------------------

    def _watch_produce(self, core: NodeCore) -> None:
        """See which batches are acknowledged to clients, and in which epoch."""
        endpoints: Any = core._dispatcher.endpoints
        produce = endpoints[PRODUCE]
        handle = produce.handle

        def watched(ctx: Context, request: Any) -> Any:
            replicas = ctx.broker.replicas
            taken: list[tuple[Any, int, int] | None] = []
            outcome = handle(ctx, request)
            for topic in request.topic_data:
                for each in topic.partition_data:
                    try:
                        if ctx.version >= 13:
                            hosted = replicas.partition_by_id(topic.topic_id, each.index)
                        else:
                            hosted = replicas.partition(topic.name, each.index)
                    except ApiError:
                        taken.append(None)
                        continue
                    crc = int.from_bytes(each.records[CRC_AT : CRC_AT + 4], "big")
                    taken.append((hosted, hosted.leader_epoch, crc))
            if isinstance(outcome, Pending):
                outcome.then(lambda answer: self._acknowledged(taken, request.acks, answer))
            elif outcome is not None:
                self._acknowledged(taken, request.acks, outcome)
            return outcome

        endpoints[PRODUCE] = replace(produce, handle=watched)

    def _acknowledged(
        self, taken: list[tuple[Any, int, int] | None], acks: int, answer: Any
    ) -> None:
        answers = [each for topic in answer.responses for each in topic.partition_responses]
        for batch, told in zip(taken, answers, strict=True):
            if batch is None or told.error_code:
                continue
            partition, epoch, crc = batch
            self._sim.tell(
                Acknowledged(
                    self._sim.world.now_ms,
                    self.id,
                    self.life,
                    partition.topic_id,
                    partition.index,
                    epoch,
                    told.base_offset,
                    crc,
                    acks,
                )
            )


class SimNodeListeners:
    """See `ottla.host.node_core.NodeListeners`."""

    def __init__(self, node: SimNode, process: Process) -> None:
        self._node = node
        self._process = process

    def bind(
        self, listeners: Endpoints, advertised: Endpoints, kind: Listener
    ) -> Pending[Endpoints]:
        """Take the names of a network that has no others."""
        for each in listeners:
            self._node.take_door(self._process, (each.host, each.port), kind, each.name)
        return completed(advertised)

    def accept(self) -> Pending[None]:
        """Open."""
        self._node.open_doors()
        return completed(None)

    def close(self) -> Pending[None]:
        """Close."""
        self._node.close_doors()
        return completed(None)
