"""Pictures of lesson 03: the old path, what stands on it, and the gradients that come back."""

from functools import lru_cache
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch.nn import functional as F

from visuals.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    SKY,
    VERMILLION,
    Picture,
    WidgetWithPicture,
    arrow,
    bars,
    box,
    draw,
    explorer,
    numbers,
    widgets_run,
)

DEPTHS = (2, 4, 8, 16, 32, 64)
WIDTH = 16
KINDS = {  # color, marker, line
    "no shortcut": (VERMILLION, "v", "--"),
    "post-norm": (ORANGE, "s", "-."),
    "pre-norm": (BLUE, "o", "-"),
}


def one_token() -> Picture:
    """A token's features, the update a branch computes, and their sum."""
    x, update = [2.5, -1.0, 0.5, 3.0], [-0.4, 0.0, 1.2, 0.3]
    total = [one + other for one, other in zip(x, update, strict=True)]

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 3)
        bars(panels[0], x, (-2, 4), color=SKY, hatch="..", title="x: the old path")
        bars(panels[1], update, (-2, 4), color=ORANGE, hatch="//", title="+ the update")
        bars(panels[2], total, (-2, 4), color=BLUE, hatch="", title="= what goes on")
        for axes in panels:
            axes.set_xlabel("feature")

    alt = (
        f"Three bar charts of one token's four features. x: {numbers(x)}. The update: "
        f"{numbers(update)}. Their sum: {numbers(total)}."
    )
    return draw(plot, (8.4, 3.4), alt, "The branch says what to change, not what is.")


def stretched_update() -> Picture:
    """What broadcasting makes of a (1, 1, 2) update beside a (1, 3, 2) x."""
    x = [[1, 2], [3, 4], [5, 6]]
    wanted = [[10, 10], [20, 20], [30, 30]]
    averaged = [[20, 20]]

    def grid(axes: Axes, rows: list[list[int]], color: str, title: str, copies: int = 1) -> None:
        for t, row in enumerate(rows * copies):
            real = t < len(rows)
            for c, value in enumerate(row):
                face = color if real else "white"
                axes.add_patch(
                    Rectangle(
                        (c, -t), 1, 1, facecolor=face, edgecolor=INK, hatch=None if real else "//"
                    )
                )
                box = {"facecolor": face, "edgecolor": "none", "pad": 1}
                axes.text(c + 0.5, 0.5 - t, str(value), ha="center", va="center", bbox=box)
        axes.set_xlim(-0.1, 2.1)
        axes.set_ylim(-2.1, 1.1)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(title, fontsize=12)

    def add(rows: list[list[int]]) -> list[list[int]]:
        return [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(x, rows, strict=True)]

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 5)
        grid(panels[0], x, SKY, "x\n(1, 3, 2)")
        grid(panels[1], wanted, ORANGE, "update\n(1, 3, 2)")
        grid(panels[2], add(wanted), "white", "sum\nas meant")
        grid(panels[3], averaged, ORANGE, "update\n(1, 1, 2)", copies=3)
        grid(panels[4], add(averaged * 3), "white", "sum, and\nno error")

    alt = (
        f"Grids, rows are tokens. x is {x}. An update of shape (1, 3, 2), {wanted}, gives "
        f"{add(wanted)}. An update of shape (1, 1, 2), {averaged}, is copied to all three tokens "
        f"(hatched) and gives {add(averaged * 3)}, without an error."
    )
    return draw(plot, (8.4, 2.9), alt, "Hatched: the copies that broadcasting makes.")


def two_places() -> Picture:
    """Pre-norm and post-norm as diagrams: what stands on the straight path."""

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for axes, title in ((left, "pre-norm"), (right, "post-norm")):
            pre = title == "pre-norm"
            arrow(axes, (0, 0), (0, 3.55 if pre else 2.6), color=BLUE, linewidth=4)
            top = 4.6
            if pre:
                arrow(axes, (0, 3.95), (0, top), color=BLUE, linewidth=4)
            plus = 3.75 if pre else 2.8
            axes.plot(0, plus, marker="o", markersize=21, color=PANEL, markeredgecolor=INK)
            axes.text(0, plus - 0.02, "+", ha="center", va="center", fontsize=18)
            steps = ["norm", "branch", "dropout"] if pre else ["branch", "dropout"]
            heights = (1.05, 1.95, 2.85) if pre else (1.0, 1.9)
            arrow(axes, (0, 0.35), (2, 0.35), (2, heights[0] - 0.33))
            for name, y in zip(steps, heights, strict=True):
                box(
                    axes,
                    2,
                    y,
                    name,
                    GREEN if name == "norm" else SKY if name == "branch" else "white",
                )
            for low, high in zip(heights, heights[1:], strict=False):
                arrow(axes, (2, low + 0.33), (2, high - 0.33))
            arrow(axes, (2, heights[-1] + 0.33), (2, plus), (0.24, plus))
            if not pre:
                arrow(axes, (0, 3.02), (0, 3.42), color=BLUE, linewidth=4)
                box(axes, 0, 3.75, "norm", GREEN)
                arrow(axes, (0, 4.08), (0, top), color=BLUE, linewidth=4)
            axes.text(-0.2, 0.1, "x", ha="right", fontsize=14)
            axes.set_xlim(-1.1, 3)
            axes.set_ylim(-0.1, 4.7)
            axes.set_axis_off()
            axes.set_title(title)

    alt = (
        "Two diagrams, read from below. Pre-norm: x goes straight up to a plus sign; beside it x "
        "goes through norm, branch and dropout into the same plus sign; nothing else stands on the "
        "straight path. Post-norm: x goes straight up to the plus sign, beside it through branch "
        "and dropout; after the plus sign the norm stands on the straight path."
    )
    return draw(
        plot, (7.6, 4.4), alt, "Thick: the straight path. In post-norm it runs through the norm."
    )


def dropout_places() -> Picture:
    """Which of a token's 40 features come through 12 layers, for two places of dropout."""
    layers, width, p = 12, 40, 0.1
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(layers, width, generator=generator) >= p
    on_the_sum = torch.cat([torch.ones(1, width, dtype=torch.bool), kept.cumprod(0).bool()])
    left = [int(row.sum()) for row in on_the_sum]

    def plot(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True)
        rows = ((above, on_the_sum, VERMILLION), (below, torch.ones_like(on_the_sum), BLUE))
        for axes, alive, color in rows:
            cells = alive.T.int().tolist()
            axes.imshow(
                cells,
                cmap=ListedColormap(["white", color]),
                vmin=0,
                vmax=1,
                aspect="auto",
                interpolation="nearest",
            )
            for place in range(1, layers + 1):
                axes.axvline(place - 0.5, color=PANEL, linewidth=4)
            axes.set_yticks([])
            axes.set_ylabel("40 features")
        above.set_title(f"dropout on the sum: {left[-1]} of {width} of x's features are left")
        below.set_title(f"dropout on the branch: {width} of {width}")
        below.set_xticks(range(layers + 1))
        below.set_xlabel("layers passed")

    alt = (
        f"Two charts: a token's 40 features through 12 layers with dropout 0.1. With dropout on "
        f"the sum, {', '.join(map(str, left))} of x's features are left after 0 to 12 layers. "
        "With dropout on the branch all 40 are left after every layer."
    )
    return draw(plot, (7.6, 5.0), alt, "Coloured: x's own number is still in this feature.")


@lru_cache(maxsize=256)
def gradient_norms(kind: str, depth: int, seed: int = 0) -> tuple[float, ...]:
    """The gradient norm of each branch's first weight: a stack, a last norm, a linear head.

    In float64 and on the CPU, so that it is the same everywhere and nothing becomes 0.
    """
    # The first layers of a deep stack are those of a shallow one: one stream of weights each.
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int, fan_in: int) -> torch.Tensor:
        unit = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return (2 * unit - 1) / fan_in**0.5  # as nn.Linear begins

    x = torch.randn(8, WIDTH, generator=generator, dtype=torch.float64)
    head = uniform(4, WIDTH, fan_in=WIDTH)
    firsts = []
    for _ in range(depth):
        first = uniform(4 * WIDTH, WIDTH, fan_in=WIDTH).requires_grad_()
        second = uniform(WIDTH, 4 * WIDTH, fan_in=4 * WIDTH)
        bias, other = uniform(4 * WIDTH, fan_in=WIDTH), uniform(WIDTH, fan_in=4 * WIDTH)

        def branch(one: torch.Tensor, first=first, second=second, bias=bias, other=other) -> Any:
            return F.linear(F.gelu(F.linear(one, first, bias)), second, other)

        firsts.append(first)
        if kind == "pre-norm":
            x = x + branch(F.layer_norm(x, (WIDTH,)))
        elif kind == "post-norm":
            x = F.layer_norm(x + branch(x), (WIDTH,))
        else:
            x = branch(x)
    loss = F.linear(F.layer_norm(x, (WIDTH,)), head).square().mean()
    return tuple(one.norm().item() for one in torch.autograd.grad(loss, firsts))


def _lines(axes: Axes, places: Any, values: dict[str, Any], every: int) -> None:
    for kind, (color, marker, line) in KINDS.items():
        axes.plot(
            places,
            values[kind],
            color=color,
            marker=marker,
            linestyle=line,
            markevery=every,
            linewidth=2,
            label=kind,
        )
    axes.set_yscale("log")


def gradient_by_depth(seed: int = 0) -> Picture:
    """The first layer's gradient norm against depth, and every layer's at depth 64."""
    first = {kind: [gradient_norms(kind, depth, seed)[0] for depth in DEPTHS] for kind in KINDS}
    deep = {kind: gradient_norms(kind, 64, seed) for kind in KINDS}

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        _lines(left, DEPTHS, first, 1)
        left.set_xscale("log", base=2)
        left.set_xticks(DEPTHS, DEPTHS)
        left.set_xlabel("layers in the network")
        left.set_ylabel("gradient norm")
        left.set_title("the first layer's")
        left.legend(frameon=False, loc="lower left", fontsize=11)
        _lines(right, range(1, 65), deep, 9)
        right.set_xlabel("layer")
        right.set_title("every layer's, of 64")
        right.set_ylim(1e-55, 1e5)
        right.set_yticks([10.0**power for power in range(-50, 1, 10)])

    said = "; ".join(
        f"{kind} " + ", ".join(_short(value) for value in values) for kind, values in first.items()
    )
    ends = "; ".join(
        f"{kind} {_short(values[0])}, {_short(values[31])}, {_short(values[-1])}"
        for kind, values in deep.items()
    )
    alt = (
        "Two line charts with logarithmic axes. Left, the gradient norm of the first layer in "
        f"networks of 2, 4, 8, 16, 32 and 64 layers: {said}. Right, of layers 1, 32 and 64 of 64: "
        f"{ends}."
    )
    caption = (
        "One seed, one input, freshly made networks. Each mark up the side is many powers of ten."
    )
    return draw(plot, (8.4, 4.2), alt, caption)


def _by_layer(depth: int, seed: int) -> Picture:
    found = {kind: gradient_norms(kind, depth, seed) for kind in KINDS}

    def plot(figure: Figure) -> None:
        # Fixed places and limits: a panel that shifts under the reader's hand looks like a change.
        figure.subplots_adjust(left=0.1, right=0.98, bottom=0.16, top=0.8, wspace=0.25)
        left, right = figure.subplots(1, 2)
        for axes, limits in ((left, (1e-55, 1e5)), (right, (0.03, 3))):
            _lines(axes, range(1, depth + 1), found, max(1, depth // 8))
            axes.set_xlim(0, 65)
            axes.set_ylim(*limits)
            axes.set_xlabel("layer")
        left.set_yticks([10.0**power for power in range(-50, 1, 10)])
        left.set_ylabel("gradient norm")
        left.set_title("all of it", fontsize=12)
        right.set_title("0.03 to 3, enlarged", fontsize=12)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="upper center", fontsize=11, ncols=3)

    said = "; ".join(
        f"{kind} {_short(values[0])} at the first layer, {_short(values[-1])} at the last"
        for kind, values in found.items()
    )
    picture = draw(plot, (8.4, 3.9), "", f"{depth} layers, seed {seed}: {said}.", layout=None)
    picture.alt = (
        f"Two line charts of the gradient norm of each layer, {depth} layers, seed {seed}, on "
        f"logarithmic axes, the second an enlarged part: {said}."
    )
    return picture


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def gradient_by_layer(depth: int = 16, seed: int = 0) -> Picture | WidgetWithPicture:
    """Each layer's gradient norm, depth and seed to be moved; a still picture without widgets."""
    still = _by_layer(depth, seed)
    return WidgetWithPicture(_explorer(depth, seed), still) if widgets_run() else still


def _explorer(depth: int, seed: int) -> Any:
    import ipywidgets

    controls = {
        "depth": ipywidgets.IntSlider(depth, min=2, max=64, continuous_update=False),
        "seed": ipywidgets.IntSlider(seed, min=0, max=9, continuous_update=False),
    }
    return explorer(_by_layer, controls)
