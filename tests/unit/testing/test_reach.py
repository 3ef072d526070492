"""The reach tool notes each statement within functions, and changes nothing else.

Method: a module written for the purpose, compiled with notes and run.
"""

import ast
import runpy
from pathlib import Path
from typing import Any

TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "reach.py"))

SOURCE = '''
"""A module."""
LIMIT = 3


def outer(number):
    """A docstring is no statement."""
    if number > LIMIT:
        return "large"
    try:
        value = [each for each in range(number)]
    except OSError:
        value = []
    finally:
        done = True

    def inner():
        nonlocal done
        done = False
        return value

    return inner()


class Thing:
    size = 1

    def double(self):
        return 2 * self.size
'''


def run(call: str) -> tuple[Any, set[int]]:
    notes = bytearray(SOURCE.count("\n") + 2)
    space: dict[str, Any] = {"__reach__": notes}
    tree = TOOL["noted"](ast.parse(SOURCE))
    exec(compile(tree, "module", "exec"), space)
    assert not any(notes), "an import reaches nothing"
    return eval(call, space), {line for line, noted in enumerate(notes) if noted}


def line_of(text: str) -> int:
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


def test_what_is_executed_is_noted_and_the_rest_is_not() -> None:
    value, reached = run("outer(2)")
    assert value == [0, 1]
    every = TOOL["statements"](ast.parse(SOURCE))
    missed = {line_of(text) for text in ('return "large"', "value = []", "return 2 *")}
    assert every - reached == missed
    assert reached <= every


def test_methods_count() -> None:
    value, reached = run("Thing().double()")
    assert (value, reached) == (2, {line_of("return 2 *")})


def test_docstrings_and_module_lines_do_not_count() -> None:
    every = TOOL["statements"](ast.parse(SOURCE))
    assert not {line_of("LIMIT = 3"), line_of('"""A docstring'), line_of("size = 1")} & every
