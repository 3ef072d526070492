"""DeleteGroups (key 42): remove groups without members, and their offsets.

Behaviour: NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND where there is no group.
           The response comes when the deletion is stored.
Versions:  v2 flexible.
Not done:  nothing.
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed, gather
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.coordinator.groups import delete_group
from ottla.wire.messages import delete_groups as wire

DELETE_GROUP = Access(Operation.DELETE, ResourceType.GROUP)

API = Api(key=42, versions=range(3), access=(DELETE_GROUP,))


@InSteps
def handle(ctx: Context, request: wire.DeleteGroupsRequest) -> Steps[Answer]:
    """Respond when all are deleted; a name given twice has one result."""
    names = tuple(dict.fromkeys(request.groups_names))
    refused = ctx.refused(DELETE_GROUP, names)
    deleted: list[Pending[Error]] = []
    for name in names:
        is_refused = name in refused
        deleted.append(completed(DELETE_GROUP.error) if is_refused else _delete(ctx, name))
        yield
    return gather(deleted).map(lambda errors: _answer(names, errors))


def _delete(ctx: Context, group_id: str) -> Pending[Error]:
    try:
        shard = ctx.broker.groups.shard_of(group_id, may_be_empty=True)
    except ApiError as refusal:
        return completed(refusal.error)
    return delete_group(shard, group_id)


def _answer(names: tuple[str, ...], errors: list[Error]) -> wire.DeleteGroupsResponse:
    return wire.DeleteGroupsResponse(
        results=tuple(
            wire.DeletableGroupResult(group_id=name, error_code=error)
            for name, error in zip(names, errors, strict=True)
        )
    )
