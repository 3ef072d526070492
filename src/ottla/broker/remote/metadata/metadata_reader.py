"""The readers of all partitions of the metadata topic that this broker needs.

A metadata partition is read while an assigned user partition maps to it. The mapping depends on
the topic's partition count. Where the topic is another one, or has another count, everything is
read again.
"""

from collections.abc import Iterable

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed, gather, nothing
from ottla.base.timers import Timer
from ottla.broker.remote.metadata.metadata_chunks import UserPartition
from ottla.broker.remote.metadata.metadata_partition_reader import PartitionReader, ReaderPorts
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.remote_log import RemoteLog


class MetadataReader:
    """See the module. `ports.on_ready` is called with each user partition that becomes ready."""

    def __init__(self, ports: ReaderPorts, *, checkpoint_interval_ms: int) -> None:
        self._ports = ports
        self._interval_ms = checkpoint_interval_ms
        self._topic_id: Uuid | None = None
        self._count = 0
        self._readers: dict[int, PartitionReader] = {}
        self._assigned: dict[UserPartition, None] = {}
        self._timer: Timer | None = None

    def follow(self, topic_id: Uuid | None, count: int) -> None:
        """Read this topic of so many partitions; None = it does not exist."""
        if (topic_id, count) == (self._topic_id, self._count):
            return
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._topic_id, self._count = topic_id, count
        self._read(self._assigned)

    def assign(self, users: Iterable[UserPartition]) -> None:
        """Read for these user partitions, too."""
        new = [user for user in users if user not in self._assigned]
        self._assigned |= dict.fromkeys(new)
        self._read(new)

    def unassign(self, users: Iterable[UserPartition]) -> None:
        """Stop reading for these."""
        gone = [user for user in users if user in self._assigned]
        for user in gone:
            del self._assigned[user]
        for index, of_reader in self._by_reader(gone):
            reader = self._readers.get(index)
            if reader is not None:
                reader.unassign(of_reader)
                if not reader.is_needed:
                    self._readers.pop(index, None)

    def remote_log(self, user: UserPartition) -> RemoteLog | None:
        """Return a user partition's log; None while it is not ready."""
        reader = self._reader_of(user)
        return None if reader is None else reader.log_of(user)

    def when_read(self, user: UserPartition, offset: int) -> Pending[ApiError | None]:
        """See `PartitionReader.when_read`."""
        reader = self._reader_of(user)
        return completed(None) if reader is None else reader.when_read(user, offset)

    @property
    def assigned(self) -> Iterable[UserPartition]:
        """Return the assigned user partitions."""
        return self._assigned

    @property
    def lag(self) -> int:
        """Return the committed records, as far as known, that are not replayed yet."""
        return sum(reader.lag for reader in self._readers.values())

    def close(self) -> Pending[None]:
        """Stop reading; return the promise that the checkpoints are written."""
        if self._timer is not None:
            self._timer.cancel()
        readers = [self._readers[index] for index in sorted(self._readers)]
        written = [reader.last_checkpoint() for reader in readers]
        self._readers.clear()
        for reader in readers:
            reader.close()
        return gather([each for each in written if each is not None]).map(nothing)

    def _reader_of(self, user: UserPartition) -> PartitionReader | None:
        if not self._count:
            return None
        return self._readers.get(metadata_partition(*user, self._count))

    def _by_reader(self, users: Iterable[UserPartition]) -> list[tuple[int, list[UserPartition]]]:
        found: dict[int, list[UserPartition]] = {}
        if self._count:
            for user in users:
                found.setdefault(metadata_partition(*user, self._count), []).append(user)
        return sorted(found.items())

    def _read(self, users: Iterable[UserPartition]) -> None:
        if self._topic_id is None:
            return
        for index, of_reader in self._by_reader(users):
            reader = self._readers.get(index)
            if reader is None:
                reader = PartitionReader((self._topic_id, index), self._ports)
                self._readers[index] = reader
            reader.assign(of_reader)
        if self._timer is None and self._readers:
            self._arm()

    def _arm(self) -> None:
        ports = self._ports
        due_ms = ports.clock.monotonic_ms() + self._interval_ms
        self._timer = ports.timers.at(due_ms, self._write_checkpoints)

    def _write_checkpoints(self) -> None:
        self._timer = None
        for index in sorted(self._readers):
            self._readers[index].checkpoint()
        if self._readers:
            self._arm()
