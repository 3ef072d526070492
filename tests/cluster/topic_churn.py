"""Topics that are created and deleted all the time, and what must be true of them afterwards.

Each worker owns its names, so that what a name's last acknowledged change was is known. An answer
that never came leaves both outcomes open, until a later one settles it. What was asked of a node
that is frozen then, it does when it wakes: a topic of a name that was deleted may come again, but
never the same one, which its id tells.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.testing.cluster_facts import UNREACHABLE
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

from .background import Background
from .clients import eventually

WORKERS = 3
KEPT_EACH = 4
PARTITIONS = 10
REPLICAS = 3
ASK_SECONDS = 4.0
"""A frozen node never answers; a controller that fails over does within that."""
PAUSE_SECONDS = 0.4


class Churn(Background):
    """Keeps one of KEPT_EACH topics. Use it in a `with` block; `check` after it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ports = [plan.port for plan in cluster.brokers]
        super().__init__([partial(self._work, index) for index in range(WORKERS)], patience=60)
        self.created: set[str] = set()
        """Acknowledged, and not deleted since."""
        self.deleted: dict[str, Uuid] = {}
        """Acknowledged: names, with the ids that their topics had."""
        self.changes = 0

    def begun(self) -> None:
        """Wait until it goes."""
        self.wait_progress()

    def wait_progress(self, more: int = 6) -> None:
        """Wait until so many more changes are acknowledged."""
        wanted = self.changes + more

        def missing() -> int:
            assert self.errors == [], self.errors
            return wanted - self.changes

        eventually(missing, lambda found: found <= 0, what="changed topics")

    def check(self) -> None:
        """Check that what was acknowledged is so, on every broker, with a leader for each."""
        assert self.errors == [], self.errors
        assert self.deleted, "nothing was deleted whose id is known"
        for port in self._ports:
            try:
                eventually(partial(self._wrong, port), lambda found: not found, what="topics")
            except AssertionError:
                self._print_logs(self._wrong(port))
                raise

    def _wrong(self, port: int) -> list[str]:
        """Return what one broker says that contradicts an acknowledgement."""
        with Connection("127.0.0.1", port, client_id="churn", timeout=ASK_SECONDS) as broker:
            answer = broker.ask(MetadataRequest(topics=None), MetadataResponse, timeout=ASK_SECONDS)
        found = {topic.name: topic for topic in answer.topics if topic.name is not None}
        wrong = [f"{name} is lost" for name in sorted(self.created - set(found))]
        wrong += [
            f"{name} is back"
            for name in sorted(self.deleted.keys() & set(found))
            if found[name].topic_id == self.deleted[name]
        ]
        for name in sorted(self.created & set(found)):
            partitions = found[name].partitions
            led = sum(each.leader_id >= 0 for each in partitions)
            if (len(partitions), led) != (PARTITIONS, PARTITIONS):
                wrong.append(f"{name} has {len(partitions)} partitions, {led} led")
        return wrong

    def _print_logs(self, wrong: list[str]) -> None:
        """Print what the nodes' logs say of the topics in question, and of terms and sessions."""
        words = {*(line.split()[0] for line in wrong), "controller", "session", "deleted while"}
        for plan in self._cluster.nodes:
            for line in self._cluster.logs(plan.id).splitlines():
                if any(word in line for word in words):
                    print(f"node {plan.id}: {line}")

    def _work(self, index: int) -> None:
        for number in itertools.count():
            if self._stop.wait(PAUSE_SECONDS):
                return
            name = f"churn-{index}-{number}"
            topic_id = self._until_done(self._create, name)
            if topic_id is None:
                return
            self.created.add(name)
            self.changes += 1
            if number % KEPT_EACH:
                self.created.discard(name)
                if self._until_done(self._delete, name) is None:
                    return
                if topic_id != NO_UUID:
                    self.deleted[name] = topic_id
                self.changes += 1

    def _until_done(self, attempt: Callable[[int, str], Uuid | None], name: str) -> Uuid | None:
        """Ask one broker after the other until one has done it; None = told to stop."""
        for port in itertools.cycle(self._ports):
            with suppress(*UNREACHABLE):
                done = attempt(port, name)
                if done is not None:
                    return done
            if self._stop.wait(PAUSE_SECONDS):
                return None
        raise AssertionError("a cycle ends never")

    def _create(self, port: int, name: str) -> Uuid | None:
        """Return the topic's id, NO_UUID where it is not told; None = ask again."""
        topic = create_wire.CreatableTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=REPLICAS,
            assignments=(),
            configs=(),
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=3_000)
        with Connection("127.0.0.1", port, client_id="churn", timeout=ASK_SECONDS) as broker:
            answer = broker.ask(request, create_wire.CreateTopicsResponse, timeout=ASK_SECONDS)
        [made] = answer.topics
        # An earlier attempt, whose answer was lost, may have made it.
        is_there = made.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
        return made.topic_id if is_there else None

    def _delete(self, port: int, name: str) -> Uuid | None:
        topic = delete_wire.DeleteTopicState(name=name, topic_id=NO_UUID)
        request = delete_wire.DeleteTopicsRequest(topics=(topic,), timeout_ms=3_000)
        with Connection("127.0.0.1", port, client_id="churn", timeout=ASK_SECONDS) as broker:
            answer = broker.ask(request, delete_wire.DeleteTopicsResponse, timeout=ASK_SECONDS)
        is_gone = answer.responses[0].error_code in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION)
        return NO_UUID if is_gone else None
