"""The connection options that reading and writing share."""

from dataclasses import dataclass

from ottla.spark.errors import OptionError
from ottla.spark.raw_options import RawOptions

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Addresses and timeouts of a client.

    Fields: `request_timeout_ms`: timeout of one request.
            `api_timeout_ms`: how long retriable errors of one operation are retried.
    """

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_ms: int
    api_timeout_ms: int
    retry_backoff_ms: int

    @staticmethod
    def of(raw: RawOptions) -> "ClusterOptions":
        """Read the options; raise OptionError where one is missing or wrong."""
        return ClusterOptions(
            bootstrap=parse_bootstrap(raw.text("kafka.bootstrap.servers")),
            client_id=raw.text("kafka.client.id") or "ottla-spark",
            request_timeout_ms=raw.count("kafka.request.timeout.ms", 30_000, 1),
            api_timeout_ms=raw.count("kafka.default.api.timeout.ms", 60_000, 1),
            retry_backoff_ms=raw.count("kafka.retry.backoff.ms", 100, 0),
        )


def parse_bootstrap(text: str | None) -> tuple[Address, ...]:
    """Return the addresses in `HOST:PORT[,HOST:PORT...]`; IPv6 hosts in brackets."""
    if not text:
        raise OptionError("option kafka.bootstrap.servers is missing: expected HOST:PORT[,...]")
    addresses = []
    for each in text.split(","):
        host, separator, port = each.strip().removeprefix("PLAINTEXT://").rpartition(":")
        if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise OptionError(f"option kafka.bootstrap.servers={text}: expected HOST:PORT[,...]")
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)
