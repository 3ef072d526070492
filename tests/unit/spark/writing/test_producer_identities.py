"""An id must be had by one task at a time, and not for longer than brokers remember it.

Method: a clock of the test.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.spark.writing.producer_identities import IDLE_S_MAX, Identities, Identity

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def test_one_at_a_time_and_each_cluster_its_own() -> None:
    identities = Identities(lambda: 0.0)
    one = Identity(7, 0, {("t", 0): 5}, {T})
    assert identities.take("c", {T}) is None
    identities.give_back("c", one)
    assert identities.take("d", {T}) is None
    assert identities.take("c", {T}) is one
    assert identities.take("c", {T}) is None
    # A cluster without an id could be any.
    identities.give_back(None, one)
    assert identities.take(None, {T}) is None


def test_one_that_was_idle() -> None:
    now = [0.0]
    identities = Identities(lambda: now[0])
    identities.give_back("c", Identity(7, 0, {}, {T}))
    now[0] = IDLE_S_MAX + 1
    assert identities.take("c", {T}) is None


def test_only_topics_that_it_has_written_to() -> None:
    for wanted in ({U}, {T, U}, {NO_UUID}):
        identities = Identities(lambda: 0.0)
        identities.give_back("c", Identity(7, 0, {}, {T}))
        assert identities.take("c", wanted) is None
