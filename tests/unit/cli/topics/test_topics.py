"""`ottla topics` against a fake broker: requests and output."""

from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.wire.messages import create_partitions as grow_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import describe_configs as configs_wire
from ottla.wire.messages import describe_topic_partitions as describe_wire
from ottla.wire.messages import list_partition_reassignments as moves_wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker, topic

EXISTS = 36
ID = Uuid(bytes(range(16)))


def topics(run: Run, broker: FakeBroker, *arguments: str) -> Ran:
    return run("topics", "--bootstrap-server", broker.address, *arguments)


def created(error: int = 0, message: str | None = None) -> Any:
    def answer(request: create_wire.CreateTopicsRequest) -> create_wire.CreateTopicsResponse:
        return create_wire.CreateTopicsResponse(
            topics=tuple(
                create_wire.CreatableTopicResult(
                    name=each.name, error_code=error, error_message=message
                )
                for each in request.topics
            )
        )

    return answer


def test_create_uses_cluster_defaults(run: Run, broker: FakeBroker) -> None:
    broker.answer(create_wire.CreateTopicsRequest, created())
    ran = topics(run, broker, "--create", "--topic", "orders", "--config", "retention.ms=1")
    assert ran == (0, "Created topic orders.\n", "")
    (request,) = broker.requests(create_wire.CreateTopicsRequest)
    (asked,) = request.topics
    assert (asked.num_partitions, asked.replication_factor, asked.assignments) == (-1, -1, ())
    assert [(each.name, each.value) for each in asked.configs] == [("retention.ms", "1")]


def test_delete_config_prints_a_notice_and_the_rest_is_done(run: Run, broker: FakeBroker) -> None:
    broker.answer(create_wire.CreateTopicsRequest, created())
    ran = topics(run, broker, "--create", "--topic", "orders", "--delete-config", "a",
                 "--delete-config", "b")  # fmt: skip
    assert ran == (
        0,
        "Created topic orders.\n",
        "delete-config option is no longer supported and deprecated since version 4.0. "
        "The config will be fully removed in future releases.\n",
    )


def test_create_with_an_assignment(run: Run, broker: FakeBroker) -> None:
    broker.answer(create_wire.CreateTopicsRequest, created())
    topics(run, broker, "--create", "--topic", "orders", "--replica-assignment", "1:2,2:1")
    (request,) = broker.requests(create_wire.CreateTopicsRequest)
    assignments = request.topics[0].assignments
    assert [(each.partition_index, each.broker_ids) for each in assignments] == [
        (0, (1, 2)),
        (1, (2, 1)),
    ]


def test_a_topic_that_exists_is_refused_unless_that_is_fine(run: Run, broker: FakeBroker) -> None:
    broker.answer(
        create_wire.CreateTopicsRequest, created(EXISTS, "Topic 'orders' already exists.")
    )
    ran = topics(run, broker, "--create", "--topic", "orders")
    assert ran == (
        1,
        "",
        "ottla topics: topic orders: Topic 'orders' already exists. (TOPIC_ALREADY_EXISTS)\n",
    )
    assert topics(run, broker, "--create", "--topic", "orders", "--if-not-exists") == (0, "", "")


def test_names_with_dots_are_warned_of(run: Run, broker: FakeBroker) -> None:
    broker.answer(create_wire.CreateTopicsRequest, created())
    ran = topics(run, broker, "--create", "--topic", "a.b")
    assert ran.out.startswith("WARNING: ")
    assert ran.out.endswith("Created topic a.b.\n")


def test_list_sorts_and_filters(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("b"), topic("__consumer_offsets", is_internal=True), topic("a")]
    assert topics(run, broker, "--list").out == "__consumer_offsets\na\nb\n"
    assert topics(run, broker, "--list", "--exclude-internal").out == "a\nb\n"
    assert topics(run, broker, "--list", "--topic", "[b-z]").out == "b\n"


def test_list_never_creates_topics(run: Run, broker: FakeBroker) -> None:
    topics(run, broker, "--list")
    assert not any(
        each.allow_auto_topic_creation for each in broker.received if each.topics is None
    )


def described(request: describe_wire.DescribeTopicPartitionsRequest) -> Any:
    """Answer one partition at a time, so that the tool must go on from cursors."""
    first = request.cursor.partition_index if request.cursor else 0
    name = request.topics[0].name
    following = describe_wire.Cursor(topic_name=name, partition_index=first + 1)
    return describe_wire.DescribeTopicPartitionsResponse(
        topics=(
            describe_wire.DescribeTopicPartitionsResponseTopic(
                error_code=0,
                name=name,
                topic_id=ID,
                partitions=(
                    describe_wire.DescribeTopicPartitionsResponsePartition(
                        error_code=0,
                        partition_index=first,
                        leader_id=1,
                        leader_epoch=0,
                        replica_nodes=(1,),
                        isr_nodes=(1,),
                    ),
                ),
            ),
        ),
        next_cursor=following if first < 1 else None,
    )


def configured(request: configs_wire.DescribeConfigsRequest) -> Any:
    return configs_wire.DescribeConfigsResponse(
        results=tuple(
            configs_wire.DescribeConfigsResult(
                error_code=0,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=(
                    configs_wire.DescribeConfigsResourceResult(
                        name="segment.bytes",
                        value="1024",
                        read_only=False,
                        config_source=1,
                        is_sensitive=False,
                    ),
                    configs_wire.DescribeConfigsResourceResult(
                        name="retention.ms",
                        value="7",
                        read_only=False,
                        config_source=5,
                        is_sensitive=False,
                    ),
                ),
            )
            for each in request.resources
        )
    )


DESCRIPTION = (
    f"Topic: orders\tTopicId: {uuid_text(ID)}\tPartitionCount: 2\tReplicationFactor: 1\t"
    "Configs: segment.bytes=1024\n"
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
    "\tTopic: orders\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
)


def test_describe_follows_cursors(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("orders", 2, topic_id=ID)]
    broker.answer(describe_wire.DescribeTopicPartitionsRequest, described)
    broker.answer(configs_wire.DescribeConfigsRequest, configured)
    assert topics(run, broker, "--describe", "--topic", "orders") == (0, DESCRIPTION, "")
    assert topics(run, broker, "--describe", "--topic-id", uuid_text(ID)).out == DESCRIPTION


def test_describe_while_no_controller_answers(run: Run, broker: FakeBroker) -> None:
    """All that brokers know themselves is still printed."""
    broker.topics = [topic("orders", 2, topic_id=ID)]
    broker.answer(describe_wire.DescribeTopicPartitionsRequest, described)
    broker.answer(configs_wire.DescribeConfigsRequest, configured)
    refusal = Error.REQUEST_TIMED_OUT

    def moves(_: moves_wire.ListPartitionReassignmentsRequest) -> Any:
        return moves_wire.ListPartitionReassignmentsResponse(
            error_code=refusal, error_message="No controller.", topics=()
        )

    broker.answer(moves_wire.ListPartitionReassignmentsRequest, moves)
    ran = topics(run, broker, "--describe", "--topic", "orders")
    warning = "WARN: reassignments are unknown: No controller. (REQUEST_TIMED_OUT)\n"
    assert ran == (0, DESCRIPTION, warning)
    (asked,) = broker.requests(moves_wire.ListPartitionReassignmentsRequest)
    assert asked.timeout_ms == 5_000
    refusal = Error.CLUSTER_AUTHORIZATION_FAILED
    assert topics(run, broker, "--describe", "--topic", "orders").code == 1


def test_describe_of_brokers_that_know_no_eligible_leaders(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("orders", 2, topic_id=ID)]
    broker.answer(configs_wire.DescribeConfigsRequest, configured)
    expected = DESCRIPTION.replace("Elr: \tLastKnownElr: ", "Elr: N/A\tLastKnownElr: N/A")
    assert topics(run, broker, "--describe").out == expected


def test_missing_topics(run: Run, broker: FakeBroker) -> None:
    for action in (["--describe"], ["--delete"], ["--alter", "--partitions", "3"]):
        ran = topics(run, broker, *action, "--topic", "orders")
        assert ran == (1, "", "ottla topics: no topic matches 'orders': expected one that exists\n")
        assert topics(run, broker, *action, "--topic", "orders", "--if-exists") == (0, "", "")
    ran = topics(run, broker, "--describe", "--topic-id", uuid_text(ID))
    assert ran.err == "ottla topics: no topic has this id: expected one that exists\n"
    assert topics(run, broker, "--describe") == (0, "", "")


def test_an_unfinished_deletion_names_the_command_to_follow_it(
    run: Run, broker: FakeBroker
) -> None:
    broker.topics = [topic("a1")]
    broker.answer(
        delete_wire.DeleteTopicsRequest,
        lambda request: delete_wire.DeleteTopicsResponse(
            responses=(
                delete_wire.DeletableTopicResult(name="a1", error_code=Error.REQUEST_TIMED_OUT),
            )
        ),
    )
    ran = topics(run, broker, "--delete", "--topic", "a1")
    assert ran.code == 1
    assert "continues" in ran.err
    assert "'ottla topics --describe-deletions --topic a1'" in ran.err
    assert "REQUEST_TIMED_OUT" in ran.err


def test_delete_deletes_all_matching_topics(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("a1"), topic("a2"), topic("b")]
    broker.answer(
        delete_wire.DeleteTopicsRequest,
        lambda request: delete_wire.DeleteTopicsResponse(
            responses=tuple(
                delete_wire.DeletableTopicResult(name=name, error_code=0)
                for name in request.topic_names
            )
        ),
    )
    assert topics(run, broker, "--delete", "--topic", "a.*") == (0, "", "")
    (request,) = broker.requests(delete_wire.DeleteTopicsRequest)
    assert request.topic_names == ("a1", "a2")


def test_alter_gives_assignments_of_new_partitions_only(run: Run, broker: FakeBroker) -> None:
    broker.topics = [topic("orders", 2)]
    broker.answer(
        grow_wire.CreatePartitionsRequest,
        lambda request: grow_wire.CreatePartitionsResponse(
            results=(grow_wire.CreatePartitionsTopicResult(name="orders", error_code=0),)
        ),
    )
    arguments = ("--alter", "--topic", "orders", "--partitions", "3")
    assert topics(run, broker, *arguments).code == 0
    assert topics(run, broker, *arguments, "--replica-assignment", "1,1,1").code == 0
    plain, assigned = broker.requests(grow_wire.CreatePartitionsRequest)
    assert (plain.topics[0].count, plain.topics[0].assignments) == (3, None)
    assert [each.broker_ids for each in assigned.topics[0].assignments] == [(1,)]
