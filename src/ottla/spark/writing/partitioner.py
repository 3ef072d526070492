"""Assigns rows to partitions: Kafka's hash of the key, for all keys of a batch at once.

Sources: Kafka's Utils.murmur2 and BuiltInPartitioner. A key must go to the same partition as from a
Java producer.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SHIFT: Final = np.uint32(24)


def murmur2(keys: Any) -> Words:
    """Return the hash of each key in a binary array; nulls count as empty."""
    keys = keys.cast(pa.binary())
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = bounds[:-1].astype(np.int64)
    lengths = np.diff(bounds).astype(np.int64)
    if keys.null_count:
        lengths[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    data = keys.buffers()[2]
    # Padded, so that a word can be read at the very end too.
    raw = np.zeros((0 if data is None else data.size) + 4, np.uint8)
    if data is not None:
        raw[: data.size] = np.frombuffer(data, np.uint8)
    words: Any = np.ndarray((len(raw) - 3,), np.dtype("<u4"), raw, 0, (1,))
    hashes: Words = _SEED ^ lengths.astype(np.uint32)
    # Longest first, so that the keys which still have words are a prefix.
    order = np.argsort(-lengths, kind="stable")
    sorted_lengths = lengths[order]
    at = starts[order]
    mixed = hashes[order]
    steps = np.arange(1, int(sorted_lengths[0]) // 4 + 1) if len(lengths) else np.arange(0)
    running = np.searchsorted(-sorted_lengths, -4 * steps, side="right")
    for lanes in running.tolist():
        word = words[at[:lanes]] * _MULTIPLIER
        word ^= word >> _SHIFT
        word *= _MULTIPLIER
        mixed[:lanes] *= _MULTIPLIER
        mixed[:lanes] ^= word
        at[:lanes] += 4
    hashes[order] = _finish(mixed, raw, at, sorted_lengths % 4)
    return hashes


def _finish(mixed: Words, raw: npt.NDArray[np.uint8], at: Ints, rest: Ints) -> Words:
    """Mix in the last one to three bytes."""
    for index in (2, 1, 0):
        lanes = np.flatnonzero(rest > index)
        mixed[lanes] ^= raw[at[lanes] + index].astype(np.uint32) << np.uint32(8 * index)
    lanes = np.flatnonzero(rest > 0)
    mixed[lanes] *= _MULTIPLIER
    mixed ^= mixed >> np.uint32(13)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> np.uint32(15)
    return mixed


def by_key(keys: Any, partitions: int) -> Ints:
    """Return the partition of each key, as Kafka's producer chooses it."""
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partitions)).astype(np.int64)


def in_runs(count: int, partitions: int, *, first: int, runs: int) -> Ints:
    """Spread rows without a key in `runs` contiguous runs, on partitions from `first` on.

    Long runs make few, large batches, and partitions get about the same number of rows.
    """
    wanted = max(1, min(runs, partitions, count))
    return (first + np.arange(count, dtype=np.int64) * wanted // max(count, 1)) % partitions
