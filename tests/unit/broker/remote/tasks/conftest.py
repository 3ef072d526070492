"""What tests of several tasks need."""

import pytest

from ottla.tiered import manifest, manifest_planner


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a base every fifth manifest."""
    monkeypatch.setattr(manifest, "BASE_EVERY", 5)
    monkeypatch.setattr(manifest_planner, "BASE_EVERY", 5)
