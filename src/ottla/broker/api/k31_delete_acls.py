"""DeleteAcls (key 31): answered SECURITY_DISABLED, as Kafka does without an authorizer.

Behaviour: each filter is refused by itself.
Versions:  v1 pattern types (KIP-290); v2 flexible.
Not done:  ACLs.
"""

from ottla.base.errors import Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.api.k29_describe_acls import NO_AUTHORIZER
from ottla.broker.ports import Listener
from ottla.wire.messages import delete_acls as wire

API = Api(
    key=31,
    versions=range(1, 4),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    acl="cluster:alter",
)


def handle(ctx: Context, request: wire.DeleteAclsRequest) -> Answer:
    """Refuse each."""
    refused = wire.DeleteAclsFilterResult(
        error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=()
    )
    return wire.DeleteAclsResponse(filter_results=(refused,) * len(request.filters))
