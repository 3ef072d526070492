"""A voter's connections to the others: channels for fetches and for elections."""

from collections.abc import Mapping

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.host.kraft.quorum_elections import VoterPeers
from ottla.host.kraft.voter_channels import VoterChannels
from ottla.host.node_ports import Address, Connect
from ottla.metadata.node_config import NodeConfig
from ottla.raft.values import ReplicaKey

END_EPOCH_WAIT_MS = 500
"""How long a voter that stops waits for the responses to EndQuorumEpoch."""

POLL_MS = 10


class VoterLinks:
    """The channels of one voter. `peers`: sends its member's requests."""

    def __init__(
        self,
        connect: Connect,
        voters: Mapping[int, Address],
        config: NodeConfig,
        cluster_id: str,
        clock: Clock,
        timers: Timers,
    ) -> None:
        name = f"controller-{config.node_id}"
        self._clock = clock
        self._timers = timers
        self._fetching = VoterChannels(connect, voters, client_id=f"{name}-fetch")
        self._elections = VoterChannels(connect, voters, client_id=f"{name}-election")
        self.peers = VoterPeers(
            self._fetching.to,
            self._elections.to,
            cluster_id=cluster_id,
            replica=ReplicaKey(config.node_id),
            clock=clock,
        )

    def close(self) -> Pending[None]:
        """Wait for the responses to EndQuorumEpoch, then close the connections."""
        self._fetching.close()
        closed: Pending[None] = Pending()
        end_ms = self._clock.monotonic_ms() + END_EPOCH_WAIT_MS

        def check() -> None:
            now_ms = self._clock.monotonic_ms()
            if self.peers.unanswered and now_ms < end_ms:
                self._timers.at(now_ms + POLL_MS, check)
                return
            self._elections.close()
            closed.complete(None)

        check()
        return closed
