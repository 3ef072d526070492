"""DescribeDeletions (key 1003): what the deletion ledger says of topics, asked for by clients.

Behaviour: the controller answers from the image on which it decides, so that every deletion that
           was acknowledged before the question is in the answer; brokers pass the question on. No
           topics = the whole ledger. A name finds all generations of a topic, oldest first.
           What the ledger does not have is left out. UNSUPPORTED_VERSION where the cluster keeps
           no ledger (`ottla.version` below 1).
Versions:  v0. Ottla's own; ApiVersions tells of it to Ottla's clients only.
Not done:  authorization; pages: the answer is one, however long the ledger.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage
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

Found = tuple[DeletionImage, ...]


def handle(ctx: Context, request: wire.DescribeDeletionsRequest) -> Answer:
    """Read the controller's image; translate."""
    in_zookeeper = ctx.controller.context.config.zookeeper_connect is not None

    def read(image: ClusterImage) -> Decision[Found]:
        if not (in_zookeeper or ledger_enabled(image.features)):
            raise ApiError(
                Error.UNSUPPORTED_VERSION,
                "This cluster keeps no account of deletions: expected the feature "
                f"{OTTLA_VERSION} at level {OTTLA_VERSION_LEVEL}.",
            )
        return Decision(Step(), chosen(image, request))

    return ctx.controller.run(read).map(_answer)


def chosen(image: ClusterImage, request: wire.DescribeDeletionsRequest) -> Found:
    """Return the entries of the ledger that a request asks for, each once."""
    names = {each.name for each in request.topics if each.name is not None}
    ids = {each.topic_id for each in request.topics if each.topic_id != NO_UUID}
    found = [
        each
        for each in image.deletions
        if (request.include_receipts or not each.is_finished)
        and (not request.topics or each.name in names or each.topic_id in ids)
    ]
    return tuple(sorted(found, key=lambda each: (each.name, each.asked_ms, each.topic_id)))


def _answer(reply: Found | ApiError) -> wire.DescribeDeletionsResponse:
    if isinstance(reply, ApiError):
        return wire.DescribeDeletionsResponse(error_code=reply.error, error_message=reply.message)
    return wire.DescribeDeletionsResponse(
        error_code=Error.NONE, deletions=tuple(map(described, reply))
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
