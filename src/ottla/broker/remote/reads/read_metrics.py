"""The metric families of remote reads: what is under way, what waits, and the caches.

Source: Kafka's RemoteStorageThreadPool, DelayedRemoteFetch, DelayedRemoteListOffsets;
docs/metrics.md maps the names. Counters by topic are those of `remote_metrics`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.base.metrics import Family, counter, gauge

if TYPE_CHECKING:
    from ottla.broker.fetch.delayed_fetch import FetchReader
    from ottla.broker.remote.reads.reads import RemoteReader

POOL = "org_apache_kafka_storage_internals_log_remote_storage_thread_pool"


def read_families(reader: "RemoteReader", fetches: "FetchReader") -> Iterator[Family]:
    """Yield the families of a broker's remote reads."""
    ranges = reader.ranges
    yield gauge(
        f"{POOL}_remote_log_reader_task_queue_size",
        "Reads of objects that wait for one of the calls to the store.",
        ranges.queued,
    )
    yield gauge(
        f"{POOL}_remote_log_reader_avg_idle_percent",
        "Calls to the store that could be made now, of all that may be under way; from 0 to 1.",
        max(0, reader.limits.calls_max - ranges.calls) / reader.limits.calls_max,
    )
    for name, text, count in (
        (
            "kafka_server_delayed_remote_fetch_metrics_expires",
            "Fetches that waited for remote reads until their deadline.",
            fetches.remote_expires,
        ),
        (
            "kafka_server_delayed_remote_list_offsets_metrics_expires",
            "Lookups of timestamps in remote storage that took too long.",
            reader.lookups_expired,
        ),
        ("ottla_remote_reads_throttled", "Remote reads beyond the quota.", reader.throttled),
        ("ottla_remote_reads_refused", "Remote reads beyond the limits.", reader.refused),
        ("ottla_remote_store_reads", "Calls to the store for reads.", ranges.attempts),
        ("ottla_remote_store_read_errors", "Such calls that failed.", ranges.failures),
        ("ottla_remote_store_read_bytes", "Bytes that they returned.", ranges.bytes_read),
    ):
        yield counter(f"{name}_total", text, [((), count)])
    yield gauge("ottla_remote_reads_under_way", "Remote reads under way.", reader.under_way)
    yield gauge(
        "ottla_remote_reads_reserved_bytes",
        "Bytes of remote reads, asked for or not sent yet.",
        reader.reserved_bytes,
    )
    caches = (("chunk", reader.chunks.kept), ("index", reader.indexes.kept))
    yield gauge(
        "ottla_remote_cache_size_bytes",
        "Bytes of remote segments and of their indexes in memory.",
        [((("cache", name),), cache.bytes) for name, cache in caches],
    )
    yield counter(
        "ottla_remote_cache_hits_total",
        "Lookups that found a chunk or an index in memory.",
        [((("cache", name),), cache.hits) for name, cache in caches],
    )
    yield counter(
        "ottla_remote_cache_misses_total",
        "Lookups that did not.",
        [((("cache", name),), cache.misses) for name, cache in caches],
    )
