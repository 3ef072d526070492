"""A broker or the controller is killed at each step of a deletion: it ends all the same, and truly.

Method: three replicas of which one's broker is frozen, so that the deletion stays at the step that
was reached; then somebody is killed, and all are given back. In the end there is a receipt, which
the disks confirm, the name is free, and a topic beside it has lost nothing. Four steps are always
run; OTTLA_DELETION_ROUNDS=N runs every step with every victim, N times. The simulator enumerates
the code's own steps.
"""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from ottla.base.errors import Error
from ottla.metadata.deletions import DeletionState

from .clients import eventually
from .conftest import NewCluster, revived
from .deletions import MODES, PATIENCE_SECONDS, Made, Site, site_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

Reached = Callable[[Site, Made], bool]


def acknowledged(site: Site, made: Made) -> bool:
    """The client has its answer, or the controller of a ZooKeeper cluster has noted the wish."""
    return True


def ordered(site: Site, made: Made) -> bool:
    """The ledger lists replicas."""
    entry = site.entry(made)
    return entry is not None and entry.has_begun


def renamed(site: Site, made: Made) -> bool:
    """A replica's folder has lost its name, and still has its bytes."""
    return len(site.folders(made.id)) < made.replica_count


def proven(site: Site, made: Made) -> bool:
    """The ledger knows that a replica is gone."""
    entry = site.entry(made)
    return entry is not None and entry.count(DeletionState.SUCCESSFUL) > 0


def all_but_one(site: Site, made: Made) -> bool:
    """The ledger knows that all are gone but for the frozen broker's."""
    entry = site.entry(made)
    return entry is not None and entry.count(DeletionState.SUCCESSFUL) == 6


def finished(site: Site, made: Made) -> bool:
    """There is a receipt."""
    entry = site.entry(made)
    return entry is not None and entry.is_finished


STEPS: tuple[Reached, ...] = (acknowledged, ordered, renamed, proven, all_but_one, finished)
VICTIMS = ("controller", "broker", "both")
ALWAYS = (
    (acknowledged, "controller"),
    (renamed, "broker"),
    (proven, "controller"),
    (finished, "broker"),
)
ROUNDS = int(os.environ.get("OTTLA_DELETION_ROUNDS", "0"))
CASES = tuple(itertools.product(STEPS, VICTIMS)) * ROUNDS or ALWAYS

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
    if reached is not finished:
        site.cluster.pause(frozen)
    # Over ZooKeeper it is answered when the topic is known no more; here when it is noted.
    asked = site.delete(name, timeout_ms=0 if site.is_classic else 30_000)
    assert asked is (Error.REQUEST_TIMED_OUT if site.is_classic else Error.NONE)
    eventually(
        lambda: reached(site, made), within=PATIENCE_SECONDS, what=reached.__doc__ or "the step"
    )
    victims = {"controller": (controller,), "broker": (first,), "both": (first, controller)}[victim]
    for each in victims:
        site.cluster.kill(each)
    if reached is not finished:
        site.cluster.resume(frozen)
    site.start(*victims)
    receipt = site.wait_receipt(made)
    for node in (first, controller, frozen):
        assert site.told(name, node=node).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert site.words(beside.name, 0, node) == [beside.word]
    again = site.create(name, (frozen, first))
    assert site.entry(made) == receipt
    assert len(site.folders(again.id)) == 2
