"""The connection options that reading and writing share, and retries by them."""

from collections.abc import Callable
from typing import Final, TypeVar

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.client.transport import PLAINTEXT
from ottla.spark.errors import ClusterError, OptionError
from ottla.spark.raw_options import RawOptions

T = TypeVar("T")

BOOTSTRAP_SECONDS: Final = 15.0
"""How long to try a cluster without any response: a wrong address should fail soon."""


def client_config(raw: RawOptions) -> ClientConfig:
    """Read the options; raise OptionError where one is missing or wrong."""
    servers = raw.text("kafka.bootstrap.servers")
    if not servers:
        raise OptionError(
            "option kafka.bootstrap.servers is missing: expected HOST:PORT[,...]; to read what "
            "an object store holds without brokers, set ottla.remote.storage.uri instead"
        )
    retry_s = raw.count("kafka.default.api.timeout.ms", 60_000, 1) / 1000
    request_s = raw.count("kafka.request.timeout.ms", 30_000, 1) / 1000
    backoff_s = raw.count("kafka.retry.backoff.ms", 100, 0) / 1000
    try:
        return ClientConfig(
            bootstrap=servers,
            client_id=raw.text("kafka.client.id") or "ottla-spark",
            security_protocol=raw.text("kafka.security.protocol") or PLAINTEXT,
            bootstrap_s=min(BOOTSTRAP_SECONDS, retry_s),
            request_s=request_s,
            retry_s=retry_s,
            backoff_s=backoff_s,
        )
    except ValueError:
        raise OptionError(
            f"option kafka.bootstrap.servers={servers}: expected HOST:PORT[,...]"
        ) from None


def retried(
    client: ClusterClient,
    what: str,
    act: Callable[[], T],
    *,
    attempts_min: int = 1,
    backoff_ms: int | None = None,
) -> T:
    """Run `act`, which may be repeated, until the API timeout. Raises: ClusterError, naming it."""
    try:
        return client.with_retries(
            act,
            repeatable=True,
            attempts_min=attempts_min,
            backoff_s=None if backoff_ms is None else backoff_ms / 1000,
        )
    except ClientError as error:
        raise ClusterError(f"{what}: {error}", error.code) from error
