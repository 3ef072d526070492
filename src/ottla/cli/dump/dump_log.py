"""`ottla dump-log`: prints segments, indexes and snapshots. As kafka-dump-log.sh."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.dump import dump_decoders
from ottla.cli.dump.dump_batches import Depth, Findings, log_lines
from ottla.cli.dump.dump_indexes import (
    Check,
    Mismatches,
    offset_index_lines,
    producer_snapshot_lines,
    time_index_lines,
    transaction_index_lines,
)
from ottla.cli.dump.remote_metadata import remote_log_metadata
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.typing_app import examples, new_app

app = new_app()

EPILOG = examples(
    "ottla dump-log --files data/orders-0/00000000000000000000.log --print-data-log",
    "ottla dump-log --files data/__consumer_offsets-3/00000000000000000000.log \\",
    "    --offsets-decoder",
    "ottla dump-log --cluster-metadata-decoder \\",
    "    --files data/__cluster_metadata-0/00000000000000000000.log",
    "ottla dump-log --remote-log-metadata-decoder \\",
    "    --files data/__remote_log_metadata-0/00000000000000000000.log",
    "ottla dump-log --files data/orders-0/00000000000000000000.index --verify-index-only",
)

DEFAULT_DECODER = "StringDecoder"

Files = Annotated[
    str, typer.Option("--files", metavar="FILE,...", help=".log, .index, .timeindex and others.")
]
PrintData = Annotated[
    bool, typer.Option("--print-data-log", help="Print keys and values; also with each decoder.")
]
Deep = Annotated[bool, typer.Option("--deep-iteration", help="Print records, not only batches.")]
VerifyIndex = Annotated[
    bool, typer.Option("--verify-index-only", help="Check indexes without printing them.")
]
SanityCheck = Annotated[
    bool, typer.Option("--index-sanity-check", help="Check indexes as a broker's start does.")
]
Offsets = Annotated[
    bool, typer.Option("--offsets-decoder", help="The records are those of __consumer_offsets.")
]
Metadata = Annotated[
    bool,
    typer.Option("--cluster-metadata-decoder", help="The records are those of the metadata log."),
]
RemoteMetadata = Annotated[
    bool,
    typer.Option(
        "--remote-log-metadata-decoder", help="The records are those of __remote_log_metadata."
    ),
]
SkipMetadata = Annotated[
    bool, typer.Option("--skip-record-metadata", help="Print only the contents of records.")
]
MaxBytes = Annotated[
    int | None, typer.Option("--max-bytes", metavar="N", help="Read at most N bytes of a log.")
]
MaxMessageSize = Annotated[int | None, typer.Option("--max-message-size", hidden=True)]
ValueDecoder = Annotated[str | None, typer.Option("--value-decoder-class", hidden=True)]
KeyDecoder = Annotated[str | None, typer.Option("--key-decoder-class", hidden=True)]
Transactions = Annotated[bool, typer.Option("--transaction-log-decoder", hidden=True)]
ShareState = Annotated[bool, typer.Option("--share-group-state-decoder", hidden=True)]


@app.command("dump-log", epilog=EPILOG)
def dump_log(
    files: Files,
    print_data_log: PrintData = False,
    deep_iteration: Deep = False,
    verify_index_only: VerifyIndex = False,
    index_sanity_check: SanityCheck = False,
    offsets_decoder: Offsets = False,
    cluster_metadata_decoder: Metadata = False,
    remote_log_metadata_decoder: RemoteMetadata = False,
    skip_record_metadata: SkipMetadata = False,
    max_bytes: MaxBytes = None,
    max_message_size: MaxMessageSize = None,
    value_decoder_class: ValueDecoder = None,
    key_decoder_class: KeyDecoder = None,
    transaction_log_decoder: Transactions = False,
    share_group_state_decoder: ShareState = False,
) -> int:
    """Print the contents of log files, by batch or by record.

    Exit code 1 if a batch is corrupt or an index does not match its log.
    """
    _refuse("--value-decoder-class", value_decoder_class)
    _refuse("--key-decoder-class", key_decoder_class)
    for option, given in (
        ("--transaction-log-decoder", transaction_log_decoder),
        ("--share-group-state-decoder", share_group_state_decoder),
    ):
        if given:
            raise UsageError(f"{option} is not available in this version")
    decoders: dict[str, dump_decoders.Decoder] = {}
    if offsets_decoder:
        decoders["--offsets-decoder"] = dump_decoders.offsets
    if cluster_metadata_decoder:
        decoders["--cluster-metadata-decoder"] = dump_decoders.cluster_metadata
    if remote_log_metadata_decoder:
        decoders["--remote-log-metadata-decoder"] = remote_log_metadata
    if len(decoders) > 1:
        first, second, *_ = decoders
        raise UsageError(f"{first} cannot be used with {second}")
    contents = next(iter(decoders.values()), None)
    if contents is None and (print_data_log or value_decoder_class or key_decoder_class):
        contents = dump_decoders.plain
    depth = Depth(
        records=deep_iteration or contents is not None,
        contents=contents,
        skip_metadata=skip_record_metadata,
        max_bytes=max_bytes,
    )
    check = Check(verify_only=verify_index_only, sanity_only=index_sanity_check)
    paths = [Path(name.strip()) for name in files.split(",") if name.strip()]
    if not paths:
        raise UsageError("--files: expected at least one file")
    return _dump(paths, depth, check)


def _refuse(option: str, value: str | None) -> None:
    if value is not None and value.rpartition(".")[2] != DEFAULT_DECODER:
        raise UsageError(f"{option} {value}: Java classes cannot be loaded here")


def _dump(paths: list[Path], depth: Depth, check: Check) -> int:
    code = 0
    for path in paths:
        print(f"Dumping {path}")
        findings, wrong = Findings(), Mismatches()
        if path.suffix in (".log", ".checkpoint"):
            _print(log_lines(path, depth, findings))
        elif path.suffix == ".index":
            _print(offset_index_lines(path, check, wrong))
        elif path.suffix == ".timeindex":
            _print(time_index_lines(path, check, wrong))
        elif path.suffix == ".txnindex":
            _print(transaction_index_lines(path))
        elif path.suffix == ".snapshot":
            _print(producer_snapshot_lines(path))
        elif path.exists():
            print(f"Ignoring unknown file {path}", file=sys.stderr)
        else:
            raise CommandError(f"{path}: no such file")
        sys.stdout.flush()
        _complain(f"Mismatches in :{path.absolute()}", wrong.offsets, _MISMATCH)
        _complain(f"Found timestamp mismatch in :{path.absolute()}", wrong.timestamps, _TIMESTAMP)
        _complain("The following indexed offsets are not found in the log.", wrong.not_found, _LOST)
        _complain(f"Non-consecutive offsets in {path.absolute()}", findings.gaps, _GAP)
        # Compaction leaves gaps: gaps alone are not a failure.
        if findings.corrupt or wrong.offsets or wrong.timestamps or wrong.not_found:
            code = 1
    return code


_MISMATCH = "  Index offset: {}, log offset: {}"
_TIMESTAMP = "  Index timestamp: {}, log timestamp: {}"
_LOST = "Indexed offset: {}, found log offset: {}"
_GAP = "  {} is followed by {}"


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _complain(heading: str, pairs: list[tuple[int, int]], shape: str) -> None:
    if pairs:
        print(heading, file=sys.stderr)
    for pair in pairs:
        print(shape.format(*pair), file=sys.stderr)
