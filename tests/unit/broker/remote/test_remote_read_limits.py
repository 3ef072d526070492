"""What the properties of tiered storage make of a broker's reads."""

from typing import Any

from ottla.broker.remote.remote_storage import remote_reader
from ottla.metadata.node_config import NodeConfig
from ottla.testing.sim.layout import layout


def test_the_chunk_cache_may_be_smaller_than_a_chunk() -> None:
    """It was an assertion that ended the broker's start."""
    cache = {"ottla.remote.chunk.cache.size.bytes": "0"}
    [properties] = layout(1, 1, combined=True, config=cache)
    nothing: Any = None
    reader = remote_reader(
        NodeConfig.parse(properties), nothing, nothing, nothing, lambda topic_id, partition: None
    )
    assert reader.chunks.kept.bytes_max == 4 * 1024 * 1024
