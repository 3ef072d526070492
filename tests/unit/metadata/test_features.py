"""The levels that this software works at. Method: Kafka's numbers by hand."""

import pytest

from ottla.base.ids import NO_UUID
from ottla.metadata.brokers import BrokerImage, FeatureRange
from ottla.metadata.features import (
    DEFAULT_LEVELS,
    METADATA_VERSION_NAMES,
    OTTLA_VERSION_LEVEL,
    SUPPORTED,
    elr_enabled,
    ledger_enabled,
    registered_level,
    tiering_enabled,
)


def test_the_metadata_version_is_4_0_iv3() -> None:
    version, _elr, _ottla = SUPPORTED
    assert (version.name, version.min_version, version.max_version) == ("metadata.version", 25, 25)
    assert METADATA_VERSION_NAMES[25] == "4.0-IV3"


def test_eligible_leader_replicas_are_on_in_new_clusters_and_may_be_off() -> None:
    _version, elr, _ottla = SUPPORTED
    assert (elr.name, elr.min_version, elr.max_version) == (
        "eligible.leader.replicas.version",
        0,
        1,
    )
    assert DEFAULT_LEVELS[elr.name] == 1
    assert DEFAULT_LEVELS["metadata.version"] == 25


def test_new_clusters_keep_a_ledger_of_deletions_and_older_ones_go_on_without() -> None:
    _version, _elr, ottla = SUPPORTED
    assert (ottla.name, ottla.min_version, ottla.max_version) == ("ottla.version", 0, 3)
    assert ledger_enabled(DEFAULT_LEVELS)
    assert ledger_enabled({"ottla.version": 1})
    assert not ledger_enabled({"metadata.version": 25})
    assert not ledger_enabled({"ottla.version": 0})


def test_each_level_is_one_capability() -> None:
    assert tiering_enabled(DEFAULT_LEVELS)
    assert not tiering_enabled({"ottla.version": 1})
    assert not tiering_enabled({})
    newer = OTTLA_VERSION_LEVEL + 1
    assert ledger_enabled({"ottla.version": newer})
    assert tiering_enabled({"ottla.version": newer})


def test_without_finalized_levels_the_smallest_of_the_registered_brokers_counts() -> None:
    def broker(*levels: int) -> BrokerImage:
        features = tuple(FeatureRange("ottla.version", 1, each) for each in levels)
        return BrokerImage(id=1, epoch=1, incarnation_id=NO_UUID, endpoints=(), features=features)

    assert registered_level([]) == 0
    assert registered_level([broker(2)]) == 2
    assert registered_level([broker(2), broker(1), broker(3)]) == 1
    assert registered_level([broker(2), broker()]) == 0


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({"metadata.version": 25}, False),
        ({"eligible.leader.replicas.version": 0}, False),
        ({"eligible.leader.replicas.version": 1}, True),
    ],
)
def test_whether_they_are_on(features: dict[str, int], expected: bool) -> None:
    assert elr_enabled(features) is expected
