"""What a leader has to write before it may say that it follows the topic's tiering state.

While tiered storage is being disabled that is a fence with the new tiered epoch, in each leader
epoch: from there on no copy of an earlier epoch counts, and what the floor says is dead is dead for
every reader. A copy that is under way was cancelled when the term began; what its store executes
all the same is shut out by the fence. The object store is not needed for any of it.

Where the fence is known already nothing is written. The first copy of an ENABLED topic writes its
own (`copy_task`); only a floor must be there before, as nothing is known of the remote segments
until it is (`metadata.settled`).

Source: `ottla.tiered.remote_log` says how readers judge by fences.
"""

from typing import TYPE_CHECKING

from ottla.base.pending import Pending
from ottla.broker.remote.dialogue import Dialogue, Wakeup, wait
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.metadata.tiering import TieringState
from ottla.tiered.segment_metadata import NO_FLOOR

if TYPE_CHECKING:
    from ottla.tiered.remote_log import RemoteLog


class LeaderOpening:
    """See the module.

    `restored`: completes when what a restored partition lacks is written; a fence says that it is.
    Fields: `done`: completes when this term may be acknowledged. `wakeup`: notify it when the
            metadata became ready.
    """

    def __init__(self, term: LeaderTerm, restored: Pending[None]) -> None:
        self._term = term
        self._restored = restored
        self.done: Pending[None] = Pending()
        self.wakeup = Wakeup(term.environment.timers, term.environment.clock)

    def run(self) -> Dialogue[None]:
        """Append the fence, if it is needed."""
        term = self._term
        yield from wait(self._restored)
        is_disabling = term.tiering.state is TieringState.DISABLING
        if is_disabling or (yield from self._lacks_fence()):
            remote = yield from term.append_fence()
            if term.is_fenced(remote):
                return  # Another broker leads by now; this one's word would be worth nothing.
        self.done.complete(None)

    def _lacks_fence(self) -> Dialogue[bool]:
        """Wait for the metadata; tell whether they lack what the tiering state presumes."""
        term = self._term
        tiering = term.tiering
        if tiering.copies and tiering.remote_floor_epoch == NO_FLOOR:
            return False
        while (remote := self._replayed()) is None:
            yield from self.wakeup.wait(term.environment.config.interval_ms)
        if remote.floor < tiering.remote_floor_epoch:
            return True
        fence = remote.fence
        return not tiering.copies and (fence is None or fence.tiered_epoch < tiering.tiered_epoch)

    def _replayed(self) -> "RemoteLog | None":
        log = self._term.log
        return self._term.environment.metadata.replayed(log.topic_id, log.partition)
