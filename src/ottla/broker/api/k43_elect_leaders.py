"""ElectLeaders (key 43): move partitions to their preferred, or to any live, leader.

Behaviour: one result a partition; null topics = all, without those that need no election. The
           response comes when the elections are committed; brokers apply them a moment later.
Versions:  v0 preferred only; v1 election type, top-level error (KIP-460); v2 flexible.
Not done:  nothing.
"""

from itertools import groupby

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.elections.leader_rebalance import Elected, elect_leaders
from ottla.wire.messages import elect_leaders as wire

API = Api(
    key=43,
    versions=range(3),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    cluster_operation=Operation.ALTER,
    refuse=lambda ctx, request, refusal: _answer(ctx.version, _wanted(request) or [], refusal),
)


def handle(ctx: Context, request: wire.ElectLeadersRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = _wanted(request)
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: elect_leaders(
            image, wanted, election_type=request.election_type, context=context
        ),
    )
    return decided.map(lambda reply: _answer(ctx.version, wanted or [], reply))


def _wanted(request: wire.ElectLeadersRequest) -> list[tuple[str, int]] | None:
    if request.topic_partitions is None:
        return None
    return [(each.topic, number) for each in request.topic_partitions for number in each.partitions]


def _answer(
    version: int, wanted: list[tuple[str, int]], reply: tuple[Elected, ...] | ApiError
) -> wire.ElectLeadersResponse:
    error = Error.NONE
    if isinstance(reply, ApiError):
        # At the top level and for each partition, as Kafka does: v0 has only the latter.
        error = reply.error if version >= 1 else Error.NONE
        refused = dict.fromkeys(wanted)
        reply = tuple(Elected(*each, reply.error, reply.message) for each in refused)
    topics = groupby(reply, key=lambda each: each.topic)
    return wire.ElectLeadersResponse(
        error_code=error,
        replica_election_results=tuple(
            wire.ReplicaElectionResult(
                topic=topic,
                partition_result=tuple(
                    wire.PartitionResult(
                        partition_id=each.partition_id,
                        error_code=each.error,
                        error_message=each.message,
                    )
                    for each in elected
                ),
            )
            for topic, elected in topics
        ),
    )
