"""What AlterConfigs (33) and IncrementalAlterConfigs (44) share: deciding, and one answer each."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Context, Message
from ottla.controller.configs import Alteration, AlteredResource, alter_configs


def alter(
    ctx: Context,
    wanted: Sequence[Alteration],
    *,
    incremental: bool,
    validate_only: bool,
    response: Callable[..., Message],
    resource_response: Callable[..., Any],
) -> Answer:
    """Decide on the controller; answer in the given message classes, whose fields are alike."""
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: alter_configs(
            image, wanted, incremental=incremental, validate_only=validate_only, context=context
        )
    )

    def answer(reply: tuple[AlteredResource, ...] | ApiError) -> Message:
        if isinstance(reply, ApiError):
            reply = tuple(
                AlteredResource(each.resource, reply.error, reply.message) for each in wanted
            )
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

    return decided.map(answer)
