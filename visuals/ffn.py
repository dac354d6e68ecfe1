"""Pictures of lesson 02: what bends, what moves, and where a block's parameters are."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
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
    box,
    draw,
    explorer,
    number,
    widgets_run,
)

FIRST = [[1, 1], [0, 2], [1, -1]]  # the two maps and the input of the lesson's first cells
SECOND = [[1, 0, 2], [1, 1, 1]]
INPUT = [1, 2]
ACTIVATIONS = {"none": lambda x: x, "ReLU": F.relu, "GELU": F.gelu}


def _table(axes: Axes, left: float, rows: Sequence[Sequence[float]], color: str, name: str) -> None:
    """A matrix as cells around the middle line, its name below; `left` is its left edge."""
    top = len(rows) / 2
    for place, row in enumerate(rows):
        for column, value in enumerate(row):
            corner = (left + column, top - place - 1)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=color, edgecolor=INK, alpha=0.45))
            middle = (corner[0] + 0.5, corner[1] + 0.5)
            axes.text(*middle, f"{value:g}", ha="center", va="center", fontsize=14)
    axes.text(left + len(rows[0]) / 2, -top - 0.25, name, ha="center", va="top", fontsize=12)


def one_map_in_place_of_two() -> Picture:
    """Two matrices applied one after the other, and the one matrix that does the same."""
    first, second = torch.tensor(FIRST), torch.tensor(SECOND)
    x = torch.tensor(INPUT)[:, None]
    hidden, product = first @ x, second @ first
    out = second @ hidden

    def plot(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, height_ratios=(4.1, 3.1))
        places = (
            (0, second.tolist(), ORANGE, "second map"),
            (3.8, first.tolist(), SKY, "first map"),
            (6.6, x.tolist(), "white", "input"),
            (9.0, second.tolist(), ORANGE, "second map"),
            (12.8, hidden.tolist(), "white", "hidden"),
            (15.2, out.tolist(), "white", "output"),
        )
        signs = ((3.4, "·"), (6.2, "·"), (8.3, "="), (12.4, "·"), (14.5, "="))
        for left, rows, color, name in places:
            _table(above, left, rows, color, name)
        for place, sign in signs:
            above.text(place, 0, sign, ha="center", va="center", fontsize=20)
        for left, rows, color, name in (
            (3.6, product.tolist(), GREEN, "second · first"),
            (6.6, x.tolist(), "white", "input"),
            (9.0, out.tolist(), "white", "output"),
        ):
            _table(below, left, rows, color, name)
        for place, sign in ((6.1, "·"), (8.3, "=")):
            below.text(place, 0, sign, ha="center", va="center", fontsize=20)
        below.text(10.7, 0, "one map,\nthe same output", va="center", fontsize=13)
        for axes, reach in ((above, 1.5), (below, 1.0)):
            axes.set_xlim(-0.2, 16.6)
            axes.set_ylim(-reach - 1, reach + 0.1)
            axes.set_aspect("equal")
            axes.set_axis_off()

    alt = (
        f"Above: the first map {FIRST} takes the input {INPUT} to {hidden.flatten().tolist()}; the "
        f"second map {SECOND} takes that to {out.flatten().tolist()}. Below: one map, the product "
        f"{product.tolist()}, takes {INPUT} to the same {out.flatten().tolist()}."
    )
    return draw(plot, (8.4, 4.0), alt, "Two linear maps in a row are one linear map.")


def share_below() -> Picture:
    """The bell curve with the area left of 1, and that area for every x."""
    x = torch.linspace(-4, 4, 321, dtype=torch.float64)
    bell = torch.exp(-x.square() / 2) / (2 * torch.pi) ** 0.5
    share = torch.special.ndtr(x)
    marked = [
        (place, torch.special.ndtr(torch.tensor(float(place))).item()) for place in range(-2, 3)
    ]

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        left.plot(x.tolist(), bell.tolist(), color=INK, linewidth=2)
        below = x <= 1
        left.fill_between(
            x[below].tolist(),
            bell[below].tolist(),
            color=SKY,
            alpha=0.6,
            hatch="//",
            edgecolor=INK,
        )
        left.text(-0.35, 0.13, "0.84", ha="center", fontsize=15, bbox={"facecolor": PANEL})
        left.set_title("the normal curve: 0.84 of\nits area lies left of 1")
        left.set_yticks([])
        left.spines["left"].set_visible(False)
        right.plot(x.tolist(), share.tolist(), color=BLUE, linewidth=2)
        for place, value in marked:
            right.plot(place, value, "o", color=BLUE, markersize=8)
            shift, side, level = (-0.2, "right", "bottom") if place >= 0 else (0.2, "left", "top")
            right.text(place + shift, value, f"{value:.2f}", ha=side, va=level, fontsize=11)
        right.set_title("that share, for every x")
        right.set_ylim(-0.12, 1.12)
        for axes in (left, right):
            axes.set_xlabel("x")
            axes.set_xticks(range(-4, 5, 2))

    said = ", ".join(f"{value:.2f} at {place}" for place, value in marked)
    alt = (
        "Left: the bell-shaped normal curve, the area left of 1 hatched, which is 0.84 of the "
        f"whole. Right: that share for every x, an S-shaped line from 0 to 1: {said}."
    )
    return draw(plot, (7.6, 3.4), alt, "The share of the normal curve that lies left of x.")


def three_activations() -> Picture:
    """ReLU, GELU and its tanh form in one plot; below, how far the tanh form is off."""
    x = torch.linspace(-4, 4, 321, dtype=torch.float64)
    exact, form = F.gelu(x), F.gelu(x, approximate="tanh")
    off = 1000 * (form - exact)
    far = {place: 1000 * _tanh_form_off(place) for place in (-2.7, -1.4, 1.4, 2.7)}

    def plot(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, height_ratios=(1.5, 1), sharex=True)
        above.plot(
            x.tolist(),
            F.relu(x).tolist(),
            color=VERMILLION,
            linestyle="--",
            label="ReLU",
            linewidth=2,
        )
        above.plot(x.tolist(), exact.tolist(), color=BLUE, label="GELU, exact", linewidth=2.5)
        above.plot(
            x.tolist(),
            form.tolist(),
            color=ORANGE,
            marker="s",
            markevery=(8, 16),
            linestyle="",
            label="GELU, tanh form",
        )
        above.set_ylim(-0.5, 4)
        above.legend(frameon=False, loc="upper left")
        above.axhline(0, color=INK, linewidth=0.8)
        below.plot(x.tolist(), off.tolist(), color=ORANGE, linewidth=2)
        below.axhline(0, color=BLUE, linewidth=2)
        for place, value in far.items():
            below.plot(place, value, "s", color=ORANGE, markeredgecolor=INK)
            room = 0.1 if value > 0 else -0.1
            vertical = "bottom" if value > 0 else "top"
            below.text(place, value + room, f"{value:+.2f}", ha="center", va=vertical, fontsize=11)
        below.set_ylim(-0.7, 0.9)
        below.set_title("tanh form minus exact, in thousandths", fontsize=12)
        below.set_xlabel("x")

    said = ", ".join(f"{value:+.2f} at {place}" for place, value in far.items())
    alt = (
        "Above: ReLU, the exact GELU and its tanh form, x from -4 to 4. ReLU is 0 left of zero and "
        "x right of it. GELU is a smooth curve near it, lowest at -0.75 with -0.17; the squares of "
        "the tanh form lie on its line. Below: the tanh form minus the exact one, in thousandths: "
        f"{said}."
    )
    return draw(plot, (7.6, 5.0), alt, "Above the functions, below their difference, magnified.")


def _tanh_form_off(place: float) -> float:
    x = torch.tensor(place, dtype=torch.float64)
    return (F.gelu(x, approximate="tanh") - F.gelu(x)).item()


def inside_feed_forward() -> Picture:
    """The steps of the feed-forward network for one token."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        boxes = (
            (1.9, "input\nprojection", SKY, 1.7),
            (4.5, "GELU", ORANGE, 1.2),
            (6.4, "dropout", "white", 1.3),
            (8.9, "output\nprojection", SKY, 1.7),
            (11.2, "dropout", "white", 1.3),
        )
        ends = [0.0, *(x + side * width / 2 for x, _, _, width in boxes for side in (-1, 1)), 13.0]
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            arrow(axes, (start + 0.06, 0), (end - 0.06, 0))
        for x, text, color, width in boxes:
            box(axes, x, 0, text, color, width, 0.84)
        for x, text in (
            (0.45, "C"),
            (3.3, "F"),
            (5.43, "F"),
            (7.55, "F"),
            (10.2, "C"),
            (12.5, "C"),
        ):
            axes.text(x, 0.2, text, ha="center", va="bottom", fontsize=13)
        axes.set_xlim(-0.2, 13.2)
        axes.set_ylim(-0.8, 0.8)
        axes.set_axis_off()

    alt = (
        "A row of boxes that a token goes through: C features, input projection, F features, GELU, "
        "dropout, still F features, output projection, C features, dropout, C features."
    )
    return draw(plot, (8.4, 1.5), alt, "Widen, bend, narrow: one token's way through.")


def inside_swiglu() -> Picture:
    """The steps of SwiGLU for one token: two projections side by side."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        arrow(axes, (0, 0), (0.9, 0))
        for y in (0.8, -0.8):
            arrow(axes, (0.9, 0), (1.6, y))
        box(axes, 2.6, 0.8, "gate\nprojection", GREEN, 1.8, 0.84)
        box(axes, 2.6, -0.8, "up\nprojection", SKY, 1.8, 0.84)
        arrow(axes, (3.6, 0.8), (4.6, 0.8))
        box(axes, 5.2, 0.8, "SiLU", ORANGE, 1.1, 0.84)
        arrow(axes, (5.85, 0.8), (7.15, 0.15))
        arrow(axes, (3.6, -0.8), (7.15, -0.15))
        axes.text(7.4, 0, "×", ha="center", va="center", fontsize=24)
        arrow(axes, (7.7, 0), (9.0, 0))
        box(axes, 10.0, 0, "output\nprojection", SKY, 1.8, 0.84)
        arrow(axes, (11.0, 0), (12.3, 0))
        for x, y, text in ((0.4, 0.2, "C"), (4.1, 1, "F"), (5.0, -1.0, "F"), (8.3, 0.2, "F")):
            axes.text(x, y, text, ha="center", va="bottom", fontsize=13)
        axes.text(11.6, 0.2, "C", ha="center", va="bottom", fontsize=13)
        axes.set_xlim(-0.2, 12.5)
        axes.set_ylim(-1.45, 1.45)
        axes.set_axis_off()

    alt = (
        "Boxes that a token goes through. C features go into two projections side by side, each to "
        "F features. The gate projection's go through SiLU. They are multiplied by the up "
        "projection's, number by number, and the output projection brings the F products back to "
        "C features."
    )
    return draw(plot, (8.0, 2.3), alt, "SwiGLU: the gate decides how much of the rest passes.")


def who_moves() -> Picture:
    """One token changed, and how far each output moves: feed-forward, and with an average."""
    length, width, hidden, changed = 5, 6, 24, 2
    generator = torch.Generator().manual_seed(0)

    def weights(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    into, out, tokens = weights(width, hidden), weights(hidden, width), weights(length, width)
    moved = tokens.clone()
    moved[changed] = weights(width)

    def network(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ into) @ out / hidden

    def mixing(x: torch.Tensor) -> torch.Tensor:
        return network(x + x.mean(dim=0))

    panels = (
        ("feed-forward network", (network(moved) - network(tokens)).abs()),
        ("with an average over the tokens", (mixing(moved) - mixing(tokens)).abs()),
    )
    totals = [change.mean(dim=-1).tolist() for _, change in panels]

    def plot(figure: Figure) -> None:
        top = max(change.max().item() for _, change in panels)
        for axes, (title, change), total in zip(figure.subplots(1, 2), panels, totals, strict=True):
            axes.imshow(change.tolist(), cmap="cividis_r", vmin=0, vmax=top, aspect="auto")
            for token, mean in enumerate(total):
                axes.text(width - 0.3, token, number(mean), va="center", fontsize=12)
            names = [f"token {one}" + (" ►" if one == changed else "") for one in range(length)]
            axes.set_yticks(range(length), names)
            axes.set_xticks([])
            axes.set_xlabel("features")
            axes.set_title(title, fontsize=12)
            for spine in axes.spines.values():
                spine.set_visible(False)

    said = [", ".join(number(one) for one in total) for total in totals]
    alt = (
        "Two grids of 5 tokens by 6 features: how far each output moves when token 2 alone is "
        f"changed. Feed-forward network, mean per token: {said[0]}: the row of token 2 moves and "
        f"no other. With an average over the tokens: {said[1]}: every row moves."
    )
    caption = "Token 2 was changed. Dark: the output moved far. Right: a token's mean."
    return draw(plot, (8.4, 3.2), alt, caption)


# What a network can bend

REACH = 3.0


def _target(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(2.2 * x) + 0.35 * x


def _bent(hidden: int, activation: str) -> tuple[list[float], list[float], list[float], float]:
    """Places, the curve, the best fit with `hidden` units on it, and its mean distance.

    Each unit bends at its own place, evenly spaced; the output projection is the best there is.
    """
    x = torch.linspace(-REACH, REACH, 241, dtype=torch.float64)
    places = torch.linspace(-REACH, REACH, hidden + 2, dtype=torch.float64)[1:-1]
    steepness = (hidden + 1) / (2 * REACH)
    units = ACTIVATIONS[activation](steepness * (x[:, None] - places))
    columns = torch.cat([units, torch.ones_like(x)[:, None]], dim=1)
    target = _target(x)
    best = torch.linalg.lstsq(columns, target[:, None], driver="gelsd").solution
    fit = (columns @ best).flatten()
    return places.tolist(), target.tolist(), fit.tolist(), (fit - target).abs().mean().item()


def _fit(axes: Axes, hidden: int, activation: str) -> str:
    places, target, fit, off = _bent(hidden, activation)
    x = torch.linspace(-REACH, REACH, 241).tolist()
    axes.plot(x, target, color=INK, linestyle="--", linewidth=1.5, label="wanted")
    axes.plot(x, fit, color=BLUE, linewidth=2.5, label="network")
    if activation != "none":
        axes.plot(places, [-2.6] * hidden, "^", color=ORANGE, markeredgecolor=INK, label="bends")
    units = "1 hidden unit" if hidden == 1 else f"{hidden} hidden units"
    name = "no activation" if activation == "none" else activation
    axes.set_title(f"{units}, {name}:\n{off:.2f} away", fontsize=12)
    axes.set_ylim(-2.9, 2.9)
    axes.set_xlabel("input feature")
    return f"{units}, {name}: {off:.2f} away on average"


def what_it_can_bend(hidden: int = 4, activation: str = "GELU") -> Picture | WidgetWithPicture:
    """A curve, and how near a network of that width and activation comes; still without widgets."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}; got {activation!r}")
    still = _beside_a_straight_one(hidden, activation)
    return WidgetWithPicture(_explorer(hidden, activation), still) if widgets_run() else still


def _beside_a_straight_one(hidden: int, activation: str) -> Picture:
    said: list[str] = []

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        said.append(_fit(left, hidden, "none"))
        said.append(_fit(right, hidden, activation))
        right.legend(frameon=False, loc="upper left", fontsize=11)
        left.set_ylabel("output feature")

    picture = draw(plot, (7.6, 3.6), "", "Dashed: the curve that is wanted. Line: the network.")
    picture.alt = f"Two charts of a wavy curve and a network's nearest to it. {'; '.join(said)}."
    return picture


def _bend(hidden: int, activation: str) -> Picture:
    said: list[str] = []

    def plot(figure: Figure) -> None:
        # Fixed places: a panel that shifts under the reader's hand looks like a change.
        figure.subplots_adjust(left=0.11, right=0.98, bottom=0.15, top=0.86)
        axes = figure.subplots()
        said.append(_fit(axes, hidden, activation))
        axes.set_ylabel("output feature")
        axes.legend(frameon=False, loc="upper left", fontsize=11)

    picture = draw(plot, (6.4, 3.8), "", "", layout=None)
    picture.alt = f"A wavy curve and a network's nearest to it. {said[0]}."
    picture.caption = f"{said[0]}."
    return picture


def _explorer(hidden: int, activation: str) -> Any:
    import ipywidgets

    widths = sorted({1, 2, 4, 8, 16, 32, hidden})
    controls = {
        "hidden width": ipywidgets.SelectionSlider(options=widths, value=hidden),
        "activation": ipywidgets.ToggleButtons(options=list(ACTIVATIONS), value=activation),
    }
    controls["activation"].style.button_width = "90px"
    return explorer(_bend, controls)


# Counting


def _network(width: int, hidden: int) -> int:
    return 2 * width * hidden + width + hidden


def _attention(width: int) -> int:
    return 4 * width * width + 4 * width


def where_parameters_are() -> Picture:
    """Parameters of attention and feed-forward network, against F and against C."""
    ratios, width = list(range(1, 9)), 768
    names = {ratio: f"{ratio}C" if ratio > 1 else "C" for ratio in ratios}
    widths = [256, 512, 768, 1024, 1536, 2048]
    by_hidden = [_network(width, ratio * width) / 1e6 for ratio in ratios]
    by_width = [_network(one, 4 * one) / 1e6 for one in widths]
    attention = [_attention(one) / 1e6 for one in widths]
    fixed = _attention(width) / 1e6

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        left.bar(ratios, by_hidden, color=ORANGE, hatch="//", edgecolor=INK, label="feed-forward")
        left.axhline(fixed, color=BLUE, linewidth=2.5, label=f"attention, {number(fixed, 1)}")
        for ratio, value in zip(ratios, by_hidden, strict=True):
            if ratio in (1, 2, 4, 8):
                left.text(ratio, value + 0.1, number(value, 1), ha="center", fontsize=11)
        left.set_xticks(ratios, list(names.values()))
        left.set_xlabel("hidden width F, at C = 768")
        left.set_ylabel("million parameters")
        left.set_ylim(0, 12.5)
        right.plot(widths, by_width, color=ORANGE, marker="s", linewidth=2, label="feed-forward")
        right.plot(widths, attention, color=BLUE, marker="o", linewidth=2, label="attention")
        for values in (by_width, attention):
            right.text(2110, values[-1], number(values[-1], 1), va="center", fontsize=11)
        right.set_xticks([256, 768, 1536, 2048])
        right.set_xlabel("width C, at F = 4C")
        right.set_xlim(150, 2450)
        right.set_ylim(0, 38)
        for axes in (left, right):
            axes.legend(frameon=False, loc="upper left", fontsize=11)

    said = ", ".join(
        f"{value:.1f} at {names[ratio]}" for ratio, value in zip(ratios, by_hidden, strict=True)
    )
    pairs = ", ".join(
        f"{network:.1f} and {one:.1f} at C = {width}"
        for width, network, one in zip(widths, by_width, attention, strict=True)
    )
    alt = (
        f"Left: millions of parameters at C = 768. Attention always has {fixed:.1f}. The "
        f"feed-forward network has, by its hidden width: {said}. Right: at F = 4C, feed-forward "
        f"network and attention: {pairs}: always about two to one."
    )
    return draw(plot, (8.4, 3.8), alt, "Where the parameters of a block are.")
