"""Shared by AlterConfigs (33) and IncrementalAlterConfigs (44): the decision and the response."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ApiError
from ottla.base.limits import ALTERATIONS_PER_STEP_MAX
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Context
from ottla.broker.api.parts import decide_in_parts
from ottla.broker.ports import Message
from ottla.controller.configs import Alteration, AlteredResource, alter_configs
from ottla.controller.parts import in_parts


def alter(
    ctx: Context,
    wanted: Sequence[Alteration],
    *,
    incremental: bool,
    validate_only: bool,
    response: Callable[..., Message],
    resource_response: Callable[..., Any],
) -> Steps[Answer]:
    """Decide on the controller; respond in the given message classes, whose fields are alike."""
    context = ctx.controller.context
    found = yield from decide_in_parts(
        ctx,
        in_parts(wanted, lambda each: each.resource, ALTERATIONS_PER_STEP_MAX),
        lambda image, part: alter_configs(
            image, part, incremental=incremental, validate_only=validate_only, context=context
        ),
        _failed,
    )

    def answer(reply: tuple[AlteredResource, ...]) -> Message:
        return response(
            responses=tuple(
                resource_response(
                    error_code=each.error,
                    error_message=each.message,
                    resource_type=each.resource[0],
                    resource_name=each.resource[1],
                )
                for each in reply
            )
        )

    return found.map(answer) if isinstance(found, Pending) else answer(found)


def _failed(left: Sequence[Alteration], failure: ApiError) -> tuple[AlteredResource, ...]:
    return tuple(AlteredResource(each.resource, failure.error, failure.message) for each in left)
