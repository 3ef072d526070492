"""The journal of an export in its target: reading it, appending to it, and what a run left.

`Journal` has the steps of one run; `recover` ends what a killed run began. See `export_journal`.
"""

from collections.abc import Callable
from typing import Final

from ottla.spark.errors import OptionError
from ottla.spark.jobs.documents import JournalError
from ottla.spark.jobs.exporting import export_journal as journal
from ottla.spark.jobs.exporting.export_journal import Entry, ExportedFile, Phase
from ottla.spark.jobs.heartbeat import PATIENCE_S, RunningError, check_not_running
from ottla.spark.jobs.target_store import TargetStore

ALIVE: Final = f"{journal.DIRECTORY}/alive"

Report = Callable[[str], object]
AddRun = Callable[[Entry], None]


class Journal:
    """The journal of one target. `last`: its last entry, None = it is empty.

    `add_run` lists the files of a committed run for readers; None = they look for themselves.
    Raises: JournalError; RemoteStorageError; RunningError where another run appends meanwhile.
    """

    def __init__(self, store: TargetStore, add_run: AddRun | None = None) -> None:
        self._store = store
        self._add_run = add_run
        self.last: Entry | None = None
        if store.has_root():
            numbers = [_number(each.name) for each in store.list_objects(journal.JOURNAL)]
            known = [each for each in numbers if each is not None]
            self.last = self.read(max(known)) if known else None

    def read(self, number: int) -> Entry:
        """Return an entry."""
        name = journal.entry_name(number)
        data = self._store.read_whole(name)
        if data is None:
            raise JournalError(f"{self._store.uri} has no {name}")
        return journal.decode(number, data)

    def append(self, entry: Entry) -> None:
        """Write the next entry."""
        assert entry.number == (0 if self.last is None else self.last.number + 1)
        if not self._store.put_if_absent(journal.entry_name(entry.number), journal.encode(entry)):
            raise self._overtaken()
        self.last = entry

    def check_last(self) -> None:
        """Raise RunningError where an entry was appended since `last` was read."""
        number = 0 if self.last is None else self.last.number + 1
        if self._store.read_whole(journal.entry_name(number)) is not None:
            raise self._overtaken()

    def _overtaken(self) -> RunningError:
        return RunningError(
            f"another export writes to {self._store.uri}: it has begun a run, or has given up "
            "this one"
        )

    def commits(self) -> list[Entry]:
        """Return the entries of the runs whose files are all where readers look, oldest first."""
        end = -1 if self.last is None else self.last.number
        if self.last is not None and self.last.phase is Phase.COMMITTED:
            end -= 1
        entries = (self.read(number) for number in range(end + 1))
        return [each for each in entries if each.phase is Phase.COMMITTED]

    def last_published(self) -> Entry | None:
        """Return the last entry of a run whose files are all where readers look."""
        end = -1 if self.last is None else self.last.number
        entries = (self.read(number) for number in range(end, -1, -1))
        return next((each for each in entries if each.phase is Phase.PUBLISHED), None)

    def has_commits(self) -> bool:
        """Tell whether a run has exported anything."""
        if self.last is not None and self.last.phase in (Phase.COMMITTED, Phase.PUBLISHED):
            return True
        return self.last_published() is not None

    def commit(self, files: tuple[ExportedFile, ...]) -> None:
        """Commit the run that has begun: from now on its records are exported."""
        assert self.last is not None
        self.append(journal.committed(self.last, files))

    def discard(self) -> None:
        """End the run that has begun without any effect but where it was to start."""
        assert self.last is not None
        self.append(journal.discarded(self.last))

    def publish(self, report: Report) -> None:
        """Move the files of the committed run to where readers look."""
        last = self.last
        assert last is not None
        moves = [(journal.staged_name(last.run, each.name), each.name) for each in last.files]
        self._store.move(moves, lambda done: report(f"publishing: {done} of {len(moves)} files"))
        if self._add_run is not None:
            self._add_run(last)
        self.append(journal.published(last))

    def sweep(self, kept: str | None = None) -> None:
        """Delete the staged files of all runs but one: none of them can commit any more."""
        prefix = f"{journal.STAGED}/{kept}/"
        found = [each.name for each in self._store.list_objects(journal.STAGED)]
        self._store.delete([each for each in found if kept is None or not each.startswith(prefix)])


def recover(
    log: Journal, store: TargetStore, *, patience_s: float = PATIENCE_S, report: Report
) -> str:
    """End what a killed run has begun; return what was done: "", completed or discarded.

    Raises: RunningError where the run is under way; as `Journal`.
    """
    last = log.last
    if last is None or last.phase not in (Phase.BEGUN, Phase.COMMITTED):
        return ""
    check_not_running(
        store, ALIVE, f"run {last.run} of the export", patience_s=patience_s, report=report
    )
    if last.phase is Phase.COMMITTED:
        log.publish(report)
        return "completed"
    log.discard()
    return "discarded"


def check_table(last: Entry | None, topic: str, format_name: str, partition_by: str) -> None:
    """Raise OptionError where a target holds something else."""
    if last is None:
        return
    table = last.table
    for what, found, wanted in (
        ("topic", table.topic, topic),
        ("format", table.format, format_name),
        ("partitioning", table.partition_by, partition_by),
    ):
        if found != wanted:
            raise OptionError(f"the target has the {what} {found}, not {wanted}: use another one")


def _number(name: str) -> int | None:
    text = name.removeprefix(f"{journal.JOURNAL}/").removesuffix(".json")
    return int(text) if text.isascii() and text.isdecimal() else None
