"""Each anomaly of records is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

from ottla.base.ids import Uuid
from ottla.testing.checkers import records as checkers
from ottla.testing.checkers.records import Witness
from ottla.testing.history.history import (
    Acknowledgement,
    History,
    LeaderTerm,
    LogSeen,
    Progress,
    Read,
    Skipped,
    TopicSeen,
    Watermark,
    Write,
)
from ottla.testing.history.topics import Outcome, Promise

TOPIC = Uuid(bytes(15) + b"\x09")
PARTITION = (TOPIC, 0)
OTHER = (TOPIC, 1)


def kept(*values: bytes, offset: int, number: int = 0, producer: int | None = 7) -> Write:
    return Write(
        client="p",
        partition=PARTITION,
        values=values,
        number=number,
        outcome=Outcome.ACKNOWLEDGED,
        offset=offset,
        producer=None if producer is None else (producer, 0),
        ended_ms=50,
    )


def given_up(value: bytes, number: int) -> Write:
    return Write("p", PARTITION, (value,), number, Outcome.UNKNOWN, producer=(7, 0))


def log_of(*values: bytes, node: int = 1, start: int = 0, watermark: int | None = None) -> LogSeen:
    held = dict(enumerate(values, start))
    end = start + len(values)
    return LogSeen(node, PARTITION, start, end if watermark is None else watermark, held)


# -- acknowledged write lost -------------------------------------------------------------------


def test_writes_that_every_log_holds_are_kept() -> None:
    history = History(writes=[kept(b"a", b"b", offset=0)], logs=[log_of(b"a", b"b", b"c")])
    assert checkers.acknowledged_writes_lost(history) == []


def test_a_write_that_a_log_lacks_is_lost() -> None:
    history = History(
        writes=[kept(b"a", b"b", offset=0)],
        logs=[log_of(b"a", b"b"), log_of(b"a", node=2)],
    )
    found = checkers.acknowledged_writes_lost(history)
    assert [witness.at_ms for witness in found] == [50]
    assert "b'b'" in found[0].text
    assert "node 2 has None" in found[0].text


def test_a_write_that_another_one_replaced_is_lost() -> None:
    history = History(writes=[kept(b"a", offset=0)], logs=[log_of(b"z")])
    assert len(checkers.acknowledged_writes_lost(history)) == 1


def test_a_write_acknowledged_without_an_offset_must_be_in_the_log() -> None:
    somewhere = History(writes=[kept(b"a", offset=-1)], logs=[log_of(b"z", b"a")])
    assert checkers.acknowledged_writes_lost(somewhere) == []
    nowhere = History(writes=[kept(b"a", offset=-1)], logs=[log_of(b"z", b"b")])
    assert len(checkers.acknowledged_writes_lost(nowhere)) == 1


def test_what_retention_removed_is_not_lost() -> None:
    history = History(writes=[kept(b"a", offset=0)], logs=[log_of(b"b", start=1)])
    history.promises[PARTITION[0]] = Promise(trimmed=True)
    assert checkers.acknowledged_writes_lost(history) == []


def test_a_log_that_begins_too_late_has_lost_what_is_before_it() -> None:
    history = History(
        writes=[kept(b"a", offset=0)],
        reads=[Read("c", PARTITION, 0, b"a", at_ms=60)],
        logs=[log_of(b"b", start=1)],
    )
    for given_up, lost in ((-1, 1), (0, 1), (1, 0)):
        history.tiers.given_up[PARTITION] = given_up
        assert len(checkers.acknowledged_writes_lost(history)) == lost
        assert len(checkers.reads_lost(history)) == lost


def test_the_writes_of_a_deleted_topic_may_go() -> None:
    history = History(writes=[kept(b"a", offset=0)], logs=[log_of(b"z")], deleted={TOPIC})
    assert checkers.acknowledged_writes_lost(history) == []


def test_a_write_of_unknown_outcome_may_be_missing() -> None:
    history = History(writes=[given_up(b"a", 0)], logs=[log_of(b"z")])
    assert checkers.acknowledged_writes_lost(history) == []


# -- read lost ---------------------------------------------------------------------------------


def test_what_was_read_stays() -> None:
    history = History(reads=[Read("c", PARTITION, 1, b"b")], logs=[log_of(b"a", b"b")])
    assert checkers.reads_lost(history) == []


def test_a_record_that_was_read_and_then_truncated_is_found() -> None:
    history = History(reads=[Read("c", PARTITION, 1, b"b", 70, 3)], logs=[log_of(b"a", b"z")])
    (found,) = checkers.reads_lost(history)
    assert found.at_ms == 70
    assert "node 3" in found.text


def test_a_consumer_that_skipped_records_is_found() -> None:
    history = History(skipped=[Skipped("c", PARTITION, 4, 9, 80)])
    assert [witness.at_ms for witness in checkers.reads_lost(history)] == [80]


# -- two values at one offset ------------------------------------------------------------------


def test_clients_and_logs_that_agree_are_no_witnesses() -> None:
    history = History(
        writes=[kept(b"a", offset=0)],
        reads=[Read("c", PARTITION, 0, b"a")],
        logs=[log_of(b"a"), log_of(b"a", node=2)],
    )
    assert checkers.two_values_at_one_offset(history) == []


def test_a_read_that_differs_from_the_acknowledgement_is_found() -> None:
    history = History(
        writes=[kept(b"a", offset=0)],
        reads=[Read("c", PARTITION, 0, b"z", 90)],
    )
    assert checkers.two_values_at_one_offset(history) == [
        Witness(f"{checkers.name_of(PARTITION)}:0 is b'a' to p, b'z' to c", 90)
    ]


def test_logs_may_differ_above_the_high_watermark_only() -> None:
    above = [log_of(b"a", b"b"), log_of(b"a", b"z", node=2, watermark=1)]
    assert checkers.two_values_at_one_offset(History(logs=above)) == []
    below = [log_of(b"a", b"b"), log_of(b"a", b"z", node=2)]
    assert len(checkers.two_values_at_one_offset(History(logs=below))) == 1


def test_one_epoch_acknowledges_one_content_for_an_offset() -> None:
    words = [Acknowledgement(1, PARTITION, 3, 5, 111), Acknowledgement(1, PARTITION, 3, 5, 111)]
    assert checkers.two_values_at_one_offset(History(acknowledgements=words)) == []
    words.append(Acknowledgement(1, PARTITION, 3, 5, 222))
    assert len(checkers.two_values_at_one_offset(History(acknowledgements=words))) == 1


# -- watermark fell ----------------------------------------------------------------------------


def test_ends_that_only_grow_are_well() -> None:
    seen = [Watermark("c", PARTITION, end, "list_offsets") for end in (3, 3, 8)]
    seen += [Watermark("d", PARTITION, 1, "list_offsets"), Watermark("c", OTHER, 1, "list_offsets")]
    assert checkers.watermarks_that_fell(History(watermarks=seen)) == []


def test_an_end_that_goes_back_is_found_whichever_broker_answers() -> None:
    seen = [
        Watermark("c", PARTITION, 8, "list_offsets", node=1, epoch=3),
        Watermark("c", PARTITION, 5, "list_offsets", node=2, epoch=4, at_ms=60),
        Watermark("c", PARTITION, 6, "list_offsets", node=2, epoch=4, at_ms=70),
    ]
    found = checkers.watermarks_that_fell(History(watermarks=seen))
    assert [witness.at_ms for witness in found] == [60, 70]


def test_a_fetch_is_compared_within_one_leaders_epoch() -> None:
    seen = [
        Watermark("c", PARTITION, 8, "fetch", node=1, epoch=3),
        Watermark("c", PARTITION, 5, "fetch", node=2, epoch=4),
    ]
    assert checkers.watermarks_that_fell(History(watermarks=seen)) == []
    seen.append(Watermark("c", PARTITION, 4, "fetch", node=2, epoch=4))
    assert len(checkers.watermarks_that_fell(History(watermarks=seen))) == 1


def test_a_log_start_that_goes_back_is_found() -> None:
    seen = [
        Watermark("c", PARTITION, 8, "fetch", node=1, epoch=3, log_start=4),
        Watermark("c", PARTITION, 8, "fetch", node=1, epoch=3, log_start=2),
    ]
    assert len(checkers.watermarks_that_fell(History(watermarks=seen))) == 1


def test_list_offsets_after_a_deletion_is_about_the_next_topic_of_the_name() -> None:
    seen = [
        Watermark("c", PARTITION, 23, "list_offsets", node=1, at_ms=10),
        Watermark("c", PARTITION, 0, "list_offsets", node=1, at_ms=60),
    ]
    gone = TopicSeen(PARTITION[0], False, at_ms=50)
    assert checkers.watermarks_that_fell(History(watermarks=seen, topics_seen=[gone])) == []
    for other in (gone._replace(at_ms=61), gone._replace(node=1), gone._replace(is_there=True)):
        history = History(watermarks=seen, topics_seen=[other])
        assert len(checkers.watermarks_that_fell(history)) == 1


# -- two leaders in one epoch ------------------------------------------------------------------


def test_leaders_of_different_epochs_are_well() -> None:
    history = History(
        acknowledgements=[
            Acknowledgement(1, PARTITION, 3, 5, 1),
            Acknowledgement(2, PARTITION, 4, 6, 1),
        ],
        leader_terms=[
            LeaderTerm(1, None, 3),
            LeaderTerm(2, None, 4),
            LeaderTerm(1, None, 3),
            LeaderTerm(2, OTHER, 3),
        ],
    )
    assert checkers.two_leaders_in_one_epoch(history) == []


def test_two_nodes_that_acknowledge_in_one_epoch_are_found() -> None:
    words = [Acknowledgement(1, PARTITION, 3, 5, 1), Acknowledgement(2, PARTITION, 3, 6, 1, 40)]
    found = checkers.two_leaders_in_one_epoch(History(acknowledgements=words))
    assert [witness.at_ms for witness in found] == [40]


def test_a_node_that_acknowledges_in_the_epoch_of_another_leader_is_found() -> None:
    """Though that one has acknowledged nothing."""
    history = History(
        leader_terms=[LeaderTerm(1, PARTITION, 3), LeaderTerm(2, PARTITION, 4, 30)],
        acknowledgements=[
            Acknowledgement(1, PARTITION, 3, 5, 1, 35),
            Acknowledgement(1, PARTITION, 4, 6, 1, 42),
        ],
    )
    (found,) = checkers.two_leaders_in_one_epoch(history)
    assert found.at_ms == 42
    assert found.text.startswith("node 2 became leader and node 1 acknowledged in epoch 4")


def test_two_controllers_of_one_epoch_are_found() -> None:
    history = History(leader_terms=[LeaderTerm(1, None, 3), LeaderTerm(2, None, 3, 41)])
    (found,) = checkers.two_leaders_in_one_epoch(history)
    assert found == Witness("nodes 1 and 2 both became leader in epoch 3 of the quorum", 41)


# -- producers ---------------------------------------------------------------------------------


def test_an_idempotent_value_lands_once() -> None:
    history = History(writes=[kept(b"a", offset=0), given_up(b"b", 1)], logs=[log_of(b"a", b"b")])
    assert checkers.idempotent_writes_twice(history) == []


def test_an_idempotent_value_that_landed_twice_is_found() -> None:
    history = History(writes=[kept(b"a", offset=0)], logs=[log_of(b"a", b"x", b"a")])
    (found,) = checkers.idempotent_writes_twice(history)
    assert ":0 and :2" in found.text


def test_a_plain_producer_may_write_twice() -> None:
    history = History(writes=[kept(b"a", offset=0, producer=None)], logs=[log_of(b"a", b"a")])
    assert checkers.idempotent_writes_twice(history) == []


def test_order_holds_within_a_producer_not_between_two() -> None:
    other = kept(b"z", offset=1, number=0)._replace(client="q")
    history = History(
        writes=[kept(b"a", offset=0, number=4), other, kept(b"b", offset=2, number=5)],
        logs=[log_of(b"a", b"z", b"b")],
    )
    assert checkers.producers_reordered(history) == []


def test_a_batch_behind_a_later_one_is_found() -> None:
    history = History(
        writes=[kept(b"a", offset=1, number=4), kept(b"b", offset=0, number=5)],
        logs=[log_of(b"b", b"a")],
    )
    (found,) = checkers.producers_reordered(history)
    assert "b'a' of p" in found.text


# -- progress ----------------------------------------------------------------------------------


def test_what_works_again_after_healing_is_progress() -> None:
    history = History(expected=["x"], progress=[Progress("x", 120)], healed_ms=100, ended_ms=900)
    assert checkers.no_progress(history) == []


def test_what_worked_only_before_healing_is_no_progress() -> None:
    history = History(
        expected=["x", "y"],
        progress=[Progress("x", 120), Progress("y", 99)],
        healed_ms=100,
        ended_ms=900,
    )
    assert checkers.no_progress(history) == [Witness("nothing of y in 800 ms after healing", 900)]


def test_without_healing_nothing_is_expected() -> None:
    assert checkers.no_progress(History(expected=["x"])) == []


def test_a_failed_assertion_is_a_witness() -> None:
    assert checkers.assertions_that_failed(History(errors=[(5, "no")])) == [Witness("no", 5)]
