"""How a lesson shows a picture, a widget or a tensor."""

import base64
import html
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

# Okabe and Ito's palette: its colours stay apart for colour-blind readers.
BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
VERMILLION, SKY, INK = "#D55E00", "#56B4E9", "#222222"
# An opaque light panel reads the same in JupyterLab's light and dark themes.
PANEL = "#FAFAF7"

DOTS_PER_INCH = 144
LOOK: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.facecolor": PANEL,
    "axes.labelsize": 12,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 13,
    "axes.unicode_minus": False,  # the bars' own labels have a hyphen too
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.facecolor": PANEL,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so every machine draws the same
    "font.size": 12,
    "hatch.linewidth": 0.8,
    "text.color": INK,
}


class Picture:
    """A drawing with a text alternative, shown by Jupyter as an HTML figure."""

    def __init__(self, png: bytes, alt: str, caption: str) -> None:
        self.png = png
        self.alt = alt
        self.caption = caption

    def html(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        return (
            '<figure style="margin: 0 0 .8em 6px">'
            f'<img alt="{html.escape(self.alt)}" src="data:image/png;base64,{data}" '
            'style="max-width: 100%; width: 760px; border-radius: 8px">'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": self.alt, "text/html": self.html()}


class WidgetWithPicture:
    """A widget that carries a picture, for readers and pages where no widget can run."""

    def __init__(self, widget: Any, picture: Picture) -> None:
        self.widget = widget
        self.picture = picture

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {**self.widget._repr_mimebundle_(), **self.picture._repr_mimebundle_()}


def draw(
    plot: Callable[[Figure], None],
    size: tuple[float, float],
    alt: str,
    caption: str,
    *,
    layout: Literal["constrained"] | None = "constrained",
) -> Picture:
    """Run `plot` on a fresh figure of `size` inches; equal calls give equal bytes."""
    with style.context("default"), rc_context(LOOK):
        figure = Figure(figsize=size, layout=layout)
        plot(figure)
        buffer = io.BytesIO()
        # Without a Software entry the bytes do not depend on matplotlib's version string.
        figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return Picture(buffer.getvalue(), alt, caption)


def bars(
    axes: Axes,
    values: Sequence[float],
    limits: tuple[float, float],
    *,
    color: str,
    hatch: str,
    title: str,
) -> None:
    """One bar per feature, its value written on it, inside fixed limits."""
    low, high = limits
    axes.bar(range(len(values)), values, color=color, hatch=hatch, edgecolor=INK, linewidth=1)
    room = 0.03 * (high - low)
    for place, value in enumerate(values):
        above = value >= 0
        axes.text(
            place,
            # A bar taller than the panel keeps its number at the edge.
            min(max(value, low), high) + (room if above else -room),
            number(value),
            ha="center",
            va="bottom" if above else "top",
            # Its own ground, so that a line behind the bars does not strike the number out.
            bbox={"facecolor": PANEL, "edgecolor": "none", "pad": 1},
        )
    axes.axhline(0, color=INK, linewidth=1)
    axes.set_ylim(low - 5 * room, high + 5 * room)
    axes.set_xticks(range(len(values)))
    axes.set_title(title)


def box(
    axes: Axes, x: float, y: float, text: str, color: str, width: float = 1.2, height: float = 0.5
) -> None:
    """A named box of a diagram, its middle at (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0.05"
    patch = FancyBboxPatch(
        corner, width, height, boxstyle=style, facecolor=color, edgecolor=INK, linewidth=1.2
    )
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center")


def arrow(
    axes: Axes, *points: tuple[float, float], color: str = INK, linewidth: float = 1.5
) -> None:
    """A line of a diagram through `points`, with an arrow's head at the last."""
    axes.plot(*zip(*points[:-1], strict=True), color=color, linewidth=linewidth)
    head: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 15, "shrinkA": 0, "shrinkB": 0}
    axes.add_patch(FancyArrowPatch(*points[-2:], color=color, linewidth=linewidth, **head))


def number(value: float, digits: int = 2) -> str:
    """A short number for a label: 2e-4, 1.25, 600, and no minus before zero."""
    if 1e-6 < abs(value) < 0.5 * 10**-digits:
        return f"{value:.0e}".replace("e-0", "e-")
    if abs(value) >= 100:
        digits = 0
    return f"{round(value, digits) + 0.0:.{digits}f}"


def numbers(values: Sequence[float], digits: int = 2) -> str:
    """Several numbers for a sentence: '1.00, 3.00'."""
    return ", ".join(number(value, digits) for value in values)


def rounded(tensor: torch.Tensor, digits: int = 3) -> Any:
    """The tensor's numbers as nested lists, rounded, the same from every device."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(inner) for inner in value]
        return round(value, digits) + 0.0  # the sum turns -0.0 into 0.0

    return clean(tensor.detach().cpu().double().tolist())


def widgets_run() -> bool:
    """True inside a Jupyter kernel with ipywidgets, unless COURSE_STATIC=1 asks for pictures."""
    if os.environ.get("COURSE_STATIC") == "1" or importlib.util.find_spec("ipywidgets") is None:
        return False
    kernel_app = sys.modules.get("ipykernel.kernelapp")  # loaded wherever a kernel runs
    return kernel_app is not None and kernel_app.IPKernelApp.initialized()


def explorer(show: Callable[..., Picture], controls: Mapping[str, Any]) -> Any:
    """A widget: the `controls` by their names and, below, what `show` draws of their values."""
    import ipywidgets  # here, so that the pictures need no ipywidgets

    for name, control in controls.items():
        control.description, control.layout = name, ipywidgets.Layout(width="520px")
        control.style.description_width = "100px"
    shown = ipywidgets.HTML()

    def update(change: object) -> None:
        shown.value = show(*(control.value for control in controls.values())).html()

    for control in controls.values():
        control.observe(update, names="value")
    update(None)
    return ipywidgets.VBox([*controls.values(), shown])
