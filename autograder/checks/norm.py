"""What the answers of lesson 01 must do.

Each check looks at one mechanism: eps is tiny where the variance is judged, the scale is one where
the direction is. Expected values come from torch's own norms or from a property.
"""

import torch
from torch.nn import functional as F

from autograder.judge import Exercise, Failure, RuledOut, close, same, shape_of, short_name
from autograder.judge.properties import (
    agrees_in_gradients,
    has_parameters,
    keeps_dtypes,
    leaves_untouched,
    owns_its_parameters,
    same_at_every_call,
)
from autograder.judge.quiz import quiz

TORCH_LAYER_NORM = RuledOut(
    "torch's own layer norm", frozenset({"layer_norm", "native_layer_norm", "LayerNorm"})
)
TORCH_RMS_NORM = RuledOut(
    "torch's own RMS norm", frozenset({"rms_norm", "_fused_rms_norm", "RMSNorm"})
)
TINY = 1e-12

layer_norm = Exercise("layer_norm", TORCH_LAYER_NORM)
manual_layer_norm = Exercise("ManualLayerNorm", TORCH_LAYER_NORM)
rms_norm = Exercise("rms_norm", TORCH_RMS_NORM)
rms_norm_module = Exercise("RMSNorm", TORCH_RMS_NORM)
norm_quiz = quiz("norm_quiz", "bdacbd")

# Four axes first: there every wrong choice of axes shows as what it is.
SHAPES = ((2, 3, 5, 7), (5, 3, 4), (3, 4), (4, 4), (6,), (2, 1, 3, 2, 4))


def ones_and_zeros(width, like):
    return like.new_ones(width), like.new_zeros(width)


def parallel(got, expected, shape, what):
    """Fail unless each row of `got` is a positive multiple of the same row of `expected`."""
    shape_of(got, shape)
    unit = got.double() / got.double().norm(dim=-1, keepdim=True)
    expected = expected.double()
    expected = expected / expected.norm(dim=-1, keepdim=True)
    close(
        unit,
        expected,
        f"x has shape {tuple(shape)}, and each row should point where {what} points. Brought to "
        "length 1, the rows disagree",
        rtol=1e-4,
        atol=1e-4,
        note="" if got.dtype == torch.float32 else f"(For a float32 x it came back {got.dtype}.)",
    )


def centred(x):
    return x - x.mean(dim=-1, keepdim=True)


def with_outlier(draw):
    """Two wide rows with one feature far from the rest, which comes out near the root of C."""
    x = draw.normal(2, 64)
    x[:, 3] = 50
    return x


def on_both_sides(draw):
    """Rows whose variance is above an eps near 1, and rows where it is far below."""
    x = draw.normal(4, 3, 6)
    x[2:] *= 0.1
    return x


# layer_norm


@layer_norm.check(points=1)
def centres_each_row(answer, reference, draw):
    """Each row (the last axis) is centred and scaled on its own, however many axes there are."""
    for shape in SHAPES:
        x = draw.normal(*shape) + draw.normal(*shape[:-1], 1)
        parallel(answer(x, *ones_and_zeros(shape[-1], x)), centred(x), shape, "x - mean")


@layer_norm.check(points=2, needs=["centres_each_row"])
def divides_by_the_width(answer, reference, draw):
    """The variance divides by C: rows of 4 come out as in torch's layer norm."""
    for x in (3 * draw.normal(5, 3, 4) + 1, with_outlier(draw)):
        width = x.shape[-1]
        same(answer(x, *ones_and_zeros(width, x), TINY), F.layer_norm(x, (width,), eps=TINY))


@layer_norm.check(points=1, needs=["centres_each_row"])
def scales_and_shifts(answer, reference, draw):
    """The normalized rows are multiplied by `scale`, then `shift` is added, feature by feature."""
    x, scale, shift = draw.normal(3, 2, 5), draw.gain(5), draw.gain(5)
    plain = answer(x, *ones_and_zeros(5, x))
    same(answer(x, scale, shift), plain * scale + shift)


@layer_norm.check(points=1, needs=["centres_each_row"])
def adds_eps_inside_the_root(answer, reference, draw):
    """`eps` is added to the variance, inside the square root, whatever its value."""
    x, scale, shift = on_both_sides(draw), draw.gain(6), draw.gain(6)
    for eps in (draw.number(0.2, 0.6), draw.number(1.0, 3.0)):
        expected = F.layer_norm(x, (6,), scale, shift, eps)
        same(answer(x, scale, shift, eps), expected, f"With `eps = {eps:.3g}` the result")
        same(answer(x, scale, shift, eps=eps), expected, f"With `eps={eps:.3g}` by name the result")


@layer_norm.check(points=1, needs=["centres_each_row"])
def has_the_usual_eps(answer, reference, draw):
    """Where no `eps` is given it is 1e-5, which shows on rows whose variance is as small."""
    x = 0.004 * draw.normal(8, 4)  # variances on both sides of eps
    result = answer(x, *ones_and_zeros(4, x))
    same(result, F.layer_norm(x, (4,), eps=1e-5), rtol=1e-3, atol=1e-3)


@layer_norm.check(points=1, needs=["centres_each_row"])
def keeps_constant_rows_finite(answer, reference, draw):
    """A row of equal features has variance 0 and comes out as `shift`, not as NaN."""
    x, scale, shift = draw.normal(3, 4), draw.gain(4), draw.gain(4)
    x[1] = 2.0
    result = answer(x, scale, shift)
    shape_of(result, x.shape)
    close(result[1], shift, "x is 2 four times, and the result", atol=1e-4)
    if not torch.isfinite(result).all():
        raise Failure("The rows beside a constant row hold NaN or infinity.")


@layer_norm.check(points=1, needs=["centres_each_row"])
def leaves_its_inputs_untouched(answer, reference, draw):
    """`x`, `scale` and `shift` are the same after the call."""
    leaves_untouched(answer, x=draw.normal(3, 5), scale=draw.gain(5), shift=draw.gain(5))


@layer_norm.check(points=1, needs=["centres_each_row"])
def lets_gradients_flow(answer, reference, draw):
    """Gradients reach `x`, `scale` and `shift`, through the mean and the variance too."""
    inputs = {"x": draw.normal(3, 2, 5), "scale": draw.gain(5), "shift": draw.gain(5)}
    back = draw.normal(3, 2, 5)
    agrees_in_gradients(
        answer.backward(back, *inputs.values()).gradients,
        lambda x, scale, shift: F.layer_norm(x, (5,), scale, shift),
        inputs,
        back,
    )


@layer_norm.check(points=1, needs=["centres_each_row"])
def keeps_the_dtype(answer, reference, draw):
    """The result has the dtype of `x`: float64, float32, float16 or bfloat16."""
    keeps_dtypes(answer, draw.normal(3, 5), draw.gain(5), draw.gain(5))


@layer_norm.check(points=1, needs=["centres_each_row"])
def stays_on_the_device(answer, reference, draw):
    """Everything happens on the device of `x`, so that it runs on a GPU."""
    answer.on_meta(draw.normal(3, 2, 5), draw.gain(5), draw.gain(5))


# rms_norm


@rms_norm.check(points=1)
def scales_each_row(answer, reference, draw):
    """Each row (the last axis) keeps its direction: it is scaled, and no mean is subtracted."""
    for shape in SHAPES:
        x = draw.normal(*shape) + draw.gain(*shape[:-1], 1)
        parallel(answer(x, x.new_ones(shape[-1])), x, shape, "x")


@rms_norm.check(points=2, needs=["scales_each_row"])
def divides_by_the_root_mean_square(answer, reference, draw):
    """The mean divides by C: rows of 4 come out as in torch's RMS norm."""
    for x in (3 * draw.normal(5, 3, 4) + 1, with_outlier(draw)):
        width = x.shape[-1]
        same(answer(x, x.new_ones(width), TINY), F.rms_norm(x, (width,), eps=TINY))


@rms_norm.check(points=1, needs=["scales_each_row"])
def multiplies_by_scale(answer, reference, draw):
    """The normalized rows are multiplied by `scale`, feature by feature."""
    x, scale = draw.normal(3, 2, 5), draw.gain(5)
    same(answer(x, scale), answer(x, torch.ones_like(scale)) * scale)


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_adds_eps_inside_the_root(answer, reference, draw):
    """`eps` is added to the mean of squares, inside the square root, whatever its value."""
    x, scale = on_both_sides(draw), draw.gain(6)
    for eps in (draw.number(0.2, 0.6), draw.number(1.0, 3.0)):
        expected = F.rms_norm(x, (6,), scale, eps)
        same(answer(x, scale, eps), expected, f"With `eps = {eps:.3g}` the result")
        same(answer(x, scale, eps=eps), expected, f"With `eps={eps:.3g}` by name the result")


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_has_the_usual_eps(answer, reference, draw):
    """Where no `eps` is given it is 1e-6, which shows on rows whose squares are as small."""
    x = 0.001 * draw.normal(5, 4)
    same(answer(x, x.new_ones(4)), F.rms_norm(x, (4,), eps=1e-6), rtol=1e-3, atol=1e-3)


@rms_norm.check(points=1, needs=["scales_each_row"])
def keeps_zero_rows_finite(answer, reference, draw):
    """A row of zeros comes out as zeros, not as NaN."""
    x, scale = draw.normal(3, 4), draw.gain(4)
    x[1] = 0.0
    result = answer(x, scale)
    shape_of(result, x.shape)
    close(result[1], torch.zeros_like(scale), "x is 0 four times, and the result")
    if not torch.isfinite(result).all():
        raise Failure("The rows beside a row of zeros hold NaN or infinity.")


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_leaves_its_inputs_untouched(answer, reference, draw):
    """`x` and `scale` are the same after the call."""
    leaves_untouched(answer, x=draw.normal(3, 5), scale=draw.gain(5))


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_lets_gradients_flow(answer, reference, draw):
    """Gradients reach `x` and `scale`, through the mean of squares too."""
    inputs = {"x": draw.normal(3, 2, 5), "scale": draw.gain(5)}
    back = draw.normal(3, 2, 5)
    agrees_in_gradients(
        answer.backward(back, *inputs.values()).gradients,
        lambda x, scale: F.rms_norm(x, (5,), scale, 1e-6),
        inputs,
        back,
    )


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_keeps_the_dtype(answer, reference, draw):
    """The result has the dtype of `x`: float64, float32, float16 or bfloat16."""
    keeps_dtypes(answer, draw.normal(3, 5), draw.gain(5))


@rms_norm.check(points=1, needs=["scales_each_row"])
def rms_stays_on_the_device(answer, reference, draw):
    """Everything happens on the device of `x`, so that it runs on a GPU."""
    answer.on_meta(draw.normal(3, 2, 5), draw.gain(5))


# The two modules


def module_checks(exercise, function, parameters, usual_eps, direction, what):
    """Add what both modules promise; `function` is torch's own, `direction` that of a row."""
    first, gate = ["has_its_parameters"], ["normalizes_each_row"]
    names = " and ".join(f"`{name}`" for name in parameters)

    def loaded(answer, draw, width, *eps, **named):
        module = answer(width, *eps, **named)
        values = {name: draw.gain(width) for name in parameters}
        return module.load(**values), values

    def has_its_parameters(answer, reference, draw):
        for width in (4, 7):
            has_parameters(answer(width), parameters, width)

    def normalizes_each_row(answer, reference, draw):
        for shape in SHAPES:
            x = draw.normal(*shape) + draw.gain(*shape[:-1], 1)
            parallel(answer(shape[-1])(x), direction(x), shape, what)

    def agrees_with_torch(answer, reference, draw):
        for x in (3 * draw.normal(5, 3, 4) + 1, draw.normal(2, 3, 2, 5), with_outlier(draw)):
            module, values = loaded(answer, draw, x.shape[-1])
            same(module(x), function(x, x.shape[-1:], **values, eps=usual_eps))

    def uses_its_eps(answer, reference, draw):
        x, eps = on_both_sides(draw), draw.number(0.3, 2.0)
        for module, values in (loaded(answer, draw, 6, eps), loaded(answer, draw, 6, eps=eps)):
            same(
                module(x),
                function(x, (6,), **values, eps=eps),
                f"With `eps = {eps:.3g}` the result",
            )
        small, (module, values) = usual_eps**0.5 * x, loaded(answer, draw, 6)
        expected = function(small, (6,), **values, eps=usual_eps)
        same(module(small), expected, "With no eps given the result", rtol=1e-3, atol=1e-3)

    def keeps_quiet_rows_finite(answer, reference, draw):
        x, (module, values) = draw.normal(3, 4), loaded(answer, draw, 4)
        x[1] = 0.0
        result, expected = module(x), function(x, (4,), **values, eps=usual_eps)
        shape_of(result, x.shape)
        same(result[1], expected[1], "x is 0 four times, and the result")

    def is_the_same_at_every_call(answer, reference, draw):
        same_at_every_call(answer(5), draw.normal(4, 5), 3 * draw.normal(4, 5) + 2)

    def owns_its_weights(answer, reference, draw):
        owns_its_parameters(lambda: answer(5), draw)

    def leaves_x_untouched(answer, reference, draw):
        leaves_untouched(answer(5), x=draw.normal(3, 5))

    def lets_gradients_flow(answer, reference, draw):
        x, back = draw.normal(3, 2, 5), draw.normal(3, 2, 5)
        module, values = loaded(answer, draw, 5)
        got = module.backward(back, x)
        agrees_in_gradients(
            [got.gradients[0], *(got.parameters[name] for name in parameters)],
            lambda x, **values: function(x, (5,), **values, eps=usual_eps),
            {"x": x, **values},
            back,
        )

    def keeps_the_dtype(answer, reference, draw):
        keeps_dtypes(lambda x: answer(5).to(dtype=x.dtype)(x), draw.normal(3, 5))

    def stays_on_the_device(answer, reference, draw):
        answer(5).to(device="meta").on_meta(draw.normal(3, 2, 5))

    for run, sentence, points, needs in (
        (has_its_parameters, f"It trains {names}, filled as asked, and nothing else.", 1, ()),
        (normalizes_each_row, "Each row (the last axis) is normalized on its own.", 1, first),
        (agrees_with_torch, "With weights of any value it agrees with torch's own.", 2, gate),
        (
            uses_its_eps,
            f"`eps` goes inside the root; it is {usual_eps:.0e} if not given.".replace("e-0", "e-"),
            1,
            gate,
        ),
        (keeps_quiet_rows_finite, "A row of zeros does not become NaN.", 1, gate),
        (is_the_same_at_every_call, "A call leaves no trace in the next, in eval too.", 1, gate),
        (owns_its_weights, "Two modules do not share weights.", 1, gate),
        (leaves_x_untouched, "`x` is the same after the call.", 1, gate),
        (lets_gradients_flow, f"Gradients reach `x` and {names}.", 1, gate),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it moves.", 1, gate),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


module_checks(
    manual_layer_norm, F.layer_norm, {"weight": 1.0, "bias": 0.0}, 1e-5, centred, "x - mean"
)
module_checks(rms_norm_module, F.rms_norm, {"weight": 1.0}, 1e-6, lambda x: x, "x")


@rms_norm_module.check(points=1, needs=["normalizes_each_row"])
def survives_float16(answer, reference, draw):
    """float16 features near 300 come out right, though their squares overflow float16."""
    x = (300 * draw.gain(4, 6)).half()
    weight = draw.gain(6)
    exact = F.rms_norm(x.double(), (6,), weight.double(), 1e-6)
    same(
        answer(6).load(weight=weight)(x),
        exact.half(),
        "x is float16 near 300, the weight float32, and the result",
        note="300² is 90,000 and float16 ends at 65,504.",
    )


@rms_norm_module.check(points=1, needs=["normalizes_each_row"])
def takes_statistics_in_float32(answer, reference, draw):
    """Half-precision rows are scaled by a statistic taken in float32 or wider, then rounded."""
    for dtype in (torch.bfloat16, torch.float16):
        x = draw.normal(24, 512).to(dtype)
        result = answer(512)(x)
        name = short_name(dtype)
        expected = F.rms_norm(x.double(), (512,), eps=1e-6).to(dtype)
        same(result, expected, f"x is {name}, the weight float32, and the result")
        # Rounding the entries does the same to a row's length in both; a rounded statistic more.
        length, right = (one.double().square().mean(dim=-1).sqrt() for one in (result, expected))
        off = (length - right).square().mean().sqrt().item()
        if off > 0.1 * torch.finfo(dtype).eps:
            raise Failure(
                f"x is {name}: the rows' root mean squares are off by {off:.1e}, more than "
                "rounding the result explains. Compute in float32, and cast back at the end."
            )
