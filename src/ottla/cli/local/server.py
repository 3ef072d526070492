"""`ottla server FILE`: runs one node until SIGTERM. As kafka-server-start.sh.

Uses argparse and imports the node late, to start fast.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.errors import CommandError, UsageError, shown

if TYPE_CHECKING:
    from ottla.metadata.node_config import NodeConfig

GRACE_SECONDS = 30.0
"""How long a node may take to stop once its standard input has closed."""

EPILOG = """\
examples:
  ottla server config/node.properties
  ottla server node.properties --override node.id=2 --override log.dirs=/tmp/two

The storage must be formatted first: see 'ottla storage format --help'. A broker of ZooKeeper
mode (zookeeper.connect) needs no formatting.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the node; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="ottla server",
        description="Run one node with Kafka's properties until SIGTERM, SIGHUP or Ctrl-C.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the node's property file")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property that overrides the file's; repeatable",
    )
    parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rotate-output", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    properties = read_file(options.file)
    for each in options.override:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise UsageError(f"--override {shown(each)}: expected NAME=VALUE")
        properties[name.strip()] = value.strip()
    config = parse_config(properties, options.file)
    return _run_node(config, options.until_stdin_closes, options.rotate_output)


def read_file(path: str) -> dict[str, str]:
    """Return the properties of a file; raise CommandError where it cannot be read."""
    from ottla.metadata.properties import read_properties

    try:
        return read_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise CommandError(f"{path}: {reason}: expected a property file") from None
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from None


def parse_config(properties: Mapping[str, str], path: str) -> "NodeConfig":
    """Return the node's configuration; raise CommandError with a line for each invalid property."""
    from ottla.metadata.config_def import ConfigError
    from ottla.metadata.node_config import NodeConfig

    try:
        return NodeConfig.parse(properties)
    except ConfigError as error:
        lines = (f"{path}: {problem}" for problem in error.problems)
        raise CommandError("\n".join(lines)) from None


def _run_node(config: "NodeConfig", until_stdin_closes: bool, output: Path | None) -> int:
    from ottla.host.node import run_node

    if until_stdin_closes:
        threading.Thread(target=_stop_when_stdin_closes, daemon=True).start()
    return run_node(config, output)


def _stop_when_stdin_closes() -> None:
    """End this process when its parent has ended, which closes the pipe."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
