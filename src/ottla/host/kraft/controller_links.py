"""A broker's connections to the controller quorum.

The metadata fetch, forwarded requests and heartbeats each have their own connection to the leader,
so that none waits behind a fetch in purgatory or a slow request. Where there are several voters,
each has a channel for the metadata fetch: the leader may hang while others know the next one.

With controller.quorum.bootstrap.servers alone the voters are not known: each connection tries one
server after another until one answers as the leader.
"""

from collections.abc import Callable

from ottla.base.ids import NO_LEADER
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.forwarding.controller_limits import default_limit_ms
from ottla.broker.ports import Sender
from ottla.host.forwarder import ControllerForwarder
from ottla.host.kraft.quorum_peers import BootstrapServers, ControllerEndpoints
from ottla.host.kraft.voter_links import VoterChannels
from ottla.host.node_ports import Connect, Link
from ottla.metadata.node_config import NodeConfig


class ControllerLinks:
    """The connections of one broker. `forwarder`: clients' requests; `heartbeats`: its own.

    `caught_up`: returns a promise that the broker's image has the record at an offset.
    """

    def __init__(
        self,
        connect: Connect,
        config: NodeConfig,
        clock: Clock,
        timers: Timers,
        *,
        caught_up: Callable[[int], Pending[None]],
    ) -> None:
        voters = {voter.id: (voter.host, voter.port) for voter in config.quorum_voters}
        self._endpoints = ControllerEndpoints(
            voters=voters, bootstrap=config.quorum_bootstrap_servers
        )
        name = f"broker-{config.node_id}"

        def connected(purpose: str) -> Link:
            servers = BootstrapServers(config.quorum_bootstrap_servers, lambda: link.connected)
            link = connect(
                self._endpoints.choose if voters else servers.choose,
                client_id=f"{name}-{purpose}",
                connect_timeout_ms=config["socket.connection.setup.timeout.ms"],
                connect_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
            )
            return link

        self._channels = [connected(each) for each in ("metadata", "forwarding", "heartbeat")]
        self._knows_voters = bool(voters)
        self._has_several = len(voters) > 1
        self._voters = VoterChannels(connect, voters, client_id=f"{name}-quorum")
        self._fetching, forwarding, heartbeating = self._channels
        self.forwarder, self.heartbeats = (
            ControllerForwarder(
                channel,
                clock=clock,
                timers=timers,
                forward_timeout_ms=default_limit_ms(config),
                on_not_controller=channel.retarget,
                caught_up=caught_up,
            )
            for channel in (forwarding, heartbeating)
        )

    def sender_to(self, voter_id: int) -> Sender:
        """Return the channel for a metadata fetch from a voter; -1 = from any."""
        if self._has_several:
            return self._voters.to(voter_id)
        if voter_id == NO_LEADER and not self._knows_voters:
            _try_next(self._fetching)
        return self._fetching

    def controller_changed(self, leader_id: int, _epoch: int) -> None:
        """Connect to the new leader at once: the old one may hang and never answer."""
        self._endpoints.leader_id = leader_id
        if leader_id == NO_LEADER:
            return
        for channel in self._channels:
            if self._knows_voters:
                channel.retarget()
            elif channel is not self._fetching:  # The server that named the leader may be it.
                _try_next(channel)

    def close(self) -> None:
        """End all connections."""
        self.forwarder.close()
        self.heartbeats.close()
        for channel in self._channels:
            channel.close()
        self._voters.close()


def _try_next(channel: Link) -> None:
    """Leave the server that a channel is connected to; an attempt to connect is not disturbed."""
    if channel.connected:
        channel.retarget()
