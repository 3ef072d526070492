"""The object store of remote storage: a node checks its URI before it opens anything."""

from ottla.host.node_dirs import StartError
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.remote_definitions import STORAGE_URI, SYSTEM_ENABLE
from ottla.stores.uri import StoreUri, StoreUriError, parse_store_uri


def storage_uri(config: NodeConfig) -> StoreUri | None:
    """Return where remote storage is; None where the node has none. Raises: StartError."""
    if not config[SYSTEM_ENABLE]:
        return None
    try:
        return parse_store_uri(config[STORAGE_URI])
    except StoreUriError as error:
        raise StartError(f"{STORAGE_URI}={error}") from None
