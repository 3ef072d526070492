"""Broker 1 with a remote tier: topic `t`, whose partitions' older segments are in a store.

The store answers at once, or, while `held`, when the test says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ottla.base.ids import Uuid
from ottla.base.object_store import Call, Failure, ObjectStore, SettableCall, StoreError
from ottla.base.pending import Pending, completed
from ottla.base.ports import Buffer
from ottla.broker.api import k01_fetch
from ottla.broker.ports import Connection
from ottla.broker.remote.reads.reads import RemoteReader, RemoteReadLimits
from ottla.records.batch import iter_headers
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.unit.broker.harness import START_MS, TOPIC_ID, BrokerHarness, received
from tests.unit.broker.remote.support import RemoteLog, TieredLog, copied, tiered

VERSION = k01_fetch.API.versions[-1]


class HeldStore:
    """The reading half of a store. `calls`: those that were not answered; `count`: of all."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.held = False
        self.failure: Failure | None = None
        self.calls: list[tuple[str, Callable[[], None]]] = []
        self.count = 0

    def get_range(self, name: str, start: int, length: int, **_how: object) -> Call[Buffer]:
        call: SettableCall[Buffer] = SettableCall()
        self.count += 1

        def answer() -> None:
            data = self.objects.get(name)
            if self.failure is not None:
                call.result.complete(StoreError(self.failure, name))
            elif data is None:
                call.result.complete(StoreError(Failure.NOT_FOUND, name))
            elif start >= len(data):
                call.result.complete(StoreError(Failure.INVALID, name))
            else:
                call.result.complete(data[start : start + length])

        if self.held:
            self.calls.append((name, answer))
            call.on_cancel(lambda: self._cancelled(answer))
        else:
            answer()
        return call

    def _cancelled(self, answer: Callable[[], None]) -> None:
        self.calls = [each for each in self.calls if each[1] is not answer]

    def answer(self, names: str = "") -> None:
        """Answer the calls for objects with these letters, and those that follow from them."""
        while matching := [each for each in self.calls if names in each[0]]:
            self.calls.remove(matching[0])
            matching[0][1]()


class TieredHarness(BrokerHarness):
    """See the module.

    With `properties` the broker has all of tiered storage, else the reads alone. Its copies and
    deletions do not begin, as nobody creates the topic of their metadata.
    """

    def __init__(
        self,
        partitions: int = 2,
        limits: RemoteReadLimits | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.store = HeldStore()
        store = cast(ObjectStore, self.store)
        super().__init__(properties, store=None if properties is None else store)
        self.remote_logs: dict[int, RemoteLog] = {}
        if self.broker.remote is not None:
            self.reader = self.broker.remote.reads
            self.reader._remote_logs = self.remote_log
        else:
            self.reader = RemoteReader(store, self.remote_log, self.clock, self.timers, limits)
            self.broker.replicas.fetch_reader.remote = self.reader
        self.add_broker()
        self.add_broker(2)
        self.add_topic(partitions=partitions)

    def remote_log(self, topic_id: Uuid, partition: int) -> RemoteLog | None:
        return self.remote_logs.get(partition)

    def write(self, index: int, count: int = 20) -> None:
        """Append one record a batch, a millisecond apart; five of them a segment."""
        for number in range(count):
            rows = [(None, b"%d" % number, (), START_MS + number)]
            self.broker.replicas.append("t", index, encode_batch(rows))
            if number % 5 == 4 and number + 1 < count:
                log = self.broker.replicas.partition("t", index).log
                assert log is not None
                log.roll(self.clock.now_ms())

    def tier(self, index: int, remote: int | None = None) -> TieredLog:
        """Copy a partition's sealed segments, and delete the first so many, or all, locally."""
        log = self.broker.replicas.partition("t", index).log
        assert log is not None
        segments = copied(log, self.disk, self.store.objects.__setitem__)
        self.remote_logs[index] = RemoteLog(segments)
        return tiered(log, len(segments) if remote is None else remote)

    def begin_on(self, connection: Connection, request: Any, version: int) -> Pending[Any]:
        """Ask over a connection that has been used before."""
        ctx = replace(self.context(1, version), connection=connection)
        answer = k01_fetch.handle(ctx, request)
        pending = answer if isinstance(answer, Pending) else completed(answer)
        return pending.map(lambda late: received(late, version))

    def request(self, offsets: Sequence[int], **how: Any) -> FetchRequest:
        """Return a consumer's fetch of the partitions from 0 on."""
        room = how.pop("room", 1_000_000)
        partitions = tuple(
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=room)
            for index, offset in enumerate(offsets)
        )
        topic = FetchTopic(topic_id=TOPIC_ID, partitions=partitions)
        return FetchRequest(
            **({"max_wait_ms": 100, "min_bytes": 1, "topics": (topic,), "session_epoch": -1} | how)
        )


def offsets_in(part: Any) -> list[int]:
    """Return the offsets of a response's records, which are their values, too."""
    data = bytes(part.records or b"")
    size = sum(header.size_in_bytes for _, header in iter_headers(data, allow_partial=True))
    found = [(record.offset, record.value) for record in iter_records(data[:size])]
    assert all(int(bytes(value or b"")) == offset for offset, value in found)
    return [offset for offset, _ in found]
