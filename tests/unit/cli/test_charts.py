"""A chart has a bar for each value, to scale, and its file is a PNG image."""

import struct
import sys
from pathlib import Path

import pytest

from ottla.cli.charts import BarChart
from ottla.cli.errors import CommandError

CHART = BarChart("Delay, in minutes", "hour", ["5", "17"], [2.0, 8.0], decimals=1)


def lines(chart: BarChart, width: int = 40) -> list[str]:
    return [line.plain for line in chart.lines(width)]


def test_bars_are_to_scale_and_the_largest_takes_the_width() -> None:
    title, labels_title, first, second = lines(CHART)
    assert (title, labels_title) == ("Delay, in minutes", "hour")
    assert len(first) == len(second) == 40
    assert (first.count("█"), second.count("█")) == (8, 33)  # A quarter is 8.25 columns.
    assert first.startswith(" 5 █")
    assert first.endswith(" 2.0")
    assert second.endswith("█ 8.0")


def test_eighths_of_a_column() -> None:
    chart = BarChart("", "", ["a", "b", "c"], [80.0, 1.0, 0.0])
    assert [line.split("a")[-1] for line in lines(chart, 15)][3] == "b ▏           1"
    assert lines(chart, 15)[4] == "c             0"


@pytest.mark.parametrize("values", [[-3.0, 0.0], [-3.0, -1.0]])
def test_what_is_not_positive_has_no_bar(values: list[float]) -> None:
    assert not any("█" in line for line in lines(BarChart("t", "l", ["a", "b"], values)))


def test_a_narrow_terminal_still_has_bars() -> None:
    assert lines(CHART, 5)[3].count("█") == 10


@pytest.mark.parametrize(("labels", "values"), [([], []), (["a"], []), (["a"], [1.0, 2.0])])
def test_labels_and_values_go_together(labels: list[str], values: list[float]) -> None:
    with pytest.raises(ValueError, match="expected the same number, at least one"):
        BarChart("t", "l", labels, values)


def test_the_file_is_a_png_image(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    CHART.write_png(path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1200, 600)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no/chart.png cannot be written: No such file"):
        CHART.write_png(tmp_path / "no" / "chart.png")


def test_a_missing_matplotlib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CommandError, match=r"need matplotlib.*pip install 'ottla\[demo\]'"):
        CHART.write_png(tmp_path / "chart.png")
