"""Each request asks the authorizer what Kafka asks, and what is refused is refused alone.

Method: a table written by hand from Kafka's KafkaApis and ControllerApis says what each API asks.
Each API's request, as bytes through the dispatcher, names two resources; one after the other is
denied. Compared with the same request where all is allowed, exactly its part of the response has
the error, nothing was done to it, and all the rest was done.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.authorizer import (
    ALLOW_ALL,
    SUPPORTED_OPERATIONS,
    AllowAll,
    Operation,
    ResourceType,
)
from ottla.base.errors import Error
from ottla.base.principal import ANONYMOUS
from ottla.broker.dispatch import load_apis, top_level_refusal
from ottla.broker.ports import CloseConnection
from ottla.wire.codec import encode
from ottla.wire.messages import (
    delete_topics,
    fetch,
    init_producer_id,
    list_groups,
)
from ottla.wire.registry import response_type
from ottla.wire.schema import spec_of

from .authorization_cases import (
    ASKED,
    CASES,
    DESCRIBE,
    FETCHED,
    GROUP,
    IDEMPOTENT,
    T29,
    TOPIC,
    TXN,
    WHOLE,
    X53,
    Case,
    D,
    R,
    W,
    cluster,
    on,
)
from .authorization_harness import (
    ALICE,
    GROUPS,
    AuthorizationHarness,
    Denying,
    Question,
    made,
    parts,
    produced,
)


def declared(key: int) -> set[tuple[Operation, ResourceType]]:
    api = load_apis()[key].api
    asked = {(each.operation, each.resource_type) for each in api.access}
    return asked | (set() if api.cluster_operation is None else {(api.cluster_operation, WHOLE)})


def test_every_api_declares_what_kafka_asks() -> None:
    assert {key: declared(key) for key in load_apis()} == ASKED


def test_every_declared_operation_is_one_of_acls() -> None:
    """But Kafka's DeleteTopics asks for DELETE of the cluster, which no ACL can allow."""
    for key in load_apis():
        for operation, type_ in declared(key) - {(D, WHOLE)}:
            assert operation in SUPPORTED_OPERATIONS[type_], key


@pytest.mark.parametrize(
    "key", [key for key, each in load_apis().items() if each.api.cluster_operation is not None]
)
def test_a_refusal_of_the_whole_request_can_be_said_in_every_version(key: int) -> None:
    api = load_apis()[key].api
    if api.refuse is None:
        for version in api.versions:
            encode(
                top_level_refusal(response_type(key), Error.CLUSTER_AUTHORIZATION_FAILED), version
            )


def test_a_denied_produce_says_nothing_about_what_exists() -> None:
    """Neither whether there is such a topic, nor whether the partition is on this broker."""
    harness = AuthorizationHarness()
    harness.authorizer = Denying(*(on(W, TOPIC, name) for name in ("a", "nosuch")))
    for version in (3, 9, 13):
        for name, partition in (("a", 0), ("a", 77), ("nosuch", 0)):
            if version == 13 and name == "nosuch":
                continue  # An unknown id is one, to anybody.
            request = produced(name)
            each = replace(request.topic_data[0].partition_data[0], index=partition)
            topic = replace(request.topic_data[0], partition_data=(each,))
            response = harness.ask(replace(request, topic_data=(topic,)), version)
            [result] = response.responses[0].partition_responses
            assert (result.index, result.error_code) == (partition, T29)


# -- one denial after the other ----------------------------------------------------------------


def played(case: Case, *denied: Question) -> AuthorizationHarness:
    harness = AuthorizationHarness()
    harness.authorizer = Denying(*denied)
    harness.response = harness.ask(case.request, case.version, **case.how)
    return harness


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_denied_is_refused_alone(case: Case) -> None:
    before = AuthorizationHarness().state()
    allowed, denied = played(case), played(case, *case.denied)
    all_parts, some_parts = parts(allowed.response), parts(denied.response)
    assert {
        label: some_parts.get(label)
        for label in all_parts.keys() | some_parts.keys()
        if all_parts.get(label) != some_parts.get(label)
    } == dict(case.changes)
    check_effects(case, before, allowed.state(), denied.state())
    check_questions(case, allowed, denied)


def check_effects(
    case: Case, before: dict[str, Any], all_done: dict[str, Any], some_done: dict[str, Any]
) -> None:
    """Check that nothing was done to what is denied, and all to the rest."""
    for name in before:
        if "*" in case.keeps or name in case.keeps:
            assert some_done[name] == before[name], name
        elif name in GROUPS:
            continue  # They hold offsets of both topics.
        elif set(case.keeps) & set(GROUPS):
            assert some_done[name][:-1] == all_done[name][:-1], name
        else:
            assert some_done[name] == all_done[name], name


def check_questions(
    case: Case, allowed: AuthorizationHarness, denied: AuthorizationHarness
) -> None:
    """Check that nothing else was asked than Kafka asks, but to list the authorized operations."""
    key = spec_of(type(case.request)).key
    assert key is not None
    expected = set(ASKED[key])
    if any("_operations" in label for label in parts(allowed.response)):
        expected |= {(operation, each) for each in ResourceType for operation in Operation}
    for harness in (allowed, denied):
        asked = {(operation, each.type) for operation, each in harness.authorizer.asked}
        assert asked <= expected
    assert not case.changes or set(case.denied) <= set(denied.authorizer.asked)


def test_every_client_api_has_a_case() -> None:
    others = {18, 16, 22}  # ApiVersions asks nothing; the others have their own tests below.
    with_case = {spec_of(type(case.request)).key for case in CASES} | others
    assert with_case == {key for key, each in load_apis().items() if each.api.is_for_clients}


# -- one by one --------------------------------------------------------------------------------


def test_groups_that_are_hidden_are_not_listed() -> None:
    harness = AuthorizationHarness()
    request = list_groups.ListGroupsRequest()

    def listed(*denied: Question) -> list[str]:
        harness.authorizer = Denying(*denied)
        return sorted(each.group_id for each in harness.ask(request, 4).groups)

    assert listed(on(DESCRIBE, GROUP, "g")) == ["g", "h"]  # The cluster is enough.
    assert listed(cluster(DESCRIBE)) == ["g", "h"]
    assert listed(cluster(DESCRIBE), on(DESCRIBE, GROUP, "g")) == ["h"]


@pytest.mark.parametrize(
    ("transactional_id", "denied", "error"),
    [
        (None, (cluster(IDEMPOTENT),), Error.COORDINATOR_LOAD_IN_PROGRESS),
        (None, (on(W, TOPIC, "*"),), Error.COORDINATOR_LOAD_IN_PROGRESS),
        (None, (cluster(IDEMPOTENT), on(W, TOPIC, "*")), Error.CLUSTER_AUTHORIZATION_FAILED),
        ("x", (on(W, TXN, "x"),), Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_producer_ids(
    transactional_id: str | None, denied: tuple[Question, ...], error: Error
) -> None:
    harness = AuthorizationHarness()
    harness.authorizer = Denying(*denied)
    request = made(
        init_producer_id.InitProducerIdRequest,
        transactional_id=transactional_id,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert harness.ask(request, 4).error_code == error
    allowed = error is Error.COORDINATOR_LOAD_IN_PROGRESS  # It waited for the controller's ids.
    assert bool(harness.controller.calls) == allowed
    if not allowed:
        assert harness.authorizer.asked == list(denied)


def test_a_refused_produce_without_a_response_ends_its_connection() -> None:
    harness = AuthorizationHarness()
    harness.authorizer = Denying(on(W, TOPIC, "a"))
    with pytest.raises(CloseConnection):
        harness.ask(produced("a", "b", acks=0), 9)
    state = harness.state()
    assert (state["a"][2], state["b"][2]) == ((0, 1), (0, 2))


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_transaction_that_is_refused_is_refused_as_a_whole(transactional_id: str | None) -> None:
    harness = AuthorizationHarness()
    harness.authorizer = Denying(on(W, TXN, "x"))
    request = produced(
        "a", "b", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    response = harness.ask(replace(request, transactional_id=transactional_id), 9)
    assert parts(response) == {"a-0": X53, "b-0": X53}
    # Without an id there is nothing to ask for.
    assert harness.authorizer.asked == ([on(W, TXN, "x")] if transactional_id else [])


def test_a_fetch_session_asks_again_each_time() -> None:
    """A consumer whose access was revoked gets nothing more, and all once it is granted again."""
    harness = AuthorizationHarness()
    first = harness.ask(replace(FETCHED, session_epoch=0), 12)
    assert first.session_id
    assert parts(first) == {"": 0, "a-0": 0, "b-0": 0}

    def again(epoch: int, *denied: Question) -> Any:
        harness.authorizer = Denying(*denied)
        return harness.ask(
            replace(
                FETCHED, topics=(), session_id=first.session_id, session_epoch=epoch, max_wait_ms=0
            ),
            12,
        )

    assert parts(again(1, on(R, TOPIC, "a"))) == {"": 0, "a-0": T29, "b-0": 0}
    assert parts(again(2)) == {"": 0, "a-0": 0, "b-0": 0}


def test_a_refused_fetch_does_not_wait() -> None:
    harness = AuthorizationHarness()
    harness.authorizer = Denying(on(R, TOPIC, "a"))
    began_ms = harness.clock.elapsed_ms
    at_the_end = made(
        fetch.FetchRequest,
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1_000,
        topics=[
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": 1,
                        "current_leader_epoch": -1,
                        "partition_max_bytes": 1_000,
                    }
                ],
            }
            for name in "ab"
        ],
    )
    assert parts(harness.ask(at_the_end, 12)) == {"": 0, "a-0": T29, "b-0": 0}
    assert harness.clock.elapsed_ms == began_ms


def test_without_an_authorizer_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests, with an AllowAll that fails when it is called."""

    def fail(*_: object) -> Any:
        raise AssertionError("it is recognized by its identity")

    monkeypatch.setattr(AllowAll, "authorize", fail)
    monkeypatch.setattr(AllowAll, "authorize_by_resource_type", fail)
    for case in CASES:
        harness = AuthorizationHarness()
        all_parts = parts(harness.ask(case.request, case.version, **case.how))
        without = AuthorizationHarness()
        without.authorizer = ALLOW_ALL
        assert parts(without.ask(case.request, case.version, **case.how)) == all_parts, case.name


def test_a_decision_of_the_controller_sees_the_principal_of_the_client() -> None:
    """Through the broker's dispatcher, an Envelope's bytes and the controller's dispatcher."""
    harness = AuthorizationHarness()
    harness.authorizer = Denying(cluster(D), on(D, TOPIC, "a"), principal=ALICE)
    request = made(delete_topics.DeleteTopicsRequest, topic_names=("a",), timeout_ms=500)
    harness.client_principal = ALICE
    assert parts(harness.ask_through_broker(request, 5)) == {"a": T29}
    harness.client_principal = ANONYMOUS
    assert parts(harness.ask_through_broker(request, 5)) == {"a": 0}
