"""What the answers of lesson 06 must do.

Expected values come from torch's own nn.TransformerEncoderLayer in float64; for the blocks of the
course's parts from torch's attention, norm and GELU, put together by the formula; or from a
property: a silent branch, a changed future. Weights are of order one and sizes differ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from autograder.checks.masks import NAMES, right_heads, valid_tokens
from autograder.judge import Exercise, Failure, Subject, close, recipe, same, shape_of, untouched
from autograder.judge.properties import (
    DTYPES,
    agrees_in_gradients,
    owns_its_parameters,
    refuses,
)
from autograder.judge.quiz import quiz

block_parameters = Exercise("block_parameters")
transformer = Exercise("TransformerBlock")
post_norm = Exercise("PostNormBlock")
fused = Exercise("FusedBlock")
to_reference = Exercise("to_reference")
encoder = Exercise("EncoderBlock")
decoder = Exercise("DecoderBlock")
decoder_only = Exercise("DecoderOnlyBlock")
block_quiz = quiz("block_quiz", "cadbcdab")

# Width, heads, hidden width. The hidden width is never the width: the two linear layers of a part
# whose insides are free are told apart by their shapes.
SIZES = ((12, 3, 20), (8, 4, 5), (6, 1, 9), (8, 2, 11))
C, H, HIDDEN = SIZES[0]


# The parts, and what torch makes of them


def inside(part, width, hidden):
    """{role: (name, shape)} of two linear layers, named as `Subject.rename` names them."""
    shapes = {
        "linear1.weight": (hidden, width),
        "linear1.bias": (hidden,),
        "linear2.weight": (width, hidden),
        "linear2.bias": (width,),
    }
    order = sorted(shapes, key=lambda role: shapes[role], reverse=True)
    return {role: (f"{part}.{order.index(role)}", shape) for role, shape in shapes.items()}


@dataclass(frozen=True)
class Block:
    """What is asked of one of the blocks.

    `sizes` are its first arguments' names; `norms`, `attentions` (names, by what shapes each has)
    and `ffn` its parts, `branches` the last layer of each branch; `right` is what it has to return,
    in float64 and with its history; `inputs` draws the arguments of a call, `masked` the same with
    masks.
    """

    exercise: Exercise
    sizes: tuple[str, ...]
    norms: tuple[str, ...]
    attentions: dict[str, Callable]
    ffn: str
    branches: tuple[str, ...]
    right: Callable
    inputs: Callable
    masked: Callable
    drops: bool = False

    def hidden(self, width, hidden):
        return hidden if len(self.sizes) == 3 else 4 * width

    def arguments(self, width, heads, hidden):
        return (width, heads, hidden)[: len(self.sizes)]

    def shapes(self, width, hidden):
        """{name: shape} of everything it trains."""
        shapes = {f"{norm}.{one}": (width,) for norm in self.norms for one in ("weight", "bias")}
        for name, layers in self.attentions.items():
            shapes |= {f"{name}{one}": shape for one, shape in layers(width).items()}
        return shapes | dict(inside(self.ffn, width, self.hidden(width, hidden)).values())

    def silenced(self, sizes, *branches):
        """Zeros for the last layers of these branches, by name."""
        width, _, hidden = sizes
        last = inside(self.ffn, width, self.hidden(width, hidden))
        zeros = {}
        for branch in branches:
            for one in ("weight", "bias"):
                known = self.shapes(width, hidden)
                name = last[f"linear2.{one}"][0] if branch == self.ffn else f"{branch}.{one}"
                zeros[name] = torch.zeros(known[name])
        return zeros

    def make(self, answer, draw, sizes, dropout=0.0, by_name=True, size=0.6):
        """A module of the answer, and the weights of order one that are loaded into it.

        A dropout of None is none given.
        """
        arguments, options = self.arguments(*sizes), {}
        if self.drops and dropout is not None:
            options = {"dropout": dropout} if by_name else {}
            arguments = arguments if by_name else (*arguments, dropout)
        module = answer.call(arguments, options, seed=0).value
        if not isinstance(module, Subject):
            raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
        weights = {}
        for name, shape in self.shapes(sizes[0], sizes[2]).items():
            small = len(shape) == 2
            weights[name] = size * draw.normal(*shape) if small else size * draw.gain(*shape)
        return module.rename(self.ffn).load(**weights), weights

    def expect(self, weights, sizes, args, kwargs):
        """What the call has to return, in the dtype of the first argument."""
        got = self.right(weights, sizes, *args, **kwargs)
        return got.detach().to(args[0].dtype)


def torch_attention(width):
    return {
        ".in_proj_weight": (3 * width, width),
        ".in_proj_bias": (3 * width,),
        ".out_proj.weight": (width, width),
        ".out_proj.bias": (width,),
    }


def fused_attention(width):
    return {"weight": (3 * width, width), "bias": (3 * width,)}


def one_linear(width):
    return {".weight": (width, width), ".bias": (width,)}


def course_attention(width):
    return {
        f".{name}_projection.{one}": shape
        for name in NAMES
        for one, shape in (("weight", (width, width)), ("bias", (width,)))
    }


def torch_s_layer(weights, sizes, x, names, ffn, *, hidden=None, activation="gelu", **masks):
    """nn.TransformerEncoderLayer on these weights; `names` are ours for its parameters."""
    width, heads, given = sizes
    hidden = given if hidden is None else hidden
    layer = nn.TransformerEncoderLayer(
        width,
        heads,
        hidden,
        dropout=0.0,
        activation=activation,
        norm_first=activation == "gelu",
        batch_first=True,
        dtype=torch.float64,
        device=x.device,
    )
    own = names | {role: name for role, (name, _) in inside(ffn, width, hidden).items()}
    wide = {theirs: weights[ours].to(x.device, torch.float64) for theirs, ours in own.items()}
    return functional_call(layer, wide, (x.double(),), masks)


def names_of(norm1, attention, norm2):
    names = {f"self_attn{one}": f"{attention}{one}" for one in torch_attention(1)}
    for theirs, ours in (("norm1", norm1), ("norm2", norm2)):
        names |= {f"{theirs}.{one}": f"{ours}.{one}" for one in ("weight", "bias")}
    return names


def right_transformer(weights, sizes, x, blocked_attn_mask=None, key_padding_mask=None):
    return torch_s_layer(
        weights,
        sizes,
        x,
        names_of("ln1", "self_attn", "ln2"),
        "ffn",
        src_mask=blocked_attn_mask,
        src_key_padding_mask=key_padding_mask,
    )


def right_post_norm(weights, sizes, x, key_padding_mask=None):
    return torch_s_layer(
        weights,
        sizes,
        x,
        names_of("norm1", "attn", "norm2"),
        "ff",
        activation="relu",
        src_key_padding_mask=key_padding_mask,
    )


def right_fused(weights, sizes, x):
    names = names_of("ln1", "", "ln2") | {
        "self_attn.in_proj_weight": "qkv.weight",
        "self_attn.in_proj_bias": "qkv.bias",
        "self_attn.out_proj.weight": "proj.weight",
        "self_attn.out_proj.bias": "proj.bias",
    }
    return torch_s_layer(
        weights, sizes, x, names, "mlp", hidden=4 * sizes[0], src_mask=later(x.shape[1], x.device)
    )


def later(length, device):
    """True where key j comes after query i."""
    return torch.tensor([[j > i for j in range(length)] for i in range(length)], device=device)


def normed(weights, name, x):
    width = x.shape[-1:]
    return F.layer_norm(x, width, weights[f"{name}.weight"], weights[f"{name}.bias"])


def attended(weights, name, heads, x, *args, **options):
    own = {key.removeprefix(f"{name}."): one for key, one in weights.items() if name in key}
    return right_heads(own, heads, x, *args, **options)


def fed(weights, part, sizes, x):
    name = {role: name for role, (name, _) in inside(part, sizes[0], sizes[2]).items()}
    hidden = F.gelu(F.linear(x, weights[name["linear1.weight"]], weights[name["linear1.bias"]]))
    return F.linear(hidden, weights[name["linear2.weight"]], weights[name["linear2.bias"]])


def keys_allowed(valid, length, causal):
    """(B, 1, T, T) of those whom a row may read."""
    pairs = ~later(length, valid.device) if causal else torch.ones_like(later(length, valid.device))
    return pairs & valid[:, None, None, :]


def right_encoder(weights, sizes, x, valid_tokens, causal=False):
    valid = valid_tokens
    if valid is None:
        valid = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    wide = {name: one.to(x.device, torch.float64) for name, one in weights.items()}
    x, allowed = x.double(), keys_allowed(valid, x.shape[1], causal)
    read = normed(wide, "attention_norm", x)
    x = x + attended(wide, "self_attention", sizes[1], read, allowed=allowed, rope=True)
    x = x + fed(wide, "feed_forward", sizes, normed(wide, "ffn_norm", x))
    return x * valid[:, :, None]


def right_decoder(weights, sizes, x, memory, *, target_valid_tokens, memory_valid_tokens):
    wide = {name: one.to(x.device, torch.float64) for name, one in weights.items()}
    x, memory = x.double(), memory.double()
    allowed = keys_allowed(target_valid_tokens, x.shape[1], True)
    read = normed(wide, "self_norm", x)
    x = x + attended(wide, "self_attention", sizes[1], read, allowed=allowed, rope=True)
    read, allowed = normed(wide, "cross_norm", x), memory_valid_tokens[:, None, None, :]
    x = x + attended(wide, "cross_attention", sizes[1], read, memory, allowed)
    x = x + fed(wide, "feed_forward", sizes, normed(wide, "ffn_norm", x))
    return x * target_valid_tokens[:, :, None]


# The arguments of a call


def all_real(draw, *shape):
    return torch.ones(shape, dtype=torch.bool, device=draw.device)


def right_padded(draw, length):
    """(3, T), True where blocked: none, one and two tokens of padding on the right."""
    return torch.stack([torch.arange(length) >= length - count for count in range(3)]).to(
        draw.device
    )


def x_alone(draw, width, length=5):
    return (draw.normal(3, length, width),), {}


def x_and_valid(draw, width, length=5):
    return (draw.normal(3, length, width), all_real(draw, 3, length)), {}


def x_and_memory(draw, width, length=5):
    valid = {"target_valid_tokens": all_real(draw, 3, length)}
    valid["memory_valid_tokens"] = all_real(draw, 3, 4)
    return (draw.normal(3, length, width), draw.normal(3, 4, width)), valid


def with_both_masks(draw, width, length=5):
    masks = {"blocked_attn_mask": later(length, draw.device)}
    masks["key_padding_mask"] = right_padded(draw, length)
    return (draw.normal(3, length, width),), masks


def with_padding_mask(draw, width, length=5):
    return (draw.normal(3, length, width),), {"key_padding_mask": ~valid_tokens(draw, length)}


def some_padding(draw, length):
    """(4, T), True at real tokens: padding on the left, on the right, nowhere, everywhere."""
    return torch.cat([valid_tokens(draw, length), ~all_real(draw, 1, length)])


def with_valid(draw, width, length=5):
    return (draw.normal(4, length, width), some_padding(draw, length)), {}


def with_two_valid(draw, width, length=5):
    valid = {"target_valid_tokens": some_padding(draw, length)}
    valid["memory_valid_tokens"] = torch.cat([valid_tokens(draw, 6), all_real(draw, 1, 6)]).roll(1)
    return (draw.normal(4, length, width), draw.normal(4, 6, width)), valid


BLOCKS = (
    Block(
        transformer,
        ("d_model", "num_heads", "d_ff"),
        ("ln1", "ln2"),
        {"self_attn": torch_attention},
        "ffn",
        ("self_attn.out_proj", "ffn"),
        right_transformer,
        x_alone,
        with_both_masks,
        drops=True,
    ),
    Block(
        post_norm,
        ("embed_dim", "num_heads", "ff_dim"),
        ("norm1", "norm2"),
        {"attn": torch_attention},
        "ff",
        ("attn.out_proj", "ff"),
        right_post_norm,
        x_alone,
        with_padding_mask,
    ),
    Block(
        fused,
        ("d", "heads"),
        ("ln1", "ln2"),
        {"qkv.": fused_attention, "proj": one_linear},
        "mlp",
        ("proj", "mlp"),
        right_fused,
        x_alone,
        x_alone,
    ),
    Block(
        encoder,
        ("d_model", "num_heads", "hidden_dim"),
        ("attention_norm", "ffn_norm"),
        {"self_attention": course_attention},
        "feed_forward",
        ("self_attention.output_projection", "feed_forward"),
        right_encoder,
        x_and_valid,
        with_valid,
        drops=True,
    ),
    Block(
        decoder,
        ("d_model", "num_heads", "hidden_dim"),
        ("self_norm", "cross_norm", "ffn_norm"),
        {"self_attention": course_attention, "cross_attention": course_attention},
        "feed_forward",
        (
            "self_attention.output_projection",
            "cross_attention.output_projection",
            "feed_forward",
        ),
        right_decoder,
        x_and_memory,
        with_two_valid,
        drops=True,
    ),
    Block(
        decoder_only,
        ("d_model", "num_heads", "hidden_dim"),
        ("attention_norm", "ffn_norm"),
        {"self_attention": course_attention},
        "feed_forward",
        ("self_attention.output_projection", "feed_forward"),
        partial(right_encoder, causal=True),
        x_and_valid,
        with_valid,
        drops=True,
    ),
)
TRANSFORMER, POST_NORM, FUSED, ENCODER, DECODER, DECODER_ONLY = BLOCKS


def agree(tried, rows=None, **tolerances):
    """Fail unless each result is what the block has to return, to float32's digits.

    Where `rows` (B, T) is False nothing is promised.
    """
    usual = {"rtol": 2e-4, "atol": 2e-4} | tolerances
    for what, got, right in tried:
        shape_of(got, right.shape, f"{what} the result")
        if rows is not None:
            got, right = (one.masked_fill(~rows[:, :, None], 0.0) for one in (got, right))
        same(got, right, f"{what} the result", **usual)


def tries(block, answer, draw, calls, sizes=SIZES[0], **options):
    """(what, result, right result) of each call on one module with drawn weights."""
    module, weights = block.make(answer, draw, sizes, **options)
    return [
        (what, module.eval().call(args, kwargs).value, block.expect(weights, sizes, args, kwargs))
        for what, args, kwargs in calls
    ]


# What all blocks promise


def parts_are(block, module, sizes):
    """Fail unless the module trains what it should, under its names, and nothing else."""
    if not isinstance(module, Subject):
        raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
    found = module.rename(block.ffn).describe(values=False).parameters
    width, _, hidden = sizes
    shapes = block.shapes(width, hidden)
    two = [name for name, _ in inside(block.ffn, width, block.hidden(width, hidden)).values()]
    came = sorted((one.shape for name, one in found.items() if name.startswith(block.ffn + ".")))
    if came != sorted(shapes[name] for name in two):
        raise Failure(
            f"`{block.ffn}` has to hold two linear layers with biases, their weights "
            f"{shapes[two[0]]} and {shapes[two[2]]}. What it trains has the shapes: "
            f"{', '.join(map(str, came)) or 'none'}."
        )
    for name, shape in shapes.items():
        if name not in found:
            has = ", ".join(name for name in found if name not in two) or "none"
            raise Failure(f"There is no `{name}`. Besides `{block.ffn}` the parameters are: {has}.")
        if found[name].shape != shape:
            raise Failure(f"`{name}` has shape {found[name].shape}; {shape} was asked for.")
        if not found[name].requires_grad:
            raise Failure(f"`{name}` has requires_grad=False, so it would never be trained.")
    owners: dict[int, str] = {}
    for name in shapes:
        other = owners.setdefault(found[name].storage, name)
        if other != name:
            raise Failure(f"`{other}` and `{name}` are one and the same: each part has its own.")
    if extra := [name for name, one in found.items() if one.storage not in owners]:
        raise Failure(f"It also trains {', '.join(extra)}, which was not asked for.")


def shared_checks(block, parts, formula, silent):
    """Add what all blocks promise; the sentences say what differs."""
    exercise, gate = block.exercise, ["follows_the_formula"]
    ffn, attentions = block.branches[-1], block.branches[:-1]

    def has_its_parts(answer, reference, draw):
        for sizes in ((12, 3, 20), (32, 4, 7)):
            arguments = block.arguments(*sizes)
            named = dict(zip(block.sizes, arguments, strict=True))
            for args, kwargs in ((arguments, {}), ((), named)):
                parts_are(block, answer.call(args, kwargs, seed=0).value, sizes)

    def keeps_the_shape(answer, reference, draw):
        tried = []
        for sizes in SIZES[:2]:
            for length in (1, 5):
                module, _ = block.make(answer, draw, sizes)
                args, kwargs = block.inputs(draw, sizes[0], length)
                tried.append((args[0].shape, module.eval().call(args, kwargs).value))
        for shape, result in tried:
            shape_of(result, shape, f"x has shape {tuple(shape)}, and the result")

    def computes_a_single_token(answer, reference, draw):
        calls = [("With a single token", *block.inputs(draw, width, 1)) for width in (12, 8)]
        agree(tries(block, answer, draw, calls[:1], SIZES[0]))
        agree(tries(block, answer, draw, calls[1:], SIZES[1]))

    def with_silent(answer, draw, branches, said):
        tried = []
        for sizes in SIZES[:2]:
            module, weights = block.make(answer, draw, sizes)
            zeros = block.silenced(sizes, *branches)
            args, kwargs = block.inputs(draw, sizes[0])
            result = module.load(**zeros).eval().call(args, kwargs).value
            tried.append((said, result, block.expect(weights | zeros, sizes, args, kwargs)))
        agree(tried)

    def lets_x_through(answer, reference, draw):
        with_silent(answer, draw, block.branches, "With every branch silent")

    def lets_attention_write(answer, reference, draw):
        with_silent(answer, draw, [ffn], f"With `{ffn}` silent")

    def lets_the_ffn_write(answer, reference, draw):
        with_silent(answer, draw, attentions, "With attention silent")

    def follows_the_formula(answer, reference, draw):
        tried = []
        for sizes in SIZES:
            call = (f"With C = {sizes[0]}, H = {sizes[1]}", *block.inputs(draw, sizes[0]))
            tried += tries(block, answer, draw, [call], sizes)
        agree(tried)

    def leaves_its_inputs_untouched(answer, reference, draw):
        for call in (block.inputs, block.masked):
            module, _ = block.make(answer, draw, SIZES[0])
            args, kwargs = call(draw, C)
            after = module.eval().call(args, kwargs, after=True)
            names = ("x", "valid_tokens" if block.masked is with_valid else "memory")
            for name, got, before in zip(names, after.arguments, args, strict=False):
                untouched(got, before, name)
            for name, before in kwargs.items():
                untouched(after.keywords[name], before, name)

    def lets_gradients_flow(answer, reference, draw):
        for call in (block.inputs, block.masked):
            module, weights = block.make(answer, draw, SIZES[0])
            args, kwargs = call(draw, C)
            wide = [one.double() for one in args if one.is_floating_point()]
            rest = args[len(wide) :]
            back = draw.normal(*args[0].shape, dtype=torch.float64)
            module = module.to(dtype=torch.float64).eval()
            got = module.backward(back, *wide, *rest, **kwargs)
            named = dict(zip(("x", "memory"), wide, strict=False))
            agrees_in_gradients(
                [*got.gradients[: len(wide)], *(got.parameters[name] for name in weights)],
                lambda x, memory=None, rest=rest, kwargs=kwargs, **weights: block.right(
                    weights,
                    SIZES[0],
                    *((x,) if memory is None else (x, memory)),
                    *rest,
                    **kwargs,
                ),
                named | {name: one.double() for name, one in weights.items()},
                back,
            )

    def keeps_the_dtype(answer, reference, draw):
        for call in (block.inputs, block.masked):
            module, weights = block.make(answer, draw, SIZES[0], size=0.3)
            args, kwargs = call(draw, C)
            for dtype in DTYPES:
                given = [one.to(dtype) if one.is_floating_point() else one for one in args]
                result = module.to(dtype=dtype).eval().call(tuple(given), kwargs).value
                right = block.expect(weights, SIZES[0], args, kwargs).to(dtype)
                short = str(dtype).removeprefix("torch.")
                agree([(f"For {short} inputs", result, right)], rtol=5e-2, atol=5e-2)

    def stays_on_the_device(answer, reference, draw):
        module = answer.call(block.arguments(*SIZES[0]), seed=0).value.to(device="meta")
        for training in (False, True):
            for call in (block.inputs, block.masked):
                args, kwargs = call(draw, C)
                module.train(training).on_meta(*args, **kwargs)

    def is_the_same_at_every_call(answer, reference, draw):
        module, _ = block.make(answer, draw, SIZES[0])
        args, kwargs = block.inputs(draw, C)
        module = module.eval()
        before = module.call(args, kwargs).value
        longer, more = block.masked(draw, C, 7)
        module.call(longer, more)
        shape_of(before, args[0].shape)
        same(module.call(args, kwargs).value, before, "A second call on the same x")

    def owns_its_weights(answer, reference, draw):
        make = partial(answer.call, block.arguments(*SIZES[0]), seed=0)
        owns_its_parameters(lambda: make().value.rename(block.ffn), draw)

    first, second = ["has_its_parts"], ["keeps_the_shape"]
    for run, sentence, points, needs in (
        (has_its_parts, parts, 1, ()),
        (keeps_the_shape, "(B, T, C) goes in and (B, T, C) comes out, one tensor.", 1, first),
        (lets_x_through, silent[0], 1, second),
        (lets_attention_write, silent[1], 1, second),
        (lets_the_ffn_write, silent[2], 1, second),
        (computes_a_single_token, "A single token reads itself, and is right.", 1, second),
        (follows_the_formula, formula, 2, second),
        (leaves_its_inputs_untouched, "What it is given is the same after the call.", 1, gate),
        (lets_gradients_flow, "Gradients reach the inputs and every parameter.", 1, gate),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it works there.", 1, gate),
        (is_the_same_at_every_call, "A call leaves no trace in the next.", 1, gate),
        (owns_its_weights, "Two blocks do not share weights.", 1, first),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


def nothing_is_drawn(answer, module, call, what):
    """Fail if two calls differ.

    Numbers that are drawn tell nothing of who drew them, so these calls are made aside.
    """
    with answer.aside():
        one, other = (module.call(*call, seed=seed).value for seed in (1, 2))
    shape_of(one, call[0][0].shape)
    if not torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True):
        raise Failure(f"{what} two calls on the same x differ: something is dropped there.")


def dropout_checks(block):
    """Add what a `dropout` promises, wherever on the branches it stands."""
    gate = ["follows_the_formula"]

    def is_still_in_eval(answer, reference, draw):
        module, weights = block.make(answer, draw, SIZES[0], 0.5)
        call, what = block.inputs(draw, C), "In eval mode, with `dropout=0.5`,"
        nothing_is_drawn(answer, module.eval(), call, what)
        agree([(what, module.call(*call).value, block.expect(weights, SIZES[0], *call))])

    def drops_nothing_at_zero(answer, reference, draw):
        call, tried = block.inputs(draw, C), []
        for dropout, said in quiet:
            module, weights = block.make(answer, draw, SIZES[0], dropout)
            nothing_is_drawn(answer, module.train(), call, f"In training, {said},")
            right = block.expect(weights, SIZES[0], *call)
            tried.append((f"In training, {said},", module.call(*call).value, right))
        agree(tried)

    def something_is_drawn(answer, draw, dropout, by_name, given):
        module, _ = block.make(answer, draw, SIZES[0], dropout, by_name)
        args, kwargs = block.inputs(draw, C)
        module.train()
        with answer.aside():
            one, other = (module.call(args, kwargs, seed=seed).value for seed in (1, 2))
        shape_of(one, args[0].shape)
        if torch.allclose(one, other, rtol=1e-3, atol=1e-3):
            raise Failure(f"In training, {given}, nothing is dropped: a second call is equal.")
        return module

    def drops_in_training(answer, reference, draw):
        for by_name in (True, False):
            module = something_is_drawn(answer, draw, 0.5, by_name, "with `dropout=0.5`")
            with answer.aside():
                for name, (kind, _) in module.describe(values=False).modules.items():
                    p = module.attribute(f"{name}.p") if kind == "Dropout" else 0.5
                    if p not in (0.5, 0.0):
                        raise Failure(f"`dropout=0.5` was given, and the probability is {p}.")

    def drops_by_default(answer, reference, draw):
        something_is_drawn(answer, draw, None, True, "with no dropout given")

    def keeps_the_shortcut_whole(answer, reference, draw):
        module, _ = block.make(answer, draw, SIZES[0], 0.5)
        module.load(**block.silenced(SIZES[0], *block.branches)).train()
        call = block.inputs(draw, C)
        what = "Every branch is silent, and with `dropout=0.5` in training"
        nothing_is_drawn(answer, module, call, what)
        agree([(what, module.call(*call).value, call[0][0])])

    quiet: list[tuple[float | None, str]] = [(0.0, "with `dropout=0.0`")]
    if block is not TRANSFORMER:
        quiet.append((None, "with no dropout given"))
    checks = [
        (is_still_in_eval, "In eval mode nothing is dropped, whatever the probability."),
        (drops_nothing_at_zero, f"In training, {quiet[-1][1]}, nothing is dropped."),
        (drops_in_training, "In training something on a branch is dropped, anew at each call."),
        (keeps_the_shortcut_whole, "Dropout stands on branches: the shortcut stays whole."),
    ]
    if block is TRANSFORMER:
        checks.append((drops_by_default, "The dropout is not 0.0 where none is given."))
    for run, sentence in checks:
        block.exercise.add(run.__name__, sentence, run, 1, gate)


PRE_NORM = (
    "With silent branches x comes back as it was.",
    "With a silent ffn it is what attention alone adds to x, reading the normalized x.",
    "With silent attention it is what the ffn alone adds to x, reading the normalized x.",
)


# block_parameters


@block_parameters.check(points=2)
def counts_them_all(answer, reference, draw):
    """It counts what nn.TransformerEncoderLayer trains, as an int: 12,704 at (32, 128)."""
    sizes = ((32, 128), (4, 7), (7, 3), (64, 256), (1, 1))
    tried = [(size, answer(*size)) for size in sizes]
    tried.append(((5, 8), answer(d_model=5, d_ff=8)))
    for (width, hidden), got in tried:
        layer = nn.TransformerEncoderLayer(width, 1, hidden)
        right = sum(one.numel() for one in layer.parameters())
        call = f"block_parameters({width}, {hidden})"
        if got is None:
            raise Failure("The result is None. Did you forget to `return` it?")
        if type(got) is not int:
            kind = got.type_name if isinstance(got, Subject) else type(got).__name__
            raise Failure(f"{call} is a {kind}; an int was asked for.")
        if got != right:
            raise Failure(f"{call} is {got:,}; torch's layer has {right:,}.")


# TransformerBlock

shared_checks(
    TRANSFORMER,
    "It trains `ln1`, `self_attn` (nn.MultiheadAttention), `ln2`, `ffn` (two linear layers), and "
    "nothing else.",
    "The result is h + ffn(ln2(h)), h = x + attention(ln1(x)): torch's own, on the same weights.",
    PRE_NORM,
)


@transformer.check(points=1, needs=["has_its_parts"])
def is_built_over_torch_s_attention(answer, reference, draw):
    """`self_attn` is an nn.MultiheadAttention; `d_ff` is 4 · d_model unless given, None too."""
    for more, hidden in (((), 48), ((None,), 48), ((7,), 7)):
        module = answer.call((12, 3, *more), seed=0).value
        parts_are(TRANSFORMER, module, (12, 3, hidden))
        kind = module.attribute("self_attn").kind()
        if "MultiheadAttention" not in kind.bases:
            raise Failure(f"`self_attn` is a {kind.bases[0]}; nn.MultiheadAttention was asked for.")


def blocked_pairs(draw, length):
    """Random (T, T), True where blocked; every row may read somebody."""
    blocked = draw.integers(0, 2, length, length) == 1
    return blocked & ~torch.eye(length, dtype=torch.bool, device=draw.device).roll(1, 1)


@transformer.check(points=2, needs=["follows_the_formula"])
def hides_blocked_pairs(answer, reference, draw):
    """`blocked_attn_mask` (T, T) hides pairs, True where blocked, by name or as the second."""
    x = draw.normal(3, 5, C)
    calls: list[Any] = []
    for what, mask in (("a causal mask", later(5, x.device)), ("a mask", blocked_pairs(draw, 5))):
        calls.append((f"With {what} given by name", (x,), {"blocked_attn_mask": mask}))
        calls.append((f"With {what} given by position", (x, mask), {}))
    agree(tries(TRANSFORMER, answer, draw, calls))


def hides_padded_keys(block, position):
    """A check that padding is hidden, by name and at that position of the arguments."""

    def run(answer, reference, draw):
        x, calls = draw.normal(3, 6, C), []
        for padding in (~valid_tokens(draw, 6), right_padded(draw, 6)):
            by_position = (x, *[None] * (position - 1), padding)
            calls.append(("With padding given by name", (x,), {"key_padding_mask": padding}))
            calls.append(("With padding given by position", by_position, {}))
        agree(tries(block, answer, draw, calls))

    return run


transformer.add(
    "hides_padded_keys",
    "`key_padding_mask` (B, T) hides padding as keys, True where blocked, on either side.",
    hides_padded_keys(TRANSFORMER, 2),
    2,
    ["follows_the_formula"],
)


@transformer.check(points=2, needs=["hides_blocked_pairs", "hides_padded_keys"])
def joins_both_masks(answer, reference, draw):
    """With both masks a key is read where neither hides it."""
    x, blocked = draw.normal(3, 6, C), later(6, draw.device)
    for padding in (right_padded(draw, 6), ~valid_tokens(draw, 6)):
        masks = {"blocked_attn_mask": blocked, "key_padding_mask": padding}
        readers = ~(blocked | padding[:, None, :]).all(-1)  # of the others nothing is promised
        calls: list[Any] = [("With both masks by name", (x,), masks)]
        calls.append(("With both masks by position", (x, blocked, padding), {}))
        agree(tries(TRANSFORMER, answer, draw, calls), readers)


@transformer.check(points=1)
def refuses_a_width_that_does_not_divide(answer, reference, draw):
    """A width that the heads don't divide is a ValueError, raised by `__init__`."""
    tried = [(sizes, answer.attempt(sizes)) for sizes in ((10, 3), (4, 8), (12, 5))]
    for (width, heads), outcome in tried:
        refuses(outcome, f"d_model is {width} and num_heads {heads}")


dropout_checks(TRANSFORMER)


# PostNormBlock

shared_checks(
    POST_NORM,
    "It trains `attn` (nn.MultiheadAttention), `norm1`, `ff` (two linear layers), `norm2`, and "
    "nothing else.",
    "The result is norm2(h + ff(h)), h = norm1(x + attention(x)): torch's, on the same weights.",
    (
        "With silent branches it is norm2(norm1(x)).",
        "With a silent ff it is norm2(norm1(x + attention(x))).",
        "With silent attention it is norm2(h + ff(h)), h = norm1(x).",
    ),
)
post_norm.add(
    "hides_padded_keys",
    "`key_padding_mask` (B, T) hides padding as keys, True where blocked, on either side.",
    hides_padded_keys(POST_NORM, 1),
    2,
    ["follows_the_formula"],
)


def no_dropout_check(block):
    def is_the_same_in_training(answer, reference, draw):
        module, weights = block.make(answer, draw, SIZES[0])
        call = block.inputs(draw, C)
        nothing_is_drawn(answer, module.train(), call, "In training")
        agree([("In training", module.call(*call).value, block.expect(weights, SIZES[0], *call))])

    block.exercise.add(
        "is_the_same_in_training",
        "It takes no dropout: training mode and eval mode give the same.",
        is_the_same_in_training,
        1,
        ["follows_the_formula"],
    )


no_dropout_check(POST_NORM)


# FusedBlock

shared_checks(
    FUSED,
    "It trains `ln1`, `qkv`, `proj`, `ln2`, `mlp` (two linear layers, 4d between), and nothing "
    "else.",
    "It is torch's own causal block on the same weights: thirds of `qkv`, heads as slices of each.",
    PRE_NORM,
)
no_dropout_check(FUSED)


@fused.check(points=1)
def trains_12704_numbers(answer, reference, draw):
    """At d = 32 it trains 12,704 numbers, however many heads there are."""
    for heads in (4, 2):
        module = answer.call((32, heads), seed=0).value
        if not isinstance(module, Subject):
            raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
        found = module.describe(values=False).parameters.values()
        count = sum({one.storage: torch.Size(one.shape).numel() for one in found}.values())
        if count != 12_704:
            raise Failure(f"FusedBlock(32, {heads}) trains {count:,} numbers.")


@fused.check(points=1, needs=["keeps_the_shape"])
def sees_nothing_later(answer, reference, draw):
    """A change of later tokens moves no output before them."""
    for sizes in SIZES[:2]:
        module, _ = FUSED.make(answer, draw, sizes)
        x, changed = (draw.normal(3, 6, sizes[0]) for _ in range(2))
        changed[:, :4] = x[:, :4]
        one, other = module.eval()(x), module.eval()(changed)
        shape_of(other, x.shape)
        same(other[:, :4], one[:, :4], "Tokens 4 and 5 were changed; what came before them")


# to_reference

# Insides of an `ffn` that people build, for a TransformerBlock put together from torch's parts.
INSIDES = (
    lambda up, down: recipe("Sequential", up, recipe("GELU"), down),
    lambda up, down: recipe("Sequential", up, recipe("GELU"), recipe("Dropout", 0.0), down),
)


def a_block(answer, draw, sizes=SIZES[0]):
    """A TransformerBlock on the answer's side, in eval mode, and the weights loaded into it.

    It is the answer's own class where the notebook has one with the right parts: the insides of
    `ffn` are free, and an answer may know those of its own.
    """
    width, heads, hidden = sizes
    weights = {}
    for name, shape in TRANSFORMER.shapes(width, hidden).items():
        weights[name] = 0.6 * (draw.normal(*shape) if len(shape) == 2 else draw.gain(*shape))
    with answer.aside():
        module = _own(answer, sizes)
        if module is None:
            linears = recipe("Linear", width, hidden), recipe("Linear", hidden, width)
            built = [_built(answer, ffn(*linears), width, heads) for ffn in INSIDES]
            fits = [one for one in built if answer.attempt((one,)).error is None]
            module = (fits or built)[0]
        module.rename("ffn").load(**weights).eval()
    return module, weights


def _own(answer, sizes):
    """A block of the class that stands beside the answer, if that has the right parts."""
    beside = answer.beside("TransformerBlock")
    module = None if beside is None else beside.attempt(sizes).value
    try:
        parts_are(TRANSFORMER, module, sizes)
    except Failure:
        return None
    return module if over_torch_s(module) else None


def over_torch_s(module):
    return "MultiheadAttention" in module.attribute("self_attn").kind().bases


def _built(answer, ffn, width, heads):
    attention = recipe("MultiheadAttention", width, heads, batch_first=True)
    norm = recipe("LayerNorm", width)
    module = answer.make(recipe("Module"))
    for name, part in (("ln1", norm), ("self_attn", attention), ("ln2", norm), ("ffn", ffn)):
        module.assign(name, part)
    return module


def the_layer(answer, block):
    """What the answer makes of `block`; Failure where it is none of torch's layers."""
    layer = answer(block)
    if layer is None:
        raise Failure("The result is None. Did you forget to `return` it?")
    kind = layer.kind() if isinstance(layer, Subject) else None
    if kind is None or "TransformerEncoderLayer" not in kind.bases:
        came = kind.bases[0] if kind else type(layer).__name__
        raise Failure(f"An nn.TransformerEncoderLayer was asked for; this is a {came}.")
    return layer


@to_reference.check(points=1)
def returns_torch_s_layer(answer, reference, draw):
    """It returns an nn.TransformerEncoderLayer."""
    for sizes in SIZES[:2]:
        the_layer(answer, a_block(answer, draw, sizes)[0])


@to_reference.check(points=4, needs=["returns_torch_s_layer"])
def gives_the_same_outputs(answer, reference, draw):
    """In eval mode the layer's outputs are the block's, without masks and with both."""
    causal = {"mask": ("blocked_attn_mask", later(5, draw.device))}
    padding = {"key_padding_mask": ("key_padding_mask", right_padded(draw, 5))}
    tried = []
    for sizes in SIZES[:3]:
        block, weights = a_block(answer, draw, sizes)
        layer = the_layer(answer, block).eval()
        x = draw.normal(3, 5, sizes[0])
        for what, given in (
            ("without masks", {}),
            ("with a causal mask", causal),
            ("with padding", padding),
            ("with both masks", causal | padding),
        ):
            options = {f"src_{theirs}": mask for theirs, (_, mask) in given.items()}
            right = TRANSFORMER.expect(weights, sizes, (x,), dict(given.values()))
            for grad in (True, False):
                got = layer.call((x,), options, grad=grad).value
                tried.append((f"In eval mode, {what},", got, right))
    agree(tried)


@to_reference.check(points=1, needs=["returns_torch_s_layer"])
def holds_copies(answer, reference, draw):
    """The weights are copies: whoever trains the block leaves the layer as it was."""
    block, weights = a_block(answer, draw)
    layer, x = the_layer(answer, block).eval(), draw.normal(3, 5, C)
    before = layer(x)
    block.load(**{name: one + 1 for name, one in weights.items()})
    same(layer(x), before, "After a change of the block's weights what the layer gives")


@to_reference.check(points=1, needs=["returns_torch_s_layer"])
def leaves_the_block_as_it_was(answer, reference, draw):
    """The block keeps its weights, and each of its parts its mode."""
    block, weights = a_block(answer, draw)
    for training in (True, False):
        block.train(training)
        layer = the_layer(answer, block)
        layer.load(norm1__weight=draw.gain(C))
        found = block.describe()
        for name, one in weights.items():
            close(found.state[name], one, f"`{name}` of the block")
        if any(mode != training for _, mode in found.modules.values()):
            raise Failure("The block is in another mode than before: `eval()` and `train()` stay.")


@to_reference.check(points=1, needs=["gives_the_same_outputs"])
def has_the_block_s_dtype_and_device(answer, reference, draw):
    """The layer has the block's dtype, without rounding, and its device."""
    block, weights = a_block(answer, draw)
    x = draw.normal(3, 5, C, dtype=torch.float64)
    wide = {name: draw.gain(*one.shape, dtype=torch.float64) / 3 for name, one in weights.items()}
    block = block.to(dtype=torch.float64).load(**wide)
    got = the_layer(answer, block).eval()(x)
    same(got, right_transformer(wide, SIZES[0], x), "Of a float64 block what the layer gives")
    block, _ = a_block(answer, draw)
    made = answer.on_meta(block.to(device="meta"))
    if isinstance(made, Subject):
        for name, one in made.describe(values=False).parameters.items():
            if one.device != "meta":
                raise Failure(f"The block was on another device, and `{name}` is on the CPU.")


# The blocks of the course's own parts

COURSE_PARTS = (
    "It trains {}, each made of the course's parts, and nothing else.",
    "The result is torch's attention, norm and GELU put together: h = x + attention(norm(x)), with "
    "RoPE, then h + ffn(norm(h)).",
)
shared_checks(
    ENCODER,
    COURSE_PARTS[0].format("`attention_norm`, `self_attention`, `ffn_norm`, `feed_forward`"),
    COURSE_PARTS[1],
    PRE_NORM,
)
shared_checks(
    DECODER,
    COURSE_PARTS[0].format(
        "`self_norm`, `self_attention`, `cross_norm`, `cross_attention`, `ffn_norm`, `feed_forward`"
    ),
    "The result is x plus three branches, each behind its norm: causal self-attention with RoPE, "
    "attention to the memory without, the ffn.",
    PRE_NORM,
)
shared_checks(
    DECODER_ONLY,
    COURSE_PARTS[0].format("`attention_norm`, `self_attention`, `ffn_norm`, `feed_forward`"),
    COURSE_PARTS[1].replace("with RoPE", "causal and with RoPE"),
    PRE_NORM,
)


def padding_checks(block, valid_of, sentence):
    """Add what padding promises; `valid_of(args, kwargs)` is which rows are real."""

    def padded(answer, draw):
        calls, rows = [], []
        for length in (5, 7):
            args, kwargs = block.masked(draw, C, length)
            rows.append(valid_of(args, kwargs))
            if length == 7 and block is not DECODER:
                args, kwargs = args[:1], {"valid_tokens": args[1]}
            calls.append(("With padding", args, kwargs))
        return zip(tries(block, answer, draw, calls), rows, strict=True)

    def hides_padding(answer, reference, draw):
        for one, real in [*padded(answer, draw)]:
            agree([one], real)

    def makes_padded_rows_zero(answer, reference, draw):
        for (_, got, right), real in [*padded(answer, draw)]:
            shape_of(got, right.shape)
            rows = got.masked_fill(real[:, :, None], 0.0)
            same(rows, torch.zeros_like(rows), "At padding the result")

    for run, said, points in (
        (hides_padding, sentence, 2),
        (makes_padded_rows_zero, "Rows of padding come out zero, in an empty sentence too.", 1),
    ):
        block.exercise.add(run.__name__, said, run, points, ["follows_the_formula"])


padding_checks(
    ENCODER,
    lambda args, kwargs: args[1],
    "`valid_tokens` hides padding from real tokens, on either side.",
)
padding_checks(
    DECODER,
    lambda args, kwargs: kwargs["target_valid_tokens"],
    "Padding is hidden from real tokens, in the target and in the memory, on either side.",
)
padding_checks(
    DECODER_ONLY,
    lambda args, kwargs: args[1],
    "`valid_tokens` hides padding from real tokens, on either side.",
)
for one in (ENCODER, DECODER, DECODER_ONLY):
    dropout_checks(one)


@decoder.check(points=1, needs=["keeps_the_shape"])
def reads_the_memory(answer, reference, draw):
    """With the other branches silent it is what attention to the memory alone adds to x."""
    tried = []
    for sizes in SIZES[:2]:
        module, weights = DECODER.make(answer, draw, sizes)
        zeros = DECODER.silenced(sizes, DECODER.branches[0], DECODER.branches[2])
        args, kwargs = DECODER.inputs(draw, sizes[0])
        result = module.load(**zeros).eval().call(args, kwargs).value
        right = DECODER.expect(weights | zeros, sizes, args, kwargs)
        tried.append(("With the other branches silent", result, right))
    agree(tried)


# DecoderOnlyBlock alone


@decoder_only.check(points=1, needs=["follows_the_formula"])
def takes_none_for_all_real(answer, reference, draw):
    """`valid_tokens=None` means that all tokens are real."""
    module, weights = DECODER_ONLY.make(answer, draw, SIZES[0])
    x = draw.normal(3, 5, C)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, None), {})
    by_position, by_name = module.eval()(x, None), module.eval()(x, valid_tokens=None)
    agree([("With None for `valid_tokens`", got, right) for got in (by_position, by_name)])


def result_and_cache(result, what):
    """The two that come back with `use_cache`."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        came = getattr(result, "type_name", "") or type(result).__name__
        raise Failure(f"{what}: (x, cache) was asked for, and a {came} came back.")
    if result[1] is None:
        raise Failure(f"{what}: the second that came back, the cache, is None.")
    return result


def in_chunks(module, x, chunks, valid=None):
    """What comes of x in `chunks`, each given the cache of those before it."""
    outputs, cache, end = [], None, 0
    for count in chunks:
        start, end = end, end + count
        now = None if valid is None else valid[:, :end]
        result = module(x[:, start:end], now, cache=cache, use_cache=True)
        what = f"Tokens {start} to {end - 1}"
        output, cache = result_and_cache(result, what)
        shape_of(output, (x.shape[0], count, x.shape[2]), f"{what}: the result")
        outputs.append(output)
    return torch.cat(outputs, dim=1)


CHUNKS = ((1, 1, 1, 1, 1, 1, 1), (1, 2, 3, 1), (3, 2, 2), (2, 1, 4))


@decoder_only.check(points=1, needs=["takes_none_for_all_real"])
def returns_a_cache(answer, reference, draw):
    """With `use_cache` it returns (x, cache), on the first call too; without it x alone."""
    module, weights = DECODER_ONLY.make(answer, draw, SIZES[0])
    x, tried = draw.normal(3, 5, C), []
    for valid in (None, all_real(draw, 3, 5)):
        right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {})
        output, _ = result_and_cache(module.eval()(x, valid, use_cache=True), "With `use_cache`")
        tried.append(("With `use_cache`", output, right))
    agree(tried)


@decoder_only.check(points=3, needs=["returns_a_cache"])
def goes_on_from_a_cache(answer, reference, draw):
    """Chunks of 1, 2 or 3 tokens, each with the last cache, give what all at once gives."""
    module, weights = DECODER_ONLY.make(answer, draw, SIZES[0])
    x, tried = draw.normal(3, 7, C), []
    for valid in (None, all_real(draw, 3, 7)):
        right = DECODER_ONLY.expect(weights, SIZES[0], (x, None), {})
        for chunks in CHUNKS:
            tried.append((f"In chunks of {chunks}", in_chunks(module.eval(), x, chunks, valid)))
    agree([(*one, right) for one in tried])


@decoder_only.check(points=2, needs=["goes_on_from_a_cache", "hides_padding"])
def hides_padding_in_the_cache(answer, reference, draw):
    """With a cache `valid_tokens` covers all tokens so far, and its last columns are the new."""
    module, weights = DECODER_ONLY.make(answer, draw, SIZES[0])
    x, valid = draw.normal(4, 7, C), some_padding(draw, 7)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {})
    tried = [(one, in_chunks(module.eval(), x, one, valid)) for one in CHUNKS]
    agree([(f"With padding, in chunks of {one}", got, right) for one, got in tried])


@decoder_only.check(points=1, needs=["goes_on_from_a_cache"])
def leaves_a_given_cache_alone(answer, reference, draw):
    """A cache that is given is used without `use_cache` too, and stays as it was."""
    module, weights = DECODER_ONLY.make(answer, draw, SIZES[0])
    x, other = draw.normal(2, 5, C), draw.normal(2, 2, C)
    _, cache = result_and_cache(module.eval()(x[:, :3], None, use_cache=True), "With `use_cache`")
    module(other, None, cache=cache, use_cache=True)
    again = module(x[:, 3:], None, cache=cache)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, None), {})[:, 3:]
    agree([("The second of two that go on from one cache", again, right)])


@decoder_only.check(points=1, needs=["hides_padding_in_the_cache"])
def caches_in_other_dtypes_and_places(answer, reference, draw):
    """With a cache it keeps dtype and device as well."""
    x, valid = draw.normal(4, 5, C), some_padding(draw, 5)
    for dtype in DTYPES:
        module, weights = DECODER_ONLY.make(answer, draw, SIZES[0], size=0.3)
        got = in_chunks(module.to(dtype=dtype).eval(), x.to(dtype), (2, 3), valid)
        right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {}).to(dtype)
        agree([("In chunks", got, right)], rtol=5e-2, atol=5e-2)
    module = answer.call(SIZES[0], seed=0).value.to(device="meta")
    for now, later_on in ((valid[:, :2], valid), (None, None)):
        first = module.on_meta(x[:, :2], now, use_cache=True)
        if isinstance(first, tuple):
            module.on_meta(x[:, 2:], later_on, cache=first[1], use_cache=True)
