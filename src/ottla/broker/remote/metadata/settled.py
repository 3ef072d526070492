"""Whether what is replayed of a partition's remote segments may be used yet.

The metadata of the cluster and `__remote_log_metadata` have no common order. A broker may know that
remote segments are dead before it has replayed the fence that says so to all readers:

1. Tiered storage is disabled with delete. Each leader moves its log start and appends a fence.
2. It is enabled again. A follower receives both changes; its reader of the metadata lags.
3. By the segments before the fence all of its local records are in remote storage. Its local
   retention deletes them, and they are nowhere.

So nothing is known of a partition's remote segments until a fence with the floor is replayed. Its
leader appends that fence (`tasks.leader_opening`), whichever comes first.
"""

from typing import TYPE_CHECKING

from ottla.broker.remote.tasks.restore_task import is_being_restored

if TYPE_CHECKING:
    from ottla.metadata.tiering import TopicTiering
    from ottla.tiered.remote_log import RemoteLog


def is_settled(remote: "RemoteLog", tiering: "TopicTiering | None", partition: int) -> bool:
    """Tell whether a remote log has all that the topic's tiering state presumes."""
    if tiering is None:
        return True
    if is_being_restored(remote, tiering.restored_partition(partition)):
        return False
    return remote.floor >= tiering.remote_floor_epoch
