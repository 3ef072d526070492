"""UUIDs keep Kafka's text form both ways, and nothing else is taken for one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import METADATA_TOPIC_ID, Uuid, parse_uuid, uuid_text


@given(st.binary(min_size=16, max_size=16))
def test_text_round_trip(raw: bytes) -> None:
    text = uuid_text(Uuid(raw))
    assert len(text) == 22
    assert parse_uuid(text) == raw


def test_known_text() -> None:
    raw = uuid.UUID("00000000-0000-0000-0000-000000000001").bytes
    assert raw == METADATA_TOPIC_ID
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    "text", ["", "short", "A" * 23, "AAAAAAAAAAAAAAAAAAAAA!", "AAAAAAAAAAAAAAAAAAAAAB"]
)
def test_what_is_not_a_uuid_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        parse_uuid(text)
