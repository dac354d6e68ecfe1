"""Notebooks that came to harm on their way: read where they can be read, else flagged."""

import json
from typing import Any

import nbformat
from nbformat import NotebookNode

from tests.hostile import POINTS, Work, case

NAMES = tuple(POINTS)


def as_data(work: Work) -> dict[str, Any]:
    return json.loads(work.text())


def answers(work: Work) -> list[dict[str, Any]]:
    """Imports, answers and checks as data; demos stay behind, for speed."""
    cells = [one for one in work.cells if one.cell_type == "code"]
    work.cells = cells[:1] + [one for one in cells if "nbgrader" in one.metadata]
    return as_data(work)["cells"]


def hand_in(work: Work, cells: Any, **more: Any) -> None:
    work.write(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells} | more)
    )


@case({}, flagged=True, says="not valid JSON")
def truncated(work: Work) -> None:
    """Half of the file."""
    work.write(work.text()[: len(work.text()) // 2])


@case({}, flagged=True, says="empty file")
def empty(work: Work) -> None:
    """No byte at all."""
    work.write("")


@case({}, flagged=True, says="empty file")
def blank(work: Work) -> None:
    """A byte order mark, and lines without anything."""
    work.write("\ufeff\n \n")


@case({}, flagged=True)
def another_format(work: Work) -> None:
    """A Word document."""
    work.write(b"PK\x03\x04" + bytes(range(256)) * 100)


@case({}, flagged=True, says="not valid JSON")
def a_script(work: Work) -> None:
    """Exported as Python."""
    work.write("\n".join(one.source for one in work.cells))


@case({}, flagged=True, says="not a notebook")
def other_json(work: Work) -> None:
    """JSON, and no notebook."""
    work.write('{"name": "01_norm", "cells": 7, "nbformat": 4, "nbformat_minor": 5}')


@case({}, flagged=True, says="not a notebook")
def a_list(work: Work) -> None:
    """JSON, and not even an object."""
    work.write("[1, 2, 3]")


@case({}, flagged=True)
def nested(work: Work) -> None:
    """A hundred thousand brackets."""
    work.write('{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}")


@case({}, flagged=True)
def enormous_numbers(work: Work) -> None:
    """A format of ten thousand digits."""
    work.write(work.text().replace('"nbformat": 4', '"nbformat": ' + "4" * 10_000))


@case()
def not_a_number(work: Work) -> None:
    """NaN and infinity, which are no JSON, in the metadata."""
    work.notebook.metadata["widgets"] = {"a": float("nan"), "b": float("-inf")}
    work.cell("layer_norm").metadata["score"] = float("nan")
    answers(work)
    work.write(json.dumps(work.notebook))


@case(says="Latin-1")
def latin_1(work: Work) -> None:
    """Saved by an old editor."""
    answers(work)
    work.after("layer_norm", "größe = 'é'")
    work.write(work.text().encode("latin-1"))


@case()
def byte_order_mark(work: Work) -> None:
    """Saved by a Windows editor, with its line endings."""
    answers(work)
    work.write(b"\xef\xbb\xbf" + work.text().replace("\n", "\r\n").encode())


@case()
def utf_16(work: Work) -> None:
    """Saved by another Windows editor."""
    answers(work)
    work.write(work.text().encode("utf-16"))


@case()
def windows_lines(work: Work) -> None:
    """Carriage returns within the cells."""
    cells = answers(work)
    for one in cells:
        text = one["source"] if isinstance(one["source"], str) else "".join(one["source"])
        one["source"] = text.replace("\n", "\r\n")
    hand_in(work, cells)


@case()
def half_a_character(work: Work) -> None:
    """Half of an emoji in a source, and a null byte in the text."""
    cells = answers(work)
    cells[1]["source"] = [*cells[1]["source"], "\n# \ud83d"]
    hand_in(work, [*cells, {"cell_type": "markdown", "metadata": {}, "source": "\u0000\ud83d"}])


@case()
def no_ids(work: Work) -> None:
    """As Colab and old Jupyters save it, with a format without cell ids."""
    cells = answers(work)
    for one in cells:
        del one["id"]
    hand_in(work, cells, nbformat_minor=2)


@case()
def the_same_ids(work: Work) -> None:
    """Every cell has one id, and it is none that is allowed."""
    hand_in(work, [{**one, "id": "no id, but ../../a path"} for one in answers(work)])


@case()
def lines_and_characters(work: Work) -> None:
    """Sources as lists, one of them of single characters."""
    cells = answers(work)
    for one in cells:
        one["source"] = list("".join(one["source"]))
    hand_in(work, cells)


@case({name: POINTS[name] for name in NAMES if name != "norm_quiz"})
def no_source(work: Work) -> None:
    """A cell whose source is null, and one that has none: only what they held is lost."""
    cells = answers(work)
    cells[-2]["source"] = None
    hand_in(work, [*cells, {"cell_type": "code", "metadata": {}}])


@case()
def broken_cells(work: Work) -> None:
    """Between the answers things that are no cells: they are nobody's answers."""
    odd: list[Any] = [
        None,
        7,
        "text",
        {},
        {"cell_type": None, "source": 3},
        {"cell_type": "heading", "source": ["A", None], "metadata": []},
        {"cell_type": "code", "source": {"a": 1}, "metadata": "none", "outputs": 3},
    ]
    hand_in(work, [*odd, *answers(work), *odd])


@case()
def metadata_of_wrong_types(work: Work) -> None:
    """What nbgrader wrote was edited by hand, or by a program."""
    cells = answers(work)
    for one in cells[1:]:
        one["metadata"]["nbgrader"] |= {"points": "many", "locked": [], "schema_version": "new"}
    cells[0]["metadata"] = {"nbgrader": None}
    marks: list[Any] = [[], 7, "text", {"grade_id": 3}, {"grade_id": None}, {"grade_id": ["a"]}]
    odd = [{**cells[0], "source": "1", "metadata": {"nbgrader": mark}} for mark in marks]
    hand_in(work, [*cells, *odd], metadata=[])


@case()
def no_kernel(work: Work) -> None:
    """For a language that is not here."""
    hand_in(
        work,
        answers(work),
        metadata={"kernelspec": {"name": "julia-1.9"}, "language_info": {"name": "julia"}},
    )


@case()
def format_3(work: Work) -> None:
    """Saved as IPython did ten years ago: worksheets, and `input` in place of `source`."""
    answers(work)
    marks = [one.metadata for one in work.cells]
    data = json.loads(nbformat.v3.writes_json(nbformat.convert(work.notebook, 3)))
    for one, mark in zip(data["worksheets"][0]["cells"], marks, strict=True):
        one["metadata"] = mark
    work.write(json.dumps(data))


@case({}, flagged=True, says="not a notebook")
def format_of_the_future(work: Work) -> None:
    """A format that nobody knows yet."""
    hand_in(work, answers(work), nbformat=9)


@case(says="missing: check_layer_norm, check_norm_quiz")
def checks_deleted(work: Work) -> None:
    """Two locked cells are gone."""
    answers(work)
    for name in ("layer_norm", "norm_quiz"):
        work.cells.remove(work.cell(f"check_{name}"))


@case(says="changed: check_layer_norm, check_rms_norm")
def checks_retyped(work: Work) -> None:
    """One became text, another checks something else."""
    answers(work)
    work.cell("check_layer_norm").source = "Looks good!"
    work.cell("check_layer_norm").cell_type = "markdown"
    work.cell("check_rms_norm").source = 'check("norm_quiz")'


@case(says="above its answer")
def checks_above(work: Work) -> None:
    """All checks before all answers, in the other order."""
    answers(work)
    checks = [one for one in work.cells if one.source.startswith("check(")]
    work.cells = checks[::-1] + [one for one in work.cells if one not in checks]


@case()
def copied(work: Work) -> None:
    """Every cell twice, with its metadata, as when a notebook is pasted into itself."""
    hand_in(work, 2 * answers(work))


@case()
def answers_without_marks(work: Work) -> None:
    """The answers' metadata are gone, and so is all that tells cells apart but what they define."""
    answers(work)
    for name in POINTS:
        work.cell(name).metadata = NotebookNode()


@case()
def answers_as_text(work: Work) -> None:
    """An answer's cell was turned into Markdown by a slip of the keyboard (M for code)."""
    answers(work)
    work.cell("layer_norm").cell_type = "markdown"
    work.cell("rms_norm").cell_type = "raw"


@case()
def attachments(work: Work) -> None:
    """Pictures of 20 MB that were dropped into a cell, and an output line as long."""
    cells = answers(work)
    picture = {
        "cell_type": "markdown",
        "metadata": {},
        "source": "![x](attachment:x.png)",
        "attachments": {"x.png": {"image/png": "A" * 20_000_000}},
    }
    cells[0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "B" * 20_000_000}]
    hand_in(work, [picture, *cells])


@case({})
def without_cells(work: Work) -> None:
    """A notebook of nothing."""
    hand_in(work, [])


@case({}, says="missing")
def another_notebook(work: Work) -> None:
    """Some other notebook under this name."""
    hand_in(work, [{"cell_type": "code", "metadata": {}, "source": "print('hello')"}])
