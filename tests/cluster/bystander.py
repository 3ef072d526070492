"""Somebody who uses a broker as intended while it is attacked, and who must not notice."""

import threading
from types import TracebackType

import psutil  # type: ignore[import-untyped]

from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually
from .conftest import new_topic

GROWTH_BYTES_MAX = 150 << 20
SAMPLE_SECONDS = 0.05


class Bystander:
    """Produces to and reads from a topic of its own, and keeps an eye on the broker's memory.

    Order: on leaving the `with` block it waits for one more round trip, then checks that the
           broker is the same process, grew by less than GROWTH_BYTES_MAX at any moment and
           logged no exception.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        pid = cluster.pid(1)
        assert pid is not None
        self._process = psutil.Process(pid)
        self._topic = new_topic(cluster.bootstrap, "bystander")
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.rounds = 0
        self.rss_max = 0

    def __enter__(self) -> "Bystander":
        self._log_begin = len(self._cluster.logs(1))
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._use, self._sample)
        ]
        self.rss_before = self._process.memory_info().rss
        for thread in self._threads:
            thread.start()
        self.wait_round()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.wait_round()
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(90)
        if kind is None:
            self._check()

    def wait_round(self) -> None:
        """Wait until a message was produced and read again."""
        before = self.rounds
        eventually(
            lambda: self.rounds > before or self._failure is not None,
            within=30,
            what="a message to pass by",
        )
        assert self._failure is None, f"the bystander failed: {self._failure!r}"

    @property
    def descriptors(self) -> int:
        """Return how many files and sockets the broker has open."""
        return int(self._process.num_fds())

    def _check(self) -> None:
        assert self._cluster.pid(1) == self._process.pid, "the broker died"
        growth = self.rss_max - self.rss_before
        assert growth < GROWTH_BYTES_MAX, f"the broker grew by {growth >> 20} MB"
        logged = self._cluster.logs(1)[self._log_begin :]
        assert "Traceback" not in logged, logged[logged.index("Traceback") - 500 :][:3000]

    def _use(self) -> None:
        client = client_of("confluent")
        try:
            with (
                Closing(client.producer(self._cluster.bootstrap)) as producer,
                Closing(client.consumer(self._cluster.bootstrap)) as consumer,
            ):
                consumer.assign([(self._topic, 0)])
                while not self._stop.is_set():
                    value = b"%d" % self.rounds
                    producer.send([Message(topic=self._topic, value=value)], timeout=20)
                    records = eventually(lambda: consumer.poll(0.5), within=20, what="a record")
                    assert [each.value for each in records] == [value]
                    self.rounds += 1
        except BaseException as error:
            self._failure = error

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.rss_max = max(self.rss_max, self._process.memory_info().rss)
