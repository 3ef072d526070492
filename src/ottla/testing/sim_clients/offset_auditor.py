"""An administrator's client that asks what a group has committed, again and again.

It is in no group: its questions go to whoever coordinates, also where no member would ask.
"""

from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.coordinator import BACKOFF_MS, Coordinator
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.offset_queries import fetch_offsets

VERSION = 10


class OffsetAuditor:
    """Asks for one group's offsets of one topic. `is_done`: stopped, and asked once more since."""

    def __init__(
        self, client: SimClient, port: Port, group: str, topic: str, *, interval_ms: int
    ) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.interval_ms = interval_ms
        self.is_done = False
        self._coordinator = Coordinator(client, port, group)
        self._stopped = False
        client.follow(topic)

    def begin(self) -> None:
        """Start to ask."""
        self.client.run(self._work())

    def ask_now(self) -> None:
        """Ask beside what it asks anyway."""
        self.client.run(self._ask())

    def stop(self) -> None:
        """Ask a last time."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        client = self.client
        while not self.is_done:
            is_last = self._stopped
            if client.partitions_of(self.topic):
                self.is_done = (yield from self._ask()) and is_last
            else:
                yield client.refresh()
            yield BACKOFF_MS if is_last else 1 + client.dice.below(2 * self.interval_ms)

    def _ask(self) -> Dialogue[bool]:
        """Ask once; tell whether all was answered."""
        keys = self.client.partitions_of(self.topic)
        found = yield from fetch_offsets(self._coordinator, keys, VERSION)
        return isinstance(found, dict) and len(found) == len(keys)
