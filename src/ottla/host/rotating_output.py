"""A node's output in files of limited size: server.log, then server.log.1, the newest, and so on.

The file is the process's standard output. All that the process prints goes there, tracebacks and
the output of child processes too, so the process's own descriptors are redirected to the next file.
The files are renamed as by log4j's RollingFileAppender.
"""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

OUTPUT_BYTES_MAX: Final = 16 * 1024 * 1024
OUTPUT_FILES_MAX: Final = 5
"""Including the one that is written."""

_OUTPUT, _ERRORS = 1, 2


class RotatingOutput(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard output, and begins the next file once this one has `bytes_max`.

    If no further file can be created, the old one is continued.
    """

    def __init__(
        self, path: Path, *, bytes_max: int = OUTPUT_BYTES_MAX, files_max: int = OUTPUT_FILES_MAX
    ) -> None:
        super().__init__(sys.stdout)
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; rotate if the file is full."""
        super().emit(record)
        with suppress(OSError):
            if os.fstat(_OUTPUT).st_size >= self._bytes_max:
                self._rotate()

    def _rotate(self) -> None:
        new_file = self._path.with_name(f"{self._path.name}.new")
        descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        try:
            older = [numbered(self._path, number) for number in range(1, self._files_max)]
            files = [self._path, *older]
            for index in range(len(files) - 1, 0, -1):
                with suppress(FileNotFoundError):  # Somebody may have removed one.
                    files[index - 1].replace(files[index])
            new_file.replace(self._path)
            for standard in (_OUTPUT, _ERRORS):
                os.dup2(descriptor, standard)
        finally:
            os.close(descriptor)


def numbered(path: Path, number: int) -> Path:
    """Return the path of a rotated file; 1 is the newest."""
    return path.with_name(f"{path.name}.{number}")
