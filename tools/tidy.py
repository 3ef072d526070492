"""Check what no linter checks: sizes of functions, marks of unfinished work, and names.

A function stays under 60 lines; a file is as long as its one idea needs. Names in `src` are words
of Kafka, Raft and ZooKeeper, not others for the same thing. No modules of `src` import each other
in a circle, not for types or within functions either. Exit code 1, one line per finding.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import grimp

FUNCTION_LINES_MAX = 60
FILE_BYTES_MAX = 1024 * 1024
MARKS = ("TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImplemented" + "Error")
PRIVATE_WORDS = re.compile(
    r"(?:^|_)(told|tell|untold|teller|wish|wished|heard|hears|office|ruling|doors|surroundings|world"
    r"|folder|folders|ghost|ghosts|revenants|farewell|mischief|doubt|doubts)(?:_|$)",
    re.IGNORECASE,
)
KEPT_NAMES = frozenset({"FOLDER_FAILED", "NOT_HEARD", "bad_folders", "office", "last_heard_us"})
"""Names that znodes, JSON output or replays hold, and ZooKeeper's own."""


def tracked(root: Path) -> list[Path]:
    """Return the files that belong to the repository, in order."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    paths = (root / name for name in listed.stdout.decode().split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count a function's lines without its decorators and docstring."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def private_names(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each identifier with a private word."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_free = token.type == tokenize.NAME and token.string not in KEPT_NAMES
        if is_free and PRIVATE_WORDS.search(token.string):
            yield token.start[0], token.string


def findings(path: Path) -> Iterator[str]:
    """Yield what is wrong with one file."""
    data = path.read_bytes()
    if len(data) > FILE_BYTES_MAX:
        yield f"{path}: {len(data)} bytes, at most {FILE_BYTES_MAX}"
    if path.suffix != ".py":
        return
    text = data.decode()
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{path}:{number}: {mark}" for mark in MARKS if mark in line)
    if "src" in path.parts:
        for number, name in private_names(text):
            yield f"{path}:{number}: {name}: expected Kafka's word"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = code_lines(node)
            if length > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most 60"


def circles(imports: dict[str, set[str]]) -> Iterator[str]:
    """Yield the import circles, the shortest through each import that is part of one."""
    left = {importer: set(imported) for importer, imported in imports.items()}
    while True:
        imported_ones = set().union(*left.values())
        outside = {each for each, those in left.items() if not those or each not in imported_ones}
        if not outside:
            break
        left = {each: those - outside for each, those in left.items() if each not in outside}
    found = {path for importer in left for path in [_way_back(left, importer)] if path}
    for path in sorted(found):
        yield f"import circle: {' -> '.join((*path, path[0]))}"


def _way_back(imports: dict[str, set[str]], start: str) -> tuple[str, ...]:
    """Return the shortest circle through a module, from its least name on, if any."""
    paths = [(start,)]
    seen = {start}
    while paths:
        longer: list[tuple[str, ...]] = []
        for path in paths:
            for following in sorted(imports[path[-1]]):
                if following == start:
                    least = path.index(min(path))
                    return path[least:] + path[:least]
                if following not in seen:
                    seen.add(following)
                    longer.append((*path, following))
        paths = longer
    return ()


def import_circles() -> Iterator[str]:
    """Yield the import circles of the product, with imports for types and within functions."""
    graph = grimp.build_graph("ottla", "pyspark_ottla", cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    yield from circles(imports)


def main() -> int:
    """Print all findings; return the exit code."""
    root = Path(__file__).resolve().parent.parent
    found = [
        line
        for path in tracked(root)
        for line in findings(
            path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        )
    ]
    found += import_circles()
    print("\n".join(found) if found else f"tidy: {len(tracked(root))} files, nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
