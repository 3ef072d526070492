"""Retries of a forwarded DeleteTopics request: they delete the topics that it meant originally.

Whether the first attempt was done is not known when its response was lost. If it was, a client may
have created a topic of the same name since; that one must stay. So a retry names topics by their
ids alone, as this broker knew them when the request came. Every controller understands that.

A topic that was deleted meanwhile, by this request or by another one, is answered as deleted: this
broker has seen it come and go. Where its name belongs to another topic by now, and where this
broker knew no topic of a name, the outcome is unknown: REQUEST_TIMED_OUT, and nothing is deleted.
"""

from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api.k20_delete_topics import BY_ID_VERSION, references, result
from ottla.controller.deletion.delete_topics import TopicReference
from ottla.metadata.image import ClusterImage
from ottla.wire.frames import RequestHeader, decode_response, encode_request, encode_response
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

UNKNOWN = "Whether the topic was deleted is not known: the controller's response was lost."
RENAMED = (
    "The topic that had this name when the request came is deleted. Another topic has the name now;"
    " it was not deleted."
)
MALFORMED = "A topic must be named by either its name or its id."


class DeleteTopicsRetry:
    """One client's request. `image`: this broker's image when it came."""

    def __init__(
        self, header: RequestHeader, request: DeleteTopicsRequest, image: ClusterImage
    ) -> None:
        self._header = header
        self._timeout_ms = request.timeout_ms
        self._image = image
        self._wanted = references(request, header.api_version)

    def frame(self, left_ms: int) -> bytes | None:
        """Return the request by ids, header included; None = there is nothing to send."""
        ids = [each for each in map(self._id_of, self._wanted) if each is not None]
        if not ids:
            return None
        # A topic that is named twice is sent twice, to be refused as it was the first time.
        request = DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(topic_id=each) for each in ids),
            timeout_ms=min(self._timeout_ms, left_ms),
        )
        header = self._header
        return encode_request(request, BY_ID_VERSION, header.correlation_id, header.client_id)[4:]

    def answer(self, response: bytes, image: ClusterImage) -> bytes:
        """Translate the response to `frame` for the client. `image`: this broker's image now.

        Raises: WireError where `response` is not one.
        """
        _, decoded = decode_response(DeleteTopicsResponse, response, BY_ID_VERSION)
        results = {each.topic_id: each for each in decoded.responses}
        answer = DeleteTopicsResponse(
            responses=tuple(
                self._result(each, results, image) for each in dict.fromkeys(self._wanted)
            )
        )
        header = self._header
        chunks: list[Any] = encode_response(answer, header.api_version, header.correlation_id)
        return b"".join(chunks)[4:]

    def _id_of(self, reference: TopicReference) -> Uuid | None:
        name, topic_id = reference.name, reference.topic_id
        if name is None:
            return None if topic_id == NO_UUID else topic_id
        return self._image.topics.id_of(name) if topic_id == NO_UUID else None

    def _result(
        self,
        reference: TopicReference,
        results: dict[Uuid, DeletableTopicResult],
        image: ClusterImage,
    ) -> DeletableTopicResult:
        name, topic_id = reference.name, reference.topic_id
        if (name is None) == (topic_id == NO_UUID):
            return self._result_of(name, topic_id, Error.INVALID_REQUEST, MALFORMED)
        target_id = self._id_of(reference)
        found = None if target_id is None else results.get(target_id)
        if target_id is None or found is None:
            return self._result_of(name, topic_id, Error.REQUEST_TIMED_OUT, UNKNOWN)
        if found.error_code == Error.NONE:
            return self._result_of(name or found.name, target_id)
        if found.error_code == Error.UNKNOWN_TOPIC_ID:
            return self._gone(reference, target_id, image)
        return self._result_of(name, topic_id, found.error_code, found.error_message)

    def _gone(
        self, reference: TopicReference, target_id: Uuid, image: ClusterImage
    ) -> DeletableTopicResult:
        """Answer for a topic that the controller does not know."""
        name, topic_id = reference.name, reference.topic_id
        topic = self._image.topics.by_id(target_id)
        if topic is None:
            return self._result_of(name, topic_id, Error.UNKNOWN_TOPIC_ID)
        if image.topics.by_id(target_id) is not None:
            return self._result_of(name, topic_id, Error.REQUEST_TIMED_OUT, UNKNOWN)
        if name is not None and name in image.topics:
            # Either may be meant: this broker may have received the second one's creation late.
            return self._result_of(name, topic_id, Error.REQUEST_TIMED_OUT, RENAMED)
        return self._result_of(topic.name, target_id)

    def _result_of(
        self, name: str | None, topic_id: Uuid, code: int = Error.NONE, message: str | None = None
    ) -> DeletableTopicResult:
        return result(name, topic_id, code, message, self._header.api_version)
