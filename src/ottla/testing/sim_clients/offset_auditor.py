"""An admin client that fetches a group's committed offsets again and again.

It is not a member: it also asks coordinators at times when no member would.
"""

from ottla.base.ids import NO_LEADER
from ottla.testing.sim_clients.client import Port, SimClient
from ottla.testing.sim_clients.coordinator import BACKOFF_MS, Coordinator
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.offset_queries import fetch_offsets

VERSION = 10


class OffsetAuditor:
    """Fetches one group's offsets of one topic. `is_done`: stopped, after a last fetch."""

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
        """Start fetching."""
        self.client.run(self._work())

    def ask_now(self, node: int = NO_LEADER) -> None:
        """Fetch once more, now; `node`: from this one, as if it was just looked up."""
        if node != NO_LEADER:
            self._coordinator.node = node
        self.client.run(self._ask())

    def stop(self) -> None:
        """Stop after a last fetch."""
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
        """Fetch once; tell whether all partitions were answered."""
        keys = self.client.partitions_of(self.topic)
        found = yield from fetch_offsets(self._coordinator, keys, VERSION)
        return isinstance(found, dict) and len(found) == len(keys)
