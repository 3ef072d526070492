"""Applies the promise of each topic (see `Promise`) to what checkers look for.

Acknowledged records may be lost where a topic allows unclean elections and one was held, or where
one copy is enough and a broker lost unflushed data; compaction may remove single records whose key
has a newer one.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.testing.history.history import History, LogSeen, PartitionSeen, Write
from ottla.testing.history.topics import KEEPS_ALL, Outcome, Promise, TopicPartition

NEVER_MS = 1 << 62
LATE_MS = 60_000
"""How long after its end a write, or a copy of its request, may still be appended: brokers are
paused for up to 20 s, and links are cut for up to 9 s."""


class Promises:
    """What a history's topics promise. Built once for each checker, from the whole history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._unclean = unclean_elections(history)
        self._last_unclean_epochs: dict[TopicPartition, int] | None = None
        self._replicas: defaultdict[TopicPartition, set[int]] | None = None
        self._keys: dict[bytes, bytes] | None = None
        self._sent_ms: dict[bytes, int] = {}
        self._tombstones: defaultdict[bytes, list[tuple[int, int]]] = defaultdict(list)
        """By key: where each is, and until when it may have been appended."""
        self._newest: dict[tuple[int, TopicPartition], dict[bytes, int]] = {}

    def of(self, topic_id: Uuid) -> Promise:
        """Return what a topic promises."""
        return self._history.promises.get(topic_id, KEEPS_ALL)

    def stands(self, partition: TopicPartition, since_ms: int, *, epoch: int = NO_EPOCH) -> bool:
        """Tell whether a record that existed at `since_ms` must exist in the end.

        `epoch`: of the leader that had it, -1 = not known. What the last leader of an unclean
        election had, or a leader after it, must stay.

        A loss of power may come between a response and its arrival.
        """
        history, promise = self._history, self.of(partition[0])
        if promise.unclean and partition in self._unclean:
            if self._last_unclean_epochs is None:
                self._last_unclean_epochs = last_unclean_epochs(history)
            if epoch < self._last_unclean_epochs[partition]:
                return False
        if promise.weak and self._may_be_lost(partition, since_ms, NEVER_MS):
            return False
        return partition[0] not in history.deleted

    def stood(self, partition: TopicPartition, at_ms: int) -> bool:
        """Tell whether no acknowledged record could have been lost until then."""
        promise = self.of(partition[0])
        if promise.unclean and self._unclean.get(partition, NEVER_MS) <= at_ms:
            return False
        return self.kept_own(partition, at_ms)

    def kept_own(self, partition: TopicPartition, at_ms: int) -> bool:
        """Tell whether no replica could have lost records of its own log until then.

        An unclean election truncates logs, but each of them remains whole.
        """
        return not (self.of(partition[0]).weak and self._may_be_lost(partition, -1, at_ms))

    def _may_be_lost(self, partition: TopicPartition, first_ms: int, last_ms: int) -> bool:
        """Tell whether a disk of a replica has ever failed, or one lost its power in that time.

        Every broker counts that was a replica at any time, or all where none is known.
        """
        if self._replicas is None:
            self._replicas = defaultdict(set)
            for state in self._history.partitions:
                self._replicas[state.partition].update(state.replicas)
        nodes = set(self._history.disks_failed)
        nodes.update(
            each.node for each in self._history.losses if first_ms <= each.at_ms <= last_ms
        )
        replicas = self._replicas.get(partition)
        return bool(nodes if replicas is None else nodes & replicas)

    def keeps(self, log: LogSeen, offset: int, value: bytes) -> bool:
        """Tell whether a log has a record, or need not have it.

        A log may begin later where the topic trims, and up to where tiered storage was disabled
        with delete.
        """
        held, promise = log.values.get(offset), self.of(log.partition[0])
        if held == value:
            return True
        may_begin_later = promise.trimmed or offset < self._history.tiers.given_up.get(
            log.partition, -1
        )
        if offset < log.start and may_begin_later:
            return True
        return held is None and promise.compacted and self._is_replaced(log, offset, value)

    # -- compaction ----------------------------------------------------------------------------

    def _is_replaced(self, log: LogSeen, offset: int, value: bytes) -> bool:
        keys = self._known_keys()
        key = keys.get(value)
        if key is None:
            return False
        place = log.node, log.partition
        newest = self._newest.get(place)
        if newest is None:
            newest = self._newest[place] = {
                keys[held]: where for where, held in sorted(log.values.items()) if held in keys
            }
        return newest.get(key, -1) > offset or self.is_deleted(log.partition[0], key, offset, value)

    def is_deleted(self, topic_id: Uuid, key: bytes, offset: int, value: bytes) -> bool:
        """Tell whether the key of a record has a tombstone at or after its offset that may be
        removed, and with it the record that it deletes. A replica that fetches neither keeps the
        record (`delete.retention.ms`).
        """
        if self.of(topic_id).keeps_tombstones:
            return False
        self._known_keys()
        sent_ms = self._sent_ms.get(value, -1)
        return any(
            where >= offset or (where < 0 and sent_ms <= last_ms)
            for where, last_ms in self._tombstones.get(key, ())
        )

    def _known_keys(self) -> dict[bytes, bytes]:
        """Return the key of each value; note when it was first sent, and where tombstones are.

        A tombstone whose offset is unknown (-1) is behind no record that was first sent after it
        could last be appended.
        """
        if self._keys is None:
            self._keys = {}
            for write in self._history.writes:
                if not write.keys or not self._may_be_appended(write):
                    continue
                is_placed = write.offset >= 0 and not self._may_have_copies(write)
                last_ms = write.ended_ms + LATE_MS
                for index, (value, key) in enumerate(zip(write.values, write.keys, strict=True)):
                    self._keys[value], self._sent_ms[value] = key, write.sent_ms
                    if write.tombstones[index]:
                        where = write.offset + index if is_placed else -1
                        self._tombstones[key].append((where, last_ms))
        return self._keys

    def _may_be_appended(self, write: Write) -> bool:
        """Tell whether a log may have had it. The second copy of a request may be accepted after
        the first one was rejected.
        """
        return write.outcome is not Outcome.FAILED or self._history.requests_repeated

    def _may_have_copies(self, write: Write) -> bool:
        """Tell whether a log may have had it at other offsets than the acknowledged one, too.

        A copy of a tombstone deletes what was written between the two, and may be removed itself.
        No log shows then that it was there.
        """
        return write.producer is None and self._history.requests_repeated


def unclean_elections(history: History) -> dict[TopicPartition, int]:
    """Return when each partition was first led by a replica that may lack committed records."""
    found: dict[TopicPartition, int] = {}
    for state in _elected_uncleanly(history):
        found.setdefault(state.partition, state.at_ms)
    return found


def last_unclean_epochs(history: History) -> dict[TopicPartition, int]:
    """Return the leader epoch that each partition's last such election began."""
    return {each.partition: each.leader_epoch for each in _elected_uncleanly(history)}


def _elected_uncleanly(history: History) -> Iterator[PartitionSeen]:
    """Yield the elections of replicas that were not in sync, where such elections are allowed.

    The change that ends a reassignment may add its last replica to the ISR and elect it at once: a
    member of the former ISR stays beside it. An unclean election leaves its leader alone in the
    ISR.
    """
    last: dict[TopicPartition, PartitionSeen] = {}
    for state in history.partitions:
        before = last.get(state.partition)
        last[state.partition] = state
        if before is None or state.leader < 0 or state.leader == before.leader:
            continue
        promise = history.promises.get(state.partition[0], KEEPS_ALL)
        if not (promise.unclean or state.unclean):
            continue
        if state.leader in chain(before.isr, before.elr):
            continue
        if before.leader in state.replicas or set(before.isr).isdisjoint(state.isr):
            yield state
