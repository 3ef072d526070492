"""A broker's two log directories, for the tests of starting, running and failing."""

from collections.abc import Callable

from ottla.base.ids import Uuid, parse_uuid
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import OPEN_FILES_DEFAULT, LoadResult, LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.partition_log import PartitionLog
from tests.unit.log.support import TOPIC_ID, Environment, InlineWorkers, QueuedWorkers

OTHER_ID = Uuid(bytes([9] * 16))
IDS = (parse_uuid("vPrf8GOdSvuGKTXo8bVbuQ"), parse_uuid("MkU3OEVBNTcwNTJENDM2Qg"))
CONFIG = LogConfig(segment_bytes=600, timestamp_after_max_ms=2**62)
TOKEN = TOPIC_ID.hex()


class Node:
    """A broker's storage, restarted as often as a test likes."""

    def __init__(self, workers: InlineWorkers | QueuedWorkers | None = None) -> None:
        self.env = Environment(workers=workers or InlineWorkers())
        self.disk = self.env.disk
        for number, directory_id in enumerate(IDS, start=1):
            self.disk.mkdir(f"/d{number}")
            self.disk.write_atomic(
                f"/d{number}/meta.properties",
                encode_meta_properties(
                    MetaProperties(cluster_id="c", node_id=1, directory_id=directory_id)
                ),
            )
        self.disk.sync_dir("/")
        self.asked: list[tuple[str, int, Uuid]] = []

    def start(
        self,
        verdict: Callable[[str, int, Uuid], Verdict] | None = None,
        *,
        open_files_max: int = OPEN_FILES_DEFAULT,
    ) -> tuple[LogDirs, LoadResult]:
        def decide(topic: str, partition: int, topic_id: Uuid) -> Verdict:
            self.asked.append((topic, partition, topic_id))
            return verdict(topic, partition, topic_id) if verdict else Verdict.KEEP

        dirs = LogDirs(
            self.disk,
            self.env.workers,
            self.env.clock,
            self.env.timers,
            ["/d1", "/d2"],
            open_files_max=open_files_max,
            delete_delay_ms=1_000,
        )
        dirs.acquire(node_id=1, cluster_id="c")
        result = dirs.load(decide, lambda topic: CONFIG)
        self.run()
        return dirs, result.value

    def run(self) -> None:
        if isinstance(self.env.workers, QueuedWorkers):
            self.env.workers.run()

    def pass_ms(self, ms: int) -> None:
        self.env.pass_ms(ms)
        self.run()

    def stop(self, dirs: LogDirs) -> None:
        stopped = dirs.shutdown(5)
        self.run()
        assert stopped.done


def create(dirs: LogDirs, topic: str = "t", partition: int = 0) -> PartitionLog:
    return dirs.get_or_create(topic, TOPIC_ID, partition, CONFIG)
