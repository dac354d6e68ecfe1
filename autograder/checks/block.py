"""What the answers of lesson 06 must do.

Expected values come from torch's own nn.TransformerEncoderLayer in float64; for the blocks of the
course's parts from torch's attention, norm and GELU, put together by the formula; or from a
property: a silent branch, a second call. Weights are of order one and sizes differ.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from autograder.checks.masks import NAMES, right_heads, valid_tokens
from autograder.judge import (
    Exercise,
    Failure,
    Subject,
    close,
    recipe,
    same,
    shape_of,
    short_name,
    untouched,
)
from autograder.judge.properties import (
    agrees_in_gradients,
    chunk_by_chunk,
    is_count,
    pair,
    refuses,
    trained_besides,
)
from autograder.judge.quiz import quiz
from autograder.judge.subject import explain, is_its_own

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
C = SIZES[0][0]


# The parts, and what torch makes of them


def torch_attention(width, name="", out=".out_proj"):
    """nn.MultiheadAttention's shapes, by the names that its two layers have in a block."""
    joined = f"{name}.in_proj_" if name else "qkv."
    shapes = {"weight": (3 * width, width), "bias": (3 * width,)}
    found = {joined + one: shape for one, shape in shapes.items()}
    return found | linear(f"{name}{out}", width, width)


def course_attention(width, name):
    layers = (linear(f"{name}.{one}_projection", width, width) for one in NAMES)
    return {layer: shape for found in layers for layer, shape in found.items()}


def linear(name, width, outputs):
    return {f"{name}.weight": (outputs, width), f"{name}.bias": (outputs,)}


@dataclass(frozen=True)
class Block:
    """What is asked of one of the blocks.

    `sizes` are its first arguments' names; `norms`, `attention` (its parameters' shapes, of the
    width) and `ffn` its parts; `branches` the last layer of each branch, the ffn's by the name of
    the part. `right` is what it has to return, in float64 and with its history. `inputs` draws the
    arguments of a call, called `given`; `masked` the same with masks; `valid` finds in them which
    rows are real.
    """

    exercise: Exercise
    sizes: tuple[str, ...]
    norms: tuple[str, ...]
    attention: Callable
    ffn: str
    branches: tuple[str, ...]
    right: Callable
    inputs: Callable
    masked: Callable
    given: tuple[str, ...] = ("x",)
    valid: Callable = lambda x, valid_tokens: valid_tokens
    drops: bool = False

    def arguments(self, width, heads, hidden):
        return (width, heads, hidden)[: len(self.sizes)]

    def inside(self, sizes):
        """{name: shape} of the two linear layers, in the order weight, bias, weight, bias."""
        width, _, hidden = sizes
        hidden = hidden if len(self.sizes) == 3 else 4 * width
        shapes = [(hidden, width), (hidden,), (width, hidden), (width,)]
        order = sorted(shapes, reverse=True)  # as `Subject.rename` numbers them
        return {f"{self.ffn}.{order.index(shape)}": shape for shape in shapes}

    def linears(self, sizes):
        return list(self.inside(sizes))

    def shapes(self, sizes):
        """{name: shape} of everything it trains."""
        shapes = {f"{norm}.{one}": sizes[:1] for norm in self.norms for one in ("weight", "bias")}
        return shapes | self.attention(sizes[0]) | self.inside(sizes)

    def last(self, sizes, branches):
        """The names of the weights and biases that these branches end in."""
        names: list[str] = []
        for branch in branches:
            ends = self.linears(sizes)[2:], [f"{branch}.weight", f"{branch}.bias"]
            names += ends[branch != self.ffn]
        return names

    def silenced(self, sizes, branches):
        """Zeros for the last layers of these branches, by name."""
        shapes = self.shapes(sizes)
        return {name: torch.zeros(shapes[name]) for name in self.last(sizes, branches)}

    def draw_weights(self, draw, sizes, size=0.6):
        """Weights of order one, by name."""
        return {
            name: size * (draw.normal(*shape) if len(shape) == 2 else draw.gain(*shape))
            for name, shape in self.shapes(sizes).items()
        }

    def make(
        self,
        answer,
        draw,
        sizes=SIZES[0],
        dropout=0.0,
        *,
        train=None,
        by_name=True,
        size=0.6,
        weights=None,
    ):
        """A module of the answer, and the weights that are loaded into it, drawn or given.

        A dropout of None is none given; without `train` it is in the mode it was made in.
        """
        arguments, options = self.arguments(*sizes), {}
        if self.drops and dropout is not None:
            options = {"dropout": dropout} if by_name else {}
            arguments = arguments if by_name else (*arguments, dropout)
        weights = self.draw_weights(draw, sizes, size) if weights is None else weights
        ready = {"rename": [self.ffn], "load": weights, "train": train}
        module = answer.call(arguments, options, seed=0, **ready).value
        if not isinstance(module, Subject):
            raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
        return module, weights

    def expect(self, weights, sizes, args, kwargs):
        """What the call has to return, in the dtype of the first argument."""
        got = self.right(weights, sizes, *args, **kwargs)
        return got.detach().to(args[0].dtype)


def torch_s_layer(block, weights, sizes, x, activation="gelu", **masks):
    """nn.TransformerEncoderLayer on these weights, each found by its place."""
    norms = {f"{norm}.{one}": 0 for norm in block.norms for one in ("weight", "bias")}
    names = [*block.attention(sizes[0]), *block.linears(sizes), *norms]
    layer = nn.TransformerEncoderLayer(
        sizes[0],
        sizes[1],
        block.inside(sizes)[block.linears(sizes)[0]][0],
        dropout=0.0,
        activation=activation,
        norm_first=activation == "gelu",
        batch_first=True,
        dtype=torch.float64,
        device=x.device,
    )
    own = [name for name, _ in layer.named_parameters()]  # attention, two layers, two norms
    wide = {
        theirs: weights[name].to(x.device, torch.float64)
        for theirs, name in zip(own, names, strict=True)
    }
    return functional_call(layer, wide, (x.double(),), masks)


def right_transformer(weights, sizes, x, blocked_attn_mask=None, key_padding_mask=None):
    masks = {"src_mask": blocked_attn_mask, "src_key_padding_mask": key_padding_mask}
    return torch_s_layer(TRANSFORMER, weights, sizes, x, **masks)


def right_post_norm(weights, sizes, x, key_padding_mask=None):
    return torch_s_layer(
        POST_NORM, weights, sizes, x, activation="relu", src_key_padding_mask=key_padding_mask
    )


def right_fused(weights, sizes, x):
    return torch_s_layer(FUSED, weights, sizes, x, src_mask=later(x.shape[1], x.device))


def later(length, device):
    """True where key j comes after query i."""
    return torch.tensor([[j > i for j in range(length)] for i in range(length)], device=device)


def branch_of(block, weights, sizes, x):
    """The block's branches: each a function of the stream, behind its norm, on these weights."""
    wide = {name: one.to(x.device, torch.float64) for name, one in weights.items()}

    def normed(norm, x):
        return F.layer_norm(x, x.shape[-1:], wide[f"{norm}.weight"], wide[f"{norm}.bias"])

    def attention(norm, name, x, *args, **options):
        own = {key.removeprefix(f"{name}."): one for key, one in wide.items() if name in key}
        return right_heads(own, sizes[1], normed(norm, x), *args, **options)

    def ffn(x):
        up, up_bias, down, down_bias = (wide[name] for name in block.linears(sizes))
        return F.linear(F.gelu(F.linear(normed("ffn_norm", x), up, up_bias)), down, down_bias)

    return attention, ffn


def keys_allowed(valid, length, causal):
    """(B, 1, T, T) of those whom a row may read."""
    pairs = ~later(length, valid.device) if causal else torch.ones_like(later(length, valid.device))
    return pairs & valid[:, None, None, :]


def right_encoder(weights, sizes, x, valid_tokens, causal=False):
    valid = valid_tokens
    if valid is None:
        valid = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    attention, ffn = branch_of(ENCODER, weights, sizes, x)
    x, allowed = x.double(), keys_allowed(valid, x.shape[1], causal)
    x = x + attention("attention_norm", "self_attention", x, allowed=allowed, rope=True)
    return (x + ffn(x)) * valid[:, :, None]


def right_decoder(weights, sizes, x, memory, *, target_valid_tokens, memory_valid_tokens):
    attention, ffn = branch_of(DECODER, weights, sizes, x)
    x, allowed = x.double(), keys_allowed(target_valid_tokens, x.shape[1], True)
    x = x + attention("self_norm", "self_attention", x, allowed=allowed, rope=True)
    allowed = memory_valid_tokens[:, None, None, :]
    x = x + attention("cross_norm", "cross_attention", x, memory.double(), allowed)
    return (x + ffn(x)) * target_valid_tokens[:, :, None]


# The arguments of a call


def all_real(draw, *shape):
    return torch.ones(shape, dtype=torch.bool, device=draw.device)


def right_padded(draw, length):
    """(3, T), True where blocked: none, one and two tokens of padding on the right."""
    return torch.stack([torch.arange(length) >= length - count for count in range(3)]).to(
        draw.device
    )


def some_padding(draw, length):
    """(4, T), True at real tokens: padding on the left, on the right, nowhere, everywhere."""
    return torch.cat([valid_tokens(draw, length), ~all_real(draw, 1, length)])


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
    masks["key_padding_mask"] = right_padded(draw, length).flip(0)  # the first one is padded too
    return (draw.normal(3, length, width),), masks


def with_padding_mask(draw, width, length=5):
    return (draw.normal(3, length, width),), {"key_padding_mask": ~valid_tokens(draw, length)}


def with_valid(draw, width, length=5):
    return (draw.normal(4, length, width), some_padding(draw, length)), {}


def with_two_valid(draw, width, length=5):
    valid = {"target_valid_tokens": some_padding(draw, length)}
    valid["memory_valid_tokens"] = some_padding(draw, 6)[[1, 0, 2, 3]]
    return (draw.normal(4, length, width), draw.normal(4, 6, width)), valid


TRANSFORMER = Block(
    transformer,
    ("d_model", "num_heads", "d_ff"),
    ("ln1", "ln2"),
    partial(torch_attention, name="self_attn"),
    "ffn",
    ("self_attn.out_proj", "ffn"),
    right_transformer,
    x_alone,
    with_both_masks,
    drops=True,
)
POST_NORM = Block(
    post_norm,
    ("embed_dim", "num_heads", "ff_dim"),
    ("norm1", "norm2"),
    partial(torch_attention, name="attn"),
    "ff",
    ("attn.out_proj", "ff"),
    right_post_norm,
    x_alone,
    with_padding_mask,
)
FUSED = Block(
    fused,
    ("d", "heads"),
    ("ln1", "ln2"),
    partial(torch_attention, out="proj"),
    "mlp",
    ("proj", "mlp"),
    right_fused,
    x_alone,
    x_alone,
)
ENCODER = Block(
    encoder,
    ("d_model", "num_heads", "hidden_dim"),
    ("attention_norm", "ffn_norm"),
    partial(course_attention, name="self_attention"),
    "feed_forward",
    ("self_attention.output_projection", "feed_forward"),
    right_encoder,
    x_and_valid,
    with_valid,
    given=("x", "valid_tokens"),
    drops=True,
)
DECODER_ONLY = replace(ENCODER, exercise=decoder_only, right=partial(right_encoder, causal=True))
DECODER = replace(
    ENCODER,
    exercise=decoder,
    norms=("self_norm", "cross_norm", "ffn_norm"),
    attention=lambda width: (
        course_attention(width, "self_attention") | course_attention(width, "cross_attention")
    ),
    branches=(
        "self_attention.output_projection",
        "cross_attention.output_projection",
        "feed_forward",
    ),
    right=right_decoder,
    inputs=x_and_memory,
    masked=with_two_valid,
    given=("x", "memory"),
    valid=lambda x, memory, target_valid_tokens, memory_valid_tokens: target_valid_tokens,
)


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
    """(what, result, right result) of each call on one module with drawn weights, in eval mode."""
    module, weights = block.make(answer, draw, sizes, train=False, **options)
    return [
        (what, module.call(args, kwargs).value, block.expect(weights, sizes, args, kwargs))
        for what, args, kwargs in calls
    ]


# What all blocks promise

SHARED: list[tuple[Callable, int, tuple[str, ...]]] = []


def shared(points=1, needs=("follows_the_formula",)):
    """Keep a check `run(block, answer, draw)` for all blocks, with its docstring as the sentence.

    Those that ask for dropout are for the blocks that take one.
    """

    def keep(run):
        SHARED.append((run, points, needs))
        return run

    return keep


def add(block, run, points=1, needs=("follows_the_formula",), sentence=""):
    """Add a check `run(block, answer, draw)` to the block's exercise."""

    def one(answer, reference, draw):
        run(block, answer, draw)

    block.exercise.add(run.__name__, sentence or run.__doc__, one, points, needs)


def add_shared(block, **sentences):
    """Add what all blocks promise; a sentence stands for the docstring that it is named after."""
    for run, points, needs in SHARED:
        if block.drops or run not in (
            is_still_in_eval,
            drops_in_training,
            keeps_the_shortcut_whole,
        ):
            add(block, run, points, needs, sentences.get(run.__name__, ""))


def parts_are(block, module, sizes):
    """Its description; Failure unless it trains what it should, by name, and nothing else."""
    if not isinstance(module, Subject):
        raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
    with module.aside():
        description = module.rename(block.ffn).describe(values=False)
    found, shapes = description.parameters, block.shapes(sizes)
    module.note(outline(found, shapes, block.linears(sizes)))
    up, _, down, _ = two = block.linears(sizes)
    came = sorted(one.shape for name, one in found.items() if name.startswith(f"{block.ffn}."))
    if came != sorted(shapes[name] for name in two):
        raise Failure(
            f"`{block.ffn}` has to hold two linear layers with biases, their weights "
            f"{shapes[up]} and {shapes[down]}. What it trains has the shapes: "
            f"{', '.join(map(str, came)) or 'none'}."
        )
    owners: dict[int, str] = {}
    for name, shape in shapes.items():
        if name not in found:
            has = ", ".join(name for name in found if name not in two) or "none"
            raise Failure(f"There is no `{name}`. Besides `{block.ffn}` the parameters are: {has}.")
        if found[name].shape != shape:
            raise Failure(f"`{name}` has shape {found[name].shape}; {shape} was asked for.")
        if not found[name].requires_grad:
            raise Failure(f"`{name}` has requires_grad=False, so it would never be trained.")
        other = owners.setdefault(found[name].storage, name)
        if other != name:
            raise Failure(f"`{other}` and `{name}` are one and the same: each part has its own.")
    if extra := trained_besides(set(owners), description):
        raise Failure(f"It also trains {', '.join(extra)}, which was not asked for.")
    return description


def outline(found, shapes, linears):
    """What `parts_are` looks at. A part that was not asked for may have any name.

    Two linear layers that fit each other may have any other hidden width.
    """
    owners: dict[int, str] = {}
    for name in shapes:
        if name in found:
            owners.setdefault(found[name].storage, name)
    known = {
        name: [list(found[name].shape), found[name].requires_grad, owners[found[name].storage]]
        for name in shapes
        if name in found
    }
    others = {
        one.storage: [name.rpartition(".")[2], *one.shape]
        for name, one in found.items()
        if one.storage not in owners and one.requires_grad
    }
    asked, width = shapes[linears[0]]
    came = sorted(known[name][0] for name in linears if name in known)
    for size in {size for shape in came for size in shape} - {asked}:
        if came == sorted([[size, width], [size], [width, size], [width]]):
            known |= {name: ["of another width", *known[name][1:]] for name in linears}
    return known, sorted(others.values())


def parts_of(block, answer, args, kwargs, sizes):
    """The module made of these arguments, once `parts_are` has passed it."""
    with answer.aside():
        made = answer.attempt(args, kwargs, seed=0)
    if made.error:
        # Which name it knows, and how it says that it refuses a width, is its own affair.
        kind = made.error["type"]
        own = is_its_own(made.error) or (kwargs and kind == "TypeError")
        answer.note([kind, "" if own else made.error["message"]], made.error)
        raise Failure(explain(made.error, block.exercise.name))
    parts_are(block, made.value, sizes)
    return made.value


@shared(needs=())
def has_its_parts(block, answer, draw):
    """It trains the parts that are asked for, and nothing else."""
    for sizes, by_name in (((12, 3, 20), False), ((32, 4, 7), True)):
        arguments = block.arguments(*sizes)
        named = dict(zip(block.sizes, arguments, strict=True))
        parts_of(block, answer, () if by_name else arguments, named if by_name else {}, sizes)


@shared(needs=["has_its_parts"])
def keeps_the_shape(block, answer, draw):
    """(B, T, C) goes in and (B, T, C) comes out, one tensor."""
    module, _ = block.make(answer, draw, train=False)
    args, kwargs = block.inputs(draw, C)
    shape = tuple(args[0].shape)
    with answer.aside():
        outcome = module.attempt(args, kwargs)
    if outcome.error:
        # Where two lengths don't fit, four tokens (as the memory has) show what was done with them.
        module.attempt(*block.inputs(draw, C, 4))
        raise Failure(explain(outcome.error, block.exercise.name))
    got = outcome.value
    if isinstance(got, tuple | list):
        answer.note(["a tensor" if isinstance(one, torch.Tensor) else one is None for one in got])
    else:
        answer.note(list(getattr(got, "shape", [])))
    shape_of(got, shape, f"x has shape {shape}, and the result")


@shared(2, needs=["keeps_the_shape"])
def writes_branch_by_branch(block, answer, draw):
    """Each branch adds to x what it makes of the normalized x; with all silent x comes back."""
    sizes = SIZES[1]
    module, weights = block.make(answer, draw, sizes, train=False)
    args, kwargs = block.inputs(draw, sizes[0])
    tried = []
    for loud in ((), *((one,) for one in block.branches)):
        now = weights | block.silenced(sizes, [one for one in block.branches if one not in loud])
        ends = {name: now[name] for name in block.last(sizes, block.branches)}
        result = module.load(**ends).call(args, kwargs).value
        but = f" but that of `{loud[0]}`" if loud else ""
        right = block.expect(now, sizes, args, kwargs)
        tried.append((f"With every branch silent{but},", result, right))
    agree(tried)


@shared(3, needs=["keeps_the_shape"])
def follows_the_formula(block, answer, draw):
    """The result follows the formula."""
    tried = []
    for sizes, lengths in ((SIZES[0], (5, 1)), (SIZES[3], (13,))):
        calls = [
            (
                f"With C = {sizes[0]}, H = {sizes[1]}, T = {length},",
                *block.inputs(draw, sizes[0], length),
            )
            for length in lengths
        ]
        tried += tries(block, answer, draw, calls, sizes)
    agree(tried)


@shared()
def leaves_its_inputs_untouched(block, answer, draw):
    """What it is given is the same after the call."""
    module, _ = block.make(answer, draw)
    args, kwargs = block.masked(draw, C)
    after = module.call(args, kwargs, after=True)
    for name, got, before in zip(block.given, after.arguments, args, strict=False):
        untouched(got, before, name)
    for name, before in kwargs.items():
        untouched(after.keywords[name], before, name)


@shared(2)
def lets_gradients_flow(block, answer, draw):
    """Gradients reach the inputs and every parameter."""
    sizes = SIZES[2]
    module, weights = block.make(answer, draw, sizes, train=False)
    args, kwargs = block.masked(draw, sizes[0])
    floats = sum(one.is_floating_point() for one in args)
    wide, rest = [one.double() for one in args[:floats]], args[floats:]
    back = draw.normal(*args[0].shape, dtype=torch.float64)
    got = module.to(dtype=torch.float64).backward(back, *wide, *rest, **kwargs)
    right = block.expect(weights, sizes, (*wide, *rest), kwargs)
    agree([("For float64 inputs", got.value, right)], rtol=1e-5, atol=1e-5)

    def authority(**leaves):
        inputs = [leaves.pop(name) for name in block.given[:floats]]
        return block.right(leaves, sizes, *inputs, *rest, **kwargs)

    agrees_in_gradients(
        [*got.gradients[:floats], *(got.parameters[name] for name in weights)],
        authority,
        dict(zip(block.given, wide, strict=False))
        | {name: one.double() for name, one in weights.items()},
        back,
    )


@shared()
def keeps_the_dtype(block, answer, draw):
    """Moved to another dtype, it returns that dtype."""
    module, weights = block.make(answer, draw, size=0.3, train=False)
    args, kwargs = block.masked(draw, C)
    module.attempt(args, kwargs)
    right = block.expect(weights, SIZES[0], args, kwargs)
    for dtype in (torch.float16, torch.bfloat16):
        given = tuple(one.to(dtype) if one.is_floating_point() else one for one in args)
        # What half precision makes of one formula depends on how it is written.
        with answer.aside():
            outcome = module.to(dtype=dtype).attempt(given, kwargs)
        if outcome.error:
            answer.note([outcome.error["type"], outcome.error["message"]], outcome.error)
            raise Failure(explain(outcome.error, block.exercise.name))
        answer.note(getattr(outcome.value, "dtype", None))
        tried = f"For {short_name(dtype)} inputs", outcome.value, right.to(dtype)
        agree([tried], rtol=5e-2, atol=5e-2)


def moves_along(answer, module, *args, **kwargs):
    """`module.on_meta`; which tensor it was that stayed behind makes no other mistake."""
    with answer.aside():
        try:
            return module.on_meta(*args, **kwargs)
        except Failure as failure:
            left = failure
    answer.note("a tensor stayed behind")
    raise left


@shared()
def stays_on_the_device(block, answer, draw):
    """Moved to another device, all of it works there."""
    module = answer.call(block.arguments(*SIZES[0]), seed=0).value.to(device="meta")
    args, kwargs = block.masked(draw, C)
    bare, options = block.inputs(draw, C)
    if len(bare) < len(args) or options.keys() < kwargs.keys():  # its masks may be left out
        moves_along(answer, module, *bare, **options)
        module.eval()
    moves_along(answer, module, *args, **kwargs)


@shared()
def is_the_same_at_every_call(block, answer, draw):
    """A call leaves no trace in the next, nor does another block."""
    module, _ = block.make(answer, draw, train=False)
    args, kwargs = block.inputs(draw, C)
    before = module.call(args, kwargs).value
    shape_of(before, args[0].shape)
    module.call(*block.masked(draw, C, 7))
    same(module.call(args, kwargs).value, before, "A second call on the same x")
    block.make(answer, draw)
    what = "Another block was given other weights: a call on the same x, here,"
    same(module.call(args, kwargs).value, before, what)


def nothing_is_drawn(answer, module, call, what):
    """What a call gives; Failure if two differ.

    Numbers that are drawn tell nothing of who drew them, so these calls are made aside.
    """
    one, other = drawn(answer, module, call)
    if not equal(one, other, near=1e-4):
        raise Failure(f"{what} two calls on the same x differ: something is dropped there.")
    answer.note(one)
    return one


def equal(one, other, near=1e-3):
    return torch.allclose(one, other, rtol=near, atol=near, equal_nan=True)


def drawn(answer, module, call):
    """What two calls on the same inputs give, the random numbers being others."""
    with answer.aside():
        both = [module.call(*call, seed=seed).value for seed in (1, 2)]
    for one in both:
        shape_of(one, call[0][0].shape)
    return both


@shared()
def is_still_in_eval(block, answer, draw):
    """In eval mode nothing is dropped, at any probability."""
    module, weights = block.make(answer, draw, dropout=0.5, train=False)
    call, what = block.inputs(draw, C), "In eval mode, with `dropout=0.5`,"
    got = nothing_is_drawn(answer, module, call, what)
    agree([(what, got, block.expect(weights, SIZES[0], *call))])


@shared()
def is_the_same_in_training(block, answer, draw):
    """Where nothing is to be dropped, training gives what eval mode gives, masks included."""
    dropout, said = (0.0, ", with `dropout=0.0`,") if block is TRANSFORMER else (None, "")
    if block.drops and not said:
        said = ", with no dropout given,"
    module, weights = block.make(answer, draw, dropout=dropout)
    what = f"In training{said}"
    nothing_is_drawn(answer, module, block.inputs(draw, C), what)
    call = block.masked(draw, C)
    what = what if block is FUSED else "In training, with masks,"
    # What was dropped depends on where it stands; that something was does not.
    with answer.aside():
        got = module.call(*call).value
    shape_of(got, call[0][0].shape, f"{what} the result")
    answer.note(equal(got, module.eval().call(*call).value, near=1e-4))
    agree([(what, got, block.expect(weights, SIZES[0], *call))])


@shared()
def drops_in_training(block, answer, draw):
    """In training something on a branch is dropped, with the probability given."""
    call = block.inputs(draw, C)
    module, _ = block.make(answer, draw, dropout=0.5)
    if equal(*drawn(answer, module, call)):
        raise Failure("In training, with `dropout=0.5`, a second call is equal: nothing drops.")
    module, weights = block.make(answer, draw, dropout=1.0, by_name=False)
    if draw.device != "cpu":  # some of torch's fused kernels on a GPU take no dropout of 1
        module.to(device="cpu")
        args, kwargs = call
        call = tuple(one.cpu() for one in args), {name: one.cpu() for name, one in kwargs.items()}
    got, other = drawn(answer, module, call)
    if not equal(got, other):
        raise Failure(
            "With `dropout=1.0` all is dropped that can be, so nothing is left to chance, and yet "
            "two calls differ: a dropout has another probability than the one given."
        )
    answer.note(got)
    if equal(got, block.expect(weights, SIZES[0], *call)):
        raise Failure("In training, with `dropout=1.0`, nothing is dropped.")


@shared()
def keeps_the_shortcut_whole(block, answer, draw):
    """Dropout stands on branches: the shortcut stays whole."""
    silent = block.silenced(SIZES[0], block.branches)
    weights = block.draw_weights(draw, SIZES[0]) | silent
    module, _ = block.make(answer, draw, dropout=0.5, weights=weights)
    call = block.inputs(draw, C)
    what = "Every branch is silent, and with `dropout=0.5` in training"
    agree([(what, nothing_is_drawn(answer, module, call, what), call[0][0])])


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
        is_count(got, right, f"block_parameters({width}, {hidden})", "torch's layer")


# TransformerBlock

add_shared(
    TRANSFORMER,
    has_its_parts="It trains `ln1`, `self_attn` (nn.MultiheadAttention), `ln2`, `ffn` (two linear "
    "layers), and nothing else.",
    follows_the_formula="The result is h + ffn(ln2(h)), h = x + attention(ln1(x)): torch's own, on "
    "the same weights.",
)


@transformer.check(points=1, needs=["has_its_parts"])
def is_built_over_torch_s_attention(answer, reference, draw):
    """`self_attn` is an nn.MultiheadAttention; `d_ff` is 4 · d_model unless given, None too."""
    for more in ((), (None,)):
        module = parts_of(TRANSFORMER, answer, (12, 3, *more), {}, (12, 3, 48))
    with answer.aside():
        kind = module.attribute("self_attn").kind()
    answer.note("MultiheadAttention" in kind.bases)
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
    calls = [
        ("With a causal mask given by name", (x,), {"blocked_attn_mask": later(5, x.device)}),
        ("With a mask given by position", (x, blocked_pairs(draw, 5)), {}),
    ]
    agree(tries(TRANSFORMER, answer, draw, calls))


def hides_padded_keys(block, answer, draw):
    """`key_padding_mask` (B, T) hides padding as keys, True where blocked, on either side."""
    x, before = draw.normal(3, 6, C), [None] * (block is TRANSFORMER)
    left = right_padded(draw, 6).flip(0, 1)
    calls = [
        ("With padding on the left, given by name", (x,), {"key_padding_mask": left}),
        ("With padding on the right, by position", (x, *before, left.flip(1)), {}),
    ]
    agree(tries(block, answer, draw, calls))


add(TRANSFORMER, hides_padded_keys, 2)


@transformer.check(points=2, needs=["hides_blocked_pairs", "hides_padded_keys"])
def joins_both_masks(answer, reference, draw):
    """With both masks a key is read where neither hides it."""
    x, blocked = draw.normal(3, 6, C), later(6, draw.device)
    left, right = ~valid_tokens(draw, 6), right_padded(draw, 6)
    masks = {"blocked_attn_mask": blocked, "key_padding_mask": left}
    calls = [
        ("With both masks by name", (x,), masks),
        ("With both masks by position", (x, blocked, right), {}),
    ]
    readers = ~(blocked | left[:, None, :]).all(-1)  # of the others nothing is promised
    agree(tries(TRANSFORMER, answer, draw, calls), readers)


@transformer.check(points=1, needs=["follows_the_formula"])
def drops_a_tenth_by_default(answer, reference, draw):
    """Where no dropout is given it is 0.1."""
    call = TRANSFORMER.inputs(draw, C)
    module, weights = TRANSFORMER.make(answer, draw, dropout=None)
    one, other = drawn(answer, module, call)
    if equal(one, other):
        raise Failure("In training, with no dropout given, a second call is equal: nothing drops.")
    given, _ = TRANSFORMER.make(answer, draw, dropout=0.1, weights=weights)
    with answer.aside():
        tenth = given.call(*call, seed=1).value
    if not equal(one, tenth):
        raise Failure("Without a dropout it does not do what it does with `dropout=0.1`.")


@transformer.check(points=1)
def refuses_a_width_that_does_not_divide(answer, reference, draw):
    """A width that the heads don't divide is a ValueError, raised by `__init__`."""
    with answer.aside():
        tried = [(sizes, answer.attempt(sizes)) for sizes in ((10, 3), (4, 8), (12, 5))]
    for _, one in tried:
        answer.note(one.error and [one.error["type"], is_its_own(one.error)], one.error)
    for (width, heads), outcome in tried:
        refuses(outcome, f"d_model is {width} and num_heads {heads}")


# PostNormBlock and FusedBlock

add_shared(
    POST_NORM,
    has_its_parts="It trains `attn` (nn.MultiheadAttention), `norm1`, `ff` (two linear layers), "
    "`norm2`, and nothing else.",
    writes_branch_by_branch="Each norm stands on the sum of x and a branch; with every branch "
    "silent it is norm2(norm1(x)).",
    follows_the_formula="The result is norm2(h + ff(h)), h = norm1(x + attention(x)): torch's, on "
    "the same weights.",
)
add(POST_NORM, hides_padded_keys, 2)
add_shared(
    FUSED,
    has_its_parts="It trains `ln1`, `qkv`, `proj`, `ln2`, `mlp` (two linear layers, 4d between) "
    "and nothing else: 12,704 numbers at d = 32.",
    follows_the_formula="It is torch's own causal block on the same weights: thirds of `qkv`, "
    "heads as slices of each.",
)


@fused.check(points=1, needs=["follows_the_formula"])
def hides_later_tokens_from_low_scores(answer, reference, draw):
    """A later token gets no weight, however low the scores of the others are."""
    weights = FUSED.draw_weights(draw, SIZES[0])
    weights["qkv.weight"][: 2 * C] = 0.0  # all scores alike: -300 · 300 · 4, by the root of 4
    weights["qkv.bias"][: 2 * C] = torch.tensor([300.0, -300.0]).repeat_interleave(C)
    module, _ = FUSED.make(answer, draw, weights=weights, train=False)
    x = draw.normal(3, 5, C)
    right = FUSED.expect(weights, SIZES[0], (x,), {})
    agree([("With all scores -180,000", module(x), right)])


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
    weights = TRANSFORMER.draw_weights(draw, sizes)
    with answer.aside():
        module = _own(answer, sizes)
        if module is None:
            width, heads, hidden = sizes
            linears = recipe("Linear", width, hidden), recipe("Linear", hidden, width)
            built = [_built(answer, ffn(*linears), width, heads) for ffn in INSIDES]
            fits = [one for one in built if answer.attempt((one,)).error is None]
            module = (fits or built)[0].rename("ffn")
        module.load(**weights).eval()
    return module, weights


def _own(answer, sizes):
    """A block of the class that stands beside the answer, if that has the right parts."""
    beside = answer.beside("TransformerBlock")
    module = None if beside is None else beside.attempt(sizes).value
    try:
        found = parts_are(TRANSFORMER, module, sizes)
    except Failure:
        return None
    return module if found.modules["self_attn"][0] == "MultiheadAttention" else None


def _built(answer, ffn, width, heads):
    attention = recipe("MultiheadAttention", width, heads, batch_first=True)
    norm = recipe("LayerNorm", width)
    module = answer.make(recipe("Module"))
    return module.assign({"ln1": norm, "self_attn": attention, "ln2": norm, "ffn": ffn})


def the_layer(answer, block):
    """What the answer makes of `block`; Failure where it is none of torch's layers."""
    with answer.aside():
        layer = answer.attempt((block,)).value
        kind = layer.kind() if isinstance(layer, Subject) else None
    found = kind is not None and "TransformerEncoderLayer" in kind.bases
    answer.note("a layer" if found else layer is None)
    if layer is None:
        answer(block)  # so that an error of it is told
        raise Failure("The result is None. Did you forget to `return` it?")
    if not found:
        came = kind.bases[0] if kind else type(layer).__name__
        raise Failure(f"An nn.TransformerEncoderLayer was asked for; this is a {came}.")
    return layer


def leaves_out(layer, weights, sizes):
    """Whether weights were not copied, as (all of them, some, another number of heads).

    What a layer has in their place was drawn, so its outputs tell nothing.
    """
    state = list(layer.describe().state.values())

    def spread(one):  # in another order, or under another name, it was copied all the same
        return one.double().flatten().sort().values

    def copied(one):
        return any(
            one.numel() == other.numel() and equal(spread(one), spread(other), near=1e-2)
            for other in weights.values()
        )

    missing = [not copied(one) for one in state]
    return all(missing), any(missing), layer.attribute("self_attn.num_heads") != sizes[1]


@to_reference.check(points=1)
def returns_torch_s_layer(answer, reference, draw):
    """It returns an nn.TransformerEncoderLayer."""
    the_layer(answer, a_block(answer, draw)[0])


@to_reference.check(points=4, needs=["returns_torch_s_layer"])
def gives_the_same_outputs(answer, reference, draw):
    """In eval mode the layer's outputs are the block's, without masks and with both."""
    causal = {"mask": ("blocked_attn_mask", later(5, draw.device))}
    padding = {"key_padding_mask": ("key_padding_mask", right_padded(draw, 5))}
    tried: list[tuple] = []
    lacks: tuple[bool, ...] = ()
    for sizes in SIZES[:2]:
        block, weights = a_block(answer, draw, sizes)
        layer = the_layer(answer, block).eval()
        if not any(lacks):
            with answer.aside():
                lacks = leaves_out(layer, weights, sizes)
            answer.note(lacks)
        x = draw.normal(3, 5, sizes[0])
        for what, given, grad in (
            ("without masks", {}, True),
            ("with a causal mask", causal, True),
            ("with padding", padding, False),
            ("with both masks", causal | padding, True),
        ):
            options = {f"src_{theirs}": mask for theirs, (_, mask) in given.items()}
            right = TRANSFORMER.expect(weights, sizes, (x,), dict(given.values()))
            with answer.aside() if any(lacks) else nullcontext():
                got = layer.call((x,), options, grad=grad).value
            tried.append((f"In eval mode, {what},", got, right))
    agree(tried, rtol=5e-5, atol=5e-5)


@to_reference.check(points=1, needs=["returns_torch_s_layer"])
def holds_copies(answer, reference, draw):
    """The weights are copies: whoever trains the block leaves the layer as it was."""
    block, weights = a_block(answer, draw)
    layer, x = the_layer(answer, block).eval(), draw.normal(3, 5, C)
    with answer.aside():
        before = layer(x)
        block.load(**{name: one + 1 for name, one in weights.items()})
        after = layer(x)
    answer.note(equal(after, before))
    same(after, before, "After a change of the block's weights what the layer gives")


@to_reference.check(points=1, needs=["returns_torch_s_layer"])
def leaves_the_block_as_it_was(answer, reference, draw):
    """The block keeps its weights, and each of its parts its mode."""
    block, weights = a_block(answer, draw)
    block.train()
    with answer.aside():  # an answer may be given a block of its own
        block.attribute("ln2").eval()
        before = block.describe(values=False).modules
    layer = the_layer(answer, block)
    with answer.aside():
        layer.load(norm1__weight=draw.gain(C))
        found = block.describe()
    modes = {name: mode for name, (_, mode) in before.items()}
    now = {name: mode for name, (_, mode) in found.modules.items()}
    answer.note([modes == now, all(one.requires_grad for one in found.parameters.values())])
    answer.note([equal(found.state[name], one) for name, one in weights.items()])
    for name, one in weights.items():
        close(found.state[name], one, f"`{name}` of the block")
        if not found.parameters[name].requires_grad:
            raise Failure(f"`{name}` of the block has requires_grad=False now: it stays trained.")
    if modes != now:
        raise Failure("The block is in another mode than before: `eval()` and `train()` stay.")


@to_reference.check(points=1, needs=["gives_the_same_outputs"])
def has_the_block_s_dtype_and_device(answer, reference, draw):
    """The layer has the block's dtype, without rounding, and its device."""
    block, weights = a_block(answer, draw)
    x = draw.normal(3, 5, C, dtype=torch.float64)
    wide = {name: draw.gain(*one.shape, dtype=torch.float64) / 3 for name, one in weights.items()}
    block.to(dtype=torch.float64).load(**wide)
    got = the_layer(answer, block).eval()(x)
    same(got, right_transformer(wide, SIZES[0], x), "Of a float64 block what the layer gives")
    made = answer.on_meta(block.to(device="meta"))
    if isinstance(made, Subject):
        for name, one in made.describe(values=False).parameters.items():
            if one.device != "meta":
                raise Failure(f"The block was on another device, and `{name}` is on the CPU.")


# The blocks of the course's own parts

COURSE_PARTS = "It trains {} and `feed_forward`, of the course's parts, and nothing else."
COURSE_FORMULA = (
    "The result is torch's attention, norm and GELU put together: h = x + attention(norm(x)), "
    "{}with RoPE, then h + ffn(norm(h))."
)
for one, causal in ((ENCODER, ""), (DECODER_ONLY, "causal and ")):
    add_shared(
        one,
        has_its_parts=COURSE_PARTS.format("`attention_norm`, `self_attention`, `ffn_norm`"),
        follows_the_formula=COURSE_FORMULA.format(causal),
    )
add_shared(
    DECODER,
    has_its_parts=COURSE_PARTS.format(
        "`self_norm`, `self_attention`, `cross_norm`, `cross_attention`, `ffn_norm`"
    ),
    follows_the_formula="The result is x plus three branches, each behind its norm: causal "
    "self-attention with RoPE, attention to the memory without, the ffn.",
)


def hides_padding(block, answer, draw):
    """Padding is hidden from real tokens, on either side."""
    calls, rows = [], []
    for length, picked in ((5, [0, 2]), (7, [1])):  # of a batch, so that one side is padded alone
        args, kwargs = block.masked(draw, C, length)
        args = tuple(one[picked] for one in args)
        kwargs = {name: one[picked] for name, one in kwargs.items()}
        rows.append(block.valid(*args, **kwargs))
        if length == 7 and block is not DECODER:
            args, kwargs = args[:1], {"valid_tokens": args[1]}
        calls.append(("With padding", args, kwargs))
    for one, real in zip(tries(block, answer, draw, calls), rows, strict=True):
        agree([one], real)


def makes_padded_rows_zero(block, answer, draw):
    """Rows of padding come out zero, in an empty sentence too."""
    args, kwargs = block.masked(draw, C)
    got = block.make(answer, draw)[0].call(args, kwargs).value
    shape_of(got, args[0].shape)
    rows = got.masked_fill(block.valid(*args, **kwargs)[:, :, None], 0.0)
    same(rows, torch.zeros_like(rows), "At padding the result")


for one in (ENCODER, DECODER, DECODER_ONLY):
    add(one, hides_padding, 2)
    add(one, makes_padded_rows_zero)


# DecoderOnlyBlock alone


@decoder_only.check(points=1, needs=["follows_the_formula"])
def takes_none_for_all_real(answer, reference, draw):
    """`valid_tokens=None` means that all tokens are real."""
    x = draw.normal(3, 5, C)
    calls = [
        ("None for `valid_tokens`:", (x, None), {}),
        ("By name:", (x,), {"valid_tokens": None}),
    ]
    agree(tries(DECODER_ONLY, answer, draw, calls))


def result_and_cache(result, what):
    """The two that come back with `use_cache`."""
    x, cache = pair(result, "(x, cache)", what)
    if cache is None:
        raise Failure(f"{what}: the second that came back, the cache, is None.")
    return x, cache


def in_chunks(module, x, chunks, valid=None):
    """What comes of x in `chunks`, each given the cache of those before it."""

    def step(start, end, cache):
        now = None if valid is None else valid[:, :end]
        result = module(x[:, start:end], now, cache=cache, use_cache=True)
        what = f"Tokens {start} to {end - 1}"
        output, cache = result_and_cache(result, what)
        shape_of(output, (x.shape[0], end - start, x.shape[2]), f"{what}: the result")
        return output, cache

    return chunk_by_chunk(chunks, step)[0]


@decoder_only.check(points=1, needs=["takes_none_for_all_real"])
def returns_a_cache(answer, reference, draw):
    """With `use_cache` it returns (x, cache), on the first call too; without it x alone."""
    module, weights = DECODER_ONLY.make(answer, draw, train=False)
    x, tried = draw.normal(3, 5, C), []
    for valid in (None, all_real(draw, 3, 5)):
        right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {})
        output, _ = result_and_cache(module(x, valid, use_cache=True), "With `use_cache`")
        tried.append(("With `use_cache`", output, right))
    agree(tried)


@decoder_only.check(points=3, needs=["returns_a_cache"])
def goes_on_from_a_cache(answer, reference, draw):
    """Chunks of 1, 2 or 3 tokens, each with the last cache, give what all at once gives."""
    module, weights = DECODER_ONLY.make(answer, draw, train=False)
    x, tried = draw.normal(3, 7, C), []
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, None), {})
    for chunks, valid in (((1, 2, 3, 1), None), ((3, 1, 1, 2), all_real(draw, 3, 7))):
        got = in_chunks(module, x, chunks, valid)
        tried.append((f"In chunks of {chunks}", got, right))
    agree(tried)


@decoder_only.check(points=2, needs=["goes_on_from_a_cache", "hides_padding"])
def hides_padding_in_the_cache(answer, reference, draw):
    """With a cache `valid_tokens` covers all tokens so far, and its last columns are the new."""
    module, weights = DECODER_ONLY.make(answer, draw, train=False)
    x, valid = draw.normal(4, 7, C), some_padding(draw, 7)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {})
    tried = [(one, in_chunks(module, x, one, valid)) for one in ((1, 3, 3), (4, 3))]
    agree([(f"With padding, in chunks of {one}", got, right) for one, got in tried])


@decoder_only.check(points=1, needs=["goes_on_from_a_cache"])
def leaves_a_given_cache_alone(answer, reference, draw):
    """A cache that is given is used without `use_cache` too, and stays as it was."""
    module, weights = DECODER_ONLY.make(answer, draw, train=False)
    x, other = draw.normal(2, 5, C), draw.normal(2, 2, C)
    first = module(x[:, :3], None, use_cache=True)
    _, cache = result_and_cache(first, "With `use_cache`")
    module(other, None, cache=cache, use_cache=True)
    again = module(x[:, 3:], None, cache=cache)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, None), {})[:, 3:]
    agree([("The second of two that go on from one cache", again, right)])


@decoder_only.check(points=1, needs=["hides_padding_in_the_cache"])
def caches_in_other_dtypes_and_places(answer, reference, draw):
    """With a cache it keeps dtype and device as well."""
    x, valid = draw.normal(4, 5, C), some_padding(draw, 5)
    module, weights = DECODER_ONLY.make(answer, draw, size=0.3, train=False)
    right = DECODER_ONLY.expect(weights, SIZES[0], (x, valid), {})
    module.to(dtype=torch.float16)
    got = in_chunks(module, x.half(), (2, 3), valid)
    agree([("In chunks", got, right.half())], rtol=5e-2, atol=5e-2)
    module.to(device="meta", dtype=torch.float32)
    for now, later_on in ((valid[:, :2], valid), (None, None)):
        first = module.on_meta(x[:, :2], now, use_cache=True)
        if isinstance(first, tuple | list):
            module.on_meta(x[:, 2:], later_on, cache=first[1], use_cache=True)
