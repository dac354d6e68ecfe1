"""Pictures of lesson 08, the curve that grows while a model trains, and the data it reads."""

import csv
import html
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    number,
    numbers,
    widgets_run,
)

HISTORIES = Path(__file__).resolve().parent.parent / "data" / "lesson_histories.csv"
LONGEST = 16
LINES = ((BLUE, "-"), (VERMILLION, "--"), (GREEN, "-."), (ORANGE, ":"))
PAUSE = 0.5  # seconds between two pictures of a growing curve


class Measured(Picture):
    """A picture of what this run measured; its figure has the class "measured".

    No two runs draw the same, so `autograder build --check` compares its words alone. In a stored
    notebook those say what is shown; to a reader of a running one they say the numbers too.
    """

    def html(self) -> str:
        return super().html().replace("<figure ", '<figure class="measured" ', 1)


def measured(
    plot: Any, size: tuple[float, float], shows: str, found: str, caption: str
) -> Measured:
    """Draw it; `shows` is the same at every run, and `found` is told where the notebook runs."""
    alt = f"{shows} {found}" if widgets_run() else shows
    picture = draw(plot, size, alt, caption)
    return Measured(picture.png, picture.alt, picture.caption)


# The curve


def smooth(losses: Sequence[float]) -> list[float]:
    """Each loss as the mean of about the last ten: single batches jump."""
    mean, found = losses[0], []
    for step, loss in enumerate(losses):
        mean += (loss - mean) / min(step + 1, 10)
        found.append(mean)
    return found


def loss_curve(losses: Sequence[float], steps: int, levels: Mapping[str, float]) -> Measured:
    """The loss step by step, with a line for each of `levels`."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot(losses, color=SKY, linewidth=1)
        if losses:
            axes.plot(smooth(losses), color=BLUE, linewidth=2.5)
        top = max([*losses[:1], *levels.values(), 0.1]) * 1.08
        for (name, level), (_, line) in zip(levels.items(), LINES[1:], strict=False):
            axes.axhline(level, color=INK, linewidth=1, linestyle=line)
            near_the_end = bool(losses) and abs(losses[-1] - level) < top / 6
            side, place = ("left", steps / 99) if near_the_end else ("right", steps)
            axes.text(place, level + top / 80, name, ha=side, fontsize=11)
        axes.set_xlim(0, steps)
        axes.set_ylim(0, top)
        axes.set_xlabel("step")
        axes.set_ylabel("training loss")

    beside = ", ".join(levels)
    shows = f"Line chart of the training loss, up to {steps} steps" + (
        f", beside {beside}." if beside else "."
    )
    heights = "; ".join(f"{name} at {number(level)}" for name, level in levels.items())
    found = f"Now {len(losses)} steps. " + (f"{heights}. " if heights else "")
    if losses:
        found += f"It began at {number(losses[0])} and is at {number(smooth(losses)[-1])}."
    caption = "Pale: each batch. Dark: the mean of about the last ten."
    return measured(plot, (7.6, 3.0), shows, found, caption)


class Curve:
    """The losses of a training, shown while it runs: a progress bar and the curve, as it grows.

    Where no notebook runs, the curve is shown once, at the end.
    """

    def __init__(self, steps: int, **levels: float) -> None:
        self.steps, self.losses = steps, []  # type: int, list[float]
        self._levels = {name.replace("_", " "): level for name, level in levels.items()}
        self._began = self._next = time.monotonic()
        self._place: Any = None
        if widgets_run():
            self._place = display(self._now(), display_id=True)

    def add(self, loss: float) -> None:
        """Note the loss of one more step."""
        self.losses.append(loss)
        now = time.monotonic()
        if self._place is not None and now >= self._next:
            self._place.update(self._now())
            drawing = time.monotonic() - now
            self._next = now + max(PAUSE, 8 * drawing)  # drawing takes an eighth at most

    def show(self) -> list[float]:
        """Show it as it is at the end; returns the losses."""
        picture = loss_curve(self.losses, self.steps, self._levels)
        if self._place is not None:
            self._place.update(picture)
        else:
            display(picture)
        return self.losses

    def stop(self) -> None:
        """Say that it was stopped by hand."""
        print(f"Stopped after {len(self.losses)} steps. The model keeps what it has learned.")

    def _now(self) -> "Growing":
        done, spent = len(self.losses), time.monotonic() - self._began
        left = f", about {spent / done * (self.steps - done):.0f} s left" if done else ""
        said = f"step {done} of {self.steps}{left}; the stop button ends it and loses nothing"
        return Growing(loss_curve(self.losses, self.steps, self._levels), done, self.steps, said)


class Growing:
    """A curve on its way, under a progress bar."""

    def __init__(self, picture: Picture, done: int, steps: int, said: str) -> None:
        self.picture, self.done, self.steps, self.said = picture, done, steps, said

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        bar = (
            f'<progress value="{self.done}" max="{self.steps}" aria-label="steps" '
            f'style="width: 300px; margin: 0 8px"></progress>{html.escape(self.said)}'
        )
        return {"text/plain": self.said, "text/html": f"<div>{bar}</div>{self.picture.html()}"}


def runs(named: Mapping[str, Sequence[float]], level: float, says: str) -> Measured:
    """Several trainings in one chart, beside a `level` that `says` what it is."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for (name, losses), (color, line) in zip(named.items(), LINES, strict=False):
            axes.plot(smooth(losses), color=color, linestyle=line, linewidth=2.5, label=name)
        axes.axhline(level, color=INK, linewidth=1)
        axes.text(max(map(len, named.values())), level + 0.01, says, ha="right", fontsize=11)
        axes.set_ylim(0, level * 1.35)
        axes.set_xlabel("step")
        axes.set_ylabel("training loss")
        axes.legend(frameon=False, fontsize=11, loc="lower left")

    shows = f"Line chart of the training losses of {len(named)} runs: {', '.join(named)}."
    ends = "; ".join(f"{name} {number(smooth(one)[-1])}" for name, one in named.items())
    caption = "Each line: the mean of about the last ten batches."
    return measured(plot, (7.6, 3.6), shows, f"At the end: {ends}.", caption)


# Attention


def attention_of(model: Any, token_ids: torch.Tensor) -> list[torch.Tensor]:
    """The weights (H, T, T) of each block of a DecoderOnlyLM for one sequence (T,)."""
    found: list[torch.Tensor] = []
    # The weights pass through dropout, which changes nothing in eval mode.
    hooks = [
        block.self_attention.dropout.register_forward_hook(
            lambda module, args, output: found.append(output[0].detach().cpu())
        )
        for block in model.blocks
    ]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(token_ids[None])
    finally:
        for hook in hooks:
            hook.remove()
        model.train(training)
    return found


def attention_maps(
    model: Any, token_ids: torch.Tensor, words: Sequence[str], layer: int = 1, head: int = 0
) -> Picture | WidgetWithPicture:
    """Who reads whom in a trained model, by layer and head; a still picture without widgets."""
    found = attention_of(model, token_ids)

    def show(layer: int, head: int) -> Measured:
        table = found[layer][head]

        def plot(figure: Figure) -> None:
            axes = figure.subplots()
            axes.imshow(table.tolist(), cmap="Blues", vmin=0, vmax=1)
            axes.set_xticks(range(len(words)), words)
            axes.set_yticks(range(len(words)), words)
            axes.set_xlabel("key: who is read")
            axes.set_ylabel("query: who reads")

        best = table.max(-1)
        pairs = [
            f"place {place} reads {int(where)} with {number(float(weight))}"
            for place, (weight, where) in enumerate(zip(best.values, best.indices, strict=True))
        ]
        shows = (
            f"Grid of the attention weights of layer {layer}, head {head}, for the tokens "
            f"{' '.join(words)}."
        )
        caption = (
            f"Layer {layer}, head {head}. The darker, the more of its weight a row puts there."
        )
        return measured(plot, (5.4, 4.6), shows, f"{'; '.join(pairs)}.", caption)

    still = show(layer, head)
    if not widgets_run():
        return still
    ipywidgets = import_module("ipywidgets")  # the pictures need none
    controls = {
        "layer": ipywidgets.IntSlider(layer, min=0, max=len(found) - 1),
        "head": ipywidgets.IntSlider(head, min=0, max=len(found[0]) - 1),
    }
    return WidgetWithPicture(explorer(show, controls), still)


# Drawing the next token

WORDS = ("mat", "sofa", "floor", "roof", "moon", "tax")
LOGITS = (2.0, 1.5, 1.0, 0.5, -0.5, -2.0)


def _shares(temperature: float, top_k: int, top_p: float) -> list[float]:
    """What is left of each word, the most likely first; top_k 0 and top_p 1 leave all."""
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    if temperature == 0:
        return [1.0] + [0.0] * (len(WORDS) - 1)
    shares = (logits / temperature).softmax(-1)
    if top_k:
        shares[top_k:] = 0
        shares /= shares.sum()
    shares[shares.cumsum(-1) - shares >= top_p] = 0
    return (shares / shares.sum()).tolist()


def _left(temperature: float, top_k: int, top_p: float) -> Picture:
    before, after = _shares(1.0, 0, 1.0), _shares(temperature, top_k, top_p)

    def plot(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        bars(left, before, (0, 1), color=SKY, hatch="..", title="the model's shares")
        bars(right, after, (0, 1), color=BLUE, hatch="", title="what is drawn from")
        for axes in (left, right):
            axes.set_xticks(range(len(WORDS)), WORDS)

    set_to = f"temperature {temperature:g}, top_k {top_k or 'none'}, top_p {top_p:g}"
    alt = (
        f"Two bar charts of shares for {', '.join(WORDS)}. The model's: {numbers(before)}. With "
        f"{set_to}: {numbers(after)}."
    )
    return draw(plot, (8.4, 3.2), alt, f"«The cat sat on the …» {set_to}: {numbers(after)}.")


def what_is_left(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> Picture | WidgetWithPicture:
    """What temperature, top-k and top-p make of six shares; a still picture without widgets."""
    still = _left(temperature, top_k, top_p)
    if not widgets_run():
        return still
    ipywidgets = import_module("ipywidgets")
    slider = ipywidgets.FloatSlider
    controls = {
        "temperature": slider(temperature, min=0, max=3, step=0.1),
        "top_k": ipywidgets.IntSlider(top_k, min=0, max=len(WORDS)),
        "top_p": slider(top_p, min=0.05, max=1, step=0.05),
    }
    return WidgetWithPicture(explorer(_left, controls), still)


def shifted(words: Sequence[str] = ("the", "cat", "saw", "it")) -> Picture:
    """Which logits are compared with which token."""

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for place, word in enumerate(words):
            last = place == len(words) - 1
            for height, text, color in (
                (0, word, SKY),
                (1, "not used" if last else f"after «{word}»", "white" if last else ORANGE),
            ):
                box = {"boxstyle": "round,pad=0.4", "facecolor": color, "edgecolor": INK}
                axes.text(place, height, text, ha="center", va="center", bbox=box)
            if not last:
                axes.annotate(
                    "",
                    (place + 0.85, 0.25),
                    (place + 0.1, 0.75),
                    arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.5},
                )
        axes.text(-0.9, 0, "token_ids", ha="right", va="center")
        axes.text(-0.9, 1, "logits", ha="right", va="center")
        axes.set_xlim(-1.8, len(words) - 0.4)
        axes.set_ylim(-0.5, 1.5)
        axes.set_axis_off()

    pairs = ", ".join(
        f"those after «{a}» with «{b}»" for a, b in zip(words, words[1:], strict=False)
    )
    alt = (
        f"Two rows, logits above tokens: {', '.join(words)}. Arrows run from each logits to the "
        f"next token: {pairs}. The last logits and the first token have no partner."
    )
    return draw(plot, (8.4, 1.9), alt, "Logits at place t are compared with the token at t + 1.")


# What was written, and how fast


def texts(named: Mapping[str, str], width: int = 72) -> Measured:
    """Texts that a model wrote, one below the other."""

    def lines(text: str) -> list[str]:
        return [
            line[at : at + width]
            for line in text.splitlines()
            for at in range(0, max(len(line), 1), width)
        ]

    rows: list[tuple[str, bool]] = []
    for name, text in named.items():
        rows += [(name, True), *((line, False) for line in lines(text)[:9]), ("", False)]

    def plot(figure: Figure) -> None:
        axes = figure.subplots()
        for place, (row, heading) in enumerate(rows):
            axes.text(
                0,
                -place,
                row.replace("$", r"\$"),
                family="DejaVu Sans" if heading else "DejaVu Sans Mono",
                weight="bold" if heading else "normal",
                va="top",
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(-len(rows), 0)
        axes.set_axis_off()

    shows = f"Texts as the model writes them: {', '.join(named)}."
    found = " ".join(f"{name}: {text}" for name, text in named.items())
    return measured(plot, (8.4, 0.25 * len(rows) + 0.2), shows, found, "Written by the model.")


def speed(lengths: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Measured:
    """Tokens per second against the number of tokens written, from the seconds they took."""

    def rates(times: Sequence[float]) -> list[float]:
        return [length / one for length, one in zip(lengths, times, strict=True)]

    def plot(figure: Figure) -> None:
        axes: Axes = figure.subplots()
        for (name, times), (color, line) in zip(seconds.items(), LINES, strict=False):
            axes.plot(lengths, rates(times), color=color, linestyle=line, marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tokens written")
        axes.set_ylabel("tokens per second")
        axes.legend(frameon=False, fontsize=11)

    shows = (
        f"Line chart of tokens per second for {', '.join(map(str, lengths))} tokens written: "
        f"{', '.join(seconds)}."
    )
    found = "; ".join(f"{name}: {numbers(rates(times), 0)}" for name, times in seconds.items())
    caption = "Measured on this computer, in this run."
    return measured(plot, (7.6, 3.2), shows, f"{found}.", caption)


# What is read


def english() -> str:
    """The help texts on Python's language that every Python installation carries."""
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    return "\n".join(topics.values())


def lesson_histories(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every beginning of a history of two lessons or more, and the lesson that came next.

    The histories (N, 16) have the latest lesson first, so that place 0 is always the last one
    taken, and padding behind; the next lessons are (N,). `split` is "train" or "held out".
    """
    beginnings, following = [], []
    with HISTORIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            taken = [int(lesson) for lesson in row["lessons"].split()]
            if row["split"] == split:
                for place in range(2, len(taken)):
                    latest_first = taken[:place][::-1]
                    beginnings.append(latest_first + [0] * (LONGEST - place))
                    following.append(taken[place])
    return torch.tensor(beginnings), torch.tensor(following)
