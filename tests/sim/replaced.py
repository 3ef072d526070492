"""One thing of the product replaced, for a while."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Let `owner.name` be something else. A function must take what the one before it took.

    Else it would fail when it is called, and break something other than it is meant to.
    """
    before = vars(owner)[name]
    if inspect.isfunction(before) and inspect.isfunction(value):
        wanted = inspect.signature(before).parameters.values()
        arguments = [None for each in wanted if each.kind <= each.POSITIONAL_OR_KEYWORD]
        named = {each.name: None for each in wanted if each.kind == each.KEYWORD_ONLY}
        inspect.signature(value).bind(*arguments, **named)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
