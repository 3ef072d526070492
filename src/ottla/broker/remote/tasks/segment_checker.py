"""The check of a segment's batches before its copy.

What is uploaded takes the place of the files of all replicas, which local retention deletes. So a
leader uploads no file that its disk has damaged: another replica, once it leads, copies its own.

The check reads the whole file, in workers, a part at a time, so that other work comes in between.
Attempts that follow soon are cheap:

- Where a check has found damage the next one begins there, and fails at once.
- Where it has found none, it holds for as long as a copy may take: what an upload reads may be that
  old, too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.pending import Pending
from ottla.broker.remote.dialogue import Dialogue, wait
from ottla.broker.remote.environment import RemoteEnvironment
from ottla.broker.remote.tasks.leader_term import copy_ms_max
from ottla.log.results import DamagedLog
from ottla.log.segment_check import SegmentCheck
from ottla.records.errors import RecordsError

if TYPE_CHECKING:
    from ottla.log.segment_files import SegmentFiles


@dataclass(frozen=True, slots=True)
class _Known:
    """How far a segment is checked, and when that was."""

    files: "SegmentFiles"
    check: SegmentCheck
    at_ms: int


class SegmentChecker:
    """Checks the segments that one task copies, one after the other."""

    def __init__(self, environment: RemoteEnvironment) -> None:
        self._environment = environment
        self._known: _Known | None = None

    def check(self, files: "SegmentFiles") -> Dialogue[None]:
        """Check a segment, whose files may change meanwhile.

        Raises: OSError; DamagedLog.
        """
        # Forgotten while it goes on: of a cancelled one a step may still run.
        known, self._known = self._known, None
        if known is None or known.files.log != files.log or not known.files.is_intact():
            check = files.begin_check()
        elif not known.check.is_over:
            check = known.check
        elif self._now_ms() - known.at_ms <= copy_ms_max(files.log.size_bytes):
            self._known = known
            return
        else:
            check = files.begin_check()
        while not check.is_over:
            result = yield from wait(self._step(check))
            if isinstance(result, RecordsError) and files.is_intact():
                self._known = _Known(files, check, self._now_ms())
                path = files.log.path
                raise DamagedLog(
                    f"position {check.position} of {path}: {result}",
                    path=path,
                    good_end=check.next_offset,
                )
            if isinstance(result, RecordsError):
                return  # Of what came after a truncation.
            if result is not None:
                raise result
        self._known = _Known(files, check, self._now_ms())

    def _now_ms(self) -> int:
        return self._environment.clock.monotonic_ms()

    def _step(self, check: SegmentCheck) -> Pending[BaseException | None]:
        done: Pending[BaseException | None] = Pending()

        def came(result: BaseException | None) -> None:
            done.complete(result)

        self._environment.workers.submit(check.step, came)
        return done
