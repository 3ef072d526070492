"""Every offset is in exactly one batch, whatever is killed, and what is lost is named.

Method: hypothesis runs a stream over logs that grow, get partitions, lose records and are
re-created, with batches that are planned and never run, repeated, or run from another beginning;
what its batches read is compared with the logs. Tables for each rule.
"""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid
from ottla.client.partitions import TopicPartition
from ottla.spark.options import Edge, Limit, Offsets
from ottla.spark.planning import PartitionFacts
from ottla.spark.streaming.advance import (
    Stretch,
    Survey,
    advanced,
    beginning,
    stretches,
    survey,
    surviving,
)
from ottla.spark.streaming.offsets import StreamOffset, TopicPosition
from ottla.spark.streaming.rate_limits import ends_of, limited_by_offsets

ID = Uuid(b"i" * 16)
OTHER = Uuid(b"j" * 16)


def facts(
    partition: int = 0, earliest: int = 0, latest: int = 10, topic: str = "t", topic_id: Uuid = ID
) -> PartitionFacts:
    return PartitionFacts(
        topic=topic, topic_id=topic_id, partition=partition, earliest=earliest, latest=latest
    )


def at(
    offsets: dict[int, int], begins: dict[int, int] | None = None, topic_id: Uuid = ID
) -> StreamOffset:
    return StreamOffset({"t": TopicPosition(topic_id, offsets, begins or {})})


def look(
    start: StreamOffset,
    *seen: PartitionFacts,
    unsubscribed: Iterable[TopicPartition] = (),
    until: dict[TopicPartition, tuple[Uuid, int]] | None = None,
) -> Survey:
    return survey(start, seen, is_subscribed=lambda key: key not in unsubscribed, until=until)


def spans(start: StreamOffset, end: StreamOffset) -> list[tuple[int, int, int]]:
    return [(each.partition, each.begin, each.end) for each in stretches(start, end)]


def next_of(start: StreamOffset, *seen: PartitionFacts) -> StreamOffset:
    return advanced(start, look(start, *seen).unread, {})


# Where a stream begins


@pytest.mark.parametrize(
    ("limit", "offset"),
    [
        (Edge.EARLIEST, 4),
        (Edge.LATEST, 10),
        (Offsets({("t", 0): 7}), 7),
        (Offsets({("t", 0): -1}), 10),
        (Offsets({("t", 0): -2}), 4),
    ],
)
def test_beginnings(limit: Limit, offset: int) -> None:
    found, losses = beginning([facts(earliest=4)], limit, {}, latest_where_none_since=False)
    assert (found, losses) == (at({0: offset}, {0: offset}), [])


def test_beginnings_that_do_not_exist() -> None:
    wanted = Offsets({("t", 0): 3, ("t", 1): 50})
    found, losses = beginning([facts(0, 4), facts(1, 4)], wanted, {}, latest_where_none_since=False)
    assert list(found) == [(("t", 0), 4), (("t", 1), 10)]
    assert [each.split(":")[0] for each in losses] == ["t-0", "t-1"]


def test_the_first_batch_says_where_it_began() -> None:
    """Spark asks again for a stream's beginning when it repeats its first batch."""
    begin, _ = beginning([facts(), facts(1)], Edge.LATEST, {}, latest_where_none_since=False)
    first = next_of(begin, facts(latest=15), facts(1))
    later, _ = beginning(
        [facts(latest=99), facts(1, latest=99)], Edge.LATEST, {}, latest_where_none_since=False
    )
    assert spans(begin, first) == spans(later, first) == [(0, 10, 15)]
    # Nothing of the second partition was read: its beginning is still not known from elsewhere.
    second = next_of(first, facts(latest=15), facts(1, latest=12))
    assert spans(first, second) == [(1, 10, 12)]
    assert second == at({0: 15, 1: 12}, {1: 10})


def test_a_first_batch_without_records_keeps_the_beginning() -> None:
    begin, _ = beginning([facts()], Edge.LATEST, {}, latest_where_none_since=False)
    assert next_of(begin, facts()) == begin
    assert spans(begin, begin) == []
    later, _ = beginning([facts(latest=20)], Edge.LATEST, {}, latest_where_none_since=False)
    assert spans(later, begin) == []


# How it goes on


def test_nothing_new_is_the_same_text() -> None:
    start = at({0: 10, 1: 10}, {0: 5})
    assert next_of(start, facts(), facts(1)) is start
    end = next_of(start, facts(), facts(1, latest=11))
    assert end == at({0: 10, 1: 11})
    assert spans(start, end) == [(1, 10, 11)]


def test_new_partitions_and_topics() -> None:
    start = at({0: 10})
    more = facts(0, 3, 8, topic="u", topic_id=OTHER)
    found = look(start, facts(), facts(1, 0, 5), more)
    end = advanced(start, found.unread, {})
    assert (found.losses, found.replaced) == ([], [])
    assert [(each.topic, each.begin, each.end) for each in stretches(start, end)] == [
        ("t", 0, 5),
        ("u", 3, 8),
    ]
    # From where the log started when the batch was planned, also when it is repeated.
    again = StreamOffset.of(json.loads(json.dumps(end.to_json())))
    assert stretches(start, again) == stretches(start, end)
    lost = look(start, facts(), facts(1, 2, 5))
    assert lost.losses == ["t-1: offsets 0 to 1 of the new partition are no longer available"]


def test_what_has_expired() -> None:
    start = at({0: 2})
    found = look(start, facts(earliest=6))
    assert found.losses == ["t-0: offsets 2 to 5 are no longer available"]
    [unread] = found.unread
    assert (unread.begin, unread.first, unread.end, len(unread)) == (2, 6, 10, 4)
    end = advanced(start, found.unread, ends_of(found.unread, {("t", 0): 7}))
    assert spans(start, end) == [(0, 2, 7)]
    # All of it has.
    gone = look(start, facts(earliest=10))
    assert spans(start, advanced(start, gone.unread, {})) == [(0, 2, 10)]


def test_a_log_that_is_shorter() -> None:
    start = at({0: 50, 1: 3})
    found = look(start, facts(latest=20), facts(1))
    assert found.losses == ["t-0: the stream is at offset 50, the log ends at 20"]
    end = advanced(start, found.unread, {})
    assert end == at({0: 20, 1: 10}, {0: 20})
    assert spans(start, end) == [(1, 3, 10)]
    assert spans(end, next_of(end, facts(latest=25), facts(1))) == [(0, 20, 25)]


def test_a_topic_that_was_re_created() -> None:
    start = at({0: 50, 1: 7}, {1: 7})
    # Longer than before: offsets alone would not tell.
    found = look(start, facts(0, 0, 90, topic_id=OTHER), facts(1, 0, 5, topic_id=OTHER))
    [message] = found.replaced
    assert message.startswith("t: the topic was deleted and re-created")
    end = advanced(start, found.unread, {})
    assert end == at({0: 90, 1: 5}, {0: 0, 1: 0}, OTHER)
    assert [each.topic_id for each in stretches(start, end)] == [OTHER, OTHER]
    assert spans(start, end) == [(0, 0, 90), (1, 0, 5)]
    assert look(end, facts(0, 0, 90, topic_id=OTHER), facts(1, 0, 5, topic_id=OTHER)).replaced == []


def test_a_topic_or_partition_that_is_gone() -> None:
    start = at({0: 50, 1: 7})
    found = look(start, facts(0, 0, 50))
    [message] = found.replaced
    assert message.startswith("t-1: the topic or partition does not exist any more; the stream is ")
    # Its position is kept: where it is back with the same id, nothing is read twice.
    assert advanced(start, found.unread, {}) is start
    # What is not subscribed any more is not missed, and kept too.
    ignored = look(start, facts(0, 0, 60), unsubscribed=[("t", 1)])
    assert ignored.replaced == []
    assert advanced(start, ignored.unread, {}) == at({0: 60, 1: 7})


def test_where_a_batch_that_is_over_began_is_not_said_again() -> None:
    """The topic `u` was read once and is not there now: else its batch would be read again."""
    u = TopicPosition(OTHER, {0: 10}, {0: 5})
    start = StreamOffset({"t": TopicPosition(ID, {0: 10}), "u": u})
    end = next_of(start, facts(latest=12))
    assert stretches(start, end) == [Stretch("t", ID, 0, 10, 12)]


def test_clusters_without_topic_ids() -> None:
    start = at({0: 5})
    found = look(start, facts(topic_id=NO_UUID))
    assert found.replaced == []
    assert advanced(start, found.unread, {}) == at({0: 10})
    upgraded = look(at({0: 5}, topic_id=NO_UUID), facts())
    assert upgraded.replaced == []
    assert advanced(at({0: 5}, topic_id=NO_UUID), upgraded.unread, {}) == at({0: 10})


def test_available_now_ends_where_the_logs_ended() -> None:
    start = at({0: 5, 1: 20})
    until = {("t", 0): (ID, 8), ("t", 1): (ID, 15), ("u", 0): (OTHER, 3)}
    now = (
        facts(0, 0, 99),
        facts(1, 0, 99),
        facts(2, 0, 99),
        facts(0, 0, 99, topic="u", topic_id=OTHER),
        facts(0, 0, 99, topic="w", topic_id=OTHER),
    )
    found = look(start, *now, until=until)
    end = advanced(start, found.unread, {})
    assert list(end) == [(("t", 0), 8), (("t", 1), 20), (("u", 0), 3)]
    assert advanced(end, look(end, *now, until=until).unread, {}) is end
    # One that was re-created meanwhile is left to the next query.
    other = look(start, facts(0, 0, 9, topic_id=OTHER), facts(1, 0, 9, topic_id=OTHER), until=until)
    assert other.replaced
    assert advanced(start, other.unread, {}) is start


# Batches


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (at({0: 5}), at({0: 4})),
        (at({0: 5}), at({0: 6, 1: 3})),
        (at({0: 5}, topic_id=OTHER), at({0: 6})),
    ],
)
def test_positions_that_are_not_of_one_batch(start: StreamOffset, end: StreamOffset) -> None:
    with pytest.raises(ValueError, match="expected a checkpoint of one query"):
        stretches(start, end)


def test_what_a_repeated_batch_can_still_read() -> None:
    wanted = [
        Stretch("t", ID, 0, 5, 10),
        Stretch("t", ID, 1, 5, 10),
        Stretch("t", ID, 2, 5, 10),
        Stretch("t", ID, 3, 5, 10),
        Stretch("u", ID, 0, 5, 10),
        Stretch("w", ID, 0, 5, 10),
    ]
    seen = [
        facts(0, 5, 99),
        facts(1, 7, 99),
        facts(2, 0, 8),
        facts(3, 50, 99),
        facts(topic="u", topic_id=OTHER),
    ]
    found = surviving(wanted, seen)
    assert [(each.facts.partition, each.start, each.end) for each in found.ranges] == [
        (0, 5, 10),
        (1, 7, 10),
        (2, 5, 8),
    ]
    assert [each.split(";")[0] for each in found.losses] == [
        "t-1: offsets 5 to 6 are no longer available",
        "t-2: offsets 8 to 9 are lost",
        "t-3: offsets 5 to 9 are no longer available",
    ]
    assert [each.split(";")[0] for each in found.replaced] == [
        "u-0: the topic was deleted, or deleted and re-created",
        "w-0: the topic was deleted, or deleted and re-created",
    ]


class Run:
    """A topic's partitions, and a stream with the checkpoint that Spark keeps of it."""

    def __init__(self, start_latest: bool) -> None:
        self.ends = [3, 0]
        self.begin = Edge.LATEST if start_latest else Edge.EARLIEST
        self.begins: list[int] = []
        self.seen: dict[int, list[int]] = {}
        self.planned: list[str] = []
        self.committed = 0

    def facts(self) -> list[PartitionFacts]:
        return [facts(number, 0, end) for number, end in enumerate(self.ends)]

    def initial(self) -> StreamOffset:
        return beginning(self.facts(), self.begin, {}, latest_where_none_since=False)[0]

    def start(self) -> StreamOffset:
        """Return the begin of the batch that is not committed yet, as Spark finds it."""
        if not self.committed:
            return self.initial()
        return StreamOffset.of(json.loads(self.planned[self.committed - 1]))

    def plan(self, limit: int | None) -> None:
        start = self.start()
        unread = look(start, *self.facts()).unread
        ends = {} if limit is None else ends_of(unread, limited_by_offsets(unread, limit))
        end = json.dumps(advanced(start, unread, ends).to_json())
        if not self.committed:
            # From here on it is fixed where the stream begins.
            self.begins = [offset for _, offset in start]
        if not self.committed or end != self.planned[self.committed - 1]:
            self.planned.append(end)

    def run(self) -> None:
        """Run the batch that was planned; what was written before is replaced."""
        batch = stretches(self.start(), StreamOffset.of(json.loads(self.planned[self.committed])))
        self.rows = [
            (one.partition, offset) for one in batch for offset in range(one.begin, one.end)
        ]

    def commit(self) -> None:
        for partition, offset in self.rows:
            self.seen.setdefault(partition, []).append(offset)
        self.committed += 1


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["grow", "add", "batch", "killed", "repeated"]), st.integers(1, 40)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=50)
@given(ACTIONS, st.booleans(), st.none() | st.integers(1, 30))
def test_each_offset_is_in_exactly_one_batch(
    actions: list[tuple[str, int]], start_latest: bool, limit: int | None
) -> None:
    run = Run(start_latest)
    for action, number in [*actions, *[("batch", 0)] * 60]:
        if action == "grow":
            run.ends[number % len(run.ends)] += number
            continue
        if action == "add":
            run.ends.append(number % 5)
            continue
        if run.committed == len(run.planned):
            run.plan(limit)
        if run.committed == len(run.planned):
            continue  # Nothing is new.
        if action == "killed":
            continue  # The batch is in Spark's log, and runs after a restart.
        run.run()
        if action == "repeated":
            # It failed when it had written something; meanwhile the logs grew.
            run.ends[0] += number
            before = run.rows
            run.run()
            assert run.rows == before
        run.commit()
    for partition, end in enumerate(run.ends):
        begin = run.begins[partition] if partition < len(run.begins) else 0
        read = run.seen.get(partition, [])
        # With a small limit perhaps not all was read yet.
        reached = begin + len(read) if limit is not None and limit < 10 else end
        assert read == list(range(begin, reached))
