"""The builder, on a course of one small lesson in a temporary folder."""

import base64
import io
import json
import time
from dataclasses import dataclass, replace

import nbformat
import pytest
from PIL import Image

from autograder import builder
from autograder.builder import fresh, notebooks
from autograder.course import CourseError, Lesson
from autograder.judge import Exercise

LESSON = """\
---
title: Doubling
---

# Doubling

```python
def check(name):
    return 2
```

Some prose.

```python exercise="double"
```

```python needs="double"
print(double(21), end=" ")
print("out")
```

```python tags=["raises-exception"]
1 / 0
```

```python exercise="quiz"
```
"""
SOLUTIONS = '''\
"""Answers."""

FACTOR = 2


# What twice means.
def double(x):
    """2 x."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# A letter.
quiz = {1: ""}
### BEGIN SOLUTION
quiz = {1: "b"}
### END SOLUTION
'''


def an_exercise(name, points=2, mistakes=("a mistake",)):
    exercise = Exercise(name, mistakes=list(mistakes))
    for place in range(points):
        exercise.add(f"check{place}", "It doubles.", lambda *_: None)
    return exercise


@dataclass(frozen=True)
class SmallLesson(Lesson):
    """A lesson that brings its exercises, in place of looking them up in the package."""

    @property
    def exercises(self):
        return [an_exercise("double"), an_exercise("quiz")]


@pytest.fixture
def small(tmp_path):
    for room in ("lessons", "solutions", "notebooks"):
        (tmp_path / room).mkdir()
    (tmp_path / "solutions/doubling.py").write_text(SOLUTIONS)
    lesson = SmallLesson(1, "doubling", tmp_path / "lessons/01_doubling.md", tmp_path)
    lesson.source.write_text(LESSON)
    return lesson


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def test_the_source_has_every_answer_and_a_locked_cell_that_grades_it(small):
    notebook = builder.source(small)
    assert [cell.id for cell in notebook.cells] == [
        "cell-000",
        "cell-001",
        "cell-002",
        "double",
        "check_double",
        "cell-005",
        "cell-006",
        "quiz",
        "check_quiz",
    ]
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["double"].source.startswith("# What twice means.\ndef double(x):")
    assert by_id["double"].source.endswith("### END SOLUTION")
    assert by_id["quiz"].source.count("quiz = ") == 2
    assert by_id["check_double"].source == 'check("double")'
    graded = by_id["check_double"].metadata.nbgrader
    assert (graded.points, graded.grade, graded.locked, graded.solution) == (2, True, True, False)
    assert notebook.metadata.kernelspec.name == "course-cpu"
    assert "version" not in notebook.metadata.language_info


def test_the_student_finds_a_place_for_each_answer_and_nothing_more(small):
    notebook = builder.release(builder.source(small))
    by_id = {cell.id: cell for cell in notebook.cells}
    assert by_id["double"].source == (
        '# What twice means.\ndef double(x):\n    """2 x."""\n'
        "    # YOUR CODE HERE\n    raise NotImplementedError()"
    )
    assert by_id["quiz"].source == '# A letter.\nquiz = {1: ""}'
    assert by_id["cell-005"].metadata.needs == "double"
    locked = [cell.id for cell in notebook.cells if cell.metadata.get("editable") is False]
    assert locked == ["check_double", "check_quiz"]
    assert all(not cell.get("outputs") for cell in notebook.cells)


PRACTICE = """\
```python practice="half"
def half(x):
    ### BEGIN SOLUTION
    return x / 2
    ### END SOLUTION
```

```python needs="double half"
print(half(double(21)))
```
"""


def test_practice_is_answered_by_the_student_and_graded_by_nothing(small):
    edit(small.source, "Some prose.\n", "")
    edit(small.source, '```python exercise="quiz"', PRACTICE + '\n```python exercise="quiz"')
    builder.build([small])
    released, solved = cells(small.notebook), cells(small.solved)
    stub = "def half(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
    assert released["half"].source == stub
    mark = released["half"].metadata.nbgrader
    assert (mark.grade, mark.solution, mark.locked) == (False, True, False)
    assert "check_half" not in released
    assert [cell.outputs[0].text for cell in solved.values() if "half(double" in cell.source] == [
        "21.0\n"
    ]


def test_two_builds_are_byte_identical_and_the_solved_one_is_executed(small):
    stale = builder.build([small])
    assert len(stale) == 2
    once = small.notebook.read_bytes(), small.solved.read_bytes()
    small.notebook.unlink()
    small.solved.unlink()
    builder.build([small])
    assert (small.notebook.read_bytes(), small.solved.read_bytes()) == once
    solved = cells(small.solved)
    assert solved["cell-005"].outputs == [
        {"output_type": "stream", "name": "stdout", "text": "42 out\n"}
    ]
    assert solved["check_double"].outputs[0].data == {"text/plain": "2"}
    assert solved["check_double"].metadata.nbgrader.points == 2
    assert "### BEGIN SOLUTION" in solved["double"].source
    assert solved["cell-006"].outputs[0].traceback == ["ZeroDivisionError: division by zero"]
    assert [cell.execution_count for cell in solved.values() if cell.cell_type == "code"] == [
        *range(1, 8)
    ]


def another(small, name, text=LESSON):
    """A second lesson of the small course, with the first one's answers."""
    lesson = replace(small, number=2, name=name, source=small.root / f"lessons/02_{name}.md")
    lesson.source.write_text(text)
    (small.root / f"solutions/{name}.py").write_text(SOLUTIONS)
    return lesson


def test_several_lessons_are_built_at_a_time_and_named_in_their_order(small):
    second = another(small, "again")
    assert [sentence.partition(":")[0] for sentence in builder.build([small, second])] == [
        "notebooks/01_doubling.ipynb",
        "solutions/01_doubling.ipynb",
        "notebooks/02_again.ipynb",
        "solutions/02_again.ipynb",
    ]
    assert builder.build([small, second], check=True) == []


def test_one_that_fails_ends_the_others(small):
    slow = another(small, "slow", LESSON.replace('print("out")', "import time; time.sleep(100)"))
    edit(small.source, "1 / 0", "1 / 1")
    with pytest.raises(CourseError, match=r"lessons/01_doubling\.md:22: .* did not raise"):
        builder.build([small, slow])
    assert not slow.solved.exists()


def test_check_writes_nothing_and_names_what_is_not_fresh(small):
    missing = builder.build([small], check=True)
    assert [sentence.partition(":")[0] for sentence in missing] == [
        "notebooks/01_doubling.ipynb",
        "solutions/01_doubling.ipynb",
    ]
    assert not small.notebook.exists()
    builder.build([small])
    assert builder.build([small], check=True) == []

    edit(small.notebook, "Some prose", "Some edited prose")
    edit(small.solved, "42 out", "43 out")
    (small.root / "notebooks/scratch.ipynb").write_text("{}")
    edited = small.notebook.read_bytes()
    student, solved, stray = builder.build([small], check=True)
    assert student.startswith("notebooks/01_doubling.ipynb:")
    assert "'cell-002'" in student and "edited" in student
    assert "solutions/01_doubling.ipynb:" in solved and "43 out" in solved and "42 out" in solved
    assert stray.startswith("notebooks/scratch.ipynb: no lesson builds this")
    assert small.notebook.read_bytes() == edited


def edit(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def picture(colour, spot=None, compression=6):
    image = Image.new("RGB", (8, 8), (colour, colour, colour))
    if spot is not None:
        image.putpixel((3, 3), (spot, colour, colour))
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=compression)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("form", ["{}", '<img src="data:image/png;base64,{}">'])
@pytest.mark.parametrize(
    ("committed", "fine"),
    [
        (picture(100, compression=0), True),
        (picture(101), True),
        (picture(100, spot=200), False),
        (picture(180), False),
        ("iVBORw0KGgo" + "A" * 40, False),
        (picture(100) + " and words", False),
    ],
)
def test_pictures_are_compared_by_what_they_show(form, committed, fine):
    old, new = (json.dumps(form.format(one)) for one in (committed, picture(100)))
    assert (fresh.difference(old, new) is None) is fine


def test_what_one_run_measured_is_compared_by_its_words():
    form = '<figure class="measured"><img alt="{}" src="data:image/png;base64,{}">'
    old, other, new = (
        json.dumps(form.format(alt, picture(colour)))
        for alt, colour in (("loss", 180), ("speed", 100), ("loss", 100))
    )
    assert fresh.difference(old, new) is None
    assert fresh.difference(other, new) is not None


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        (
            '```python exercise="double"',
            '```python exercise="duble"',
            14,
            "unknown exercise 'duble'",
        ),
        ('exercise="quiz"', 'exercise="double"', 26, "'double' has its place further up"),
        ('exercise="double"\n', 'exercise="double"\nreturn\n', 14, "stays empty"),
        ('```python exercise="quiz"\n```', "", 26, "no place for 'quiz'"),
        ("1 / 0\n```", "1 / 0", 22, "not closed"),
        ('needs="double"', 'needs="dubel"', 17, "needs='dubel' is an unknown exercise"),
        ('needs="double"', 'needs="quiz"', 17, "'quiz', which stands further down"),
        ('needs="double"', 'need="double"', 17, "unknown words 'need'"),
        ("1 / 0\n", "1 / 0\n" * 16, 22, "has 16 lines"),
        ("1 / 0\n", "", 22, "this block is empty"),
        ("```python needs", "```bash needs", 17, "jupytext would run this bash block"),
        (
            'needs="double"',
            'practice="half"',
            17,
            "practice='half' has no lines ### BEGIN SOLUTION",
        ),
        ('needs="double"', 'practice="double"', 17, "'double' has its place already"),
        ("Some prose.", "<!-- #region -->\n```python\n```\n<!-- #endregion -->", 1, "#region"),
    ],
)
def test_what_is_wrong_with_a_lesson_is_said_at_its_line(small, old, new, line, words):
    edit(small.source, old, new)
    with pytest.raises(CourseError) as said:
        builder.source(small)
    assert str(said.value).startswith(f"lessons/01_doubling.md:{line}: ")
    assert words in str(said.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def double(", "def twice(", "does not define 'double'"),
        ("### BEGIN SOLUTION\n    return", "return", "has no lines ### BEGIN SOLUTION"),
    ],
)
def test_what_is_wrong_with_a_solution_is_said_at_its_place(small, old, new, words):
    edit(small.root / "solutions/doubling.py", old, new)
    with pytest.raises(CourseError, match=f"lessons/01_doubling.md:14: .*{words}"):
        builder.source(small)


@pytest.mark.parametrize(
    ("exercise", "words"),
    [
        (an_exercise("double", points=0), "has no checks"),
        (an_exercise("double", mistakes=()), "has no mistakes"),
    ],
)
def test_an_exercise_has_checks_and_mistakes(small, monkeypatch, exercise, words):
    monkeypatch.setattr(SmallLesson, "exercises", [exercise, an_exercise("quiz")])
    with pytest.raises(CourseError, match=f"lessons/01_doubling.md:14: 'double' {words}"):
        builder.source(small)


def test_code_that_is_only_to_be_read_stays_in_the_prose(small):
    edit(small.source, "Some prose.", "```python .noeval\nno code\n```\n\n```text\nnor this\n```")
    assert "no code" in builder.source(small).cells[2].source


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('print("out")', "print(nothing)", 19, "raised NameError: name 'nothing' is not defined"),
        ('print("out")', "import os; os._exit(1)", 17, "ended the kernel"),
        ("1 / 0", "1 / 1", 22, "did not raise"),
    ],
)
def test_a_cell_that_fails_is_named_by_the_lessons_line(small, old, new, line, words):
    edit(small.source, old, new)
    with pytest.raises(CourseError) as said:
        builder.build([small])
    assert str(said.value).startswith(f"lessons/01_doubling.md:{line}: ")
    assert words in str(said.value)


def test_a_kernel_that_is_not_installed_is_said_with_its_remedy(small, monkeypatch):
    monkeypatch.setattr(notebooks, "CPU", "course-none")
    with pytest.raises(CourseError, match="course-none is not installed here; run `autograder ker"):
        builder.build([small])


def test_watching_shows_new_prose_at_once_and_executes_new_code(small, monkeypatch):
    executed = []
    solve = builder.solve
    monkeypatch.setattr(builder, "solve", lambda *given: executed.append(1) or solve(*given))
    steps = iter(
        [
            lambda: edit(small.source, "Some prose", "Some better prose"),
            lambda: edit(small.source, "double(21)", "double(nothing)"),
            lambda: edit(small.source, "double(nothing)", "double(4)"),
        ]
    )
    seen = []

    def save_the_next_edit(_):
        seen.append((small.notebook.read_text("utf-8"), small.solved.read_text("utf-8")))
        save = next(steps, None)
        if save is None:
            raise KeyboardInterrupt
        save()

    monkeypatch.setattr(time, "sleep", save_the_next_edit)
    with pytest.raises(KeyboardInterrupt):
        builder.watch([small])
    first, prose, broken, repaired = seen
    assert all(
        "Some better prose" in text and "Some better prose" not in first[0] for text in prose
    )
    assert "42 out" in prose[1]
    assert "double(nothing)" in broken[0] and "42 out" in broken[1]
    assert "8 out" in repaired[1]
    assert len(executed) == 3  # at the start, and for the two changes of code


def test_outputs_are_kept_only_where_the_code_is_the_same(small):
    builder.build([small])
    edit(small.source, "double(21)", "double(4)")
    builder.build([replace(small)], reuse=True)
    assert cells(small.solved)["cell-005"].outputs[0].text == "8 out\n"
