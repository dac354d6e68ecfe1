"""Pictures of lesson 06: the stream and what is written on it, three orders, and five patients."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import nn
from torch.nn import functional as F

from visuals.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    SKY,
    Picture,
    arrow,
    box,
    draw,
    numbers,
)

BLOCKED = "#D8D5CC"
PARTS = {"norm": GREEN, "attention": SKY, "ffn": ORANGE}  # the colour of a box, by its kind
STEP, SIDE = 0.9, 2.1  # between two boxes of a diagram, and from its stream to its branches


# Diagrams: a stream that goes up, and branches beside it

Branch = Sequence[tuple[str, str]]  # boxes from below, each with its kind


def _plus(axes: Axes, y: float) -> None:
    axes.plot(0, y, marker="o", markersize=19, color=PANEL, markeredgecolor=INK, zorder=3)
    axes.text(0, y - 0.03, "+", ha="center", va="center", fontsize=16, zorder=4)


def _diagram(axes: Axes, title: str, parts: Sequence[Branch | str], top: float) -> None:
    """`parts` from below: a branch is a list of boxes, a word is a norm on the stream itself."""
    y, begin = 0.0, 0.0
    for part in parts:
        if isinstance(part, str):
            arrow(axes, (0, begin), (0, y + 0.4), color=BLUE, linewidth=4)
            box(axes, 0, y + 0.7, part, GREEN, width=1.1)
            begin = y + 0.98
            y = begin + 0.1
            continue
        heights = [y + 1.0 + STEP * place for place in range(len(part))]
        plus = heights[-1] + 0.75
        arrow(axes, (0, y + 0.3), (SIDE, y + 0.3), (SIDE, heights[0] - 0.32))
        for (text, kind), height in zip(part, heights, strict=True):
            box(axes, SIDE, height, text, PARTS[kind], width=1.7)
        for low, high in zip(heights, heights[1:], strict=False):
            arrow(axes, (SIDE, low + 0.32), (SIDE, high - 0.32))
        arrow(axes, (SIDE, heights[-1] + 0.32), (SIDE, plus), (0.25, plus))
        arrow(axes, (0, begin), (0, plus - 0.2), color=BLUE, linewidth=4)
        _plus(axes, plus)
        begin = plus + 0.2
        y = plus + 0.1
    arrow(axes, (0, begin), (0, top), color=BLUE, linewidth=4)
    axes.text(-0.2, 0.05, "x", ha="right", fontsize=14)
    axes.set_xlim(-0.9, 3.1)
    axes.set_ylim(-0.1, top + 0.1)
    axes.set_axis_off()
    axes.set_title(title)


def two_writes() -> Picture:
    """A block as two writes on the stream: attention's, then the ffn's."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        first = [("ln1", "norm"), ("attention", "attention")]
        second = [("ln2", "norm"), ("ffn", "ffn")]
        _diagram(axes, "", [first, second], 5.9)
        axes.text(3.2, 1.45, "communicate:\ntokens read one another", va="center")
        axes.text(3.2, 4.2, "compute:\neach token by itself", va="center")
        axes.set_xlim(-0.9, 6.2)

    alt = (
        "Diagram, read from below. The stream x goes straight up, through two plus signs. Into the "
        "first goes a branch that reads x through ln1 and attention: here tokens communicate. "
        "Into the second goes a branch that reads the new stream through ln2 and the ffn: here "
        "each token computes by itself."
    )
    return draw(plot, (6.4, 4.6), alt, "Thick: the stream. A block writes on it twice.")


def three_orders() -> Picture:
    """Pre-norm, post-norm and fused: the same parts, and where each stands."""
    panels: tuple[tuple[str, list[Branch | str]], ...] = (
        (
            "TransformerBlock: pre-norm",
            [[("ln1", "norm"), ("self_attn", "attention")], [("ln2", "norm"), ("ffn", "ffn")]],
        ),
        (
            "PostNormBlock: post-norm",
            [[("attn", "attention")], "norm1", [("ff", "ffn")], "norm2"],
        ),
        (
            "FusedBlock: pre-norm",
            [
                [
                    ("ln1", "norm"),
                    ("qkv", "attention"),
                    ("heads", "attention"),
                    ("proj", "attention"),
                ],
                [("ln2", "norm"), ("mlp", "ffn")],
            ],
        ),
    )

    def plot(figure: Figure) -> None:
        for axes, (title, parts) in zip(figure.subplots(1, 3), panels, strict=True):
            _diagram(axes, title, parts, 7.7)
            axes.title.set_fontsize(11)

    alt = (
        "Three diagrams, read from below. TransformerBlock: ln1 and self_attn, a plus sign, ln2 "
        "and ffn, a plus sign; nothing else stands on the stream. PostNormBlock: attn, a plus "
        "sign, norm1 on the stream, ff, a plus sign, norm2 on the stream. FusedBlock: like the "
        "first, with attention taken apart: ln1, qkv, heads, proj, a plus sign, ln2, mlp, a plus "
        "sign."
    )
    return draw(plot, (8.8, 5.4), alt, "The same parts. What differs is where the norms stand.")


# The stream as the reader's own blocks run


def _on_the_stream(block: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The stream after a block's first write, and after its second; (B, T, C) each."""
    seen: list[torch.Tensor] = []
    if hasattr(block, "ln2"):  # pre-norm: what the second norm is given
        block.ln2.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    else:  # post-norm: what the first norm gives
        block.norm1.register_forward_hook(lambda _, given, result: seen.append(result))
    with torch.no_grad():
        result = block(x)
    if len(seen) != 1:
        raise ValueError(f"the norm between the two writes was called {len(seen)} times, not once")
    return seen[0], result


def norms_of_the_stream(
    blocks: Sequence[nn.Module], x: torch.Tensor
) -> tuple[list[float], list[float]]:
    """Mean norm of a token before the first write and after each, and of each write itself.

    Copies of the blocks run, in eval mode, in float64 and on the CPU.
    """
    stream = x.detach().double().cpu()
    sizes, writes = [stream.norm(dim=-1).mean().item()], []
    for block in blocks:
        own = copy.deepcopy(block).double().cpu().eval()
        for after in _on_the_stream(own, stream):
            writes.append((after - stream).norm(dim=-1).mean().item())
            sizes.append(after.norm(dim=-1).mean().item())
            stream = after
    return sizes, writes


def stream(x: torch.Tensor, **stacks: Sequence[nn.Module]) -> Picture:
    """The stream's norm after each write of stacks of blocks, such as `pre_norm=blocks`."""
    styles = ((BLUE, "o", "-"), (ORANGE, "s", "-."), (GREEN, "v", "--"))
    found = {
        name.replace("_", "-"): norms_of_the_stream(blocks, x) for name, blocks in stacks.items()
    }

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        for (name, (sizes, writes)), (color, marker, line) in zip(
            found.items(), styles, strict=False
        ):
            look: dict[str, Any] = {"color": color, "linestyle": line, "linewidth": 1.5}
            left.plot(sizes, marker=marker, markersize=4, label=name, **look)
            shares = [write / size for write, size in zip(writes, sizes, strict=False)]
            places = range(1, len(shares) + 1)
            right.plot(places, shares, **look)
            # Filled: attention wrote. Open: the ffn wrote.
            for begin, face in ((0, color), (1, PANEL)):
                right.plot(
                    places[begin::2],
                    shares[begin::2],
                    marker=marker,
                    linestyle="",
                    color=color,
                    markerfacecolor=face,
                    clip_on=False,  # a silent write stands on the axis, and is seen whole
                    zorder=3,
                )
        left.set_title("size of the stream")
        left.set_ylabel("mean norm of a token")
        left.set_ylim(bottom=0)
        right.set_title("size of each write beside it")
        right.set_ylabel("share of the stream")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.set_xlabel("writes")
        left.legend(frameon=False, loc="lower right", fontsize=11)

    said = "; ".join(
        f"{name}: {numbers(sizes, 1)}, and the writes as shares of it "
        f"{numbers([one / size for one, size in zip(writes, sizes, strict=False)])}"
        for name, (sizes, writes) in found.items()
    )
    alt = (
        "Two line charts. Left, the mean norm of a token before the first write and after each; "
        f"right, the size of each write as a share of the stream. {said}."
    )
    caption = "Right: filled marks are attention's writes, open ones those of the ffn."
    return draw(plot, (8.4, 3.6), alt, caption)


# One projection for three


def three_thirds() -> Picture:
    """How the 3d features of `qkv` are cut: d = 6, three heads."""
    width, heads = 6, 3
    colors = {"q": SKY, "k": ORANGE, "v": GREEN}
    thirds = [(kind, place // 2) for kind in "qkv" for place in range(width)]
    by_head = [(kind, head) for head in range(heads) for kind in "qkv" for _ in range(2)]

    def row(axes: Axes, y: float, cells: list[tuple[str, int]], title: str) -> None:
        for place, (kind, head) in enumerate(cells):
            axes.add_patch(
                Rectangle(
                    (place, y),
                    1,
                    1,
                    facecolor=colors[kind],
                    edgecolor=INK,
                    linewidth=1,
                    hatch=("", "..", "//")[head],
                )
            )
            ground = {"facecolor": PANEL, "edgecolor": "none", "pad": 0.8}
            axes.text(
                place + 0.5,
                y + 0.5,
                f"{kind}{head}",
                ha="center",
                va="center",
                fontsize=10,
                bbox=ground,
            )
        axes.text(0, y - 0.25, title)
        axes.plot([0, 18], [y, y], color=INK, linewidth=1)

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        row(axes, 0, thirds, "here: first the thirds, then each into heads")
        row(axes, 2.2, by_head, "elsewhere: first the heads, then each into three")
        axes.set_xlim(-0.1, 18.1)
        axes.set_ylim(3.3, -0.9)
        axes.set_aspect("equal")
        axes.set_axis_off()

    alt = (
        "Two rows of the 18 features that qkv gives for d = 6 and three heads. Here: "
        + " ".join(f"{kind}{head}" for kind, head in thirds)
        + ": six features of queries, six of keys, six of values, two for each head. Elsewhere: "
        + " ".join(f"{kind}{head}" for kind, head in by_head)
        + ": head 0 with its queries, keys and values, then head 1, then head 2."
    )
    return draw(plot, (8.4, 2.4), alt, "q1: a query feature of head 1. Both have the same shape.")


# Who reads whom, in three architectures


def _grid(
    axes: Axes, allowed: Sequence[Sequence[bool]], rows: Sequence[str], columns: Sequence[str]
) -> None:
    for i, row in enumerate(allowed):
        for j, free in enumerate(row):
            axes.add_patch(
                Rectangle(
                    (j, i),
                    1,
                    1,
                    facecolor=SKY if free else BLOCKED,
                    edgecolor=INK,
                    linewidth=1,
                    hatch="" if free else "///",
                )
            )
    axes.set_xlim(-0.05, len(columns) + 0.05)
    axes.set_ylim(len(rows) + 0.05, -0.05)
    axes.set_aspect("equal")
    axes.set_xticks([place + 0.5 for place in range(len(columns))], columns)
    axes.set_yticks([place + 0.5 for place in range(len(rows))], rows)
    axes.tick_params(length=0, labelsize=10)
    axes.spines[:].set_visible(False)


def three_architectures() -> Picture:
    """Who reads whom in an encoder, a decoder-only model and a decoder, for short sentences."""
    source, target = ["die", "Katze", "pad"], ["the", "cat", "sat", "pad"]
    everyone = [[column != "pad" for column in source] for _ in source]
    back = [[j <= i and one != "pad" for j, one in enumerate(target)] for i in range(len(target))]
    across = [[column != "pad" for column in source] for _ in target]
    panels = (
        ("encoder:\nself-attention", everyone, source, source),
        ("decoder-only:\nself-attention", back, target, target),
        ("decoder:\nself-attention", back, target, target),
        ("decoder:\ncross-attention", across, target, source),
    )

    def plot(figure: Figure) -> None:
        for axes, (title, allowed, rows, columns) in zip(
            figure.subplots(1, 4, width_ratios=(3, 4, 4, 3)), panels, strict=True
        ):
            _grid(axes, allowed, rows, columns)
            axes.set_title(title, fontsize=11)

    alt = (
        "Four grids, rows read and columns are read. Encoder: every token of «die Katze pad» reads "
        "«die» and «Katze». Decoder-only: every token of «the cat sat pad» reads itself and those "
        "before it, and nobody reads «pad». Decoder, self-attention: the same. Decoder, "
        "cross-attention: every token of «the cat sat pad» reads «die» and «Katze»."
    )
    return draw(plot, (8.8, 2.9), alt, "Blue: may be read. Hatched: hidden.")


# Five patients: blocks with one line wrong each


class _Block(nn.Module):
    """A right pre-norm block, each line a method that a patient replaces."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.ln2 = nn.LayerNorm(d_model)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def attend(self, h: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.self_attn(h, h, h, attn_mask=mask, need_weights=False)[0]

    def drop(self, update: torch.Tensor) -> torch.Tensor:
        return F.dropout(update, 0.1, self.training)

    def second(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return h + self.drop(self.ffn(self.ln2(h)))

    def forward(
        self, x: torch.Tensor, blocked_attn_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        h = x + self.drop(self.attend(self.ln1(x), blocked_attn_mask))
        return self.second(x, h)


class _Ash(_Block):
    """One norm used twice."""

    def second(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return h + self.drop(self.ffn(self.ln1(h)))


class _Birch(_Block):
    """Dropout that never stops."""

    def drop(self, update: torch.Tensor) -> torch.Tensor:
        return F.dropout(update, 0.1)


class _Cedar(_Block):
    """The second sum starts from x again."""

    def second(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.ffn(self.ln2(h)))


class _Elm(_Block):
    """Attention in a Python list."""

    def hide(self) -> None:
        layers = [self.self_attn]
        del self.self_attn
        self.layers = layers

    def attend(self, h: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.layers[0](h, h, h, attn_mask=mask, need_weights=False)[0]


class _Fir(_Block):
    """The mask is not passed on."""

    def attend(self, h: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.self_attn(h, h, h, need_weights=False)[0]


PATIENTS = {"ash": _Ash, "birch": _Birch, "cedar": _Cedar, "elm": _Elm, "fir": _Fir}
WRONG_LINES = {"ash": 4, "birch": 6, "cedar": 2, "elm": 7, "fir": 1}  # as the lesson numbers them


def patients(d_model: int, num_heads: int, device: torch.device) -> dict[str, nn.Module]:
    """Five pre-norm blocks by name, with the same weights; one line is wrong in each."""
    blocks: dict[str, nn.Module] = {}
    for name, kind in PATIENTS.items():
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            block = kind(d_model, num_heads).to(device)
        if isinstance(block, _Elm):
            block.hide()  # once it is where it belongs: what is hidden does not move
        blocks[name] = block
    return blocks


def verdict(diagnosis: Mapping[str, object]) -> str:
    """How many of the patients are named right, without saying which."""
    right = sum(diagnosis.get(name) == line for name, line in WRONG_LINES.items())
    return f"{right} of {len(WRONG_LINES)} are right"
