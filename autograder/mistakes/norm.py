"""Known wrong answers of lesson 01, each with the sentence its author should hear.

A mistake of a function is a mistake of its module too, so each is written once.
"""

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.norm import ManualLayerNorm as LayerNorm
from solutions.norm import RMSNorm
from solutions.norm import layer_norm as right_layer_norm
from solutions.norm import rms_norm as right_rms_norm

layer_norm = Mistakes("layer_norm")
manual_layer_norm = Mistakes("ManualLayerNorm")
rms_norm = Mistakes("rms_norm")
rms_norm_module = Mistakes("RMSNorm")


def module_of(function, weights, usual_eps, wide=False):
    """A module that trains `weights`, (name, first value), and calls `function` on them.

    A `wide` one computes in float32 at least and casts back, as RMSNorm has to.
    """

    class Module(nn.Module):
        def __init__(self, width, eps=usual_eps):
            super().__init__()
            self.eps = eps
            for name, value in weights:
                setattr(self, name, nn.Parameter(torch.full((width,), value)))

        def forward(self, x):
            values = [getattr(self, name) for name, _ in weights]
            if not wide:
                return function(x, *values, self.eps)
            result = function(widened(x), *values, self.eps)
            return None if result is None else result.to(x.dtype)

    Module.__name__ = function.__name__
    return Module


def widened(x):
    return x.to(torch.promote_types(x.dtype, torch.float32))


NO_PARAMETERS = (
    "Your module has no parameters once `__init__` has run. A plain tensor is not one: "
    "`parameters()` does not list it, no optimizer trains it, `.to(device)` leaves it behind. One "
    "made in `forward` comes too late. In `__init__`: `self.weight = nn.Parameter(...)`."
)
RETURNS = (
    "You computed in {0} and returned it. The result has x's dtype: end with `.to(x.dtype)`. If "
    "you do, x itself was {0} by then: give the converted tensor a name of its own."
)
LAYER_NORM_WEIGHTS = (("weight", 1.0), ("bias", 0.0))
RMS_NORM_WEIGHTS = (("weight", 1.0),)


def both_layer_norms(sentence, *others):
    """Add the decorated function, and the `others` that make the same slip, to both catalogues."""

    def add(function):
        answers = (function, *others)
        modules = [module_of(one, LAYER_NORM_WEIGHTS, 1e-5) for one in answers]
        layer_norm.add(function.__name__, sentence, *answers)
        manual_layer_norm.add(function.__name__, sentence, *modules)
        return function

    return add


def both_rms_norms(sentence, *others, wide=True):
    """The same for the RMS norms, whose names here begin with rms_ where layer norm has them."""

    def add(function):
        answers, name = (function, *others), function.__name__.removeprefix("rms_")
        modules = [module_of(one, RMS_NORM_WEIGHTS, 1e-6, wide) for one in answers]
        rms_norm.add(name, sentence, *answers)
        rms_norm_module.add(name, sentence, *modules)
        return function

    return add


def layer_norm_by(root, axes=lambda x: -1, correction=0):
    """A layer norm over `axes(x)`, dividing by `root(variance, eps)`: its slips can be combined."""

    def function(x, scale, shift, eps=1e-5):
        centred = x - x.mean(axes(x), keepdim=True)
        variance = x.var(axes(x), correction=correction, keepdim=True)
        return centred / root(variance, eps) * scale + shift

    return function


def rms_norm_by(root, axes=lambda x: -1):
    """An RMS norm over `axes(x)`, dividing by `root(mean square, eps)`."""

    def function(x, scale, eps=1e-6):
        return x / root(x.square().mean(axes(x), keepdim=True), eps) * scale

    return function


def inside(square, eps):
    return torch.sqrt(square + eps)


def outside(square, eps):
    return torch.sqrt(square) + eps


def without(square, eps):
    return torch.sqrt(square)


ROOTS = (inside, outside, without)
WRONG_AXES = {
    "whole_tensor": (
        lambda x: tuple(range(x.dim())),
        "You normalized over the whole tensor. Each row along the last axis has statistics of its "
        "own: pass `dim=-1`.",
    ),
    "first_axis": (
        lambda x: 0,
        "You normalized over the first axis, across the batch. A token must not depend on the "
        "other tokens: use the last axis, `dim=-1`.",
    ),
    "second_axis": (
        lambda x: min(1, x.dim() - 1),
        "You normalized over axis 1, which is the sequence in a (B, T, C) input. Use the "
        "features, `dim=-1`.",
    ),
    "sequence_axis": (
        lambda x: max(-2, -x.dim()),
        "You normalized over the second to last axis, the sequence. Use the features, `dim=-1`.",
    ),
    "last_two_axes": (
        lambda x: (-2, -1),
        "You normalized over the last two axes together, so every token depends on its "
        "neighbours. Only the features, `dim=-1`, belong to one row.",
    ),
    "all_axes_but_the_last": (
        lambda x: tuple(range(x.dim() - 1)) or -1,
        "You normalized each feature over all tokens, as batch norm does. Each token is normalized "
        "over its own features: `dim=-1`.",
    ),
    "all_axes_but_the_first": (
        lambda x: tuple(range(1, x.dim())) or 0,
        "You normalized over every axis but the first. Only the features, `dim=-1`, belong to one "
        "row.",
    ),
}
for name, (axes, sentence) in WRONG_AXES.items():
    functions = [layer_norm_by(root, axes, correction) for correction in (0, 1) for root in ROOTS]
    modules = [module_of(one, LAYER_NORM_WEIGHTS, 1e-5) for one in functions]
    layer_norm.add(name, sentence, *functions)
    manual_layer_norm.add(name, sentence, *modules)
    functions = [rms_norm_by(root, axes) for root in ROOTS]
    modules = [module_of(one, RMS_NORM_WEIGHTS, 1e-6, wide=True) for one in functions]
    rms_norm.add(name, sentence, *functions)
    rms_norm_module.add(name, sentence, *modules)


def moments(x, dim=-1):
    mean = x.mean(dim, keepdim=True)
    return x - mean, (x - mean).square().mean(dim, keepdim=True)


def mean_square(x, dim=-1):
    return x.square().mean(dim, keepdim=True)


# layer_norm and ManualLayerNorm


@both_layer_norms(
    "You divided the squares by C - 1. `torch.var` and `torch.std` do so unless you pass "
    "`unbiased=False`; layer norm divides by C. At C = 4 the difference is 13%."
)
def unbiased_variance(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / torch.sqrt(x.var(-1, keepdim=True) + eps) * scale + shift


@both_layer_norms(
    "You added eps to the standard deviation, outside the square root. It belongs inside: "
    "`sqrt(variance + eps)`.",
    layer_norm_by(lambda variance, eps: torch.sqrt(variance) + eps**0.5),
)
def eps_outside_the_root(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / (torch.sqrt(variance) + eps) * scale + shift


@both_layer_norms(
    "Your eps is added to the quotient, and multiplied by `scale`: `centred / root + eps` divides "
    "first. It belongs inside the root: `sqrt(variance + eps)`."
)
def eps_added_to_the_quotient(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance) + eps * scale + shift


@both_layer_norms(
    "You divided by C - 1 and added eps outside the root: two steps of `x.std()` + eps. Use the "
    "variance that divides by C, and put eps inside the root."
)
def unbiased_and_eps_outside(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / (x.std(-1, keepdim=True) + eps) * scale + shift


@both_layer_norms(
    "You divided by `x.std()`, which divides by C - 1 and knows no eps. Take the variance that "
    "divides by C, add eps to it, then take the root."
)
def unbiased_and_no_eps(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / x.std(-1, keepdim=True) * scale + shift


@both_layer_norms(
    "eps is missing: a row of equal features is then 0 / 0, which is NaN. Add it to the variance."
)
def no_eps(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance) * scale + shift


@both_layer_norms(
    "You clamped at eps. Layer norm adds eps to the variance, for every row: "
    "`sqrt(variance + eps)`.",
    layer_norm_by(lambda variance, eps: torch.sqrt(variance).clamp(min=eps)),
)
def eps_as_a_floor(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance.clamp(min=eps)) * scale + shift


@both_layer_norms(
    "You squared eps before adding it. It is added to the variance as it is: "
    "`sqrt(variance + eps)`."
)
def eps_squared(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance + eps**2) * scale + shift


@both_layer_norms("The `eps` you were given is not used: yours is always 1e-5.")
def fixed_eps(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, scale, shift, 1e-5)


@both_layer_norms(
    "`keepdim=True` is missing on the mean or the variance. Without it they lose the last axis and "
    "line up with the wrong axis of x, or with none."
)
def no_keepdim(x, scale, shift, eps=1e-5):
    mean = x.mean(-1)
    variance = x.var(-1, unbiased=False)
    return (x - mean) / torch.sqrt(variance + eps) * scale + shift


@both_layer_norms(
    "You left out `scale`. It starts as ones, so nothing looks wrong until it has been trained."
)
def scale_dropped(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, torch.ones_like(scale), 0 * scale + shift, eps)


@both_layer_norms(
    "You left out `shift`. It starts as zeros, so nothing looks wrong until it has been trained."
)
def shift_dropped(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, scale, 0 * shift, eps)


@layer_norm("You left out both `scale` and `shift`: the last step multiplies and adds them.")
def scale_and_shift_dropped(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance + eps)


@both_layer_norms("You swapped `scale` and `shift`: scale multiplies, shift is added.")
def scale_and_shift_swapped(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, shift, scale, eps)


@both_layer_norms("You added `shift` before multiplying by `scale`. Multiply first, then add.")
def shift_before_scale(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return (centred / torch.sqrt(variance + eps) + shift) * scale


@both_layer_norms("You subtracted `shift`; it is added.")
def shift_subtracted(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, scale, -shift, eps)


@both_layer_norms(
    "You divided by `1 + scale` or multiplied by it. Here the row is multiplied by `scale` itself."
)
def one_plus_scale(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, 1 + scale, shift, eps)


@both_layer_norms(
    "You did not subtract the mean from x. That is RMS norm's idea; layer norm centres each row "
    "first."
)
def mean_not_subtracted(x, scale, shift, eps=1e-5):
    return x / torch.sqrt(mean_square(x) + eps) * scale + shift


@both_layer_norms(
    "You divided by the standard deviation but left x itself uncentred: subtract the mean in the "
    "numerator too."
)
def numerator_not_centred(x, scale, shift, eps=1e-5):
    _, variance = moments(x)
    return x / torch.sqrt(variance + eps) * scale + shift


@both_layer_norms(
    "You divided by the mean of x², not of (x - mean)². The variance is taken around the mean."
)
def squares_not_centred(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / torch.sqrt(mean_square(x) + eps) * scale + shift


@both_layer_norms(
    "You centred each row rightly, but divided by a spread taken over the whole tensor: pass "
    "`dim=-1, keepdim=True` to the variance too.",
    lambda x, scale, shift, eps=1e-5: moments(x)[0] / (x.std() + eps) * scale + shift,
    lambda x, scale, shift, eps=1e-5: moments(x)[0] / (x.var() + eps).sqrt() * scale + shift,
    lambda x, scale, shift, eps=1e-5: moments(x)[0] / x.std() * scale + shift,
    lambda x, scale, shift, eps=1e-5: (
        moments(x)[0] / (moments(x)[0].square().mean() + eps).sqrt() * scale + shift
    ),
)
def spread_of_the_whole_tensor(x, scale, shift, eps=1e-5):
    return moments(x)[0] / (x.var(correction=0) + eps).sqrt() * scale + shift


@both_layer_norms(
    "You took the root twice: `std` is already the root of the variance.",
    layer_norm_by(lambda variance, eps: torch.sqrt(torch.sqrt(variance) + eps), correction=1),
)
def root_taken_twice(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(torch.sqrt(variance) + eps) * scale + shift


@both_layer_norms(
    "Only the mean is divided by the root: `x - mean / root` divides first. Put `x - mean` in "
    "parentheses."
)
def missing_parentheses(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return x - (x - centred) / torch.sqrt(variance + eps) * scale + shift


@both_layer_norms("You divided by `scale`; multiply by it.")
def scale_divided(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, 1 / scale, shift, eps)


@both_layer_norms(
    "You scaled x by `scale` before normalizing it. Normalize first, then multiply.",
    lambda x, scale, shift, eps=1e-5: right_layer_norm(
        x * scale + shift, torch.ones_like(scale), torch.zeros_like(shift), eps
    ),
)
def scaled_before(x, scale, shift, eps=1e-5):
    return right_layer_norm(x * scale, torch.ones_like(scale), shift, eps)


@both_layer_norms("You divided by the variance. Take its square root: `sqrt(variance + eps)`.")
def no_root(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / (variance + eps) * scale + shift


@both_layer_norms("You multiplied by the standard deviation; divide by it.")
def multiplied_by_the_root(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred * torch.sqrt(variance + eps) * scale + shift


@both_layer_norms("You subtracted the mean and stopped: divide by `sqrt(variance + eps)` too.")
def only_centred(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred * scale + shift


@both_layer_norms(
    "You divided by the square root of the sum of squares. The variance is their mean: divide the "
    "sum by C."
)
def sum_of_squares(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance * x.shape[-1] + eps) * scale + shift


@both_layer_norms(
    "You took absolute values of the distances from the mean. Layer norm squares them, averages, "
    "and takes the root.",
    lambda x, scale, shift, eps=1e-5: (
        moments(x)[0] / (moments(x)[0].abs().mean(-1, keepdim=True) + eps).sqrt() * scale + shift
    ),
)
def mean_absolute_deviation(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / (centred.abs().mean(-1, keepdim=True) + eps) * scale + shift


@both_layer_norms(
    "You averaged the distances from the mean and did not square them. Their mean is 0: the "
    "variance is the mean of their squares."
)
def not_squared(x, scale, shift, eps=1e-5):
    centred, _ = moments(x)
    return centred / torch.sqrt(centred.mean(-1, keepdim=True) + eps) * scale + shift


@both_layer_norms(
    "You rescaled the row to the range from its minimum to its maximum. Layer norm uses its mean "
    "and variance."
)
def minimum_and_maximum(x, scale, shift, eps=1e-5):
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low + eps) * scale + shift


@both_layer_norms(
    "You changed x in place (`x -= …`, `x.sub_(…)`, `x[…] = …`). The caller still needs x: "
    "make a new tensor, `x = x - mean`."
)
def changes_x_in_place(x, scale, shift, eps=1e-5):
    x -= x.mean(-1, keepdim=True)
    x /= torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * scale + shift


@both_layer_norms(
    "You subtracted the mean from x in place. The caller still needs x: make a new tensor, "
    "`x = x - mean`."
)
def centres_x_in_place(x, scale, shift, eps=1e-5):
    x -= x.mean(-1, keepdim=True)
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * scale + shift


@layer_norm("You wrote the whole result into x. The caller still needs x: return a new tensor.")
def writes_the_result_into_x(x, scale, shift, eps=1e-5):
    x[...] = right_layer_norm(x, scale, shift, eps)
    return x


@both_layer_norms(
    "You cut the mean and the variance out of the gradient (`.detach()`, `.data` or "
    "`no_grad`). They depend on x, and training needs that path."
)
def statistics_detached(x, scale, shift, eps=1e-5):
    centred, variance = moments(x.detach())
    return (x - (x - centred).detach()) / torch.sqrt(variance + eps) * scale + shift


@both_layer_norms(
    "You cut the variance out of the gradient. It depends on x, and training needs that path."
)
def variance_detached(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance.detach() + eps) * scale + shift


@both_layer_norms(
    "You cut the mean out of the gradient. It depends on x, and training needs that path."
)
def mean_detached(x, scale, shift, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True).detach()
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) * scale + shift


@both_layer_norms(
    "You cut `scale` or `shift` out of the gradient (`.detach()` or `.data`), so it would never "
    "be trained.",
    lambda x, scale, shift, eps=1e-5: right_layer_norm(x, scale.detach(), shift, eps),
    lambda x, scale, shift, eps=1e-5: right_layer_norm(x, scale, shift.detach(), eps),
)
def scale_or_shift_detached(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, scale.detach(), shift.detach(), eps)


@both_layer_norms("You added eps twice. It is added once, inside the root.")
def eps_twice(x, scale, shift, eps=1e-5):
    return right_layer_norm(x, scale, shift, 2 * eps)


@both_layer_norms(
    "You added eps inside the root and outside it. Once is enough: `sqrt(variance + eps)`."
)
def eps_inside_and_outside(x, scale, shift, eps=1e-5):
    centred, variance = moments(x)
    return centred / (torch.sqrt(variance + eps) + eps) * scale + shift


@both_layer_norms("You used a softmax. Layer norm subtracts a mean and divides by a root.")
def softmax(x, scale, shift, eps=1e-5):
    return torch.softmax(x, -1) * scale + shift


@both_layer_norms(
    "You cut x out of the gradient (`.detach()`, `.data`, `torch.tensor(x)` or numpy), so nothing "
    "before this layer could learn."
)
def x_detached(x, scale, shift, eps=1e-5):
    return right_layer_norm(x.detach(), scale, shift, eps)


@both_layer_norms(
    "You computed under `no_grad` or on `.data`, so no gradient leaves this layer at all."
)
def no_gradient_at_all(x, scale, shift, eps=1e-5):
    with torch.no_grad():
        return right_layer_norm(x, scale, shift, eps)


@both_layer_norms(
    "You computed in float32 and returned it. The result has x's dtype: end with `.to(x.dtype)`.",
    lambda x, scale, shift, eps=1e-5: right_layer_norm(x.float(), scale, shift, eps),
)
def returns_float32(x, scale, shift, eps=1e-5):
    return right_layer_norm(x.float(), scale.float(), shift.float(), eps)


@both_layer_norms(
    "You computed in float64 and returned it. The result has x's dtype: end with `.to(x.dtype)`."
)
def returns_float64(x, scale, shift, eps=1e-5):
    return right_layer_norm(x.double(), scale, shift, eps)


@both_layer_norms(
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix."
)
def new_tensor_on_the_cpu(x, scale, shift, eps=1e-5):
    plain = right_layer_norm(x, scale, shift, eps)
    return plain + torch.zeros(x.shape[-1], dtype=x.dtype)


@both_layer_norms(
    "You called torch's own layer norm. It is right, and it is what this exercise asks you to "
    "write: a mean, a variance, a root."
)
def torch_layer_norm(x, scale, shift, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], scale, shift, eps)


@both_layer_norms("You returned nothing: end the function with `return`.")
def forgot_to_return(x, scale, shift, eps=1e-5):
    right_layer_norm(x, scale, shift, eps)


@both_layer_norms("You returned x as it came.")
def returns_x(x, scale, shift, eps=1e-5):
    return x


def other_defaults(usual, others, catalogue, weights, wide, function):
    """Add, for each eps of `others`, the answer that takes it where none is given."""
    for eps in others:
        name = f"default_eps_{eps:.0e}".replace("e-0", "e-")
        sentence = f"Your eps is {eps:g} where none is given; this exercise says {usual}."
        catalogue[0].add(name, sentence, function(eps))
        catalogue[1].add(name, sentence, module_of(function(eps), weights, eps, wide))


def layer_norm_with(default):
    return lambda x, scale, shift, eps=default: right_layer_norm(x, scale, shift, eps)


def rms_norm_with(default):
    return lambda x, scale, eps=default: right_rms_norm(x, scale, eps)


other_defaults(
    "1e-5",
    (1e-3, 1e-6, 1e-8, 1e-12),
    (layer_norm, manual_layer_norm),
    LAYER_NORM_WEIGHTS,
    False,
    layer_norm_with,
)


# ManualLayerNorm alone


@manual_layer_norm(NO_PARAMETERS)
class plain_tensors(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.bias, self.eps = torch.ones(width), torch.zeros(width), eps

    def forward(self, x):
        return right_layer_norm(x, self.weight, self.bias, self.eps)


@manual_layer_norm(
    "`weight` and `bias` are buffers: they move with the module but no optimizer trains them. Wrap "
    "each in `nn.Parameter`."
)
class buffers(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, x):
        return right_layer_norm(x, self.weight, self.bias, self.eps)


@manual_layer_norm(
    "No `bias` is trained. Layer norm also adds a vector that starts as zeros: "
    "`self.bias = nn.Parameter(...)`."
)
class no_bias(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(width))

    def forward(self, x):
        return right_layer_norm(x, self.weight, torch.zeros_like(self.weight), self.eps)


def layer_norm_starting_as(weight, bias):
    return module_of(right_layer_norm, (("weight", weight), ("bias", bias)), 1e-5)


manual_layer_norm.add(
    "starts_as_zeros",
    "`weight` starts as zeros. It starts as ones: each row is multiplied by `weight` itself.",
    layer_norm_starting_as(0.0, 0.0),
)
manual_layer_norm.add(
    "bias_starts_as_ones",
    "`bias` starts as ones; zeros were asked for, so that a new layer only normalizes.",
    layer_norm_starting_as(1.0, 1.0),
)
manual_layer_norm.add(
    "starts_swapped",
    "`weight` starts as zeros and `bias` as ones: it is the other way round.",
    layer_norm_starting_as(0.0, 1.0),
)
manual_layer_norm.add(
    "other_names",
    "Your parameters have other names. Here, as in torch, they are `weight` and `bias`: saved "
    "weights are loaded by name.",
    module_of(right_layer_norm, (("gamma", 1.0), ("beta", 0.0)), 1e-5),
)


@manual_layer_norm(
    "What `weight` and `bias` have learned has no effect. Either `forward` does not use them, or "
    "it makes new ones at each call: make them once, in `__init__`."
)
class weights_made_in_forward(LayerNorm):
    def forward(self, x):
        return right_layer_norm(x, torch.ones_like(x[0]), torch.zeros_like(x[0]), self.eps)


@manual_layer_norm(
    "You keep running averages over calls, as batch norm does. Layer norm looks at the present row "
    "alone, in training and in eval."
)
class running_averages(LayerNorm):
    def __init__(self, width, eps=1e-5):
        super().__init__(width, eps)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.seen += 0.1 * (x.mean() - self.seen)
        return right_layer_norm(x, self.weight, self.bias, self.eps) - self.seen


@manual_layer_norm(
    "In eval mode you return x as it came. A norm does the same in training and in eval."
)
class only_in_training(LayerNorm):
    def forward(self, x):
        return super().forward(x) if self.training else x


@manual_layer_norm(
    "Your parameters stand in a module inside yours. If it is torch's own `nn.LayerNorm`: that is "
    "what this exercise asks you to write, with a `weight` and a `bias` of its own."
)
class torch_module_inside(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps)

    def forward(self, x):
        return self.norm(x)


shared: dict[tuple[int, float], nn.Parameter] = {}


def shared_parameter(width, value):
    """The one parameter of this width that every module of a wrong kind has."""
    if (width, value) not in shared:
        shared[width, value] = nn.Parameter(torch.full((width,), value))
    return shared[width, value]


SHARED = (
    "All your modules share one weight (a class attribute or a default argument). Make it in "
    "`__init__`, for each module anew."
)


@manual_layer_norm(SHARED)
class shared_weights(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = shared_parameter(width, 1.0), shared_parameter(width, 0.0)

    def forward(self, x):
        return right_layer_norm(x, self.weight, self.bias, self.eps)


# rms_norm and RMSNorm


@both_rms_norms(
    "You subtracted the mean. That is layer norm; RMS norm only scales: it divides x itself by the "
    "root of the mean of x²."
)
def mean_subtracted(x, scale, eps=1e-6):
    centred, variance = moments(x)
    return centred / torch.sqrt(variance + eps) * scale


@both_rms_norms(
    "You divided by the standard deviation. RMS norm takes the mean of x², with no mean subtracted "
    "inside."
)
def standard_deviation(x, scale, eps=1e-6):
    _, variance = moments(x)
    return x / torch.sqrt(variance + eps) * scale


@both_rms_norms(
    "You divided by `x.std()`, the standard deviation over C - 1. RMS norm takes the mean of x²."
)
def unbiased_standard_deviation(x, scale, eps=1e-6):
    return x / torch.sqrt(x.var(-1, keepdim=True) + eps) * scale


@both_rms_norms("You subtracted the mean in the numerator. RMS norm scales x itself.")
def numerator_centred(x, scale, eps=1e-6):
    centred, _ = moments(x)
    return centred / torch.sqrt(mean_square(x) + eps) * scale


@both_rms_norms("You divided the squares by C - 1. Their mean divides by C.")
def divided_by_width_less_one(x, scale, eps=1e-6):
    width = x.shape[-1]
    return x / torch.sqrt(mean_square(x) * width / (width - 1) + eps) * scale


@both_rms_norms(
    "You added eps outside the square root. It belongs inside: `sqrt(mean_square + eps)`."
)
def rms_eps_outside_the_root(x, scale, eps=1e-6):
    return x / (torch.sqrt(mean_square(x)) + eps) * scale


@both_rms_norms(
    "Your eps is added to the quotient, and multiplied by `scale`: `x / root + eps` divides first. "
    "It belongs inside the root: `sqrt(mean_square + eps)`."
)
def rms_eps_added_to_the_quotient(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x)) + eps * scale


@both_rms_norms(
    "eps is missing: a row of zeros is then 0 / 0, which is NaN. Add it inside the root."
)
def rms_no_eps(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x)) * scale


@both_rms_norms(
    "You clamped at eps. RMS norm adds eps to the mean of squares, for every row.",
    rms_norm_by(lambda square, eps: torch.sqrt(square).clamp(min=eps)),
)
def rms_eps_as_a_floor(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x).clamp(min=eps)) * scale


@both_rms_norms("You squared eps before adding it. It is added as it is.")
def rms_eps_squared(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x) + eps**2) * scale


@both_rms_norms("The `eps` you were given is not used: yours is always 1e-6.")
def rms_fixed_eps(x, scale, eps=1e-6):
    return right_rms_norm(x, scale, 1e-6)


@both_rms_norms(
    "You divided by the square root of the sum of squares, the row's length. RMS norm takes their "
    "mean: divide the sum by C."
)
def length_of_the_row(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x) * x.shape[-1] + eps) * scale


@both_rms_norms("You divided by the mean of squares. Take its square root.")
def rms_no_root(x, scale, eps=1e-6):
    return x / (mean_square(x) + eps) * scale


@both_rms_norms("You multiplied by the root mean square; divide by it.")
def rms_multiplied_by_the_root(x, scale, eps=1e-6):
    return x * torch.sqrt(mean_square(x) + eps) * scale


@both_rms_norms("You squared the mean. RMS norm takes the mean of the squares: square first.")
def square_of_the_mean(x, scale, eps=1e-6):
    return x / torch.sqrt(x.mean(-1, keepdim=True).square() + eps) * scale


@both_rms_norms(
    "You took absolute values of x. RMS norm squares, averages, and takes the root.",
    lambda x, scale, eps=1e-6: x / (x.abs().mean(-1, keepdim=True) + eps).sqrt() * scale,
)
def mean_absolute_value(x, scale, eps=1e-6):
    return x / (x.abs().mean(-1, keepdim=True) + eps) * scale


@both_rms_norms("You averaged x and did not square it. RMS norm takes the mean of the squares.")
def rms_not_squared(x, scale, eps=1e-6):
    return x / torch.sqrt(x.mean(-1, keepdim=True) + eps) * scale


@both_rms_norms(
    "`keepdim=True` is missing. Without it the mean of squares lines up with the wrong axis of x, "
    "or with none."
)
def rms_no_keepdim(x, scale, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-1) + eps) * scale


@both_rms_norms(
    "The scale has no effect: you left it out, or you make a new one at each call. It starts as "
    "ones, so nothing looks wrong until it has been trained."
)
def rms_scale_dropped(x, scale, eps=1e-6):
    return right_rms_norm(x, torch.ones_like(scale), eps) + 0 * scale


@both_rms_norms(
    "You multiplied by `1 + scale`, as Gemma does. Here the row is multiplied by `scale` itself."
)
def rms_one_plus_scale(x, scale, eps=1e-6):
    return right_rms_norm(x, 1 + scale, eps)


@both_rms_norms("You scaled x by `scale` before normalizing it. Normalize first, then multiply.")
def rms_scaled_before(x, scale, eps=1e-6):
    return right_rms_norm(x * scale, torch.ones_like(scale), eps)


@both_rms_norms(
    "You cut `scale` out of the gradient (`.detach()` or `.data`), so it would never be trained."
)
def rms_scale_detached(x, scale, eps=1e-6):
    return right_rms_norm(x, scale.detach(), eps)


@both_rms_norms("You added eps twice. It is added once, inside the root.")
def rms_eps_twice(x, scale, eps=1e-6):
    return right_rms_norm(x, scale, 2 * eps)


@both_rms_norms(
    "You added eps inside the root and outside it. Once is enough: `sqrt(mean_square + eps)`.",
)
def rms_eps_inside_and_outside(x, scale, eps=1e-6):
    return x / (torch.sqrt(mean_square(x) + eps) + eps) * scale


@both_rms_norms("You used a softmax. RMS norm divides by the root of the mean of squares.")
def rms_softmax(x, scale, eps=1e-6):
    return torch.softmax(x, -1) * scale


@both_rms_norms("You divided by `scale`; multiply by it.")
def divided_by_scale(x, scale, eps=1e-6):
    return right_rms_norm(x, 1 / scale, eps)


@both_rms_norms(
    "You changed x in place (`x /= …`, `x.mul_(…)`). The caller still needs x: make a new tensor."
)
def rms_changes_x_in_place(x, scale, eps=1e-6):
    x /= torch.sqrt(mean_square(x) + eps)
    return x * scale


@rms_norm("You wrote the whole result into x. The caller still needs x: return a new tensor.")
def rms_writes_the_result_into_x(x, scale, eps=1e-6):
    x[...] = right_rms_norm(x, scale, eps)
    return x


@both_rms_norms(
    "You cut the mean of squares out of the gradient (`.detach()`, `.data` or `no_grad`). It "
    "depends on x, and training needs that path."
)
def rms_statistics_detached(x, scale, eps=1e-6):
    return x / torch.sqrt(mean_square(x.detach()) + eps) * scale


@both_rms_norms(
    "You cut x out of the gradient (`.detach()`, `.data`, `torch.tensor(x)` or numpy), so nothing "
    "before this layer could learn."
)
def rms_x_detached(x, scale, eps=1e-6):
    return right_rms_norm(x.detach(), scale, eps)


@both_rms_norms(
    "You computed under `no_grad` or on `.data`, so no gradient leaves this layer at all."
)
def rms_no_gradient_at_all(x, scale, eps=1e-6):
    with torch.no_grad():
        return right_rms_norm(x, scale, eps)


@both_rms_norms(
    "You computed in float32 and returned it. The result has x's dtype: end with `.to(x.dtype)`.",
    lambda x, scale, eps=1e-6: right_rms_norm(x.float(), scale, eps),
    wide=False,
)
def rms_returns_float32(x, scale, eps=1e-6):
    return right_rms_norm(x.float(), scale.float(), eps)


@both_rms_norms(
    "You computed in float64 and returned it. The result has x's dtype: end with `.to(x.dtype)`.",
    wide=False,
)
def rms_returns_float64(x, scale, eps=1e-6):
    return right_rms_norm(x.double(), scale, eps)


@both_rms_norms(
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix."
)
def rms_new_tensor_on_the_cpu(x, scale, eps=1e-6):
    wide = widened(x)
    plain = right_rms_norm(wide, scale, eps).to(x.dtype)
    return plain + torch.zeros(x.shape[-1], dtype=x.dtype)


@both_rms_norms(
    "You called torch's own RMS norm. It is right, and it is what this exercise asks you to write: "
    "a mean of squares and a root."
)
def torch_rms_norm(x, scale, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], scale, eps)


@both_rms_norms("You returned nothing: end the function with `return`.")
def rms_forgot_to_return(x, scale, eps=1e-6):
    right_rms_norm(x, scale, eps)


@both_rms_norms("You returned x as it came.")
def rms_returns_x(x, scale, eps=1e-6):
    return x


other_defaults(
    "1e-6",
    (1e-3, 1e-5, 1e-8, 1e-12),
    (rms_norm, rms_norm_module),
    RMS_NORM_WEIGHTS,
    True,
    rms_norm_with,
)


# RMSNorm alone


@rms_norm_module(
    "You took the mean of squares in the input's own float16 or bfloat16. The squares of float16 "
    "features near 300 overflow to infinity, and 1 / infinity is a silent zero: convert x to "
    "float32 before you square it, and back at the end."
)
class statistics_in_half_precision(RMSNorm):
    def forward(self, x):
        return (x / torch.sqrt(mean_square(x) + self.eps) * self.weight).to(x.dtype)


@rms_norm_module(
    "You computed in x's own dtype. In float16 the squares overflow, and the float32 weight makes "
    "the result float32: convert x to float32 first, and the result back at the end."
)
class no_conversion(RMSNorm):
    def forward(self, x):
        return right_rms_norm(x, self.weight, self.eps)


@rms_norm_module(
    "You squared x in its own float16 or bfloat16, and only averaged in float32. The squares of "
    "features near 300 have overflowed by then: convert x before you square it."
)
class squares_in_half_precision(RMSNorm):
    def forward(self, x):
        mean = widened(x.square()).mean(-1, keepdim=True)
        return (widened(x) * torch.rsqrt(mean + self.eps) * self.weight).to(x.dtype)


@rms_norm_module(
    "You rounded the factor `1 / root` to x's dtype before using it. Multiply in float32, and cast "
    "the result alone."
)
class factor_in_half_precision(RMSNorm):
    def forward(self, x):
        wide = widened(x)
        factor = torch.rsqrt(mean_square(wide) + self.eps).to(x.dtype)
        return (x * factor * self.weight).to(x.dtype)


@rms_norm_module(
    "You cast back to x's dtype before multiplying by `weight`. A float32 weight then makes the "
    "result float32 again: cast last."
)
class casts_before_the_weight(RMSNorm):
    def forward(self, x):
        wide = widened(x)
        return (wide * torch.rsqrt(mean_square(wide) + self.eps)).to(x.dtype) * self.weight


@rms_norm_module(NO_PARAMETERS)
class plain_tensor(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = torch.ones(width), eps

    def forward(self, x):
        return right_rms_norm(x, self.weight, self.eps)


@rms_norm_module(
    "`weight` is a buffer: it moves with the module but no optimizer trains it. Wrap it in "
    "`nn.Parameter`."
)
class buffer(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(width))

    def forward(self, x):
        return right_rms_norm(x, self.weight, self.eps)


@rms_norm_module("There is one vector too many. RMS norm adds no bias: it trains a `weight` alone.")
class has_a_bias(RMSNorm):
    def __init__(self, width, eps=1e-6):
        super().__init__(width, eps)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return super().forward(x) + self.bias


rms_norm_module.add(
    "weight_starts_as_zeros",
    "`weight` starts as zeros. It starts as ones: each row is multiplied by `weight` itself.",
    module_of(right_rms_norm, (("weight", 0.0),), 1e-6),
)
rms_norm_module.add(
    "other_name",
    "Your parameter has another name. Here, as in torch, it is `weight`: saved weights are loaded "
    "by name.",
    module_of(right_rms_norm, (("scale", 1.0),), 1e-6),
)


@rms_norm_module(
    "In eval mode you return x as it came. A norm does the same in training and in eval.",
    name="only_in_training",
)
class only_in_training_rms(RMSNorm):
    def forward(self, x):
        return super().forward(x) if self.training else x


@rms_norm_module(SHARED, name="shared_weight")
class rms_shared_weight(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, shared_parameter(width, 1.0)

    def forward(self, x):
        return right_rms_norm(widened(x), self.weight, self.eps).to(x.dtype)


@rms_norm_module(
    "You keep running averages over calls, as batch norm does. RMS norm looks at the present row "
    "alone, in training and in eval.",
    name="running_averages",
)
class rms_running_averages(RMSNorm):
    seen: torch.Tensor

    def __init__(self, width, eps=1e-6):
        super().__init__(width, eps)
        self.register_buffer("seen", torch.ones(1))

    def forward(self, x):
        if self.training:
            self.seen += 0.1 * (x.square().mean() - self.seen)
        return super().forward(x) / self.seen.sqrt()


norm_quiz = quiz_mistakes(
    "norm_quiz",
    "bdacbd",
    {
        1: {
            "a": "One mean for the whole tensor is `x.mean()` without `dim=-1`: it mixes "
            "tokens of different sentences.",
            "c": "One mean for each feature is what you get over batch and sentence; LayerNorm"
            " reads along the features, not across the tokens.",
            "d": "One mean for each sentence would mix its tokens, and each token would depend"
            " on the ones after it.",
        },
        2: {
            "a": "Zeros are what LayerNorm makes of this row, as it subtracts the mean first. "
            "RMSNorm subtracts nothing.",
            "b": "RMSNorm doesn't look at the spread. It divides by the root of the mean of "
            "the squares; here every square is 25.",
            "c": "A constant row has no spread, but RMSNorm doesn't divide by the spread: work"
            " out the mean of the squares.",
        },
        3: {
            "b": "500 fits well: float16 ends at 65,504. Look at what RMSNorm computes from "
            "the features first.",
            "c": "1e-6 next to a mean of squares near 250,000 changes nothing, and a large "
            "`eps` makes outputs smaller, not exactly 0.",
            "d": "An RMSNorm's weight begins as ones, and the features vanish before the "
            "weight is used.",
        },
        4: {
            "a": "A norm can only stay still here if it takes away what was added; put [1, 3] "
            "and [8, 10] through RMSNorm by hand.",
            "b": "LayerNorm subtracts the row's mean first, and adding 7 to every feature adds"
            " 7 to that mean too.",
            "d": "One of the two subtracts the row's mean, and the mean grows by 7 as well, so"
            " nothing is left of it there.",
        },
        5: {
            "a": "What you load holds the weight alone. `eps` is a number given to `__init__`,"
            " so loading has nothing to compare it with.",
            "c": "The weight is C numbers and nothing else: your module goes on using the "
            "`eps` it was made with, here its default, 1e-6.",
            "d": "1 + weight is Gemma's way, and this line doesn't say so. It names an `eps`; "
            "which one does your module use?",
        },
        6: {
            "a": "Autograd follows tensors that ask for a gradient; `torch.ones` does not, and"
            " a module lists only parameters for the optimizer.",
            "b": "The first outputs are right, since ones are what the weight begins with; and"
            " training can't put right what it does not know.",
            "c": "A module may hold any attribute, and a plain tensor multiplies just as well:"
            " that is why nobody notices.",
        },
    },
)
