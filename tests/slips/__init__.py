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
    """The exercise's answer when its reference is edited, everywhere at once.

    What does not stand in the reference itself is edited in the rest of its file.
    """
    module = sys.modules[exercise.reference.__module__]
    own = inspect.getsource(exercise.reference)
    before, after = inspect.getsource(module).split(own)
    inside = {text: instead for text, instead in edits.items() if text in own}
    beside = {text: instead for text, instead in edits.items() if text not in own}
    whole = _edited(before, beside) + _edited(own, inside) + after
    place = types.ModuleType(module.__name__)
    # As in a notebook, the lines can be read: the judge looks for `raise` in them.
    name = f"<slip {hash(whole)}>"
    linecache.cache[name] = (len(whole), None, whole.splitlines(True), name)
    exec(compile(whole, name, "exec"), vars(place))
    return getattr(place, exercise.name)


def _edited(text: str, edits: dict[str, str]) -> str:
    if not edits:
        return text
    places = re.compile("|".join(map(re.escape, edits)))
    edited, made = places.subn(lambda found: edits[found[0]], text)
    assert made == len(edits), f"each of {list(edits)} has to stand there once; {made} do"
    return edited
