"""Long random histories of deletions: longer and richer ones than can be walked exhaustively.

Method: hypothesis draws what happens next out of what can happen on a cluster of three brokers
and two names, with reassignments, growth, failing disks, late brokers and topics removed by hand;
`check` of the exhaustive walk after each event, and in the end everything works again and every
deletion must end.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.deletions import Policy
from tests.drawn import examples
from tests.unit.controller.deletion.test_deletion_walk import (
    Event,
    broker_events,
    check,
    controller_events,
    heal_and_check,
)
from tests.unit.controller.deletion_harness import DeletionHarness

NAMES = ("a", "b")
ASSIGNMENTS = ({0: (1, 2), 1: (2, 3)}, {0: (3, 1, 2)}, {0: (2,)})


def disk_events(harness: DeletionHarness) -> list[Event]:
    """Return what disks can do, and brokers that follow the metadata late."""
    found: list[Event] = []
    for broker_id in harness.machines:
        found.append((f"disk {broker_id}", lambda w, b=broker_id: _toggle(w, b, "is_failed")))
        if harness.policy is Policy.AT_ONCE:
            found.append((f"late {broker_id}", lambda w, b=broker_id: _toggle(w, b, "is_late")))
            if harness.machines[broker_id].epoch is None and broker_id in harness.image.brokers:
                found.append((f"unregister {broker_id}", lambda w, b=broker_id: w.unregister(b)))
    return found


def _toggle(harness: DeletionHarness, broker_id: int, what: str) -> None:
    machine = harness.machines[broker_id]
    setattr(machine, what, not getattr(machine, what))


def topic_events(harness: DeletionHarness, name: str) -> list[Event]:
    """Return what can be done to a topic."""
    topic = harness.image.topics.by_name(name)
    if topic is None:
        return [
            (f"create {name} {number}", lambda w, a=assignment: _create(w, name, a))
            for number, assignment in enumerate(ASSIGNMENTS)
        ]
    if harness.policy is Policy.AT_ONCE:
        return [(f"delete {name}", lambda w: w.delete(name))]
    found: list[Event] = [(f"mark {name}", lambda w: _mark(w, name))]
    if topic.partitions[0].is_reassigning:
        found.append((f"end move of {name}", lambda w: w.end_reassignment(topic.id)))
    elif not harness.image.is_queued_for_deletion(name):
        found.append((f"move {name}", lambda w: w.reassign(topic.id, (1, 3))))
    if 7 not in topic.partitions:
        found.append((f"grow {name}", lambda w: w.grow(topic.id, {7: (3, 1)})))
    if harness.image.is_queued_for_deletion(name):
        found.append((f"remove {name} by hand", lambda w: w.remove_by_hand(name)))
    return found


def _create(harness: DeletionHarness, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
    harness.create(name, assignment)


def _mark(harness: DeletionHarness, name: str) -> None:
    harness.mark(name)


def events_of(harness: DeletionHarness) -> list[Event]:
    """Return all that can happen now."""
    found = [*broker_events(harness), *controller_events(harness), *disk_events(harness)]
    for name in NAMES:
        found += topic_events(harness, name)
    found.append(("time", lambda w: w.pass_time()))
    if harness.policy is Policy.CLASSIC:
        names: tuple[str, ...] = () if harness.preferred_elections else ("a",)
        found.append((f"elections of {names}", lambda w: w.run_elections(*names)))
    return found


def end_moves(harness: DeletionHarness) -> None:
    """End all reassignments."""
    for topic in harness.image.topics:
        if topic.partitions[0].is_reassigning:
            harness.end_reassignment(topic.id)


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_histories(policy: Policy, data: st.DataObject) -> None:
    harness = DeletionHarness(policy, (1, 2, 3))
    begun: frozenset[bytes] = frozenset()
    for _ in range(data.draw(st.integers(10, 60), label="length")):
        events: dict[str, Callable[[DeletionHarness], None]] = dict(events_of(harness))
        name = data.draw(st.sampled_from(sorted(events)), label="event")
        events[name](harness)
        begun = check(harness, begun)
    for machine in harness.machines.values():
        machine.is_late = False
    end_moves(harness)
    heal_and_check(harness, new_controller=data.draw(st.booleans(), label="new controller"))
