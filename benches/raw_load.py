"""Sends one ready request again and again over plain sockets, and counts the responses.

    python benches/raw_load.py HOST:PORT FILE CONNECTIONS IN_FLIGHT SECONDS

The client only copies bytes, so that the server is what is measured. It is one process with one
thread; responses are taken in order, as the protocol has them. FILE holds a request with its
length prefix. Prints one line of JSON: requests per second, and quantiles of the time from sending
a request to its response, in microseconds.
"""

import gc
import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

RECEIVE_BYTES = 1 << 16
SAMPLED = 7
"""Every so many responses, the latency is kept."""


class _Connection:
    """A socket with requests in flight, oldest first, by the time when each was sent."""

    def __init__(self, address: tuple[str, int], request: bytes, in_flight: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._sent: deque[float] = deque()
        self._rest = b""
        self.responses = 0
        self.latencies: list[float] = []
        self.send(in_flight)

    def send(self, count: int) -> None:
        """Send some requests at once."""
        self._sent.extend([time.perf_counter()] * count)
        self.socket.sendall(self._request * count)

    def receive(self) -> int:
        """Take what has arrived; return how many responses are complete. Raises: EOFError."""
        received = self.socket.recv(RECEIVE_BYTES)
        if not received:
            raise EOFError("the server has closed a connection")
        data = self._rest + received if self._rest else received
        position, count, now = 0, 0, time.perf_counter()
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            position, count = end, count + 1
            sent = self._sent.popleft()
            self.responses += 1
            if self.responses % SAMPLED == 0:
                self.latencies.append(now - sent)
        self._rest = data[position:]
        return count


def run(
    address: tuple[str, int], request: bytes, count: int, in_flight: int, seconds: float
) -> str:
    """Load a server; return the result as JSON."""
    gc.disable()
    connections = {}
    poll = select.epoll()
    for _ in range(count):
        each = _Connection(address, request, in_flight)
        connections[each.socket.fileno()] = each
        poll.register(each.socket, select.EPOLLIN)
    began = time.perf_counter()
    end = began + seconds
    while time.perf_counter() < end:
        for number, _ in poll.poll(1.0):
            each = connections[number]
            complete = each.receive()
            if complete:
                each.send(complete)
    took_s = time.perf_counter() - began
    latencies = sorted(value for each in connections.values() for value in each.latencies)
    result = {"per_s": sum(each.responses for each in connections.values()) / took_s}
    for name, share in (("p50_us", 0.5), ("p99_us", 0.99)):
        result[name] = latencies[int(share * (len(latencies) - 1))] * 1e6 if latencies else 0.0
    return json.dumps(result)


def measure(
    bootstrap: str, request: Path, connections: int, in_flight: int, seconds: float
) -> dict[str, float]:
    """Run this file in a process of its own."""
    words = [bootstrap.split(",")[0], str(request), str(connections), str(in_flight), str(seconds)]
    ran = subprocess.run(
        [sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True
    )
    result: dict[str, float] = json.loads(ran.stdout)
    return result


if __name__ == "__main__":
    where, file, *numbers = sys.argv[1:]
    host, _, port = where.rpartition(":")
    print(
        run(
            (host, int(port)),
            Path(file).read_bytes(),
            int(numbers[0]),
            int(numbers[1]),
            float(numbers[2]),
        )
    )
