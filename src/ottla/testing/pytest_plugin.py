"""The pytest plugin that comes with Ottla: a running cluster as a fixture.

Installed with the package (entry point `pytest11`), so a test only has to name the fixture.
Loaded by every pytest run of the environment: it imports nothing heavy before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ottla-brokers`."""
    group = parser.getgroup("ottla")
    group.addoption(
        "--ottla-brokers",
        type=int,
        default=1,
        metavar="N",
        help="how many brokers the cluster of the fixture ottla_cluster has (default: 1)",
    )


@pytest.fixture(scope="session")
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that serves at `ottla_cluster.bootstrap` and ends with the session."""
    from ottla.testing.cluster import Cluster

    with Cluster(brokers=request.config.getoption("--ottla-brokers")) as cluster:
        yield cluster
