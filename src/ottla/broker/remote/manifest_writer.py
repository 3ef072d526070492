"""Writes the manifests of a partition, as its leader.

A term's first manifest is a base, so nothing has to be read for it but the number of the last one.
From it on a manifest of an earlier leader counts for nothing, however late it is written: so it is
there before this leader deletes any object.

Source: `ottla.tiered.manifest`.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.base.ids import Uuid
from ottla.base.object_store import Failure, StoreError
from ottla.broker.remote.dialogue import Dialogue, Slots
from ottla.broker.remote.leader_term import LeaderTerm
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import decode_manifest, encode_manifest
from ottla.tiered.manifest_planner import ManifestPlanner
from ottla.tiered.object_names import manifest_name, manifest_prefix, parse_manifest_name
from ottla.tiered.segment_metadata import SegmentState

if TYPE_CHECKING:
    from ottla.tiered.remote_log import RemoteLog

MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Some 200,000 segments."""

NO_SEQUENCE: Final = -1

CONFLICTS_MAX: Final = 100
"""Manifests of other writers that one update reads before it gives up for now."""

LOAD_MS_MAX: Final = 10 * ATTEMPT_MS_MAX


class Refused(Enum):
    """Why a manifest was not written, besides failures of the store."""

    SUPERSEDED = "a newer leader writes the manifests"
    NOT_READY = "remote log metadata is not ready"
    CONFLICTS = "other writers were faster"

    def __str__(self) -> str:
        return self.value


class ManifestWriter:
    """See the module. For one term; updates run one after the other."""

    def __init__(self, term: LeaderTerm) -> None:
        self._term = term
        self._calls = term.environment.calls
        self._planner = ManifestPlanner()
        self._turn = Slots(1)
        self._is_loaded = False
        self._has_begun = False
        self._is_due = True

    def is_stale(self, remote: "RemoteLog") -> bool:
        """Tell whether an update is due: none of this term has succeeded yet, or the last one
        failed, or the last manifest lists segments that are not readable any more.
        """
        state = self._planner.state
        if self._is_due:
            return bool(remote.segments()) or state is not None
        listed = () if state is None else state.segments
        return any(not _is_readable(remote, segment_id) for segment_id in listed)

    def update(self) -> Dialogue[StoreError | Refused | None]:
        """Bring the manifests up to date with the metadata; return why that failed."""
        yield from self._turn.acquire()
        try:
            self._is_due = True
            error = yield from self._update()
            self._is_due = error is not None
            return error
        finally:
            self._turn.release()

    def _update(self) -> Dialogue[StoreError | Refused | None]:
        if not self._is_loaded:
            error = yield from self._load()
            if error is not None:
                return error
        for _ in range(CONFLICTS_MAX):
            remote = self._term.remote()
            if remote is None:
                return Refused.NOT_READY
            if self._is_superseded(remote):
                return Refused.SUPERSEDED
            if not self._has_begun:
                # What was read, as of another writer, must not make ours needless.
                self._planner.load((), highest=self._planner.highest)
            manifest = self._plan(remote)
            if manifest is None:
                return None
            name = self._name(manifest.sequence)
            error = yield from self._calls.put_if_absent_once(name, encode_manifest(manifest))
            if error is None:
                self._planner.applied(manifest)
                self._has_begun = True
            elif error.failure is Failure.EXISTS:
                error = yield from self._follow(manifest.sequence)
                if error is not None:
                    return error
            else:
                return error
        return Refused.CONFLICTS

    def _plan(self, remote: "RemoteLog") -> Manifest | None:
        term, log = self._term, self._term.log
        facts = term.environment.topic_facts(log.topic_id)
        return self._planner.plan(
            remote,
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            leader_epoch=term.leader_epoch,
            tiered_epoch=term.tiering.tiered_epoch,
            log_start_offset=log.log_start_offset,
            epochs=term.lineage().entries,
            partition_count=facts.partition_count,
            configs=facts.configs,
        )

    def _is_superseded(self, remote: "RemoteLog") -> bool:
        term = self._term
        return term.is_fenced(remote) or self._planner.is_superseded(
            leader_epoch=term.leader_epoch, tiered_epoch=term.tiering.tiered_epoch
        )

    def _load(self) -> Dialogue[StoreError | None]:
        """Find the last manifest's number. A listing may be late: a conflict shows later ones."""
        log = self._term.log
        prefix = manifest_prefix(log.topic, log.topic_id, log.partition)
        until_ms = self._term.environment.clock.monotonic_ms() + LOAD_MS_MAX
        highest, after = NO_SEQUENCE, ""
        while True:
            page = yield from self._calls.list_page(prefix, after, until_ms=until_ms)
            if isinstance(page, StoreError):
                return page
            for each in page.objects:
                sequence = parse_manifest_name(each.name)
                highest = highest if sequence is None else max(highest, sequence)
            if page.is_last or not page.objects:
                break
            after = page.objects[-1].name
        self._planner.load((), highest=highest)
        self._is_loaded = True
        return None

    def _follow(self, sequence: int) -> Dialogue[StoreError | None]:
        """Read the manifest that was written in place of ours; it may be ours, after all."""
        until_ms = self._term.environment.clock.monotonic_ms() + LOAD_MS_MAX
        data = yield from self._calls.read(
            self._name(sequence), MANIFEST_BYTES_MAX, until_ms=until_ms
        )
        if isinstance(data, StoreError):
            return data
        try:
            found = decode_manifest(data)
        except ValueError:
            found = None
        if found is not None and found.sequence == sequence:
            self._planner.applied(found)
        else:
            # Damaged: readers end their chain before it, so the next one is a base.
            self._planner.load((), highest=sequence)
        return None

    def _name(self, sequence: int) -> str:
        log = self._term.log
        return manifest_name(log.topic, log.topic_id, log.partition, sequence)


def _is_readable(remote: "RemoteLog", segment_id: Uuid) -> bool:
    found = remote.get(segment_id)
    return found is not None and found.state is SegmentState.COPY_FINISHED
