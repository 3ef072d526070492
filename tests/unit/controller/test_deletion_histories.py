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

from ottla.controller.deletion_policy import is_reassigned
from ottla.metadata.deletions import Policy

from .deletion_harness import DeletionWorld
from .test_deletion_walk import Event, broker_events, check, controller_events, heal_and_check

NAMES = ("a", "b")
ASSIGNMENTS = ({0: (1, 2), 1: (2, 3)}, {0: (3, 1, 2)}, {0: (2,)})


def disk_events(world: DeletionWorld) -> list[Event]:
    """Return what disks can do, and brokers that follow the metadata late."""
    found: list[Event] = []
    for broker_id in world.machines:
        found.append((f"disk {broker_id}", lambda w, b=broker_id: _toggle(w, b, "is_failed")))
        if world.policy is Policy.AT_ONCE:
            found.append((f"late {broker_id}", lambda w, b=broker_id: _toggle(w, b, "is_late")))
            if world.machines[broker_id].epoch is None and broker_id in world.image.brokers:
                found.append((f"unregister {broker_id}", lambda w, b=broker_id: w.unregister(b)))
    return found


def _toggle(world: DeletionWorld, broker_id: int, what: str) -> None:
    machine = world.machines[broker_id]
    setattr(machine, what, not getattr(machine, what))


def topic_events(world: DeletionWorld, name: str) -> list[Event]:
    """Return what can be done to a topic."""
    topic = world.image.topics.by_name(name)
    if topic is None:
        return [
            (f"create {name} {number}", lambda w, a=assignment: _create(w, name, a))
            for number, assignment in enumerate(ASSIGNMENTS)
        ]
    if world.policy is Policy.AT_ONCE:
        return [(f"delete {name}", lambda w: w.delete(name))]
    found: list[Event] = [(f"mark {name}", lambda w: _mark(w, name))]
    if is_reassigned(topic.partitions[0]):
        found.append((f"end move of {name}", lambda w: w.end_reassignment(topic.id)))
    elif not world.image.is_queued_for_deletion(name):
        found.append((f"move {name}", lambda w: w.reassign(topic.id, (1, 3))))
    if 7 not in topic.partitions:
        found.append((f"grow {name}", lambda w: w.grow(topic.id, {7: (3, 1)})))
    if world.image.is_queued_for_deletion(name):
        found.append((f"remove {name} by hand", lambda w: w.remove_by_hand(name)))
    return found


def _create(world: DeletionWorld, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
    world.create(name, assignment)


def _mark(world: DeletionWorld, name: str) -> None:
    world.mark(name)


def events_of(world: DeletionWorld) -> list[Event]:
    """Return all that can happen now."""
    found = [*broker_events(world), *controller_events(world), *disk_events(world)]
    for name in NAMES:
        found += topic_events(world, name)
    found.append(("time", lambda w: w.pass_time()))
    if world.policy is Policy.CLASSIC:
        names: tuple[str, ...] = () if world.preferred_elections else ("a",)
        found.append((f"elections of {names}", lambda w: w.run_elections(*names)))
    return found


def end_moves(world: DeletionWorld) -> None:
    """End all reassignments."""
    for topic in world.image.topics:
        if is_reassigned(topic.partitions[0]):
            world.end_reassignment(topic.id)


@pytest.mark.parametrize("policy", Policy, ids=lambda policy: policy.name)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_histories(policy: Policy, data: st.DataObject) -> None:
    world = DeletionWorld(policy, (1, 2, 3))
    begun: frozenset[bytes] = frozenset()
    for _ in range(data.draw(st.integers(10, 60), label="length")):
        events: dict[str, Callable[[DeletionWorld], None]] = dict(events_of(world))
        name = data.draw(st.sampled_from(sorted(events)), label="event")
        events[name](world)
        begun = check(world, begun)
    for machine in world.machines.values():
        machine.is_late = False
    end_moves(world)
    heal_and_check(world, new_controller=data.draw(st.booleans(), label="new controller"))
