"""Fixtures of the command line's tests: a fake broker, and running a command in this process."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.cli.main import main
from tests.unit.client.conftest import broker

__all__ = ["broker"]
"""The fixture of the client's tests."""


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run `ottla` with arguments."""

    def run_ottla(*arguments: str) -> Ran:
        try:
            code = main(list(arguments))
        except SystemExit as leaving:  # argparse, of `ottla server`
            code = int(leaving.code or 0)
        out, err = capfdbinary.readouterr()
        return Ran(code, out.decode(), err.decode())

    return run_ottla
