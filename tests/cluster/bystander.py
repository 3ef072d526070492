"""Somebody who uses a broker as intended while it is attacked, and who must not notice."""

import psutil

from ottla.testing import Cluster

from .background import Background
from .clients import Closing, Message, client_of, eventually
from .conftest import new_topic

GROWTH_BYTES_MAX = 150 << 20
SAMPLE_SECONDS = 0.05


class Bystander(Background):
    """Produces to and reads from a topic of its own, and keeps an eye on the broker's memory.

    Order: on leaving the `with` block it waits for one more round trip, then checks that the
           broker is the same process, grew by less than GROWTH_BYTES_MAX at any moment and
           logged no exception.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__((self._use, self._sample), patience=90)
        self._cluster = cluster
        pid = cluster.pid(1)
        assert pid is not None
        self._process = psutil.Process(pid)
        self._topic = new_topic(cluster.bootstrap, "bystander")
        self._log_begin = len(cluster.logs(1))
        self.rss_before = self.rss_max = int(self._process.memory_info().rss)
        self.rounds = 0

    def begun(self) -> None:
        self.wait_round()

    def ending(self) -> None:
        self.wait_round()
        assert self._cluster.pid(1) == self._process.pid, "the broker died"
        growth = self.rss_max - self.rss_before
        assert growth < GROWTH_BYTES_MAX, f"the broker grew by {growth >> 20} MB"
        logged = self._cluster.logs(1)[self._log_begin :]
        assert "Traceback" not in logged, logged[logged.index("Traceback") - 500 :][:3000]

    def wait_round(self) -> None:
        """Wait until a message was produced and read again."""
        before = self.rounds
        eventually(
            lambda: self.rounds > before or self.errors,
            within=30,
            what="a message to pass by",
        )
        assert self.errors == [], "the bystander failed"

    @property
    def descriptors(self) -> int:
        """Return how many files and sockets the broker has open."""
        return int(self._process.num_fds())

    def _use(self) -> None:
        client = client_of("confluent")
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

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self.rss_max = max(self.rss_max, self._process.memory_info().rss)
