"""ElectLeaders (key 43). Source: ElectLeaders{Request,Response}.json; KIP-460."""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class TopicPartitions:
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = field(INT8, versions="1+", default=0)
    """0 = preferred replica; 1 = unclean: any live one, only where there is no leader."""
    topic_partitions: tuple[TopicPartitions, ...] | None = field(
        array(TopicPartitions), nullable="0+"
    )
    """None = every partition of the cluster."""
    timeout_ms: int = field(INT32, default=60_000)


@struct_of
class PartitionResult:
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class ReplicaElectionResult:
    topic: str = field(STRING)
    partition_result: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="1+", default=0)
    replica_election_results: tuple[ReplicaElectionResult, ...] = field(
        array(ReplicaElectionResult)
    )
