"""A log that starts anew at its leader's log start, killed at any step: no replica ends too early.

Method: a broker's log directory on the simulator's disk. A run without a crash counts the disk's
operations; then one run for each is killed before it, and another start follows. The replica is
eligible to lead, so its log must end where the old one did or where the new one starts; else the
start takes note of it, and the broker registers as after an unclean shutdown.
"""

from functools import partial
from itertools import count

import pytest

from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoints import decode_running
from tests.unit.log.killed_log_dir import KilledLogDir
from tests.unit.log.support import TOPIC_ID, append, batch

CONFIG = LogConfig(segment_bytes=300, retention_ms=-1, timestamp_after_max_ms=2**62)
END = 13
BOOT = "monday"


class Broker(KilledLogDir):
    """A broker's one log, which ends at END; the checkpoint of its high watermark is too old to
    show a loss."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.dirs.note_running(7, BOOT)
        log = self.dirs.get_or_create("t", TOPIC_ID, 0, CONFIG)
        for number in range(END):
            append(log, batch([b"%060d" % number]))
        log.flush()
        self.finish()
        self.dirs.checkpoint()
        self.finish()
        self.disk.settle()
        assert len(log.segments) > 3
        self.watch()

    def finish(self) -> None:
        while self.workers.queue or self.env.timers.next_ms() is not None:
            self.workers.run()
            self.env.pass_ms(1_000)

    def start_anew(self, offset: int) -> None:
        self.log.truncate_fully_in_background(offset, lambda: True)
        self.finish()

    @property
    def has_segments(self) -> bool:
        return any(name.endswith(names.LOG) for name in self.disk.listdir("/d1/t-0"))

    def has_all_up_to(self, offset: int) -> bool:
        """Return whether it may register as a broker that has lost nothing, if it will."""
        note = f"/d1/{names.RUNNING}"
        epoch = decode_running(self.disk.read_bytes(note), BOOT) if self.disk.exists(note) else -1
        return epoch < 0 or self.log.log_end_offset >= offset


@pytest.mark.parametrize("offset", [END - 2, END])
def test_a_kill_leaves_no_log_that_ends_too_early(offset: int) -> None:
    operations = killed(offset).operations
    found = [killed(offset, at) for at in range(1, operations + 1)]
    for broker in found:
        broker.end(power=None)
        broker.start()
        assert broker.has_all_up_to(offset), broker.last
    ends = {broker.log.log_end_offset for broker in found}
    assert {offset, END} <= ends
    assert any(broker.dirs.below_high_watermark for broker in found), "no segment was left"


@pytest.mark.drawn(8, of="every step")
def test_the_next_start_may_be_killed_at_any_step_too() -> None:
    """What shows the loss is removed only after the note of the shutdown, which denies it."""
    for at in range(1, killed(END).operations + 1):
        if killed(END, at).has_segments:
            continue
        for again_at in count(1):
            broker = killed(END, at)
            broker.end(power=None)
            done = broker.count(broker.start, again_at)
            broker.end(power=None)
            broker.start()
            assert broker.has_all_up_to(END), f"killed at {at}, then at {again_at}"
            if done < again_at:
                break


def killed(offset: int, at: int | None = None) -> Broker:
    """Return a broker whose log started anew at `offset`, killed at an operation of the disk."""
    broker = Broker()
    broker.count(partial(broker.start_anew, offset), at)
    return broker
