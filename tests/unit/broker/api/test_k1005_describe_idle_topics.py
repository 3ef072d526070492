"""DescribeIdleTopics returns the reported idle times, and deletes no topic.

Method: the controller of the handlers' tests with one broker, whose reports pass their own handler.
"""

import pytest

from ottla.base.errors import Error
from ottla.controller.idle import IdleReason
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.metadata.features import OTTLA_VERSION
from ottla.wire.messages.describe_idle_topics import (
    DescribedIdleTopic,
    DescribeIdleTopicsRequest,
    DescribeIdleTopicsResponse,
)

from ..controller_harness import Controller
from .test_k1004_report_idle_topics import TOPIC_ID, TTL_MS, harness, report


def view(controller: Controller, *names: str) -> DescribeIdleTopicsResponse:
    answer = controller.ask(DescribeIdleTopicsRequest(topics=names or None), 0)
    assert isinstance(answer, DescribeIdleTopicsResponse)
    return answer


def test_the_response_has_idle_times_and_reasons() -> None:
    controller = harness()
    report(controller, 1_234)
    assert view(controller).topics == (
        DescribedIdleTopic(
            name="t",
            topic_id=TOPIC_ID,
            ttl_ms=TTL_MS,
            idle_ms=1_234,
            reason=IdleReason.TOO_YOUNG,
            brokers=(1,),
        ),
    )
    assert view(controller, "u").topics == ()
    assert controller.image.topics.id_of("t") == TOPIC_ID


@pytest.mark.parametrize(("level", "error"), [(0, Error.UNSUPPORTED_VERSION), (1, Error.NONE)])
def test_there_is_no_view_where_no_topic_can_have_a_limit(level: int, error: Error) -> None:
    answer = view(harness(level=level))
    assert answer.error_code == error
    assert (OTTLA_VERSION in (answer.error_message or "")) == (error is not Error.NONE)


def test_over_zookeeper_queued_deletions_are_shown() -> None:
    controller = harness(mode=ZOOKEEPER_MODE, level=0)
    assert view(controller).topics[0].reason == IdleReason.NOT_HEARD
    report(controller, token=report(controller).token)
    assert view(controller).topics[0].reason == IdleReason.BEING_DELETED


def test_a_node_that_is_not_the_controller_answers_not_controller() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    assert view(controller).error_code == Error.NOT_CONTROLLER
