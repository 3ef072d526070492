"""DescribeDeletions (key 1003): entries of the deletion ledger, for clients.

Behaviour: the controller responds from its appended image, so that every deletion that was
           acknowledged before the request is included; brokers forward the request. No topics =
           the whole ledger. A name matches all topics that ever had it. What the ledger does not
           have is left out. One response has a few hundred entries at most, by topic id, and a
           cursor for the next one: an entry that is in the ledger from the first to the last of
           them is returned once. A response may be empty and not the last, where it searched for a
           name among many. UNSUPPORTED_VERSION where the cluster keeps no ledger
           (`ottla.version` below 1). How far a pending purge of the remote tier is comes from the
           brokers' reports to this controller: after a failover it is complete some seconds later.
           What an abandoned purge has left is what was known of it then.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  a deposed controller that does not know it yet responds from old state.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import (
    DELETED_REPLICAS_PER_RESPONSE_MAX,
    DELETIONS_PER_RESPONSE_MAX,
    DELETIONS_SCANNED_PER_RESPONSE_MAX,
)
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.deletion.purge_reports import NOT_PENDING, PurgeReports
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, DeletionsImage, DeletionState, Remote
from ottla.metadata.features import LEDGER, OTTLA_VERSION
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import describe_deletions as wire

API = Api(
    key=1003,
    versions=range(1),
    is_public=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.DESCRIBE,
)


@dataclass(frozen=True, slots=True)
class Page:
    """The entries of one response. `next_after`: the cursor of the next one; NO_UUID = last."""

    deletions: tuple[DeletionImage, ...]
    next_after: Uuid = NO_UUID


def handle(ctx: Context, request: wire.DescribeDeletionsRequest) -> Answer:
    """Read the controller's image; translate."""
    mode, purges = ctx.controller.context.mode, ctx.controller.context.purges

    def read(image: ClusterImage) -> Decision[Page]:
        if not mode.has_ledger(image.features):
            raise ApiError(
                Error.UNSUPPORTED_VERSION,
                "This cluster keeps no account of deletions: expected the feature "
                f"{OTTLA_VERSION} at level {LEDGER}.",
            )
        return Decision(Step(), page_of(image.deletions, request))

    return ctx.controller.run(read).map(lambda reply: _answer(reply, purges))


def page_of(ledger: DeletionsImage, request: wire.DescribeDeletionsRequest) -> Page:
    """Return the first matching entries, within the limits of one response."""
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
    """Yield the entries that may match, in the order of ids."""
    after, receipts = request.after, request.include_receipts
    if names or not request.topics:
        yield from ledger.after(after, receipts=receipts)
        return
    # A waiting client requests the same few ids again and again.
    for each in map(ledger.of, sorted(each for each in ids if each > after)):
        if each is not None and (receipts or not each.is_finished):
            yield each


def _answer(reply: Page | ApiError, purges: PurgeReports) -> wire.DescribeDeletionsResponse:
    if isinstance(reply, ApiError):
        return wire.DescribeDeletionsResponse(error_code=reply.error, error_message=reply.message)
    return wire.DescribeDeletionsResponse(
        error_code=Error.NONE,
        deletions=tuple(described(each, purges) for each in reply.deletions),
        next_after=reply.next_after,
    )


def described(
    deletion: DeletionImage, purges: PurgeReports | None = None
) -> wire.DescribedDeletion:
    """Return an entry of the ledger for the response. `purges`: how far a pending purge is."""
    purge, is_over = NOT_PENDING, deletion.remote is not Remote.PENDING
    if purges is not None and deletion.is_purging:
        purge = purges.progress(deletion)
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
        remote_partitions=purge.partitions,
        remote_partitions_left=purge.partitions_left,
        remote_segments_left=deletion.segments_left if is_over else purge.segments_left,
        remote_bytes_left=deletion.bytes_left if is_over else purge.bytes_left,
        remote_error=purge.error,
    )
