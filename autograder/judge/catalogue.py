"""Every known mistake put before the checks: does it lose points, and is it recognised?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autograder.judge.diagnose import agent_for
from autograder.judge.evaluate import judge
from autograder.judge.exercise import Exercise
from autograder.judge.subject import LocalLink


@dataclass(frozen=True)
class Row:
    """One mistake: the points it `lost`, whether its own name came up, the `checks` that failed."""

    exercise: str
    mistake: str
    lost: int
    recognised: bool
    checks: list[str]

    @property
    def ok(self) -> bool:
        return self.lost > 0 and self.recognised


def table(exercises: Iterable[Exercise], seed: int = 0) -> Iterator[Row]:
    """One row for each mistake of `exercises`, in the order of the catalogue."""
    for exercise in exercises:
        for mistake in exercise.mistakes:
            link = LocalLink(agent_for(exercise, mistake.answer))
            report = judge(exercise, link, seed)
            named = {check.mistake for check in report.checks if check.mistake}
            yield Row(
                exercise=exercise.name,
                mistake=mistake.name,
                lost=report.max_score - report.score,
                recognised=named == {mistake.name},
                checks=[check.name for check in report.checks if check.tried and not check.passed],
            )
