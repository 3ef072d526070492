"""A broker or the controller is killed at each step of a deletion: it ends all the same, and truly.

Method: three replicas of which one's broker is frozen, so that the deletion stays at the step that
was reached; then somebody is killed, and all are given back. In the end there is a receipt, which
the disks confirm, the name is free, and a topic beside it has lost nothing. One of six cases, drawn
by the commit, is run in each mode: tests/sim plays every step. OTTLA_DELETION_ROUNDS=N, which `make
soak` sets, runs every step with every victim, N times.

The steps are those that the simulator enumerates, as far as they can be seen from outside, by
clients and on disks. Four cannot, and are played by the simulator only: that the controller has got
the request (ASKED), the broker the order (ORDERED) and the controller its answer (ANSWERED), since
these are in sockets; and that a flush has ended (DURABLE), since the page cache hides whether it
has. Nearest to ORDERED comes the frozen broker as a victim, which never reads what it was sent.
"""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import Error
from ottla.metadata.deletions import DeletionState
from ottla.metadata.znodes import paths
from ottla.testing.sim.watch.deletion_steps import STEPS, Step

from ..drawn import FAULT_ROUNDS, drawn
from .clients import eventually
from .conftest import NewCluster, revived
from .deletions import MODES, PATIENCE_SECONDS, Made, Site, site_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

Reached = Callable[[Site, Made], bool]


def acknowledged(site: Site, made: Made) -> bool:
    """The client has its answer, or the controller of a ZooKeeper cluster has noted the wish."""
    return True


def begun(site: Site, made: Made) -> bool:
    """The ledger lists replicas."""
    entry = site.entry(made)
    return entry is not None and entry.has_begun


def forgotten(site: Site, made: Made) -> bool:
    """The leader's broker knows the topic no more."""
    found = site.described(made.name, node=leader_of(made))
    return found.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def renamed(site: Site, made: Made) -> bool:
    """A replica's directory has lost its name, and still has its bytes."""
    return len(site.directories(made.id)) < made.replica_count


def proven(site: Site, made: Made) -> bool:
    """The ledger knows that a replica is gone."""
    entry = site.entry(made)
    return entry is not None and entry.count(DeletionState.SUCCESSFUL) > 0


def all_but_one(site: Site, made: Made) -> bool:
    """The ledger knows that all are gone but for the frozen broker's."""
    entry = site.entry(made)
    return entry is not None and entry.count(DeletionState.SUCCESSFUL) == 6


def gone(site: Site, made: Made) -> bool:
    """The topic has left the metadata."""
    if site.is_classic:
        return site.zookeeper.exists(paths.topic(made.name)) is None
    return site.described(made.name).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def finished(site: Site, made: Made) -> bool:
    """There is a receipt."""
    entry = site.entry(made)
    return entry is not None and entry.is_finished


def removed(site: Site, made: Made) -> bool:
    """The leader's broker has begun to remove the bytes: with so few it has mostly done it, too."""
    return site.segments_left(made, leader_of(made)) < len(made.replicas)


def leader_of(made: Made) -> int:
    return made.replicas[0][0]


SEEN: dict[Step, Reached] = {
    Step.NOTED: acknowledged,
    Step.BEGUN: begun,
    Step.FORGOTTEN: forgotten,
    Step.RENAMED: renamed,
    Step.CONFIRMED: proven,
    Step.GONE: gone,
    Step.FINISHED: finished,
    Step.REMOVED: removed,
}
UNSEEN = frozenset({Step.ASKED, Step.ORDERED, Step.DURABLE, Step.ANSWERED})
assert set(STEPS) == UNSEEN | SEEN.keys(), "a step that this file does not know of"

TO_THE_END = (gone, finished)
"""No broker is frozen, or a ZooKeeper cluster would not come there."""

VICTIMS = ("controller", "broker", "both", "frozen")
LIKELY = (
    (acknowledged, "controller"),
    (begun, "frozen"),
    (renamed, "broker"),
    (proven, "controller"),
    (finished, "broker"),
    (removed, "broker"),
)
ROUNDS = int(os.environ.get("OTTLA_DELETION_ROUNDS", "0"))
CASES = tuple(itertools.product((*SEEN.values(), all_but_one), VICTIMS)) * ROUNDS or drawn(
    LIKELY, 1, FAULT_ROUNDS
)

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=MODES, ids=["kraft", "zookeeper"])
def site_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster) as site:
        yield site


@pytest.fixture
def site(site_of_module: Site) -> Site:
    """A cluster all of whose brokers serve."""
    revived(site_of_module.cluster)
    return site_of_module


@pytest.mark.parametrize(
    ("reached", "victim"), CASES, ids=lambda each: each if isinstance(each, str) else each.__name__
)
def test_a_deletion_ends_whoever_is_killed(site: Site, reached: Reached, victim: str) -> None:
    first, controller, frozen = site.trio()
    name = f"crash-{next(_numbers)}"
    beside = site.create(f"{name}-beside", (first, controller, frozen))
    made = site.create(name, *[(first, controller, frozen)] * 3)
    if reached not in TO_THE_END:
        site.cluster.pause(frozen)
    # Over ZooKeeper it is answered when the topic is known no more; here when it is noted.
    asked = site.delete(name, timeout_ms=0 if site.is_classic else 30_000)
    assert asked is (Error.REQUEST_TIMED_OUT if site.is_classic else Error.NONE)
    eventually(
        lambda: reached(site, made), within=PATIENCE_SECONDS, what=reached.__doc__ or "the step"
    )
    victims = {
        "controller": (controller,),
        "broker": (first,),
        "both": (first, controller),
        "frozen": (frozen,),
    }[victim]
    for each in victims:
        site.cluster.kill(each)
    if reached not in TO_THE_END and frozen not in victims:
        site.cluster.resume(frozen)
    site.start(*victims)
    receipt = site.wait_receipt(made)
    for node in (first, controller, frozen):
        assert site.described(name, node=node).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert site.words(beside.name, 0, node) == [beside.word]
    again = site.create(name, (frozen, first))
    assert site.entry(made) == receipt
    assert len(site.directories(again.id)) == 2
