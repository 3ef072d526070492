"""In any order of events, deletions end, delete no live replica, and have true receipts.

Method: all orders of events on a small cluster, up to a depth, state after state, each once. In
every state: no living topic's replica was ordered away or deleted; a topic that began to go
never lives again; a receipt says SUCCESSFUL only of what is on no disk, and of a tiered topic's
objects that they are purged only once that was reported of all partitions, and that they are not
only where an operator gave them up. From every state: once all brokers run, nothing halts it and
the purgers report, every deletion ends, with a new controller or the old one.
"""

from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.deletions import DeletionState, Policy, Remote
from tests.unit.controller.deletion_harness import DeletionHarness

Event = tuple[str, Callable[[DeletionHarness], None]]

ON_BOTH = {0: (1, 2)}
NAME = "t"
STATES_MAX = 900


def broker_events(harness: DeletionHarness) -> Iterator[Event]:
    """Yield what brokers can do, or suffer."""
    for broker_id, machine in harness.machines.items():
        if machine.epoch is None:
            yield f"start {broker_id}", lambda w, b=broker_id: w.start(b)
            continue
        yield f"stop {broker_id}", lambda w, b=broker_id: w.stop(b)
        if machine.queue:
            yield f"carry out {broker_id}", lambda w, b=broker_id: _carry_out(w, b)
            yield f"mute {broker_id}", lambda w, b=broker_id: _mute(w, b)


def _carry_out(harness: DeletionHarness, broker_id: int) -> None:
    harness.carry_out(broker_id)


def _mute(harness: DeletionHarness, broker_id: int) -> None:
    harness.carry_out(broker_id, answer=False)


def controller_events(harness: DeletionHarness) -> Iterator[Event]:
    """Yield what the controller can do, dying between two of its writes among it."""
    if harness.manager.has_work:
        yield "decide", lambda w: _decide(w, None)
        for count in range(3):
            yield f"write {count} and die", lambda w, c=count: _decide(w, c)
    yield "elect", lambda w: w.elect()
    yield from purge_events(harness)


def _decide(harness: DeletionHarness, only: int | None) -> None:
    harness.decide(only=only)


def classic_events(harness: DeletionHarness) -> Iterator[Event]:
    """Yield what can happen to a cluster of ZooKeeper's kind."""
    yield from broker_events(harness)
    yield from controller_events(harness)
    topic_id = harness.image.topics.id_of(NAME)
    if topic_id is None:
        if harness.ids < 2:
            yield "create again", lambda w: _create(w)
    elif not harness.image.is_queued_for_deletion(NAME):
        yield "mark", lambda w: _mark(w)
    if harness.preferred_elections:
        yield "end elections", lambda w: w.run_elections()
    else:
        yield "run elections", lambda w: w.run_elections(NAME)


def at_once_events(harness: DeletionHarness) -> Iterator[Event]:
    """Yield what can happen to a cluster of KRaft's kind."""
    yield from broker_events(harness)
    yield from controller_events(harness)
    if harness.image.topics.id_of(NAME) is not None:
        yield "delete", lambda w: w.delete(NAME)
    elif harness.ids < 2:
        yield "create again", lambda w: _create(w)
    if harness.machines[2].epoch is None and 2 in harness.image.brokers:
        yield "unregister 2", lambda w: w.unregister(2)


def purge_events(harness: DeletionHarness) -> Iterator[Event]:
    """Yield what purgers report, of any topic there is or was, once or again."""
    if not harness.is_tiered or 1 not in harness.image.brokers:
        return
    ids = {topic.id for topic in harness.image.topics}
    for topic_id in sorted(ids | harness.image.deletions.ids()):
        yield f"report {topic_id.hex()}", lambda w, t=topic_id: _report(w, t)

    for entry in harness.image.deletions.purges():
        yield f"abandon {entry.topic_id.hex()}", lambda w, t=entry.topic_id: _abandon(w, t)


def _abandon(harness: DeletionHarness, topic_id: Uuid) -> None:
    assert not harness.abandon(topic_id).was_abandoned
    harness.abandoned.add(topic_id)


def _report(harness: DeletionHarness, topic_id: Uuid) -> None:
    entry = harness.image.deletions.of(topic_id)
    is_purging = entry is not None and entry.is_purging
    error = harness.report(topic_id, *ON_BOTH)
    assert error is (Error.NONE if is_purging else Error.UNKNOWN_TOPIC_ID)


def _create(harness: DeletionHarness) -> None:
    topic_id = harness.create(NAME, ON_BOTH)
    if harness.is_tiered:
        harness.tier(topic_id)


def _mark(harness: DeletionHarness) -> None:
    assert harness.mark(NAME) is Error.NONE


def key_of(harness: DeletionHarness) -> object:
    """Return the identity of a state: without its time and its epochs."""
    manager = harness.manager.__dict__
    orders = sorted(
        (epoch == harness.machines[broker_id].epoch, replica, state.name)
        for broker_id, epoch, replica, state in manager["_orders"]
    )
    machines = [
        (
            machine.epoch is not None,
            broker_id in harness.image.brokers,
            frozenset(machine.disk),
            machine.is_failed,
            repr([getattr(each, "topics", each) for each in machine.queue]),
        )
        for broker_id, machine in sorted(harness.machines.items())
    ]
    ledger = [
        (each.topic_id, each.is_finished, each.remote, *each.rows())
        for each in harness.image.deletions
    ]
    return repr((
        [topic.id for topic in harness.image.topics],
        [(*each, ) for each in ledger],
        [harness.image.deletions.of(each.topic_id).halted for each in harness.image.deletions],  # type: ignore[union-attr]
        machines,
        orders,
        sorted(manager["_undecided"].__dict__["_noted"].items()),
        harness.preferred_elections,
    ))  # fmt: skip


def check(harness: DeletionHarness, begun: frozenset[bytes]) -> frozenset[bytes]:
    """Check what must hold in every state; return the topics that have begun to go until now."""
    assert not harness.wrongs
    assert not harness.illegal
    for entry in harness.image.deletions:
        if entry.remote is Remote.PURGED:
            assert {(entry.topic_id, each) for each in entry.partitions()} <= harness.reported
        assert (entry.remote is Remote.ABANDONED) == (entry.topic_id in harness.abandoned)
        if entry.is_finished:
            assert harness.image.topics.by_id(entry.topic_id) is None
            if entry.topic_id not in harness.abandoned:
                assert entry.remote is (Remote.PURGED if harness.is_tiered else Remote.NONE)
            for broker_id, standing, numbers in entry.rows():
                if standing.state is DeletionState.SUCCESSFUL:
                    on_disk = harness.logs_of(entry.topic_id)
                    assert not on_disk & {(broker_id, number) for number in numbers}
    now = frozenset(each.topic_id for each in harness.image.deletions if each.has_begun)
    assert begun <= now, "a deletion that had begun is forgotten"
    lives = {
        topic.id
        for topic in harness.image.topics
        if not harness.image.deletions.is_being_deleted(topic.id)
    }
    assert not begun & lives, "a topic came back"
    return now


def heal_and_check(harness: DeletionHarness, *, new_controller: bool) -> None:
    """Let everything work again, and see that every deletion ends."""
    harness.run_elections()
    for broker_id, machine in harness.machines.items():
        machine.is_failed = False
        if machine.epoch is None:
            harness.start(broker_id)
    if new_controller:
        harness.elect()
    harness.settle()
    for entry in harness.image.deletions.pending():
        # The name and the replicas do not wait for the purge, the receipt does.
        assert harness.is_tiered
        assert entry.is_purging
        assert entry.replicas_are_over
        assert harness.image.topics.by_id(entry.topic_id) is None
        _report(harness, entry.topic_id)
    harness.settle()
    assert harness.image.deletions.pending() == []
    check(harness, frozenset())
    for entry in harness.image.deletions:
        gone = {
            (broker_id, number)
            for broker_id, standing, numbers in entry.rows()
            for number in numbers
            if standing.state is DeletionState.SUCCESSFUL
        }
        assert not harness.logs_of(entry.topic_id) & gone


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("is_tiered", [False, True], ids=["local", "tiered"])
@pytest.mark.parametrize(
    ("policy", "events"),
    [(Policy.CLASSIC, classic_events), (Policy.AT_ONCE, at_once_events)],
    ids=["classic", "at-once"],
)
def test_every_order_of_events(
    policy: Policy, events: Callable[[DeletionHarness], Iterator[Event]], is_tiered: bool
) -> None:
    first = DeletionHarness(policy, (1, 2))
    first.is_tiered = is_tiered
    _create(first)
    seen = {key_of(first)}
    layer = [(first, frozenset[bytes](), ())]
    finished = 0
    while layer and len(seen) < STATES_MAX:
        following = []
        for harness, begun, history in layer:
            for name, happen in events(harness):
                there = harness.clone()
                path = (*history, name)
                try:
                    happen(there)
                    key = key_of(there)
                    if key in seen:
                        continue
                    seen.add(key)
                    now = check(there, begun)
                    finished += any(each.is_finished for each in there.image.deletions)
                    heal_and_check(there.clone(), new_controller=len(seen) % 2 == 0)
                except AssertionError as error:
                    raise AssertionError(f"{error} after: {', '.join(path)}") from error
                following.append((there, now, path))
        layer = following
    assert finished > 0  # Else the walk proved nothing.
