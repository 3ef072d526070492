"""A TCP proxy between clients and one broker that cuts connections at random, from a seed.

It cuts at the worst moments: in the middle of a request, after a request reached the broker but
before its answer went back, in the middle of an answer. Chunks are what the sockets happen to
give, so the seed fixes how often and where in a chunk, not the whole history.
"""

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType

CHUNK_BYTES = 64 * 1024


class CuttingProxy:
    """Listens on `port` while its `with` block runs.

    Fields: `cut_rate`: the chance for each chunk, either way, that its connection ends there.
    """

    def __init__(self, target_port: int, *, seed: int, cut_rate: float) -> None:
        self.cut_rate = cut_rate
        self.cuts = 0
        self._target_port = target_port
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._closed = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "CuttingProxy":
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        with suppress(OSError):
            # Closing alone would not wake the thread that waits in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._cut(pair)
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target_port), timeout=5)
            except OSError:
                client.close()  # As a dead broker's port would: the client tries again.
                continue
            broker.settimeout(None)
            pair = (client, broker)
            with self._lock:
                self._pairs.add(pair)
            self._spawn(self._pump, pair, client, broker)
            self._spawn(self._pump, pair, broker, client)

    def _pump(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, to: socket.socket
    ) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                with self._lock:
                    cut = self._random.random() < self.cut_rate
                    keep = self._random.randrange(len(chunk)) if cut else len(chunk)
                    # Nothing of it passes in half of the cuts: an answer that got lost whole.
                    keep = 0 if cut and self._random.random() < 0.5 else keep
                    self.cuts += cut
                to.sendall(chunk[:keep])
                if cut:
                    break
        self._cut(pair)

    def _cut(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for each in pair:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        with self._lock:
            self._pairs.discard(pair)
