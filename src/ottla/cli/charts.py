"""A bar chart: in the terminal, and as a PNG file.

The file is drawn by matplotlib (`pip install 'ottla[demo]'`), which is loaded only for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from ottla.cli.errors import CommandError, UsageError

FULL, PARTS = "█", " ▏▎▍▌▋▊▉"
BAR_WIDTH_MIN: Final = 10
PNG_INCHES: Final = (10.0, 5.0)
PNG_DPI: Final = 120
COLOR: Final = "tab:blue"

ChartFile = Annotated[
    Path | None,
    typer.Option("--chart", metavar="FILE", help="Write the chart to this PNG file, too."),
]


def check_chart_file(path: Path | None) -> None:
    """Raise UsageError for a file that cannot be: before the work whose result it shows."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"--chart {path}: {path.parent} is not a directory")


@dataclass(frozen=True, slots=True)
class BarChart:
    """Labelled values, at least one of them.

    Fields: `title`: with the unit of the values. `labels_title`: what the labels are.
            `decimals`: digits after the point, where values are printed.
    """

    title: str
    labels_title: str
    labels: Sequence[str]
    values: Sequence[float]
    decimals: int = 0

    def __post_init__(self) -> None:
        if not self.labels or len(self.labels) != len(self.values):
            raise ValueError(
                f"{len(self.labels)} labels and {len(self.values)} values: "
                "expected the same number, at least one"
            )

    def _shown(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}"

    def lines(self, width: int) -> list[Text]:
        """Return the title and a line for each bar, of at most `width` columns where that suffices.

        Bars have the largest value's scale; a negative value has none.
        """
        shown = [self._shown(value) for value in self.values]
        label_width = max(map(len, self.labels))
        value_width = max(map(len, shown))
        bar_width = max(BAR_WIDTH_MIN, width - label_width - value_width - 2)
        largest = max(*self.values, 0.0)
        found = [Text(self.title, style="bold"), Text(self.labels_title, style="dim")]
        for label, value, text in zip(self.labels, self.values, shown, strict=True):
            line = Text(f"{label:>{label_width}} ")
            line.append(_bar(value, largest, bar_width), style="blue")
            line.append(f" {text:>{value_width}}")
            found.append(line)
        return found

    def write_png(self, path: Path) -> None:
        """Write the chart to a file.

        Raises: CommandError where matplotlib is missing, or the file cannot be written.
        """
        try:
            # Not pyplot: it would look for a display.
            from matplotlib.figure import Figure
        except ImportError:
            raise CommandError(
                f"{path}: charts need matplotlib, which is not installed: pip install 'ottla[demo]'"
            ) from None
        figure = Figure(figsize=PNG_INCHES, dpi=PNG_DPI, layout="constrained")
        axes = figure.add_subplot()
        bars = axes.bar(list(self.labels), list(self.values), color=COLOR)
        axes.bar_label(bars, [self._shown(value) for value in self.values], fontsize="small")
        axes.set_title(self.title)
        axes.set_xlabel(self.labels_title)
        axes.spines[["top", "right"]].set_visible(False)
        try:
            figure.savefig(path, format="png")
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror}") from None


def _bar(value: float, largest: float, width: int) -> str:
    """Return a bar of exactly `width` columns, in eighths of a column."""
    eighths = round(max(value, 0.0) / largest * width * 8) if largest > 0 else 0
    whole, part = divmod(eighths, 8)
    bar = FULL * whole + (PARTS[part] if part else "")
    return bar.ljust(width)
