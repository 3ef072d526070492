"""A Spark standalone cluster: a master and two workers, as processes of their own.

Its nodes have a Python without packages: what tasks need comes with the application.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark

from ottla.spark.java import find_java_home
from tests.spark import packed

SPARK_HOME: Final = Path(pyspark.__file__).parent
WORKERS: Final = 2
START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 30.0
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_CONNECT: Final = re.compile(r"Spark Connect server started at: \S*:(\d+)")
_PACKED: Final = "deps"


class Standalone:
    """A cluster on 127.0.0.1. Use as a context manager; `directory` is for all that it writes.

    Fields: `python`: that of its nodes. `master`: the URL. `deps`: a packed environment, and
            `archive`, the same as a file.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = directory / "node" / "bin" / "python"
        self.deps = directory / _PACKED
        self.archive = directory / f"{_PACKED}.zip"
        self.master = ""
        self._processes: list[psutil.Popen] = []

    def __enter__(self) -> "Standalone":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = self.daemon("deploy.master.Master", *at)
        self._pack()
        self.master = self.wait_for(log, _MASTER)
        logs = []
        for number in range(WORKERS):
            work = self.directory / f"worker-{number}"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
            logs.append(self.daemon("deploy.worker.Worker", *at, *size, self.master))
        for each in logs:
            self.wait_for(each, re.compile(r"(Successfully registered with master)"))

    def _pack(self) -> None:
        node = self.directory / "node"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", node], check=True)
        self.deps.mkdir()
        packed.fill(self.deps)
        packed.archive(self.deps, self.archive)

    def __exit__(self, *error: object) -> None:
        # Executors, and their Pythons, are the workers' children.
        children = {child for each in self._processes for child in _children(each.pid)}
        for each in reversed(self._processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.terminate()
        for each in self._processes:
            try:
                each.wait(STOP_SECONDS)
            except psutil.TimeoutExpired:
                each.kill()
                each.wait()
        _, left = psutil.wait_procs(children, timeout=STOP_SECONDS)
        for process in left:
            process.kill()
        # Only logs stay: the unpacked archives are a gigabyte.
        for each in (*self.directory.glob("worker-*"), self.directory / "scratch"):
            shutil.rmtree(each, ignore_errors=True)
        self.archive.unlink(missing_ok=True)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a node: nothing of this process's paths."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "JAVA_HOME": str(find_java_home()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.directory / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        }

    @property
    def options(self) -> list[str]:
        """The options of spark-submit, as docs/spark.md has them."""
        return [
            "--master", self.master,
            "--archives", f"{self.archive}#{_PACKED}",
            "--conf", f"spark.executorEnv.PYTHONPATH={_PACKED}",
            "--conf", f"spark.pyspark.python={self.python}",
            "--conf", "spark.executor.memory=512m",
            "--conf", f"spark.executor.extraJavaOptions={QUICK}",
            "--conf", "spark.ui.enabled=false",
            "--driver-java-options", QUICK,
        ]  # fmt: skip

    def submit(self, script: Path, *words: str, options: Sequence[str] = ()) -> Any:
        """Run a script with spark-submit and return the ended process. `options`: more of them."""
        return subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", *self.options, *options, script, *words],
            env={**self.env, "PYTHONPATH": str(self.deps)},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def connect_server(self) -> str:
        """Start a Spark Connect server; return its URL."""
        log = self.daemon(
            "deploy.SparkSubmit",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
            "--conf", "spark.connect.grpc.binding.port=0",
            *self.options,
            # The Pythons of a client's session start in a directory of their own.
            "--conf", f"spark.executorEnv.PYTHONPATH=../{_PACKED}:{_PACKED}",
            "spark-internal",
            env={"PYTHONPATH": str(self.deps), "SPARK_DAEMON_MEMORY": "1g"},
        )  # fmt: skip
        return f"sc://127.0.0.1:{self.wait_for(log, _CONNECT)}"

    def daemon(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> Path:
        """Start a class of Spark; return its log. It ends with the cluster."""
        log = self.directory / f"{name}-{len(self._processes)}.log"
        with log.open("w") as out:
            process = psutil.Popen(
                [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.{name}", *words],
                env={**self.env, **(env or {})},
                cwd=self.directory,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._processes.append(process)
        return log

    def wait_for(self, log: Path, pattern: re.Pattern[str]) -> str:
        """Return what a pattern's group finds in a log."""
        deadline = time.monotonic() + START_SECONDS
        while (found := pattern.search(log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            assert all(each.poll() is None for each in self._processes), log.read_text()[-3000:]
            time.sleep(0.1)
        return found[1]


def _children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []
