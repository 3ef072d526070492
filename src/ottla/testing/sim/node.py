"""A simulated node: a machine with a disk, and the incarnations of the process on it.

An incarnation is the product's `NodeCore` on simulated ports, started and stopped by the product's
own steps. A crash ends it without a shutdown; the disk keeps what was written (the process died) or
what was synced (the power failed).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from ottla.base.pending import Pending, completed
from ottla.broker.core import Broker
from ottla.broker.ports import Listener
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.host.kraft.node_mode import KRaftMode
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.log_dirs.storage import format_storage
from ottla.host.node_core import NodeCore
from ottla.host.node_ports import Address, Endpoints, NodePorts
from ottla.host.steps import drive
from ottla.metadata.node_config import NodeConfig
from ottla.raft.values import OffsetAndEpoch
from ottla.testing.sim.cleanings import SimCleanings
from ottla.testing.sim.disk import SimDisk, is_fault
from ottla.testing.sim.faults.directed_faults import FOLLOWED, DirectedFaults
from ottla.testing.sim.net import MS, SimListener
from ottla.testing.sim.ports import SimulatedCluster
from ottla.testing.sim.scheduler import (
    Call,
    DiskPace,
    Process,
    ProcessDied,
    SimClock,
    SimDice,
    SimTimers,
    SimWorkers,
)
from ottla.testing.sim.split_jobs import SplitJobs
from ottla.testing.sim.transport import links_from
from ottla.testing.sim.watch.deletions import KnownMetadata, partition_dir_watch
from ottla.testing.sim.watch.marks import ErrorMarks
from ottla.testing.sim.watch.observations import Acknowledged, DiskRefused, NodeChanged, Watch
from ottla.testing.sim.watch.produce_watch import ProducedBatch, watch_produce

CLUSTER_ID = "c2ltdWxhdGVkIGNsdXN0ZQ"
SUPERVISOR_MS = 2_000
"""The longest time until a process that ended by itself is restarted."""

CRC_AT = 17
"""The position of the CRC in a batch."""


WRITES = frozenset(
    {"append", "write_at", "truncate", "sync", "mkdir", "rename", "remove", "sync_dir"}
    | {"rmtree", "write_atomic"}
)
"""The disk operations that a crash may come before, or in the middle of."""


@dataclass(slots=True)
class PendingCrash:
    """A crash before one of the next disk operations."""

    operations: int
    lose_unflushed: bool
    then: Call


class SimNode:
    """One node of a simulated cluster. `incarnation` counts its processes from 1."""

    def __init__(
        self,
        sim: SimulatedCluster,
        properties: Mapping[str, str],
        random: Random,
        directed: DirectedFaults,
    ) -> None:
        self._sim = sim
        self._directed = directed
        self._random = random
        self.config = NodeConfig.parse(dict(properties))
        self.id: int = self.config.node_id
        self.is_broker = self.config.is_broker
        self.is_controller = self.config.is_controller
        listeners = self.config.broker_listeners or self.config.controller_listeners
        self.address: Address = (listeners[0].host, listeners[0].port)
        """Of its broker listener, else of its controller listener."""
        self.incarnation = 0
        self.boots = 1
        self.core: NodeCore | None = None
        self.serves = False
        """Whether this incarnation has finished its start."""
        self.pace = DiskPace(Random(random.getrandbits(64)))
        faults = sim.faults
        drift, off = faults.drift_ppm, faults.wall_ms
        self.clock = SimClock(
            sim.scheduler,
            drift_ppm=random.randint(-drift, drift),
            booted_us=random.randrange(10**9),
            wall_offset_ms=random.randint(-off, off),
        )
        self.disk = SimDisk(now_ms=self.clock.now_ms)
        self.disk.on_operation = self._disk_used
        self.known = KnownMetadata()
        self.partition_dirs = partition_dir_watch(sim, self, self.known)
        self._process: Process | None = None
        self._listeners: list[SimListener] = []
        self._stopping = False
        self._leave_start: Callable[[], None] = lambda: None
        self._back_after_ms: int | None = None
        self._pending_crash: PendingCrash | None = None
        self._split: SplitJobs | None = None
        self.disk_written: Callable[[SimNode, str, str], None] | None = None
        """Called before each operation that changes the disk."""
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

    # -- state ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Tell whether a process runs, paused or not."""
        return self._process is not None

    @property
    def paused(self) -> bool:
        """Tell whether the process is paused, as by SIGSTOP."""
        return self._process is not None and self._process.paused

    @property
    def broker(self) -> Broker | None:
        """Return the broker of this incarnation, once its logs are loaded."""
        core = self.core
        return None if core is None or core.broker is None else core.broker.broker

    @property
    def runtime(self) -> ControllerRuntime | None:
        """Return the controller of this incarnation."""
        mode = None if self.core is None else self.core.mode
        if not isinstance(mode, KRaftMode) or mode.controller is None:
            return None
        return mode.controller.runtime

    @property
    def metadata_log_end(self) -> OffsetAndEpoch | None:
        """Return where the metadata log of this incarnation's controller ends."""
        mode = None if self.core is None else self.core.mode
        if not isinstance(mode, KRaftMode) or mode.controller is None:
            return None
        return mode.controller.log.raft.log.end

    @property
    def leads(self) -> bool:
        """Tell whether it is the controller or leads a partition, as the metadata says."""
        runtime, zookeeper = self.runtime, self._sim.zookeeper
        if runtime is not None and runtime.active:
            return True
        if zookeeper is not None and zookeeper.controller_id == self.id:
            return True
        return self.is_broker and self.id in self._sim.partition_leaders

    # -- start, stop, crash --------------------------------------------------------------------

    def restart(self) -> None:
        """Start a process where none runs."""
        if self._process is not None:
            return
        sim, random = self._sim, self._random
        self.incarnation += 1
        self.serves = self._stopping = False
        process = self._process = Process(
            f"node {self.id}, incarnation {self.incarnation}", self.incarnation
        )
        self._listeners = []
        timers = SimTimers(sim.scheduler, self.clock, process)
        split = self._split = SplitJobs(
            sim.scheduler,
            process,
            Random(f"{sim.seed}/split {self.id} {self.incarnation}"),
            lambda: self._directed.split,
            self.pace,
        )
        workers = SimWorkers(
            sim.scheduler, process, Random(random.getrandbits(64)), self.pace, split
        )
        ports = NodePorts(
            clock=self.clock,
            dice=SimDice(Random(random.getrandbits(64))),
            disk=self.disk,
            timers=timers,
            workers=workers,
            connect=links_from(sim.net, self.id, process),
            cleanings=SimCleanings(self.disk, workers),
            ticks_ns=lambda: 0,
            boot_id=f"boot {self.boots}",
            open_store=lambda config: sim.object_store.client(
                process, clock=self.clock, read_file=self.disk.read_bytes
            ),
            open_zookeeper=None
            if sim.zookeeper is None
            else sim.zookeeper.opener(
                self.id, process, self.config["zookeeper.session.timeout.ms"]
            ),
        )
        core = self.core = NodeCore(
            self.config, ports, on_failure=lambda reason: self._failed(process, reason)
        )
        watch = Watch(
            core,
            incarnation=self.incarnation,
            now_ms=lambda: sim.scheduler.now_ms,
            notify=sim.notify,
            on_delta=sim.delta,
            mark=sim.mark,
        )
        self._errors = ErrorMarks(core)
        watch_produce(core, self._acknowledged)
        self._notify("started")
        sim.scheduler.after(0, lambda: self._boot(process, core, watch), process)

    def _boot(self, process: Process, core: NodeCore, watch: Watch) -> None:
        try:
            core.open()
            node_dirs = core._node_dirs
            assert node_dirs is not None
            self.known.opened(core)
            if self._sim.zookeeper is None:
                watch.opened(node_dirs.quorum)
        except (StartError, OSError, MetadataDamaged) as error:
            self._refused(process, error)
            core.close()
            self._ended(process, f"cannot open its log directories: {error}")
            return
        process.after = self._looks(watch)
        self._leave_start = drive(
            core.start_roles(SimNodeListeners(self, process)),
            lambda end: self._started(process, end),
        )

    def _started(self, process: Process, end: Exception | None) -> None:
        if end is None:
            self.serves = True
            # Requests that came earlier have waited until now.
            process.held_until_us = self._sim.scheduler.now_us
            self._notify("serves")
            return
        self._refused(process, end)
        self._ended(process, f"the start failed: {end}")

    def _refused(self, process: Process, error: Exception) -> None:
        """Emit an observation if the start failed because of what the disk held.

        Record what neither the disk, nor the configuration, nor a fault explains.
        """
        if isinstance(error, MetadataDamaged) or "Duplicate log directories" in str(error):
            now_ms = self._sim.scheduler.now_ms
            self._sim.notify(DiskRefused(now_ms, self.id, self.incarnation, str(error)))
        elif not isinstance(error, StartError) and not is_fault(error):
            self._sim.problem(process.name, error)

    def _failed(self, process: Process, reason: str) -> None:
        """The roles have failed: the process stops as well as it can, then ends."""
        self._sim.mark("node-failed")
        if process is self._process and not self._stopping:
            # Not at once: this is called in the middle of something else.
            self._sim.scheduler.after(0, lambda: self._stop(process, reason), process)

    def stop(self, *, back_after_ms: int | None = None) -> None:
        """Ask the process to stop cleanly, as a signal does; perhaps start it again then."""
        process = self._process
        self._back_after_ms = back_after_ms
        if process is not None and not self._stopping:
            self._sim.scheduler.after(0, lambda: self._stop(process, "stopped"), process)

    def _stop(self, process: Process, reason: str) -> None:
        core = self.core
        if process is not self._process or self._stopping or core is None:
            return
        self._stopping = True
        self.serves = False
        # A start that is under way must not go on during the stop.
        self._leave_start()

        def stopped(end: Exception | None) -> None:
            if end is not None and not is_fault(end):
                self._sim.problem(process.name, end)
            core.close()
            self._ended(process, reason)

        drive(core.stop_roles(SimNodeListeners(self, process)), stopped)

    def _ended(self, process: Process, reason: str) -> None:
        """The process has ended; unless it was stopped on purpose, it is restarted."""
        if process is not self._process:
            return
        self._end(silently=False)
        self.disk.kill()
        self._notify("stopped" if reason == "stopped" else f"ended: {reason}")
        if reason != "stopped":
            self._sim.mark("node-ended-by-itself")
            self._sim.scheduler.after(self._random.randrange(SUPERVISOR_MS) * MS, self.restart)
        elif self._back_after_ms is not None:
            self._sim.scheduler.after(self._back_after_ms * MS, self.restart)

    def crash(self, *, lose_unflushed: bool = True) -> None:
        """End the process at once; `lose_unflushed`: also lose what was written and not synced."""
        if self._process is None:
            return
        self._end(silently=lose_unflushed)
        if lose_unflushed:
            lost = self.disk.lose_power(self._random)
            self.partition_dirs.look(after_power_loss=True)
            self.boots += 1
            self._sim.mark("power-lost")
            if lost:
                self._sim.mark("unsynced-lost")
        else:
            self.disk.kill()
            self._sim.mark("crashed")
        self._notify("lost power" if lose_unflushed else "crashed")

    def crash_within(self, operations: int, *, lose_unflushed: bool, then: Call) -> None:
        """Crash at the n-th disk write from now on; then call `then`."""
        self._pending_crash = PendingCrash(operations, lose_unflushed, then)

    def die(self, *, lose_unflushed: bool, then: Call) -> None:
        """Crash at once, even in the middle of a step; then call `then`."""
        if self._process is not None and self._process.alive:
            self._crash_now(PendingCrash(0, lose_unflushed, then))

    def cancel_crash(self) -> None:
        """Cancel a pending crash."""
        if self._process is None or self._process.alive:
            self._pending_crash = None

    def _crash_now(self, doom: "PendingCrash") -> None:
        """End the process now; the current step is not finished."""
        process = self._process
        assert process is not None
        process.alive = False

        def crashed() -> None:
            self.crash(lose_unflushed=doom.lose_unflushed)
            doom.then()

        self._sim.scheduler.after(0, crashed)

    def _end(self, *, silently: bool) -> None:
        process = self._process
        assert process is not None
        self.mark_errors()
        self._check_log_dirs(process)
        self._pending_crash = None
        process.alive = False
        process.waiting.clear()
        self._process = None
        if self._split is not None:
            self._split.abort()
        self.core = None
        self.serves = False
        self._sim.net.vanish(process, silently=silently)

    def _check_log_dirs(self, process: Process) -> None:
        """Record the log directories that are offline though no disk has failed.

        The other replicas take over, and after the next start nothing shows it any more.
        """
        for each in () if self.broker is None else self.broker.log_dirs.offline_dirs:
            if each.error is not None and not is_fault(each.error):
                self._sim.problem(process.name, f"took {each.path} offline: {each.error}")

    def pause(self) -> None:
        """Pause the process as SIGSTOP does: it does nothing, its sockets stay open."""
        if self._process is not None:
            self._process.paused = True
            self._sim.mark("paused")
            self._notify("paused")

    def resume(self) -> None:
        """Resume a paused process, as SIGCONT does."""
        if self._process is not None and self._process.paused:
            self._sim.scheduler.resume(self._process)
            self._notify("resumed")

    def act(self, delay_us: int, call: Call) -> None:
        """Call something later as an event of this process, unless it has ended by then."""
        if self._process is not None:
            self._sim.scheduler.after(delay_us, call, self._process)

    def mark_errors(self) -> None:
        """Mark the error codes in this incarnation's responses since the last call."""
        if self._process is not None:
            self._sim.marks.update(self._errors.take())

    def _notify(self, what: str) -> None:
        self._sim.notify(NodeChanged(self._sim.scheduler.now_ms, self.id, self.incarnation, what))

    def _looks(self, watch: Watch) -> Callable[[], None]:
        """Return what is called after each event of the process: most often, so in one call."""
        look, dirs = watch.look, self.partition_dirs

        def look_at_all() -> None:
            look()
            if dirs.is_stale:
                dirs.look()

        return look_at_all

    def _disk_used(self, operation: str, path: str) -> None:
        """Called before each disk operation. One in the event loop delays the whole process."""
        writes = operation in WRITES
        if writes:
            if self._split is not None and self._split.current is not None:
                self._split.pause()
            self.partition_dirs.used(operation, path)
            if self.disk_written is not None and self._process is not None:
                self.disk_written(self, operation, path)
        pace, process = self.pace, self._process
        if operation in FOLLOWED and process is not None and process.alive:
            self._directed.disk_used(self, operation, path)
        if writes and self._pending_crash is not None and process is not None:
            self._pending_crash.operations -= 1
            if self._pending_crash.operations <= 0:
                self.disk.interrupted = None
                if process.alive:
                    self._sim.mark("crashed-while-writing")
                    self.disk.interrupted = Random(
                        f"{self._sim.seed}/interrupted {self.id} {self.incarnation}"
                    )
                    self._crash_now(self._pending_crash)
                raise ProcessDied
        if pace.slowest_us > 10 * MS and not pace.in_thread and process is not None:
            until_us = self._sim.scheduler.now_us + pace.work_us() // 10
            process.busy_until_us = max(process.busy_until_us, until_us)

    # -- listeners -----------------------------------------------------------------------------

    def add_listener(self, process: Process, address: Address, kind: Listener, name: str) -> None:
        """Bind a listener that does not accept connections yet."""
        core = self.core
        assert core is not None
        listener = SimListener(process, self.id, kind, name, core.handle)
        self._listeners.append(listener)
        self._sim.net.listen(address, listener)

    def open_listeners(self) -> None:
        """Accept connections."""
        for listener in self._listeners:
            listener.is_open = True

    def close_listeners(self) -> None:
        """Accept no more connections, and end the existing ones."""
        for listener in self._listeners:
            listener.is_open = False
            self._sim.net.close(listener)

    # -- observing -----------------------------------------------------------------------------

    def _acknowledged(self, batch: ProducedBatch, base_offset: int) -> None:
        partition = batch.partition
        self._sim.notify(
            Acknowledged(
                self._sim.scheduler.now_ms,
                self.id,
                self.incarnation,
                partition.topic_id,
                partition.partition_id,
                batch.leader_epoch,
                base_offset,
                batch.crc,
                batch.acks,
            )
        )


class SimNodeListeners:
    """See `ottla.host.node_ports.NodeListeners`."""

    def __init__(self, node: SimNode, process: Process) -> None:
        self._node = node
        self._process = process

    def bind(
        self, listeners: Endpoints, advertised: Endpoints, kind: Listener
    ) -> Pending[Endpoints]:
        """Take the names of a network that has no others."""
        for each in listeners:
            self._node.add_listener(self._process, (each.host, each.port), kind, each.name)
        return completed(advertised)

    def accept(self) -> Pending[None]:
        """Open."""
        self._node.open_listeners()
        return completed(None)

    def close(self) -> Pending[None]:
        """Close."""
        self._node.close_listeners()
        return completed(None)
