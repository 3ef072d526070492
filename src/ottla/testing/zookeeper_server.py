"""Real ZooKeeper servers for tests: one alone, or an ensemble that can lose members.

with ZooKeeperServer() as zookeeper:
    client = KazooClient(zookeeper.connect)

Members have numbers from 1. All end with this process, however it ends.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ottla.testing import ports, processes, zookeeper_process
from ottla.testing.layout import ClusterError
from ottla.testing.ports import HOST, free_ports
from ottla.testing.processes import Identity
from ottla.testing.zookeeper_process import Member

POLL_SECONDS = 0.05
STOP_SECONDS = 10.0


class ZooKeeperServer:
    """One server, or an ensemble of several.

    Fields: `servers`: how many; 1 stands alone.
            `data_dir`: their directory; if given, it is kept, else a temporary one is removed.
            `port`: of the first one, where free; else, and for the others, any free ones.
            `timeout`: seconds to wait for them to serve.
            `purges_logs`: whether each start removes transaction logs that the newest three
            snapshots cover.
    Raises: ClusterError, where PySpark or Java is missing, or a server does not start.
    """

    def __init__(
        self,
        servers: int = 1,
        *,
        data_dir: str | Path | None = None,
        port: int | None = None,
        timeout: float = 60.0,
        purges_logs: bool = True,
    ) -> None:
        if servers < 1:
            raise ClusterError(f"{servers} servers: expected 1 or more")
        self._servers = servers
        self._kept = data_dir is not None
        self._root = Path(data_dir).resolve() if data_dir is not None else None
        self._port = port
        self._timeout = timeout
        self._purges_logs = purges_logs
        self._members: tuple[Member, ...] = ()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._identities: dict[int, Identity] = {}
        self._guards: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "ZooKeeperServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- what there is -------------------------------------------------------------------------

    @property
    def connect(self) -> str:
        """The servers' addresses, as zookeeper.connect and ZooKeeper's clients take them."""
        return ",".join(f"{HOST}:{each.client_port}" for each in self._members)

    @property
    def members(self) -> tuple[Member, ...]:
        """The servers, by number."""
        return self._members

    def address(self, number: int = 1) -> str:
        """Return where one server listens, as `host:port`."""
        return f"{HOST}:{self._member(number).client_port}"

    def pid(self, number: int = 1) -> int | None:
        """Return the process id of a running server."""
        identity = self._identities.get(number)
        return identity.pid if zookeeper_process.is_alive(identity) and identity else None

    def mode(self, number: int = 1) -> str | None:
        """Return standalone, leader or follower; None while that server does not serve."""
        identity = self._identities.get(number)
        if identity is None or processes.is_paused(identity):
            return None
        return zookeeper_process.mode_of(self._member(number).client_port)

    def leader(self) -> int | None:
        """Return the number of the server that leads; None while there is none."""
        for each in self._members:
            if self.mode(each.id) in ("leader", "standalone"):
                return each.id
        return None

    # -- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Start all servers, and wait until they serve."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="ottla-zookeeper-"))
        try:
            if not self._members:
                self._members = self._place()
            for each in self._members:
                self._spawn(each)
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all servers, and remove a temporary data directory; idempotent."""
        self._stop(list(self._processes))
        if not self._kept and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def stop(self, number: int = 1) -> None:
        """Stop a server in order (SIGTERM), and wait for its end."""
        self._stop([number])

    def kill(self, number: int = 1) -> None:
        """Kill a server (SIGKILL), and wait for its end."""
        self._signal(number, signal.SIGKILL)
        self._gone(number)

    def pause(self, number: int = 1) -> None:
        """Pause a server (SIGSTOP): its sockets stay open and it does not answer."""
        self._signal(number, signal.SIGSTOP)
        self._until(lambda: processes.is_paused(self._identities[number]), f"{number} to pause")

    def resume(self, number: int = 1) -> None:
        """Resume a paused server."""
        self._signal(number, signal.SIGCONT)

    def restart(self, number: int = 1) -> None:
        """Start a server that was stopped or killed, or stop it first; wait until it serves."""
        if number in self._processes:
            self.stop(number)
        self._spawn(self._member(number))
        self.wait_ready(number)

    def wait_ready(self, number: int | None = None) -> None:
        """Wait until a server, or all that live, serve; an ensemble needs most of its members."""
        waited = [number] if number is not None else sorted(self._processes)
        for each in waited:
            self._until(lambda each=each: self._serves(each), f"{each} to serve")  # type: ignore[misc]

    # -- help ----------------------------------------------------------------------------------

    def _place(self) -> tuple[Member, ...]:
        found = free_ports(3 * self._servers)
        if self._port is not None and ports.is_free(self._port):
            found[0] = self._port
        return tuple(
            Member(index + 1, found[index], *found[self._servers + 2 * index :][:2])
            for index in range(self._servers)
        )

    def _directory(self, number: int) -> Path:
        assert self._root is not None, "the servers are started first"
        return self._root if self._servers == 1 else self._root / f"server-{number}"

    def _member(self, number: int) -> Member:
        for each in self._members:
            if each.id == number:
                return each
        raise ClusterError(f"no server {number}: expected 1 to {len(self._members)}")

    def _spawn(self, member: Member) -> None:
        directory = self._directory(member.id)
        zookeeper_process.write_config(
            directory, member, self._members, purges_logs=self._purges_logs
        )
        child = zookeeper_process.spawn(
            directory, is_ensemble=len(self._members) > 1, own_session=False
        )
        self._processes[member.id] = child
        self._identities[member.id] = processes.identify(child.pid)
        self._guards[member.id] = zookeeper_process.guard(self._identities[member.id])

    def _serves(self, number: int) -> bool:
        code = self._processes[number].poll()
        if code is not None:
            log_end = zookeeper_process.log_tail(self._directory(number))
            raise ClusterError(f"ZooKeeper server {number} ended with exit code {code}\n{log_end}")
        return self.mode(number) is not None

    def _signal(self, number: int, signal_number: signal.Signals) -> None:
        self._member(number)
        if number not in self._processes:
            raise ClusterError(f"ZooKeeper server {number} does not run")
        processes.send_signal(self._identities[number], signal_number)

    def _stop(self, numbers: list[int]) -> None:
        for number in numbers:
            self._signal(number, signal.SIGTERM)
            self._signal(number, signal.SIGCONT)  # A paused process gets SIGTERM only after that.
        deadline = time.monotonic() + STOP_SECONDS
        for number in numbers:
            left = max(0.0, deadline - time.monotonic())
            if not processes.wait_until_gone(self._identities[number], left):
                self._signal(number, signal.SIGKILL)
            self._gone(number)

    def _gone(self, number: int) -> None:
        self._processes.pop(number).wait()
        zookeeper_process.dismiss(self._guards.pop(number))
        del self._identities[number]

    def _until(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not look():
            if time.monotonic() >= deadline:
                raise ClusterError(
                    f"waited {self._timeout:g} s for ZooKeeper server {what} in vain"
                )
            time.sleep(POLL_SECONDS)
