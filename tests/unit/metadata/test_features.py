"""The levels that this software works at. Method: Kafka's numbers by hand."""

import pytest

from ottla.metadata.features import DEFAULT_LEVELS, METADATA_VERSION_NAMES, SUPPORTED, elr_enabled


def test_the_metadata_version_is_4_0_iv3() -> None:
    version, _elr = SUPPORTED
    assert (version.name, version.min_version, version.max_version) == ("metadata.version", 25, 25)
    assert METADATA_VERSION_NAMES[25] == "4.0-IV3"


def test_eligible_leader_replicas_are_on_in_new_clusters_and_may_be_off() -> None:
    _version, elr = SUPPORTED
    assert (elr.name, elr.min_version, elr.max_version) == (
        "eligible.leader.replicas.version",
        0,
        1,
    )
    assert DEFAULT_LEVELS == {"metadata.version": 25, "eligible.leader.replicas.version": 1}


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
