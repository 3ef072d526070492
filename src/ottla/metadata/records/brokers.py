"""Records about brokers. Source: Kafka's metadata record schemas, 4.0; KIP-631, KIP-858."""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    record,
    struct_of,
)


@struct_of
class BrokerEndpoint:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


@struct_of
class BrokerFeature:
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@record(type=0, versions="0-3")
class RegisterBrokerRecord:
    broker_id: int = field(INT32)
    is_migrating_zk_broker: bool = field(BOOL, versions="2+", default=False)
    incarnation_id: Uuid = field(UUID)
    broker_epoch: int = field(INT64)
    end_points: tuple[BrokerEndpoint, ...] = field(array(BrokerEndpoint))
    features: tuple[BrokerFeature, ...] = field(array(BrokerFeature))
    rack: str | None = field(STRING, nullable="0+")
    fenced: bool = field(BOOL, default=True)
    in_controlled_shutdown: bool = field(BOOL, versions="1+", default=False)
    log_dirs: tuple[Uuid, ...] = field(array(UUID), versions="3+", tag=0, default=())


@record(type=1, versions="0")
class UnregisterBrokerRecord:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)


@record(type=7, versions="0")
class FenceBrokerRecord:
    id: int = field(INT32)
    epoch: int = field(INT64)


@record(type=8, versions="0")
class UnfenceBrokerRecord:
    id: int = field(INT32)
    epoch: int = field(INT64)


@record(type=17, versions="0-2")
class BrokerRegistrationChangeRecord:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    fenced: int = field(INT8, tag=0, default=0)
    """-1 = unfenced now, 0 = as it was, 1 = fenced now."""
    in_controlled_shutdown: int = field(INT8, versions="1+", tag=1, default=0)
    """0 = as it was, 1 = in controlled shutdown now."""
    log_dirs: tuple[Uuid, ...] = field(array(UUID), versions="2+", tag=2, default=())
    """Empty = as they were."""
