"""`ottla topics --describe-idle` against a fake broker: what is asked, and what is printed.

Method: answers made by hand; whole outputs are compared, since people and programs read them.
"""

import json

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.cli.idle_topics import duration_text, goes_in_ms, why_text
from ottla.controller.idle import IdleReason
from ottla.wire.messages.describe_idle_topics import (
    DescribedIdleTopic,
    DescribeIdleTopicsRequest,
    DescribeIdleTopicsResponse,
)

from .conftest import Ran, Run
from .fake_broker import FakeBroker, topic

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
    said: tuple[DescribedIdleTopic, ...] = (),
    error: Error = Error.NONE,
    asked: list[DescribeIdleTopicsRequest] | None = None,
) -> Ran:
    def answer(request: DescribeIdleTopicsRequest) -> DescribeIdleTopicsResponse:
        if asked is not None:
            asked.append(request)
        return DescribeIdleTopicsResponse(error_code=error, topics=said)

    broker.answer(DescribeIdleTopicsRequest, answer)
    return run("topics", "--bootstrap-server", broker.address, "--describe-idle", *arguments)


def test_the_table_has_a_line_for_each_topic(run: Run, broker: FakeBroker) -> None:
    said = (
        described("soon", IdleReason.DUE, idle_ms=8 * DAY_MS, brokers=()),
        described("young"),
        described("held", IdleReason.BROKER_DOWN, idle_ms=-1, brokers=(1, 2)),
    )
    ran = ask(run, broker, said=said)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "TOPIC  IDLE   LIMIT  GOES                       WHY NOT",
        "soon   8d     7d     next                       -",
        "young  1d 2h  7d     in 5d 22h at the earliest  "
        "broker 1 has not watched it idle for long enough",
        "held   -      7d     -                          brokers 1-2 are down",
    ]


def test_json_has_all_there_is(run: Run, broker: FakeBroker) -> None:
    said = (described(), described("u", IdleReason.NO_TTL, ttl_ms=-1, idle_ms=-1, brokers=()))
    ran = ask(run, broker, "--json", said=said)
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


def test_topics_are_asked_for_by_what_matches(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("a-1"), topic("a-2"), topic("b")]
    asked: list[DescribeIdleTopicsRequest] = []
    ask(run, broker, asked=asked)
    ask(run, broker, "--topic", "a-.*", asked=asked)
    assert [each.topics for each in asked] == [None, ("a-1", "a-2")]
    ran = ask(run, broker, "--topic", "c", asked=asked)
    assert (ran.code, len(asked)) == (1, 2)
    assert "no topic matches 'c'" in ran.err


def test_nothing_to_show_is_said(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker)
    assert (ran.code, ran.out) == (0, "No topic has an ottla.topic.ttl.ms: none goes by itself.\n")


def test_who_cannot_tell_is_named(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker, error=Error.UNSUPPORTED_VERSION)
    assert ran.code == 1
    assert "UNSUPPORTED_VERSION" in ran.err
    ran = run("topics", "--bootstrap-server", broker.address, "--describe-idle", "--wait")
    assert ran.code == 2


def test_a_broker_that_does_not_know_the_question_is_named(run: Run, broker: FakeBroker) -> None:
    ran = run("topics", "--bootstrap-server", broker.address, "--describe-idle")
    assert ran.code == 1
    assert f"the brokers at {broker.address} cannot tell of idle topics" in ran.err


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


def test_every_reason_has_words_and_time_helps_two_of_them() -> None:
    texts = {why: why_text(described(why=why)) for why in IdleReason}
    assert len(set(texts.values())) == len(IdleReason)
    assert all("does not know" not in text for text in texts.values())
    assert {why for why in IdleReason if goes_in_ms(described(why=why)) is not None} == {
        IdleReason.DUE,
        IdleReason.TOO_YOUNG,
    }
    assert "reason 99" in why_text(described(why=99))
