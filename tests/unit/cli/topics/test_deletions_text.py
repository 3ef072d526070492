"""What is printed of a ledger: the table, the JSON, and what helps where something is open.

Method: entries made by hand; whole outputs are compared, since people and programs read them.
"""

import json
import re
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.cli.topics.deletions_text import (
    causes,
    json_text,
    open_text,
    state_of,
    table_lines,
    time_text,
    unproven_text,
)
from ottla.cli.topics.ledger_entry import LedgerEntry, purge_text
from ottla.metadata.deletions import (
    BROKER_DOWN,
    NOT_FINISHED,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)

ID = Uuid(bytes(range(16)))
LOST = ReplicaStatus(DeletionState.INELIGIBLE, Reason.FOLDER_FAILED)
UNDELETABLE = ReplicaStatus(
    DeletionState.INELIGIBLE, Reason.FOLDER_FAILED, int(Error.KAFKA_STORAGE_ERROR)
)
REFUSED = ReplicaStatus(DeletionState.INELIGIBLE, Reason.REFUSED, int(Error.KAFKA_STORAGE_ERROR))
GIVEN_UP = ReplicaStatus(DeletionState.ABANDONED, Reason.UNREGISTERED)
ASKED_MS = 1_700_000_000_123
NEW = DeletionImage(topic_id=ID, name="orders", policy=Policy.AT_ONCE, asked_ms=ASKED_MS)


def made(policy: Policy = Policy.AT_ONCE, **more: object) -> DeletionImage:
    parts = {"topic_id": ID, "name": "orders", "policy": policy, "asked_ms": ASKED_MS} | more
    return DeletionImage(**parts)  # type: ignore[arg-type]


def test_the_table_has_a_line_for_each_group_of_replicas() -> None:
    """Brokers whose replicas are equally far, of the same partitions, share one."""
    going = (
        NEW.with_status(1, SUCCESSFUL, (0, 1, 2))
        .with_status(2, SUCCESSFUL, (0, 1, 2))
        .with_status(3, BROKER_DOWN, (0, 1))
        .with_status(3, REFUSED, (2,))
    )
    done = made(name="t", finished_ms=ASKED_MS + 2_000, remote=Remote.PURGED).with_status(
        1, GIVEN_UP, (0, 1, 2, 4)
    )
    assert list(table_lines([going, done])) == [
        "TOPIC   TOPIC ID                ASKED                 FINISHED              "
        "STATE      REPLICAS GONE",
        "orders  AAECAwQFBgcICQoLDA0ODw  2023-11-14T22:13:20Z  -                     "
        "under way  6 of 9",
        "  successful                                 brokers 1-2  partitions 0-2",
        "  ineligible: broker down                    broker 3     partitions 0-1",
        "  ineligible: refused (KAFKA_STORAGE_ERROR)  broker 3     partition 2",
        "  remote tier: none",
        "t       AAECAwQFBgcICQoLDA0ODw  2023-11-14T22:13:20Z  2023-11-14T22:13:22Z  "
        "finished   0 of 4",
        "  abandoned: unregistered                    broker 1     partitions 0-2,4",
        "  remote tier: purged",
    ]


def test_a_deletion_that_has_not_begun_shows_no_replicas() -> None:
    halted = made(Policy.CLASSIC, halted=HaltReason.PREFERRED_ELECTION)
    _, line, tier = table_lines([halted])
    assert re.fullmatch(r"orders .*Z  -  +halted: preferred election  -", line)
    assert tier == "  remote tier: none"


@pytest.mark.parametrize(
    ("deletion", "state"),
    [
        (made(Policy.CLASSIC), "queued"),
        (made(Policy.CLASSIC, halted=HaltReason.REASSIGNMENT), "halted"),
        (NEW.with_status(1, STARTED, (0,)), "under way"),
        (made(finished_ms=1), "finished"),
        (made(finished_ms=1, halted=HaltReason.REASSIGNMENT), "finished"),
    ],
)
def test_states(deletion: DeletionImage, state: str) -> None:
    assert state_of(deletion) == state
    assert json.loads(json_text([deletion]))["deletions"][0]["state"] == state


def test_the_json_has_all_that_is_known() -> None:
    going = (
        made(halted=HaltReason.REASSIGNMENT, remote=Remote.PENDING)
        .with_status(3, REFUSED, (2, 1))
        .with_status(3, STARTED, (0,))
    )
    done = made(finished_ms=ASKED_MS + 1).with_status(1, GIVEN_UP, (0,))
    assert json.loads(json_text([going, done])) == {
        "deletions": [
            {
                "topic": "orders",
                "topic_id": uuid_text(ID),
                "policy": "at once",
                "state": "halted",
                "asked_ms": ASKED_MS,
                "finished_ms": None,
                "halted": "reassignment",
                "remote": "pending",
                "purge": None,
                "replicas": [
                    {
                        "broker": 3,
                        "state": "started",
                        "reason": None,
                        "error": None,
                        "partitions": [0],
                    },
                    {
                        "broker": 3,
                        "state": "ineligible",
                        "reason": "refused",
                        "error": "KAFKA_STORAGE_ERROR",
                        "partitions": [1, 2],
                    },
                ],
            },
            {
                "topic": "orders",
                "topic_id": uuid_text(ID),
                "policy": "at once",
                "state": "finished",
                "asked_ms": ASKED_MS,
                "finished_ms": ASKED_MS + 1,
                "halted": None,
                "remote": "none",
                "purge": None,
                "replicas": [
                    {
                        "broker": 1,
                        "state": "abandoned",
                        "reason": "unregistered",
                        "error": None,
                        "partitions": [0],
                    }
                ],
            },
        ]
    }
    assert json.loads(json_text([])) == {"deletions": []}


@pytest.mark.parametrize(
    ("deletion", "text"),
    [
        (made(Policy.CLASSIC), "the controller has not started"),
        (made(Policy.CLASSIC, halted=HaltReason.REASSIGNMENT), "reassign-partitions --cancel"),
        (made(Policy.CLASSIC, halted=HaltReason.PREFERRED_ELECTION), "preferred leader election"),
        (NEW.with_status(2, BROKER_DOWN, (0,)), "broker 2 is down: start it; if .*unregister"),
        (
            made(Policy.CLASSIC).with_status(2, BROKER_DOWN, (0,)),
            "broker 2 is down: start it; if .*empty log directories",
        ),
        (
            NEW.with_status(2, BROKER_DOWN, (0,)).with_status(3, BROKER_DOWN, (1,)),
            "brokers 2-3 are down: start them",
        ),
        (NEW.with_status(2, LOST, (0,)), "a log directory of broker 2 is offline: repair it and"),
        (
            NEW.with_status(2, UNDELETABLE, (0,)),
            "broker 2 cannot delete partition directories: its log names each path and the reason; "
            "repair that, and the broker retries within a minute",
        ),
        (NEW.with_status(2, REFUSED, (0,)), "broker 2 returned KAFKA_STORAGE_ERROR"),
        (NEW.with_status(2, STARTED, (0,)), "broker 2 has not confirmed yet"),
        (
            made(remote=Remote.PENDING).with_status(2, SUCCESSFUL, (0,)),
            "remote tier is not purged",
        ),
        (NEW.with_status(2, SUCCESSFUL, (0,)), "the controller has not closed it yet"),
    ],
)
def test_open_deletions_are_listed_with_causes_and_remedies(
    deletion: DeletionImage, text: str
) -> None:
    [cause] = causes(deletion)
    assert re.search(text, cause)


def test_every_cause_is_listed_but_those_that_are_over() -> None:
    mixed = (
        NEW.with_status(1, GIVEN_UP, (0,))
        .with_status(2, BROKER_DOWN, (0,))
        .with_status(3, STARTED, (0,))
    )
    text = "; ".join(causes(mixed))
    assert "broker 1" not in text
    assert "broker 2 is down" in text
    assert "broker 3 has not confirmed" in text


def test_of_many_deletions_some_are_named() -> None:
    many = [made(name=f"t{number}").with_status(1, STARTED, (0,)) for number in range(5)]
    text = open_text(many)
    assert "t2: " in text
    assert "t3: " not in text
    assert text.endswith("And 2 more")
    assert "more" not in open_text(many[:3])
    assert "\n" not in text


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert time_text(2**62) == str(2**62)


def test_a_pending_purge_shows_what_is_left_and_the_last_error() -> None:
    entry = LedgerEntry(
        topic_id=ID, name="orders", policy=Policy.AT_ONCE, asked_ms=ASKED_MS, remote=Remote.PENDING,
        purge_partitions=3, purge_partitions_left=2, purge_segments_left=7, purge_bytes_left=900,
        purge_error="denied: 403",
    ).with_status(1, SUCCESSFUL, (0, 1, 2))  # fmt: skip
    text = "pending, 2 of 3 partitions, 7 segments left; last error: denied: 403"
    assert list(table_lines([entry]))[-1] == f"  remote tier: {text}"
    assert causes(entry) == [f"the remote tier is not purged yet: {text}"]
    assert json.loads(json_text([entry]))["deletions"][0]["purge"] == {
        "partitions": 3,
        "partitions_left": 2,
        "segments_left": 7,
        "bytes_left": 900,
        "last_error": "denied: 403",
    }


def test_a_purge_that_nobody_has_reported_yet() -> None:
    entry = LedgerEntry(
        topic_id=ID, name="orders", policy=Policy.AT_ONCE, asked_ms=ASKED_MS, remote=Remote.PENDING,
        purge_partitions=3, purge_partitions_left=3,
    )  # fmt: skip
    assert purge_text(entry) == "pending, 3 of 3 partitions left"
    purge = json.loads(json_text([entry]))["deletions"][0]["purge"]
    assert (purge["segments_left"], purge["bytes_left"], purge["last_error"]) == (None, None, None)


def test_an_abandoned_purge_shows_what_was_left_and_is_warned_of() -> None:
    entry = LedgerEntry(
        topic_id=ID, name="orders", policy=Policy.AT_ONCE, asked_ms=ASKED_MS,
        finished_ms=ASKED_MS + 2_000, remote=Remote.ABANDONED,
        purge_segments_left=7, purge_bytes_left=2048,
    )  # fmt: skip
    assert purge_text(entry) == "abandoned, 7 segments (2.0 KiB) left"
    assert json.loads(json_text([entry]))["deletions"][0]["purge"] == {
        "partitions": None,
        "partitions_left": None,
        "segments_left": 7,
        "bytes_left": 2048,
        "last_error": None,
    }
    found = entry.with_status(1, GIVEN_UP, (0, 1)).with_status(2, SUCCESSFUL, (0,))
    remote = (
        "the purge of its remote tier was abandoned, 7 segments (2.0 KiB) left: look for the"
        f" directory orders-{uuid_text(ID)} in the store"
    )
    assert unproven_text(entry) == f"WARN: orders: finished, but {remote}"
    assert unproven_text(found) == (
        "WARN: orders: finished, but only 1 of 3 replicas are confirmed deleted; the others were"
        f" abandoned (unregistered: broker 1); {remote}"
    )
    assert unproven_text(replace(entry, finished_ms=NOT_FINISHED)) is None
    unknown = replace(entry, purge_segments_left=-1, purge_bytes_left=-1)
    assert purge_text(unknown) == "abandoned"
