"""Is what is committed what builds?"""

from __future__ import annotations

import base64
import io
import re
from itertools import zip_longest
from pathlib import Path

import numpy as np
from PIL import Image

from autograder.course import lessons

# Every PNG begins with the same bytes, and so does its base64, in image/png or in a data URI.
PICTURE = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/=]*")
# The figure of a picture of what one run measured: a training's curve, a speed.
MEASURED = 'class=\\"measured\\"'
TOLERANCE = 8  # of 255: rounding on another CPU moves a colour by a level or two


def difference(committed: str, built: str) -> str | None:
    """Where two notebook files first differ, as a sentence beginning with the line's number.

    Pictures are compared by their pixels and everything else exactly; of a picture of what one run
    measured, which no other run draws again, the words around it are compared alone.
    """
    pairs = zip_longest(committed.split("\n"), built.split("\n"))
    cell = "the notebook's metadata"
    for number, (old, new) in enumerate(pairs, 1):
        if named := re.fullmatch(r'   "id": "(.+)",', new or ""):
            cell = f"cell {named[1]!r}"
        if old == new:
            continue
        if old is None or new is None or PICTURE.sub("", old) != PICTURE.sub("", new):
            return f"{number}: {cell} has {_quote(old)} where the build has {_quote(new)}"
        if MEASURED in new:
            continue
        for one, other in zip(PICTURE.findall(old), PICTURE.findall(new), strict=True):
            if not _looks_same(one, other):
                return f"{number}: a picture in {cell} looks different from the one that builds"
    return None


def _quote(line: str | None) -> str:
    if line is None:
        return "nothing more"
    short = line.strip()
    return short if len(short) <= 120 else short[:117] + "..."


def _looks_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        first, second = (
            np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"), dtype=int)
            for text in (one, other)
        )
    except (ValueError, OSError):  # no base64, or no picture any more
        return False
    return first.shape == second.shape and bool((abs(first - second) <= TOLERANCE).all())


def strays(root: Path) -> list[Path]:
    """Notebooks beside the generated ones of the course at `root` that no lesson builds."""
    wanted = {path for lesson in lessons(root) for path in (lesson.notebook, lesson.solved)}
    folders = (root / "notebooks", root / "solutions")
    found = {path for folder in folders for path in folder.rglob("*.ipynb")}
    left = sorted(path for path in found - wanted if ".ipynb_checkpoints" not in path.parts)
    return [path.relative_to(root) for path in left]
