"""What a broker must know of a client's request before it forwards it to the controller.

A request that names a topic means the topic that has the name now. When the controller's response
is lost, whether the request was done is not known, and by the time of a retry the name may belong
to another topic: a creation would bring back a topic deleted meanwhile, a change would hit the
wrong topic. So an `at_most_once` request is not retried then, except for deletions, which are
retried by id. And no request is sent after its own timeout: the client has given up, and may have
done something else.
"""

from dataclasses import dataclass
from typing import Any

from ottla.broker.dispatch import load_apis
from ottla.broker.forwarding.controller_limits import own_limit_ms
from ottla.broker.forwarding.delete_topics_retry import DeleteTopicsRetry
from ottla.metadata.image import ClusterImage
from ottla.wire.codec import decode
from ottla.wire.errors import WireError
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How a request may be sent.

    Fields: `at_most_once`: not retried as it is, where it may have been done; `timeout_ms`: not
            sent later than that, None = no timeout; `deletion`: how a deletion is retried.
    """

    at_most_once: bool
    timeout_ms: int | None = None
    deletion: DeleteTopicsRetry | None = None


def is_at_most_once(key: int) -> bool:
    """Tell whether an API's requests may be done once at most. See `Api.at_most_once`."""
    return load_apis()[key].api.at_most_once


def look_at(frame: bytes, image: ClusterImage) -> Forwarding:
    """Return how to send a request, header included. `image`: this broker's image now."""
    header, body_at = decode_request_header(frame)
    endpoint = load_apis()[header.api_key]
    try:
        request: Any = decode(
            endpoint.request,
            frame,
            header.api_version,
            body_at,
            lenient=True,
            elements_max=endpoint.api.elements_max,
        )
    except WireError:
        return Forwarding(at_most_once=True)  # The controller will reject it.
    return Forwarding(
        endpoint.api.at_most_once,
        own_limit_ms(request),
        DeleteTopicsRetry(header, request, image)
        if isinstance(request, DeleteTopicsRequest)
        else None,
    )
