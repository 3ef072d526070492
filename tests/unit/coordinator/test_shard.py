"""A shard's ids, and in what order a write becomes true.

Method: a journal whose replication the test holds back, over virtual time.
"""

import gc
import re

import pytest

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.coordinator.outbox import Outbox
from ottla.coordinator.records import OffsetCommitValue, OffsetFact
from ottla.coordinator.shard import client_error

from .harness import Harness

FACT = OffsetFact("g", "t", 0, OffsetCommitValue(offset=1, metadata="", commit_timestamp=1))


def test_member_ids_are_random_uuids_behind_their_prefix() -> None:
    harness = Harness()
    ids = {harness.shard.new_member_id("my-client") for _ in range(100)}
    assert len(ids) == 100
    pattern = r"my-client-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(pattern, each) for each in ids)


def test_nothing_to_write_waits_for_what_was_written() -> None:
    harness = Harness()
    assert harness.shard.write([]).value is Error.NONE
    harness.journal.hold = True
    written, nothing = harness.shard.write([FACT]), harness.shard.write([])
    assert not nothing.done
    harness.journal.release()
    assert (written.value, nothing.value) == (Error.NONE, Error.NONE)
    assert harness.journal.end_offset == 1


def test_a_write_that_fails_later_gives_a_client_error() -> None:
    harness = Harness()
    harness.journal.hold = True
    written = harness.shard.write([FACT])
    harness.journal.release(Error.NOT_LEADER_OR_FOLLOWER)
    assert written.value is Error.NOT_COORDINATOR
    assert len(harness.timers) == 0


def test_what_no_record_can_hold_is_refused_and_changes_nothing() -> None:
    """A value that Kafka wrote may be longer than what is written here, in an older version."""
    harness = Harness()
    value = OffsetCommitValue(offset=1, metadata="m" * 32_768, commit_timestamp=1)
    written = harness.shard.write([FACT, OffsetFact("g", "t", 1, value)])
    assert written.value is Error.UNKNOWN_SERVER_ERROR
    assert harness.journal.end_offset == harness.shard.offsets.count == 0
    assert [each.endswith("; group g") for each in harness.log_events] == [True]


def test_a_wait_that_is_over_leaves_nothing_behind() -> None:
    """Clients ask again and again while the log cannot be committed, however long that takes."""
    harness = Harness()
    never: Pending[Error] = Pending()
    harness.shard.wait_for_loaded(never)
    before = promises()
    waits = [harness.shard.settled() for _ in range(3)]
    harness.advance(harness.shard.config.commit_ms)
    assert [wait.value for wait in waits] == [Error.COORDINATOR_NOT_AVAILABLE] * 3
    del waits
    assert promises() == before


def promises() -> int:
    """Return how many promises are in memory."""
    gc.collect()
    return sum(isinstance(each, Pending) for each in gc.get_objects())


@pytest.mark.parametrize("error", list(Error))
def test_clients_never_get_the_logs_own_errors(error: Error) -> None:
    response = client_error(error)
    assert response not in (
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.MESSAGE_TOO_LARGE,
    )
    assert bool(response) == bool(error)


# --- the outbox -----------------------------------------------------------------------------


def test_answers_leave_in_order_after_the_call_that_posted_them() -> None:
    harness = Harness()
    outbox = Outbox(harness.clock, harness.timers)
    values: list[int] = []
    promises: list[Pending[int]] = [Pending(), Pending(), Pending()]
    for promise in promises:
        promise.then(values.append)
    outbox.post(promises[0], 1)
    outbox.post(promises[1], 2)
    # A completed response may cause the next one.
    promises[0].then(lambda _: outbox.post(promises[2], 3))
    assert values == []
    harness.settle()
    assert values == [1, 2, 3]


def test_a_listener_that_fails_does_not_keep_others_from_their_answers() -> None:
    harness = Harness()
    outbox = Outbox(harness.clock, harness.timers)
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()

    def fail(_: int) -> None:
        raise RuntimeError("the connection's fault")

    first.then(fail)
    outbox.post(first, 1)
    outbox.post(second, 2)
    with pytest.raises(RuntimeError):
        harness.settle()
    harness.settle()
    assert second.value == 2
