"""What the answers of lesson 02 must do.

Each check looks at one mechanism: diagonal weights show the activation, an input of zeros the
biases, an output projection of zeros the dropout behind it. Modules are judged in eval mode, but
where dropout is the point. Expected values come from torch's own functions or from a property.
"""

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Exercise, Failure, RuledOut, close, same, shape_of
from autograder.judge.properties import (
    agrees_in_gradients,
    has_layers,
    is_count,
    keeps_dtypes,
    leaves_untouched,
    owns_its_parameters,
)
from autograder.judge.quiz import quiz

TORCH_GELU = RuledOut("torch's own GELU", frozenset({"gelu", "gelu_", "GELU"}))

gelu = Exercise("gelu", TORCH_GELU)
gelu_tanh = Exercise("gelu_tanh")
feed_forward = Exercise("FeedForward")
swiglu = Exercise("SwiGLU")
feed_forward_parameters = Exercise("feed_forward_parameters")
attention_parameters = Exercise("attention_parameters")
ffn_quiz = quiz("ffn_quiz", "cbdabc")

SHAPES = ((5,), (3, 4), (2, 3, 5), (2, 1, 3, 4))


# gelu and gelu_tanh


def activation_checks(exercise, authority, form, other):
    """Add what both forms promise; `authority` is torch's, `other` the form that is not asked."""
    gate = ["passes_and_stops"]

    def passes_and_stops(answer, reference, draw):
        # Far from zero many slips look alike; what they do near it tells which one it is.
        shape_of(answer(draw.normal(6)), (6,))
        for shape in SHAPES:
            x = 20 * draw.gain(*shape)
            what = f"x has shape {shape} and values from 10 to 40 of either sign. The result"
            same(answer(x), x.clamp(min=0), what, rtol=1e-3, atol=1e-2)

    def bends_at_zero(answer, reference, draw):
        five = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], device=draw.device)
        by_hand = torch.tensor([-0.0455, -0.1587, 0.0, 0.8413, 1.9545], device=draw.device)
        x = 1.5 * draw.normal(7, 9)
        at_five, result = answer(five), answer(x)  # all is asked before anything is judged
        close(at_five, by_hand, "x is -2, -1, 0, 1, 2, and the result", rtol=0, atol=2e-3)
        close(result, authority(x), rtol=0, atol=2e-3)

    def is_this_form(answer, reference, draw):
        # The two forms are furthest apart near 2.7 and -2.7, two roundings of a constant near -1.6.
        inputs = [1.8 * draw.gain(6, 5), 2.7 + 0.1 * draw.normal(4), 0.1 * draw.normal(4) - 2.7]
        inputs.append(0.1 * draw.normal(4) - 1.6)
        inputs.append(1.8 * draw.gain(7, dtype=torch.float64))
        results = [answer(x) for x in inputs]
        for x, result in zip(inputs, results, strict=True):
            note = f"That is near, but not {form}."
            close(result, authority(x), "The result", rtol=2e-6, atol=2e-6, note=note)

    def leaves_x_untouched(answer, reference, draw):
        leaves_untouched(answer, x=draw.normal(3, 5))

    def lets_gradients_flow(answer, reference, draw):
        x, back = 1.5 * draw.normal(3, 2, 5), draw.gain(3, 2, 5)
        agrees_in_gradients(answer.backward(back, x).gradients, authority, {"x": x}, back)

    def keeps_the_dtype(answer, reference, draw):
        keeps_dtypes(answer, 1.5 * draw.normal(3, 5))

    def stays_on_the_device(answer, reference, draw):
        answer.on_meta(draw.normal(3, 2, 5))

    for run, sentence, points, needs in (
        (passes_and_stops, "Far to the right x passes, far to the left it is stopped.", 1, ()),
        (bends_at_zero, "Around zero it follows the curve: 0.84 at 1, -0.16 at -1.", 2, gate),
        (is_this_form, f"It is {form}: {other} is 0.0005 away near 2.7.", 2, gate),
        (leaves_x_untouched, "`x` is the same after the call.", 1, gate),
        (lets_gradients_flow, "Gradients reach `x`, through the whole formula.", 1, gate),
        (keeps_the_dtype, "The result has the dtype of `x`, in half precision too.", 1, gate),
        (stays_on_the_device, "Everything happens on the device of `x`.", 1, gate),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


activation_checks(gelu, F.gelu, "the exact form", "the tanh form")
activation_checks(
    gelu_tanh, lambda x: F.gelu(x, approximate="tanh"), "the tanh form", "the exact form"
)


# The two modules


def made(answer, draw, layers, *args, bias=True, size=1.0, **kwargs):
    """A module of the answer in eval mode, and the weights of order `size` loaded into it."""
    weights = {}
    for name, (outputs, inputs) in layers.items():
        weights[f"{name}.weight"] = size * draw.normal(outputs, inputs)
        if bias:
            weights[f"{name}.bias"] = size * draw.gain(outputs)
    return load(answer(*args, **kwargs).eval(), weights), weights


def load(module, weights):
    return module.load(**{name.replace(".", "__"): value for name, value in weights.items()})


def diagonal(draw, width):
    """A square weight that keeps each feature by itself, and its factors."""
    factors = draw.gain(width)
    return torch.diag(factors), factors


def module_checks(exercise, layers, function, bias):
    """Add what both modules promise: `layers(C, F)` are the shapes, `function` is from torch."""
    first, gate = ["has_its_layers"], ["returns_the_shape"]
    *others, last = (f"`{name}`" for name in layers(1, 1))
    names = f"{', '.join(others)} and {last}"

    def has_its_layers(answer, reference, draw):
        for sizes in ((4, 9), (7, 3), (5, 20)):
            has_layers(answer(*sizes), layers(*sizes), bias)

    def returns_the_shape(answer, reference, draw):
        for width, hidden, shape in ((4, 9, (3, 5)), (7, 3, (1, 6)), (5, 20, (2, 1))):
            module, _ = made(answer, draw, layers(width, hidden), width, hidden, bias=bias)
            x = draw.normal(*shape, width)
            shape_of(module(x), x.shape, f"x has shape {tuple(x.shape)}, and the result")

    def works_on_each_token_alone(answer, reference, draw):
        module, _ = made(answer, draw, layers(4, 7), 4, 7, bias=bias)
        for batch, length, sentence, place in ((3, 5, 0, 2), (1, 6, 0, 0), (2, 1, 1, 0)):
            x = draw.normal(batch, length, 4)
            moved = x.clone()
            moved[sentence, place] = 2 * draw.gain(4)
            before, after = module(x), module(moved)
            expected = before.clone()
            expected[sentence, place] = after[sentence, place]
            said = f"Token {place} of sentence {sentence} alone was changed, and the output"
            same(after, expected, said, note="A token's output may depend on that token alone.")
            alike = draw.normal(4).expand(batch, length, 4).contiguous()
            result = module(alike)
            same(
                result,
                result[:1, :1].expand(batch, length, 4),
                "All tokens were the same, and the output",
                note="The same token has the same output at every place.",
            )

    def agrees_with_torch(answer, reference, draw):
        for width, hidden, shape in ((4, 7, (3, 5)), (5, 3, (2, 1)), (3, 16, (1, 4))):
            module, weights = made(answer, draw, layers(width, hidden), width, hidden, bias=bias)
            x = draw.normal(*shape, width)
            same(module(x), function(x, weights))

    def is_the_same_at_every_call(answer, reference, draw):
        module, weights = made(answer, draw, layers(5, 3), 5, 3, bias=bias)
        x, other = draw.normal(2, 4, 5), draw.normal(2, 4, 5)
        before, training = module(x), module.train()(x)
        module(other)
        same(module(x), training, "In training mode a later call on the same x")
        same(module.eval()(x), before, "A later call on the same x")

    def owns_its_weights(answer, reference, draw):
        owns_its_parameters(lambda: answer(5, 3), draw)

    def leaves_x_untouched(answer, reference, draw):
        module, _ = made(answer, draw, layers(5, 3), 5, 3, bias=bias)
        leaves_untouched(module, x=draw.normal(2, 4, 5))

    def lets_gradients_flow(answer, reference, draw):
        module, weights = made(answer, draw, layers(5, 3), 5, 3, bias=bias)
        x, back = draw.normal(2, 4, 5), draw.gain(2, 4, 5)
        for training in (False, True):
            got = module.train(training).backward(back, x)
            agrees_in_gradients(
                [got.gradients[0], *(got.parameters[name] for name in weights)],
                lambda x, **weights: function(x, weights),
                {"x": x, **weights},
                back,
            )

    def keeps_the_dtype(answer, reference, draw):
        module, weights = made(answer, draw, layers(5, 3), 5, 3, bias=bias, size=0.4)

        def call(x):
            return load(answer(5, 3).eval(), weights).to(dtype=x.dtype)(x)

        keeps_dtypes(call, draw.normal(2, 4, 5))

    def stays_on_the_device(answer, reference, draw):
        answer(5, 3).eval().to(device="meta").on_meta(draw.normal(2, 4, 5))

    for run, sentence, points, needs in (
        (has_its_layers, f"It trains {names}, of the sizes asked for, and no more.", 1, ()),
        (returns_the_shape, "What goes in as (B, T, C) comes out as (B, T, C).", 1, first),
        (works_on_each_token_alone, "Change one token, and its output alone moves.", 1, gate),
        (agrees_with_torch, "With weights of any value it agrees with torch.", 2, gate),
        (is_the_same_at_every_call, "A call leaves no trace in a later one.", 1, gate),
        (owns_its_weights, "Two modules do not share weights.", 1, gate),
        (leaves_x_untouched, "`x` is the same after the call.", 1, gate),
        (lets_gradients_flow, "Gradients reach `x` and every weight.", 1, gate),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it moves.", 1, gate),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


def feed_forward_layers(width, hidden):
    return {"input_projection": (hidden, width), "output_projection": (width, hidden)}


def linear(x, weights, name):
    return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def torch_feed_forward(x, weights):
    return linear(F.gelu(linear(x, weights, "input_projection")), weights, "output_projection")


def swiglu_layers(width, hidden):
    inner = (hidden, width)
    return {
        "gate_projection": inner,
        "up_projection": inner,
        "output_projection": (width, hidden),
    }


def torch_swiglu(x, weights):
    gate, up = linear(x, weights, "gate_projection"), linear(x, weights, "up_projection")
    return linear(F.silu(gate) * up, weights, "output_projection")


module_checks(feed_forward, feed_forward_layers, torch_feed_forward, bias=True)
module_checks(swiglu, swiglu_layers, torch_swiglu, bias=False)


# FeedForward alone


@feed_forward.check(points=2, needs=["returns_the_shape"])
def bends_with_the_exact_gelu(answer, reference, draw):
    """Between the two projections stands the exact GELU, once."""
    into, factors = diagonal(draw, 5)
    out, gains = diagonal(draw, 5)
    module, weights = made(answer, draw, feed_forward_layers(5, 5), 5, 5)
    zeros = torch.zeros_like(gains)
    module.load(input_projection__weight=into, input_projection__bias=zeros)
    module.load(output_projection__weight=out, output_projection__bias=zeros)
    x = 2 * draw.normal(4, 6, 5)
    said = "Each feature goes through one hidden unit without bias, and the result"
    same(module(x), gains * F.gelu(factors * x), said)


@feed_forward.check(points=1, needs=["returns_the_shape"])
def adds_both_biases(answer, reference, draw):
    """Both biases are added: an input of zeros shows them alone."""
    module, weights = made(answer, draw, feed_forward_layers(5, 3), 5, 3)
    x = torch.zeros(2, 3, 5, device=draw.device)
    same(module(x), torch_feed_forward(x, weights), "x is all zeros, and the result")


def with_dropout(answer, draw, sizes, p, by_name):
    """A module with that dropout, in training mode."""
    options = {"dropout": p} if by_name else {}
    arguments = sizes if by_name else (*sizes, p)
    module, weights = made(answer, draw, feed_forward_layers(*sizes), *arguments, **options)
    return module.train(), weights


def is_drawn_for_each(calls, p, what):
    """Fail unless in each of two calls about a share `p` is dropped, each number by itself."""
    for dropped in calls:
        share = dropped.double().mean().item()
        if abs(share - p) > 0.07:
            raise Failure(f"{what}: {share:.0%} are 0, where about {p:.0%} should be.")
        for axis in range(3):
            if (dropped == dropped.roll(1, axis)).double().mean() > 0.9:
                raise Failure(f"{what}: whole rows are dropped together. `nn.Dropout` drops each.")
    if (calls[0] == calls[1]).double().mean() > 0.9:
        raise Failure(f"{what}: two calls dropped the same. Dropout is drawn at each call.")


@feed_forward.check(points=1, needs=["returns_the_shape"])
def drops_after_the_output(answer, reference, draw):
    """In training each output is dropped with that probability, and the others are scaled up."""
    for p, by_name in ((0.3, True), (0.6, False)):
        module, weights = with_dropout(answer, draw, (5, 3), p, by_name)
        module.load(output_projection__weight=torch.zeros(5, 3, device=draw.device))
        x = draw.normal(40, 50, 5)
        result, again = module(x), module(x)
        for one in (result, again):
            shape_of(one, (40, 50, 5))
        zero = result == 0
        what = f"With `dropout={p}`, and outputs that are the bias alone"
        is_drawn_for_each((zero, again == 0), p, what)
        whole = (weights["output_projection.bias"] / (1 - p)).expand(40, 50, 5)
        close(result.masked_fill(zero, 0), whole.masked_fill(zero, 0), f"{what}, what is left")


@feed_forward.check(points=1, needs=["returns_the_shape"])
def drops_after_the_activation(answer, reference, draw):
    """In training each hidden unit is dropped too, after the activation."""
    for p, by_name in ((0.3, False), (0.6, True)):
        # Two hidden units, 1 before GELU in every token. Each has 8 outputs of its own: where it
        # is dropped, these are 0 together.
        module, _ = with_dropout(answer, draw, (16, 2), p, by_name)
        token, out = draw.gain(16), torch.block_diag(draw.gain(8, 1), draw.gain(8, 1))
        module.load(
            input_projection__weight=(token / token.square().sum()).expand(2, 16),
            input_projection__bias=token.new_zeros(2),
            output_projection__weight=out,
            output_projection__bias=token.new_zeros(16),
        )
        x = token.expand(40, 50, 16).contiguous()
        result, again = module(x), module(x)
        for one in (result, again):
            shape_of(one, (40, 50, 16))
        zero = result == 0
        silent, later = ((one == 0).unflatten(-1, (2, 8)).all(dim=-1) for one in (result, again))
        what = f"With `dropout={p}` and two hidden units, of these units"
        is_drawn_for_each((silent, later), p + (1 - p) * p**8, what)
        whole = (out @ F.gelu(token.new_ones(2)) / (1 - p)).expand(40, 50, 16)
        # Dropout behind the output, another check's business, scales by the same once more.
        behind = (zero & ~silent.repeat_interleave(8, dim=-1)).any()
        whole = whole / (1 - p) if behind else whole
        close(
            result.masked_fill(zero, 0),
            whole.masked_fill(zero, 0),
            f"With `dropout={p}` and two hidden units, what is left",
        )


@feed_forward.check(points=1, needs=["returns_the_shape"])
def drops_nothing_in_eval(answer, reference, draw):
    """In eval mode nothing is dropped, whatever the probability."""
    module, weights = with_dropout(answer, draw, (5, 3), 0.5, True)
    x = draw.normal(2, 4, 5)
    same(module.eval()(x), torch_feed_forward(x, weights), "In eval mode the result")


@feed_forward.check(points=1, needs=["returns_the_shape"])
def drops_nothing_by_default(answer, reference, draw):
    """Where no dropout is given nothing is dropped, in training either."""
    module, weights = made(answer, draw, feed_forward_layers(5, 3), 5, 3)
    x = draw.normal(6, 4, 5)
    same(module.train()(x), module.eval()(x), "In training mode the result")


# SwiGLU alone


@swiglu.check(points=2, needs=["returns_the_shape"])
def gates_with_silu(answer, reference, draw):
    """What comes up is multiplied by SiLU of the gate."""
    gate, at = diagonal(draw, 5)
    up, by = diagonal(draw, 5)
    out, gains = diagonal(draw, 5)
    module, _ = made(answer, draw, swiglu_layers(5, 5), 5, 5, bias=False)
    module.load(gate_projection__weight=gate, up_projection__weight=up)
    module.load(output_projection__weight=out)
    x = 2 * draw.normal(4, 6, 5)
    said = "Each feature goes through one hidden unit, and the result"
    same(module(x), gains * (F.silu(at * x) * (by * x)), said)


@swiglu.check(points=1, needs=["returns_the_shape"])
def uses_the_up_projection_as_it_is(answer, reference, draw):
    """The up projection has no activation: turn its sign, and the output's sign turns."""
    module, weights = made(answer, draw, swiglu_layers(4, 7), 4, 7, bias=False)
    x = draw.normal(3, 5, 4)
    before = module(x)
    module.load(up_projection__weight=-weights["up_projection.weight"])
    same(module(x), -before, "With the up projection's sign turned, the output")


@swiglu.check(points=1, needs=["returns_the_shape"])
def closes_at_zero(answer, reference, draw):
    """A gate of 0 lets nothing through, and a gate of 20 everything, times 20."""
    module, _ = made(answer, draw, swiglu_layers(4, 4), 4, 4, bias=False)
    eye = torch.eye(4, device=draw.device)
    up = torch.ones(4, 4, device=draw.device)
    module.load(gate_projection__weight=eye, output_projection__weight=eye)
    module.load(up_projection__weight=up)
    x = torch.tensor([[[0.0, 20.0, 13.0, -30.0]]], device=draw.device)
    expected = torch.tensor([[[0.0, 60.0, 39.0, 0.0]]], device=draw.device)
    said = "The gates are 0, 20, 13, -30, what comes up is 3 each time, and the result"
    same(module(x), expected, said, atol=1e-3)


@swiglu.check(points=1, needs=["returns_the_shape"])
def is_the_same_in_training(answer, reference, draw):
    """It has no dropout: training mode and eval mode give the same."""
    module, _ = made(answer, draw, swiglu_layers(5, 3), 5, 3, bias=False)
    x = draw.normal(6, 4, 5)
    same(module.train()(x), module.eval()(x), "In training mode the result")


# Counting


def count_checks(exercise, authority, sizes, first, second):
    """Add what both counts promise; `authority(*sizes, bias)` is a module from torch."""

    def is_the_count(answer, bias, by_name):
        for size in sizes:
            options = {"bias": bias} if by_name else {}
            arguments = size if by_name or bias is None else (*size, bias)
            got = answer(*arguments, **options)
            module = authority(*size, True if bias is None else bias)
            right = sum(one.numel() for one in module.parameters())
            call = ", ".join([*map(str, arguments), *(f"{k}={v}" for k, v in options.items())])
            is_count(got, right, f"{exercise.name}({call})", "torch's")

    def counts_the_matrices(answer, reference, draw):
        is_the_count(answer, False, True)

    def counts_the_biases(answer, reference, draw):
        is_the_count(answer, True, True)

    def counts_them_by_default(answer, reference, draw):
        is_the_count(answer, None, False)
        is_the_count(answer, False, False)

    for run, sentence, points in (
        (counts_the_matrices, f"With `bias=False` it counts {first}, as an int.", 2),
        (counts_the_biases, f"With `bias=True` it counts {second} as well.", 1),
        (counts_them_by_default, "Biases are counted unless `bias` is given as False.", 1),
    ):
        exercise.add(run.__name__, sentence, run, points)


def two_linears(width, hidden, bias):
    return nn.ModuleList([nn.Linear(width, hidden, bias), nn.Linear(hidden, width, bias)])


count_checks(
    feed_forward_parameters,
    two_linears,
    ((4, 7), (7, 3), (64, 256)),
    "the two matrices",
    "a bias behind each",
)
count_checks(
    attention_parameters,
    lambda width, bias: nn.MultiheadAttention(width, 1, bias=bias),
    ((5,), (7,), (64,)),
    "four square matrices",
    "a bias behind each",
)
