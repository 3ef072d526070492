"""moto's S3 server as a process of its own, on a free port of 127.0.0.1."""

import socket
import subprocess
import sys
import time
from types import TracebackType

from ottla.testing.ports import free_ports

START_SECONDS_MAX = 60


class MotoServer:
    """A context manager; `url` is the endpoint. The process ends with this one."""

    def __enter__(self) -> "MotoServer":
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return self
            except OSError:
                assert self._process.poll() is None, "moto's server ended"
                assert time.monotonic() < until, "moto's server does not start"
                time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
