"""Counters of a broker or controller: requests by API, bytes by topic.

Hot paths increment plain ints of objects that they hold already. The errors of a response are found
by a function made once for each API; Produce and Fetch, whose responses are the hot ones, count
their partitions' errors themselves.

Source: Kafka's RequestMetrics, BrokerTopicMetrics.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from ottla.base.metrics import Histogram, latency_ns
from ottla.wire.schema import Array, spec_of

Find = Callable[[Any, "Counter[int]"], None]
"""Counts the error codes of a response, or of a struct in it; NONE is not an error."""

ERROR_CODE = "error_code"


class ApiMetrics:
    """The requests of one API.

    Fields: `local`: how long its handler took on the loop; `delayed`: the same of requests that
            were not answered at once; `late`: from the whole request to such a late response. All
            in nanoseconds. Most are answered at once, and so are counted in one place only.
    """

    __slots__ = (
        "delayed",
        "errors",
        "find_errors",
        "late",
        "local",
        "name",
        "request_bytes",
        "requests",
    )

    def __init__(self, name: str, find_errors: Find | None = None) -> None:
        self.name = name
        self.find_errors = find_errors
        self.requests = 0
        self.request_bytes = 0
        self.errors: Counter[int] = Counter()
        self.local: Histogram = latency_ns()
        self.delayed: Histogram = latency_ns()
        self.late: Histogram = latency_ns()

    @property
    def total(self) -> Histogram:
        """Return the total times, waits included; a new histogram at each call."""
        made = latency_ns()
        columns = zip(self.local.counts, self.delayed.counts, self.late.counts, strict=True)
        made.counts = [local - delayed + late for local, delayed, late in columns]
        made.total = self.local.total - self.delayed.total + self.late.total
        return made

    def answered(self, response: Any) -> None:
        """Count the errors of a response that is about to be encoded."""
        if self.find_errors is not None:
            self.find_errors(response, self.errors)


class TopicMetrics:
    """The traffic of a topic's partitions on this broker.

    Fields: `is_used`: whether a client has used it since it was last set to False: see `idle.py`.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "is_used",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
        "topic",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.is_used = False


class PartitionErrors:
    """The errors of single partitions in Produce and Fetch responses, by API key."""

    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[int, Counter[int]] = {}

    def add(self, key: int, code: int) -> None:
        """Count one."""
        self.by_key.setdefault(key, Counter())[int(code)] += 1


@cache
def error_finder(response: type, *, nested: bool = True) -> Find | None:
    """Return a function that counts the errors of a response; None where it can hold none.

    Not `nested`: at its top level only.
    """
    spec = spec_of(response)
    has_own = any(field.name == ERROR_CODE for field in spec.fields)
    inner: list[tuple[str, Find]] = []
    for field in spec.fields if nested else ():
        element = field.type.element if isinstance(field.type, Array) else None
        if isinstance(element, type):
            find = error_finder(element)
            if find is not None:
                inner.append((field.name, find))
    if not has_own and not inner:
        return None

    def find_all(struct: Any, errors: "Counter[int]") -> None:
        if has_own and struct.error_code:
            errors[int(struct.error_code)] += 1
        for name, find_in in inner:
            parts: Iterable[Any] = getattr(struct, name) or ()
            for part in parts:
                find_in(part, errors)

    return find_all
