"""What a crash leaves in a partition directory beside the segments, and its cleanup at start.

| file                        | meaning                                | at load             |
|-----------------------------|----------------------------------------|---------------------|
| `*.deleted`                 | a segment that retention deleted       | removed             |
| `*.cleaned`                 | compaction that never finished writing | removed             |
| `*.swap`                    | compaction that had finished writing   | swapped in          |
| `*.swap` above a `*.cleaned`| a split that had not finished          | removed             |
| `*.tmp`                     | a small file half written              | removed             |
| index without its `.log`    | an orphan                              | removed             |

Source: LogLoader.{load, removeTempFilesAndCollectSwapFiles, loadSegmentFiles}.
"""

import re

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.recovery.scan import scan_headers
from ottla.records.errors import RecordsError

_TEMPORARY = re.compile(r"(\d{20})(\.[a-z]+)(\.cleaned|\.swap)")


def tidy(disk: Disk, directory: str) -> list[int]:
    """Clean the directory up; return the base offsets of its segments, ascending.

    Raises: OSError.
    """
    found = disk.listdir(directory)
    cleaned = [name for name in found if name.endswith(names.CLEANED)]
    swaps = [name for name in found if name.endswith(names.SWAP)]
    gone = [name for name in found if name.endswith((names.DELETED, names.TEMPORARY))]
    # KRaft snapshots have these suffixes, too, under longer names; they are no segments.
    gone = [name for name in gone if ".checkpoint" not in name]
    first_cleaned = min(map(_offset_of, cleaned), default=None)
    valid = [name for name in swaps if first_cleaned is None or _offset_of(name) < first_cleaned]
    unfinished = [name for name in swaps if name not in valid]
    for name in (*gone, *unfinished):
        disk.remove(f"{directory}/{name}")
    if unfinished:
        # Durably before the `.cleaned` files, by which unfinished `.swap` files are known.
        disk.sync_dir(directory)
    for name in cleaned:
        disk.remove(f"{directory}/{name}")
    if valid:
        _take_swaps(disk, directory, valid)
    return _segments(disk, directory)


def _take_swaps(disk: Disk, directory: str, swaps: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    if logs:
        start = min(map(_offset_of, logs))
        end = max(_end_of(disk, directory, name) for name in logs)
        # A process that was killed may have left the new name without a sync: a power loss must
        # not take it together with the old segments.
        disk.sync_dir(directory)
        for name in disk.listdir(directory):
            parsed = names.parse_segment_name(name)
            if parsed is not None and start <= parsed[0] < end:
                disk.remove(f"{directory}/{name}")
        # A power loss must not bring an old segment back beside the new one.
        disk.sync_dir(directory)
        for name in logs:
            _take_swap(disk, directory, name)
        disk.sync_dir(directory)
    for name in swaps:
        if name not in logs:
            _take_swap(disk, directory, name)


def _take_swap(disk: Disk, directory: str, name: str) -> None:
    disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP)}")


def _end_of(disk: Disk, directory: str, name: str) -> int:
    end = _offset_of(name) + 1
    file = disk.open(f"{directory}/{name}")
    try:
        for _, header in scan_headers(file, 0, file.size()):
            end = header.next_offset
    except RecordsError:
        pass  # Recovery will cut the segment here.
    finally:
        file.close()
    return end


def _segments(disk: Disk, directory: str) -> list[int]:
    files = [names.parse_segment_name(name) for name in disk.listdir(directory)]
    bases = {parsed[0] for parsed in files if parsed is not None and parsed[1] == names.LOG}
    for parsed in files:
        if parsed is not None and parsed[1] in names.INDEX_SUFFIXES and parsed[0] not in bases:
            disk.remove(f"{directory}/{names.segment_name(*parsed)}")
    return sorted(bases)


def _offset_of(name: str) -> int:
    found = _TEMPORARY.fullmatch(name)
    # Any other name belongs to no segment; as offset 0 it cannot hide one.
    return int(found[1]) if found else 0
