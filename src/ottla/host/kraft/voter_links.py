"""Connections to the voters of the metadata quorum, each made when it is first needed."""

from collections.abc import Mapping

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.host.kraft.quorum_elections import VoterPeers
from ottla.host.node_ports import Address, Connect, Link
from ottla.metadata.node_config import NodeConfig
from ottla.raft.values import ReplicaKey

CONNECT_TIMEOUT_MS = 2_000
"""The timeout of a request, too: requests to an unreachable voter are retried anyway."""

END_EPOCH_WAIT_MS = 500
"""How long a voter that stops waits for the responses to EndQuorumEpoch."""

POLL_MS = 10


class VoterChannels:
    """The channels to voters by id."""

    def __init__(self, connect: Connect, voters: Mapping[int, Address], *, client_id: str) -> None:
        self._connect = connect
        self._voters = dict(voters)
        self._client_id = client_id
        self._channels: dict[int, Link] = {}
        self._last = -1

    def to(self, voter_id: int) -> Link:
        """Return the channel to a voter; for an unknown id, to the one after the last."""
        if voter_id not in self._voters:
            ids = sorted(self._voters)
            assert ids, "no voter is known"
            voter_id = next((each for each in ids if each > self._last), ids[0])
        self._last = voter_id
        if voter_id not in self._channels:
            address = self._voters[voter_id]
            self._channels[voter_id] = self._connect(
                lambda: address,
                client_id=f"{self._client_id}-{voter_id}",
                backoff_max_ms=200,
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                connect_timeout_max_ms=CONNECT_TIMEOUT_MS,
                patient=False,
            )
        return self._channels[voter_id]

    def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            channel.close()


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
