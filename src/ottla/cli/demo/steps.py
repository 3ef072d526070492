"""What every step of the demo uses: titles with durations, checks, and commands of `ottla`."""

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console

TOPIC: Final = "flights"
PARTITIONS: Final = 6
REPLICAS: Final = 3
BROKERS: Final = 3
QUIET_S_MAX: Final = 60.0
"""How long a step may make no progress before the demo fails."""
PAUSE_S: Final = 0.2


class DemoError(Exception):
    """A result differs from the source file, or a step made no progress."""


@contextmanager
def step(console: Console, title: str) -> Iterator[None]:
    """Print a step's title, then its duration."""
    console.print(f"[bold]{title}[/bold]")
    begun = time.monotonic()
    yield
    console.print(f"  [dim]{time.monotonic() - begun:.1f} s[/dim]")


def check(console: Console, what: str, found: Any, expected: Any) -> None:
    """Print a check that held; raise DemoError where it does not."""
    if found != expected:
        raise DemoError(f"{what}: found {found}, expected {expected}")
    shown = f"{found:,}" if isinstance(found, int) else f"the same in all {len(found)} partitions"
    console.print(f"  [green]✓[/green] {what}: {shown}")


def command(console: Console, *words: str) -> None:
    """Print a command of `ottla` and run it; raise DemoError where its exit code is not 0."""
    from ottla.cli.main import main

    text = shlex.join(["ottla", *words])
    console.print(f"  [cyan]$ {text}[/cyan]", soft_wrap=True, highlight=False)
    code = main(words)
    if code:
        raise DemoError(f"{text}: exit code {code}")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds; raise DemoError after QUIET_S_MAX."""
    deadline = time.monotonic() + QUIET_S_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {QUIET_S_MAX:g} s for {what}")
        time.sleep(PAUSE_S)
