"""A node's output continues in the next file when one is full, also that of child processes.

Method: a child process logs, prints and has a child of its own, with small files.
"""

import subprocess
import sys
from pathlib import Path

from ottla.host.rotating_output import numbered

PROGRAM = """
import logging, os, subprocess, sys
from pathlib import Path
from ottla.host.rotating_output import RotatingOutput

path = Path(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(message)s",
                    handlers=[RotatingOutput(path, bytes_max=1000, files_max=3)])
for number in range(int(sys.argv[2])):
    logging.info("line %04d %s", number, "x" * 90)
print("error", file=sys.stderr, flush=True)
subprocess.run([sys.executable, "-c", "print('child')"])
"""


def run(path: Path, lines: int) -> None:
    with open(path, "ab") as output:
        command = [sys.executable, "-c", PROGRAM, str(path), str(lines)]
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=True)


def test_files_are_limited_in_size_and_number(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    run(path, 45)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["server.log", "server.log.1", "server.log.2"]
    kept = [numbered(path, 2), numbered(path, 1), path]
    text = "".join(each.read_text() for each in kept).splitlines()
    # 10 lines a file: the last 25 are there, in order, and what followed them.
    assert [line.split()[1] for line in text[:-2]] == [f"{n:04}" for n in range(20, 45)]
    assert path.read_text().splitlines()[-2:] == ["error", "child"]
    assert all(each.stat().st_size <= 1_100 for each in kept)


def test_the_next_process_appends_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    run(path, 3)
    run(path, 3)
    assert path.read_text().count("line ") == 6
    assert not numbered(path, 1).exists()
    run(path, 5)
    assert numbered(path, 1).exists()


def test_without_room_for_another_file_the_old_one_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    (tmp_path / "server.log.new").mkdir()
    run(path, 30)
    assert path.read_text().count("line ") == 30
