"""The result of judging one answer, as data, as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from autograder.judge.exercise import Exercise

REPORT_MIME = "application/vnd.block-by-block.report+json"

GREEN, ORANGE = "#009E73", "#D55E00"


@dataclass(frozen=True)
class CheckResult:
    """How one check ended: `message` says what was seen, `advice` what people did to get it."""

    name: str
    sentence: str
    points: int
    passed: bool
    message: str = ""
    mistake: str | None = None
    advice: str | None = None
    tried: bool = True

    @property
    def status(self) -> str:
        if self.passed:
            return "passed"
        return "failed" if self.tried else "not tried"


@dataclass(frozen=True)
class Report:
    """What the judge found; the result of `check(...)` and `evaluate(...)`."""

    exercise: str
    checks: list[CheckResult] = field(default_factory=list)
    seed: int = 0
    problem: str = ""
    printed: str = ""

    @property
    def score(self) -> int:
        return sum(check.points for check in self.checks if check.passed)

    @property
    def max_score(self) -> int:
        return sum(check.points for check in self.checks)

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def advice(self) -> dict[str, str]:
        """The sentence of each known mistake that was recognised, once, by the mistake's name."""
        return {check.mistake: check.advice or "" for check in self.checks if check.mistake}

    def data(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return asdict(self) | {"score": self.score, "max_score": self.max_score}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Report:
        """The report that `data()` described."""
        return cls(
            exercise=data["exercise"],
            checks=[CheckResult(**check) for check in data["checks"]],
            seed=data["seed"],
            problem=data["problem"],
            printed=data["printed"],
        )

    @classmethod
    def nothing(cls, exercise: Exercise, seed: int, problem: str) -> Report:
        """A report without points, on an answer that could not be put before the checks."""
        checks = [
            CheckResult(one.name, one.sentence, one.points, False, tried=False)
            for one in exercise.checks
        ]
        return cls(exercise.name, checks, seed, problem)

    def headline(self) -> str:
        mark = "✓ " if self.passed else ""
        return f"{mark}{self.exercise}: {self.score} of {self.max_score} points"

    def waiting(self) -> str:
        """A sentence for the checks that were not tried, or nothing."""
        waiting = [check for check in self.checks if not check.tried]
        if not waiting or self.problem:
            return ""
        points = sum(check.points for check in waiting)
        noun = "check waits" if len(waiting) == 1 else "checks wait"
        return f"{len(waiting)} more {noun} until the above is right ({points} points)."

    def text(self, width: int = 88) -> str:
        """The report for a terminal."""

        def wrap(words: str, indent: str = "") -> list[str]:
            return textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent)

        lines = [self.headline(), *wrap(self.problem)]
        for name, advice in self.advice.items():
            lines += wrap(f"→ {_title(name)}: {advice}", "  ")
        for check in self.checks:
            if check.tried:
                mark, points = ("✓", check.points) if check.passed else ("✗", 0)
                lines += textwrap.wrap(
                    f"{mark} {points}/{check.points}  {check.sentence}",
                    width,
                    subsequent_indent=" " * 7,
                )
                lines += wrap(check.message, " " * 7)
        lines += wrap(self.waiting(), "– ")
        if self.printed:
            lines += ["Your code printed:", textwrap.indent(self.printed.rstrip(), "    ")]
        return "\n".join(lines)

    def html(self) -> str:
        """The report for a notebook: inline styles alone, readable on light and dark pages."""
        body = f'<p style="margin:.3em 0;font-weight:600">{escape(self.headline())}</p>'
        if self.problem:
            body += f'<p style="margin:.3em 0">{_inline(self.problem)}</p>'
        for name, advice in self.advice.items():
            body += (
                f'<div style="margin:.5em 0;padding:.5em .8em;border-left:4px solid {ORANGE};'
                f'background:rgba(213,94,0,.12)"><strong>{escape(_title(name))}.</strong> '
                f"{_inline(advice)}</div>"
            )
        rows = [_row(check) for check in self.checks if check.tried]
        if rows and self.passed:
            body += _folded(f"The {len(rows)} checks", _table(rows))
        elif rows:
            body += _table(rows)
        if self.waiting():
            body += f'<p style="margin:.3em 0;opacity:.85">{escape(self.waiting())}</p>'
        if self.seed:  # drawn for a class, so whoever grades can repeat this run
            body += (
                '<p style="margin:.3em 0;opacity:.85;font-size:smaller">Inputs drawn from seed '
                f"{self.seed}.</p>"
            )
        if self.printed:
            body += _folded("Your code printed", f"<pre>{escape(self.printed)}</pre>")
        return (
            f'<section aria-label="Report on {escape(self.exercise)}" style="border-left:4px solid '
            f"{GREEN if self.passed else ORANGE};padding:.2em 1em;margin:.4em 0;line-height:1.45;"
            f'max-width:60em">{body}</section>'
        )

    def __str__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        # nbgrader reads a cell's points from the plain text of its result.
        return {
            "text/plain": str(self.score),
            "text/html": self.html(),
            REPORT_MIME: self.data(),
        }


def _title(mistake: str) -> str:
    words = mistake.replace("_s_", "'s ").replace("_", " ")
    return words[:1].upper() + words[1:]


def _folded(summary: str, body: str) -> str:
    return (
        '<details style="margin:.3em 0"><summary style="cursor:pointer;display:list-item">'
        f"{escape(summary)}</summary>{body}</details>"
    )


def _table(rows: list[str]) -> str:
    # JupyterLab centres tables and gives all columns one width unless told otherwise.
    head = "".join(
        f'<th scope="col" style="text-align:left;padding:.2em .6em">{name}</th>'
        for name in ("Result", "Points", "Check")
    )
    return (
        '<table style="table-layout:auto;border-collapse:collapse;width:100%;margin:.3em 0;'
        f'font-size:inherit"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _row(check: CheckResult) -> str:
    colour, mark = (GREEN, "✓") if check.passed else (ORANGE, "✗")
    cell = (
        'style="text-align:left;vertical-align:baseline;line-height:1.45;padding:.35em .6em;'
        'border-top:1px solid rgba(128,128,128,.35);{}"'
    )
    words = f"<div>{_inline(check.sentence)}</div>"
    if check.message:
        words += f'<div style="opacity:.85;margin-top:.2em">{_inline(check.message)}</div>'
    status = f'<span style="color:{colour}">{mark}</span> {check.status}'
    return (
        f"<tr><td {cell.format('white-space:nowrap;font-weight:600')}>{status}</td>"
        f"<td {cell.format('white-space:nowrap')}>{check.points if check.passed else 0} of "
        f"{check.points}</td><td {cell.format('width:100%;white-space:normal')}>{words}</td></tr>"
    )


def _inline(text: str) -> str:
    """Escaped text in which every `word` between backquotes is set as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )
