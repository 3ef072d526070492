"""UpdateFeatures (key 57): raise or lower the cluster's feature levels (KIP-584).

Behaviour: all or nothing. The top-level error is that of the first refused update, in every
           version; v0 and v1 also have a result of each feature. The response comes when the levels
           are committed; other brokers apply them a moment later. Not served in ZooKeeper mode,
           which has no finalized features.
Versions:  v0 allow_downgrade; v1 the type of the update, validate_only (KIP-778); v2 no results.
Not done:  controllers do not register, so their supported levels are not checked.
"""

import logging
from collections.abc import Iterable

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import NOWHERE, Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.features import FeatureUpdate, UpdatedFeature, UpgradeType, update_features
from ottla.wire.messages import update_features as wire

log = logging.getLogger(__name__)

API = Api(
    key=57,
    versions=range(3),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    cluster_operation=Operation.ALTER,
    refuse=lambda _ctx, request, refusal: _answer(request, refusal),
)

Reply = tuple[UpdatedFeature, ...]


def handle(ctx: Context, request: wire.UpdateFeaturesRequest) -> Answer:
    """Decide on the controller; translate."""
    updates = [_update(each) for each in request.feature_updates]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: update_features(
            image, updates, context=context, validate_only=request.validate_only
        ),
    )
    return decided.map(lambda reply: _answer(request, reply))


def _update(update: wire.FeatureUpdateKey) -> FeatureUpdate:
    # Each version has one of the two; the other is at its default.
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return FeatureUpdate(update.feature, update.max_version_level, kind)


def _answer(
    request: wire.UpdateFeaturesRequest, reply: Reply | ApiError
) -> wire.UpdateFeaturesResponse:
    if isinstance(reply, ApiError):
        error, message = reply.error, reply.message
        results = [UpdatedFeature(each.feature, error, message) for each in request.feature_updates]
        return _response(error, message, results)
    for each in reply:
        if each.error not in (Error.NONE, Error.FEATURE_UPDATE_FAILED):
            return _response(each.error, each.message, reply)
    if not request.validate_only:
        levels = (f"{each.feature}={each.max_version_level}" for each in request.feature_updates)
        log.info("feature levels updated: %s", ", ".join(levels))
    return _response(Error.NONE, None, reply)


def _response(
    error: Error, message: str | None, results: Iterable[UpdatedFeature]
) -> wire.UpdateFeaturesResponse:
    return wire.UpdateFeaturesResponse(
        error_code=error,
        error_message=message,
        results=tuple(
            wire.UpdatableFeatureResult(
                feature=each.name, error_code=each.error, error_message=each.message
            )
            for each in results
        ),
    )
