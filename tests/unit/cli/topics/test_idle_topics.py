"""`ottla topics --describe-idle` against a fake broker: requests and output.

Method: answers made by hand; whole outputs are compared, since people and programs read them.
"""

import json

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.cli.topics.idle_topics import duration_text, goes_in_ms, why_text
from ottla.controller.idle import IdleReason
from ottla.wire.messages.describe_idle_topics import (
    DescribedIdleTopic,
    DescribeIdleTopicsRequest,
    DescribeIdleTopicsResponse,
)
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

ID = Uuid(bytes(range(16)))
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def described(
    name: str = "t",
    why: int = IdleReason.TOO_YOUNG,
    *,
    ttl_ms: int = 7 * DAY_MS,
    idle_ms: int = DAY_MS + 2 * HOUR_MS,
    brokers: tuple[int, ...] = (1,),
) -> DescribedIdleTopic:
    return DescribedIdleTopic(
        name=name, topic_id=ID, ttl_ms=ttl_ms, idle_ms=idle_ms, reason=why, brokers=brokers
    )


def ask(
    run: Run,
    broker: FakeBroker,
    *arguments: str,
    entries: tuple[DescribedIdleTopic, ...] = (),
    error: Error = Error.NONE,
    requests: list[DescribeIdleTopicsRequest] | None = None,
) -> Ran:
    def answer(request: DescribeIdleTopicsRequest) -> DescribeIdleTopicsResponse:
        if requests is not None:
            requests.append(request)
        return DescribeIdleTopicsResponse(error_code=error, topics=entries)

    broker.answer(DescribeIdleTopicsRequest, answer)
    return run("topics", "--bootstrap-server", broker.address, "--describe-idle", *arguments)


def test_the_table_has_a_line_for_each_topic(run: Run, broker: FakeBroker) -> None:
    entries = (
        described("soon", IdleReason.DUE, idle_ms=8 * DAY_MS, brokers=()),
        described("young"),
        described("held", IdleReason.BROKER_DOWN, idle_ms=-1, brokers=(1, 2)),
    )
    ran = ask(run, broker, entries=entries)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "TOPIC  IDLE   LIMIT  GOES                       WHY NOT",
        "soon   8d     7d     next                       -",
        "young  1d 2h  7d     in 5d 22h at the earliest  "
        "broker 1 has not seen it idle for long enough",
        "held   -      7d     -                          brokers 1-2 are down",
    ]


def test_json_has_all_there_is(run: Run, broker: FakeBroker) -> None:
    entries = (described(), described("u", IdleReason.NO_TTL, ttl_ms=-1, idle_ms=-1, brokers=()))
    ran = ask(run, broker, "--json", entries=entries)
    assert json.loads(ran.out) == {
        "topics": [
            {
                "topic": "t",
                "topic_id": uuid_text(ID),
                "ttl_ms": 7 * DAY_MS,
                "idle_ms": DAY_MS + 2 * HOUR_MS,
                "goes_in_ms": 5 * DAY_MS + 22 * HOUR_MS,
                "reason": "too young",
                "brokers": [1],
            },
            {
                "topic": "u",
                "topic_id": uuid_text(ID),
                "ttl_ms": None,
                "idle_ms": None,
                "goes_in_ms": None,
                "reason": "no ttl",
                "brokers": [],
            },
        ]
    }


def test_matching_topics_are_requested(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("a-1"), topic("a-2"), topic("b")]
    requests: list[DescribeIdleTopicsRequest] = []
    ask(run, broker, requests=requests)
    ask(run, broker, "--topic", "a-.*", requests=requests)
    assert [each.topics for each in requests] == [None, ("a-1", "a-2")]
    ran = ask(run, broker, "--topic", "c", requests=requests)
    assert (ran.code, len(requests)) == (1, 2)
    assert "no topic matches 'c'" in ran.err


def test_no_idle_topics_print_a_message(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker)
    assert (ran.code, ran.out) == (
        0,
        "No topic has ottla.topic.ttl.ms set: none is deleted for being idle.\n",
    )


def test_brokers_without_the_api_are_named(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker, error=Error.UNSUPPORTED_VERSION)
    assert ran.code == 1
    assert "UNSUPPORTED_VERSION" in ran.err
    ran = run("topics", "--bootstrap-server", broker.address, "--describe-idle", "--wait")
    assert ran.code == 2


def test_a_broker_that_does_not_know_the_question_is_named(run: Run, broker: FakeBroker) -> None:
    ran = run("topics", "--bootstrap-server", broker.address, "--describe-idle")
    assert ran.code == 1
    assert f"the brokers at {broker.address} do not serve DescribeIdleTopics" in ran.err


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (61_999, "1m 1s"),
        (HOUR_MS, "1h"),
        (HOUR_MS + 1_000, "1h"),
        (DAY_MS + 5 * 60_000, "1d"),
        (400 * DAY_MS + HOUR_MS, "400d 1h"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration_text(ms) == text


def test_every_reason_has_a_text_and_two_of_them_a_time() -> None:
    texts = {why: why_text(described(why=why)) for why in IdleReason}
    assert len(set(texts.values())) == len(IdleReason)
    assert all("does not know" not in text for text in texts.values())
    assert {why for why in IdleReason if goes_in_ms(described(why=why)) is not None} == {
        IdleReason.DUE,
        IdleReason.TOO_YOUNG,
    }
    assert "reason 99" in why_text(described(why=99))
