"""Values that cannot be encoded are reported with their field.

Method: requests are made with such values, and the encoder itself refuses them.
"""

from typing import Any

import pytest

from ottla.cli.encode_errors import encode_failure, is_text
from ottla.cli.errors import CommandError, UsageError
from ottla.wire.codec import encode
from ottla.wire.errors import EncodeError
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.unit.client.fake_broker import FakeBroker

from .conftest import Run

OTHER_BYTES = b"\xff".decode(errors="surrogateescape")


def refusal(request: Any, version: int) -> CommandError | UsageError:
    with pytest.raises(EncodeError) as caught:
        encode(request, version)
    return encode_failure(request, caught.value)


def create(**fields: Any) -> CreateTopicsRequest:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, **fields}
    return CreateTopicsRequest(
        topics=(CreatableTopic(**{"assignments": (), "configs": (), **topic}),), timeout_ms=1
    )


def test_numbers() -> None:
    error = refusal(create(num_partitions=2**31), 7)
    assert isinstance(error, CommandError)
    assert str(error) == (
        "CreateTopics.topics.num_partitions 2147483648: expected -2147483648 to 2147483647"
    )
    assert "replication_factor -32769: expected -32768 to" in str(
        refusal(create(replication_factor=-32_769), 7)
    )


def test_numbers_in_lists_of_lists() -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 2**40))
    assert str(refusal(create(assignments=(assignment,)), 7)).startswith(
        "CreateTopics.topics.assignments.broker_ids 1099511627776: expected"
    )


def test_text() -> None:
    error = refusal(create(name=OTHER_BYTES), 7)
    assert isinstance(error, UsageError)
    assert str(error) == r"'\udcff': expected text in UTF-8 (CreateTopics.topics.name)"
    assert is_text("ä\0")
    assert not is_text(OTHER_BYTES)


def test_what_a_version_lacks() -> None:
    request = ElectLeadersRequest(
        election_type=1,
        topic_partitions=(TopicPartitions(topic="t", partitions=(0,)),),
        timeout_ms=1,
    )
    assert str(refusal(request, 0)).startswith("ElectLeaders cannot be encoded: ")


def test_a_name_that_is_no_text(run: Run, broker: FakeBroker) -> None:
    """Arguments are bytes; what is not UTF-8 has no way into a request."""
    broker.answer(CreateTopicsRequest, CreateTopicsResponse)
    name = b"\xff\xfe".decode(errors="surrogateescape")
    ran = run("topics", "--bootstrap-server", broker.address, "--create", "--topic", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        r"ottla topics: '\udcff\udcfe': expected text in UTF-8 (CreateTopics.topics.name)",
        "See 'ottla topics --help'.",
    ]


def test_a_name_too_long_to_read_is_shortened(run: Run, broker: FakeBroker) -> None:
    result = CreatableTopicResult(name="n" * 40_000, error_code=17, error_message="Too long.")
    broker.answer(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=(result,)))
    ran = run("topics", "--bootstrap-server", broker.address, "--create", "--topic", "n" * 40_000)
    error = f"topic {'n' * 100}... (40000 characters): Too long. (INVALID_TOPIC_EXCEPTION)"
    assert ran.err == f"ottla topics: {error}\n"
