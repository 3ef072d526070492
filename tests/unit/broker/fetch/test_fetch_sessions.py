"""Fetch sessions return only changed partitions; the cache keeps the valuable sessions.

Method: requests against the cache with made-up read results; the rules are KIP-227's.
"""

from dataclasses import dataclass

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.fetch.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    NO_SESSION,
    Fetching,
    FetchPartition,
    FetchSessions,
    Key,
    next_epoch,
)
from tests.unit.broker.harness import FakeDice

ID = Uuid(b"i" * 16)


@dataclass(frozen=True, slots=True)
class PartitionResponse:
    """A made-up read."""

    high_watermark: int = 0
    log_start_offset: int = 0
    size: int = 0
    error: Error = Error.NONE
    diverging: tuple[int, int] | None = None
    preferred: int = -1


def ask(*names: str, offset: int = 0, topic_id: Uuid = NO_UUID) -> dict[Key, FetchPartition]:
    """Ask for partition 0 of each topic."""
    parts = (FetchPartition(name, topic_id, 0, offset, 1000) for name in names)
    return {part.key: part for part in parts}


class Fetcher:
    """A client with one session."""

    def __init__(self, sessions: FetchSessions, *, privileged: bool = False) -> None:
        self.sessions = sessions
        self.privileged = privileged
        self.id = NO_SESSION
        self.epoch = 0
        self.now_ms = 0

    def open(
        self,
        asked: dict[Key, FetchPartition],
        forgotten: tuple[Key, ...] = (),
        *,
        topic_ids: bool = False,
    ) -> Fetching | Error:
        return self.sessions.open(
            asked,
            forgotten,
            session_id=self.id,
            epoch=self.epoch,
            uses_topic_ids=topic_ids,
            privileged=self.privileged,
            now_ms=self.now_ms,
        )

    def fetch(
        self,
        asked: dict[Key, FetchPartition],
        sent: dict[str, PartitionResponse],
        forgotten: tuple[Key, ...] = (),
    ) -> list[str]:
        """Fetch, note the session, and return the topics of the response in order."""
        fetching = self.open(asked, forgotten)
        assert isinstance(fetching, Fetching)
        results = [(part, sent[part.topic]) for part in fetching.partitions.values()]
        error, self.id, changes = fetching.finish(results, self.now_ms)
        assert error is Error.NONE
        self.epoch = next_epoch(self.epoch)
        return [part.topic for part, _ in changes]


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(2, FakeDice())


def test_a_full_fetch_opens_a_session_and_answers_everything(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    assert client.fetch(ask("a", "b"), {"a": PartitionResponse(), "b": PartitionResponse()}) == [
        "a",
        "b",
    ]
    assert client.id > 0
    assert (len(sessions), sessions.partition_count) == (1, 2)


def test_the_final_epoch_wants_no_session(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    client.epoch = FINAL_EPOCH
    assert client.fetch(ask("a"), {"a": PartitionResponse()}) == ["a"]
    assert (client.id, len(sessions)) == (NO_SESSION, 0)


def test_an_incremental_fetch_returns_only_changes(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    quiet = {"a": PartitionResponse(high_watermark=5), "b": PartitionResponse(high_watermark=7)}
    client.fetch(ask("a", "b"), quiet)
    assert client.fetch({}, quiet) == []
    assert client.fetch({}, quiet | {"a": PartitionResponse(high_watermark=6)}) == ["a"]
    assert client.fetch({}, quiet | {"a": PartitionResponse(high_watermark=6)}) == []
    assert client.fetch({}, quiet | {"a": PartitionResponse(6, log_start_offset=2)}) == ["a"]
    assert client.fetch({}, quiet | {"a": PartitionResponse(6, 2, diverging=(1, 1))}) == ["a"]


def test_a_partition_is_returned_again_once_its_error_is_gone(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    fine = {"a": PartitionResponse(high_watermark=5)}
    client.fetch(ask("a"), fine)
    failed = {"a": PartitionResponse(-1, -1, error=Error.NOT_LEADER_OR_FOLLOWER)}
    assert client.fetch({}, failed) == ["a"]
    assert client.fetch({}, failed) == ["a"]
    assert client.fetch({}, fine) == ["a"]
    assert client.fetch({}, fine) == []


def test_partitions_that_gave_records_are_served_last(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    sent = {name: PartitionResponse() for name in "abc"}
    client.fetch(ask("a", "b", "c"), sent)
    client.fetch({}, sent | {"a": PartitionResponse(size=10)})
    opened = client.open({})
    assert isinstance(opened, Fetching)
    assert [part.topic for part in opened.partitions.values()] == ["b", "c", "a"]


def test_a_session_takes_new_changed_and_forgotten_partitions(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    sent = {name: PartitionResponse() for name in "abc"}
    client.fetch(ask("a", "b"), sent)
    assert client.fetch(ask("c") | ask("a", offset=9), sent, (("b", 0),)) == ["c"]
    opened = client.open({})
    assert isinstance(opened, Fetching)
    parts = list(opened.partitions.values())
    assert [(part.topic, part.fetch_offset) for part in parts] == [("a", 9), ("c", 0)]


def test_a_session_without_partitions_is_closed(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    client.fetch(ask("a"), {"a": PartitionResponse()})
    assert client.fetch({}, {}, (("a", 0),)) == []
    assert (client.id, len(sessions)) == (NO_SESSION, 0)


def test_a_full_fetch_closes_the_session_that_it_names(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    client.fetch(ask("a"), {"a": PartitionResponse()})
    first, client.epoch = client.id, 0
    client.fetch(ask("a"), {"a": PartitionResponse()})
    assert client.id != first
    assert len(sessions) == 1


def test_session_errors(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    client.fetch(ask("a"), {"a": PartitionResponse()})
    assert client.open({}, topic_ids=True) is Error.FETCH_SESSION_TOPIC_ID_ERROR
    client.epoch += 1
    assert client.open({}) is Error.INVALID_FETCH_SESSION_EPOCH
    client.id += 1
    assert client.open({}) is Error.FETCH_SESSION_ID_NOT_FOUND


def test_a_delayed_fetch_that_a_later_one_overtook_is_refused(sessions: FetchSessions) -> None:
    client = Fetcher(sessions)
    client.fetch(ask("a"), {"a": PartitionResponse()})
    parked = client.open({})
    client.epoch += 1
    assert isinstance(client.open({}), Fetching)
    assert isinstance(parked, Fetching)
    error, session_id, changes = parked.finish([], 0)
    assert (error, session_id, changes) == (Error.INVALID_FETCH_SESSION_EPOCH, client.id, [])


def test_topics_of_one_id_are_one_partition_whatever_their_name() -> None:
    asked = ask("", topic_id=ID) | ask("named", topic_id=ID)
    assert list(asked) == [(ID, 0)]


def test_epochs_wrap_around_to_one() -> None:
    assert next_epoch(EPOCH_MAX) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


class TestEviction:
    """Who goes when the cache of two is full."""

    def fill(self, sessions: FetchSessions, *, privileged: bool = False) -> list[Fetcher]:
        clients = [Fetcher(sessions, privileged=privileged) for _ in range(2)]
        for client in clients:
            client.fetch(ask("a", "b"), {"a": PartitionResponse(), "b": PartitionResponse()})
        return clients

    def test_a_newcomer_gets_none_while_all_are_young(self, sessions: FetchSessions) -> None:
        self.fill(sessions)
        late = Fetcher(sessions)
        late.fetch(ask(*"abcdef"), {name: PartitionResponse() for name in "abcdef"})
        assert (late.id, sessions.evictions) == (NO_SESSION, 0)

    def test_the_stalest_goes_once_it_is_stale(self, sessions: FetchSessions) -> None:
        first, second = self.fill(sessions)
        second.now_ms = 1000
        second.fetch({}, {"a": PartitionResponse(), "b": PartitionResponse()})
        late = Fetcher(sessions)
        late.now_ms = EVICTION_MS + 1
        late.fetch(ask("a"), {"a": PartitionResponse()})
        assert late.id > 0
        assert first.open({}) is Error.FETCH_SESSION_ID_NOT_FOUND
        assert isinstance(second.open({}), Fetching)

    def test_a_replica_evicts_a_young_consumer_but_no_replica(
        self, sessions: FetchSessions
    ) -> None:
        self.fill(sessions)
        for client in (Fetcher(sessions, privileged=True) for _ in range(2)):
            client.fetch(ask("a"), {"a": PartitionResponse()})
            assert client.id > 0
        third = Fetcher(sessions, privileged=True)
        third.fetch(ask(*"abcdef"), {name: PartitionResponse() for name in "abcdef"})
        assert (third.id, sessions.evictions) == (NO_SESSION, 2)

    @pytest.mark.parametrize(("size", "gets_one"), [(2, False), (3, True)])
    def test_an_old_session_yields_to_one_of_more_partitions(
        self, sessions: FetchSessions, size: int, gets_one: bool
    ) -> None:
        for client in self.fill(sessions):
            client.now_ms = EVICTION_MS
            client.fetch({}, {"a": PartitionResponse(), "b": PartitionResponse()})
        late = Fetcher(sessions)
        late.now_ms = EVICTION_MS + 1
        names = "abcdef"[:size]
        late.fetch(ask(*names), {name: PartitionResponse() for name in names})
        assert (late.id > 0) is gets_one

    def test_a_consumer_never_evicts_a_replica_that_is_in_use(
        self, sessions: FetchSessions
    ) -> None:
        for client in self.fill(sessions, privileged=True):
            client.now_ms = EVICTION_MS
            client.fetch({}, {"a": PartitionResponse(), "b": PartitionResponse()})
        late = Fetcher(sessions)
        late.now_ms = EVICTION_MS + 1
        late.fetch(ask(*"abcdef"), {name: PartitionResponse() for name in "abcdef"})
        assert late.id == NO_SESSION

    def test_no_slots_means_no_sessions(self) -> None:
        client = Fetcher(FetchSessions(0, FakeDice()))
        assert client.fetch(ask("a"), {"a": PartitionResponse()}) == ["a"]
        assert client.id == NO_SESSION
