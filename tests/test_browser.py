"""What a student and an instructor see, in headless Chromium.

COURSE_SCREENSHOTS=folder keeps pictures of it in JupyterLab's light and dark theme.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from autograder import builder
from autograder.course import lesson
from autograder.grading import grade

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip(
        "no Chromium on this machine: the browser test did not run", allow_module_level=True
    )
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: the browser test did not run"
)

LESSON = lesson("norm")
TOKEN = "browser-test"
UNBIASED = """\
def layer_norm(x, scale, shift, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(x.var(-1, keepdim=True) + eps) * scale + shift
"""


@contextmanager
def jupyterlab(arguments: list[str], folder: Path, private: Path) -> Iterator[str]:
    """JupyterLab in `folder` with settings of its own in `private`; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(private / "config")}
    for kind in ("SETTINGS", "WORKSPACES"):
        env[f"JUPYTERLAB_{kind}_DIR"] = str(private / kind.lower())
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", *arguments, "--no-browser", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}", "--allow-root"]
    private.mkdir(exist_ok=True)
    with open(private / "jupyter.log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            _wait_for(server, f"{address}/api/status?token={TOKEN}", private / "jupyter.log")
            yield address
        finally:
            server.terminate()
            server.wait(20)


def _wait_for(server: subprocess.Popen, url: str, log: Path) -> None:
    for _ in range(300):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()}")


class Notebook:
    """The lesson as it stands open in JupyterLab, its cells by the ids that the builder gave."""

    def __init__(self, page, ids: list[str]):
        self.page, self.ids = page, ids
        page.wait_for_function(
            "count => document.querySelectorAll('.jp-Notebook .jp-Cell').length === count",
            arg=len(ids),
        )
        page.get_by_text("| Idle").wait_for()  # cells sent to a kernel that starts would be lost

    def cell(self, name: str):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self.ids.index(name))

    def write(self, name: str, text: str) -> None:
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)

    def run(self, name: str) -> str:
        """Run one cell and return the text below it."""
        cell = self.cell(name)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        prompt.click()
        self.page.keyboard.press("Control+Enter")
        for _ in range(600):
            now = prompt.inner_text()
            if now != before and re.search(r"\d", now):
                break
            self.page.wait_for_timeout(50)
        return cell.locator(".jp-Cell-outputWrapper").inner_text()

    def run_all(self) -> str:
        """Run everything and return the error at which JupyterLab stops."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_text("Run All Cells", exact=True).click()
        error = '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]'
        self.page.locator(error).wait_for()
        self.page.wait_for_function(
            "() => ![...document.querySelectorAll('.jp-InputPrompt')]"
            ".some(prompt => prompt.textContent.includes('*'))"
        )
        return self.page.locator(error).inner_text()

    def validate(self) -> str:
        """What nbgrader's Validate button answers."""
        self.page.keyboard.press("Control+s")
        self.page.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog-content")
        dialog.wait_for()
        text = dialog.inner_text()
        dialog.get_by_role("button", name="OK").click()
        return text


@pytest.fixture(scope="module")
def browser():
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


def settle(private: Path, dark: bool = False) -> None:
    """Settings for a quiet JupyterLab: every cell in the page, no news."""
    wanted = {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "apputils-extension/themes": {"theme": f"JupyterLab {'Dark' if dark else 'Light'}"},
    }
    for name, values in wanted.items():
        path = private / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def picture(page, name: str) -> None:
    """A picture of the page, or of one element of it."""
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_a_student_learns_what_is_wrong(browser, tmp_path: Path) -> None:
    source = builder.source(LESSON)
    reference = next(cell.source for cell in source.cells if cell.id == "layer_norm")
    work = tmp_path / "work"
    work.mkdir()
    nbformat.write(builder.release(source), work / f"{LESSON.stem}.ipynb")
    settle(tmp_path / "jupyter")
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.set_default_timeout(60_000)
    with jupyterlab(["jupyterlab"], work, tmp_path / "jupyter") as address:
        page.goto(f"{address}/lab/tree/{LESSON.stem}.ipynb?token={TOKEN}")
        notebook = Notebook(page, [cell.id for cell in source.cells])
        assert "NotImplementedError" in notebook.run_all()
        picture(page, "untouched")

        notebook.write("layer_norm", UNBIASED)
        notebook.run("layer_norm")
        said = notebook.run("check_layer_norm")
        picture(notebook.cell("check_layer_norm"), "wrong")
        assert "unbiased" in said and "Known mistake" in said

        notebook.write("layer_norm", reference)
        notebook.run("layer_norm")
        said = notebook.run("check_layer_norm")
        picture(notebook.cell("check_layer_norm"), "right")
        points = next(one.points for one in LESSON.exercises if one.name == "layer_norm")
        assert f"{points} of {points} points" in said

        verdict = notebook.validate()
        assert 'check("rms_norm")' in verdict and 'check("layer_norm")' not in verdict

        if os.environ.get("COURSE_SCREENSHOTS"):
            settle(tmp_path / "jupyter", dark=True)
            page.reload()
            notebook = Notebook(page, notebook.ids)
            for name in ("cell-003", "cell-015", "check_layer_norm"):
                picture(notebook.cell(name), f"dark-{name}")
            picture(page, "dark")
    page.close()


def test_an_instructor_sees_the_class(browser, tmp_path: Path) -> None:
    source = builder.source(LESSON)
    source.cells = [cell for cell in source.cells if "nbgrader" in cell.metadata]
    source.cells.insert(0, new_code_cell("import torch\nfrom torch import nn\nimport autograder"))
    source.cells.insert(1, new_code_cell("check = autograder.check"))
    for student in ("ada", "bo"):
        (tmp_path / "class" / student).mkdir(parents=True)
        nbformat.write(source, tmp_path / "class" / student / f"{LESSON.stem}.ipynb")
    full = sum(exercise.points for exercise in LESSON.exercises)
    out = tmp_path / "out"
    grade(tmp_path / "class", out, sandbox="none")
    settle(tmp_path / "jupyter")
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.set_default_timeout(60_000)
    command = ["autograder.grading.formgrader", str(out)]
    with jupyterlab(command, tmp_path, tmp_path / "jupyter") as address:
        page.goto(f"{address}/lab?token={TOKEN}")
        page.get_by_role("menuitem", name="Nbgrader", exact=True).click()
        page.get_by_text("Formgrader", exact=True).click()
        form = page.frame_locator("iframe")
        form.get_by_role("link", name=LESSON.stem).first.wait_for()
        picture(page, "formgrader")
        form.get_by_role("link", name="Manage Students").click()
        for student in ("ada", "bo"):
            form.get_by_role("row").filter(has_text=student).filter(has_text=f"{full}").wait_for()
        picture(page, "students")
    page.close()
