"""What the answers of lesson 07 must do.

Where names are promised, expected values come from torch's own parts on the same drawn weights, put
together by the formula in float64. Where names are free, from properties: what moves when one token
is changed, and what stays. Tables of embeddings are asked for ids past their end on the CPU alone:
on a GPU that ends the process.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autograder.checks.block import (
    ENCODER,
    TRANSFORMER,
    later,
    right_encoder,
    right_padded,
    right_transformer,
)
from autograder.checks.masks import valid_tokens
from autograder.checks.positions import waves
from autograder.judge import (
    Exercise,
    Failure,
    Subject,
    close,
    same,
    shape_of,
    short_name,
    untouched,
)
from autograder.judge.properties import (
    DTYPES,
    agrees_in_gradients,
    chunk_by_chunk,
    is_count,
    on_the_cpu,
    owns_its_parameters,
    pair,
    refuses,
)
from autograder.judge.quiz import quiz
from autograder.judge.values import walk

tiny = Exercise("TinyTransformerEncoder")
stack_parameters = Exercise("stack_parameters")
language_model = Exercise("DecoderOnlyLM")
seq2seq = Exercise("Seq2SeqTransformer")
recommender = Exercise("LessonRecommender")
stack_quiz = quiz("stack_quiz", "bdacdba")

DTYPES_BESIDES = [dtype for dtype in DTYPES if dtype != torch.float32]
# Vocabulary, width, heads, layers, hidden width.
SIZES = ((11, 12, 3, 2, 20), (7, 8, 2, 3, 5))
V, C, H, LAYERS, HIDDEN = SIZES[0]
WIDE = (11, 16, 2, 2, 20)  # of a width whose root is exact


# Models whose parts have names


@dataclass(frozen=True)
class Model:
    """One of the two whose names are promised.

    `outside` are the shapes of what stands around the blocks; `inner` our names and shapes of what
    a block holds, `also` torch's names for the same, and `block` is what a block returns.
    """

    exercise: Exercise
    options: dict[str, Any]
    ffn: str
    outside: Callable
    inner: Callable
    also: Callable | None
    block: Callable
    tied: bool

    def names(self, sizes, torch_s=False):
        """Of each block, {our name: (the model's own, shape)}."""
        other = self.also(sizes) if torch_s and self.also else {}
        return [
            {
                ours: (f"blocks.{place}.{other.get(ours, ours)}", shape)
                for ours, shape in self.inner(sizes).items()
            }
            for place in range(sizes[3])
        ]

    def rename(self, module, sizes):
        return module.rename(*(f"blocks.{place}.{self.ffn}" for place in range(sizes[3])))

    def make(self, answer, draw, sizes=SIZES[0], size=0.6, given=None):
        """A model of the answer with drawn weights, as it is made: in training, nothing dropped.

        `given` are its arguments, in place of `sizes`.
        """
        module = a_module(answer, sizes if given is None else given, self.options)
        shapes, names = dict(self.outside(sizes)), self.names(sizes)
        with answer.aside():
            self.rename(module, sizes)
            for one in names:
                shapes |= dict(one.values())
            weights = self.drawn(draw, shapes, size)
            try:
                module.load(**weights)
            except Failure:  # blocks of another make
                found = module.describe(values=False).parameters
                names = self.names(sizes, torch_s=True)
                known = all(name in found for one in names for name, _ in one.values())
                for one in names if known else ():
                    shapes |= dict(one.values())
                shapes = {name: found[name].shape for name in [*shapes, *found] if name in found}
                weights, names = self.drawn(draw, shapes, size), names if known else []
                module.load(**weights)
        return Made(self, module, weights, sizes, names)

    def drawn(self, draw, shapes, size):
        """Weights of order one; a tied head is loaded with what the embedding is."""
        weights = {
            name: size * (draw.normal(*shape) if len(shape) > 1 else draw.gain(*shape))
            for name, shape in shapes.items()
        }
        if self.tied:
            weights["output_head.weight"] = weights["token_embedding.weight"]
        return weights


class Unknown(Exception):
    """A block of the answer's own making that can't be asked like those of lesson 6."""


@dataclass
class Made:
    """A model and the weights loaded into it; `names` is empty where a block's are unknown."""

    model: Model
    module: Subject
    weights: dict[str, torch.Tensor]
    sizes: tuple[int, ...]
    names: list[dict[str, Any]]

    def right(self, ids, *masks, weights=None):
        """The logits it should return: float64, with history."""
        given = self.weights if weights is None else weights
        wide = {name: one.to(ids.device, torch.float64) for name, one in given.items()}
        x, sizes = wide["token_embedding.weight"][ids], of_a_block(self.sizes)
        if self.model is TINY:
            x = x * math.sqrt(sizes[0]) + waves(range(ids.shape[1]), sizes[0]).to(x.device)
        for place in range(self.sizes[3]):
            if not self.names:
                outcome = self.module.attribute(f"blocks.{place}").attempt((x.float(), *masks))
                if not isinstance(outcome.value, torch.Tensor):
                    raise Unknown
                x = outcome.value.double()
                continue
            own = {ours: wide[name] for ours, (name, _) in self.names[place].items()}
            x = self.model.block(own, sizes, x, *masks)
        norm = (wide["final_norm.weight"], wide.get("final_norm.bias"))
        if norm[1] is None:
            x = F.rms_norm(x, x.shape[-1:], norm[0], 1e-6)
        else:
            x = F.layer_norm(x, x.shape[-1:], *norm)
        return F.linear(x, wide["output_head.weight"], wide.get("output_head.bias"))

    def agrees(self, what, got, ids, *masks, rows=None, columns=slice(None), **tolerances):
        """Fail unless `got` are the right logits, in rows of real tokens where masks are given."""
        shape_of(got, (*ids[:, columns].shape, self.sizes[0]), f"{what}: the logits")
        with contextlib.suppress(Unknown):
            right = self.right(ids, *masks).detach()[:, columns].to(got.dtype)
            agree(what, got, right, rows, **tolerances)


def agree(what, got, right, rows=None, **tolerances):
    shape_of(got, right.shape, f"{what}: the logits")
    if rows is not None:
        got, right = (one.masked_fill(~rows[:, :, None], 0.0) for one in (got, right))
    same(got, right, f"{what}: the logits", **({"rtol": 5e-4, "atol": 5e-4} | tolerances))


def shapes_in(value):
    """The trait of a result that is judged by its shape: who drew its numbers does not matter."""
    return walk(value, lambda one: tuple(one.shape) if isinstance(one, torch.Tensor) else one)


def a_module(answer, args, kwargs):
    module = answer.call(args, kwargs, seed=0).value
    if not isinstance(module, Subject):
        raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
    return module


def around(sizes, bias):
    """The shapes of what stands around the blocks."""
    shapes = {"token_embedding.weight": sizes[:2], "output_head.weight": sizes[:2]}
    shapes |= {f"final_norm.{one}": sizes[1:2] for one in ("weight", "bias")}
    return shapes | ({"output_head.bias": sizes[:1]} if bias else {})


def of_a_block(sizes):
    """Of a model's sizes those of its blocks, as lesson 6 has them: width, heads, hidden width."""
    return (*sizes[1:3], sizes[4])


def torch_s_names(sizes):
    """Of a TransformerBlock's names those of an nn.TransformerEncoderLayer."""
    width, heads, hidden = of_a_block(sizes)
    layer = nn.TransformerEncoderLayer(width, heads, hidden, device="meta")
    norms = (f"{norm}.{one}" for norm in TRANSFORMER.norms for one in ("weight", "bias"))
    linears = TRANSFORMER.linears(of_a_block(sizes))
    ours = [*TRANSFORMER.attention(sizes[1]), *linears, *norms]
    return dict(zip(ours, (name for name, _ in layer.named_parameters()), strict=True))


TINY = Model(
    tiny,
    {"dropout": 0.0},
    "ffn",
    partial(around, bias=True),
    lambda sizes: TRANSFORMER.shapes(of_a_block(sizes)),
    torch_s_names,
    right_transformer,
    tied=False,
)
LM = Model(
    language_model,
    {},
    "feed_forward",
    partial(around, bias=False),
    lambda sizes: ENCODER.shapes(of_a_block(sizes)),
    None,
    lambda own, sizes, x, valid=None: right_encoder(own, sizes, x, valid, causal=True),
    tied=True,
)


def some_ids(draw, sizes=SIZES[0], batch=3, length=5):
    return draw.integers(0, sizes[0], batch, length)


def shared_checks(model, parts, formula):
    """Add what both models with named parts promise."""
    exercise, gate = model.exercise, ["follows_the_formula"]

    def has_its_parts(answer, reference, draw):
        names = ["vocab_size", "d_model", "num_heads", "num_layers"]
        names.append("d_ff" if model is TINY else "hidden_dim")
        for args, kwargs in ((SIZES[0], {}), ((), dict(zip(names, SIZES[1], strict=True)))):
            parts_are(model, a_module(answer, args, kwargs), args or SIZES[1])

    def layers_are_their_own(answer, reference, draw):
        module = a_module(answer, SIZES[1], {})
        with answer.aside():
            found = module.describe(values=False).parameters
        owners: dict[int, str] = {}
        for name, one in found.items():
            other = owners.setdefault(one.storage, name)
            if other != name and {other, name} != {"token_embedding.weight", "output_head.weight"}:
                if not (other.startswith("blocks.") and name.startswith("blocks.")):
                    module.describe(values=False)  # no block is repeated: another mistake
                raise Failure(
                    f"`{other}` and `{name}` are one and the same: what one layer learns, the "
                    "other has to do too. Each layer is a new block."
                )

    def gives_logits(answer, reference, draw):
        module = a_module(answer, (50, 8, 2, 1, 6), model.options)
        for shape in ((3, 7), (2, 1)):
            with module.known_by(shapes_in):
                got = module(draw.integers(0, 50, *shape))
            shape_of(got, (*shape, 50), f"With V = 50 and ids of shape {shape}, the result")

    def follows_the_formula(answer, reference, draw):
        for sizes in SIZES:
            made = model.make(answer, draw, sizes)
            ids = some_ids(draw, sizes)
            made.agrees(f"With {sizes[3]} layers", made.module.eval()(ids), ids)

    def leaves_its_inputs_untouched(answer, reference, draw):
        made, ids = model.make(answer, draw), some_ids(draw)
        mask = right_padded(draw, 5) if model is TINY else valid_tokens(draw, 5)
        leaves_alone(answer, made.module, {"token_ids": ids, "the mask": mask})

    def lets_gradients_flow(answer, reference, draw):
        made, ids = model.make(answer, draw), draw.integers(1, V, 3, 5)  # 0 may be a padding_idx
        module = made.module.to(dtype=torch.float64)
        back = draw.normal(*ids.shape, V, dtype=torch.float64)
        got = module.backward(back, ids).parameters
        every_gradient_is_finite(got)
        if not made.names:
            return
        names = [*dict.fromkeys(made.weights)]
        if model is LM:
            names.remove("output_head.weight")
        wide = {name: made.weights[name].double() for name in names}

        def right(**weights):
            head = {"output_head.weight": weights["token_embedding.weight"]}
            return made.right(ids, weights=weights if model is TINY else weights | head)

        agrees_in_gradients([got[name] for name in names], right, wide, back)

    def keeps_the_dtype(answer, reference, draw):
        made, ids = model.make(answer, draw, size=0.3), some_ids(draw)
        mask = right_padded(draw, 5) if model is TINY else valid_tokens(draw, 5)
        rows = ~mask if model is TINY else mask
        for dtype in DTYPES_BESIDES:
            got = made.module.to(dtype=dtype)(ids, mask)
            short = short_name(dtype)
            if getattr(got, "dtype", dtype) != dtype:
                raise Failure(f"Moved to {short}, it returns {got.dtype}.")
            made.agrees(
                f"In {short}", got, ids, *padding(model, mask), rows=rows, rtol=0.1, atol=0.1
            )

    def stays_on_the_device(answer, reference, draw):
        module, ids = a_module(answer, SIZES[0], {}).to(device="meta"), some_ids(draw)
        module.on_meta(ids)
        module.on_meta(ids, right_padded(draw, 5))
        if model is TINY:
            module.on_meta(ids, causal=True)

    def drops_in_training_alone(answer, reference, draw):
        ids = some_ids(draw)
        cases: list[tuple[dict[str, float], bool]] = [({}, model is TINY)]
        if model is TINY:
            cases.append(({"dropout": 0.0}, False))
        for options, drops in cases:
            said = "With `dropout=0.0`" if options else "With no dropout given"
            module = a_module(answer, SIZES[0], options)
            drawn_anew(answer, module, (ids,), f"{said}, in training,", drops)
        module, said = a_module(answer, WIDE, {"dropout": 0.5}), "With `dropout=0.5`"
        drawn_anew(answer, module.eval(), (ids,), f"{said}, in eval mode,", False)
        if model is TINY:
            # Scaled, this is minus the first row of the sinusoids: nothing is there to be dropped
            # in front of the blocks.
            table = -torch.tensor([0.0, 1.0]).repeat(WIDE[0], WIDE[1] // 2) / math.sqrt(WIDE[1])
            module, ids = module.load(token_embedding__weight=table), ids[:, :1]
            said += ", the blocks given zeros"
        drawn_anew(answer, module.train(), (ids,), f"{said}, in training,", True)

    def owns_its_weights(answer, reference, draw):
        make = partial(answer.call, SIZES[0], seed=0)
        owns_its_parameters(lambda: model.rename(make().value, SIZES[0]), draw)

    for run, sentence, points, needs in (
        (has_its_parts, parts, 1, ()),
        (layers_are_their_own, "Every layer has weights of its own.", 1, ["has_its_parts"]),
        (gives_logits, "Ids (B, T) give logits (B, T, V).", 1, ["has_its_parts"]),
        (follows_the_formula, formula, 3, ["gives_logits"]),
        (leaves_its_inputs_untouched, "What it is given is the same after the call.", 1, gate),
        (lets_gradients_flow, "Every parameter gets a finite gradient, the right one.", 1, gate),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it works there.", 1, gate),
        (
            drops_in_training_alone,
            "`dropout` reaches its parts, acts in training alone, and has its default.",
            1,
            gate,
        ),
        (owns_its_weights, "Two models do not share weights.", 1, ["has_its_parts"]),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


def padding(model, mask):
    """What `right` is told of a mask that hides padding."""
    return (None, mask) if model is TINY else (mask,)


def parts_are(model, module, sizes):
    """Fail unless the module trains what it should around its blocks, under its names."""
    found = model.rename(module, sizes).describe(values=False)
    blocks: dict[str, dict[str, Any]] = {}
    outside = model.outside(sizes)
    for name, one in found.parameters.items():
        if name.startswith("blocks."):
            blocks.setdefault(name.split(".")[1], {})[name] = one
        if not one.requires_grad:
            raise Failure(f"`{name}` has requires_grad=False, so it would never be trained.")
    around_them = {name: one for name, one in found.parameters.items() if name[:7] != "blocks."}
    if model is LM and "final_norm.bias" not in around_them:
        del outside["final_norm.bias"]  # an RMSNorm is a norm too
    if found.modules.get("blocks", ("",))[0] != "ModuleList" or len(blocks) != sizes[3]:
        raise Failure(
            f"`blocks` has to be an nn.ModuleList of {sizes[3]} blocks with `num_layers` of "
            f"{sizes[3]}; {len(blocks)} were found."
        )
    for name, shape in outside.items():
        if name not in around_them:
            has = ", ".join(around_them) or "none"
            raise Failure(f"There is no `{name}`. Besides `blocks` the parameters are: {has}.")
        if around_them[name].shape != shape:
            came = around_them[name].shape
            raise Failure(f"`{name}` has shape {came}; {shape} was asked for.")
    own = {around_them[name].storage for name in outside}
    allowed = {*outside, "final_norm.bias"}
    if extra := [
        k for k, one in around_them.items() if k not in allowed and one.storage not in own
    ]:
        raise Failure(f"It also trains {', '.join(extra)}, which was not asked for.")
    right = numbers(model.inner(sizes).values())
    for place, inner in blocks.items():
        count = numbers(one.shape for one in inner.values())
        if count != right:
            raise Failure(
                f"`blocks.{place}` trains {count:,} numbers; a block of lesson 6 of width "
                f"{sizes[1]}, with {sizes[4]} hidden features, trains {right:,}."
            )


def numbers(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes)


def every_gradient_is_finite(got):
    for name, one in got.items():
        if one is None:
            raise Failure(f"No gradient reaches `{name}`.")
        if not one.isfinite().all():
            raise Failure(f"The gradient of `{name}` is not finite.")
        if one.dim() > 1 and not one.any():
            raise Failure(f"The gradient of `{name}` is 0 in all its numbers, so it never learns.")


def leaves_alone(answer, module, inputs):
    """Fail if a call changes one of `inputs`. What it writes there tells nothing of who wrote."""
    args = tuple(inputs.values())
    with answer.aside():
        outcome = module.attempt(args, after=True)
    if outcome.error:
        module.call(args)
    for got, (name, before) in zip(outcome.arguments, inputs.items(), strict=True):
        try:
            untouched(got, before, name)
        except Failure:
            answer.note("a mask" if before.dtype == torch.bool else "ids")
            raise


def drawn_anew(answer, module, args, what, asked, method=None):
    """Fail unless two calls differ, where that is `asked`, or else are equal.

    They are made aside: what is drawn tells nothing of who drew it.
    """
    with answer.aside():
        tries = [module.attempt(args, seed=seed, method=method) for seed in (1, 2)]
    if any(outcome.error for outcome in tries):
        module.call(args, seed=1, method=method)
    one, other = (outcome.value for outcome in tries)
    shape_of(other, getattr(one, "shape", ()))
    near = 1e-3 * one.abs().max().item()  # fresh logits may be small
    if torch.allclose(one, other, rtol=1e-3, atol=near, equal_nan=True) == asked:
        came = "equal: nothing is dropped" if asked else "unequal: something is dropped"
        raise Failure(f"{what} two calls on the same ids are {came}.")


# TinyTransformerEncoder

shared_checks(
    TINY,
    "It trains `token_embedding`, `blocks` (an nn.ModuleList), `final_norm` and `output_head`, and "
    "nothing else.",
    "The result is torch's: embed, times sqrt(C), plus sinusoids, the blocks in a row, final norm, "
    "head.",
)


@tiny.check(points=1, needs=["gives_logits"])
def scales_and_places(answer, reference, draw):
    """With silent blocks the logits are those of sqrt(C) · embedding + sinusoids, normalized."""
    made, ids = TINY.make(answer, draw), some_ids(draw, length=6)
    silent = {
        name: torch.zeros(shape)
        for one in made.names
        for ours, (name, shape) in one.items()
        if not ours.startswith("ln")
    }
    made.weights |= silent
    made.agrees("With silent blocks", made.module.load(**silent)(ids), ids)


@tiny.check(points=2, needs=["follows_the_formula"])
def hides_what_comes_later(answer, reference, draw):
    """With `causal` no token sees a later one, in any layer, by name or as the third argument."""
    made, ids = TINY.make(answer, draw, SIZES[1]), some_ids(draw, SIZES[1])
    mask = later(5, ids.device)
    made.agrees("With `causal=True`", made.module(ids, causal=True), ids, mask)
    made.agrees("Without `causal`, after a call with it", made.module(ids), ids)
    ids, mask = some_ids(draw, SIZES[1], length=3), later(3, ids.device)
    made.agrees("With True as the third", made.module(ids, None, True), ids, mask)


@tiny.check(points=2, needs=["follows_the_formula"])
def hides_padding(answer, reference, draw):
    """`key_padding_mask` hides padding in every layer, True where blocked, on either side."""
    made, ids = TINY.make(answer, draw, SIZES[1]), some_ids(draw, SIZES[1], length=6)
    valid, module = valid_tokens(draw, 6), made.module
    for got in (module(ids, ~valid), module.eval()(ids, key_padding_mask=~valid)):
        made.agrees("With padding", got, ids, None, ~valid, rows=valid)


@tiny.check(points=1, needs=["hides_what_comes_later", "hides_padding"])
def hides_both(answer, reference, draw):
    """With padding and `causal` together, both are hidden."""
    made, ids, blocked = TINY.make(answer, draw), some_ids(draw), right_padded(draw, 5)
    blocked[0, 1] = True  # hidden by no causal mask from those behind it
    got = made.module(ids, key_padding_mask=blocked, causal=True)
    made.agrees("With both", got, ids, later(5, ids.device), blocked, rows=~blocked)


@tiny.check(points=1, needs=["follows_the_formula"])
def has_its_defaults(answer, reference, draw):
    """Not given: width 64, 4 heads, 2 layers, 4 · d_model hidden features, 256 positions."""
    sizes = (5, 64, 4, 2, 256)
    for given in ((5, 8, 2, 1, None), (5, 8, 2, 1)):
        try:
            with answer.aside():
                parts_are(TINY, a_module(answer, given, {}), (5, 8, 2, 1, 32))
        except Failure:
            answer.note("another hidden width")
            raise
    with answer.aside():  # whichever default is another one, and what it is
        parts_are(TINY, a_module(answer, (5,), {}), sizes)
        made = TINY.make(answer, draw, sizes, size=0.3, given=(5,))
        ids = some_ids(draw, sizes, 1, 3)
        made.agrees("With all sizes at their defaults", made.module(ids), ids)


@tiny.check(points=1, needs=["gives_logits"])
def refuses_what_is_too_long(answer, reference, draw):
    """Past `max_len` tokens there is a ValueError; `max_len` of them are read. It is 256 if not
    given."""
    for given, most in (({"max_len": 5}, 5), ({}, 256)):
        module = on_the_cpu(a_module(answer, (7, 4, 1, 1, 3), given), draw)
        ids = draw.integers(0, 7, 1, most + 1).cpu()
        with module.known_by(shapes_in):
            refuses(module.attempt((ids,)), f"{most + 1} tokens with `max_len` of {most}")
            shape_of(module(ids[:, :most]), (1, most, 7), f"Of {most} tokens the result")


# stack_parameters


@stack_parameters.check(points=2)
def counts_them_all(answer, reference, draw):
    """It counts what a TinyTransformerEncoder trains, as an int: 106,546 at (50, 64, 2, 256)."""
    cases = ((50, 64, 2, 256), (7, 4, 3, 5), (3, 6, 1, 11), (11, 5, 4, 2), (9, 3, 0, 7))
    tried = [(case, answer(*case)) for case in cases]
    named = {"vocab_size": 5, "d_model": 8, "num_layers": 2, "d_ff": 3}
    tried.append(((5, 8, 2, 3), answer(**named)))
    for (vocab, width, layers, hidden), got in tried:
        block = numbers(TRANSFORMER.shapes((width, 1, hidden)).values())
        around_them = numbers(around((vocab, width), bias=True).values())
        right = around_them + layers * block
        call = f"stack_parameters({vocab}, {width}, {layers}, {hidden})"
        is_count(got, right, call, "the model")


# DecoderOnlyLM

shared_checks(
    LM,
    "It trains `token_embedding`, `blocks` (an nn.ModuleList), `final_norm` and a tied "
    "`output_head` without bias, and nothing else.",
    "The result is torch's: embed, the blocks in a row, final norm, head; nothing is scaled.",
)


@language_model.check(points=1, needs=["has_its_parts"])
def ties_its_head(answer, reference, draw):
    """`output_head.weight` and `token_embedding.weight` are one storage."""
    module = a_module(answer, SIZES[0], {})
    one_matrix(answer, module, "")


@language_model.check(points=1, needs=["ties_its_head"])
def stays_tied(answer, reference, draw):
    """They are one parameter, so that they stay one when the model is moved."""
    module = a_module(answer, SIZES[0], {}).to(dtype=torch.float64)
    one_matrix(answer, module, " after `.to(torch.float64)`")


def one_matrix(answer, module, what):
    with answer.aside():
        found = module.describe(values=False).parameters
    if found["output_head.weight"].storage != found["token_embedding.weight"].storage:
        raise Failure(f"The head and the embedding are two matrices{what}; one is asked for.")


@language_model.check(points=1, needs=["gives_logits"])
def begins_near_ln_v(answer, reference, draw):
    """Fresh, at V = 50 and C = 64, its first loss is within 0.5 of ln V = 3.91."""
    losses = []
    with answer.aside():
        for seed in range(2):
            module = answer.call((50, 64, 4, 2, 128), seed=seed).value
            ids = draw.integers(0, 50, 8, 12)
            logits = module(ids)
            shape_of(logits, (8, 12, 50))
            if not logits.any():
                break
            losses.append(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
    if not logits.any():
        module(ids)  # no mistake that is known does this
        raise Failure("All logits are 0: a matrix of zeros gets no gradient, and stays so.")
    if off := [loss for loss in losses if not abs(loss - math.log(50)) <= 0.5]:
        raise Failure(
            f"The first loss is {off[0]:.2f}, and ln 50 is 3.91. A fresh model knows nothing, so "
            "its logits should be near 0: how large are the rows of the matrix that makes them?"
        )


@language_model.check(points=2, needs=["follows_the_formula"])
def hides_padding_in_every_layer(answer, reference, draw):
    """`valid_tokens` hides padding from real tokens, on either side, and None means all real."""
    made, ids = LM.make(answer, draw, SIZES[1]), some_ids(draw, SIZES[1], length=6)
    valid = valid_tokens(draw, 6)
    for got in (made.module(ids, valid), made.module.eval()(ids, valid_tokens=valid)):
        made.agrees("With padding", got, ids, valid, rows=valid)
    made.agrees("With None for `valid_tokens`", made.module(ids, None), ids)


def logits_and_caches(result, what, layers):
    """The two that come back with `use_cache`."""
    logits, caches = pair(result, "(logits, caches)", what)
    if not (isinstance(caches, tuple | list) and len(caches) == layers) or None in caches:
        raise Failure(f"{what}: a list of one cache for each of {layers} layers was asked for.")
    return logits, caches


def in_chunks(made, ids, chunks, valid=None):
    """The logits of `ids` in `chunks`, each given the caches of those before it."""

    def step(start, end, caches):
        now = None if valid is None else valid[:, :end]
        result = made.module(ids[:, start:end], now, caches=caches, use_cache=True)
        what = f"In chunks of {chunks}, tokens {start} to {end - 1}"
        logits, caches = logits_and_caches(result, what, made.sizes[3])
        shape_of(logits, (len(ids), end - start, made.sizes[0]), f"{what}: the logits")
        return logits, caches

    return chunk_by_chunk(chunks, step)[0]


@language_model.check(points=1, needs=["follows_the_formula"])
def returns_caches(answer, reference, draw):
    """With `use_cache` it returns (logits, caches), one cache per layer, on the first call too."""
    made, ids = LM.make(answer, draw, SIZES[1]), some_ids(draw, SIZES[1])
    result = made.module.eval()(ids, use_cache=True)
    logits, _ = logits_and_caches(result, "With `use_cache`", SIZES[1][3])
    made.agrees("With `use_cache`", logits, ids)


@language_model.check(points=3, needs=["returns_caches"])
def goes_on_from_caches(answer, reference, draw):
    """Chunks of 1, 2 or 3 tokens, each with the last caches, give what all at once gives."""
    made, ids = LM.make(answer, draw, SIZES[1]), some_ids(draw, SIZES[1], length=7)
    made.module.eval()
    for chunks in ((2, 1, 1, 3), (3, 2, 2)):
        made.agrees(f"In chunks of {chunks}", in_chunks(made, ids, chunks), ids)


@language_model.check(points=2, needs=["goes_on_from_caches", "hides_padding_in_every_layer"])
def hides_padding_in_caches(answer, reference, draw):
    """With caches `valid_tokens` covers all tokens so far, and padding stays hidden."""
    made, ids, valid = LM.make(answer, draw), some_ids(draw, length=7), valid_tokens(draw, 7)
    chunks = (1, 3, 1, 2)
    got = in_chunks(made, ids, chunks, valid)
    made.agrees(f"With padding, in chunks of {chunks}", got, ids, valid, rows=valid)


@language_model.check(points=1, needs=["goes_on_from_caches"])
def leaves_given_caches_alone(answer, reference, draw):
    """Caches that are given are used without `use_cache` too; they and their list stay."""
    made, ids = LM.make(answer, draw), some_ids(draw)
    result = made.module(ids[:, :3], use_cache=True)
    _, caches = logits_and_caches(result, "With `use_cache`", LAYERS)
    given = {"caches": caches, "use_cache": True}
    after = made.module.call((some_ids(draw, length=2),), given, after=True).keywords["caches"]
    again = made.module(ids[:, 3:], caches=after)
    made.agrees("The second that goes on from given caches", again, ids, columns=slice(3, None))


# Models whose insides are free


@dataclass(frozen=True)
class Free:
    """One of the two that are judged by what they do.

    `names` are its arguments' names, `inputs` draws the arguments of a call, `parts` those of each
    of its parts, with the method's name, and `matrices` is how many numbers the matrices of a layer
    hold at least.
    """

    exercise: Exercise
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    options: dict[str, Any]
    inputs: Callable
    parts: Callable
    matrices: Callable

    def make(self, answer, draw, size=0.5):
        """A model with weights drawn by the order of their shapes, in training, as it is made."""
        module = a_module(answer, self.sizes, self.options)
        with answer.aside():
            module.load(**drawn_weights(module, draw, size))
        return module

    def all_sizes(self):
        return dict(zip(self.names, self.sizes, strict=True))

    def count(self, answer, **sizes):
        """How many numbers a model of these sizes trains, each counted once, and by name."""
        args = tuple((self.all_sizes() | sizes).values())
        with answer.aside():
            found = a_module(answer, args, self.options).describe(values=False).parameters
        once = {one.storage: one.shape for one in found.values()}
        return numbers(once.values()), numbers(one.shape for one in found.values())


def drawn_weights(module, draw, size):
    """Weights of order one for each parameter, the one drawn first that has the largest shape."""
    owners: dict[int, str] = {}
    found = module.describe(values=False).parameters
    for name, one in found.items():
        owners.setdefault(one.storage, name)
    order = sorted(owners.values(), key=lambda name: found[name].shape, reverse=True)
    shapes = {name: found[name].shape for name in order}
    return {
        name: size * (draw.normal(*shape) if len(shape) > 1 else draw.gain(*shape))
        for name, shape in shapes.items()
    }


def run_back(answer, module, back, *args):
    """The outcome of a run back, known by its result: the names of parameters are free."""
    with answer.aside():
        outcome = module.attempt(args, backward=back)
    if outcome.error:
        module.backward(back, *args)
    answer.note(outcome.value)
    return outcome


def learns(answer, got):
    """Fail unless every parameter gets a gradient, known by how many get none, or nothing but 0."""
    try:
        every_gradient_is_finite(got)
    except Failure:
        zero = (one is not None and one.dim() > 1 and not one.any() for one in got.values())
        answer.note([sum(one is None for one in got.values()), sum(zero)])
        raise


class TooSmall(Failure):
    """Something moves too little for the digits it was looked at with."""


def moved(one, other, least=5e-4):
    """Where the last axis of two results differs by more than the arithmetic can do."""
    return (one - other).abs().amax(dim=-1) > least * (1 + other.abs().amax(dim=-1))


def stays(one, other, what):
    shape_of(one, other.shape)
    if not (one.isfinite().all() and other.isfinite().all()):
        raise Failure(f"{what}: there are numbers that are not finite.")
    if moved(one, other).any():
        raise Failure(f"{what}, and the result moves. It has to stay.")


def moves(one, other, what):
    shape_of(one, other.shape)
    if not moved(one, other, 1e-10 if one.dtype == torch.float64 else 5e-4).all():
        raise TooSmall(f"{what}, and the result stays. It has to move.")


def looks(module, judge):
    """`judge(module)`; where something moves too little for float32, in float64.

    A softmax that is sure of itself leaves very little of a token, and float32 has seven digits.
    """
    try:
        judge(module)
    except TooSmall:
        judge(module.to(dtype=torch.float64))


def are_probabilities(got):
    """Whether all are between 0 and 1, or exponentials that sum to 1."""
    sums = got.double().exp().sum(-1)
    between = bool(((got >= 0) & (got <= 1)).all())
    return between or torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def probabilities_or(trait):
    """A trait of logits, which are known by being probabilities where they are, by `trait` else."""

    def kind(value):
        real = isinstance(value, torch.Tensor) and value.is_floating_point() and not value.is_meta
        return "probabilities" if real and are_probabilities(value) else trait(value)

    return kind


def are_no_probabilities(got):
    if are_probabilities(got):
        raise Failure("These are probabilities, or their logarithms. Logits are asked for.")


def distinct(draw, low, high, count):
    """So many ids from `low` to `high` - 1, each another."""
    return low + draw.normal(high - low).argsort()[:count]


def one_changed(ids, low, high):
    """(T + 1, T): the row of ids itself, then for each token the row with that token changed."""
    rows = ids.repeat(len(ids) + 1, 1)
    for place, one in enumerate(ids):
        rows[place + 1, place] = low + (one - low + 1) % (high - low)
    return rows


def free_checks(model, what_it_trains):
    """Add what both models with free insides promise."""
    exercise, gate = model.exercise, [model.exercise.checks[0].name]

    def layers_are_their_own(answer, reference, draw):
        counts, by_name = zip(*(model.count(answer, num_layers=n) for n in (1, 2, 3)), strict=True)
        one, two, three = counts
        sizes = model.all_sizes()
        least = model.matrices(sizes["d_model"], sizes["hidden_dim"])
        if not (three - two == two - one >= least):
            answer.note("one block in several places" if by_name != counts else counts)
            raise Failure(
                f"With 1, 2 and 3 layers it trains {one:,}, {two:,} and {three:,} numbers. Each "
                f"layer has weights of its own, at least {least:,} numbers."
            )

    def uses_its_hidden_width(answer, reference, draw):
        hidden = model.sizes[-1]
        one, other = (model.count(answer, hidden_dim=size)[1] for size in (hidden, hidden + 5))
        answer.note(other - one)
        width, layers = model.all_sizes()["d_model"], model.all_sizes()["num_layers"]
        if other - one < layers * (model.matrices(width, 5) - model.matrices(width, 0)):
            raise Failure(
                f"With `hidden_dim` of {hidden} and {hidden + 5} it trains {one:,} and {other:,} "
                "numbers: every feed-forward of every layer should have grown."
            )

    def uses_its_heads(answer, reference, draw):
        parts, results = model.parts(draw), []
        weights: dict[str, torch.Tensor] = {}
        for heads in (3, 2):
            sizes = model.all_sizes() | {"num_heads": heads}
            module = a_module(answer, tuple(sizes.values()), model.options)
            with answer.aside():
                drawn = drawn_weights(module, draw, 0.5)
                if {name: one.shape for name, one in drawn.items()} != {
                    name: one.shape for name, one in weights.items()
                }:
                    weights = drawn
                module.load(**weights)
            with module.known_by(shapes_in):
                results.append([module.call(args, method=name).value for args, name in parts])
        for one, other, (_, name) in zip(*results, parts, strict=True):
            shape_of(other, one.shape)
            if torch.allclose(one, other, rtol=1e-3, atol=1e-3):
                answer.note(name)
                what = f"the result of `{name}`" if name else "the result"
                raise Failure(f"With 3 heads and with 2, on the same weights, {what} is the same.")

    def leaves_its_inputs_untouched(answer, reference, draw):
        args = {f"argument {place + 1}": one for place, one in enumerate(model.inputs(draw))}
        leaves_alone(answer, model.make(answer, draw), args)

    def lets_gradients_flow(answer, reference, draw):
        module, args = model.make(answer, draw), model.inputs(draw)
        back = draw.normal(*module(*args).shape)
        learns(answer, run_back(answer, module, back, *args).parameters)

    def keeps_the_dtype(answer, reference, draw):
        module, args = model.make(answer, draw, size=0.25), model.inputs(draw)
        plain = module(*args)
        for dtype in DTYPES_BESIDES:
            got, short = module.to(dtype=dtype)(*args), short_name(dtype)
            shape_of(got, plain.shape)
            if got.dtype != dtype:
                raise Failure(f"Moved to {short}, it returns {got.dtype}.")
            close(got, plain, f"In {short} the result", rtol=0.1, atol=0.1)

    def stays_on_the_device(answer, reference, draw):
        args = model.inputs(draw)
        model.make(answer, draw).to(device="meta").on_meta(*args)

    def owns_its_weights(answer, reference, draw):
        owns_its_parameters(lambda: a_module(answer, model.sizes, model.options), draw)

    for run, sentence in (
        (layers_are_their_own, "Every layer has weights of its own."),
        (uses_its_hidden_width, "`hidden_dim` is the hidden width of every layer."),
        (uses_its_heads, "`num_heads` splits the width."),
        (leaves_its_inputs_untouched, "What it is given is the same after the call."),
        (lets_gradients_flow, what_it_trains),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype."),
        (stays_on_the_device, "Moved to another device, all of it works there."),
        (owns_its_weights, "Two models do not share weights."),
    ):
        exercise.add(run.__name__, sentence, run, 1, gate)


# Seq2SeqTransformer

SOURCE, TARGET = 13, 11  # vocabularies: more words there than here


def both_ids(draw, source=5, target=4):
    """Source ids (3, S), target ids (3, T) and their masks, with some padding in each."""
    ids = draw.integers(0, SOURCE, 3, source), draw.integers(0, TARGET, 3, target)
    return (*ids, valid_tokens(draw, source), valid_tokens(draw, target).flip(0))


def all_valid(ids):
    return torch.ones_like(ids, dtype=torch.bool)


def both_parts(draw):
    source, target, source_valid, target_valid = both_ids(draw)
    memory = draw.normal(*source.shape, 12)
    return (
        ((source, source_valid), "encode"),
        ((target, memory, target_valid, source_valid), "decode"),
    )


SEQ2SEQ = Free(
    seq2seq,
    ("source_vocab", "target_vocab", "d_model", "num_heads", "num_layers", "hidden_dim"),
    (SOURCE, TARGET, 12, 3, 2, 20),
    {},
    both_ids,
    both_parts,
    lambda width, hidden: 12 * width * width + 4 * width * hidden,
)


def encoded(module, source, valid):
    memory = module.call((source, valid), method="encode").value
    shape_of(memory, (*source.shape, SEQ2SEQ.sizes[2]), "The memory")
    return memory


def decoded(module, *args):
    return module.call(args, method="decode").value


@seq2seq.check(points=1)
def gives_logits(answer, reference, draw):
    """Sources (B, S) and targets (B, T) give logits (B, T, target_vocab), of all ids there are."""
    turned = SEQ2SEQ.all_sizes() | {"source_vocab": TARGET, "target_vocab": SOURCE}
    for args, kwargs, words, more in (
        (SEQ2SEQ.sizes, {}, SOURCE, TARGET),
        ((), turned, TARGET, SOURCE),
    ):
        module = on_the_cpu(a_module(answer, args, kwargs), draw)
        source, target = (torch.arange(count).repeat(2, 1) for count in (words, more))
        named = {"source_ids": source, "target_ids": target}
        named |= {"source_valid": all_valid(source), "target_valid": all_valid(target)}
        with module.known_by(shapes_in):
            got = module(**named) if kwargs else module(*named.values())
            shape_of(got, (2, more, more), f"Of targets (2, {more}) the result")
            short = source[:, :3], target[:, :1]
            got = module(*short, *map(all_valid, short))
        shape_of(got, (2, 1, more), "Of targets (2, 1) the result")


@seq2seq.check(points=1, needs=["gives_logits"])
def decodes_what_it_encodes(answer, reference, draw):
    """`forward` is `decode` of what `encode` returns: a memory (B, S, d_model)."""
    module, (source, target, *valid) = SEQ2SEQ.make(answer, draw).eval(), both_ids(draw)
    with module.known_by(probabilities_or(shapes_in)):
        memory = encoded(module, source, valid[0])
        got = decoded(module, target, memory, valid[1], valid[0])
        whole = module(source, target, *valid)
    shape_of(got, whole.shape)
    are_no_probabilities(whole)
    rows = valid[1][:, :, None]
    close(got * rows, whole * rows, "What `decode` returns, beside `forward`,", atol=1e-4)


def changed_targets(draw):
    """The arguments of a call: a target as it is, then with token 0, 1, … changed."""
    targets = one_changed(distinct(draw, 1, TARGET, 5), 1, TARGET)
    source = distinct(draw, 1, SOURCE, 6).repeat(len(targets), 1)
    return source, targets, all_valid(source), all_valid(targets)


@seq2seq.check(points=2, needs=["gives_logits"])
def sees_no_later_target(answer, reference, draw):
    """A change of a later target token moves no logits before it."""
    logits = SEQ2SEQ.make(answer, draw).eval()(*changed_targets(draw))
    shape_of(logits, (6, 5, TARGET))
    for place in range(1, 5):
        what = f"Target token {place} was changed, and one looks at the logits before it"
        stays(logits[place + 1, :place], logits[0, :place], what)


@seq2seq.check(points=1, needs=["gives_logits"])
def reads_its_own_target(answer, reference, draw):
    """Each target token counts, for its own logits and for all behind it: nothing is shifted."""
    args = changed_targets(draw)

    def judge(module):
        logits = module(*args)
        shape_of(logits, (6, 5, TARGET))
        for place in range(5):
            what = f"Target token {place} was changed, and one looks at the logits from it on"
            moves(logits[place + 1, place:], logits[0, place:], what)

    looks(SEQ2SEQ.make(answer, draw), judge)


@seq2seq.check(points=2, needs=["decodes_what_it_encodes"])
def reads_the_whole_source(answer, reference, draw):
    """Each source token counts, for every row of the memory and for all logits."""
    sources = one_changed(distinct(draw, 1, SOURCE, 6), 1, SOURCE)
    target = distinct(draw, 1, TARGET, 4).repeat(len(sources), 1)

    def judge(module):
        memory = encoded(module, sources, all_valid(sources))
        logits = module(sources, target, all_valid(sources), all_valid(target))
        for place in range(6):
            moves(memory[place + 1], memory[0], f"Source token {place} was changed, in the memory")
            moves(logits[place + 1], logits[0], f"Source token {place} was changed, in the logits")
        if not moved(memory[0, 1:], memory[0, :1].expand(5, -1), 1e-6).all():
            raise Failure("Rows of the memory are one and the same. Each token has its own.")

    looks(SEQ2SEQ.make(answer, draw), judge)


@seq2seq.check(points=1, needs=["gives_logits"])
def knows_the_order(answer, reference, draw):
    """The order of tokens counts, in the source and in the target."""
    source, target = distinct(draw, 1, SOURCE, 6), distinct(draw, 1, TARGET, 4)
    sources = torch.stack([source, source[[3, 1, 2, 0, 4, 5]], source])
    targets = torch.stack([target, target, target[[1, 0, 2, 3]]])

    def judge(module):
        logits = module(sources, targets, all_valid(sources), all_valid(targets))
        shape_of(logits, (3, 4, TARGET))
        moves(logits[1], logits[0], "Two source tokens changed places")
        what = "Two target tokens changed places, for those behind them"
        moves(logits[2, 2:], logits[0, 2:], what)

    looks(SEQ2SEQ.make(answer, draw), judge)


@seq2seq.check(points=2, needs=["decodes_what_it_encodes"])
def hides_source_padding(answer, reference, draw):
    """Padding in the source, on either side, changes nothing, whatever its ids."""
    module, (source, target, valid, _) = SEQ2SEQ.make(answer, draw).eval(), both_ids(draw, 6, 6)
    real = all_valid(target)
    other = torch.where(valid, source, (source + 1 + draw.integers(0, 9, 3, 6)) % SOURCE)
    one = module(source, target, valid, real)
    stays(module(other, target, valid, real), one, "The ids under source padding were changed")
    cut = module(source[1:2, :3], target[1:2], valid[1:2, :3], real[1:2])
    stays(cut, one[1:2], "A source was given without its padding on the right")


@seq2seq.check(points=2, needs=["decodes_what_it_encodes"])
def reads_the_memory_it_is_given(answer, reference, draw):
    """`decode` reads the memory it is given, in all layers, where `source_valid` is True."""
    source, target, valid, _ = both_ids(draw, 6, 6)
    real, other = all_valid(target), draw.normal(3, 6, SEQ2SEQ.sizes[2])
    third = torch.arange(6, device=draw.device)[:, None] == 2  # which all three may read

    def judge(module):
        memory = encoded(module, source, all_valid(source))
        hidden = torch.where(valid[:, :, None], memory, other.to(memory.dtype))
        seen = torch.where(third, other.to(memory.dtype), memory)
        one = decoded(module, target, memory, real, valid)
        got = decoded(module, target, hidden, real, valid)
        stays(got, one, "Hidden rows of the memory were changed")
        moves(decoded(module, target, seen, real, valid), one, "A row of the memory was changed")

    looks(SEQ2SEQ.make(answer, draw), judge)


@seq2seq.check(points=1, needs=["gives_logits"])
def hides_target_padding(answer, reference, draw):
    """Padding in the target, on either side, moves no logits of real tokens."""
    module, source = SEQ2SEQ.make(answer, draw), draw.integers(0, SOURCE, 3, 6)
    target, valid = draw.integers(0, TARGET, 3, 6), valid_tokens(draw, 6)
    other = torch.where(valid, target, (target + 1 + draw.integers(0, 9, 3, 6)) % TARGET)
    one, two = (module(source, ids, all_valid(source), valid) for ids in (target, other))
    shape_of(two, one.shape)
    stays(two[valid], one[valid], "The ids under target padding were changed")


@seq2seq.check(points=1, needs=["gives_logits"])
def drops_in_training_alone(answer, reference, draw):
    """`dropout` acts in training alone, in the encoder and behind it, and is 0.0 if not given."""
    args = both_ids(draw)
    quiet = a_module(answer, SEQ2SEQ.sizes, {})
    drawn_anew(answer, quiet, args, "With no dropout given, in training,", False)
    module = a_module(answer, SEQ2SEQ.sizes, {"dropout": 0.5})
    said = "With `dropout=0.5`, in training,"
    with answer.aside():
        memory = encoded(quiet, args[0], args[2])
    drawn_anew(answer, module, (args[0], args[2]), f"{said} in `encode`,", True, "encode")
    drawn_anew(answer, module, (args[1], memory, args[3], args[2]), f"{said}", True, "decode")
    drawn_anew(answer, module.eval(), args, "With `dropout=0.5`, in eval mode,", False)


free_checks(SEQ2SEQ, "Every parameter gets a finite gradient from one backward pass.")


# LessonRecommender

LESSONS, LONGEST = 9, 7
TABLES = (LESSONS, 12), (LESSONS + 1, 12)


def histories(draw, length=5):
    """(4, T): lessons with 0, 2, 4 and 1 tokens of padding on the right."""
    ids = draw.integers(1, LESSONS + 1, 4, length)
    places = torch.arange(length, device=ids.device)
    return (ids * (places < length - torch.tensor([[0], [2], [4], [1]], device=ids.device)),)


RECOMMENDER = Free(
    recommender,
    ("num_lessons", "d_model", "num_heads", "num_layers", "hidden_dim"),
    (LESSONS, 12, 2, 2, 20),  # torch has a way of its own, in eval mode, for even heads alone
    {"max_len": LONGEST},
    histories,
    lambda draw: ((histories(draw), None),),
    lambda width, hidden: 4 * width * width + 2 * width * hidden,
)


@recommender.check(points=1)
def scores_every_lesson(answer, reference, draw):
    """Histories (B, T) give logits (B, num_lessons), and every lesson from 1 on is known."""
    everything = torch.arange(1, LESSONS + 1).repeat(3, 1)
    for args, kwargs, history in (
        (RECOMMENDER.sizes, {}, everything),
        ((), RECOMMENDER.all_sizes() | {"max_len": LESSONS}, everything),
        ((*RECOMMENDER.sizes, LESSONS), {}, everything[:1, -1:]),
    ):
        module = on_the_cpu(a_module(answer, args, kwargs), draw)
        with module.known_by(shapes_in):
            got = module(history)
        shape_of(got, (len(history), LESSONS), f"Of histories {tuple(history.shape)} the result")


@recommender.check(points=2, needs=["scores_every_lesson"])
def reads_every_lesson(answer, reference, draw):
    """Each lesson of a history counts, whatever its id, and so does their order."""
    rows = one_changed(distinct(draw, 1, LESSONS + 1, 5), 1, LESSONS + 1)
    rows = torch.cat([rows, rows[:1, [1, 0, 2, 3, 4]], rows[:1, [0, 1, 4, 3, 2]]])
    longer = rows[:1].repeat(LESSONS + 1, 1)
    longer[:, -1] = torch.arange(LESSONS + 1)
    rows = torch.cat([rows, longer])

    back = draw.normal(len(rows), LESSONS)

    def judge(module):
        outcome = run_back(answer, module, back, rows)
        logits = outcome.value
        shape_of(logits, (len(rows), LESSONS))
        for place in range(5):
            moves(logits[place + 1], logits[0], f"Lesson {place} of a history was changed")
        moves(logits[6:8], logits[[0, 0]], "Two lessons of a history changed places")
        for lesson in range(1, LESSONS + 1):
            moves(logits[8 + lesson], logits[8], f"Lesson {lesson} came after four others")
        for name, one in outcome.parameters.items():
            if one is not None and tuple(one.shape) in TABLES and one.any(1).sum() < LESSONS:
                answer.note(one.any(1))
                raise Failure(
                    f"All {LESSONS} lessons were read, and not as many rows of `{name}` learn: "
                    f"{one.any(1).int().tolist()}. Is a lesson its `padding_idx`?"
                )

    looks(RECOMMENDER.make(answer, draw), judge)


@recommender.check(points=2, needs=["scores_every_lesson"])
def leaves_padding_out(answer, reference, draw):
    """Padding on the right changes nothing: a history has the scores that it has alone."""
    module, (history,) = RECOMMENDER.make(answer, draw), histories(draw)
    with module.known_by(probabilities_or(lambda value: value)):
        together = module(history)
    shape_of(together, (4, LESSONS))
    are_no_probabilities(together)
    for place, length in ((1, 3), (2, 1)):
        alone = module(history[place : place + 1, :length])
        stays(alone, together[place : place + 1], "Padding was left out")


def tables(module):
    """Its parameters and buffers: those of lessons or scores, those of positions, the others."""
    found = module.describe(values=False)
    kinds: tuple[dict[str, Any], ...] = ({}, {}, {})
    for name, one in (found.parameters | found.buffers).items():
        of_lessons = {LESSONS, LESSONS + 1} & set(one.shape)
        of_positions = {LONGEST, LONGEST + 1} & set(one.shape)
        kinds[0 if of_lessons else 1 if of_positions else 2][name] = one.shape
    return kinds


def zeros(shapes):
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


@recommender.check(points=2, needs=["leaves_padding_out"])
def takes_the_mean(answer, reference, draw):
    """It is the mean: without positions only the shares of the lessons in a history count."""
    module = RECOMMENDER.make(answer, draw)
    a, b = distinct(draw, 1, LESSONS + 1, 2).tolist()
    with answer.aside():
        _, positions, others = tables(module)
        module.load(**zeros(positions))
    rows = [[a, b], [b, a], [a, b, a, b], [a], [a, a, a], [a, a, b], [b]]
    history = torch.tensor([[*row, *[0] * (4 - len(row))] for row in rows], device=draw.device)

    def judge(module):
        logits = module(history)
        shape_of(logits, (7, LESSONS))
        if positions:
            what = "Without positions, a history was turned or repeated"
            stays(logits[[1, 2]], logits[[0, 0]], what)
            stays(logits[4], logits[3], "Without positions, one lesson was repeated")
            moves(logits[5], logits[0], "One of two lessons was repeated")

    looks(module, judge)
    with answer.aside():
        module.load(**zeros({name: one for name, one in others.items() if len(one) > 1}))
    silent = module(history)
    if moved(silent[6], silent[3], 1e-2):  # the third row differs by a sixth of that
        moves(silent[5], silent[0], "One of two lessons was repeated, and the blocks are silent")


@recommender.check(points=1, needs=["scores_every_lesson"])
def normalizes_the_stream(answer, reference, draw):
    """Its blocks are post-norm: with silent branches every norm still counts."""
    module, (history,) = a_module(answer, RECOMMENDER.sizes, RECOMMENDER.options), histories(draw)
    with answer.aside():
        lessons, positions, others = tables(module)
        start = module.describe().state
        gains = [name for name, one in others.items() if len(one) == 1 and (start[name] == 1).all()]
        drawn = {name: draw.normal(*shape) for name, shape in (lessons | positions).items()}
        drawn |= zeros({name: one for name, one in others.items() if name not in gains})
        module.load(**drawn).eval()
    before = module(history)
    shape_of(before, (4, LESSONS))
    if not moved(before[0], before[1]):
        return  # something stands between the mean and the scores that is silent too
    ones: dict[str, torch.Tensor] = {}
    for name in gains:
        with answer.aside():
            module.load(**ones, **{name: draw.gain(*others[name])})
        after, ones = module(history), {name: start[name]}
        moves(after, before, "The gain of a norm was changed, the branches are silent")


@recommender.check(points=2, needs=["scores_every_lesson"])
def survives_an_empty_history(answer, reference, draw):
    """An empty history has finite logits and gradients, and neither moves others nor is moved."""
    module, (history,) = RECOMMENDER.make(answer, draw).eval(), histories(draw)
    empty = history * torch.tensor([[1], [0], [1], [1]], device=history.device)
    leaves_alone(answer, module, {"history": empty})
    others, rows = module(history), [0, 2, 3]
    for call in ({}, {"grad": False}):
        got = module.call((empty,), **call).value
        shape_of(got, (4, LESSONS))
        if not got.isfinite().all():
            raise Failure(
                "With an empty history in the batch there are logits that are not finite."
            )
        stays(got[rows], others[rows], "Another history in the batch was emptied")
    stays(module(empty[1:2]), got[1:2], "An empty history was given alone")
    back = draw.normal(4, LESSONS)
    learns(answer, run_back(answer, module.train(), back, empty).parameters)


@recommender.check(points=1, needs=["scores_every_lesson"])
def refuses_longer_histories(answer, reference, draw):
    """Past `max_len` there is a ValueError; `max_len` lessons are read. It is 64 if not given."""
    for given, most in (({"max_len": 5}, 5), ({}, 64)):
        module = on_the_cpu(a_module(answer, (4, 4, 1, 1, 3), given), draw)
        history = draw.integers(1, 5, 1, most + 1).cpu()
        with module.known_by(shapes_in):
            refuses(module.attempt((history,)), f"{most + 1} lessons with `max_len` of {most}")
            shape_of(module(history[:, :most]), (1, 4), f"Of {most} lessons the result")


free_checks(RECOMMENDER, "Every parameter gets a finite gradient from one backward pass.")
