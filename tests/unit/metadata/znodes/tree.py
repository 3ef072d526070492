"""A tree of znodes for tests: versions counted, multis done whole or not at all, all of it read."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    Result,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.known import KnownZnodes
from ottla.metadata.znodes.load import Loaded, Snapshot, TieringNodes, records_of
from ottla.metadata.znodes.multis import Write
from ottla.metadata.znodes.paths import Kind
from ottla.metadata.znodes.write import after_write, writes_of

EPOCH = 7
"""Of the controller that writes."""


class Tree:
    """Znodes by path, with the roots that every broker makes sure of."""

    def __init__(self) -> None:
        self.nodes: dict[str, ZnodeData] = {}
        self.child_counts: Counter[str] = Counter()
        self.zxid = 100
        self.sequence = 0
        for path in paths.PERSISTENT:
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                if "/".join(parts[:end]) not in self.nodes:
                    self.multi((Create("/".join(parts[:end])),))
        self.put(paths.CONTROLLER_EPOCH, b"7")

    @property
    def epoch_version(self) -> int:
        return self.nodes[paths.CONTROLLER_EPOCH].stat.version

    def put(self, path: str, data: bytes) -> Stat:
        """Write as another client would: create or set, with the parents."""
        parts = path.split("/")
        for end in range(2, len(parts)):
            if "/".join(parts[:end]) not in self.nodes:
                self.multi((Create("/".join(parts[:end])),))
        self.multi((SetData(path, data) if path in self.nodes else Create(path, data),))
        return self.nodes[path].stat

    def drop(self, path: str) -> None:
        """Delete a node and all below it."""
        for each in sorted(self.nodes, reverse=True):
            if each == path or each.startswith(f"{path}/"):
                self.multi((Delete(each),))

    def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """Do all operations, or none. Raises: ZkError."""
        before, self.zxid = (dict(self.nodes), self.child_counts.copy()), self.zxid + 1
        try:
            return tuple(self._do(each) for each in operations)
        except ZkError:
            self.nodes, self.child_counts = before
            raise

    def _do(self, operation: Operation) -> Result:
        path = operation.path
        if isinstance(operation, Create):
            if operation.sequential:
                path, self.sequence = f"{path}{self.sequence:010}", self.sequence + 1
            if path in self.nodes:
                raise ZkError(ZkCode.NODE_EXISTS, path)
            if path.count("/") > 1 and path.rpartition("/")[0] not in self.nodes:
                raise ZkError(ZkCode.NO_NODE, path)
            self.child_counts[path.rpartition("/")[0]] += 1
            self.nodes[path] = ZnodeData(operation.data, Stat(self.zxid, self.zxid, 0, 0, 0, 0, 0))
            return path
        if path not in self.nodes:
            raise ZkError(ZkCode.NO_NODE, path)
        stat = self.nodes[path].stat
        if operation.version not in (ANY_VERSION, stat.version):
            raise ZkError(ZkCode.BAD_VERSION, path)
        if isinstance(operation, SetData):
            stat = stat._replace(version=stat.version + 1, mzxid=self.zxid)
            self.nodes[path] = ZnodeData(operation.data, stat)
            return stat
        if isinstance(operation, Delete):
            if self.child_counts[path]:
                raise ZkError(ZkCode.NOT_EMPTY, path)
            self.child_counts[path.rpartition("/")[0]] -= 1
            del self.nodes[path]
        else:
            assert isinstance(operation, Check)
        return None

    def snapshot(self) -> Snapshot:
        """Read everything, as a controller does when it is elected."""
        there: dict[Kind, dict[Any, Any]] = {kind: {} for kind in Kind}
        for path, got in self.nodes.items():
            place = paths.parse_path(path)
            kind, name, number = place
            if kind is Kind.BROKER:
                there[kind][number] = got
            elif kind is Kind.TOPIC:
                there[kind][name] = got
            elif kind is Kind.PARTITIONS:
                there[kind].setdefault(name, [])
            elif kind is Kind.PARTITION:
                there[Kind.PARTITIONS][name].append(number)
                there[Kind.STATE][name, number] = self.nodes.get(f"{path}/state")
            elif kind is Kind.TIERING:
                there[kind][name] = TieringNodes(
                    self.nodes.get(paths.tiered_epoch(name)),
                    self.nodes.get(paths.tiering_state(name)),
                )
            elif kind is Kind.CONFIG:
                there[kind][number, name] = got
            elif kind is Kind.DELETION:
                there[kind][paths.deletion_id(name)] = got
            elif kind is Kind.MARKER:
                there[kind][name] = got
        return Snapshot(
            brokers=there[Kind.BROKER],
            topics=there[Kind.TOPIC],
            states=there[Kind.STATE],
            partition_nodes={
                name: frozenset(numbers) for name, numbers in there[Kind.PARTITIONS].items()
            },
            tiering=there[Kind.TIERING],
            configs=there[Kind.CONFIG],
            deletions=there[Kind.DELETION],
            feature=self.nodes.get(paths.FEATURE),
            producer_ids=self.nodes.get(paths.PRODUCER_IDS),
            marked_for_deletion=frozenset(there[Kind.MARKER]),
        )

    def load(self) -> tuple[ClusterImage, Loaded]:
        """Return the image of what is stored, and what else came of reading it."""
        loaded = records_of(self.snapshot())
        return replay(EMPTY, loaded.records, offset=0, epoch=0).image, loaded


class Cluster:
    """A tree, the image that a controller keeps of it, and what it knows of the znodes."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.tree = tree or Tree()
        self.image, loaded = self.tree.load()
        self.known: KnownZnodes = loaded.known
        self.writes: list[Write] = []

    def plan(self, records: Sequence[Record]) -> list[Write]:
        """Return the multis for a step on the present image."""
        return writes_of(
            self.image,
            records,
            self.known,
            controller_epoch=EPOCH,
            epoch_version=self.tree.epoch_version,
        )

    def write(self, records: Sequence[Record], *, count: int | None = None) -> list[Write]:
        """Write a step, or its first multis; after each the image must be what is stored."""
        writes = self.plan(records)[:count]
        for write in writes:
            self.done(write)
        return writes

    def done(self, write: Write) -> None:
        """Do one multi."""
        results = self.tree.multi(write.operations)
        self.known = after_write(self.known, write, results)
        self.image = replay(self.image, write.records, offset=0, epoch=0).image
        self.writes.append(write)

    def check(self) -> None:
        """Compare the image, and what is known, with what is stored."""
        stored, loaded = self.tree.load()
        assert not loaded.problems
        assert stored == replace(self.image, position=stored.position)
        assert without_czxids(loaded.known) == without_czxids(self.known)


def without_czxids(known: KnownZnodes) -> KnownZnodes:
    """Return what is known without what only a read returns."""
    topics = known.topics
    for name, topic in topics.items():
        topics = topics.set(name, replace(topic, czxid=0))
    return replace(known, topics=topics)
