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
PATIENCE = 120  # seconds to wait for anything: no longer than it takes, even on a busy machine
expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)
# Cells sent to a kernel that is still starting would be lost, and so would what is typed meanwhile.
IDLE = """() => {
    const panel = window.jupyterapp?.shell.currentWidget;
    const kernel = panel?.sessionContext?.session?.kernel;
    return panel?.context?.isReady && panel.sessionContext.isReady
        && kernel?.connectionStatus === "connected" && kernel.status === "idle";
}"""
WRITTEN = """([place, text]) =>
    jupyterapp.shell.currentWidget.content.widgets[place].model.sharedModel.source === text"""
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
    command += ["--LabApp.expose_app_in_browser=True"]  # so that the page tells when it is ready
    private.mkdir(exist_ok=True)
    with open(private / "jupyter.log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            _wait_for(server, f"{address}/api/status?token={TOKEN}", private / "jupyter.log")
            yield address
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:  # its extensions sometimes wait for each other
                server.kill()
                server.wait()


def _wait_for(server: subprocess.Popen, url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()}")


class Notebook:
    """A notebook as it stands open in JupyterLab, its cells by the ids that the builder gave."""

    def __init__(self, page, address: str, path: Path):
        self.page = page
        self.ids = [cell.id for cell in nbformat.read(path, as_version=4).cells]
        # A workspace of its own, or JupyterLab would open the notebooks of before beside it.
        workspace = f"{address}/lab/workspaces/{path.stem}"
        page.goto(f"{workspace}/tree/{path.name}?token={TOKEN}", wait_until="commit")
        expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(len(self.ids))
        page.wait_for_function(IDLE)

    def cell(self, name: str):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self.ids.index(name))

    def write(self, name: str, text: str) -> None:
        self.cell(name).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        self.page.wait_for_function(WRITTEN, arg=[self.ids.index(name), text])

    def run(self, name: str):
        """Run one cell to its end and return what stands below it."""
        cell = self.cell(name)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        prompt.click()
        expect(cell).to_have_class(re.compile("jp-mod-active"))
        self.page.keyboard.press("Control+Enter")
        expect(prompt).not_to_have_text(before)  # first a star, then the next number
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))
        self.page.wait_for_function(IDLE)
        return cell.locator(".jp-Cell-outputWrapper")

    def run_all(self):
        """Run everything and return the error at which JupyterLab stops."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_text("Run All Cells", exact=True).click()
        error = self.page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
        error.wait_for()
        expect(self.page.locator(".jp-InputPrompt", has_text="*")).to_have_count(0)
        self.page.wait_for_function(IDLE)
        return error

    def validate(self) -> str:
        """What nbgrader's Validate button, which saves first, answers."""
        self.page.get_by_role("button", name="Validate").click()
        dialog = self.page.locator(".jp-Dialog")
        expect(dialog.locator(".jp-Dialog-header")).to_have_text("Validation Results")
        text = dialog.locator(".jp-Dialog-body").inner_text()
        dialog.get_by_role("button", name="OK").click()
        expect(dialog).to_have_count(0)
        return text


@pytest.fixture(scope="module")
def browser():
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


def settle(private: Path, dark: bool = False) -> None:
    """Settings for a quiet JupyterLab: every cell in the page, no news, no saving unasked."""
    wanted = {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        # A save while another one is under way makes JupyterLab ask whether to overwrite the file.
        "docmanager-extension/plugin": {"autosave": False},
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
    answers = {cell.id: cell.source for cell in source.cells}
    notebook = builder.release(source)
    work, private = tmp_path / "work", tmp_path / "jupyter"
    work.mkdir()
    nbformat.write(notebook, work / "mine.ipynb")
    for cell in notebook.cells:
        cell.source = answers[cell.id]
    nbformat.write(notebook, work / "solved.ipynb")
    settle(private)
    page = browser.new_page(viewport={"width": 1300, "height": 1000})
    page.set_default_timeout(1000 * PATIENCE)
    with jupyterlab(["jupyterlab"], work, private) as address:
        mine = Notebook(page, address, work / "mine.ipynb")
        expect(mine.run_all()).to_contain_text("NotImplementedError")
        picture(page, "untouched")

        mine.write("layer_norm", UNBIASED)
        mine.run("layer_norm")
        expect(mine.run("check_layer_norm")).to_contain_text("Unbiased variance")
        picture(mine.cell("check_layer_norm"), "wrong")

        mine.write("layer_norm", answers["layer_norm"])
        mine.run("layer_norm")
        points = next(one.points for one in LESSON.exercises if one.name == "layer_norm")
        expect(mine.run("check_layer_norm")).to_contain_text(f"{points} of {points} points")
        picture(mine.cell("check_layer_norm"), "right")
        verdict = mine.validate()
        assert 'check("rms_norm")' in verdict and 'check("layer_norm")' not in verdict

        settle(private, dark=True)
        solved = Notebook(page, address, work / "solved.ipynb")
        verdict = solved.validate()
        assert verdict == "Success! Your notebook passes all the tests."
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
    page.set_default_timeout(1000 * PATIENCE)
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
        expect(form.get_by_role("row").filter(has_text="ada")).not_to_contain_text("None")
        picture(page, "students")

        # Another notebook in the place of bo's, and the button that grades it.
        untouched = builder.release(builder.source(LESSON))
        folder = out / "course" / "submitted" / "bo" / LESSON.stem
        nbformat.write(untouched, folder / f"{LESSON.stem}.ipynb")
        form.get_by_role("link", name="Manage Assignments").click()
        form.get_by_role("row").filter(has_text=LESSON.stem).get_by_role("link", name="2").click()
        row = form.get_by_role("row").filter(has_text="bo")
        row.locator(".glyphicon-flash").click()
        expect(form.locator(".modal-dialog")).to_contain_text("Successfully autograded")
        form.locator(".modal-dialog").get_by_role("button", name="OK").click()
        expect(row).to_contain_text(f"0 / {full}")
        picture(page, "autograded")
    page.close()
