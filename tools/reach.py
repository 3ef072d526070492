"""Which of the product's statements simulated histories execute, package by package.

    python tools/reach.py --seeds 1..20 [--zookeeper] [--files PACKAGE]

Counted are the statements within functions, so that an import reaches nothing. A package that no
seed reaches is one that the simulator proves nothing about. `--files` names a package of which each
file is shown, with the lines that no seed reached.

The product's modules are compiled with a note before each such statement, which costs a seed about
a third of its time; tracing would cost it several times as much. Modules that were imported before
are not noted: this is a program, not a library.
"""

import argparse
import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(importlib.util.find_spec("ottla").submodule_search_locations[0])  # type: ignore[union-attr,index]
LEFT_OUT = frozenset({"testing", "cli", "spark", "client", "stores"})
"""Packages that no node runs."""

NOTES = "__reach__"


def blocks_of(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements within a function, those of functions in it too."""
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def is_text(statement: ast.stmt) -> bool:
    """Tell whether a statement is a docstring, or text in its place."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def functions_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the outermost functions of a module, those of its classes too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from functions_of(node)


def statements(tree: ast.AST) -> set[int]:
    """Return the lines on which the statements within functions begin."""
    return {
        statement.lineno
        for function in functions_of(tree)
        for block in blocks_of(function)
        for statement in block
        if not is_text(statement)
    }


def noted(tree: ast.Module) -> ast.Module:
    """Put a note before each statement within functions: `__reach__[line] = 1`."""
    for function in list(functions_of(tree)):
        for block in list(blocks_of(function)):
            block[:] = [part for each in block for part in _with_note(each)]
    return ast.fix_missing_locations(tree)


def _with_note(statement: ast.stmt) -> list[ast.stmt]:
    if is_text(statement):
        return [statement]
    cell = ast.Subscript(
        value=ast.Name(NOTES, ast.Load()), slice=ast.Constant(statement.lineno), ctx=ast.Store()
    )
    note = ast.Assign(targets=[cell], value=ast.Constant(1))
    return [ast.copy_location(note, statement), statement]


class NotingLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module with notes; nothing of it is kept on disk."""

    def __init__(self, name: str, path: str, notes: dict[str, bytearray]) -> None:
        super().__init__(name, path)
        self._notes = notes

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code with notes."""
        tree = ast.parse(self.get_data(self.path))
        return compile(noted(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with a place for its notes."""
        count = self.get_data(self.path).count(b"\n") + 2
        self._notes[self.path] = vars(module)[NOTES] = bytearray(count)
        super().exec_module(module)


class NotingFinder:
    """Finds the modules below `ottla` for `NotingLoader`. Fields: `notes`: by file, by line."""

    def __init__(self) -> None:
        self.notes: dict[str, bytearray] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        parts = name.split(".")
        if parts[0] != "ottla" or len(parts) < 2 or parts[1] in LEFT_OUT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = NotingLoader(name, spec.origin, self.notes)
        return spec


def share(root: Path, notes: dict[str, bytearray]) -> dict[Path, tuple[int, list[int]]]:
    """Return of each file below a folder how many statements it has, and which were not reached."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        there = statements(ast.parse(path.read_bytes()))
        seen = notes.get(str(path), b"")
        missed = sorted(line for line in there if line >= len(seen) or not seen[line])
        found[path] = (len(there), missed)
    return found


def show(files: dict[Path, tuple[int, list[int]]], root: Path, wanted: str | None) -> None:
    """Print the share of each package, and the lines that one package misses."""
    packages: dict[str, tuple[int, int]] = {}
    for path, (count, missed) in files.items():
        package = path.relative_to(root).parts[0].removesuffix(".py")
        every, left = packages.get(package, (0, 0))
        packages[package] = (every + count, left + len(missed))
    for package, (count, left) in sorted(packages.items()):
        if count and package not in LEFT_OUT:
            print(f"{package:<14} {count:>6} statements {100 * (count - left) / count:>5.0f} %")
    for path, (count, missed) in files.items():
        if wanted is not None and path.relative_to(root).parts[0] == wanted:
            shown = ", ".join(map(str, missed))
            print(f"{path.relative_to(root)}: {len(missed)} of {count} not reached: {shown}")


def main(words: list[str] | None = None) -> int:
    """Play the seeds, print what they reached."""
    parser = argparse.ArgumentParser(description="Statement reach of simulated histories.")
    parser.add_argument("--seeds", default="1..20", metavar="A..B")
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("--files", metavar="PACKAGE", help="show this package's files")
    options = parser.parse_args(words)
    first, _, last = options.seeds.partition("..")
    finder = NotingFinder()
    sys.meta_path.insert(0, finder)
    from ottla.testing.scenarios.runner import PlayOptions, play

    for seed in range(int(first), int(last or first) + 1):
        play(seed, PlayOptions(zookeeper=options.zookeeper))
    show(share(ROOT, finder.notes), ROOT, options.files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
