"""Notebooks that are too much for whoever reads them, outside every sandbox."""

import json

from tests.hostile import QUIZ, Work, case


def many_cells(work: Work, number: int, code: str) -> None:
    cell = {"cell_type": "code", "metadata": {}, "source": code, "outputs": []}
    text = work.stub("norm_quiz").text().rstrip()
    notebook = json.loads(text)
    notebook["cells"] += [cell] * number
    work.write(json.dumps(notebook))


@case({}, flagged=True, says="cells")
def a_hundred_thousand_cells(work: Work) -> None:
    """Each of which has to be read, and none of which does anything."""
    many_cells(work, 100_000, "%pylab\nfrom math import *")


@case({}, flagged=True)
def the_same_check_many_times(work: Work) -> None:
    """Thousands of copies of a check cell, behind thousands of empty cells."""
    work.stub("norm_quiz")
    notebook = json.loads(work.text())
    empty = {"cell_type": "code", "metadata": {}, "source": "", "outputs": []}
    mark = {"nbgrader": {"grade_id": "check_layer_norm"}}
    notebook["cells"] += [empty] * 15_000 + [{**empty, "metadata": mark}] * 15_000
    work.write(json.dumps(notebook))


@case({}, flagged=True)
def a_long_program(work: Work) -> None:
    """Megabytes of code in cells of a size that is still read."""
    many_cells(work, 20, "x=1\n" * 120_000)


@case({}, flagged=True, says="larger than 50 MB")
def sixty_megabytes(work: Work) -> None:
    """A file that is too large to be read."""
    work.write(work.text().rstrip()[:-1] + " " * 60_000_000 + "}")


@case(QUIZ, flagged=True)
def a_thousand_magics(work: Work) -> None:
    """Magics enough that IPython gives up turning them into Python."""
    work.stub("norm_quiz").insert("layer_norm", "%time 1\n" * 501)


@case(QUIZ)
def a_long_chain(work: Work) -> None:
    """An attribute of an attribute of an attribute, two thousand times; and lambdas in lambdas."""
    work.stub("norm_quiz").answer("layer_norm", "def layer_norm(x): return x" + ".a" * 2000)
    work.answer("rms_norm", "rms_norm = " + "lambda: " * 400 + "0")
    work.answer("RMSNorm", "RMSNorm = " + "-" * 50_000 + "1")
    work.answer("ManualLayerNorm", "ManualLayerNorm = " + "(" * 5000 + ")" * 5000)
