"""The judge: what checks and mistakes are written in, and what runs them."""

from autograder.judge.compare import Drawn, close, same, shape_of, short_name, type_of, untouched
from autograder.judge.exercise import Exercise, Mistakes, RuledOut
from autograder.judge.subject import Failure, Subject
from autograder.judge.values import recipe

__all__ = [
    "Drawn",
    "Exercise",
    "Failure",
    "Mistakes",
    "RuledOut",
    "Subject",
    "close",
    "recipe",
    "same",
    "shape_of",
    "short_name",
    "type_of",
    "untouched",
]
