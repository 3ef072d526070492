"""Three brokers over three ZooKeeper servers, with a gate between each broker and each server.

So a broker can be cut off from ZooKeeper alone, while clients and the other brokers reach it; and
its session can be ended from outside, by what its server said to it first.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat
from kazoo.retry import KazooRetry

from ottla.base.errors import Error
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer

from ..clients import Closing, Refused, client_of, eventually
from .gate import Gate
from .transactions import (
    Reign,
    Transaction,
    check_only_rulers_write,
    reigns,
    replayed,
    transactions,
)

CHROOT = "/cluster"
BROKERS = SERVERS = (1, 2, 3)

_GREETING = struct.Struct(">iiiqi16s")
"""ConnectResponse in its frame: size, protocol, timeout, session, size of the password, it."""

PATIENCE_SECONDS = 60.0

AGAIN = frozenset({Error.NOT_CONTROLLER, Error.INVALID_REPLICATION_FACTOR})
"""What brokers answer that have not noticed yet how long they were away."""

Census = Mapping[str, tuple[bytes, ZnodeStat]]
"""What znodes hold, by path."""


class Ensemble:
    """Use it in a `with` block.

    Fields: `servers`: the ZooKeeper. `cluster`: the brokers. `client`: a session beside theirs,
            straight to the servers, below the chroot.
    """

    def __init__(self, directory: Path, config: Mapping[str, str]) -> None:
        self._directory = directory
        self._config = dict(config)
        self._stack = ExitStack()
        self._gates: dict[tuple[int, int], Gate] = {}
        self.servers: ZooKeeperServer
        self.cluster: Cluster
        self.client: KazooClient

    def __enter__(self) -> "Ensemble":
        with ExitStack() as stack:
            servers = ZooKeeperServer(3, data_dir=self._directory, purges_logs=False)
            self.servers = stack.enter_context(servers)
            # Opened before the brokers, and so closed after them.
            for broker, member in product(BROKERS, self.servers.members):
                gate = stack.enter_context(Gate(member.client_port))
                self._gates[broker, member.id] = gate
            connect = f"{self.servers.connect}{CHROOT}"
            self.cluster = stack.enter_context(
                Cluster(brokers=3, zookeeper=connect, config=self._config)
            )
            self._move_behind_gates()
            retry = KazooRetry(max_tries=-1, delay=0.05, backoff=1)
            self.client = KazooClient(connect, connection_retry=retry, command_retry=retry)
            self.client.start()
            stack.callback(self.client.close)
            stack.callback(self.client.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.heal()
        self._stack.close()

    def _move_behind_gates(self) -> None:
        """Let each broker connect through gates of its own: it reads so at its next start."""
        for broker in BROKERS:
            self.cluster.kill(broker)
            ports = [f"127.0.0.1:{gate.port}" for gate in self.gates(broker)]
            file = self.cluster.data_dir(broker).parent / "node.properties"
            assert self.cluster.zookeeper_connect is not None
            notified = file.read_text()
            assert self.cluster.zookeeper_connect in notified
            file.write_text(
                notified.replace(self.cluster.zookeeper_connect, f"{','.join(ports)}{CHROOT}")
            )
        self.cluster.start()
        self.cluster.wait_ready()

    # -- faults ------------------------------------------------------------------------------------

    def gates(self, broker: int) -> list[Gate]:
        """Return the ways from a broker to ZooKeeper."""
        return [self._gates[broker, each] for each in SERVERS]

    def cut(self, broker: int) -> None:
        """Let no connection of a broker to ZooKeeper live."""
        for gate in self.gates(broker):
            gate.shut()

    def stall(self, broker: int) -> None:
        """Let nothing through between a broker and ZooKeeper, while connections stay."""
        for gate in self.gates(broker):
            gate.hold_requests()
            gate.hold_answers()

    def deafen(self, broker: int) -> None:
        """Let a broker write to ZooKeeper, and get nothing from there."""
        for gate in self.gates(broker):
            gate.hold_answers()

    def heal(self) -> None:
        """Open all gates, and let all servers run again."""
        for gate in self._gates.values():
            gate.open()
        for number in SERVERS:
            if self.servers.pid(number) is None:
                self.servers.restart(number)
            else:
                self.servers.resume(number)
        self.servers.wait_ready()

    def expire(self, broker: int) -> int:
        """End a broker's session, as if its heartbeats had not come for long; return its id."""
        session = self.session(broker)
        stolen = KazooClient(self.servers.connect, client_id=self._identity(broker, session))
        stolen.start()
        stolen.stop()
        stolen.close()
        self.wait(lambda: self.session(broker) != session)
        return session

    def _identity(self, broker: int, session: int) -> tuple[int, bytes]:
        for gate in self.gates(broker):
            for greeting in gate.greetings:
                if len(greeting) >= _GREETING.size:
                    _, _, _, greeted, _, password = _GREETING.unpack_from(greeting)
                    if greeted == session:
                        return session, password
        raise AssertionError(f"no gate of broker {broker} has seen its session 0x{session:x}")

    def depose(self) -> None:
        """End the controller's term as operators do, by deleting `/controller`."""
        self.client.delete("/controller")

    # -- what there is ---------------------------------------------------------------------------

    def wait(self, holds: Any) -> None:
        """Wait until something holds that is seen in ZooKeeper."""
        eventually(holds, within=PATIENCE_SECONDS)

    def session(self, broker: int) -> int:
        """Return the session by which a broker is registered; 0 = it is not."""
        stat = self.client.retry(self.client.exists, f"/brokers/ids/{broker}")
        return 0 if stat is None else int(stat.ephemeralOwner)

    def epoch(self) -> int:
        """Return the controller epoch."""
        return int(self.client.retry(self.client.get, "/controller_epoch")[0])

    def controller(self) -> int:
        """Return the elected broker; -1 = none."""
        with suppress(KazooException, KazooTimeoutError):
            return int(json.loads(self.client.get("/controller")[0])["brokerid"])
        return -1

    def wait_elected(self, after: int, besides: int = -1) -> int:
        """Wait for a controller of an epoch later than `after`; return it."""
        self.wait(lambda: self.epoch() > after and self.controller() not in (-1, besides))
        return self.controller()

    def census(self) -> Census:
        """Return all that the controllers have written of topics, and the epoch."""
        return dict(self._tree("/brokers/topics")) | dict(self._tree("/controller_epoch"))

    def _tree(self, path: str) -> Iterator[tuple[str, tuple[bytes, ZnodeStat]]]:
        yield path, self.client.retry(self.client.get, path)
        for name in self.client.retry(self.client.get_children, path):
            yield from self._tree(f"{path}/{name}")

    def transactions(self) -> list[Transaction]:
        """Return all that was done in ZooKeeper so far."""
        return transactions([self._directory / f"server-{each}" / "data" for each in SERVERS])

    def check_only_rulers_wrote(self) -> None:
        """Check all that was ever written of topics; that it is all, what is there now shows."""

        def difference() -> set[tuple[str, bytes]]:
            stored = {(f"{CHROOT}{path}", data) for path, (data, _) in self.census().items()}
            return stored ^ {
                (path, data)
                for path, data in replayed(self.transactions()).items()
                if path.startswith((f"{CHROOT}/brokers/topics", f"{CHROOT}/controller_epoch"))
            }

        eventually(difference, lambda found: not found, what="the logs to tell what is stored")
        assert check_only_rulers_write(self.transactions(), CHROOT)

    def reigns(self) -> list[Reign]:
        """Return all elections so far."""
        return reigns(self.transactions(), CHROOT)

    # -- progress ----------------------------------------------------------------------------------

    def check_topics_can_be_created(self, name: str) -> None:
        """Create a topic of three replicas, once there are brokers for them."""
        self.cluster.wait_ready()
        refusals: list[int] = []
        with Closing(client_of("confluent").admin(self.cluster.bootstrap)) as admin:

            def is_created() -> bool:
                try:
                    admin.create_topic(name, partitions=2, replication_factor=3, config={})
                except Refused as refused:
                    refusals.append(refused.code)
                    # A controller whose session ended may have done what it could not answer.
                    if refused.code == Error.TOPIC_ALREADY_EXISTS and len(refusals) > 1:
                        return True
                    if refused.code not in AGAIN:
                        raise
                    return False
                return True

            eventually(is_created, within=PATIENCE_SECONDS, what=f"{name} to be created")
        self.cluster.wait_in_sync(name)

    def check_leaders_can_be_elected(self, topic: str) -> None:
        """Have each partition of a topic led by the replica that is meant to."""
        self.cluster.wait_in_sync(topic)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        partitions = [TopicPartition(topic, number) for number in self.cluster.partitions(topic)]
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(PATIENCE_SECONDS)

        def are_preferred() -> bool:
            found = self.cluster.partitions(topic).values()
            return all(each.leader == each.replicas[0] for each in found)

        self.wait(are_preferred)
