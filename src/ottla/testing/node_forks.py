"""Starts nodes as forks of one process that has loaded their code.

    python -P -m ottla.testing.node_forks DESCRIPTOR

Nine tenths of the CPU of a node's start, about a second, load its modules. A process that starts
many nodes loads them once, in a process of its own: that one has a single thread, so it can fork
safely, and each fork runs `ottla server` as if it had been started so. All of them have one hash
seed. DESCRIPTOR is a socket of sequenced packets from the process that wants the nodes:

    {"start": [argument, ...], "directory": ..., "environment": {...}, "limits": {...},
    "cores": [...]}, with standard input and output  -> {"pid": ...} or {"error": ...}
    {"collect": pid}               -> {"code": exit code, as subprocess has it, or null}

It ends when the other end is closed; nodes end with their standard input.
"""

import atexit
import gc
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from ottla.testing.layout import ClusterError

MESSAGE_BYTES_MAX = 1 << 17
"""Half of what Linux sends in one packet by default; environments are a few KB."""

LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name[:7] == "RLIMIT_"})

PRELOADED = ("ottla.cli.local.server", "ottla.host.node", "ottla.client.errors")


def can_fork() -> bool:
    """Tell whether nodes may be forks: elsewhere system libraries may not survive one."""
    return sys.platform == "linux"


class ForkedNode:
    """A node's process, as far as it is used like a `subprocess.Popen`."""

    def __init__(self, server: "ForkServer", pid: int, stdin: IO[bytes]) -> None:
        self._server = server
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while it runs, or where nobody knows it."""
        if self._code is None:
            self._code = self._server.collect(self.pid)
        return self._code


class ForkServer:
    """The process that forks, as its parent sees it: one for each process, started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self, arguments: Sequence[str], *, directory: Path, output: IO[bytes]) -> ForkedNode:
        """Start a node with the arguments of `ottla`, in a process group of its own.

        Its standard input is a pipe that this process holds. Raises: ClusterError.
        """
        request = {
            "start": list(arguments),
            "directory": str(directory),
            "environment": dict(os.environ),
            "limits": {kind: resource.getrlimit(kind) for kind in LIMITS},
            "cores": sorted(os.sched_getaffinity(0)),
        }
        read_end, write_end = os.pipe()
        try:
            answer = self._ask(request, [read_end, output.fileno()])
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        if "error" in answer:
            os.close(write_end)
            raise ClusterError(f"cannot start a node: {answer['error']}")
        return ForkedNode(self, answer["pid"], open(write_end, "wb", buffering=0))

    def collect(self, pid: int) -> int | None:
        """Return the exit code of a fork; None while it runs, or where it is not known."""
        with suppress(ClusterError):
            code: int | None = self._ask({"collect": pid})["code"]
            return code
        return None

    def close(self) -> None:
        """End the process; nodes go on. Another one is started when it is needed."""
        connection, self._connection = self._connection, None
        process, self.process = self.process, None
        if connection is not None and process is not None and self._owner == os.getpid():
            connection.close()
            process.wait()

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        data = json.dumps(request).encode()
        if len(data) > MESSAGE_BYTES_MAX:
            raise ClusterError(
                f"the environment has {len(data)} bytes: expected at most {MESSAGE_BYTES_MAX}"
            )
        with self._lock:
            try:
                connection = self._connected()
                socket.send_fds(connection, [data], descriptors)
                received = connection.recv(MESSAGE_BYTES_MAX)
                if not received:
                    raise ConnectionResetError("it has ended")
            except OSError as error:
                self.close()  # The next node gets a new one.
                raise ClusterError(f"the process that starts nodes: {error}") from None
        answer: dict[str, Any] = json.loads(received)
        return answer

    def _connected(self) -> socket.socket:
        # A fork of this process must not share its connection.
        if self._connection is None or self._owner != os.getpid():
            own, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with others:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "ottla.testing.node_forks", str(others.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[others.fileno()],
                    process_group=0,
                )
            self._connection, self._owner = own, os.getpid()
        return self._connection


SERVER = ForkServer()
atexit.register(SERVER.close)


def main() -> int:
    """Serve until the other end is closed; in a fork, run the node and return its exit code."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    ended: dict[int, int] = {}
    _load()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 2)
        except KeyboardInterrupt:
            continue
        if not data:
            return 0
        request = json.loads(data)
        if "collect" in request:
            answer: dict[str, Any] = {"code": _collected(request["collect"], ended)}
        else:
            try:
                pid = os.fork()
            except OSError as error:
                answer = {"error": str(error)}
            else:
                if pid == 0:
                    connection.close()
                    return _run(request, descriptors)
                with suppress(OSError):
                    os.setpgid(pid, pid)  # It does so too: whoever comes first.
                answer = {"pid": pid}
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(BrokenPipeError):
            connection.send(json.dumps(answer).encode())


def _load() -> None:
    """Import what every node imports, and keep its objects from later collections of garbage."""
    for name in PRELOADED:
        import_module(name)
    from ottla.broker.dispatch import load_apis
    from ottla.wire.registry import response_type

    for key in load_apis():
        response_type(key)
    gc.collect()
    gc.freeze()


def _collected(pid: int, ended: dict[int, int]) -> int | None:
    if pid not in ended:
        try:
            found, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        if found == 0:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


def _run(request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    with suppress(OSError):
        os.setpgid(0, 0)
    standard_input, output = descriptors
    os.dup2(standard_input, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in descriptors:
        os.close(descriptor)
    # What a started process has from the one that starts it, not from the one that forks.
    for kind, limits in request["limits"].items():
        with suppress(OSError, ValueError):
            resource.setrlimit(int(kind), limits)
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    code: int = import_module("ottla.cli.main").main(request["start"])
    return code


if __name__ == "__main__":
    sys.exit(main())
