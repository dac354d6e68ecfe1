"""Where the class is stuck: OUT/overview.html to look at, OUT/mistakes.csv to work with.

The page names no student, so that it can be shown to the class; the table does.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from autograder.course import CourseError, exercises_of, lesson
from autograder.grading.outcomes import write_whole
from visuals.figure import BLUE, INK, ORANGE, draw

# Light to dark, so that they stay apart in grey and for colour-blind readers, with hatches besides.
BARS = (
    ("solved", BLUE, "", "white"),
    ("partly", ORANGE, "//", INK),
    ("not at all", "#F4F1EA", "..", INK),
)
WORST = 3  # places to begin with that the page names

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Where the class is stuck</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 58rem; margin: auto; padding: 1rem; }}
h2, h3 {{ margin: 2.2rem 0 .5rem; }} figure {{ margin: 1rem 0; }}
.first {{ border-left: 4px solid #D55E00; padding: .2rem 1rem; }}
.table {{ overflow-x: auto; }} table {{ border-collapse: collapse; width: 100%; }}
caption {{ text-align: left; padding: .3rem 0; }}
th, td {{ text-align: left; vertical-align: baseline; padding: .35rem .6rem; }}
tr {{ border-top: 1px solid rgba(128, 128, 128, .4); }}
.name {{ padding-left: 0; min-width: 5.5rem; }} .words {{ min-width: 14rem; }}
.number {{ text-align: right; white-space: nowrap; }}
code {{ background: rgba(128, 128, 128, .18); padding: .1em .3em; border-radius: 3px; }}
@media print {{ body {{ max-width: none; }}
  tr, figure {{ break-inside: avoid; }} h2, h3, caption {{ break-after: avoid; }}
}}
</style>
</head><body><main>
<h1>Where the class is stuck</h1>
{body}
</main></body></html>
"""


@dataclass(frozen=True)
class Row:
    """What one student has of one exercise, and the names of the mistakes that were recognised."""

    student: str
    lesson: str  # its stem, 01_norm
    exercise: str
    score: float
    max_score: float
    mistakes: list[str]


@dataclass(frozen=True)
class Tally:
    """An exercise as the class did it."""

    lesson: str
    exercise: str
    rows: list[Row]

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """How many solved it, how many partly, how many not at all."""
        solved = sum(row.score >= row.max_score for row in self.rows)
        nothing = sum(row.score <= 0 < row.max_score for row in self.rows)
        return solved, len(self.rows) - solved - nothing, nothing

    @cached_property
    def mistakes(self) -> list[tuple[str, list[str]]]:
        """Each mistake that was met with the students who made it, most frequent first."""
        who: dict[str, list[str]] = {}
        for row in self.rows:
            for mistake in dict.fromkeys(row.mistakes):
                who.setdefault(mistake, []).append(row.student)
        return sorted(who.items(), key=lambda one: (-len(one[1]), one[0]))

    @property
    def unexplained(self) -> int:
        """How many lost points without a mistake that the catalogue knows."""
        return sum(row.score < row.max_score and not row.mistakes for row in self.rows)

    @property
    def solved(self) -> float:
        return self.counts[0] / len(self.rows)


def write_overview(out: Path, rows: list[Row]) -> None:
    """Write `mistakes.csv` and `overview.html` into the folder `out`."""
    tallies = _tallies(rows)
    write_whole(out / "mistakes.csv", _csv(tallies))
    write_whole(out / "overview.html", _html(tallies))


def _tallies(rows: list[Row]) -> list[Tally]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.lesson, row.exercise), []).append(row)
    tallies = [Tally(*key, rows=own) for key, own in found.items()]

    def place(tally: Tally) -> tuple[str, int]:
        names = list(_exercises(tally.lesson))
        return tally.lesson, names.index(tally.exercise) if tally.exercise in names else len(names)

    return sorted(tallies, key=place)


def _exercises(stem: str) -> dict:
    """The lesson's exercises; none for a lesson that the course no longer has."""
    try:
        return exercises_of(lesson(stem).name)
    except CourseError:
        return {}


def sentence(stem: str, exercise: str, mistake: str) -> str:
    """What a student who made this mistake was told."""
    known = _exercises(stem).get(exercise)
    return (
        next((one.sentence for one in known.mistakes if one.name == mistake), "") if known else ""
    )


def title(mistake: str) -> str:
    """A mistake's name for people: "Question 3, answer b", "Unbiased variance"."""
    if question := re.fullmatch(r"question_(\d+)_([a-z])", mistake):
        return f"Question {question[1]}, answer {question[2]}"
    words = mistake.replace("_", " ")
    return words[:1].upper() + words[1:]


def _csv(tallies: list[Tally]) -> str:
    writer = csv.writer(text := io.StringIO())
    writer.writerow(["lesson", "exercise", "mistake", "students", "share", "sentence", "who"])
    for tally in tallies:
        for mistake, who in tally.mistakes:
            share, names = f"{len(who) / len(tally.rows):.2f}", "; ".join(sorted(who))
            told = sentence(tally.lesson, tally.exercise, mistake)
            found = [tally.lesson, tally.exercise, mistake, len(who), share, told, names]
            writer.writerow(found)
    return text.getvalue()


def _html(tallies: list[Tally]) -> str:
    if not tallies:
        return PAGE.format(body="<p>Nothing has been graded yet.</p>")
    body = [_first(tallies)]
    for stem, own in groupby(tallies, key=lambda tally: tally.lesson):
        body.append(_lesson(stem, list(own)))
    body.append("<p>Who made which mistake is in <code>mistakes.csv</code>.</p>")
    return PAGE.format(body="\n".join(body))


def _first(tallies: list[Tally]) -> str:
    """The sentence with which the page begins: where the next hour does."""
    stuck = [tally for tally in tallies if tally.solved < 1]
    if not stuck:
        return '<p class="first">Everyone has solved everything: go on to what is new.</p>'
    worst, *others = sorted(stuck, key=lambda tally: tally.solved)[:WORST]
    text = (
        f"<strong>Begin with <code>{escape(worst.exercise)}</code></strong> of lesson "
        f"{escape(worst.lesson)}: {worst.counts[0]} of {_students(len(worst.rows))} solved it."
    )
    if worst.mistakes:
        mistake, who = worst.mistakes[0]
        told = sentence(worst.lesson, worst.exercise, mistake)
        text += (
            f" The most frequent mistake there, made by {len(who)}: "
            f"<strong>{escape(title(mistake))}.</strong> {_words(told)}"
        )
    if others:
        names = [
            f"<code>{escape(one.exercise)}</code> ({one.counts[0]} solved it)" for one in others
        ]
        text += f"</p><p>Then: {', '.join(names)}."
    return f'<div class="first"><p>{text}</p></div>'


def _lesson(stem: str, tallies: list[Tally]) -> str:
    try:
        heading = f"{stem}: {lesson(stem).title}"
    except CourseError:
        heading = stem
    columns = ("Students", "Solved", "Partly", "Not at all", "Points on average")
    head = {"Exercise": "name", **dict.fromkeys(columns, "number")}
    rows = [
        [
            f"<code>{escape(tally.exercise)}</code>",
            str(len(tally.rows)),
            *(f"{count} ({count / len(tally.rows):.0%})" for count in tally.counts),
            f"{fmean(row.score for row in tally.rows):.1f} of {tally.rows[0].max_score:g}",
        ]
        for tally in tallies
    ]
    parts = [f"<h2>{escape(heading)}</h2>", _picture(stem, tallies)]
    parts.append(_table("How many solved each exercise", head, rows))
    return "\n".join(parts + [_mistakes(tally) for tally in tallies])


def _mistakes(tally: Tally) -> str:
    heading = f"<h3><code>{escape(tally.exercise)}</code></h3>"
    met = sum(bool(row.mistakes) for row in tally.rows)
    says = f"Mistakes were recognised in the answers of {met} of {_students(len(tally.rows))}."
    if tally.unexplained:
        says += f" {tally.unexplained} lost points otherwise, or did not answer."
    if not met:
        return f"{heading}<p>{says}</p>"
    head = {"Mistake": "name", "Students": "number", "What they were told": "words"}
    rows = [
        [
            escape(title(mistake)),
            f"{len(who)} ({len(who) / len(tally.rows):.0%})",
            _words(sentence(tally.lesson, tally.exercise, mistake)),
        ]
        for mistake, who in tally.mistakes
    ]
    return heading + _table(says, head, rows)


def _table(caption: str, head: dict[str, str], rows: Iterable[list[str]]) -> str:
    """A table of cells that are HTML already; `head` has each column's name and class."""
    kinds = list(head.values())
    names = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in head.items())
    lines = [f"<caption>{escape(caption)}</caption><thead><tr>{names}</tr></thead>"]
    for first, *others in rows:
        cells = "".join(
            f'<td class="{kind}">{cell}</td>' for cell, kind in zip(others, kinds[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row" class="{kinds[0]}">{first}</th>{cells}</tr>')
    return '<div class="table" tabindex="0"><table>' + "\n".join(lines) + "</table></div>"


def _picture(stem: str, tallies: list[Tally]) -> str:
    names = [tally.exercise for tally in tallies]

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        left = [0.0] * len(tallies)
        for place, (label, color, hatch, ink) in enumerate(BARS):
            shares = [tally.counts[place] / len(tally.rows) for tally in tallies]
            axes.barh(
                names, shares, left=left, color=color, hatch=hatch, edgecolor=INK, label=label
            )
            for row, share in enumerate(shares):
                if share >= 0.04:
                    count, middle = tallies[row].counts[place], left[row] + share / 2
                    text = axes.text(middle, row, str(count), ha="center", va="center", color=ink)
                    if hatch:  # its own ground, so that no line strikes the number out
                        text.set_bbox({"facecolor": color, "edgecolor": "none", "pad": 1.5})
            left = [before + share for before, share in zip(left, shares, strict=True)]
        axes.invert_yaxis()  # the first exercise on top
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.set_xlabel("share of the class; the numbers are students")
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False
        )

    counts = [
        f"{tally.exercise}: {solved} solved, {partly} partly, {nothing} not at all"
        for tally in tallies
        for solved, partly, nothing in [tally.counts]
    ]
    alt = f"Bar chart of lesson {stem}, a bar per exercise. {'; '.join(counts)}."
    size = (7.6, 1.5 + 0.5 * len(tallies))
    return draw(plot, size, alt, "How much of the class has solved each exercise.").html()


def _students(count: int) -> str:
    return f"{count} student{'' if count == 1 else 's'}"


def _words(text: str) -> str:
    """Escaped text in which every `word` between backquotes is set as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{one}</code>" if n % 2 else one for n, one in enumerate(parts))
