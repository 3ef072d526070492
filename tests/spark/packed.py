"""A packed environment, as `pip install --target` makes one: what an executor needs, and no more.

The files are those that this environment has installed, native wheels included; Spark itself is
left out, because a cluster has its own.
"""

import importlib.util
import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import ottla

SOURCES = Path(ottla.__file__).parents[1]
EXTRA = "spark"
_LEFT_OUT = {"__pycache__", "tests", "include"}
"""Directories that no program imports: the archive is copied to each executor."""
_UNCHECKED = (1).to_bytes(4, "little")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra *== *['\"]([^'\"]+)")


def fill(directory: Path) -> None:
    """Put links to Ottla and all that it needs in a directory."""
    for name in ("ottla", "pyspark_ottla"):
        (directory / name).symlink_to(SOURCES / name)
    for each in _distributions():
        for entry in {path.parts[0] for path in each.files or ()} - {"..", "__pycache__"}:
            link = directory / entry
            if entry.endswith(".pth") or link.is_symlink():
                continue
            link.symlink_to(Path(str(each.locate_file(entry))))


def archive(directory: Path, file: Path) -> None:
    """Write a directory's files to a zip archive, uncompressed: it is quick."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for path, name in _files(directory, ""):
            packed.write(path, name)
            if path.suffix == ".py" and not name.startswith("ottla/"):
                _add_compiled(packed, path.resolve(), name)


def _add_compiled(packed: zipfile.ZipFile, source: Path, name: str) -> None:
    """Add the compiled form of a module of others, if there is one, as `compileall
    --invalidation-mode unchecked-hash` makes it: an unpacked source has another time.
    """
    compiled = Path(importlib.util.cache_from_source(str(source)))
    if compiled.is_file():
        data = compiled.read_bytes()
        directory = name.rpartition("/")[0]
        target = f"{directory}/__pycache__/{compiled.name}".removeprefix("/")
        packed.writestr(target, data[:4] + _UNCHECKED + data[8:])


def _files(directory: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    for each in sorted(directory.iterdir()):
        if each.is_dir():
            if each.name not in _LEFT_OUT:
                yield from _files(each, f"{prefix}{each.name}/")
        else:
            yield each, prefix + each.name


def _distributions() -> list[Distribution]:
    """Return Ottla, what its extra for Spark requires but Spark, and what these require."""
    found: dict[str, Distribution] = {}
    waiting = [("ottla", EXTRA)]
    while waiting:
        name, extra = waiting.pop()
        if name in found or name == "pyspark":
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # Of another platform.
        for line in found[name].requires or ():
            wanted, required = _EXTRA.search(line), _NAME.match(line)
            assert required is not None
            if wanted is None or wanted[1] == extra:
                waiting.append((required[0].lower(), ""))
    return list(found.values())
