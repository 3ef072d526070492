"""InitProducerId (key 22): an id for an idempotent producer.

Behaviour: every request without a transactional id gets a new id with epoch 0, also one with the
           producer's previous id (KIP-360), as in Kafka. Without a block of ids from the controller
           the request waits; then COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
Versions:  v2 flexible; v3 the previous id; v4 PRODUCER_FENCED; v5 KIP-890.
Not done:  v6 (two-phase commit, KIP-939), which is unstable in Kafka; transactions. A
           transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED: of the codes that clients
           know here it is the one that both the Java client and librdkafka treat as fatal at once;
           they retry or misreport the others until a timeout.
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.produce.producer_ids import Granted
from ottla.wire.messages import init_producer_id as wire

WRITE_TRANSACTIONAL_ID = Access(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
IDEMPOTENT_WRITE = Access(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
WRITE_ANY_TOPIC = Access(Operation.WRITE, ResourceType.TOPIC)

API = Api(
    key=22,
    versions=range(6),
    access=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_ANY_TOPIC),
)

NO_ID, NO_EPOCH, FIRST_EPOCH = -1, -1, 0

GRANT_TIMEOUT_MS = 5_000
"""How long a producer waits for a block of ids; clients give a request 30 s or more."""


def handle(ctx: Context, request: wire.InitProducerIdRequest) -> Answer:
    """Return an id, now or when the controller has sent a block."""
    if request.transactional_id == "":
        return _refusal(Error.INVALID_REQUEST)
    if request.transactional_id is not None:
        if not ctx.allows(WRITE_TRANSACTIONAL_ID, request.transactional_id):
            return _refusal(WRITE_TRANSACTIONAL_ID.error)
        return _refusal(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not ctx.allows(IDEMPOTENT_WRITE) and not ctx.allows_any(WRITE_ANY_TOPIC):
        return _refusal(IDEMPOTENT_WRITE.error)
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        return _refusal(Error.INVALID_REQUEST)
    return ctx.broker.producer_ids.grant(timeout_ms=GRANT_TIMEOUT_MS).map(_answer)


def _answer(granted: Granted) -> wire.InitProducerIdResponse:
    if isinstance(granted, Error):
        return _refusal(granted)
    return wire.InitProducerIdResponse(
        error_code=Error.NONE, producer_id=granted, producer_epoch=FIRST_EPOCH
    )


def _refusal(error: Error) -> wire.InitProducerIdResponse:
    return wire.InitProducerIdResponse(error_code=error, producer_id=NO_ID, producer_epoch=NO_EPOCH)
