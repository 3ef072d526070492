"""Runs a typer command as part of `ottla`, with one-line usage errors instead of panels."""

from collections.abc import Collection, Mapping
from typing import Any

import typer
from typer import BadParameter
from typer.exceptions import TyperException
from typer.main import get_command

from ottla.cli.errors import CommandError, UsageError, shown

_USAGE_EXIT_CODE = 2

EXPECTED = {"int": "an integer", "float": "a number"}
"""From pydantic's type names to those in messages."""


def new_app() -> typer.Typer:
    """Return the empty app that a command's module fills with functions."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,  # Plain help: tables cut long option names.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def run_app(
    app: typer.Typer,
    name: str,
    words: list[str],
    optional_values: Mapping[str, str],
    many_values: Collection[str] = (),
) -> int:
    """Run the command of this name with these arguments; return its exit code.

    `optional_values`: options whose value is optional, and its default.
    `many_values`: options that take all arguments up to the next option.
    """
    command: Any = get_command(app)
    words = spread_values(fill_values(words, optional_values), many_values)
    prefix = "ottla"
    if hasattr(command, "commands") and name in command.commands:
        words = [name, *words]
    else:
        prefix = f"ottla {name}"
    try:
        result = command.main(args=words, prog_name=prefix, standalone_mode=False)
    except UsageError as error:
        parts = getattr(command, "commands", ())
        error.command = " ".join([prefix, *[word for word in words if word in parts][:1]])
        raise
    except TyperException as error:
        message = _message_of(error)
        if error.exit_code == _USAGE_EXIT_CODE:
            raise _usage_error(error, message) from None
        raise CommandError(message) from None
    except typer.Abort:
        raise CommandError("aborted") from None
    return result if isinstance(result, int) else 0


def _usage_error(error: TyperException, message: str) -> UsageError:
    wrong = UsageError(message)
    context: Any = getattr(error, "ctx", None)
    if context is not None:
        wrong.command = context.command_path
    return wrong


def _message_of(error: TyperException) -> str:
    """Return the error in one line; a value of the wrong type is named with what was expected."""
    cause: Any = error.__cause__
    if isinstance(error, BadParameter) and error.param is not None and hasattr(cause, "errors"):
        problem = cause.errors()[0]
        expected = EXPECTED.get(problem["type"].partition("_")[0])
        if expected is not None:
            hint = str(error.param.get_error_hint()).replace("'", "")
            return f"{hint} {shown(problem['input'])}: expected {expected}"
    return " ".join(error.format_message().split())


def fill_values(words: list[str], optional_values: Mapping[str, str]) -> list[str]:
    """Return the arguments with the default inserted where an optional value is missing."""
    filled: list[str] = []
    for index, word in enumerate(words):
        filled.append(word)
        followed = index + 1 < len(words) and not words[index + 1].startswith("-")
        if word in optional_values and not followed:
            filled.append(optional_values[word])
    return filled


def spread_values(words: list[str], many_values: Collection[str]) -> list[str]:
    """Return the arguments with a multi-value option repeated before each of its values."""
    spread: list[str] = []
    option: str | None = None
    count = 0
    for word in words:
        if word.startswith("-"):
            option, count = (word, 0) if word in many_values else (None, 0)
        elif option is not None:
            count += 1
            if count > 1:
                spread.append(option)
        spread.append(word)
    return spread


def examples(*lines: str) -> str:
    """Return the examples at the end of a help page."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
