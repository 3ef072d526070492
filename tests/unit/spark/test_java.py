"""Java must be found where there is one that is new enough, and its lack explained.

Method: directories with small scripts in place of Java; a made-up home and PATH.
"""

import os
from pathlib import Path

import pytest

from ottla.spark import java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ("command not found", None),
    ],
)
def test_versions(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine on which there is no Java at all."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_USUAL_PLACES", ())
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    java.find_java_home.cache_clear()
    yield monkeypatch
    java.find_java_home.cache_clear()


def test_java_home_wins(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.1")
    bare.setenv("JAVA_HOME", str(named))
    bare.setenv("PATH", f"{on_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
    assert java.find_java_home() == named


def test_old_java_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(fake_java(tmp_path / "named", "11.0.1")))
    on_path = fake_java(tmp_path / "path", "17.0.1")
    bare.setenv("PATH", f"{on_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
    assert java.find_java_home() == on_path


def test_the_usual_places(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "a", "1.8.0")
    newer = fake_java(tmp_path / "jvm" / "b", "17")
    bare.setattr(java, "_USUAL_PLACES", (f"{tmp_path}/none/*", f"{tmp_path}/jvm/*"))
    assert java.find_java_home() == newer


def test_no_java(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(java.NoJavaError) as caught:
        java.find_java_home()
    message = str(caught.value)
    assert "pip install 'ottla[java]'" in message
    assert "set JAVA_HOME" in message
    assert f"tried {tmp_path / 'gone'}: no working Java" in message


def test_the_bundled_runtime_is_wrapped(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "bundled"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    script.chmod(0o755)
    bare.setattr(java, "_bundled_home", lambda: home)
    wrapper = java.find_java_home()
    assert wrapper.is_relative_to(tmp_path / "cache")
    pipe = os.popen(
        f"PATH=/bin:/usr/bin '{wrapper}/bin/java' -a 'b c' "
        "--add-modules=jdk.incubator.vector --add-modules=ALL-SYSTEM"
    )
    with pipe:
        assert pipe.read() == "<-a><b c><--add-modules=ALL-SYSTEM>"
    assert [each.name for each in (wrapper / "bin").iterdir()] == ["java"]


def test_homes_that_cannot_be_written(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    bare.setenv("XDG_CACHE_HOME", str(blocked))
    bare.setattr(java.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    home = fake_java(tmp_path / "bundled", "17")
    bare.setattr(java, "_bundled_home", lambda: home)
    (tmp_path / "tmp").mkdir()
    assert java.find_java_home().is_relative_to(tmp_path / "tmp")
