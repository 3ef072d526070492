"""DescribeAcls (key 29): answered SECURITY_DISABLED, as Kafka does without an authorizer.

Behaviour: MirrorMaker 2 and kafka-acls.sh handle that error; nothing is enforced.
Versions:  v1 pattern types (KIP-290); v2 flexible.
Not done:  ACLs.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.ports import Listener
from ottla.wire.messages import describe_acls as wire

API = Api(
    key=29,
    versions=range(1, 4),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    cluster_operation=Operation.DESCRIBE,
)

NO_AUTHORIZER = "No Authorizer is configured."


def handle(ctx: Context, request: wire.DescribeAclsRequest) -> Answer:
    """Return SECURITY_DISABLED."""
    return wire.DescribeAclsResponse(
        error_code=Error.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=()
    )
