"""DescribeDeletions (key 1003): what the deletion ledger says of topics, asked for by clients.

Behaviour: the controller answers from the image on which it decides, so that every deletion that
           was acknowledged before the question is in the answer; brokers pass the question on. No
           topics = the whole ledger. A name finds all topics that ever bore it. What the ledger
           does not have is left out. One answer has a few hundred entries at most, by topic id,
           and says where the next one goes on: what is in the ledger from the first to the last
           of them is told once. It may have none and not be the last, where it looked for a name
           among many. UNSUPPORTED_VERSION where the cluster keeps no ledger
           (`ottla.version` below 1).
Versions:  v0. Ottla's own; ApiVersions tells of it to Ottla's clients only.
Not done:  authorization; a controller that was deposed and has not heard of it yet answers of the
           past.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import (
    DELETED_REPLICAS_PER_RESPONSE_MAX,
    DELETIONS_PER_RESPONSE_MAX,
    DELETIONS_SCANNED_PER_RESPONSE_MAX,
)
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, DeletionsImage, DeletionState
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL, ledger_enabled
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import describe_deletions as wire

API = Api(
    key=1003,
    versions=range(1),
    is_told=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    acl="cluster:describe",
)


@dataclass(frozen=True, slots=True)
class Page:
    """What one answer tells. `next_after`: where the next one begins, NO_UUID = nowhere."""

    deletions: tuple[DeletionImage, ...]
    next_after: Uuid = NO_UUID


def handle(ctx: Context, request: wire.DescribeDeletionsRequest) -> Answer:
    """Read the controller's image; translate."""
    in_zookeeper = ctx.controller.context.config.zookeeper_connect is not None

    def read(image: ClusterImage) -> Decision[Page]:
        if not (in_zookeeper or ledger_enabled(image.features)):
            raise ApiError(
                Error.UNSUPPORTED_VERSION,
                "This cluster keeps no account of deletions: expected the feature "
                f"{OTTLA_VERSION} at level {OTTLA_VERSION_LEVEL}.",
            )
        return Decision(Step(), page_of(image.deletions, request))

    return ctx.controller.run(read).map(_answer)


def page_of(ledger: DeletionsImage, request: wire.DescribeDeletionsRequest) -> Page:
    """Return the first entries that a request asks for, looking at no more than it may."""
    names = {each.name for each in request.topics if each.name is not None}
    ids = {each.topic_id for each in request.topics}
    found: list[DeletionImage] = []
    replicas = 0
    last = request.after
    for looked_at, each in enumerate(_candidates(ledger, request, names, ids)):
        if looked_at == DELETIONS_SCANNED_PER_RESPONSE_MAX:
            return Page(tuple(found), last)
        if not request.topics or each.name in names or each.topic_id in ids:
            many = len(found) == DELETIONS_PER_RESPONSE_MAX
            if many or replicas >= DELETED_REPLICAS_PER_RESPONSE_MAX:
                return Page(tuple(found), last)
            found.append(each)
            replicas += each.count(*DeletionState)
        last = each.topic_id
    return Page(tuple(found))


def _candidates(
    ledger: DeletionsImage,
    request: wire.DescribeDeletionsRequest,
    names: Collection[str],
    ids: Collection[Uuid],
) -> Iterator[DeletionImage]:
    """Yield what may be asked for, in the order of ids."""
    after, receipts = request.after, request.include_receipts
    if names or not request.topics:
        yield from ledger.after(after, receipts=receipts)
        return
    # Whoever waits asks for the same few again and again.
    for each in map(ledger.of, sorted(each for each in ids if each > after)):
        if each is not None and (receipts or not each.is_finished):
            yield each


def _answer(reply: Page | ApiError) -> wire.DescribeDeletionsResponse:
    if isinstance(reply, ApiError):
        return wire.DescribeDeletionsResponse(error_code=reply.error, error_message=reply.message)
    return wire.DescribeDeletionsResponse(
        error_code=Error.NONE,
        deletions=tuple(map(described, reply.deletions)),
        next_after=reply.next_after,
    )


def described(deletion: DeletionImage) -> wire.DescribedDeletion:
    """Return an entry of the ledger as it travels."""
    return wire.DescribedDeletion(
        topic_id=deletion.topic_id,
        name=deletion.name,
        policy=deletion.policy,
        asked_ms=deletion.asked_ms,
        finished_ms=deletion.finished_ms,
        halted=deletion.halted,
        remote=deletion.remote,
        replicas=tuple(
            wire.DeletedReplicas(
                broker_id=broker_id,
                state=standing.state,
                reason=standing.reason,
                error=standing.error,
                partitions=partitions,
            )
            for broker_id, standing, partitions in deletion.rows()
        ),
    )
