"""Mistakes as people make them: slips in the text of the reference, which are found by name.

Each lesson's file has SLIPS: for an exercise, pairs of a mistake's name and the edits that make it,
`{what stands in the reference: what stands there instead}`. The catalogue holds the same mistakes
as answers of its own; that they are recognised here shows that they are in other hands too.
"""

import inspect
import linecache
import re
import sys
import types
from typing import Any

from autograder.judge.exercise import Exercise


def slipped(exercise: Exercise, edits: dict[str, str]) -> Any:
    """The exercise's answer when its reference is edited; each text has to stand there once."""
    module = sys.modules[exercise.reference.__module__]
    own = inspect.getsource(exercise.reference)
    for text in edits:
        assert own.count(text) == 1, f"{text!r} stands {own.count(text)} times in the reference"
    texts = re.compile("|".join(map(re.escape, edits)))
    wrong, made = texts.subn(lambda found: edits[found[0]], own)
    assert made == len(edits), f"{list(edits)} overlap in the reference"
    place = types.ModuleType(module.__name__)
    whole, file = inspect.getsource(module).replace(own, wrong), f"<{exercise.name}, slipped>"
    linecache.cache[file] = (len(whole), None, whole.splitlines(keepends=True), file)
    exec(compile(whole, file, "exec"), vars(place))
    return getattr(place, exercise.name)
