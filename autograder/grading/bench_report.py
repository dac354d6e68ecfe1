"""The table and the picture of what was measured."""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

HEAD = """\
# How fast a class is graded

`make bench` wrote this on {date}: {machine}.

Each line: `nbgrader autograde` as it comes, and `autograder grade` in its sandbox, from nothing to
the last grade, start-up included. `autograder grade` writes the feedback pages too. The class is
the same for both, a third solved, a third untouched and a third with known mistakes. nbgrader
takes the same time for each notebook, so it graded only those whose scores the last column
compares, in the same run, and its time for more is worked out from that. Rates are notebooks per
minute. Memory is the most that all processes held together, what they share counted once.

| Lesson | Students | Notebooks | Workers | nbgrader, seconds | autograder, seconds |\
 nbgrader, rate | autograder, rate | Ratio | nbgrader, MiB | autograder, MiB | Same scores |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""
TAIL = "\n![Submissions graded per minute: {words}](bench.png)\n"


@dataclass(frozen=True)
class Row:
    """One class graded both ways; `same` says how many scores are the same."""

    lesson: str
    students: int
    notebooks: int
    workers: int
    plain_seconds: float
    plain_mebibytes: float
    seconds: float
    mebibytes: float
    same: str

    @property
    def plain_rate(self) -> float:
        return 60 * self.notebooks / self.plain_seconds

    @property
    def rate(self) -> float:
        return 60 * self.notebooks / self.seconds

    @property
    def ratio(self) -> float:
        return self.plain_seconds / self.seconds


def write(rows: list[Row], folder: Path) -> None:
    """bench.md and bench.png in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"| {r.lesson} | {r.students} | {r.notebooks} | {r.workers} | {r.plain_seconds:.0f} | "
        f"{r.seconds:.0f} | {r.plain_rate:.1f} | {r.rate:.1f} | **{r.ratio:.1f}** | "
        f"{r.plain_mebibytes:.0f} | {r.mebibytes:.0f} | {r.same} |\n"
        for r in rows
    ]
    now = datetime.datetime.now(datetime.UTC)
    head = HEAD.format(date=f"{now:%Y-%m-%d, %H:%M} UTC", machine=_machine())
    words = "; ".join(
        f"{r.lesson}, {r.students} students, {r.workers} workers: {r.rate:.0f} "
        f"against nbgrader's {r.plain_rate:.0f}"
        for r in rows
    )
    (folder / "bench.md").write_text(head + "".join(lines) + TAIL.format(words=words), "utf-8")
    _draw(rows, folder / "bench.png")


def _machine() -> str:
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{one} {version(one)}" for one in ("torch", "nbgrader", "ipykernel"))
    busy = os.getloadavg()[2] if hasattr(os, "getloadavg") else 0
    return (
        f"{name}, {cores} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {versions}; load average at the end {busy:.1f}"
    )


def _draw(rows: list[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.lesson for row in rows))
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(1.5 + 3.4 * columns, 3.4 * lines), layout="constrained")
    plots = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten()
    for plot in plots[len(names) :]:
        plot.set_axis_off()
    for plot, name in zip(plots, names, strict=False):
        own = [row for row in rows if row.lesson == name]
        counts = sorted({row.workers for row in own})
        for count, shade in zip(counts, _SHADES, strict=False):
            some = [row for row in own if row.workers == count]
            places, rates = [row.notebooks for row in some], [row.rate for row in some]
            label = f"autograder, {count} worker{'s' * (count > 1)}"
            plot.plot(places, rates, color=shade, marker="o", label=label)
            for row in some if count == counts[-1] else ():
                text = f"×{row.ratio:.1f}"
                plot.annotate(text, (row.notebooks, row.rate), (0, 5), textcoords="offset points")
        first = {row.notebooks: row.plain_rate for row in own}
        plot.plot([*first], [*first.values()], color="#b35900", marker="s", label="nbgrader")
        plot.set(title=name, xlabel="notebooks", ylabel="notebooks per minute")
        plot.set_ylim(bottom=0, top=1.15 * max(row.rate for row in rows))
        plot.margins(x=0.12)
        plot.spines[["top", "right"]].set_visible(False)
    plots[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


_SHADES = ("#7aa6d8", "#1f5fa8", "#0b2f5c", "#444444")
