"""The cluster's feature levels, and which of them this software can work at.

Levels: metadata.version 25 is 4.0-IV3, the one level that Ottla writes its records for.
Source: MetadataVersion, KIP-584, KIP-1022.
"""

from typing import Final

from ottla.metadata.brokers import FeatureRange

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 25
"""4.0-IV3."""

METADATA_VERSION_NAMES: Final = {METADATA_VERSION_LEVEL: "4.0-IV3"}

SUPPORTED: Final = (FeatureRange(METADATA_VERSION, METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),)
"""What a node of this software registers with, and what ApiVersions tells as supported."""
