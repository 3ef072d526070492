"""Envelope (key 58): a client's request that a broker forwards to the controller.

Behaviour: the embedded request is handled as if its client had sent it here, in its own version;
           the response holds the whole embedded response, and the metadata offset committed by
           then. NOT_CONTROLLER makes the broker look for another controller; a tagged field says
           that the request was not touched. Where this controller was deposed while it handled the
           request, that is not known. The request's principal and host are those of the client.
           Only requests that brokers forward may be embedded.
Versions:  v0.
Not done:  nothing.
"""

import ipaddress
from dataclasses import replace

from ottla.base.authorizer import Operation
from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.broker.api.base import BROKERS, CONTROLLERS, Answer, Api, Context
from ottla.broker.forwarding.principal_serde import deserialize_principal
from ottla.wire.errors import UnsupportedVersionError, WireError
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

API = Api(
    key=58,
    versions=range(1),
    listeners=CONTROLLERS,
    zookeeper=BROKERS,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: EnvelopeRequest) -> Answer:
    """Handle the embedded request; return its response."""
    if not _decides(ctx):
        return EnvelopeResponse(error_code=Error.NOT_CONTROLLER, untouched=True)
    frame = memoryview(request.request_data)
    try:
        header, _body_at = decode_request_header(frame)
    except UnsupportedVersionError:
        return _refusal(Error.UNSUPPORTED_VERSION)
    except WireError:
        return _refusal(Error.INVALID_REQUEST)
    if header.api_key == API.key:
        return _refusal(Error.INVALID_REQUEST)
    principal = deserialize_principal(request.request_principal)
    if principal is None:
        return _refusal(Error.PRINCIPAL_DESERIALIZATION_FAILURE)
    host = _host(request.client_host_address)
    if host is None:
        return _refusal(Error.INVALID_REQUEST)
    client = replace(ctx.connection, client_host=host, principal=principal)
    answer: Pending[bytes | None] = ctx.node.dispatch_embedded(
        replace(ctx, header=header, connection=client), frame
    )
    return answer.map(lambda response: _wrapped(ctx, response))


def _decides(ctx: Context) -> bool:
    """Tell whether this is the active controller: a newly elected one may not decide yet."""
    quorum, controller = ctx.quorum_or_none, ctx.controller_or_none
    leads = quorum is None or quorum.leader_id == ctx.node.node_id
    return leads and (controller is None or controller.is_active)


def _wrapped(ctx: Context, response: bytes | None) -> EnvelopeResponse:
    if not _decides(ctx):
        # The embedded response may be NOT_CONTROLLER, which the client must not see: the broker
        # retries.
        return _refusal(Error.NOT_CONTROLLER)
    if response is None:
        return _refusal(Error.UNKNOWN_SERVER_ERROR)
    quorum = ctx.quorum_or_none
    return EnvelopeResponse(
        response_data=response,
        error_code=Error.NONE,
        committed_offset=-1 if quorum is None else quorum.committed_offset,
    )


def _refusal(error: Error) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=error)


def _host(address: bytes) -> str | None:
    """Return an address as text; "" where the broker did not know one."""
    if not address:
        return ""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return None
