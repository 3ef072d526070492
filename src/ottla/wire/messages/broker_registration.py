"""BrokerRegistration (key 62). Source: BrokerRegistration{Request,Response}.json; KIP-858,
KIP-966.

Ottla's own: a tagged field of the request. Kafka's controllers ignore it; its brokers send none.
"""

from typing import Final

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    message,
    struct_of,
)

SUPERSEDED_EPOCH_TAG: Final = 10006
"""Above all tags that Kafka has given out."""


@struct_of
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


@struct_of
class Feature:
    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: int = field(INT32)
    cluster_id: str = field(STRING)
    incarnation_id: Uuid = field(UUID)
    listeners: tuple[Listener, ...] = field(array(Listener))
    features: tuple[Feature, ...] = field(array(Feature))
    rack: str | None = field(STRING, nullable="0+")
    is_migrating_zk_broker: bool = field(BOOL, versions="1+", default=False)
    log_dirs: tuple[Uuid, ...] = field(array(UUID), versions="2+", default=(), ignorable=True)
    previous_broker_epoch: int = field(INT64, versions="3+", default=-1, ignorable=True)
    """Said after a clean shutdown: lets the broker stay in its ELRs (KIP-966)."""
    superseded_broker_epoch: int = field(
        INT64, versions="0+", tag=SUPERSEDED_EPOCH_TAG, default=-1, ignorable=True
    )
    """The registration that this one replaces: its process has ended, for it held the same log
    directories. -1 = not given."""


@message(key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    broker_epoch: int = field(INT64, default=-1)
