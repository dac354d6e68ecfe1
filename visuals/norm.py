"""Pictures of lesson 01: what normalization does to features, and what it reads."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from visuals.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    VERMILLION,
    Picture,
    WidgetWithPicture,
    bars,
    draw,
    explorer,
    numbers,
    widgets_run,
)

ROW = [1.0, 3.0, 2.0, 6.0]  # one token with four features; its mean is 3
LIMITS = (-2.0, 2.0)  # four normalized features never leave it: sqrt(C - 1) and sqrt(C) bound them


def _layer_norm(row: torch.Tensor, eps: float) -> torch.Tensor:
    centred = row - row.mean()
    return centred / torch.sqrt(centred.square().mean() + eps)


def _rms_norm(row: torch.Tensor, eps: float) -> torch.Tensor:
    return row / torch.sqrt(row.square().mean() + eps)


def signal_through_layers() -> Picture:
    """The spread of one token's features through 40 layers, without and with a norm."""
    depth, width = 40, 64
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(width, generator=generator, dtype=torch.float64)
    layers = torch.randn(depth, width, width, generator=generator, dtype=torch.float64)
    layers = layers / width**0.5  # such a layer keeps the spread about as it is

    def spread(gain: float, normalized: bool) -> list[float]:
        features, spreads = start, [start.std().item()]
        for layer in layers:
            features = gain * layer @ features
            if normalized:
                features = _layer_norm(features, 1e-5)
            spreads.append(features.std().item())
        return spreads

    growing, shrinking, steady = spread(1.3, False), spread(0.7, False), spread(1.3, True)

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for values, color, marker, label in (
            (growing, VERMILLION, "^", "each layer multiplies the spread by about 1.3"),
            (steady, BLUE, "o", "either of them, with a norm after every layer"),
            (shrinking, GREEN, "v", "each layer multiplies it by about 0.7"),
        ):
            axes.plot(values, color=color, marker=marker, markevery=5, label=label, linewidth=2)
        axes.set_yscale("log")
        axes.set_xlabel("layer")
        axes.set_ylabel("spread of the features")
        axes.legend(frameon=False, loc="upper left", fontsize=11)
        axes.set_ylim(1e-9, 1e9)

    alt = (
        "Line chart, layers 0 to 40 against the spread of the features on a logarithmic axis. "
        f"With layers that enlarge by 1.3 it climbs to {growing[-1]:.0e}; with layers that "
        f"shrink to 0.7 it falls to {shrinking[-1]:.0e}; with a norm after each layer it "
        "stays at 1."
    )
    return draw(plot, (7.6, 3.6), alt, "One token's features on their way through 40 layers.")


def before_and_after() -> Picture:
    """The three states of a row inside LayerNorm: as it comes, centred, divided."""
    row = torch.tensor(ROW)
    centred = (row - row.mean()).tolist()
    after = _layer_norm(row, 1e-5).tolist()

    def plot(figure: Figure) -> None:
        first, second, third = figure.subplots(1, 3)
        bars(first, ROW, (-3, 6), color=SKY, hatch="..", title="1. as it comes:\nmean 3")
        first.axhline(3, color=INK, linestyle="--", linewidth=1.5, zorder=0)
        bars(second, centred, (-3, 6), color=ORANGE, hatch="//", title="2. minus the mean")
        bars(
            third,
            after,
            (-3, 6),
            color=BLUE,
            hatch="",
            title="3. divided by the\nstandard deviation, 1.87",
        )
        for axes in (first, second, third):
            axes.set_xlabel("feature")
            axes.set_yticks(range(-3, 7))

    alt = (
        f"Three bar charts of one token's four features. As they come: {numbers(ROW)}, mean 3. "
        f"Minus the mean: {numbers(centred)}. Divided by the standard deviation 1.87: "
        f"{numbers(after)}."
    )
    return draw(plot, (8.4, 3.6), alt, "LayerNorm on one token, step by step.")


def axes_read() -> Picture:
    """Which numbers stand behind one output: its own token, or others too."""
    batch, length, width = 2, 3, 4
    choices = (
        ("dim=-1\nits own token", BLUE, lambda b, t, c: (b, t) == (0, 1)),
        ("dim=1\nthe sentence", ORANGE, lambda b, t, c: (b, c) == (0, 2)),
        ("dim=0\nthe batch", VERMILLION, lambda b, t, c: (t, c) == (1, 2)),
        ("no dim\neverything", GREEN, lambda b, t, c: True),
    )

    def plot(figure: Figure) -> None:
        for axes, (title, color, is_read) in zip(figure.subplots(1, 4), choices, strict=True):
            for b in range(batch):
                for t in range(length):
                    for c in range(width):
                        corner = (c, -t - b * (length + 1.2))
                        read = is_read(b, t, c)
                        axes.add_patch(
                            Rectangle(
                                corner,
                                1,
                                1,
                                facecolor=color if read else "white",
                                edgecolor=INK,
                                linewidth=1,
                            )
                        )
            axes.plot(2.5, -0.5, marker="*", markersize=17, color="white", markeredgecolor=INK)
            for b in range(batch):
                axes.text(0, 1.15 - b * (length + 1.2), f"sentence {b}", fontsize=11)
            axes.set_xlim(-0.1, width + 0.1)
            axes.set_ylim(-2 * length - 0.4, 1.8)
            axes.set_aspect("equal")
            axes.set_axis_off()
            axes.set_title(title)

    alt = (
        "Four grids of a tensor with 2 sentences, 3 tokens and 4 features. The star is one "
        "output; the coloured cells are what its mean reads. dim=-1: the 4 features of its own "
        "token. dim=1: one feature of all 3 tokens of its sentence. dim=0: one feature of the "
        "same place in both sentences. No dim: all 24 numbers."
    )
    return draw(plot, (7.6, 3.4), alt, "Rows are tokens, columns features. Colour: what is read.")


def what_eps_does() -> Picture:
    """The size of LayerNorm's output against the spread of its input, for three choices of eps."""
    spread = torch.logspace(-8, 1, 91, dtype=torch.float64)
    curves = (
        ("1e-5 inside the root", spread / torch.sqrt(spread**2 + 1e-5), BLUE, "o", "-"),
        ("1e-5 outside the root", spread / (spread + 1e-5), ORANGE, "s", "--"),
        ("1e-12 inside the root", spread / torch.sqrt(spread**2 + 1e-12), GREEN, "^", "-."),
    )

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for label, size, color, marker, line in curves:
            axes.plot(
                spread.tolist(),
                size.tolist(),
                color=color,
                marker=marker,
                linestyle=line,
                markevery=10,
                linewidth=2,
                label=label,
            )
        # Where 1e-5 begins to matter: a spread of its root inside, of 1e-5 itself outside.
        for place, label, color in ((0.003, "0.003", BLUE), (1e-5, "0.00001", ORANGE)):
            axes.axvline(place, 0, 0.9, color=color, linewidth=1)
            axes.text(place, 1.1, label, ha="center", va="bottom", fontsize=11)
        axes.set_xscale("log")
        axes.set_xlabel("standard deviation of the row before")
        axes.set_ylabel("standard deviation after")
        axes.legend(frameon=False, loc="center right", fontsize=11)
        axes.set_ylim(-0.05, 1.2)

    alt = (
        "Line chart: standard deviation of a row before LayerNorm, 1e-8 to 10, against the one "
        "after it. Every curve is 0 on the left and 1 on the right. eps 1e-5 inside the root "
        "rises around 0.003, the same eps outside the root around 0.00001, both marked by a thin "
        "line; eps 1e-12 inside the root rises around 0.000001."
    )
    return draw(plot, (7.6, 3.6), alt, "Rows flatter than the rise are not blown up to 1.")


def _side_by_side(
    panels: Sequence[Axes], row: list[float], eps: float, limits: tuple[float, float]
) -> str:
    """Draw a row, its LayerNorm and its RMSNorm into three panels, and say the numbers."""
    tensor = torch.tensor(row, dtype=torch.float64)
    layer, rms = _layer_norm(tensor, eps).tolist(), _rms_norm(tensor, eps).tolist()
    bars(panels[0], row, limits, color=SKY, hatch="..", title="row")
    bars(panels[1], layer, LIMITS, color=BLUE, hatch="", title="LayerNorm")
    bars(panels[2], rms, LIMITS, color=ORANGE, hatch="//", title="RMSNorm")
    return f"row {numbers(row)}; LayerNorm {numbers(layer)}; RMSNorm {numbers(rms)}"


def add_and_multiply(
    add: float = 5.0, multiply: float = 1.0, eps: float = 1e-5
) -> Picture | WidgetWithPicture:
    """A row multiplied, then added to, under both norms; a still picture without widgets."""
    still = _before_and_moved(add, multiply, eps)
    return WidgetWithPicture(_explorer(add, multiply, eps), still) if widgets_run() else still


def _before_and_moved(add: float, multiply: float, eps: float) -> Picture:
    row = [multiply * value + add for value in ROW]
    limits = min(0.0, 1.2 * min(row)), max(12.0, 1.2 * max(row))  # with room for the numbers
    change = f"row × {multiply:g} {'-' if add < 0 else '+'} {abs(add):g}"
    said: list[str] = []

    def plot(figure: Figure) -> None:
        panels = figure.subplots(2, 3)
        said.append(_side_by_side(panels[0], ROW, eps, limits))
        said.append(_side_by_side(panels[1], row, eps, limits))
        panels[1][0].set_title(change)
        for axes in panels[1]:
            axes.set_xlabel("feature")

    picture = draw(plot, (7.6, 5.4), "", f"Above: a row. Below: {change}. eps is {eps:g}.")
    picture.alt = f"Bar charts, eps {eps:g}. Before: {said[0]}. {change}: {said[1]}."
    return picture


def _moved(add: float, multiply: float, eps: float) -> Picture:
    row = [multiply * value + add for value in ROW]
    reach = max(16.0, *(abs(value) for value in row))  # the axis stays where it can
    said: list[str] = []

    def plot(figure: Figure) -> None:
        # Fixed places: panels that shift under the reader's hand look like a change.
        figure.subplots_adjust(left=0.08, right=0.99, bottom=0.16, top=0.89)
        panels = figure.subplots(1, 3)
        said.append(_side_by_side(panels, row, eps, (-reach, reach)))
        for axes in panels:
            axes.set_xlabel("feature")

    picture = draw(plot, (7.6, 3.2), "", "", layout=None)
    picture.alt = f"Bar charts: {said[0]}."
    picture.caption = f"{said[0]}."
    return picture


def _explorer(add: float, multiply: float, eps: float) -> Any:
    import ipywidgets

    log = ipywidgets.FloatLogSlider
    controls = {
        "add": ipywidgets.FloatSlider(add, min=-10, max=10, step=0.5),
        "multiply": log(multiply, min=-4, max=2, step=0.25, readout_format=".4f"),
        "eps": log(eps, min=-12, max=0, step=1, readout_format=".0e"),
    }
    return explorer(_moved, controls)
