"""`ottla topics --describe-deletions` against a fake broker: requests, results, waiting.

Method: the fake answers from a list of ledgers, one a question, the last one for ever; it chooses
from them with the server's own function. What a deletion looks like is test_deletions_text's.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.broker.api import k1003_describe_deletions as k1003
from ottla.broker.api.k1003_describe_deletions import described, page_of
from ottla.cli.topics import deletions
from ottla.cli.topics.deletions_client import Selection
from ottla.controller.deletion.deletion_policy import UNREGISTERED
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionsImage,
    Policy,
)
from ottla.wire.messages.describe_deletions import (
    DescribeDeletionsRequest,
    DescribeDeletionsResponse,
)
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.client.fake_clock import Clock

PATIENT = ("--wait", "--timeout", "60")
"""Waits end when what they wait for has come; this one is for a machine that is busy."""


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def going(number: int, name: str) -> DeletionImage:
    deletion = DeletionImage(
        topic_id=uuid(number), name=name, policy=Policy.AT_ONCE, asked_ms=number
    )
    return deletion.with_status(1, STARTED, (0,))


def done(deletion: DeletionImage) -> DeletionImage:
    return replace(deletion.with_status(1, SUCCESSFUL, (0,)), finished_ms=5_000)


OLD = done(going(1, "orders"))
NEW = going(2, "orders")
OTHER = going(3, "others")
DOWN = going(4, "stuck").with_status(2, BROKER_DOWN, (0,))

Result = Iterable[DeletionImage] | Error


class Ledger:
    """The controller's responses: one of `results` for each request, in order; the last repeats."""

    def __init__(self, broker: FakeBroker, *results: Result) -> None:
        self.results = list(results)
        self.received: list[DescribeDeletionsRequest] = []
        broker.answer(DescribeDeletionsRequest, self._answer)

    def _answer(self, request: DescribeDeletionsRequest) -> DescribeDeletionsResponse:
        result = self.results[min(len(self.received), len(self.results) - 1)]
        self.received.append(request)
        if isinstance(result, Error):
            return DescribeDeletionsResponse(error_code=result)
        ledger = DeletionsImage()
        for each in result:
            ledger = ledger.with_deletion(each)
        page = page_of(ledger, request)
        return DescribeDeletionsResponse(
            error_code=0,
            deletions=tuple(map(described, page.deletions)),
            next_after=page.next_after,
        )


def ask(run: Run, broker: FakeBroker, *arguments: str) -> Ran:
    server = ("--bootstrap-server", broker.address)
    return run("topics", *server, "--describe-deletions", *arguments)


def ids(ran: Ran) -> list[str]:
    """Return the ids in an output of JSON."""
    return [each["topic_id"] for each in json.loads(ran.out)["deletions"]]


def texts(*deletions: DeletionImage) -> list[str]:
    return [uuid_text(each.topic_id) for each in deletions]


# -- looking -----------------------------------------------------------------------------------


def test_the_whole_ledger_with_its_receipts(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [NEW, OLD, OTHER])
    ran = ask(run, broker, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ids(ran) == texts(OLD, NEW, OTHER)
    shown = ask(run, broker)
    assert [line.split()[0] for line in shown.out.splitlines() if line[0] != " "] == [
        "TOPIC",
        "orders",
        "orders",
        "others",
    ]


def test_an_empty_ledger_is_no_failure(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [])
    assert ask(run, broker) == (0, "", "")
    assert ask(run, broker, "--json") == (0, '{"deletions": []}\n', "")
    assert ask(run, broker, *PATIENT) == (0, "", "no deletion is open\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [("orders", [OLD, NEW]), ("others", [OTHER]), ("o.*s", [OLD, NEW, OTHER]), ("oth.*", [OTHER])],
)
def test_a_name_or_expression_finds_every_generation(
    run: Run, broker: FakeBroker, text: str, found: list[DeletionImage]
) -> None:
    Ledger(broker, [NEW, OLD, OTHER])
    assert ids(ask(run, broker, "--topic", text, "--json")) == texts(*found)


def test_an_id_finds_one(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [NEW, OLD, OTHER])
    ran = ask(run, broker, "--topic-id", uuid_text(OLD.topic_id), "--json")
    assert ids(ran) == texts(OLD)


@pytest.mark.parametrize("how", [("--topic", "nobody"), ("--topic", "no.*"), ("--topic-id", "ID")])
def test_a_missing_deletion_is_an_error(run: Run, broker: FakeBroker, how: tuple[str, str]) -> None:
    Ledger(broker, [NEW])
    option, value = how
    ran = ask(run, broker, option, uuid_text(uuid(99)) if value == "ID" else value)
    assert (ran.code, ran.out) == (1, "")
    assert "no entry for a topic" in ran.err
    assert "ottla.deletion.receipt.retention.ms" in ran.err
    as_json = ask(run, broker, option, uuid_text(uuid(99)) if value == "ID" else value, "--json")
    assert (as_json.code, json.loads(as_json.out)) == (1, {"deletions": []})


def test_of_several_names_each_must_be_there(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [NEW])
    ran = ask(run, broker, "--topic", "orders,others", "--json")
    assert ran.code == 1
    assert ids(ran) == texts(NEW)
    assert "'others'" in ran.err


def test_an_existing_topic_is_no_deletion(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [])
    broker.topics = [topic("orders", topic_id=uuid(9))]
    for how in (("--topic", "orders"), ("--topic-id", uuid_text(uuid(9)))):
        ran = ask(run, broker, *how)
        assert ran.code == 1
        assert "the topic exists" in ran.err


def test_a_broker_that_does_not_know_the_request_is_named(run: Run, broker: FakeBroker) -> None:
    for arguments in ((), PATIENT):
        ran = ask(run, broker, *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert "they run Kafka or an older version of Ottla" in ran.err


def test_a_cluster_without_a_ledger_is_not_waited_for(run: Run, broker: FakeBroker) -> None:
    ledger = Ledger(broker, Error.UNSUPPORTED_VERSION)
    for arguments in ((), PATIENT):
        ran = ask(run, broker, "--topic", "orders", *arguments)
        assert ran.code == 1
        assert "UNSUPPORTED_VERSION" in ran.err
    assert len(ledger.received) == 2


def test_requests_are_retried_while_the_controller_changes(run: Run, broker: FakeBroker) -> None:
    for arguments in ((), PATIENT):
        Ledger(broker, Error.NOT_CONTROLLER, Error.NOT_CONTROLLER, [OLD])
        assert ids(ask(run, broker, "--json", *arguments, "--topic", "orders")) == texts(OLD)


def test_unknown_values_of_a_newer_version_are_an_error(run: Run, broker: FakeBroker) -> None:
    def answer(_request: Any) -> DescribeDeletionsResponse:
        strange = replace(described(NEW), policy=77)
        return DescribeDeletionsResponse(error_code=0, deletions=(strange,))

    broker.answer(DescribeDeletionsRequest, answer)
    for arguments in ((), PATIENT):
        ran = ask(run, broker, *arguments)
        assert (ran.code, ran.out) == (1, "")
        assert "does not know" in ran.err


# -- waiting -----------------------------------------------------------------------------------


def test_waiting_ends_when_all_that_was_open_is_finished(run: Run, broker: FakeBroker) -> None:
    ledger = Ledger(broker, [NEW, OTHER], [done(NEW), OTHER], [done(NEW), done(OTHER)])
    ran = ask(run, broker, "--json", *PATIENT)
    assert ran.code == 0
    assert [each["state"] for each in json.loads(ran.out)["deletions"]] == ["finished"] * 2
    assert len(ledger.received) == 3
    assert [each.topic_id for each in ledger.received[-1].topics] == [OTHER.topic_id]


def test_wait_warns_of_abandoned_replicas(run: Run, broker: FakeBroker) -> None:
    given_up = DOWN.with_status(1, SUCCESSFUL, (0,)).with_status(2, UNREGISTERED, (0,))
    Ledger(broker, [DOWN], [replace(given_up, finished_ms=5_000)])
    ran = ask(run, broker, "--json", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(DOWN))
    assert ran.err.splitlines()[-1] == (
        "WARN: stuck: finished, but only 1 of 2 replicas are confirmed deleted; the others were"
        " abandoned (unregistered: broker 2)"
    )


def test_a_deletion_that_begins_later_is_not_waited_for(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [NEW], [done(NEW), OTHER])
    ran = ask(run, broker, "--json", *PATIENT)
    assert ran.code == 0
    assert ids(ran) == texts(NEW)


def test_without_a_name_receipts_are_not_requested(run: Run, broker: FakeBroker) -> None:
    ledger = Ledger(broker, [OLD, NEW], [OLD, done(NEW)])
    ran = ask(run, broker, "--json", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(NEW))
    assert not ledger.received[0].include_receipts


def test_without_open_deletions_it_says_so(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [OLD])
    for words in (PATIENT, ("--json", *PATIENT)):
        ran = ask(run, broker, *words)
        assert (ran.code, ran.err) == (0, "no deletion is open\n")
    assert ids(ran) == []
    Ledger(broker, [NEW], [done(NEW)])
    assert "no deletion" not in ask(run, broker, *PATIENT).err


def test_all_generations_of_a_name_are_waited_for(run: Run, broker: FakeBroker) -> None:
    """An old receipt must not pass for that of the topic which has just been deleted."""
    ledger = Ledger(broker, [OLD, NEW], [OLD, NEW], [OLD, done(NEW)])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert ran.code == 0
    assert ids(ran) == texts(OLD, NEW)
    assert len(ledger.received) == 3


def test_a_long_ledger_comes_in_several_answers(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k1003, "DELETIONS_PER_RESPONSE_MAX", 2)
    ledger = Ledger(broker, [going(number, f"t{9 - number}") for number in range(1, 8)])
    ran = ask(run, broker, "--json")
    assert [each["topic"] for each in json.loads(ran.out)["deletions"]] == [
        f"t{number}" for number in range(2, 9)
    ]
    assert len(ledger.received) == 4


def test_many_open_deletions_are_polled_round_robin(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not end must not keep those behind it from being seen to end."""
    monkeypatch.setattr(deletions, "POLLED_MAX", 2)
    opened = [going(number, f"t{number}") for number in range(1, 6)]
    nearly = [opened[0], *map(done, opened[1:])]
    ledger = Ledger(broker, opened, *[nearly] * 4, list(map(done, opened)))
    ran = ask(run, broker, "--json", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(*opened))
    assert [len(each.topics) for each in ledger.received] == [0, 2, 2, 2, 1, 1]
    assert {each.topic_id for asked in ledger.received[1:4] for each in asked.topics} == {
        each.topic_id for each in opened
    }


def test_one_that_is_finished_already_is_answered_at_once(run: Run, broker: FakeBroker) -> None:
    ledger = Ledger(broker, [OLD])
    ran = ask(run, broker, "--json", "--topic-id", uuid_text(OLD.topic_id), *PATIENT)
    assert (ran.code, ids(ran), len(ledger.received)) == (0, texts(OLD), 1)


def test_a_deletion_that_is_only_just_known_is_found(run: Run, broker: FakeBroker) -> None:
    """As one that was only marked in ZooKeeper, by another command."""
    ledger = Ledger(broker, [], [], [NEW], [done(NEW)])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert (ran.code, ids(ran), len(ledger.received)) == (0, texts(NEW), 4)


def test_time_without_an_answer_is_none_in_which_a_deletion_could_have_come(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker is read by the controller that was elected after the last one died."""
    monkeypatch.setattr(deletions, "time", Clock())
    pauses = int(deletions.FIND_SECONDS / deletions.PAUSE_SECONDS)
    Ledger(broker, *[Error.NOT_CONTROLLER] * 2 * pauses, *[[]] * (pauses - 1), [done(NEW)])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(NEW))


def test_a_wait_for_an_unknown_topic_prints_the_known_ones(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads JSON gets some, with and without `--wait`."""
    monkeypatch.setattr(deletions, "time", Clock())
    Ledger(broker, [OLD])
    for names, shown in (("orders,nope", texts(OLD)), ("nope", [])):
        ran = ask(run, broker, "--json", "--topic", names, *PATIENT)
        assert (ran.code, ids(ran)) == (1, shown)
        assert "no entry for a topic 'nope'" in ran.err


def test_an_unknown_topic_is_looked_for_only_for_find_seconds(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "FIND_SECONDS", 0.3)
    ledger = Ledger(broker, [OTHER])
    ran = ask(run, broker, "--topic", "orders", *PATIENT)
    assert ran.code == 1
    assert "no entry for a topic 'orders'" in ran.err
    assert len(ledger.received) > 1


def test_when_time_is_up_the_cause_and_the_table_are_shown(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, [DOWN, OTHER])
    ran = ask(run, broker, "--topic", "stuck", "--wait", "--timeout", "0.5")
    assert ran.code == 1
    assert "ineligible: broker down" in ran.out
    assert "others" not in ran.out
    last = ran.err.splitlines()[-1]
    assert "not finished after 0.5 s: 1 of 1 deletion (stuck: " in last
    assert "broker 2 is down: start it" in last


def test_the_last_known_state_is_printed_when_brokers_stop_responding(
    run: Run, broker: FakeBroker
) -> None:
    """The last request may time out: open deletions are still printed."""
    ledger = Ledger(broker, [DOWN], Error.NOT_CONTROLLER)
    ran = ask(run, broker, "--topic", "stuck", "--wait", "--timeout", "2")
    assert ran.code == 1
    assert len(ledger.received) > 2
    assert "ineligible: broker down" in ran.out
    assert "broker 2 is down" in ran.err.splitlines()[-1]


def test_each_reason_to_wait_is_printed_once(run: Run, broker: FakeBroker) -> None:
    Ledger(broker, *[[DOWN]] * 5, [done(DOWN)])
    ran = ask(run, broker, "--topic", "stuck", *PATIENT)
    assert ran.code == 0
    assert [line for line in ran.err.splitlines() if "broker 2 is down" in line] == [
        ran.err.splitlines()[0]
    ]


def test_a_broken_connection_does_not_end_a_wait(run: Run, broker: FakeBroker) -> None:
    answers = iter([[NEW], None, [done(NEW)]])

    def answer(_request: Any) -> DescribeDeletionsResponse | None:
        entries = next(answers)
        if entries is None:
            return None
        return DescribeDeletionsResponse(error_code=0, deletions=tuple(map(described, entries)))

    broker.answer(DescribeDeletionsRequest, answer)
    ran = ask(run, broker, "--json", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(NEW))


def test_an_entry_that_is_missing_once_is_not_taken_for_a_finished_one(
    run: Run, broker: FakeBroker
) -> None:
    """A deposed controller that does not know it returns an old state."""
    ledger = Ledger(broker, [NEW], [], [NEW], [done(NEW)])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert (ran.code, ids(ran), len(ledger.received)) == (0, texts(NEW), 4)


def test_an_entry_that_is_missing_now_and_then_is_not_either(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is how long it is missing in one go."""
    monkeypatch.setattr(deletions, "FIND_SECONDS", 0.3)
    Ledger(broker, [NEW], [], [NEW], [], [NEW], [], [done(NEW)])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert (ran.code, ids(ran)) == (0, texts(NEW))


def test_an_entry_that_stays_away_is_finished_and_forgotten(
    run: Run, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "FIND_SECONDS", 0.3)
    Ledger(broker, [NEW], [])
    ran = ask(run, broker, "--json", "--topic", "orders", *PATIENT)
    assert (ran.code, ids(ran)) == (0, [])
    assert "orders: finished, and its receipt has expired" in ran.err


# -- usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "a", "--topic-id", uuid_text(uuid(1))), "only one of --topic and --topic-id"),
        (("--if-exists",), "--if-exists cannot be used with --describe-deletions"),
        (("--wait", "--timeout", "0"), "--timeout 0"),
        (("--topic", "("), "not a regular expression"),
    ],
)
def test_wrong_usage(
    run: Run, broker: FakeBroker, arguments: tuple[str, ...], message: str
) -> None:
    Ledger(broker, [])
    ran = ask(run, broker, *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_it_does_not_go_through_zookeeper(run: Run) -> None:
    ran = run("topics", "--zookeeper", "localhost:1", "--describe-deletions")
    assert ran.code == 2
    assert "--bootstrap-server" in ran.err


@pytest.mark.parametrize("option", ["--wait", "--json"])
def test_its_options_go_with_no_other_action(run: Run, option: str) -> None:
    ran = run("topics", "--list", option)
    assert ran.code == 2
    assert f"{option} cannot be used with --list" in ran.err


def test_names_are_requested_and_expressions_are_matched_locally() -> None:
    assert Selection("a,b-c,_d").names == ("a", "b-c", "_d")
    for expression in ("a.b", "a*", "(a)", "a|b", "a, b"):
        assert Selection(expression).names is None
    assert Selection(None, uuid(1)).names is None
