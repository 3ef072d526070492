"""For tests of code that uses Ottla: real clusters, and what they are made of.

`Cluster` is loaded on first use, so that importing this package costs nothing. May import every
package but `cli`. Start at `cluster.py`; `sim/sim.py` is the simulator.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster, ClusterError

__all__ = ["Cluster", "ClusterError"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ottla.testing import cluster

        return getattr(cluster, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
