"""Goal: no JSON that fits into a znode breaks whoever reads it, however it is nested.

Method: every decoder is given the same spoiled texts; depths on both sides of each limit.
"""

from collections.abc import Callable

import pytest

from ottla.base.limits import ZNODE_NESTING_MAX
from ottla.metadata.znodes.admin import decode_preferred_election, decode_reassignment
from ottla.metadata.znodes.broker import decode_broker
from ottla.metadata.znodes.cluster import decode_feature, decode_producer_ids
from ottla.metadata.znodes.config import decode_config
from ottla.metadata.znodes.fields import ZnodeError, parse, shown
from ottla.metadata.znodes.partition_state import decode_state
from ottla.metadata.znodes.topic import decode_topic

DECODERS: dict[str, Callable[[bytes], object]] = {
    "topic": lambda data: decode_topic("t", data),
    "state": lambda data: decode_state("t", 0, data),
    "broker": lambda data: decode_broker(1, data),
    "feature": decode_feature,
    "producer ids": decode_producer_ids,
    "config": lambda data: decode_config((2, "t"), data),
    "reassignment": decode_reassignment,
    "preferred election": decode_preferred_election,
}


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("frame", [b"%s", b'{"a":%s}', b'{"version":%s}', b'{"topics":[{"a":%s}]}'])
def test_what_is_nested_too_deep_is_no_fact_and_breaks_no_reader(name: str, frame: bytes) -> None:
    """Around 1,000 levels Python reads it and cannot show it any more."""
    for levels in (ZNODE_NESTING_MAX + 1, 500, *range(960, 1_001), 100_000):
        with pytest.raises(ZnodeError) as caught:
            DECODERS[name](frame % nested(levels))
        assert len(str(caught.value)) < 300


def test_so_deep_is_read_and_no_deeper() -> None:
    inside = parse("/a", b'{"a":%s}' % nested(ZNODE_NESTING_MAX - 1)).values["a"]
    assert shown(inside) == nested(ZNODE_NESTING_MAX - 1).decode()
    with pytest.raises(ZnodeError):
        parse("/a", b'{"a":%s}' % nested(ZNODE_NESTING_MAX))


def test_many_brackets_are_not_many_levels() -> None:
    listed = ",".join(f'"{number}":[1]' for number in range(2 * ZNODE_NESTING_MAX))
    values = parse("/a", f'{{"partitions":{{{listed}}},"text":"{"[" * 99}"}}'.encode()).values
    assert len(values["partitions"]) == 2 * ZNODE_NESTING_MAX
