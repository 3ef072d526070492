"""A TCP proxy whose doors a test opens and shuts: between a ZooKeeper client and its server.

`cut` ends all connections. `shut` does so too, and ends new ones at once. `hold_answers` lets
requests through and keeps what the server says; `hold_requests` keeps the requests themselves.
"""

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Gate:
    """Listens on `port` while its `with` block runs."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_shut = False
        self._closed = False
        self._requests_pass = threading.Event()
        self._answers_pass = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.greetings: list[bytes] = []
        """What the server said first, on each connection that it answered."""
        self.held = threading.Event()
        """Set once something is held."""

    def __enter__(self) -> "Gate":
        self.open()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._requests_pass.set()
        self._answers_pass.set()

    def open(self) -> None:
        """Let everything through."""
        self._is_shut = False
        self.held.clear()
        self._requests_pass.set()
        self._answers_pass.set()

    def shut(self) -> None:
        """End all connections, and new ones at once."""
        with self._lock:
            self._is_shut = True
        self.cut()

    def cut(self) -> None:
        """End all connections; what is held is lost."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def hold_requests(self) -> None:
        """Keep what the client sends."""
        self._requests_pass.clear()

    def hold_answers(self) -> None:
        """Keep what the server sends."""
        self._answers_pass.clear()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_shut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:  # The server is dead.
                client.close()
                continue
            with self._lock:
                # It may have been shut while the server was connected to.
                is_open = not self._is_shut
                if is_open:
                    self._pairs.append((client, server))
            if not is_open:
                client.close()
                server.close()
                continue
            self.connections += 1
            for source, to, passes, firsts in (
                (client, server, self._requests_pass, []),
                (server, client, self._answers_pass, self.greetings),
            ):
                work = threading.Thread(
                    target=self._pump, args=(source, to, passes, firsts), daemon=True
                )
                work.start()

    def _pump(
        self,
        source: socket.socket,
        to: socket.socket,
        passes: threading.Event,
        firsts: list[bytes],
    ) -> None:
        is_first = True
        with suppress(OSError):
            while chunk := source.recv(64 * 1024):
                if is_first:
                    firsts.append(chunk)
                    is_first = False
                if not passes.is_set():
                    self.held.set()
                    passes.wait()
                to.sendall(chunk)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
