"""FindCoordinator (key 10). Source: FindCoordinator{Request,Response}.json; KIP-699, KIP-890,
KIP-932.
"""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field(STRING, versions="0-3", default="")
    key_type: int = field(INT8, versions="1+", default=0)
    """0 = group, 1 = transaction, 2 = share partition."""
    coordinator_keys: tuple[str, ...] = field(array(STRING), versions="4+", default=())


@struct_of
class Coordinator:
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16, versions="0-3", default=0)
    error_message: str | None = field(
        STRING, versions="1-3", nullable="1-3", default=None, ignorable=True
    )
    node_id: int = field(INT32, versions="0-3", default=0)
    host: str = field(STRING, versions="0-3", default="")
    port: int = field(INT32, versions="0-3", default=0)
    coordinators: tuple[Coordinator, ...] = field(array(Coordinator), versions="4+", default=())
