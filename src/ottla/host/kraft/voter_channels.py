"""One channel to each voter of the metadata quorum, made when it is first needed."""

from collections.abc import Mapping

from ottla.host.node_ports import Address, Connect, Link

CONNECT_TIMEOUT_MS = 2_000
"""The timeout of a request, too: requests to an unreachable voter are retried anyway."""


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
