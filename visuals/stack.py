"""Pictures of lesson 07: the way up with its shapes, three models, and what grows with what."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from visuals.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    SKY,
    Picture,
    WidgetWithPicture,
    arrow,
    box,
    draw,
    explorer,
    numbers,
    widgets_run,
)

OUTSIDE = "#C8BFE0"  # embedding and head: what knows the vocabulary
PARTS: dict[str, tuple[str, str]] = {  # the colour and hatch of a share, from below
    "embedding": (OUTSIDE, ""),
    "attention": (SKY, "///"),
    "ffn": (ORANGE, "..."),
    "norms": (GREEN, ""),
    "head": (OUTSIDE, "\\\\\\"),
}
SIZES = {"vocab_size": 50, "d_model": 64, "num_heads": 4, "num_layers": 2, "d_ff": 256}


# The way up


def _column(
    axes: Axes, x: float, parts: Sequence[tuple[str, str]], step: float = 1.0, begin: float = 0.0
) -> list[float]:
    """Boxes with arrows between them, from below; the heights of their middles."""
    heights = [begin + step * place for place in range(len(parts))]
    for (text, color), y in zip(parts, heights, strict=True):
        box(axes, x, y, text, color, width=2.8)
    for low, high in zip(heights, heights[1:], strict=False):
        arrow(axes, (x, low + 0.31), (x, high - 0.31), color=BLUE, linewidth=2.5)
    return heights


def from_ids_to_logits() -> Picture:
    """The way of (3, 7) ids through a TinyTransformerEncoder, with letters for the shapes."""
    parts = [
        ("token_embedding", OUTSIDE),
        ("× sqrt(C)", PANEL),
        ("position", GREEN),
        ("blocks[0]", SKY),
        ("blocks[1]", SKY),
        ("final_norm", GREEN),
        ("output_head", OUTSIDE),
    ]
    shapes = ["(B, T) ids", *["(B, T, C)"] * 6, "(B, T, V) logits"]

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        heights = _column(axes, 0, parts)
        top = heights[-1] + 1
        arrow(axes, (0, -1), (0, -0.31), color=BLUE, linewidth=2.5)
        arrow(axes, (0, heights[-1] + 0.31), (0, top), color=BLUE, linewidth=2.5)
        for shape, y in zip(shapes, [-0.7, *(one + 0.5 for one in heights)], strict=True):
            axes.text(1.6, y, shape, va="center")
        axes.set_xlim(-1.6, 4.2)
        axes.set_ylim(-1.1, top + 0.1)
        axes.set_axis_off()

    alt = (
        "Diagram, read from below: ids of shape (B, T) go into token_embedding, times sqrt(C), "
        "position, blocks[0], blocks[1], final_norm; between all of these the shape is (B, T, C). "
        "Then output_head, from which come logits of shape (B, T, V)."
    )
    return draw(plot, (5.2, 5.6), alt, "Only the first step and the last change the shape.")


def three_models() -> Picture:
    """An encoder, a decoder-only model and an encoder-decoder, of the same blocks."""
    encoder = [("embedding", OUTSIDE), ("EncoderBlock", SKY), ("EncoderBlock", SKY)]
    only = [
        ("embedding", OUTSIDE),
        ("DecoderOnlyBlock", SKY),
        ("DecoderOnlyBlock", SKY),
        ("norm", GREEN),
        ("head, tied", OUTSIDE),
    ]
    decoder = [("embedding", OUTSIDE), ("DecoderBlock", ORANGE), ("DecoderBlock", ORANGE)]

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        alone = _column(axes, 0, [*encoder, ("norm", GREEN), ("head", OUTSIDE)])
        _column(axes, 4, only)
        source = _column(axes, 8, [*encoder, ("norm", GREEN)])
        target = _column(axes, 12, [*decoder, ("norm", GREEN), ("head", OUTSIDE)])
        for y in target[1:3]:
            arrow(axes, (9.45, source[3]), (10, source[3]), (10, y), (10.55, y), color=INK)
        for x, below, title in (
            (0, "text", "encoder"),
            (4, "text so far", "decoder-only"),
            (8, "source", "encoder-decoder"),
            (12, "target so far", ""),
        ):
            axes.text(x, -0.65, below, ha="center")
            axes.text(x + (2 if x == 8 else 0), alone[-1] + 0.75, title, ha="center", fontsize=13)
        axes.text(10.4, source[3] + 0.55, "memory", ha="right")
        axes.set_xlim(-1.6, 13.6)
        axes.set_ylim(-1, alone[-1] + 1.1)
        axes.set_axis_off()

    alt = (
        "Three diagrams, read from below. Encoder: a text goes through embedding, EncoderBlock, "
        "EncoderBlock, norm, head. Decoder-only: the text so far goes through embedding, "
        "DecoderOnlyBlock, DecoderOnlyBlock, norm, and a head tied to the embedding. "
        "Encoder-decoder: a source goes through embedding, EncoderBlock, EncoderBlock and norm, "
        "which is the memory; the target so far goes through embedding, DecoderBlock, "
        "DecoderBlock, norm, head, and the memory goes into each DecoderBlock."
    )
    return draw(plot, (9.4, 4.3), alt, "The memory is read in every DecoderBlock, not once.")


# What grows with what


def shares(
    vocab_size: int, d_model: int, num_heads: int, num_layers: int, d_ff: int
) -> dict[str, int]:
    """How many numbers each part of a TinyTransformerEncoder trains."""
    return {
        "embedding": vocab_size * d_model,
        "attention": num_layers * 4 * (d_model * d_model + d_model),
        "ffn": num_layers * (2 * d_model * d_ff + d_ff + d_model),
        "norms": (2 * num_layers + 1) * 2 * d_model,
        "head": d_model * vocab_size + vocab_size,
    }


def _pile(axes: Axes, place: float, found: Mapping[str, int], width: float = 0.7) -> None:
    bottom = 0
    for name, count in found.items():
        color, hatch = PARTS[name]
        axes.add_patch(
            Rectangle(
                (place - width / 2, bottom),
                width,
                count,
                facecolor=color,
                hatch=hatch,
                edgecolor=INK,
                linewidth=0.8,
            )
        )
        bottom += count


def _legend(figure: Figure) -> None:
    made = [
        Rectangle((0, 0), 1, 1, facecolor=color, hatch=hatch, edgecolor=INK, label=name)
        for name, (color, hatch) in PARTS.items()
    ]
    figure.legend(handles=made, loc="outside lower center", ncols=5, frameon=False)


def what_grows() -> Picture:
    """A small model, and the same with one of its sizes doubled, and doubled again."""
    titles = ("vocab_size", "num_layers", "d_ff", "num_heads", "d_model")
    found = {
        name: [shares(**(SIZES | {name: SIZES[name] * times})) for times in (1, 2, 4)]
        for name in titles
    }
    highest = max(sum(one.values()) for piles in found.values() for one in piles)

    def plot(figure: Figure) -> None:
        for axes, (name, piles) in zip(
            figure.subplots(1, 5, sharey=True), found.items(), strict=True
        ):
            for place, pile in enumerate(piles):
                _pile(axes, place, pile)
                total = sum(pile.values())
                axes.text(place, total, f"{total / 1000:.0f}k", ha="center", va="bottom")
            axes.set_title(name)
            axes.set_xlim(-0.6, 2.6)
            axes.set_ylim(0, 1.1 * highest)
            axes.set_xticks(range(3), [str(SIZES[name] * times) for times in (1, 2, 4)])
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
        _legend(figure)

    said = "; ".join(
        f"{name} {', '.join(str(SIZES[name] * times) for times in (1, 2, 4))}: "
        + ", ".join(f"{sum(pile.values()):,}" for pile in piles)
        for name, piles in found.items()
    )
    alt = (
        "Five bar charts of how many numbers a model trains, each with one size doubled and "
        f"doubled again. {said}."
    )
    return draw(plot, (9.4, 3.9), alt, "One size at a time; the others stay as they are.")


def _one_model(vocab_size: int, d_model: int, num_layers: int, factor: int) -> Picture:
    sizes = {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "num_heads": 1,
        "num_layers": num_layers,
        "d_ff": factor * d_model,
    }
    found = shares(**sizes)
    total = sum(found.values())

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        left = 0.0
        for name, count in found.items():
            color, hatch = PARTS[name]
            share = count / total
            axes.barh(0, share, left=left, color=color, hatch=hatch, edgecolor=INK)
            if share > 0.06:
                ground = {"facecolor": PANEL, "edgecolor": "none", "pad": 1.5}
                axes.text(
                    left + share / 2, 0, f"{share:.0%}", ha="center", va="center", bbox=ground
                )
            left += share
        axes.set_xlim(0, 1)
        axes.set_axis_off()
        axes.set_title(f"{total:,} numbers")
        _legend(figure)

    said = ", ".join(f"{name} {count:,}" for name, count in found.items())
    model = f"V = {vocab_size:,}, C = {d_model}, {num_layers} layers, F = {factor * d_model}"
    alt = f"One bar, a model's numbers by part, for {model}: {said}; together {total:,}."
    return draw(plot, (8.4, 2.2), alt, f"{model}.")


def one_model(
    vocab_size: int = 50257, d_model: int = 768, num_layers: int = 12, factor: int = 4
) -> Picture | WidgetWithPicture:
    """Which part holds how much of a model, with a slider for each size."""
    still = _one_model(vocab_size, d_model, num_layers, factor)
    if not widgets_run():
        return still
    return WidgetWithPicture(_explorer(vocab_size, d_model, num_layers, factor), still)


def _explorer(vocab_size: int, d_model: int, num_layers: int, factor: int) -> Any:
    import ipywidgets  # here, so that the pictures need no ipywidgets

    def choice(value: int, *others: int) -> Any:
        options = [(f"{one:,}", one) for one in sorted({value, *others})]
        return ipywidgets.SelectionSlider(options=options, value=value)

    controls = {
        "vocab_size": choice(vocab_size, 50, 1000, 8000, 32000, 50257, 128256),
        "d_model": choice(d_model, 64, 128, 256, 512, 768, 1600, 4096),
        "num_layers": choice(num_layers, 1, 2, 4, 6, 12, 24, 48),
        "d_ff / d_model": choice(factor, 1, 2, 4, 8),
    }
    return explorer(_one_model, controls)


# Sizes up the stack


def up_the_stack(**sizes: Sequence[float]) -> Picture:
    """How large the stream is behind the embedding and behind each block, for several models."""
    styles = ((BLUE, "o", "-"), (ORANGE, "s", "-."), (GREEN, "v", "--"))
    named = {name.replace("_", " "): list(values) for name, values in sizes.items()}

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for (name, values), (color, marker, line) in zip(named.items(), styles, strict=False):
            axes.plot(values, color=color, marker=marker, linestyle=line, markersize=5)
            last = len(values) - 1
            axes.text(last + 0.2, values[-1], name, color=INK, va="center")
        most = max(len(values) for values in named.values())
        axes.set_xlim(-0.03 * most, 1.3 * most)
        axes.set_xticks(range(0, most, 1 + most // 10))
        axes.set_ylim(bottom=0)
        # Labels of other widths after the layout would push the axis' own label off the picture.
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("blocks passed")
        axes.set_ylabel("mean size of a feature")

    said = "; ".join(f"{name}: {numbers(values, 1)}" for name, values in named.items())
    alt = f"A line chart: the mean size of a feature behind the embedding and each block. {said}."
    return draw(plot, (7.2, 3.4), alt, "Root of the mean square, over all tokens and features.")


# Shapes, predicted


def compare(predicted: Mapping[str, object], came: Mapping[str, Sequence[int]]) -> str:
    """One line for each step: what was predicted, what came, and whether they are the same."""
    lines = []
    for name, shape in came.items():
        said = predicted.get(name, "?")
        right = isinstance(said, tuple | list) and tuple(said) == tuple(shape)
        mark = "" if said == "?" else "yes" if right else "no"
        lines.append(f"{name:14} {said!s:16} {tuple(shape)!s:16} {mark}".rstrip())
    return "\n".join(lines)
