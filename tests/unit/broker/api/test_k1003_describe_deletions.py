"""DescribeDeletions returns the entries of the deletion ledger, in both modes.

Method: the controller of the handlers' tests with entries written into its image; every answer
passes the codec. Entries are made by the ledger's own functions, so the numbers on the wire are
compared with its enums.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api import k1003_describe_deletions as k1003
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionsImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
    deletion_records,
)
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.records import FeatureLevelRecord
from ottla.wire.messages.describe_deletions import (
    DescribeDeletionsRequest,
    DescribeDeletionsResponse,
    DescribeDeletionsTopic,
)

from ..controller_harness import Controller

REFUSED = ReplicaStatus(DeletionState.INELIGIBLE, Reason.REFUSED, int(Error.KAFKA_STORAGE_ERROR))
LEDGER = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=OTTLA_VERSION_LEVEL)


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def deletion(number: int, name: str, **more: Any) -> DeletionImage:
    parts = {"policy": Policy.AT_ONCE, "asked_ms": 1_000 - number} | more
    return DeletionImage(topic_id=uuid(number), name=name, **parts)


OPEN = (
    deletion(10, "b", halted=HaltReason.REASSIGNMENT, remote=Remote.PENDING)
    .with_status(2, BROKER_DOWN, (0, 1))
    .with_status(1, STARTED, (0,))
    .with_status(1, REFUSED, (1,))
)
DONE = deletion(11, "b", finished_ms=2_000).with_status(1, SUCCESSFUL, (0,))
OTHER = deletion(12, "a")


def harness(*deletions: DeletionImage, level: bool = True) -> Controller:
    controller = Controller()
    if level:
        controller.write(LEDGER)
    for each in deletions:
        controller.write(*deletion_records(each))
    return controller


def ask(controller: Controller, **how: Any) -> DescribeDeletionsResponse:
    answer: DescribeDeletionsResponse = controller.ask(DescribeDeletionsRequest(**how), 0)
    return answer


def ids(answer: DescribeDeletionsResponse) -> list[Uuid]:
    assert answer.error_code == Error.NONE
    return [each.topic_id for each in answer.deletions]


def named(*names: str) -> tuple[DescribeDeletionsTopic, ...]:
    return tuple(DescribeDeletionsTopic(name=name) for name in names)


def test_an_entry_is_returned_whole() -> None:
    [returned] = ask(harness(OPEN)).deletions
    assert (returned.topic_id, returned.name, returned.asked_ms, returned.finished_ms) == (
        uuid(10),
        "b",
        990,
        -1,
    )
    assert returned.policy == Policy.AT_ONCE
    assert returned.halted == HaltReason.REASSIGNMENT
    assert returned.remote == Remote.PENDING
    assert [(e.broker_id, e.state, e.reason, e.error, e.partitions) for e in returned.replicas] == [
        (1, DeletionState.STARTED, Reason.NONE, 0, (0,)),
        (1, DeletionState.INELIGIBLE, Reason.REFUSED, Error.KAFKA_STORAGE_ERROR, (1,)),
        (2, DeletionState.INELIGIBLE, Reason.BROKER_DOWN, 0, (0, 1)),
    ]


def test_all_topics_that_had_a_name_are_returned() -> None:
    controller = harness(OTHER, DONE, OPEN)
    assert ids(ask(controller)) == [uuid(10), uuid(11), uuid(12)]
    assert ids(ask(controller, topics=named("b"))) == [uuid(10), uuid(11)]


def test_receipts_are_left_out_where_they_are_not_wanted() -> None:
    controller = harness(OPEN, DONE, OTHER)
    assert ids(ask(controller, include_receipts=False)) == [uuid(10), uuid(12)]
    assert ids(ask(controller, topics=named("b"), include_receipts=False)) == [uuid(10)]


def test_an_id_finds_one_and_a_stranger_nothing() -> None:
    controller = harness(OPEN, DONE, OTHER)
    by_id = (DescribeDeletionsTopic(topic_id=uuid(10)), *named("a", "nobody"))
    assert ids(ask(controller, topics=by_id)) == [uuid(10), uuid(12)]
    assert ids(ask(controller, topics=(DescribeDeletionsTopic(topic_id=uuid(99)),))) == []
    assert ids(ask(controller, topics=(DescribeDeletionsTopic(),))) == [], "neither name nor id"


def test_a_request_changes_nothing() -> None:
    controller = harness(OPEN)
    before = controller.image
    ask(controller)
    assert controller.image == before


def test_a_cluster_without_a_ledger_refuses() -> None:
    """An empty answer would be taken for a proof."""
    answer = ask(harness(level=False))
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert answer.error_message is not None
    assert OTTLA_VERSION in answer.error_message


def test_over_zookeeper_there_is_always_one() -> None:
    controller = Controller(mode=ZOOKEEPER_MODE)
    entry = replace(OPEN, policy=Policy.CLASSIC)
    controller.write(*deletion_records(entry))
    [returned] = ask(controller).deletions
    assert returned.policy == Policy.CLASSIC


def test_who_is_not_the_controller_refuses() -> None:
    controller = harness(OPEN)
    controller.refusal = Error.NOT_CONTROLLER
    answer = ask(controller)
    assert (answer.error_code, answer.deletions) == (Error.NOT_CONTROLLER, ())


def test_a_response_has_a_maximum_of_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last entry is returned whole: a topic may have more replicas than the limit."""
    monkeypatch.setattr(k1003, "DELETED_REPLICAS_PER_RESPONSE_MAX", 3)
    wide = deletion(1, "wide").with_status(1, STARTED, range(10))
    narrow = [deletion(each, "n").with_status(1, STARTED, (0, 1)) for each in (2, 3, 4)]
    controller = harness(wide, *narrow)
    first = ask(controller)
    assert (ids(first), first.next_after) == ([uuid(1)], uuid(1))
    second = ask(controller, after=uuid(1))
    assert (ids(second), second.next_after) == ([uuid(2), uuid(3)], uuid(3))
    last = ask(controller, after=uuid(3))
    assert (ids(last), last.next_after) == ([uuid(4)], NO_UUID)


class CountingLedger(DeletionsImage):
    """A ledger that counts which of its entries were looked at."""

    __slots__ = ("looked_at",)

    def after(self, topic_id: Uuid, *, receipts: bool = True) -> Iterator[DeletionImage]:
        for each in super().after(topic_id, receipts=receipts):
            self.looked_at.append(each)
            yield each


def counting(deletions: Iterable[DeletionImage]) -> CountingLedger:
    ledger = DeletionsImage()
    for each in deletions:
        ledger = ledger.with_deletion(each)
    counted = CountingLedger(ledger._pending, ledger._finished, ledger._ages)
    object.__setattr__(counted, "looked_at", [])
    return counted


@pytest.mark.parametrize("finished_ms", [-1, 5])
def test_the_pages_return_the_whole_ledger(
    finished_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an answer costs must not grow with the ledger: the controller's loop waits for it."""
    monkeypatch.setattr(k1003, "DELETIONS_PER_RESPONSE_MAX", 10)
    entries = [deletion(each, "t", finished_ms=finished_ms) for each in range(1, 101)]
    ledger, request, returned = counting(entries), DescribeDeletionsRequest(), []
    while not returned or request.after != NO_UUID:
        page = k1003.page_of(ledger, request)
        returned += page.deletions
        assert len(ledger.looked_at) <= 11, "ten, and the next one, since there is one"
        ledger.looked_at.clear()
        request = replace(request, after=page.next_after)
    assert returned == entries


def test_a_request_for_open_deletions_does_not_read_receipts() -> None:
    """`--wait` polls, and receipts are kept for a week."""
    ledger = counting([deletion(each, "t", finished_ms=5) for each in range(1, 101)])
    page = k1003.page_of(ledger, DescribeDeletionsRequest(include_receipts=False))
    assert (page, ledger.looked_at) == (k1003.Page(()), [])


def test_a_name_is_looked_for_among_so_many_entries_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(k1003, "DELETIONS_SCANNED_PER_RESPONSE_MAX", 2)
    controller = harness(*(deletion(each, "ab"[each == 3]) for each in range(1, 6)))
    returned = []
    after = NO_UUID
    for _answer in range(3):
        answer = ask(controller, topics=named("b"), after=after)
        after = answer.next_after
        returned.append((ids(answer), after))
    assert returned == [([], uuid(2)), ([uuid(3)], uuid(4)), ([], NO_UUID)]


@settings(deadline=None)
@given(
    st.sets(st.sampled_from(["a", "b", "c"])),
    st.sets(st.integers(1, 8)),
    st.booleans(),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_the_response_has_exactly_the_requested_topics(
    names: set[str], numbers: set[int], receipts: bool, limit: int, looks: int
) -> None:
    """Whatever the size of a page; and only the last one has no cursor."""
    ledger = [
        deletion(number, "abc"[number % 3], finished_ms=5 if number > 3 else -1)
        for number in range(1, 7)
    ]
    topics = (*named(*names), *(DescribeDeletionsTopic(topic_id=uuid(each)) for each in numbers))
    controller = harness(*ledger)
    returned: list[Uuid] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(k1003, "DELETIONS_PER_RESPONSE_MAX", limit)
        patched.setattr(k1003, "DELETIONS_SCANNED_PER_RESPONSE_MAX", looks)
        after, is_last = NO_UUID, False
        while not is_last:
            answer = ask(controller, topics=topics, include_receipts=receipts, after=after)
            after, is_last = answer.next_after, answer.next_after == NO_UUID
            assert looks <= 6 or len(answer.deletions) == limit or is_last
            returned += ids(answer)
    assert returned == [
        each.topic_id
        for each in ledger
        if (not topics or each.name in names or each.topic_id in map(uuid, numbers))
        and (receipts or not each.is_finished)
    ]
