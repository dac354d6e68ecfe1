"""`python -m autograder.nbval_strict` on small notebooks in which each cell is right or wrong."""

import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import nbformat
import pytest
import torch
from nbformat import v4

from autograder import nbval_strict


def solved(source, printed=None, html=None, executed=True, **metadata):
    """A code cell as it is stored, with what it printed or showed."""
    outputs = [v4.new_output("stream", name="stdout", text=printed)] if printed else []
    if html:
        outputs = [v4.new_output("display_data", {"text/html": html, "text/plain": "shown"})]
    count = 1 if executed else None
    return v4.new_code_cell(source, outputs=outputs, execution_count=count, metadata=metadata)


def students(source, **metadata):
    return v4.new_code_cell(source, metadata=metadata)


def show(html):
    methods = f"_repr_html_=lambda self: {html!r}, __repr__=lambda self: 'shown'"
    return f"display(type('Shown', (), dict({methods}))())"


EXACT, ROUNDED = (f'<img src="data:image/png;base64,iVBORw0KGgo{end}">' for end in ("AA", "BB"))

# What happens, the cell, and words of its report; None where it is green.
CASES = {
    "solutions/lesson": [
        ("a right number", solved("print(1 + 1)", "2\n"), None),
        ("a changed number", solved("print(1 + 1)", "3\n"), "Cell outputs differ"),
        ("never executed", solved("print(2)", executed=False), "was never executed"),
        ("an exception that came", solved("1 / 0", tags=["raises-exception"]), None),
        ("none that came", solved("x = 1", tags=["raises-exception"]), "raised nothing"),
        ("a rounded picture", solved(show(EXACT), html=ROUNDED), None),
        ("changed HTML", solved(show("<p>2</p>"), html="<p>3</p>"), "Cell outputs differ"),
    ],
    "solutions/dead": [
        ("the kernel ends", solved("import os; os._exit(1)"), "The kernel died"),
        ("the cell after it", solved("print(2)", "2\n"), "Kernel dead"),
    ],
    "notebooks/lesson": [
        ("an exercise", students("def f():\n    raise NotImplementedError"), None),
        ("unanswered", students("f()", needs="f"), None),
        ("needs no answer", students("print(2)"), None),
        ("fails all the same", students("f()"), "caused an exception"),
        ("passes unanswered", students("x = 1", needs="f"), "it raised nothing"),
        ("fails for another reason", students("1 / 0", needs="f"), "caused an exception"),
    ],
}
# The solved notebook has the exception among its outputs.
CASES["solutions/lesson"][3][1].outputs = [
    v4.new_output("error", ename="ZeroDivisionError", evalue="division by zero")
]
EVERY = [(name, place) for name, cells in CASES.items() for place in range(len(cells))]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run over all of them: its exit status, its seconds, and the report on each cell."""
    folder = tmp_path_factory.mktemp("course")
    for name, cells in CASES.items():
        path = folder / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        nbformat.write(v4.new_notebook(cells=[cell for _, cell, _ in cells]), path)
    command = [sys.executable, "-m", "autograder.nbval_strict", "cpu"]
    notebooks = map(str, folder.rglob("*.ipynb"))
    report = f"--junitxml={folder / 'report.xml'}"
    one_process = "--numprocesses=0"  # quicker for three small notebooks
    began = time.monotonic()
    status = subprocess.call([*command, *notebooks, report, one_process])
    seconds = time.monotonic() - began
    reports = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        name = next(one for one in CASES if one in case.get("classname").replace(".", "/"))
        place = int(case.get("name").removeprefix("Cell "))
        reports[name, place] = "".join(problem.text for problem in case)
    return status, seconds, reports


@pytest.mark.parametrize(
    ("name", "place"), EVERY, ids=[f"{name}: {CASES[name][place][0]}" for name, place in EVERY]
)
def test_exactly_what_is_wrong_is_red(run, name, place):
    _, _, reports = run
    expected = CASES[name][place][2]
    if expected is None:
        assert reports[name, place] == ""
    else:
        assert expected in reports[name, place]


def test_a_red_cell_fails_the_run_and_a_dead_kernel_does_not_hold_it_up(run):
    status, seconds, _ = run
    assert status == 1
    assert seconds < 60  # the timeout of a single cell is 120


def test_without_a_cuda_device_the_gpu_run_says_that_it_skipped(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("REQUIRE_CUDA", raising=False)
    assert nbval_strict.main(["gpu"]) == 0
    assert "SKIPPED" in capsys.readouterr().out
    monkeypatch.setenv("REQUIRE_CUDA", "1")
    assert nbval_strict.main(["gpu"]) == 1
    assert "REQUIRE_CUDA=1" in capsys.readouterr().err
