"""`ottla`: finds the command's module, runs it, and turns failures into exit codes.

A command's module is imported only when it is called: `ottla server` starts every node, so it
avoids importing typer. Exit codes: 0 done, 1 refused or failed with a reason
on stderr, 2 wrong usage, 130 interrupted.
"""

import importlib
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ottla.cli.errors import INTERRUPTED, NAMED_MAX, CommandError, UsageError, os_reason, shortened
from ottla.client.errors import ClientError, UnencodableRequestError

DONE = 0
FAILED = 1
WRONG_USAGE = 2

_LONG_WORD = re.compile(r"[^\s:,']{1000,}")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of `ottla`. Its module has `run(arguments) -> exit code`, or `app` (typer)."""

    name: str
    module: str
    summary: str


SECTIONS: tuple[tuple[str, tuple[Command, ...]], ...] = (
    (
        "A cluster on this machine",
        (
            Command("up", "local.local_up", "Start a cluster and wait until it is ready."),
            Command("down", "local.local_nodes", "Stop it."),
            Command("status", "local.local_nodes", "Show its nodes and their states."),
            Command("kill", "local.local_nodes", "Kill a node (SIGKILL)."),
            Command("start", "local.local_nodes", "Start a stopped node."),
            Command("pause", "local.local_nodes", "Pause a node (SIGSTOP)."),
            Command("resume", "local.local_nodes", "Resume a paused node (SIGCONT)."),
        ),
    ),
    (
        "Demo and simulator",
        (
            Command(
                "demo",
                "demo.demo_command",
                "Run a cluster, real records and Spark; check every result.",
            ),
            Command(
                "sim", "local.sim", "Simulate clusters in virtual time and check their histories."
            ),
        ),
    ),
    (
        "One node",
        (
            Command("server", "local.server", "Run a node from a property file."),
            Command("storage", "local.storage", "Format a node's log directories, or show them."),
            Command("dump-log", "dump.dump_log", "Print segments, indexes and snapshots."),
        ),
    ),
    (
        "Tiered storage",
        (
            Command("tier", "tier.tier", "Show the tiers of partitions."),
            Command("pipeline", "pipeline.pipeline", "Audit the object store, with Spark."),
        ),
    ),
    (
        "Kafka's tools",
        (
            Command("topics", "topics.topics", "Create, delete, describe, list or alter topics."),
            Command("configs", "configs.configs", "Describe or alter dynamic configuration."),
            Command(
                "console-producer", "console.console_producer", "Send lines of standard input."
            ),
            Command("console-consumer", "console.console_consumer", "Print records."),
            Command(
                "consumer-groups", "groups.consumer_groups", "Show groups, or reset their offsets."
            ),
            Command("groups", "groups.groups", "List groups of all types."),
            Command("get-offsets", "partitions.get_offsets", "Print the offsets of partitions."),
            Command(
                "delete-records", "partitions.delete_records", "Delete records up to an offset."
            ),
            Command("log-dirs", "partitions.log_dirs", "Show the disk usage of replicas."),
            Command(
                "reassign-partitions",
                "partitions.reassign_partitions",
                "Move partitions to brokers.",
            ),
            Command(
                "leader-election",
                "partitions.leader_election",
                "Elect preferred or unclean leaders.",
            ),
            Command("cluster", "cluster.cluster", "Show id and endpoints; unregister a broker."),
            Command("metadata-quorum", "cluster.metadata_quorum", "Show the metadata quorum."),
            Command("features", "cluster.features", "Show or change the cluster's feature levels."),
            Command(
                "broker-api-versions",
                "cluster.broker_api_versions",
                "Show which versions of which APIs each broker serves.",
            ),
            Command("producer-perf-test", "perf.producer_perf", "Measure a producer."),
            Command("consumer-perf-test", "perf.consumer_perf", "Measure a consumer."),
        ),
    ),
)

COMMANDS = {command.name: command for _, commands in SECTIONS for command in commands}

EXAMPLES = """\
Examples:
  ottla up --brokers 3 --detach       start three brokers, return when they are ready
  ottla topics --create --topic t     in that cluster (found in ./ottla-data)
  ottla console-producer --topic t    send lines from the terminal
  ottla console-consumer --topic t --from-beginning
  ottla down                          stop the cluster
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ottla` with these arguments (the process's own where not given)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prefix = "ottla"
    _open_missing_streams()
    try:
        if not words or words[0] in ("--help", "-h", "help"):
            print(overview(), end="")
            code = DONE
        elif words[0] == "--version":
            print(f"ottla {_version()}")
            code = DONE
        elif words[0] not in COMMANDS:
            return _refuse(words[0])
        elif "--version" in words:
            print(f"ottla {_version()}")
            code = DONE
        else:
            prefix = f"ottla {words[0]}"
            code = _run(COMMANDS[words[0]], words[1:])
        sys.stdout.flush()  # A write error must be reported here, not at exit.
        return code
    except (ClientError, CommandError) as error:
        return _fail(f"{prefix}: {error}", FAILED)
    except UsageError as error:
        return _fail_usage(prefix, error)
    except UnencodableRequestError as error:
        from ottla.cli.encode_errors import encode_failure

        reason = encode_failure(error.request, error.error)
        if isinstance(reason, UsageError):
            return _fail_usage(prefix, reason)
        return _fail(f"{prefix}: {reason}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout is gone. Nothing more can be written, not even at exit.
        _drop_output()
        return FAILED
    except UnicodeEncodeError as error:
        # An argument that is not text reached code that takes text only.
        near = error.object[max(0, error.start - NAMED_MAX) : error.end + NAMED_MAX]
        return _fail(f"{prefix}: {near!r}: expected text in {error.encoding.upper()}", WRONG_USAGE)
    except OSError as error:
        # Environment: a full or read-only disk, a file where a directory is expected.
        return _fail(f"{prefix}: {os_reason(error)}", FAILED)


def overview() -> str:
    """Return what `ottla --help` prints."""
    width = max(map(len, COMMANDS))
    lines = ["Usage: ottla COMMAND [OPTIONS]", ""]
    for title, commands in SECTIONS:
        lines.append(f"{title}:")
        lines += [f"  {command.name:<{width}}  {command.summary}" for command in commands]
        lines.append("")
    lines.append("Options:")
    lines.append("  --version  print the version, also after any command")
    lines.append("  --help     print this, or after a command what it takes")
    return "\n".join(lines) + "\n\n" + EXAMPLES


def _run(command: Command, words: list[str]) -> int:
    module = importlib.import_module(f"ottla.cli.{command.module}")
    if hasattr(module, "run"):
        code: int = module.run(words)
        return code
    from ottla.cli.typing_app import run_app

    optional_values: dict[str, str] = getattr(module, "OPTIONAL_VALUES", {})
    many_values: tuple[str, ...] = getattr(module, "MANY_VALUES", ())
    return run_app(module.app, command.name, words, optional_values, many_values)


def _refuse(name: str) -> int:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else "see 'ottla --help'"
    return _fail(f"ottla: there is no command {name!r}: {hint}", WRONG_USAGE)


def _fail_usage(prefix: str, error: UsageError) -> int:
    return _fail(f"{prefix}: {error}\nSee '{error.command or prefix} --help'.", WRONG_USAGE)


def _fail(text: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    print(_LONG_WORD.sub(lambda word: shortened(word[0]), text), file=sys.stderr)
    return code


def _open_missing_streams() -> None:
    """Give a process that was started with closed standard streams empty ones."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - kept to the end
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _drop_output() -> None:
    """Discard what is left in stdout's buffer, which the interpreter would write at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    from ottla import __version__

    return __version__
