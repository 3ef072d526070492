"""Dispatch of requests: from a request's bytes to its handler and back to chunks of a response.

The table is built from the files of `ottla.broker.api`, so ApiVersions cannot differ from what is
served. A request that has no response in the protocol (garbage, an unknown key or version, a key
that this listener does not serve) ends its connection, as in Kafka.
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ottla.broker.api
from ottla.base.authorizer import ALLOW_ALL, CLUSTER
from ottla.base.errors import ApiError, Error
from ottla.base.limits import LONG_REQUEST_BYTES_MIN, REQUEST_WITHOUT_RECORDS_BYTES_MAX
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.base.turns import Steps, Turns
from ottla.broker.api.base import NO_ANSWER, Answer, Api, Context, InSteps, RunsOn
from ottla.broker.forwarding.controller_limits import within_limit
from ottla.broker.forwarding.controller_unavailable import ControllerUnavailable, is_absent
from ottla.broker.metrics import ApiMetrics, Find, error_finder
from ottla.broker.ports import CloseConnection, Forwarded, Listener, Message
from ottla.wire.codec import decode, decode_in_steps, holds_records
from ottla.wire.errors import UnsupportedVersionError, WireError
from ottla.wire.frames import (
    RequestHeader,
    decode_request_header,
    encode_response,
    encode_response_in_steps,
    peek_throttle_ms,
)
from ottla.wire.registry import FETCH, NAMES, PRODUCE, request_type, response_type
from ottla.wire.schema import spec_of

log = logging.getLogger(__name__)

Chunks = list[Any]
"""What the host sends in order: bytes-like objects and file slices."""

Outcome = Chunks | Pending[Chunks | None] | None

API_VERSIONS = 18


class LongOutcome(Pending[Chunks | None]):
    """The response to a request whose bytes are kept until it is handled: `held_bytes` of them."""

    __slots__ = ("held_bytes",)

    def __init__(self, held_bytes: int) -> None:
        super().__init__()
        self.held_bytes = held_bytes


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API with its handler."""

    api: Api
    handle: Callable[[Context, Message], Answer]
    request: type
    name: str

    def is_long(self, body_bytes: int) -> bool:
        """Tell whether a request of that size is handled in steps.

        Requests between nodes are not: they must not wait behind clients' requests.
        """
        if not self.api.is_for_clients:
            return False
        if body_bytes < LONG_REQUEST_BYTES_MIN:
            return self.api.large_answers
        return not holds_records(spec_of(self.request))


def load_apis() -> dict[int, Endpoint]:
    """Return the endpoint of every API file by its key, in a new table."""
    return dict(_loaded())


@cache
def _loaded() -> dict[int, Endpoint]:
    """Import every API file, once."""
    endpoints: dict[int, Endpoint] = {}
    for module_info in pkgutil.iter_modules(ottla.broker.api.__path__):
        if not (module_info.name[0] == "k" and module_info.name[1].isdigit()):
            continue
        module = importlib.import_module(f"{ottla.broker.api.__name__}.{module_info.name}")
        api: Api = module.API
        assert api.key not in endpoints, f"two files serve key {api.key}"
        assert module_info.name.startswith(f"k{api.key:02d}_"), module_info.name
        endpoints[api.key] = Endpoint(api, module.handle, request_type(api.key), NAMES[api.key])
    return dict(sorted(endpoints.items()))


def advertised(
    endpoints: Mapping[int, Endpoint],
    listener: Listener,
    *,
    zookeeper: bool = False,
    to_ottla: bool = False,
) -> dict[int, range]:
    """Return what ApiVersions lists on a listener: versions by key.

    `zookeeper`: in a cluster of that mode. There brokers serve to each other the APIs that
    controllers serve elsewhere; clients do not see them. `to_ottla`: for one of Ottla's clients.
    """
    by_key = {
        key: endpoint.api.versions if endpoint.api.advertised is None else endpoint.api.advertised
        for key, endpoint in endpoints.items()
        if listener in endpoint.api.answers_on(zookeeper=zookeeper)
        and (endpoint.api.is_for_clients or not zookeeper)
        and (endpoint.api.is_public or to_ottla)
    }
    return {key: versions for key, versions in by_key.items() if versions}


def _errors_of(key: int) -> Find | None:
    # Produce and Fetch count the errors of partitions themselves, off their hot path.
    return error_finder(response_type(key), nested=key not in (PRODUCE, FETCH))


class Dispatcher:
    """Routes one node's requests. `zookeeper`: of a cluster whose metadata is in ZooKeeper.

    `timers` end the wait for a controller's decision (`ottla.broker.forwarding.controller_limits`).
    `turns` are those of the node's loop.
    """

    def __init__(
        self,
        endpoints: Mapping[int, Endpoint],
        *,
        timers: Timers,
        turns: Turns,
        zookeeper: bool = False,
    ) -> None:
        self.endpoints = endpoints
        self._timers = timers
        self._turns = turns
        self._zookeeper = zookeeper
        self._served = {
            key: endpoint.api.answers_on(zookeeper=zookeeper) for key, endpoint in endpoints.items()
        }
        self.metrics = {
            key: ApiMetrics(endpoint.name, _errors_of(key)) for key, endpoint in endpoints.items()
        }

    def dispatch(
        self, ctx: Context, frame: memoryview, body_at: int, *, embedded: bool = False
    ) -> Outcome:
        """Handle one request whose header was read; raise CloseConnection to end its connection.

        `embedded`: it was forwarded to this node, and is not forwarded again.
        """
        header = ctx.header
        endpoint = self.endpoints.get(header.api_key)
        if endpoint is None or ctx.connection.listener not in self._served[header.api_key]:
            raise CloseConnection(f"API key {header.api_key} is not served on this listener")
        if self._zookeeper and not (endpoint.api.is_for_clients or _is_from_node(ctx)):
            raise CloseConnection(f"{endpoint.name} is served between nodes only")
        if header.api_version not in endpoint.api.versions:
            if header.api_key == API_VERSIONS:
                return self._unsupported_api_versions(ctx, endpoint)
            raise CloseConnection(f"version {header.api_version} of {endpoint.name} is not served")
        if embedded and not endpoint.api.is_forwarded:
            # A response of file slices could not be embedded, and its client is not connected here.
            raise CloseConnection(f"{endpoint.name} requests are not forwarded")
        if endpoint.api.runs_on is RunsOn.CONTROLLER and self._goes_on(ctx, endpoint, embedded):
            return self._sent_on(ctx, endpoint, frame, body_at)
        return self._handled(ctx, endpoint, frame, body_at)

    def _handled(
        self, ctx: Context, endpoint: Endpoint, frame: memoryview, body_at: int
    ) -> Outcome:
        if endpoint.is_long(len(frame) - body_at):
            return self._handled_in_steps(ctx, endpoint, frame, body_at)
        try:
            request: Message = decode(
                endpoint.request,
                frame,
                ctx.header.api_version,
                body_at,
                lenient=True,
                elements_max=endpoint.api.elements_max,
            )
        except WireError as error:
            raise _malformed(endpoint, error) from None
        if ctx.authorizer is not ALLOW_ALL:
            refusal = _cluster_refusal(ctx, endpoint, request)
            if refusal is not None:
                return self._answered(ctx, refusal)
        return self._answered(ctx, endpoint.handle(self._limited(ctx, endpoint, request), request))

    def _limited(self, ctx: Context, endpoint: Endpoint, request: Message) -> Context:
        if endpoint.api.runs_on is RunsOn.CONTROLLER and not is_absent(ctx.controller_or_none):
            return within_limit(ctx, request, self._timers)
        return ctx

    def _handled_in_steps(
        self, ctx: Context, endpoint: Endpoint, frame: memoryview, body_at: int
    ) -> Outcome:
        """Decode, handle and encode over several turns of the loop."""
        if len(frame) > REQUEST_WITHOUT_RECORDS_BYTES_MAX:
            raise CloseConnection(f"a {endpoint.name} request of {len(frame)} bytes")
        kept: memoryview | bytes = frame

        def keep() -> None:
            nonlocal kept
            kept = bytes(frame)  # The receive buffer is used again.

        def begin() -> Steps[Chunks | Pending[Message] | None]:
            nonlocal kept
            data, kept = bytes(kept), b""
            return self._steps(ctx, endpoint, data, body_at)

        size, gone = len(frame) - body_at, ctx.connection.closed
        handled = self._turns.run(
            begin,
            size=size,
            gone=gone,
            keep=keep,
        )
        if handled.done:
            if isinstance(handled.value, Exception):
                raise handled.value
            if not isinstance(handled.value, Pending):
                return handled.value
        outcome = LongOutcome(len(frame))

        def end(result: Outcome | Exception) -> None:
            if isinstance(result, CloseConnection):
                ctx.connection.refusal = str(result)
                outcome.complete(None)
            elif isinstance(result, Exception):
                log.error(
                    "%s: %s request failed", ctx.connection.id, endpoint.name, exc_info=result
                )
                outcome.complete(None)
            elif isinstance(result, Pending):
                outcome.held_bytes = 0
                result.then(encode)
            else:
                outcome.complete(result)

        def encode(late: Answer) -> None:
            if late is None or holds_records(spec_of(type(late))):
                # At once: it pins slices of files, which the connection releases only where they
                # are in an encoded response.
                outcome.complete(self.encoded_late(ctx, late))
                return
            self._turns.run(lambda: self._encoded(ctx, late), size=size, gone=gone).then(end)

        handled.then(end)
        return outcome

    def _steps(
        self, ctx: Context, endpoint: Endpoint, frame: bytes, body_at: int
    ) -> Steps[Chunks | Pending[Message] | None]:
        """Return the encoded response, or the response that comes later."""
        try:
            request: Message = yield from decode_in_steps(
                endpoint.request,
                frame,
                ctx.header.api_version,
                body_at,
                elements_max=endpoint.api.elements_max,
            )
        except WireError as error:
            raise _malformed(endpoint, error) from None
        del frame  # Both it and the response may be large.
        if ctx.authorizer is not ALLOW_ALL:
            refusal = _cluster_refusal(ctx, endpoint, request)
            if refusal is not None:
                return (yield from self._encoded(ctx, refusal))
        handle, ctx = endpoint.handle, self._limited(ctx, endpoint, request)
        answer: Answer
        if isinstance(handle, InSteps):
            answer = yield from handle.steps(ctx, request)
        else:
            answer = handle(ctx, request)
        del request
        if isinstance(answer, Pending):
            if not answer.done:
                return answer
            answer = answer.value
        if answer is None:
            return None
        return (yield from self._encoded(ctx, answer))

    def _encoded(self, ctx: Context, answer: Message) -> Steps[Chunks]:
        version, correlation_id = ctx.header.api_version, ctx.header.correlation_id
        self.metrics[ctx.header.api_key].answered(answer)
        _throttle(ctx, answer)
        if holds_records(spec_of(type(answer))):
            # It pins slices of files, which would stay pinned if it were dropped half way.
            return encode_response(answer, version, correlation_id)
        return (yield from encode_response_in_steps(answer, version, correlation_id))

    def _sent_on(
        self, ctx: Context, endpoint: Endpoint, frame: memoryview, body_at: int
    ) -> Pending[Chunks | None]:
        """Forward to the controller; where none answers, respond in the API's own form."""
        kept = bytes(frame)  # The receive buffer is used again.
        outcome = LongOutcome(len(kept))

        def end(chunks: Chunks | None) -> None:
            outcome.complete(chunks)

        def answered(response: Forwarded) -> None:
            if isinstance(response, bytes):
                header = ctx.header
                _mute(ctx, peek_throttle_ms(header.api_key, header.api_version, response))
                end([len(response).to_bytes(4, "big"), response])
                return
            refused: Outcome = None
            if response is not None:
                absent: Any = ControllerUnavailable(ctx.broker)
                alone = replace(ctx, controller_or_none=absent, quorum_or_none=absent)
                try:
                    refused = self._handled(alone, endpoint, memoryview(kept), body_at)
                except CloseConnection as error:
                    ctx.connection.refusal = str(error)
                except Exception:
                    log.exception("%s: %s request failed", ctx.connection.id, endpoint.name)
            if isinstance(refused, Pending):
                refused.then(end)
            else:
                end(refused)

        ctx.broker.forwarder.forward(ctx, kept).then(answered)
        return outcome

    def _goes_on(self, ctx: Context, endpoint: Endpoint, embedded: bool) -> bool:
        """Tell whether a request for the controller is to be forwarded to another node.

        In ZooKeeper mode any broker may be the controller. Requests between nodes are not
        forwarded there: the sender looks for the controller itself, so this node's own controller
        rejects them at once.
        """
        controller = ctx.controller_or_none
        if controller is None or not self._zookeeper:
            return controller is None
        return endpoint.api.is_for_clients and not embedded and not controller.is_active

    def _answered(self, ctx: Context, answer: Answer) -> Outcome:
        if answer is None:
            return None
        version, correlation_id = ctx.header.api_version, ctx.header.correlation_id
        metrics = self.metrics[ctx.header.api_key]
        if isinstance(answer, Pending):
            if not answer.done:
                return answer.map(lambda late: self.encoded_late(ctx, late))
            answer = answer.value
            if answer is None or answer is NO_ANSWER:
                return None
        metrics.answered(answer)
        _throttle(ctx, answer)
        return encode_response(answer, version, correlation_id)

    def encoded_late(self, ctx: Context, answer: Answer) -> Chunks | None:
        """Encode a response that came later; None = the connection is to be closed."""
        _throttle(ctx, answer)
        header = ctx.header
        metrics = self.metrics[header.api_key]
        return _encoded_late(answer, header.api_version, header.correlation_id, metrics)

    def _unsupported_api_versions(self, ctx: Context, endpoint: Endpoint) -> Outcome:
        """Answer in version 0, which lists the versions that the client may use (KIP-511)."""
        from ottla.broker.api.k18_api_versions import refusal

        answer = refusal(ctx)
        self.metrics[API_VERSIONS].answered(answer)
        return encode_response(answer, 0, ctx.header.correlation_id)


def _throttle(ctx: Context, answer: Message) -> None:
    """Have the connection muted for as long as the response says (KIP-219)."""
    _mute(ctx, getattr(answer, "throttle_time_ms", 0))


def _mute(ctx: Context, throttle_ms: int) -> None:
    if throttle_ms > 0:
        ctx.connection.throttle_ms = throttle_ms


def _malformed(endpoint: Endpoint, error: WireError) -> CloseConnection:
    return CloseConnection(f"malformed {endpoint.name} request: {error}")


def _cluster_refusal(ctx: Context, endpoint: Endpoint, request: Message) -> Message | None:
    """Return the response where the principal may not do the API's operation to the cluster."""
    api = endpoint.api
    if api.cluster_operation is None:
        return None
    operation, host = api.cluster_operation, ctx.connection.client_host
    if ctx.authorizer.authorize(ctx.principal, host, operation, [CLUSTER]):
        return None
    refusal = ApiError(Error.CLUSTER_AUTHORIZATION_FAILED)
    if api.refuse is not None:
        return api.refuse(ctx, request, refusal)
    return top_level_refusal(response_type(api.key), refusal.error)


def top_level_refusal(response: type, error: Error) -> Message:
    """Return a response with an error at its top level, and nothing else."""
    values: dict[str, Any] = {field.name: field.default for field in spec_of(response).fields}
    assert "error_code" in values, f"{response.__name__} has no error of its own"
    return response(**(values | {"error_code": error}))


def _is_from_node(ctx: Context) -> bool:
    """Tell whether a request came over the inter-broker listener."""
    return ctx.connection.listener_name == ctx.broker.config.inter_broker_listener_name


def _encoded_late(
    answer: Answer, version: int, correlation_id: int, metrics: ApiMetrics
) -> Chunks | None:
    """Encode a response that came later. A bug ends this connection, and is not raised.

    A delayed request is completed while another one is handled, which must not fail for it.
    """
    if answer is None or answer is NO_ANSWER:
        return None if answer is None else []
    try:
        metrics.answered(answer)
        return encode_response(answer, version, correlation_id)
    except Exception:
        log.exception("response cannot be encoded in version %d; closing the connection", version)
        return None


def read_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read a request's header; raise CloseConnection where it is malformed.

    ApiVersions of an unknown version is let through, to be answered in version 0.
    """
    try:
        return decode_request_header(frame)
    except UnsupportedVersionError as error:
        if error.api_key != API_VERSIONS:
            raise CloseConnection(str(error)) from None
        header = RequestHeader(API_VERSIONS, error.api_version, error.correlation_id, None)
        return header, len(frame)
    except WireError as error:
        raise CloseConnection(f"malformed request header: {error}") from None
