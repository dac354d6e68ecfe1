"""Feedback pages, and the formgrader's, that run nothing of what a student wrote.

A student's notebook reaches the page through `SanitizeFeedback`, which builds every cell anew from
what is known to be harmless, and its Markdown through `safe_markdown`. `FeedbackPage` adds a policy
by which a browser runs no script and loads nothing. The tags and classes that make up the page's
own panels are not among what a student's HTML may have, so it can't pass for one of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from typing import Any

from bleach.css_sanitizer import CSSSanitizer
from bleach.sanitizer import Cleaner
from bs4 import BeautifulSoup
from nbconvert.filters import Highlight2HTML, strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_notebook, new_output
from traitlets.config import Config

from autograder.grading.cells import new_cell
from autograder.grading.page import QuickPage

TAGS = frozenset(
    "a abbr b blockquote br caption code dd del details div dl dt em figcaption figure h1 h2 h3 h4 "
    "h5 h6 hr i img ins kbd li mark ol p pre q s samp section small span strong sub summary sup "
    "table tbody td tfoot th thead tr u ul".split()
)
INVISIBLE = ["head", "iframe", "noscript", "script", "style", "svg", "template", "title"]
REPORT_STYLES = frozenset(
    "background border-collapse border-left border-top color cursor display font-size font-weight "
    "line-height margin margin-top max-width opacity padding table-layout text-align "
    "vertical-align white-space width".split()
)
PICTURE = re.compile(r"data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/=\s]+")
ATTRIBUTES = {
    ("a", "href"): re.compile(r"(?:https?://|mailto:|#).*", re.IGNORECASE | re.DOTALL),
    ("img", "src"): PICTURE,
    ("img", "alt"): re.compile(r".*", re.DOTALL),
    ("ol", "start"): re.compile(r"\d{1,4}"),
    ("td", "colspan"): re.compile(r"\d{1,3}"),
    ("td", "rowspan"): re.compile(r"\d{1,3}"),
    ("th", "colspan"): re.compile(r"\d{1,3}"),
    ("th", "rowspan"): re.compile(r"\d{1,3}"),
    ("th", "scope"): re.compile(r"col|row"),
}
# Parsers of HTML, Markdown and Python take minutes for what is made to keep them busy: the time
# goes with the square of the length. A lesson has texts of 1,500 characters and 25,000 in all.
LONGEST_PARSED = 5_000  # characters of Markdown or code; longer ones are shown as they are
LONGEST_CELL = 20_000
LONGEST_PAGE = 300_000
MOST_BRACKETS = 6_000  # and ampersands, in all HTML outputs of a page

POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
    '<meta name="referrer" content="no-referrer">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
)
LOOK = """<style>
:root { color-scheme: light; }  /* the page's own colours are those of a light one */
summary { display: list-item; cursor: pointer; }  /* Bootstrap hides its triangle */
img { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.output_html table { display: block; overflow-x: auto; }
.output_html section table { display: table; }
div.nbgrader_cell .panel-heading { height: auto; }
@media (max-width: 50em) { div.prompt { display: none; } }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
</style>"""


def make_safe(c: Config) -> None:
    """Have nbgrader's feedback and its formgrader show notebooks this way."""
    c.HTMLExporter.preprocessors = [SanitizeFeedback]
    c.HTMLExporter.filters = {
        "markdown2html": safe_markdown,
        "highlight_code": highlighted,
    }
    c.GenerateFeedback.exporter_class = FeedbackPage


class SanitizeFeedback(Preprocessor):
    """Stands in `HTMLExporter.preprocessors`, before nbgrader adds scores and comments."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        # The formgrader's template prints these, which come from a folder's name, as HTML.
        for key in ("student", "first_name", "last_name", "notebook_path"):
            if isinstance(resources.get(key), str):
                resources[key] = escape(resources[key])
        room = LONGEST_PAGE
        rich = _brackets(nb) <= MOST_BRACKETS
        cells = []
        for place, cell in enumerate(nb.cells):
            mark = _mark(cell)
            if room > 0 or mark:
                fresh = _cell(cell, mark, rich, f"cell-{place}")
                room -= len(fresh.source) + 100
                cells.append(fresh)
        if room <= 0:
            cells.append(new_cell("markdown", "[The rest is too long to be shown.]", id="end"))
        return new_notebook(cells=cells), resources


class FeedbackPage(QuickPage):
    """The page in which `GenerateFeedback` puts a notebook: it works offline, without scripts."""

    def from_notebook_node(  # type: ignore[override]
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **kw: Any
    ) -> tuple[str, dict[str, Any]]:
        page, resources = super().from_notebook_node(nb, resources, **kw)
        head, end, body = page.partition("</head>")
        # MathJax, which comes from the network, and a font of Bootstrap's that nobody delivers.
        head = re.sub(r"<script\b.*?</script>|@font-face *{.*?}", "", head, flags=re.DOTALL)
        head = head.replace("<html>", '<html lang="en">', 1).replace("<head>", f"<head>{POLICY}", 1)
        return head + LOOK + end + body, resources


@lru_cache(500)  # most cells of a class are those of the lesson
def safe_markdown(source: str) -> str:
    """Markdown as HTML that does no harm, in place of nbconvert's `markdown2html`."""
    if len(source) <= LONGEST_PARSED:
        try:
            return safe_html(MarkdownWithMath(Renderer(escape=False)).render(source))
        except Exception:  # mistune and nbconvert raise many kinds for text they did not foresee
            pass
    return f"<pre>{escape(source)}</pre>"


def highlighted(source: str, metadata: Any = None) -> str:
    """Code as HTML, in place of nbconvert's filter, which takes the language from the notebook."""
    return _highlighted(source)


@lru_cache(500)
def _highlighted(source: str) -> str:
    if len(source) <= LONGEST_PARSED:
        lines = (line.rstrip() for line in source.split("\n"))  # blanks make Pygments slow
        return Highlight2HTML(pygments_lexer="python3")("\n".join(lines))
    return f'<div class="highlight"><pre>{escape(source)}</pre></div>'


class Renderer(IPythonRenderer):
    """Formulas stay as they were written: what would set them is a script from the network."""

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        return f"<h{level}>{text}</h{level}>"

    def block_math(self, body: str) -> str:
        return f"<pre>{escape(body.strip())}</pre>"

    def inline_math(self, body: str) -> str:
        return f"<code>{escape(body)}</code>"

    def latex_environment(self, name: str, body: str) -> str:
        return f"<pre>{escape(body.strip())}</pre>"


@lru_cache(200)  # those who answered alike have the same report
def safe_html(html: str, ours: bool = False) -> str:
    """What is harmless in a piece of HTML; only `ours`, a report, keeps its styles."""
    if not ours:  # what is not wanted at all goes first: it makes the cleaner slow
        soup = BeautifulSoup(html, "html.parser")
        for tag in soup(INVISIBLE):
            tag.decompose()
        for tag in soup(True):
            tag.attrs = {key: tag.attrs[key] for key in tag.attrs if (tag.name, key) in ATTRIBUTES}
        html = str(soup)

    def allowed(tag: str, name: str, value: str) -> bool:
        if ours and name in ("style", "aria-label"):
            return True
        pattern = ATTRIBUTES.get((tag, name))
        return pattern is not None and pattern.fullmatch(value) is not None

    return Cleaner(
        tags=TAGS,
        attributes=allowed,
        protocols={"http", "https", "mailto", "data"},
        strip=True,
        css_sanitizer=CSSSanitizer(REPORT_STYLES, frozenset()) if ours else None,
    ).clean(html)


def _mark(cell: NotebookNode) -> dict[str, Any]:
    """What nbgrader needs to know of a cell; nothing where it knows none of that name."""
    mark = cell.metadata.get("nbgrader")
    if not isinstance(mark, dict) or not re.fullmatch(r"\w+", str(mark.get("grade_id"))):
        return {}
    kept = {key: bool(mark.get(key)) for key in ("grade", "solution", "task", "locked")}
    points = mark.get("points")
    points = float(points) if isinstance(points, int | float) else 0.0
    return {"grade_id": str(mark["grade_id"]), "points": points, **kept}


def _brackets(nb: NotebookNode) -> int:
    """How much there is to parse in the notebook's HTML outputs."""
    outputs = [output for cell in nb.cells for output in cell.get("outputs", [])]
    pages = [str(output.get("data", {}).get("text/html", "")) for output in outputs]
    return sum(page.count(one) for page in pages for one in "<>&")


def _cell(cell: NotebookNode, mark: dict[str, Any], rich: bool, name: str) -> NotebookNode:
    source = str(cell.source)
    if len(source) > LONGEST_CELL:
        source = f"{source[:LONGEST_CELL]}\n[Cut here: it has {len(source):,} characters.]"
    metadata = {"nbgrader": mark} if mark else {}
    if cell.cell_type != "code":
        return new_cell("markdown", source, id=name, metadata=metadata)
    # The judge writes the result of a locked check; everything else was the student's to say.
    ours = bool(mark) and mark["locked"] and mark["grade"] and not mark["solution"]
    count = cell.get("execution_count")
    return new_cell(
        "code",
        source,
        id=name,
        metadata=metadata,
        execution_count=count if isinstance(count, int) else None,
        outputs=[_output(output, ours, rich) for output in cell.outputs],
    )


def _output(output: NotebookNode, ours: bool, rich: bool) -> NotebookNode:
    """An output without its metadata, which can hold attributes and files' names."""
    match output.output_type:
        case "stream":
            return new_output("stream", name="stdout", text=strip_ansi(str(output.text)))
        case "error":
            lines = strip_ansi("\n".join(str(line) for line in output.traceback))
            return new_output("error", ename="", evalue="", traceback=[lines])
        case "execute_result" | "display_data" as kind:
            data = _data(output.data, ours and kind == "execute_result", rich)
            return new_output(kind, data=data)
    return new_output("stream", name="stdout", text="[An output of an unknown kind.]")


def _data(data: dict[str, Any], ours: bool, rich: bool) -> dict[str, str]:
    """What of an output can be shown as it is; what was to be typeset, as it was written."""
    kept = {}
    if "text/html" in data and (rich or ours):
        kept["text/html"] = safe_html(str(data["text/html"]), ours)
    for mime in ("image/png", "image/jpeg"):
        if PICTURE.fullmatch(f"data:{mime};base64,{data.get(mime, '')}"):
            kept[mime] = str(data[mime])
    texts = [data[mime] for mime in ("text/markdown", "text/latex", "text/plain") if mime in data]
    if texts or not kept:
        left_out = f"[Not shown: {', '.join(data)}]"
        kept["text/plain"] = strip_ansi(str(texts[0])) if texts else left_out
    return kept
