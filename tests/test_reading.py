"""Which cells of a submission are run."""

from autograder import builder, course
from autograder.grading import reading
from autograder.grading.execute import read_cells


def test_of_the_demos_only_those_run_that_an_answer_can_depend_on():
    def planned(notebook):
        cells = read_cells(notebook, lesson)
        return {place for place in reading.needed(cells, [], answers) if place not in answers}

    lesson = course.lesson("ffn")
    solved = builder.source(lesson)
    answers = [
        place
        for place, cell in enumerate(solved.cells)
        if cell.metadata.get("nbgrader", {}).get("solution")
    ]
    (imports,) = planned(solved)
    assert "import torch" in solved.cells[imports].source
    changed = next(
        place
        for place, cell in enumerate(solved.cells)
        if cell.source.startswith("pictures.") and place not in answers
    )
    solved.cells[changed].source = "torch.set_default_dtype(torch.float64)"
    assert planned(solved) == {imports, changed}
