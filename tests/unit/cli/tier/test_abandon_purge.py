"""`ottla tier abandon-purge` against a fake broker: what is requested, and what is printed.

Method: answers made by hand; whole lines are compared, since people read them.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.wire.messages import abandon_purge as wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker

ID = Uuid(bytes(range(16)))
TEXT = uuid_text(ID)


def ask(
    run: Run, broker: FakeBroker, *words: str, **answer: object
) -> tuple[Ran, list[wire.AbandonPurgeRequest]]:
    values = {"error_code": 0, "name": "orders", "topic_id": ID} | answer
    asked: list[wire.AbandonPurgeRequest] = []

    def respond(request: wire.AbandonPurgeRequest) -> wire.AbandonPurgeResponse:
        asked.append(request)
        return wire.AbandonPurgeResponse(**values)  # type: ignore[arg-type]

    broker.answer(wire.AbandonPurgeRequest, respond)
    where = ("--bootstrap-server", broker.address)
    return run("tier", "abandon-purge", *where, "--topic-id", TEXT, *words), asked


def test_without_execute_nothing_is_done(run: Run, broker: FakeBroker) -> None:
    ran, asked = ask(run, broker, segments_left=212, bytes_left=3 << 30)
    assert asked == [wire.AbandonPurgeRequest(topic_id=ID, validate_only=True)]
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"Would abandon the purge of orders ({TEXT}): 212 segments (3.0 GiB) may be left in the"
        " store. Add --execute to do it.\n"
    )


def test_with_execute_it_is_done(run: Run, broker: FakeBroker) -> None:
    ran, asked = ask(run, broker, "--execute", segments_left=1)
    assert asked == [wire.AbandonPurgeRequest(topic_id=ID)]
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"Abandoned the purge of orders ({TEXT}): 1 segment may be left in the store.\n"
    )


def test_a_second_call_says_so(run: Run, broker: FakeBroker) -> None:
    for words in ((), ("--execute",)):
        ran, _ = ask(run, broker, *words, was_abandoned=True)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == (
            f"The purge of orders ({TEXT}) is abandoned already: an unknown number of segments"
            " may be left in the store.\n"
        )


def test_a_refusal_is_one_line(run: Run, broker: FakeBroker) -> None:
    ran, _ = ask(
        run, broker, "--execute",
        error_code=int(Error.UNKNOWN_TOPIC_ID), error_message="The deletion ledger has no such.",
    )  # fmt: skip
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"ottla tier: topic id {TEXT}: The deletion ledger has no such. (UNKNOWN_TOPIC_ID)\n"
    )


def test_wrong_usage(run: Run, broker: FakeBroker) -> None:
    where = ("tier", "abandon-purge", "--bootstrap-server", broker.address)
    assert run(*where, "--execute").code == 2
    ran = run(*where, "--topic-id", "orders", "--execute")
    assert ran.code == 2
    assert "--topic-id orders: expected 22 characters" in ran.err


def test_brokers_without_the_api(run: Run, broker: FakeBroker) -> None:
    ran = run("tier", "abandon-purge", "--bootstrap-server", broker.address, "--topic-id", TEXT)
    assert ran.code == 1
    assert "do not serve AbandonPurge" in ran.err
