"""Pictures of lesson 05: weights, masks, heads and the cache, as grids of queries and keys."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

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
    number,
    rounded,
    widgets_run,
)

BLOCKED = "#D8D5CC"  # with a hatch, so that it is no shade of a weight
TOKENS = 6  # in the widget


def _cell(
    axes: Axes, row: int, column: int, color: Any, text: str = "", hatch: str = "", size: int = 11
) -> None:
    """One square of a grid whose row 0 is at the top."""
    axes.add_patch(
        Rectangle((column, row), 1, 1, facecolor=color, edgecolor=INK, linewidth=1, hatch=hatch)
    )
    dark = sum(to_rgb(color)) < 1.5
    axes.text(
        column + 0.5,
        row + 0.5,
        text,
        ha="center",
        va="center",
        fontsize=size,
        color="white" if dark else INK,
    )


def _frame(
    axes: Axes, rows: Sequence[str], columns: Sequence[str], title: str, sides: bool = True
) -> None:
    """Names around a grid of that many rows and columns: queries down, keys across."""
    axes.set_xlim(-0.05, len(columns) + 0.05)
    axes.set_ylim(len(rows) + 0.05, -0.05)
    axes.set_aspect("equal")
    axes.set_xticks([place + 0.5 for place in range(len(columns))], columns)
    axes.set_yticks([place + 0.5 for place in range(len(rows))], rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if sides:
        axes.set_xlabel("key: who is read")
        axes.set_ylabel("query: who reads")
    axes.set_title(title)


def _shade(weight: float) -> tuple[float, ...]:
    """From white to blue, for a weight from 0 to 1."""
    return tuple(1 + weight * (part - 1) for part in to_rgb(BLUE))


def _weights_on(axes: Axes, weights: Sequence[Sequence[float]], allowed: torch.Tensor) -> None:
    for row, values in enumerate(weights):
        for column, value in enumerate(values):
            if allowed[row, column]:
                _cell(axes, row, column, _shade(value), number(value))
            else:
                _cell(axes, row, column, BLOCKED, hatch="///")


def _mask_on(axes: Axes, allowed: torch.Tensor, mark: Collection[tuple[int, int]] = ()) -> None:
    for row, column in ((i, j) for i in range(allowed.shape[0]) for j in range(allowed.shape[1])):
        free = bool(allowed[row, column])
        text = "★" if (row, column) in mark else ""
        _cell(axes, row, column, SKY if free else BLOCKED, text, hatch="" if free else "///")


def weights(table: torch.Tensor, words: Sequence[str]) -> Picture:
    """Attention weights (T, T) of a sentence: a row for each token that reads."""
    values = rounded(table, 2)

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        _weights_on(axes, values, torch.ones(table.shape, dtype=torch.bool))
        _frame(axes, words, words, "")

    rows = "; ".join(
        f"«{word}» reads "
        + ", ".join(f"«{key}» {number(one)}" for key, one in zip(words, row, strict=True))
        for word, row in zip(words, values, strict=True)
    )
    alt = f"Grid of attention weights, a row for each token that reads: {rows}."
    return draw(plot, (4.6, 4.2), alt, "Each row sums to 1: a token shares 1 among those it reads.")


def losses(runs: dict[str, Sequence[float]]) -> Picture:
    """The loss of several trainings, step by step, beside the best that guessing can do."""
    colors, lines = (BLUE, VERMILLION, GREEN), ("-", "--", "-.")
    guessing, steps = math.log(10), max(map(len, runs.values()))

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for (name, values), color, line in zip(runs.items(), colors, lines, strict=False):
            axes.plot(values, color=color, linestyle=line, linewidth=2, label=name)
        axes.axhline(guessing, color=INK, linewidth=1, linestyle=":")
        axes.text(steps, guessing + 0.05, "ln 10: a guess among ten digits", ha="right")
        axes.set_xlabel("step")
        axes.set_ylabel("training loss")
        axes.set_ylim(0, 2.8)
        axes.legend(frameon=False, loc="center right", fontsize=11)

    ends = "; ".join(f"{name}: {number(values[-1], 1)} at the end" for name, values in runs.items())
    alt = (
        f"Line chart of the training loss, {steps} steps. {ends}. A dotted line at "
        "2.3, the natural logarithm of 10, is what guessing among ten digits costs."
    )
    return draw(plot, (7.6, 3.2), alt, "Nobody can know the next random digit. One model does.")


def causal_and_padding() -> Picture:
    """Four tokens: the causal mask, two padded tokens on the left, and both together."""
    words = ["pad", "pad", "the", "cat"]
    ones = torch.ones(4, 4, dtype=torch.bool)
    causal, keys = ones.tril(), ones.clone()
    keys[:, :2] = False
    masks = (
        ("causal", causal),
        ("padding", keys),
        ("both", causal & keys),
    )

    def plot(figure: Figure) -> None:
        for axes, (title, mask) in zip(figure.subplots(1, 3), masks, strict=True):
            _mask_on(axes, mask)
            _frame(axes, words, words, title)

    alt = (
        "Three grids, rows read and columns are read, for the tokens pad, pad, the, cat. Causal: "
        "each token may read itself and those before it. Padding: nobody may read the first two "
        "columns. Both: «the» may read itself, «cat» may read «the» and itself, and the two pad "
        "rows may read nobody."
    )
    caption = "Blue: may be read. Hatched: blocked. In the third grid the pad rows read nobody."
    return draw(plot, (8.4, 3.0), alt, caption)


# The widget

_SCORES = torch.tensor(
    [
        [0.4, 1.1, -0.3, 0.8, 0.1, -0.6],
        [1.2, 0.2, 0.6, -0.9, 0.5, 0.3],
        [-0.4, 0.9, 0.1, 0.7, -0.2, 1.3],
        [0.6, -0.7, 1.4, 0.3, 0.9, -0.1],
        [0.0, 0.8, -0.5, 1.1, 0.4, 0.6],
        [0.9, 0.1, 0.7, -0.3, 1.0, 0.2],
    ],
    dtype=torch.float64,
)


def _allowed(
    causal: bool, window: int, padding: int, side: str, drawn: Collection[tuple[int, int]]
) -> torch.Tensor:
    """(6, 6): the rules together, and then each drawn cell turned over."""
    place = torch.arange(TOKENS)
    ahead = place - place[:, None]  # how far key j stands after query i
    allowed = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    if causal:
        allowed &= ahead <= 0
    if window:
        allowed &= ahead.abs() < window
    if padding:
        allowed &= (place >= padding) if side == "left" else (place < TOKENS - padding)
    for query, key in drawn:
        allowed[query, key] = ~allowed[query, key]
    return allowed


def _who_sees(allowed: torch.Tensor) -> str:
    def of(row: torch.Tensor) -> str:
        seen = row.nonzero()[:, 0].tolist()
        return ", ".join(map(str, seen)) or "nobody"

    return "; ".join(f"{query} sees {of(row)}" for query, row in enumerate(allowed))


def _mask_and_weights(
    causal: bool, window: int, padding: int, side: str, drawn: Collection[tuple[int, int]]
) -> Picture:
    allowed = _allowed(causal, window, padding, side, drawn)
    table = _SCORES.masked_fill(~allowed, torch.finfo(_SCORES.dtype).min).softmax(-1)
    names = [str(place) for place in range(TOKENS)]

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _mask_on(left, allowed, drawn)
        _frame(left, names, names, "the mask")
        _weights_on(right, rounded(table, 2), allowed)
        _frame(right, names, names, "the weights")

    said = _who_sees(allowed)
    rules = [
        "causal" if causal else "not causal",
        f"a window of {window}" if window else "no window",
        f"{padding} padded on the {side}" if padding else "no padding",
        *([f"{len(drawn)} drawn"] if drawn else []),
    ]
    alt = f"Two grids of six queries and six keys, {', '.join(rules)}. Query {said}."
    return draw(plot, (8.4, 4.2), alt, f"{', '.join(rules).capitalize()}. Query {said}.")


def who_sees_whom(
    causal: bool = True,
    window: int = 0,
    padding: int = 0,
    side: str = "left",
    drawn: Collection[tuple[int, int]] = (),
) -> Picture | WidgetWithPicture:
    """A mask put together from rules and drawn cells (query, key), and the weights under it."""
    still = _mask_and_weights(causal, window, padding, side, drawn)
    if not widgets_run():
        return still
    return WidgetWithPicture(_builder(causal, window, padding, side, drawn), still)


def _builder(
    causal: bool, window: int, padding: int, side: str, drawn: Collection[tuple[int, int]]
) -> Any:
    import ipywidgets  # here, so that the pictures need no ipywidgets

    wide = ipywidgets.Layout(width="420px")
    rules = (
        ipywidgets.Checkbox(causal, description="causal"),
        ipywidgets.IntSlider(window, min=0, max=TOKENS, description="window", layout=wide),
        ipywidgets.IntSlider(padding, min=0, max=TOKENS, description="padding", layout=wide),
        ipywidgets.ToggleButtons(options=["left", "right"], value=side, description="side"),
    )
    small = ipywidgets.Layout(width="30px", height="26px")
    places = [(query, key) for query in range(TOKENS) for key in range(TOKENS)]
    cells = [
        ipywidgets.ToggleButton(
            place in drawn, tooltip=f"turn over query {place[0]}, key {place[1]}", layout=small
        )
        for place in places
    ]
    board = ipywidgets.GridBox(
        cells, layout=ipywidgets.Layout(grid_template_columns=f"repeat({TOKENS}, 36px)")
    )
    shown = ipywidgets.HTML()

    def show(change: object) -> None:
        chosen = [place for place, cell in zip(places, cells, strict=True) if cell.value]
        shown.value = _mask_and_weights(*(one.value for one in rules), chosen).html()

    for one in (*rules, *cells):
        one.observe(show, names="value")
    show(None)
    said = ipywidgets.Label("Press a cell to turn it over: query down, key across.")
    return ipywidgets.VBox([*rules, said, board, shown])


# Leaks


def _causal_attention(
    blocked: torch.Tensor, after: bool = False
) -> Callable[[torch.Tensor], torch.Tensor]:
    def attend(x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.mT
        lowest = torch.finfo(x.dtype).min
        table = (scores if after else scores.masked_fill(blocked, lowest)).softmax(-1)
        return table.masked_fill(blocked, 0.0) @ x

    return attend


def which_outputs_move() -> Picture:
    """For four causal attentions: which outputs move when one token is changed."""
    length = 5
    ones = torch.ones(length, length, dtype=torch.bool)
    suspects = (
        ("A", _causal_attention(ones.triu(2))),
        ("B", _causal_attention(ones.triu(1), after=True)),
        ("C", _causal_attention(ones.triu(1))),
        ("D", _causal_attention(ones.tril(-1))),
    )
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(length, 4, generator=generator, dtype=torch.float64)
    found = []
    for _, attend in suspects:
        moved = torch.zeros(length, length, dtype=torch.bool)
        for token in range(length):
            changed = x.clone()
            changed[token] += 1.0
            moved[:, token] = ((attend(changed) - attend(x)).abs() > 1e-9).any(dim=-1)
        found.append(moved)
    names = [str(place) for place in range(length)]

    def plot(figure: Figure) -> None:
        for axes, (name, _), moved in zip(figure.subplots(1, 4), suspects, found, strict=True):
            for row, column in ((i, j) for i in range(length) for j in range(length)):
                leak = column > row
                color = (VERMILLION if leak else SKY) if moved[row, column] else "white"
                _cell(axes, row, column, color, "×" if leak and moved[row, column] else "")
            _frame(axes, names, names, name, sides=False)
            axes.set_xlabel("token changed")
        figure.axes[0].set_ylabel("output")

    leaks = [int(moved.triu(1).sum()) for moved in found]
    alt = (
        "Four grids: rows are outputs, columns the token that was changed; a coloured cell moved. "
        "A: each output moves with the next token too. B: every output moves with every later "
        "token. C: outputs move with their own and earlier tokens alone. D: each output moves with "
        "itself and later tokens, never with earlier ones. Cells that leak, right of the diagonal: "
        + ", ".join(f"{name} {count}" for (name, _), count in zip(suspects, leaks, strict=True))
        + "."
    )
    caption = "Coloured: the output moves. A cross right of the diagonal: the future leaks."
    return draw(plot, (8.4, 2.7), alt, caption)


# Heads and the cache


def split_into_heads() -> Picture:
    """Three tokens of six features, split into three heads rightly, and cut up wrongly."""
    tokens, heads, width = 3, 3, 2
    colors = (BLUE, ORANGE, GREEN)
    x = torch.arange(tokens * heads * width).reshape(tokens, heads * width)
    right = x.view(tokens, heads, width).transpose(0, 1)
    wrong = x.reshape(heads, tokens, width)

    def put(axes: Axes, table: torch.Tensor, left: float) -> None:
        for row, values in enumerate(table.tolist()):
            for column, value in enumerate(values):
                axes.add_patch(
                    Rectangle(
                        (left + column, row),
                        1,
                        1,
                        facecolor=(*to_rgb(colors[value // 6]), 0.45),
                        edgecolor=INK,
                        hatch=("", "..", "//")[value // 6],
                    )
                )
                axes.text(
                    left + column + 0.5,
                    row + 0.5,
                    str(value),
                    ha="center",
                    va="center",
                    fontsize=11,
                    bbox={"facecolor": PANEL, "edgecolor": "none", "pad": 1},
                )

    def plot(figure: Figure) -> None:
        panels = figure.subplots(1, 3, width_ratios=(6.2, 7.4, 7.4))
        put(panels[0], x, 0)
        panels[0].set_title("(T, C) = (3, 6)")
        for axes, parts, title in (
            (panels[1], right, "view(T, H, D), then\ntranspose: (H, T, D)"),
            (panels[2], wrong, "view(H, T, D):\nwrong"),
        ):
            for head, table in enumerate(parts):
                put(axes, table, head * 2.6)
                axes.text(head * 2.6 + 1, 3.5, f"head {head}", ha="center", fontsize=11)
            axes.set_title(title)
        for axes, right_end in zip(panels, (6.1, 7.3, 7.3), strict=True):
            axes.set_xlim(-0.1, right_end)
            axes.set_ylim(3.8, -0.1)
            axes.set_aspect("equal")
            axes.set_axis_off()

    alt = (
        "Three tokens with six features each, numbered 0 to 17, a colour for each token. Split "
        f"rightly, head 0 holds {right[0].tolist()}, two features of every token, head 1 "
        f"{right[1].tolist()}, head 2 {right[2].tolist()}. Cut up wrongly, head 0 holds "
        f"{wrong[0].tolist()}, all of token 0 and nothing else."
    )
    caption = "Rows are tokens, a colour each. A head needs every token: all three colours."
    return draw(plot, (8.4, 2.1), alt, caption)


def what_the_cache_saves() -> Picture:
    """Which tokens go through the layers at each step of writing, without and with a cache."""
    steps = 5
    names = [str(place) for place in range(steps)]

    def plot(figure: Figure) -> None:
        for axes, cached, title in zip(
            figure.subplots(1, 2),
            (False, True),
            ("without a cache: 15", "with one: 5"),
            strict=True,
        ):
            for step in range(steps):
                for token in range(step + 1):
                    old = cached and token < step
                    _cell(axes, step, token, "white" if old else ORANGE, "kept" if old else "", "")
            _frame(axes, names, names, title, sides=False)
            axes.set_xlabel("token")
            axes.set_ylabel("step")

    alt = (
        "Two triangles of five steps. Without a cache step t computes keys and values of tokens 0 "
        "to t: 15 in all. With one each step computes those of its new token, 5 in all; the others "
        "are kept."
    )
    caption = "Coloured: keys and values computed in this step."
    return draw(plot, (7.2, 3.4), alt, caption)
