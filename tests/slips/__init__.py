"""Mistakes as people make them: slips in the text of the reference, which are found by name.

Each lesson's file has SLIPS: for an exercise, pairs of a mistake's name and the edits that make it,
`{what stands in the reference: what stands there instead}`. The catalogue holds the same mistakes
as answers of its own; that they are recognised here shows that they are in other hands too.
"""

import inspect
import linecache
import sys
import types
from typing import Any

from autograder.judge.exercise import Exercise


def slipped(exercise: Exercise, edits: dict[str, str]) -> Any:
    """The exercise's answer when its reference is edited; each text has to stand there once.

    What does not stand in the reference itself is edited in the rest of its file.
    """
    module = sys.modules[exercise.reference.__module__]
    own, text = inspect.getsource(exercise.reference), inspect.getsource(module)
    wrong = own
    for before, after in edits.items():
        where = wrong if before in wrong else text
        assert where.count(before) == 1, f"{before!r} stands {where.count(before)} times there"
        if where is wrong:
            wrong = wrong.replace(before, after)
        else:
            text = text.replace(before, after)
    text = text.replace(own, wrong)
    place = types.ModuleType(module.__name__)
    # As in a notebook, the lines can be read: the judge looks for `raise` in them.
    name = f"<slip {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), vars(place))
    return getattr(place, exercise.name)
