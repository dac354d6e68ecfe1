"""The words in which a lesson's checks and mistakes are written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RuledOut:
    """Torch functions that would be the answer: `names` as torch calls them, `says` for people."""

    says: str
    names: frozenset[str]

    def refuse(self, call: str, where: str = "") -> str:
        """The sentence for an answer that makes this call; `where` may be " (line 3 ...)"."""
        return (
            f"`{call}`{where} is {self.says}, which is what this exercise is about. "
            "Write the arithmetic yourself."
        )


@dataclass(frozen=True)
class Check:
    """One thing an answer must do: `run(answer, reference, draw)` raises Failure where it does not.

    A check whose `needs` have not passed is not tried: its answer would say the same thing twice.
    """

    name: str
    sentence: str
    points: int
    run: Callable[..., None]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A whole wrong answer and the sentence its author should hear.

    Several mistakes may share a name and a sentence: the same slip, made in different company.
    """

    name: str
    sentence: str
    answer: Any


@dataclass(eq=False)
class Exercise:
    """An exercise by the `name` it has in the notebook, with its checks in the order they run."""

    name: str
    ruled_out: RuledOut | None = None
    checks: list[Check] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    lesson: str = ""
    reference: Any = None

    def check(self, points: int = 1, needs: Sequence[str] = ()) -> Callable[..., Any]:
        """Decorate a function as a check; its docstring is the sentence the student reads."""

        def add(run: Callable[..., None]) -> Callable[..., None]:
            self.add(run.__name__, inspect.getdoc(run) or "", run, points, needs)
            return run

        return add

    def add(
        self,
        name: str,
        sentence: str,
        run: Callable[..., None],
        points: int = 1,
        needs: Sequence[str] = (),
    ) -> None:
        """Add a check; ValueError for one that has no sentence, a used name or unknown needs."""
        known = [check.name for check in self.checks]
        missing = [need for need in needs if need not in known]
        if not sentence or name in known or missing or points < 1:
            raise ValueError(
                f"check {name!r} of {self.name!r}: a check has a docstring, a name of its own, "
                f"a point or more, and needs only checks above it (unknown: {missing})"
            )
        self.checks.append(Check(name, sentence, points, run, tuple(needs)))

    @property
    def points(self) -> int:
        return sum(check.points for check in self.checks)

    @property
    def kind(self) -> str:
        """ "class", "function" or "value"."""
        if inspect.isclass(self.reference):
            return "class"
        return "function" if callable(self.reference) else "value"


class Mistakes:
    """The mistakes of one exercise: `Mistakes("layer_norm")("sentence")` decorates one."""

    def __init__(self, exercise: str):
        self.exercise = exercise
        self._found: list[Mistake] = []

    def __call__(self, sentence: str, name: str = "") -> Callable[..., Any]:
        """Add the decorated answer, under its own name unless another is given."""

        def add(answer: Any) -> Any:
            self.add(name or answer.__name__, sentence, answer)
            return answer

        return add

    def add(self, name: str, sentence: str, *answers: Any) -> None:
        """Add a mistake and, where people come to it in several ways, each of them."""
        if name in {mistake.name for mistake in self._found}:
            raise ValueError(f"{self.exercise!r} has two mistakes called {name!r}")
        self._found += [Mistake(name, sentence, answer) for answer in answers]

    def __iter__(self) -> Iterator[Mistake]:
        return iter(self._found)
