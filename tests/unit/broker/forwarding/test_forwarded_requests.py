"""A broker knows of each request for the controller whether it may be sent twice, and how long.

Method: the table of what clients and brokers ask controllers, written out; frames of requests.
"""

import pytest

from ottla.broker.api.base import RunsOn
from ottla.broker.dispatch import load_apis
from ottla.broker.forwarding.forwarded_requests import Forwarding, is_at_most_once, look_at
from ottla.metadata.image import EMPTY
from ottla.wire.frames import encode_request
from ottla.wire.messages.alter_configs import AlterConfigsRequest
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest

ONCE = {19, 20, 33, 37, 43, 44, 45, 57, 64, 1008}
"""What changes what is called by a name or a number, which may be another's by then."""

REPEATED = {7, 46, 55, 56, 62, 63, 67, 73, 1003, 1004, 1005, 1007, 1009, 1010}
"""Questions; and what brokers say of themselves, which names epochs and topic ids."""


def test_each_request_for_the_controller_is_one_or_the_other() -> None:
    """A new API with the wrong setting would change a re-created topic, or fail without need."""
    keys = {key for key, each in load_apis().items() if each.api.runs_on is RunsOn.CONTROLLER}
    assert keys == ONCE | REPEATED
    assert {key for key in keys if is_at_most_once(key)} == ONCE


def how(request: object, version: int) -> Forwarding:
    return look_at(encode_request(request, version, 1, "c")[4:], EMPTY)


@pytest.mark.parametrize(("said", "timeout_ms"), [(700, 700), (0, None), (-1, None)])
def test_a_request_is_sent_within_its_own_time(said: int, timeout_ms: int | None) -> None:
    found = how(CreateTopicsRequest(topics=(), timeout_ms=said), 5)
    assert (found.at_most_once, found.timeout_ms, found.deletion) == (True, timeout_ms, None)


def test_a_request_without_a_timeout_has_none() -> None:
    assert how(AlterConfigsRequest(resources=(), validate_only=False), 2) == Forwarding(
        at_most_once=True
    )
    assert how(DescribeQuorumRequest(topics=()), 1) == Forwarding(at_most_once=False)


def test_a_deletion_is_sent_again_in_a_form_of_its_own() -> None:
    assert how(DeleteTopicsRequest(topic_names=("t",), timeout_ms=5), 5).deletion is not None


def test_what_cannot_be_read_is_left_to_the_controller() -> None:
    frame = encode_request(DeleteTopicsRequest(topic_names=("t",), timeout_ms=5), 3, 1, "c")[4:-1]
    assert look_at(frame, EMPTY) == Forwarding(at_most_once=True)
