"""The result of judging one answer, as data, as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

REPORT_MIME = "application/vnd.block-by-block.report+json"

_MARKS = {"passed": "✓", "failed": "✗", "not tried": "–"}
_COLOURS = {"passed": "#009E73", "failed": "#D55E00", "not tried": "#888888"}


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

    def headline(self) -> str:
        return f"{self.exercise}: {self.score} of {self.max_score} points"

    def text(self, width: int = 88) -> str:
        """The report for a terminal."""
        lines = [self.headline()]
        if self.problem:
            lines += textwrap.wrap(self.problem, width)
        for check in self.checks:
            points = f"{check.points if check.passed else 0}/{check.points}"
            lines += textwrap.wrap(
                f"{_MARKS[check.status]} {points}  {check.sentence}",
                width,
                subsequent_indent=" " * 7,
            )
            for words in (check.message, check.advice and f"{_title(check)}: {check.advice}"):
                if words:
                    indent = " " * 7
                    lines += textwrap.wrap(
                        words, width, initial_indent=indent, subsequent_indent=indent
                    )
        if self.printed:
            lines += ["Your code printed:", textwrap.indent(self.printed, "    ")]
        return "\n".join(lines)

    def html(self) -> str:
        """The report for a notebook: inline styles alone, readable on light and dark pages."""
        rows = "".join(_row(check) for check in self.checks)
        body = (
            f'<p style="margin:.3em 0;font-weight:600">{escape(self.headline())}'
            f"{' — all correct' if self.passed else ''}</p>"
        )
        if self.problem:
            body += f'<p style="margin:.3em 0">{escape(self.problem)}</p>'
        if rows:
            body += (
                '<table style="border-collapse:collapse;width:100%;max-width:60em;margin:0;'
                'font-size:inherit"><thead><tr>'
                + "".join(
                    f'<th scope="col" style="text-align:left;padding:.2em .6em">{name}</th>'
                    for name in ("Result", "Points", "Check")
                )
                + f"</tr></thead><tbody>{rows}</tbody></table>"
            )
        if self.printed:
            body += (
                "<details><summary>Your code printed</summary>"
                f"<pre>{escape(self.printed)}</pre></details>"
            )
        return (
            f'<section aria-label="Report on {escape(self.exercise)}" '
            f'style="border-left:4px solid {_COLOURS["passed" if self.passed else "failed"]};'
            f'padding:.2em 1em;margin:.4em 0;line-height:1.45">{body}</section>'
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


def _title(check: CheckResult) -> str:
    return f"Known mistake, {check.mistake.replace('_', ' ')}" if check.mistake else "What happened"


def _row(check: CheckResult) -> str:
    colour = _COLOURS[check.status]
    cell = (
        'style="text-align:left;vertical-align:top;padding:.35em .6em;'
        'border-top:1px solid rgba(128,128,128,.35);{}"'
    )
    words = f"<div>{escape(check.sentence)}</div>"
    if check.message:
        words += f'<div style="opacity:.85;margin-top:.2em">{_inline(check.message)}</div>'
    if check.advice:
        words += (
            '<div style="margin-top:.4em;padding:.4em .7em;border-left:3px solid #D55E00;'
            f'background:rgba(213,94,0,.12)"><strong>{escape(_title(check))}.</strong> '
            f"{_inline(check.advice)}</div>"
        )
    status = f"{_MARKS[check.status]} {check.status}"
    return (
        f"<tr><td {cell.format(f'white-space:nowrap;font-weight:600;color:{colour}')}>{status}</td>"
        f"<td {cell.format('white-space:nowrap')}>{check.points if check.passed else 0} of "
        f"{check.points}</td><td {cell.format('width:100%')}>{words}</td></tr>"
    )


def _inline(text: str) -> str:
    """Escaped text in which every `word` between backquotes is set as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )
