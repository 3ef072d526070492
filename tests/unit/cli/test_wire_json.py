"""Messages as JSON, in the shape of Kafka's own converters."""

from ottla.base.ids import Uuid
from ottla.cli.wire_json import camel_case, to_json
from ottla.wire.messages.create_topics import CreatableTopicResult
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import BYTES, INT32, STRING, array, field, message


@message(versions="0-2", flexible="0+")
class Sample:
    some_name: str | None = field(STRING, nullable="0+")
    raw: bytes = field(BYTES)
    numbers: tuple[int, ...] = field(array(INT32))
    late: int = field(INT32, versions="2+", default=-1, ignorable=True)
    tagged: int = field(INT32, tag=0, default=5)


SAMPLE = Sample(some_name=None, raw=b"\x00\xff", numbers=(1, 2))


def test_names() -> None:
    assert [camel_case(name) for name in ("isr", "broker_id", "k_raft_version")] == [
        "isr",
        "brokerId",
        "kRaftVersion",
    ]


def test_nulls_bytes_and_arrays() -> None:
    assert to_json(SAMPLE, 0) == {"someName": None, "raw": "AP8=", "numbers": [1, 2]}


def test_fields_belong_to_versions_and_tags_show_only_where_they_say_something() -> None:
    assert to_json(SAMPLE, 2)["late"] == -1
    spoken = Sample(some_name="x", raw=b"", numbers=(), tagged=6)
    assert to_json(spoken, 0)["tagged"] == 6


def test_structs_and_uuids() -> None:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=Uuid(bytes(15) + b"\x01"), name=None),)
    )
    assert to_json(request, 12)["topics"] == [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "name": None}]
    assert to_json(CreatableTopicResult(name="t", error_code=0), 0) == {"name": "t", "errorCode": 0}
