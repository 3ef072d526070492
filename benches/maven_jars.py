"""Jars of peers, which Maven fetches once into the user's cache."""

import shutil
import subprocess
from pathlib import Path


class NoJarsError(Exception):
    """The jars cannot be had here; the text says why."""


def jars_of(name: str) -> Path:
    """Return the directory with the jars that `benches/<name>/pom.xml` names, and what they need.

    Raises: NoJarsError.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise NoJarsError(f"{tool} is not installed")
    pom = Path(__file__).with_name(name) / "pom.xml"
    jars = Path.home() / ".cache" / "ottla-benches" / name
    done = jars / ".complete"
    if done.exists() and done.read_text() == pom.read_text():
        return jars
    shutil.rmtree(jars, ignore_errors=True)
    jars.mkdir(parents=True)
    words = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    words += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    ran = subprocess.run(words, capture_output=True, text=True)
    if ran.returncode:
        lines = (ran.stdout + ran.stderr).strip().splitlines() or ["no reason given"]
        raise NoJarsError(f"Maven could not fetch its jars: {lines[0]}")
    done.write_text(pom.read_text())
    return jars
