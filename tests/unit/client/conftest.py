"""Fixtures of the client's tests."""

from collections.abc import Iterator

import pytest

from .fake_broker import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A broker that knows no topic."""
    fake = FakeBroker()
    yield fake
    fake.close()
