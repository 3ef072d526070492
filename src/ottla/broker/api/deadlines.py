"""When a request that the controller decides need not be decided any more."""

from ottla.broker.api.base import Context


def deadline_of(ctx: Context, timeout_ms: int) -> int | None:
    """Return the monotonic deadline; None for 0 and less, which ask for the act, not the wait."""
    return ctx.monotonic_ms + timeout_ms if timeout_ms > 0 else None
