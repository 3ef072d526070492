"""DescribeCluster (key 60). Source: DescribeCluster{Request,Response}.json; KIP-919, KIP-1073."""

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, field, message, struct_of


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, versions="1+", default=1)
    """1 = brokers, 2 = controllers."""
    include_fenced_brokers: bool = field(BOOL, versions="2+", default=False)


@struct_of
class DescribeClusterBroker:
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOL, versions="2+", default=False)


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, versions="1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: tuple[DescribeClusterBroker, ...] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-2_147_483_648)
    """One bit for each AclOperation; the lowest number = not asked for."""
