"""A checkpoint's position must survive its text, and text that is not one must be refused by name.

Method: hypothesis round trips through JSON; a table of documents with a piece of the message.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.spark.errors import StreamOffsetError
from ottla.spark.streaming.offsets import (
    StreamOffset,
    TopicPosition,
    is_same_id,
)

ID = Uuid(b"i" * 16)
OTHER = Uuid(b"j" * 16)
TEXT = uuid_text(ID)


@st.composite
def positions(draw: st.DrawFn) -> TopicPosition:
    partitions = st.integers(0, 2**31 - 1)
    offsets = draw(st.dictionaries(partitions, st.integers(0, 2**63 - 1), max_size=4))
    begins = {
        partition: draw(st.integers(0, offset))
        for partition, offset in offsets.items()
        if draw(st.booleans())
    }
    return TopicPosition(Uuid(draw(st.binary(min_size=16, max_size=16))), offsets, begins)


@given(st.dictionaries(st.text(min_size=1), positions(), max_size=3))
def test_a_position_survives_its_text(topics: dict[str, TopicPosition]) -> None:
    offset = StreamOffset(topics)
    text = json.dumps(offset.to_json())
    assert StreamOffset.of(json.loads(text)) == offset
    # In whatever order it was made: Spark compares texts.
    other = StreamOffset(
        {
            name: TopicPosition(
                each.topic_id,
                dict(reversed(each.next_offsets.items())),
                dict(reversed(each.begins.items())),
            )
            for name, each in reversed(topics.items())
        }
    )
    assert json.dumps(other.to_json()) == text


def test_the_format_of_version_1() -> None:
    offset = StreamOffset({"t": TopicPosition(ID, {10: 7, 2: 5}, {2: 4})})
    text = (
        f'{{"v": 1, "t": {{"t": {{"id": "{TEXT}", "p": {{"2": 5, "10": 7}}, "b": {{"2": 4}}}}}}}}'
    )
    assert json.dumps(offset.to_json()) == text
    assert list(offset) == [(("t", 2), 5), (("t", 10), 7)]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, 'expected {"v":1'),
        ([], 'expected {"v":1'),
        ({}, 'expected {"v":1'),
        ({"v": 1}, 'expected {"v":1'),
        ({"v": True, "t": {}}, 'expected {"v":1'),
        ({"v": "1", "t": {}}, 'expected {"v":1'),
        ({"v": 2, "t": {}}, "it has the version 2, this Ottla reads version 1"),
        ({"v": 1, "t": {}, "x": 1}, 'expected {"v":1'),
        ({"v": 1, "t": []}, 'expected {"v":1'),
        ({"orders": {"0": 23}}, "Spark's Kafka connector.*startingOffsets, with a new checkpoint"),
        ({"v": 1, "t": {"t": 5}}, "expected id and p for topic t"),
        ({"v": 1, "t": {"t": {"id": TEXT}}}, "expected id and p for topic t"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {}, "x": 1}}}, "expected id and p for topic t"),
        ({"v": 1, "t": {"t": {"id": "short", "p": {}}}}, "id of 22 characters .* 'short'"),
        ({"v": 1, "t": {"t": {"id": 5, "p": {}}}}, "id of 22 characters .* 5"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": []}}}, "offsets by partition for topic t"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {"0": -1}}}}, "t-0 is at -1"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {"x": 1}}}}, "t-x is at 1"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {"0": 1.5}}}}, "t-0 is at 1.5"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {"0": 1}, "b": {"0": 2}}}}, "t-0 begins at 2, behi"),
        ({"v": 1, "t": {"t": {"id": TEXT, "p": {"0": 1}, "b": {"1": 0}}}}, "t-1 begins at 0, behi"),
    ],
)
def test_what_is_no_position(document: Any, message: str) -> None:
    with pytest.raises(StreamOffsetError, match=message):
        StreamOffset.of(document)


def test_an_error_shows_the_beginning_of_a_long_document() -> None:
    with pytest.raises(StreamOffsetError) as caught:
        StreamOffset.of({"topic": "x" * 10_000})
    assert len(str(caught.value)) < 500


def test_positions_are_of_one_topic_id() -> None:
    offset = StreamOffset({"t": TopicPosition(ID, {0: 5})})
    assert offset.position_of(("t", 0), ID) == 5
    assert offset.position_of(("t", 0), NO_UUID) == 5
    assert offset.position_of(("t", 0), OTHER) is None
    assert offset.position_of(("t", 1), ID) is None
    assert offset.position_of(("u", 0), ID) is None
    assert is_same_id(NO_UUID, ID)
    assert not is_same_id(OTHER, ID)
