"""A compacted log against a dictionary, through everything that can happen to it.

Method: Hypothesis draws records and tombstones of a few keys, rolls, cleanings, waits, clean
restarts, and deaths of the process or of the machine at any disk operation of a cleaning. After
each step the newest value of every key is there at the offset that it always had, a tombstone as
long as delete.retention.ms at least, and nothing that is read differs from what was written. A
second test dies at every single operation of one cleaning.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.records.builder import encode_batch
from ottla.records.compression import Codec
from tests.drawn import examples
from tests.unit.log.cleaner_storage import DELETE_RETENTION_MS, Died, Storage, dies

KEYS = [b"a", b"b", b"c", b"long" * 20]
CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=4)


class CleanedLog(RuleBasedStateMachine):
    """See the module."""

    @initialize(partial=st.booleans())
    def begin(self, partial: bool) -> None:
        self.storage = Storage()
        if partial:
            # A map so small that one cleaning rarely reaches the end.
            self.storage.settings = type(self.storage.settings)(map_bytes=24 * 3, write_bytes=1)
        self.written: list[tuple[int, bytes, bytes | None, int]] = []
        self.sequence = 0
        self.last: tuple[bytes, int] | None = None

    @rule(changes=CHANGES, codec=st.sampled_from([Codec.NONE, Codec.LZ4]), size=st.integers(0, 60))
    def append(self, changes: list[tuple[bytes, bool]], codec: Codec, size: int) -> None:
        now_ms = self.storage.env.clock.ms
        rows = []
        for index, (key, is_tombstone) in enumerate(changes):
            value = None if is_tombstone else b"%d-%d" % (len(self.written), index) + bytes(size)
            rows.append((key, value, (("h", b"x"),), now_ms - index))
        data = encode_batch(
            rows, codec=codec, producer_id=7, producer_epoch=0, base_sequence=self.sequence
        )
        first = self.storage.append(bytearray(data))
        self.sequence += len(rows)
        self.last = (data, first)
        for index, (key, value, _, _) in enumerate(rows):
            self.written.append((first + index, key, value, now_ms))

    @rule()
    def roll(self) -> None:
        self.storage.roll()

    @rule()
    def flush(self) -> None:
        self.storage.log.flush()

    @rule(ms=st.sampled_from([1, 500, DELETE_RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.storage.env.pass_ms(ms)

    @rule()
    def clean(self) -> None:
        self.storage.clean()
        log = self.storage.log
        below = [key for offset, key, _ in self.storage.rows() if offset < log.clean_offset]
        assert len(below) == len(set(below))

    @rule()
    def restart(self) -> None:
        self.storage.stop()
        self.storage.start()

    @rule(
        operation=st.integers(0, 120),
        keep=st.none() | st.integers(0, 200),
    )
    def die_while_cleaning(self, operation: int, keep: int | None) -> None:
        """Die by a kill (`keep` None) or by a power loss that keeps so many unsynced bytes."""
        flushed = self.storage.log.recovery_point
        self.storage.die_at(operation)
        try:
            self.storage.clean()
            self.storage.env.pass_ms(200)
        except Died:
            pass
        self.storage.disk.on_operation = None
        if keep is None:
            self.storage.disk.kill()
        else:
            self.storage.disk.crash(lambda path, count: min(count, keep))
        self.storage.start()
        end = self.storage.log.log_end_offset
        assert end >= flushed
        if keep is None:
            assert end == (self.written[-1][0] + 1 if self.written else 0)
        if end <= (self.written[-1][0] if self.written else -1):
            self.written = [entry for entry in self.written if entry[0] < end]
            self.last = None
            entries = self.storage.log.producer_states()
            self.sequence = entries[0].last_sequence + 1 if entries else 0

    @rule()
    def retry(self) -> None:
        """The last batch again: it is known, whatever compaction left of it."""
        if self.last is not None:
            end = self.storage.log.log_end_offset
            assert self.storage.append(bytearray(self.last[0])) == self.last[1]
            assert self.storage.log.log_end_offset == end

    @invariant()
    def nothing_is_lost_or_comes_back(self) -> None:
        if hasattr(self, "written"):
            check(self.storage, self.written)


def check(storage: Storage, written: list[tuple[int, bytes, bytes | None, int]]) -> None:
    found = storage.rows()
    known = {offset: (key, value) for offset, key, value, _ in written}
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    for offset, key, value in found:
        assert known[offset] == (key, value)
    newest = {key: (offset, value, at_ms) for offset, key, value, at_ms in written}
    state = {key: (offset, value) for offset, key, value in found}
    for key, (offset, value, at_ms) in newest.items():
        if value is None and key not in state:
            assert storage.env.clock.ms - at_ms >= DELETE_RETENTION_MS
        else:
            assert state[key] == (offset, value)


TestCleanedLog = CleanedLog.TestCase
TestCleanedLog.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def history(storage: Storage) -> list[tuple[int, bytes, bytes | None, int]]:
    """Write, clean and write again, so that the next cleaning has all kinds of work."""
    written: list[tuple[int, bytes, bytes | None, int]] = []
    for number in range(24):
        key = KEYS[number % 3]
        value = None if number in (9, 13) else b"%d" % number + bytes(80)
        data = encode_batch([(key, value, (), storage.env.clock.ms)])
        written.append((storage.append(bytearray(data)), key, value, storage.env.clock.ms))
        if number == 14:
            storage.clean()
            storage.env.pass_ms(DELETE_RETENTION_MS)
    storage.roll()
    return written


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("keep", [None, 0, 1 << 20], ids=["killed", "power lost", "torn"])
def test_a_death_at_any_operation_loses_nothing(keep: int | None) -> None:
    def run(operation: int | None) -> tuple[Storage, bool]:
        storage = Storage()
        written = history(storage)
        storage.die_at(operation)
        died = dies(lambda: (storage.cleaner.start_cleanings(), storage.env.pass_ms(2_000)))
        storage.disk.on_operation = None
        if died:
            if keep is None:
                storage.disk.kill()
            else:
                storage.disk.crash(lambda path, count: min(count, keep))
            storage.start()
        check(storage, written)
        storage.clean()
        storage.env.pass_ms(2_000)
        check(storage, written)
        assert len(storage.rows()) == len({key for _, key, _ in storage.rows()})
        assert not [name for name in storage.names() if name.count(".") > 1]
        return storage, died

    operation = 0
    while run(operation)[1]:
        operation += 1
    assert operation > 40  # Else the cleaning did not do what this test is about.
