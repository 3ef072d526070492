"""ApiVersions (key 18): the APIs that this listener serves.

Behaviour: computed from the API files; a version that is not served is answered in v0 with
           UNSUPPORTED_VERSION and the versions of this key alone (KIP-511). Ottla's own keys are
           listed only to clients with Ottla's software name.
Versions:  v3 flexible, with the client's software name and the features (KIP-511, KIP-584);
           v4 lists features whose lowest level is 0 (KAFKA-17011).
"""

import re
from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.broker.api.base import EVERYWHERE, Api, Context
from ottla.wire.messages import api_versions as wire

if TYPE_CHECKING:
    from ottla.metadata.image import ClusterImage

API = Api(key=18, versions=range(5), listeners=EVERYWHERE)

OTTLA = "ottla"
"""The software name of Ottla's own clients."""

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

Response = wire.ApiVersionsResponse


def handle(ctx: Context, request: wire.ApiVersionsRequest) -> Response:
    """Return the versions of every API of this listener, and the finalized features."""
    if ctx.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE.fullmatch(name) for name in names):
            return Response(error_code=Error.INVALID_REQUEST, api_keys=())
        ctx.connection.software_name, ctx.connection.software_version = names
    to_ottla = request.client_software_name == OTTLA
    versions_by_key = ctx.node.advertised(ctx.connection.listener, to_ottla=to_ottla)
    keys = tuple(
        wire.ApiVersion(api_key=key, min_version=versions.start, max_version=versions.stop - 1)
        for key, versions in versions_by_key.items()
    )
    image = ctx.node.image
    return Response(
        error_code=Error.NONE,
        api_keys=keys,
        supported_features=_supported(ctx),
        finalized_features_epoch=image.position[0],
        finalized_features=_finalized(image),
    )


def refusal(ctx: Context) -> Response:
    """Return the response to a version that is not served, so that the client downgrades."""
    own = wire.ApiVersion(
        api_key=API.key, min_version=API.versions.start, max_version=API.versions.stop - 1
    )
    return Response(error_code=Error.UNSUPPORTED_VERSION, api_keys=(own,))


def _supported(ctx: Context) -> tuple[wire.SupportedFeatureKey, ...]:
    return tuple(
        wire.SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in sorted(ctx.node.supported_features.items())
        if low > 0 or ctx.version >= 4
    )


def _finalized(image: "ClusterImage") -> tuple[wire.FinalizedFeatureKey, ...]:
    return tuple(
        wire.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in sorted(image.features.items())
        if level > 0
    )
