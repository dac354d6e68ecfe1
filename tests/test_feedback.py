"""Feedback pages through nbgrader's own GenerateFeedback, for a notebook that tries everything."""

import base64
import io
import os
import shutil
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.figure import Figure
from nbconvert.exporters import HTMLExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config, LoggingConfigurable

from autograder import evaluate
from autograder.grading.feedback import POLICY, make_safe, safe_html, safe_markdown

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
STEM, STUDENT = "01_norm", "ada"
RUN = "document.title='ran'"
ATTACKS = [
    f"<script>{RUN}</script>",
    f'<img src="x" onerror="{RUN}">',
    f"<svg onload=\"{RUN}\"><script>{RUN}</script><a href='javascript:{RUN}'>x</a></svg>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f'<iframe src="javascript:parent.{RUN}"></iframe>',
    '<meta http-equiv="refresh" content="0; url=data:text/html,ran">',
    '<base href="https://example.org/"><link rel="stylesheet" href="https://example.org/x.css">',
    "<style>body { display: none } h4 { color: red }</style>",
    '<div class="panel panel-primary" style="position: fixed; inset: 0">29 / 29</div>',
    '<img src="https://example.org/tracker.png"><video src="https://example.org/x.mp4"></video>',
    f'<details open ontoggle="{RUN}"><summary>more</summary></details>',
    f'<body onload="{RUN}"><input autofocus onfocus="{RUN}"><form action="https://example.org">',
    f'<math><mtext><table><mglyph><style><img src=x onerror="{RUN}">',
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>">',
    f'</div></div></body></html><!DOCTYPE html><title>forged</title><img src=x onerror="{RUN}"',
    f"<a href=\"java\nscript:{RUN}\">a</a><a href='data:text/html,<script>{RUN}</script>'>b</a>",
    f'<!--><img src=x onerror="{RUN}">-->',
]
MARKDOWN = [
    f"[click](javascript:{RUN}) <javascript:{RUN}> ![x](javascript:{RUN})",
    f'[click](<x" onmouseover="{RUN}>) ![a" onerror="{RUN}](x)',
    f'``` "><img src=x onerror="{RUN}">\ncode\n```',
    f"```mermaid\n<img src=x onerror={RUN}>\n```",
    f'$$\\href{{javascript:{RUN}}}{{x}} <img src=x onerror="{RUN}">$$',
    f"\\begin{{a<script>{RUN}</script>}}x\\end{{a<script>{RUN}</script>}}",
    "![picture](attachment:missing.png)",
]
FORBIDDEN = ["base", "form", "iframe", "input", "link", "math", "meta", "object", "script", "style"]


def uncentred(x, scale, shift, eps=1e-5):
    print(f"<script>{RUN}</script>")
    return x / torch.sqrt(x.var(-1, keepdim=True) + eps) * scale + shift


REPORT = evaluate("layer_norm", uncentred)


def png() -> str:
    buffer = io.BytesIO()
    Figure(figsize=(1, 1)).savefig(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def show(**data: object) -> NotebookNode:
    """A display_data output; its MIME types have underscores for slashes."""
    return new_output("display_data", data={k.replace("_", "/", 1): v for k, v in data.items()})


def hostile() -> NotebookNode:
    outputs = [show(text_html=attack) for attack in ATTACKS]
    outputs += [show(text_markdown=attack) for attack in ATTACKS + MARKDOWN]
    outputs += [
        show(text_latex=f"$\\href{{javascript:{RUN}}}{{x}}$<script>{RUN}</script>"),
        show(application_javascript=RUN, text_plain="<Javascript object>"),
        show(application_javascript=RUN),
        NotebookNode(show(), data={"image/svg+xml": f"<svg><script>{RUN}</script></svg>"}),
        show(image_png=f'x" onerror="{RUN}'),
        show(**{"application_vnd.jupyter.widget-view+json": {"model_id": "a"}}),
        show(text_html=f"<b>{'<i>' * 10}honest</b>", text_plain="honest"),
        new_output("stream", name="stderr", text=f"\x1b[31m<script>{RUN}</script>"),
        new_output("error", ename="A", evalue="b", traceback=[f"<img src=x onerror={RUN}>"]),
    ]
    outputs.append(show(image_png=png(), text_plain="<Figure>"))
    outputs[-1].metadata = {"image/png": {"width": f"1 onload={RUN}", "alt": "x"}}
    outputs.append(show(text_html=f"<script>parent.{RUN}</script>"))
    outputs[-1].metadata = {"text/html": {"isolated": True}}
    tagged = new_code_cell(f"# <script>{RUN}</script>", metadata={"tags": [f'"><script>{RUN}']})
    tagged.metadata["magics_language"] = f'"><script>{RUN}</script>'
    answer = new_code_cell("def layer_norm(): pass", metadata={"nbgrader": mark("layer_norm")})
    answer.outputs = [new_output("execute_result", data={"text/html": REPORT.html()})]
    check = new_code_cell("check()", metadata={"nbgrader": mark("check_layer_norm", grade=True)})
    check.outputs = [new_output("execute_result", data=REPORT._repr_mimebundle_())]
    prose = [new_markdown_cell(text) for text in ATTACKS + MARKDOWN]
    prose[0].attachments = {"a.png": {"image/svg+xml": f"<svg onload={RUN}>"}}
    cells = [*prose, new_raw_cell(ATTACKS[0]), new_code_cell("1", outputs=outputs), tagged]
    notebook = new_notebook(cells=[*cells, answer, check])
    notebook.metadata = {
        "language_info": {"name": "python", "pygments_lexer": f'"><script>{RUN}</script>'},
        "widgets": {"application/vnd.jupyter.widget-state+json": {"a": f"</script>{RUN}"}},
    }
    return notebook


def mark(name: str, grade: bool = False) -> dict[str, object]:
    kind = {"grade": grade, "solution": not grade, "locked": grade, "task": False}
    points = {"points": REPORT.max_score} if grade else {}
    return {"grade_id": name, "schema_version": 3, **kind, **points}


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> LoggingConfigurable:
    """A course folder in which one hostile notebook is graded."""
    root = tmp_path_factory.mktemp("course")
    config = Config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.db_url = url = f"sqlite:///{root / 'gradebook.db'}"
    make_safe(config)
    with pytest.MonkeyPatch.context() as patch:  # nbgrader starts alembic by name
        patch.setenv("PATH", f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
        with Gradebook(url) as gradebook:
            gradebook.add_assignment(STEM)
            gradebook.add_notebook(STEM, STEM)
            most = REPORT.max_score
            gradebook.add_grade_cell(
                "check_layer_norm", STEM, STEM, max_score=most, cell_type="code"
            )
            gradebook.add_solution_cell("layer_norm", STEM, STEM)
            gradebook.add_student(STUDENT)
            gradebook.add_submission(STEM, STUDENT)
            grade = gradebook.find_grade("check_layer_norm", STEM, STEM, STUDENT)
            grade.auto_score = REPORT.score
            comment = gradebook.find_comment("layer_norm", STEM, STEM, STUDENT)
            comment.manual_comment = f"Nearly *right*. <script>{RUN}</script>"
            gradebook.db.commit()
    graded = root / "autograded" / STUDENT / STEM / f"{STEM}.ipynb"
    graded.parent.mkdir(parents=True)
    nbformat.write(hostile(), graded)
    return LoggingConfigurable(config=config)


@pytest.fixture(scope="module")
def page(course: LoggingConfigurable) -> Path:
    folder = CourseDirectory(parent=course)
    folder.assignment_id, folder.student_id = STEM, STUDENT
    GenerateFeedback(coursedir=folder, parent=course).start()
    return Path(folder.root) / "feedback" / STUDENT / STEM / f"{STEM}.html"


def check_body(body: BeautifulSoup) -> None:
    """Nothing in it could run, load, restyle, or lead somewhere by anything but a plain link."""
    assert not body.find_all([*FORBIDDEN, "svg", "noscript", "video", "template", "title"])
    for tag in body.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on")]
        assert str(tag.get("href", "#")).startswith(("#", "https://"))
        assert str(tag.get("src", "data:image/png;base64,")).startswith("data:image/")


def test_nothing_of_the_student_can_run(page: Path) -> None:
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    assert soup.title.string == STEM and len(soup.find_all("html")) == 1
    assert not soup.find_all("script") and "cdn" not in str(soup.head)
    check_body(soup.body)
    styled = {tag.find_parent("section") for tag in soup.body.find_all(style=True)}
    assert len(styled - {None}) == 1  # the judge's report, and not its copy below the answer
    assert not soup.select("[style*=position]")
    # Two panels of nbgrader's, the answer and the check, beside the one around the page.
    assert len(soup.select(".panel")) == 3


def test_the_report_and_the_score_are_there(page: Path) -> None:
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    report = soup.find("section", attrs={"aria-label": True})
    wanted = BeautifulSoup(REPORT.html(), "html.parser").section

    def shape(section):
        styles = [tag.get("style", "").replace(" ", "").rstrip(";") for tag in section(True)]
        return [tag.name for tag in section(True)], styles, section.get_text()

    assert shape(report) == shape(wanted)
    assert f"Score: {REPORT.score:.1f} / {REPORT.max_score:.1f}" in soup.h4.get_text()
    footer = soup.select_one(".panel-footer")
    assert "Nearly right." in footer.get_text() and footer.em and not footer.script


def test_honest_outputs_are_kept(page: Path) -> None:
    text = page.read_text("utf-8")
    assert f"data:image/png;base64,{png()[:40]}" in text
    assert "&lt;Javascript object&gt;" in text  # the text that came with a script
    assert "[Not shown: application/javascript]" in text
    assert "honest</i>" in text


def test_the_formgrader_is_as_safe(course: LoggingConfigurable) -> None:
    config = Config(course.config)
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    name = f'<img src=x onerror="{RUN}">'
    resources = {"student": name, "last_name": name, "first_name": name, "notebook_path": name}
    resources |= {"index": 0, "total": 1, "base_url": "", "submission_id": "1"}
    resources |= {"notebook_id": STEM, "assignment_id": STEM}
    graded = Path(course.config.CourseDirectory.root) / "autograded" / STUDENT / STEM
    html, _ = HTMLExporter(config=config).from_filename(
        str(graded / f"{STEM}.ipynb"), resources=resources
    )
    soup = BeautifulSoup(html, "html.parser")
    assert not soup.find_all(onerror=True)
    for controls in soup.select(".nbgrader_cell > .panel-heading, .nbgrader_cell > .panel-footer"):
        controls.decompose()
    check_body(soup.select_one("#notebook-container"))


def test_honest_html_survives() -> None:
    table = '<table><thead><tr><th scope="col">a</th></tr></thead><tbody><tr><td colspan="2">1'
    table += f'</td></tr></tbody></table><img alt="x" src="data:image/png;base64,{png()}">'
    assert safe_html(f"<style scoped>td {{}}</style>{table}") == table
    prose = safe_markdown("# Norm\n\n*One* `two` [three](https://example.org/?a=1&b=2) $x < 1$")
    assert "<h1>Norm</h1>" in prose and "<em>One</em> <code>two</code>" in prose
    assert '<a href="https://example.org/?a=1&amp;b=2">three</a>' in prose
    assert "<code>x &lt; 1</code>" in prose


@pytest.mark.parametrize(
    "cells",
    [
        [new_markdown_cell("\\\\[" * 2_000_000)],
        [new_markdown_cell("$a " * 1900) for _ in range(1000)],
        [new_markdown_cell("", id=f"a{place}") for place in range(5_000)],
        [new_code_cell(" \n" * 2_499) for _ in range(200)],
        [new_code_cell("'%(" * 2_000_000), new_code_cell("?" * 50_000)],
        [new_code_cell("1", outputs=[show(text_html="<div>" * 1900)])],
        [new_code_cell("1", outputs=[show(text_html="<div>" * 200_000)])],
        [new_code_cell("1", outputs=[show(text_html=f"<p {' '.join(map(str, range(100_000)))}>")])],
        [new_code_cell("1", outputs=[show(text_plain="\x1b[31mx" * 150_000)])],
        [new_code_cell("1", outputs=[show(text_plain="x" * 1_000_000)])],
    ],
    ids="math many empty blank code deep deeper attributes colours line".split(),
)
def test_a_notebook_cannot_keep_the_grader_busy(cells: list[NotebookNode]) -> None:
    config = Config()
    make_safe(config)
    started = time.process_time()
    HTMLExporter(config=config).from_notebook_node(new_notebook(cells=cells))
    assert time.process_time() - started < 20


@pytest.fixture(scope="module")
def browser() -> Iterator:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("policy", [True, False], ids=["with policy", "without policy"])
def test_a_browser_runs_and_loads_nothing(browser, page: Path, policy: bool) -> None:
    """Also without the policy: what it would have to stop must not be there."""
    text = page.read_text("utf-8")
    assert POLICY.partition(">")[0].replace("'", "") in text.replace("'", "")
    if not policy:
        page = page.with_name("without.html")
        page.write_text(text.replace("Content-Security-Policy", "x"), "utf-8")
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("request", lambda request: said.append(request.url))
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.goto(page.as_uri())
    tab.wait_for_timeout(500)
    assert tab.title() == STEM and tab.url == page.as_uri()
    assert [one for one in said if not one.startswith("data:image/png")] == [page.as_uri()]
    summary = tab.locator("section summary").first
    assert summary.evaluate("one => getComputedStyle(one).display") == "list-item"
    printed = tab.locator("section[aria-label] pre")
    assert not printed.is_visible()
    tab.locator("section[aria-label] summary").click()
    assert printed.is_visible()
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / "feedback.png", full_page=True)
        tab.locator("section[aria-label]").screenshot(path=Path(folder) / "feedback-report.png")
    tab.close()
