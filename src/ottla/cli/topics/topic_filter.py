"""Selects topics by name or regular expression, as --topic and --include of Kafka's tools.

The text is a regular expression that must match the whole name. A comma means "or"; blanks and
surrounding quotes are removed. Source: TopicFilter.java.
"""

import re
from collections.abc import Iterable

from ottla.base.ids import INTERNAL_TOPICS
from ottla.cli.errors import UsageError, shortened


def compile_filter(text: str) -> re.Pattern[str]:
    """Return the pattern; raise UsageError for an invalid one."""
    cleaned = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(cleaned)
    except (re.error, OverflowError, RecursionError) as error:
        # OverflowError: a repetition count too large. RecursionError: brackets nested too deep.
        raise UsageError(f"{shortened(text)!r} is not a regular expression: {error}") from None


def choose(names: Iterable[str], text: str | None, *, exclude_internal: bool) -> list[str]:
    """Return the names that match, sorted; `text` None = all."""
    pattern = compile_filter(text) if text is not None else None
    return sorted(
        name
        for name in names
        if (pattern is None or pattern.fullmatch(name))
        and not (exclude_internal and name in INTERNAL_TOPICS)
    )
