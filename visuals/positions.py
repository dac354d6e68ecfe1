"""Pictures of lesson 04: clocks, turning pairs, and what they do to scores."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

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
    draw,
    explorer,
    number,
    numbers,
    widgets_run,
)

WORDS = ("the", "dog", "saw", "the", "cat")


def _frequencies(width: int) -> torch.Tensor:
    return 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def _table(length: int, width: int) -> torch.Tensor:
    angles = torch.arange(length, dtype=torch.float64)[:, None] * _frequencies(width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def _turned(x: torch.Tensor, position: float) -> torch.Tensor:
    """A vector with each pair of neighbours turned, as RoPE turns it."""
    angle = position * _frequencies(x.shape[-1])
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def _heat(axes: Axes, values: torch.Tensor, limit: float = 1.0, colors: str = "PuOr") -> Any:
    return axes.imshow(values.tolist(), cmap=colors, vmin=-limit, vmax=limit, aspect="auto")


def _hand(axes: Axes, angle: float, color: str, line: str = "-", length: float = 1.0) -> None:
    axes.annotate(
        "",
        xy=(length * math.cos(angle), length * math.sin(angle)),
        xytext=(0, 0),
        arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 2.5, "linestyle": line},
    )


def _face(axes: Axes, reach: float = 1.25) -> None:
    axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=INK, linewidth=1))
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_axis_off()


def table_and_clocks() -> Picture:
    """The sinusoidal table as colours, and the clocks that its pairs of columns are."""
    table = _table(32, 16)
    places, pairs = (0, 3, 6), (0, 1, 2, 3)

    def plot(figure: Figure) -> None:
        grid = figure.add_gridspec(3, 5, width_ratios=[3.2, 1, 1, 1, 1])
        heat = figure.add_subplot(grid[:, 0])
        shown = _heat(heat, table)
        heat.set_xlabel("column")
        heat.set_ylabel("position")
        heat.set_xticks(range(0, 16, 2))
        figure.colorbar(shown, ax=heat, ticks=[-1, 0, 1], shrink=0.6)
        for row, place in enumerate(places):
            for pair in pairs:
                axes = figure.add_subplot(grid[row, 1 + pair])
                _face(axes, 1.1)
                _hand(axes, place * _frequencies(16)[pair].item(), BLUE)
                if row == 0:
                    axes.set_title(f"pair {pair}")
                if pair == 0:
                    axes.text(-1.4, 0, f"position {place}", rotation=90, ha="center", va="center")

    turns = "; ".join(
        f"position {place}: {numbers((place * _frequencies(16)[:4]).tolist())}" for place in places
    )
    alt = (
        "Left: the table for 32 positions and 16 columns as colours from -1 to 1. The first "
        "columns change at each row, the last ones hardly at all. Right: pairs 0 to 3 as clocks "
        f"whose hands have turned by these angles, in radians. {turns}."
    )
    return draw(plot, (8.6, 4.6), alt, "A row of the table is a row of clocks, read off.")


def offset_is_a_turn() -> Picture:
    """Two clocks at two pairs of positions: the same offset is the same turn."""
    starts, offset = (1, 4), 2
    clocks = ((0, "pair 0: 1 radian a position"), (1, "pair 1: 0.32 radians a position"))

    def plot(figure: Figure) -> None:
        for axes, (pair, title) in zip(figure.subplots(1, 2), clocks, strict=True):
            _face(axes, 1.35)
            axes.set_title(title)
            speed = _frequencies(16)[pair].item()
            for start, color, line in zip(starts, (BLUE, ORANGE), ("-", "--"), strict=True):
                for place in (start, start + offset):
                    angle = place * speed
                    _hand(axes, angle, color, line)
                    axes.text(
                        1.2 * math.cos(angle),
                        1.2 * math.sin(angle),
                        str(place),
                        ha="center",
                        va="center",
                        color=color if color == BLUE else INK,
                        fontweight="bold",
                    )
                inner = 0.45 if start == starts[0] else 0.6
                arc = [start * speed + offset * speed * step / 30 for step in range(31)]
                axes.plot(
                    [inner * math.cos(one) for one in arc],
                    [inner * math.sin(one) for one in arc],
                    color=color,
                    linewidth=4,
                )

    alt = (
        "Two clock faces, each with hands at positions 1 and 3 and at positions 4 and 6. On the "
        "left, at 1 radian a position, both steps of two positions turn the hand by 2 radians. On "
        "the right, at 0.32 radians a position, both turn it by 0.63 radians."
    )
    return draw(plot, (7.6, 3.8), alt, "From 1 to 3 (solid), from 4 to 6 (dashed): one turn.")


def token_or_position() -> Picture:
    """How alike the rows of a sentence are: with tokens alone, positions alone, and the sum."""
    width = 64
    words = sorted(set(WORDS))
    vectors = _random(len(words), width)
    vectors = vectors / vectors.square().mean(-1, keepdim=True).sqrt()
    tokens = torch.stack([vectors[words.index(word)] for word in WORDS])
    positions = _table(len(WORDS), width) * 2**0.5  # as large as the tokens
    kinds = (("tokens", tokens), ("positions", positions), ("the sum", tokens + positions))
    alike = []
    for _, rows in kinds:
        unit = rows / rows.norm(dim=-1, keepdim=True)
        alike.append(unit @ unit.T)

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 3)
        for axes, (title, _), values in zip(panels, kinds, alike, strict=True):
            axes.imshow(values.tolist(), cmap="Blues", vmin=-0.3, vmax=2.2)
            for i, row in enumerate(values.tolist()):
                for j, value in enumerate(row):
                    axes.text(j, i, number(value, 1), ha="center", va="center", fontsize=11)
            axes.set_title(title)
            axes.set_xticks(range(len(WORDS)), WORDS)
            axes.set_yticks(range(len(WORDS)), WORDS)

    alt = (
        "Three tables of how alike the five tokens of 'the dog saw the cat' are, 1 being the "
        f"same. The two 'the', at positions 0 and 3: tokens {number(alike[0][0, 3].item(), 1)}, "
        f"positions {number(alike[1][0, 3].item(), 1)}, the sum "
        f"{number(alike[2][0, 3].item(), 1)}. 'dog' and 'saw', which are neighbours: tokens "
        f"{number(alike[0][1, 2].item(), 1)}, positions {number(alike[1][1, 2].item(), 1)}, the "
        f"sum {number(alike[2][1, 2].item(), 1)}."
    )
    return draw(plot, (8.6, 3.4), alt, "How alike two tokens are (1: the same vector).")


def _where_trained(trained: int, length: int, width: int) -> tuple[list[float], list[float]]:
    """Errors of two readers of "where is this token?", trained on the first `trained` positions."""
    target = torch.arange(length, dtype=torch.float64) / trained
    learned = _random(length, width).requires_grad_()
    errors = []
    for table in (learned, _table(length, width)):
        reader = torch.zeros(width, 1, dtype=torch.float64, requires_grad=True)
        trainable = [reader, table] if table.requires_grad else [reader]
        # Adam by hand: torch.optim's first step takes seconds to import what it needs.
        means = [torch.zeros_like(one) for one in trainable]
        squares = [torch.zeros_like(one) for one in trainable]
        for step in range(1, 201):
            guess = (table[:trained] @ reader)[:, 0]
            loss = (guess - target[:trained]).square().mean()
            gradients = torch.autograd.grad(loss, trainable)
            for one, mean, square, gradient in zip(
                trainable, means, squares, gradients, strict=True
            ):
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient.square() - square)
                root = (square / (1 - 0.999**step)).sqrt() + 1e-8
                one.data -= 0.05 * mean / (1 - 0.9**step) / root
        with torch.no_grad():
            errors.append((trained * ((table @ reader)[:, 0] - target).abs()).tolist())
    return errors[0], errors[1]


def past_the_trained_length() -> Picture:
    """Learned and fixed rows, read by a small model that was trained on 32 positions, up to 64."""
    trained, length = 32, 64
    learned, fixed = _where_trained(trained, length, 32)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvspan(trained - 0.5, length, color="#EEEEEE", zorder=0)
        axes.plot(learned, color=VERMILLION, marker="^", markevery=4, linewidth=2, label="learned")
        axes.plot(
            fixed, color=BLUE, marker="o", markevery=4, linestyle="--", linewidth=2, label="sines"
        )
        axes.set_xlabel("position")
        axes.set_ylabel("off by (positions)")
        axes.legend(frameon=False, loc="upper left")
        axes.text(trained + 0.5, axes.get_ylim()[1] * 0.93, "never seen in training", fontsize=11)
        axes.set_xlim(0, length - 1)

    alt = (
        "Line chart: how many positions a small model is off when it says where a token stands. "
        f"It was trained on positions 0 to 31. There both tables are off by less than "
        f"{max(*learned[:trained], *fixed[:trained]):.1f}. On positions 32 to 63 the learned table "
        f"is off by {mean(learned[trained:]):.0f} on average, and jumps from one position to the "
        f"next; the sinusoidal one is off by {mean(fixed[trained:]):.0f}, and drifts smoothly."
    )
    return draw(plot, (7.6, 3.6), alt, "Trained on 32 positions, asked about 64.")


def dot_product_against_offset() -> Picture:
    """The dot product of a query and a key at several places: turned (RoPE), and added (sines)."""
    width, starts = 16, (0, 7, 40)
    query, key = _random(2, width)
    offsets = range(0, 31)
    rows = _table(max(starts) + 31, width)

    def scores(start: int, turned: bool) -> list[float]:
        if turned:
            return [
                (_turned(query, start) @ _turned(key, start + offset)).item() for offset in offsets
            ]
        return [((query + rows[start]) @ (key + rows[start + one])).item() for one in offsets]

    found = {turned: [scores(start, turned) for start in starts] for turned in (True, False)}

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, turned in zip(panels, (True, False), strict=True):
            for values, start, color, marker, size in zip(
                found[turned],
                starts,
                (SKY, ORANGE, BLUE),
                ("o", "s", "^"),
                (13, 9, 5),
                strict=True,
            ):
                axes.plot(
                    offsets,
                    values,
                    color=color,
                    marker=marker,
                    markersize=size,
                    markevery=3,
                    linewidth=2,
                    label=f"query at {start}",
                )
            axes.set_title("turned (RoPE)" if turned else "added (sinusoids)")
            axes.set_xlabel("offset of the key")
        panels[0].set_ylabel("dot product")
        panels[0].legend(frameon=False, fontsize=11)

    at_five = {turned: [values[5] for values in found[turned]] for turned in (True, False)}
    alt = (
        "Two line charts of a dot product against the offset of the key, for a query at positions "
        "0, 7 and 40. With RoPE the three lines are one: at offset 5 they are "
        f"{numbers(at_five[True])}. With added sinusoids they are three: {numbers(at_five[False])}."
    )
    return draw(plot, (8.4, 3.6), alt, "Where the query stands does not matter to RoPE.")


def two_pairings() -> Picture:
    """Which features turn together: neighbours, or the two halves."""
    width = 8
    kinds = (
        ("neighbours (this course): (0, 1), (2, 3), …", [(i, i + 1) for i in range(0, width, 2)]),
        ("halves: (0, 4), (1, 5), …", [(i, i + width // 2) for i in range(width // 2)]),
    )
    colors = (BLUE, ORANGE, GREEN, VERMILLION)

    def plot(figure: Figure) -> None:
        for axes, (title, pairs) in zip(figure.subplots(2, 1), kinds, strict=True):
            for (one, other), color in zip(pairs, colors, strict=True):
                for place in (one, other):
                    axes.add_patch(
                        Rectangle((place - 0.4, 0), 0.8, 0.7, facecolor=color, edgecolor=INK)
                    )
                    axes.text(
                        place,
                        0.35,
                        str(place),
                        ha="center",
                        va="center",
                        bbox={"facecolor": PANEL, "edgecolor": "none", "pad": 2},
                    )
                axes.add_patch(
                    FancyArrowPatch(
                        (one, 0.75),
                        (other, 0.75),
                        connectionstyle="arc3,rad=-0.35",
                        arrowstyle="-",
                        linewidth=2.5,
                        color=color,
                    )
                )
            axes.set_xlim(-0.7, width - 0.3)
            axes.set_ylim(-0.1, 1.85)
            axes.set_axis_off()
            axes.set_title(title, loc="left")

    alt = (
        "Two rows of 8 features with arcs between those that turn together. Neighbours: 0 and 1, "
        "2 and 3, 4 and 5, 6 and 7. Halves: 0 and 4, 1 and 5, 2 and 6, 3 and 7. The first pair is "
        "the fastest in both."
    )
    return draw(plot, (7.2, 3.8), alt, "Both are called RoPE.")


def alibi_by_head() -> Picture:
    """ALiBi's bias for four heads."""
    length, exponents = 8, (2, 4, 6, 8)
    place = torch.arange(length)
    distance = (place[:, None] - place).abs().double()
    biases = [-(2.0**-one) * distance for one in exponents]

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 4, sharey=True)
        for head, (axes, bias, one) in enumerate(zip(panels, biases, exponents, strict=True)):
            shown = axes.imshow(bias.tolist(), cmap="cividis", vmin=biases[0].min().item(), vmax=0)
            axes.set_title(f"head {head + 1}\nslope 1/{2**one}")
            axes.set_xlabel(f"key j\n(corner: {number(bias[0, 7].item())})")
            axes.set_xticks(range(0, length, 2))
            axes.set_yticks(range(0, length, 2))
        panels[0].set_ylabel("query i")
        figure.colorbar(shown, ax=panels, shrink=0.7)

    alt = (
        "Four squares of 8 by 8, one for each head, 0 on the diagonal and lower the farther from "
        "it. In the far corner, at distance 7, the bias is "
        + ", ".join(number(bias[0, 7].item()) for bias in biases)
        + "."
    )
    return draw(plot, (8.6, 3.1), alt, "The first head sees its neighbours, the last almost all.")


def four_side_by_side() -> Picture:
    """What each scheme makes of a distance, on the same axis."""
    width, offsets = 64, list(range(0, 33))
    rows = _table(33, width)
    sines = [(rows[0] @ rows[one]).item() / (width / 2) for one in offsets]
    chance = _random(33, width)
    random_rows = [
        (chance[0] @ chance[one]).item() / (chance[0] @ chance[0]).item() for one in offsets
    ]
    ones = torch.ones(width, dtype=torch.float64)
    turned = [(ones @ _turned(ones, one)).item() / width for one in offsets]
    slopes = (1 / 2, 1 / 16, 1 / 256)

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 4)
        for axes, values, title, color, marker in (
            (panels[0], sines, "sinusoidal", BLUE, "o"),
            (panels[1], random_rows, "learned,\nbefore training", VERMILLION, "^"),
            (panels[2], turned, "RoPE", GREEN, "s"),
        ):
            axes.plot(offsets, values, color=color, marker=marker, markevery=4, linewidth=2)
            axes.set_title(title)
            axes.set_ylim(-0.4, 1.1)
        for slope, color, marker in zip(slopes, (ORANGE, BLUE, INK), ("v", "o", "s"), strict=True):
            panels[3].plot(
                offsets,
                [-slope * one for one in offsets],
                color=color,
                marker=marker,
                markevery=4,
                linewidth=2,
                label=f"1/{round(1 / slope)}",
            )
        panels[3].set_title("ALiBi")
        panels[3].legend(frameon=False, fontsize=10, title="slope", title_fontsize=10)
        for axes in panels:
            axes.set_xlabel("distance")

    alt = (
        "Four line charts against the distance of two tokens, 0 to 32. Sinusoidal: the dot product "
        f"of two rows falls from 1 to {number(sines[4])} at distance 4 and {number(sines[32])} at "
        f"32. Learned, before training: any other row is near 0, {number(random_rows[4])} at "
        f"distance 4. RoPE with a query and a key of ones: 1, {number(turned[4])} at 4, "
        f"{number(turned[32])} at 32. ALiBi: straight lines down to -16, -2 and -0.12 at 32."
    )
    return draw(plot, (9.4, 3.1), alt, "Left three: likeness. Right: what is added to the score.")


# The widget: a query and a key, one pair of each, turned by their positions.

QUERY_ANGLE, KEY_ANGLE = 0.4, 1.0  # radians, before anything turns


def _score(offset: float, frequency: float) -> float:
    return math.cos(KEY_ANGLE - QUERY_ANGLE + offset * frequency)


def turning_pair(
    position: int = 3, offset: int = 2, frequency: float = 0.3
) -> Picture | WidgetWithPicture:
    """A query's pair and a key's pair turned by RoPE, and their dot product."""
    still = _turning(position, offset, frequency)
    return (
        WidgetWithPicture(_explorer(position, offset, frequency), still) if widgets_run() else still
    )


def _turning(position: int, offset: int, frequency: float) -> Picture:
    query = QUERY_ANGLE + position * frequency
    key = KEY_ANGLE + (position + offset) * frequency
    score = _score(offset, frequency)
    said = (
        f"query at position {position} turned by {number(position * frequency)}; "
        f"key at position {position + offset} turned by {number((position + offset) * frequency)}; "
        f"dot product {number(score)}"
    )

    def plot(figure: Figure) -> None:
        # Fixed places: panels that shift under the reader's hand look like a change.
        figure.subplots_adjust(left=0.02, right=0.98, bottom=0.17, top=0.88, wspace=0.25)
        left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 1.3]})
        _face(left, 1.45)
        for angle, start, color, line, name in (
            (query, QUERY_ANGLE, BLUE, "-", "q"),
            (key, KEY_ANGLE, VERMILLION, "--", "k"),
        ):
            left.plot(
                [0, math.cos(start)],
                [0, math.sin(start)],
                color=color,
                linestyle=":",
                linewidth=1.5,
            )
            _hand(left, angle, color, line)
            left.text(
                1.22 * math.cos(angle),
                1.22 * math.sin(angle),
                name,
                color=color,
                fontweight="bold",
                fontsize=15,
                ha="center",
                va="center",
            )
        left.set_title("dotted: before turning", fontsize=12)
        reach = [0.1 * step for step in range(-100, 101)]
        right.plot(reach, [_score(one, frequency) for one in reach], color=INK, linewidth=1.5)
        right.plot([offset], [score], color=ORANGE, marker="o", markersize=13, markeredgecolor=INK)
        right.axhline(0, color=INK, linewidth=0.8)
        right.set_ylim(-1.25, 1.25)
        right.set_xlabel("offset of the key")
        right.set_title("dot product", fontsize=12)

    alt = f"A clock face with two hands, and a curve with one marked point: {said}."
    return draw(plot, (7.6, 3.3), alt, f"{said}.", layout=None)


def _explorer(position: int, offset: int, frequency: float) -> Any:
    import ipywidgets

    slow_to_fast = {"min": -3, "max": 0, "step": 0.1, "readout_format": ".3f"}
    controls = {
        "position": ipywidgets.IntSlider(position, min=0, max=20),
        "offset": ipywidgets.IntSlider(offset, min=-10, max=10),
        "frequency": ipywidgets.FloatLogSlider(frequency, **slow_to_fast),
    }
    return explorer(_turning, controls)
