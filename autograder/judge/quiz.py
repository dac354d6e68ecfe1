"""A quiz: a dict from question number to letter, one point for each right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autograder.judge.exercise import Exercise, Mistakes
from autograder.judge.subject import Failure

LETTERS = "abcdef"


def quiz(name: str, right: str) -> Exercise:
    """The exercise `name`, whose question 1 has the first letter of `right`, and so on."""
    exercise = Exercise(name)
    for number, letter in enumerate(right, 1):
        exercise.add(f"question_{number}", f"Question {number}", _question(number, letter))
    return exercise


def _question(number: int, letter: str) -> Callable[..., None]:
    def run(answer: Any, reference: Any, draw: Any) -> None:
        given = answer.item(number)
        given = given.strip().lower() if isinstance(given, str) else given
        if given == "":
            raise Failure("Not answered yet.")
        if not (isinstance(given, str) and given in LETTERS and len(given) == 1):
            raise Failure(f'An answer is one letter in quotes, such as `{number}: "a"`.')
        if given != letter:
            raise Failure(f"`{given}` is not the answer.")

    return run


def quiz_mistakes(name: str, right: str, sentences: dict[int, dict[str, str]]) -> Mistakes:
    """The mistakes of a quiz: for each question, each wrong letter with its sentence."""
    mistakes = Mistakes(name)
    answers = dict(enumerate(right, 1))
    for number, wrong in sentences.items():
        for letter, sentence in wrong.items():
            mistakes.add(f"question_{number}_{letter}", sentence, answers | {number: letter})
    return mistakes
