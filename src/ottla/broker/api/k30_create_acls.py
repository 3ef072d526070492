"""CreateAcls (key 30): answered SECURITY_DISABLED, as Kafka does without an authorizer.

Behaviour: each creation is refused by itself; nothing is enforced or stored.
Versions:  v1 pattern types (KIP-290); v2 flexible.
Not done:  ACLs.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.api.k29_describe_acls import NO_AUTHORIZER
from ottla.broker.ports import Listener
from ottla.wire.messages import create_acls as wire

API = Api(
    key=30,
    versions=range(1, 4),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    cluster_operation=Operation.ALTER,
    refuse=lambda _ctx, request, refusal: _answer(request, refusal),
)


def handle(ctx: Context, request: wire.CreateAclsRequest) -> Answer:
    """Refuse each."""
    return _answer(request, ApiError(Error.SECURITY_DISABLED, NO_AUTHORIZER))


def _answer(request: wire.CreateAclsRequest, refusal: ApiError) -> wire.CreateAclsResponse:
    refused = wire.AclCreationResult(error_code=refusal.error, error_message=refusal.message)
    return wire.CreateAclsResponse(results=(refused,) * len(request.creations))
