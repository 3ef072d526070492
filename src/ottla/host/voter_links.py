"""What joins a voter to the others: channels for fetches and for elections, and a goodbye."""

import asyncio
from collections.abc import Mapping

from ottla.base.ports import Clock
from ottla.host.channel import Address
from ottla.host.quorum_elections import VoterPeers
from ottla.host.voter_channels import VoterChannels
from ottla.metadata.node_config import NodeConfig
from ottla.raft.values import ReplicaKey

GOODBYE_SECONDS = 0.5
"""How long a voter that stops waits for the others to hear that its epoch ends."""

POLL_SECONDS = 0.01


class VoterLinks:
    """The channels of one voter. `peers`: what its member asks through."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        voters: Mapping[int, Address],
        config: NodeConfig,
        cluster_id: str,
        clock: Clock,
    ) -> None:
        name = f"controller-{config.node_id}"
        self._fetching = VoterChannels(loop, voters, client_id=f"{name}-fetch")
        self._elections = VoterChannels(loop, voters, client_id=f"{name}-election")
        self.peers = VoterPeers(
            self._fetching.to,
            self._elections.to,
            cluster_id=cluster_id,
            replica=ReplicaKey(config.node_id),
            clock=clock,
        )

    async def close(self) -> None:
        """Let what was said last be heard, then end the connections."""
        self._fetching.close()
        waited = 0.0
        while self.peers.unheard and waited < GOODBYE_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
        self._elections.close()
