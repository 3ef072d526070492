"""What a broker must know of a client's request before it passes it on to the controller.

Whoever asks by name means what has the name now. If the controller's answer is lost, whether the
request was done is not known, and by the time it is sent again the name may be another topic's: a
creation would bring back what was deleted meanwhile, a change would change what nobody meant. So a
request that is to be done `at_most_once` is not sent again then, but for deletions, which are sent again
by id. And none is sent when its own time is over: who asked has given up, and may have done
something else.
"""

from dataclasses import dataclass
from typing import Any

from ottla.broker.controller_limits import own_limit_ms
from ottla.broker.delete_topics_retry import DeleteTopicsRetry
from ottla.broker.dispatch import load_apis
from ottla.metadata.image import ClusterImage
from ottla.wire.codec import decode
from ottla.wire.errors import WireError
from ottla.wire.frames import decode_request_header
from ottla.wire.messages.delete_topics import DeleteTopicsRequest


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How a request may be sent.

    Fields: `at_most_once`: not again as it is, where it may have been done; `timeout_ms`: not at all
            later than that, None = it does not say; `deletion`: how it is sent again.
    """

    at_most_once: bool
    timeout_ms: int | None = None
    deletion: DeleteTopicsRetry | None = None


def is_at_most_once(key: int) -> bool:
    """Tell whether requests of an API are to be done once at most. See `Api.at_most_once`."""
    return load_apis()[key].api.at_most_once


def look_at(frame: bytes, image: ClusterImage) -> Forwarding:
    """Return how to send a request, header included. `image`: what this broker knows now."""
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
        return Forwarding(at_most_once=True)  # The controller will end it.
    return Forwarding(
        endpoint.api.at_most_once,
        own_limit_ms(request),
        DeleteTopicsRetry(header, request, image)
        if isinstance(request, DeleteTopicsRequest)
        else None,
    )
