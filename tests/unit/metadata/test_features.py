"""The levels that this software works at. Method: Kafka's numbers by hand."""

from ottla.metadata.features import METADATA_VERSION_NAMES, SUPPORTED


def test_the_metadata_version_is_4_0_iv3() -> None:
    [version] = SUPPORTED
    assert (version.name, version.min_version, version.max_version) == ("metadata.version", 25, 25)
    assert METADATA_VERSION_NAMES[25] == "4.0-IV3"
