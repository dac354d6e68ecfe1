"""Known wrong answers of lesson 02, each with the sentence its author should hear.

What can go wrong in both forms of GELU, or in both modules, is written once for the two.
"""

import itertools
import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.ffn import FeedForward, SwiGLU
from solutions.ffn import gelu as right_gelu
from solutions.ffn import gelu_tanh as right_gelu_tanh

gelu = Mistakes("gelu")
gelu_tanh = Mistakes("gelu_tanh")
feed_forward = Mistakes("FeedForward")
swiglu = Mistakes("SwiGLU")
feed_forward_parameters = Mistakes("feed_forward_parameters")
attention_parameters = Mistakes("attention_parameters")


def cdf(x):
    """The normal CDF, which is what the exact GELU multiplies x by."""
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def tanh_cdf(x):
    """What the tanh form has in the place of the CDF."""
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def quick(x):
    return x * torch.sigmoid(1.702 * x)


# Both forms

OTHER_ACTIVATIONS = {
    "relu": (
        (F.relu, lambda x: x * (x > 0)),
        "You wrote ReLU, which cuts at zero: 0 for everything negative. GELU multiplies x by a "
        "share that grows smoothly from 0 to 1.",
    ),
    "silu": (
        (F.silu,),
        "You wrote SiLU, x * sigmoid(x). It has a similar shape, but at 1 it is 0.73 where GELU is "
        "0.84.",
    ),
    "sigmoid_form": (
        (quick, lambda x: x * torch.sigmoid(1.7 * x)),
        "You wrote x * sigmoid(1.702 x), the quick form. It is a third function, up to 0.02 away "
        "from GELU.",
    ),
    "leaky_relu": (
        (F.leaky_relu, lambda x: F.leaky_relu(x, 0.1)),
        "You wrote a leaky ReLU: straight on both sides of zero. GELU is a curve, and goes to 0 "
        "far to the left.",
    ),
    "elu": ((F.elu,), "You wrote ELU, which goes to -1 far to the left. GELU goes to 0."),
    "softplus": (
        (F.softplus,),
        "You wrote softplus, log(1 + e^x). It is 0.69 at zero, where GELU is 0.",
    ),
    "mish": ((F.mish,), "You wrote Mish, x * tanh(softplus(x)). GELU has the normal CDF instead."),
    "hard_swish": (
        (F.hardswish,),
        "You wrote the hard swish, made of straight pieces and a parabola. GELU has the normal "
        "CDF.",
    ),
    "tanh_alone": (
        (torch.tanh,),
        "You wrote tanh, which never leaves -1 to 1. GELU lets large x pass: x times a share.",
    ),
    "sigmoid_alone": (
        (torch.sigmoid,),
        "You wrote the sigmoid alone, a share between 0 and 1. GELU is x times a share.",
    ),
    "share_of_the_absolute_value": (
        (
            lambda x: x.abs() * cdf(x),
            lambda x: x.abs() * tanh_cdf(x),
            lambda x: x * cdf(x.abs()),
            lambda x: x * tanh_cdf(x.abs()),
            lambda x: right_gelu(x.abs()),
            lambda x: right_gelu_tanh(x.abs()),
            lambda x: 0.5 * x * (1 + (2 * tanh_cdf(x) - 1).abs()),
        ),
        "You took the absolute value of x. GELU is slightly negative left of zero: x keeps its "
        "sign.",
    ),
    "negative_half_cut": (
        (lambda x: F.relu(x) * cdf(x), lambda x: F.relu(x) * tanh_cdf(x)),
        "You cut the negative half to 0. GELU is slightly negative there: -0.16 at -1.",
    ),
    "softmax": (
        (lambda x: x * torch.softmax(x, -1), lambda x: torch.softmax(x, -1)),
        "You used a softmax, which compares a row's numbers with each other. GELU looks at each "
        "number alone.",
    ),
    "standardized_first": (
        (
            lambda x: x * cdf((x - x.mean()) / (x.std(correction=0) + 1e-5)),
            lambda x: x * cdf((x - x.mean()) / (x.std() + 1e-5)),
            lambda x: right_gelu((x - x.mean()) / x.std()),
            lambda x: right_gelu((x - x.mean(-1, True)) / x.std(-1, keepdim=True)),
            lambda x: right_gelu_tanh((x - x.mean()) / x.std()),
            lambda x: right_gelu_tanh((x - x.mean(-1, True)) / x.std(-1, keepdim=True)),
        ),
        "You used the mean and the spread of x itself. The normal curve in GELU always has mean 0 "
        "and standard deviation 1, whatever x holds.",
    ),
}
for name, (answers, sentence) in OTHER_ACTIVATIONS.items():
    gelu.add(name, sentence, *answers)
    gelu_tanh.add(name, sentence, *answers)


def in_both_forms(sentence, *others):
    """Add `slip(share, x)`, whose `share` is right for either form, to both catalogues."""

    def add(slip):
        slips = (slip, *others)
        gelu.add(slip.__name__, sentence, *(partial(one, cdf) for one in slips))
        gelu_tanh.add(slip.__name__, sentence, *(partial(one, tanh_cdf) for one in slips))
        return slip

    return add


@in_both_forms("You returned the share alone, between 0 and 1. It is multiplied by x.")
def share_alone(share, x):
    return share(x)


@in_both_forms("The factor 0.5 is missing: far to the right you return 2 x.")
def no_half(share, x):
    return 2 * x * share(x)


@in_both_forms("The 1 in `1 + ...` is missing: far to the left x is not stopped but turned.")
def no_one(share, x):
    return x * (share(x) - 0.5)


@in_both_forms("The sign is turned: you let the negative side pass and stop the positive one.")
def sign_turned(share, x):
    return x * (1 - share(x))


@in_both_forms(
    "The 0.5 has to multiply the whole `1 + ...`. Yours reaches only one of the two.",
    lambda share, x: x * (1 + (share(x) - 0.5)),
)
def half_of_one_part(share, x):
    return x * (0.5 + (2 * share(x) - 1))


gelu.add(
    "parentheses_missing",
    "Parentheses are missing: `0.5 * x * 1 + ...` multiplies the 1 alone. Write `(1 + ...)`.",
    lambda x: 0.5 * x * 1 + torch.erf(x / math.sqrt(2)),
)
gelu_tanh.add(
    "parentheses_missing",
    "Parentheses are missing: `0.5 * x * 1 + ...` multiplies the 1 alone. Write `(1 + ...)`.",
    lambda x: 0.5 * x * 1 + (2 * tanh_cdf(x) - 1),
)


@in_both_forms("You multiplied by x twice.")
def x_twice(share, x):
    return x * x * share(x)


@in_both_forms("You applied the function twice.")
def applied_twice(share, x):
    once = x * share(x)
    return once * share(once)


@in_both_forms("You rounded the result, so that it has steps and no gradient.")
def rounded_result(share, x):
    return (x * share(x)).round(decimals=2)


@in_both_forms(
    "You changed x in place (`x *= …`, `x.mul_(…)`, `x[…] = …`). The caller still needs x: make a "
    "new tensor."
)
def changes_x_in_place(share, x):
    x *= share(x)
    return x


@in_both_forms(
    "You cut the share out of the gradient (`.detach()`, `.data`, `math.erf`, numpy). It depends "
    "on x, and training needs that path."
)
def share_detached(share, x):
    return x * share(x.detach())


@in_both_forms(
    "You cut x out of the gradient (`.detach()`, `.data`, `no_grad`, `torch.tensor(x)` or numpy), "
    "so nothing before this function could learn."
)
def x_detached(share, x):
    return x.detach() * share(x.detach())


@in_both_forms("You multiplied by a copy of x that has no gradient: only the share has one.")
def factor_detached(share, x):
    return x.detach() * share(x)


@in_both_forms(
    "You computed in float32 and returned it. The result has x's dtype: end with `.to(x.dtype)`."
)
def returns_float32(share, x):
    return x.float() * share(x.float())


@in_both_forms(
    "You computed in float64 and returned it. The result has x's dtype: end with `.to(x.dtype)`."
)
def returns_float64(share, x):
    return x.double() * share(x.double())


@in_both_forms(
    "You made a new tensor without x's dtype, so short inputs come back as float32. Use "
    "`torch.ones_like(x)` or a plain number."
)
def new_float32_tensor(share, x):
    return x * share(x) * torch.ones(x.shape, device=x.device)


@in_both_forms(
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix."
)
def new_tensor_on_the_cpu(share, x):
    return x * share(x) + torch.zeros(x.shape, dtype=x.dtype)


@in_both_forms("You summed over the last axis. Each number has a result of its own.")
def summed(share, x):
    return (x * share(x)).sum(dim=-1)


@in_both_forms("You returned nothing: end the function with `return`.")
def forgot_to_return(share, x):
    share(x)


@in_both_forms("You returned x as it came.")
def returns_x(share, x):
    return x


@in_both_forms(
    "You returned GELU's slope, its derivative. The function itself is x times the share."
)
def derivative(share, x):
    return share(x) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


NOT_ON_TENSORS = (
    "A function of `math` takes one plain number, and x is a whole tensor. `torch.erf` and "
    "`torch.tanh` work on each of its numbers."
)
NOT_ON_NUMBERS = "`torch.sqrt` takes a tensor. For a plain number there is `math.sqrt`."
gelu.add("math_on_a_tensor", NOT_ON_TENSORS, lambda x: math.erf(x.detach()))
gelu_tanh.add("math_on_a_tensor", NOT_ON_TENSORS, lambda x: math.tanh(x.detach()))


def root_of(number):
    return lambda x: torch.sqrt(number)


gelu.add("torch_sqrt_of_a_number", NOT_ON_NUMBERS, root_of(2), root_of(2.0))
gelu_tanh.add("torch_sqrt_of_a_number", NOT_ON_NUMBERS, root_of(2 / math.pi))
gelu_tanh.add("xor_for_a_power", "`^` is no power in Python: write `x**3`.", lambda x: x ^ 3)


# gelu alone


def by_erf(inner):
    return lambda x: 0.5 * x * (1 + torch.erf(inner(x)))


gelu.add(
    "tanh_form",
    "You wrote the tanh form. Here the exact one is asked: 1 + erf(x / sqrt(2)). They differ by up "
    "to 0.0005, near 2.7.",
    right_gelu_tanh,
    lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
)
gelu.add(
    "no_root_of_two",
    "You took erf(x). The normal CDF needs erf(x / sqrt(2)): erf belongs to another bell curve.",
    by_erf(lambda x: x),
)
gelu.add(
    "erf_alone",
    "You multiplied x by erf. It goes from -1 to 1; the share is half of 1 + erf.",
    lambda x: x * torch.erf(x / math.sqrt(2)),
)
gelu.add(
    "divided_by_two",
    "You divided x by 2 inside erf; divide by the root of 2.",
    by_erf(lambda x: x / 2),
)
gelu.add(
    "multiplied_by_the_root",
    "You multiplied x by the root of 2 inside erf; divide by it.",
    by_erf(lambda x: x * math.sqrt(2)),
)
gelu.add(
    "root_outside_erf",
    "You divided erf(x) by the root of 2. Divide x first: erf(x / sqrt(2)).",
    lambda x: 0.5 * x * (1 + torch.erf(x) / math.sqrt(2)),
)
gelu.add(
    "root_of_pi",
    "You have the root of 2 pi inside erf. It is the root of 2 alone: pi is inside erf already.",
    by_erf(lambda x: x / math.sqrt(2 * math.pi)),
    by_erf(lambda x: x / math.sqrt(math.pi)),
    by_erf(lambda x: x * math.sqrt(2 / math.pi)),
)
gelu.add(
    "tanh_in_place_of_erf",
    "You have tanh where erf belongs. They have the same shape and other values.",
    lambda x: 0.5 * x * (1 + torch.tanh(x / math.sqrt(2))),
    lambda x: 0.5 * x * (1 + torch.tanh(x)),
    lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * x)),
)
gelu.add(
    "density_in_place_of_the_cdf",
    "You multiplied by the height of the bell curve. GELU multiplies by the area to the left of x, "
    "the CDF, which goes to 1.",
    lambda x: x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    lambda x: x * torch.exp(-x * x / 2),
    lambda x: x * torch.distributions.Normal(0.0, 1.0).log_prob(x).exp(),
)
gelu.add(
    "log_of_the_cdf",
    "You multiplied by the logarithm of the CDF. Take the CDF itself.",
    lambda x: x * torch.special.log_ndtr(x),
    lambda x: x * torch.log(cdf(x)),
)
gelu.add(
    "inverse_erf",
    "You used the inverse of erf, which is infinite outside -1 to 1. Use `torch.erf`.",
    by_erf(lambda x: torch.erfinv(x / math.sqrt(2))),
    lambda x: 0.5 * x * (1 + torch.erfinv(x / math.sqrt(2))),
)
gelu.add(
    "other_spread",
    "Your normal curve has a standard deviation of 2. The standard one has 1: `Normal(0, 1)`.",
    lambda x: x * torch.distributions.Normal(0.0, 2.0).cdf(x),
)
gelu.add(
    "mean_of_one",
    "Your normal curve has mean 1 (`Normal(1, 1)`); the standard one has mean 0: `Normal(0, 1)`.",
    lambda x: x * torch.distributions.Normal(1.0, 1.0).cdf(x),
)


@gelu(
    "You called torch's own GELU. It is right, and it is what this exercise asks you to write: x "
    "times the normal CDF, from `torch.erf`."
)
def torch_gelu(x):
    return F.gelu(x)


@gelu(
    "You computed each number with `math.erf`. Plain Python numbers have no gradient, and the new "
    "tensor is on the CPU: use `torch.erf` on the whole tensor.",
)
def python_numbers(x):
    values = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.flatten().tolist()]
    return torch.tensor(values, dtype=x.dtype).reshape(x.shape)


@gelu("The CDF comes from `math.erf`: no gradient flows through it. Use `torch.erf`.")
def shares_from_python(x):
    shares = [0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.flatten().tolist()]
    return x * torch.tensor(shares).reshape(x.shape)


# gelu_tanh alone


def by_tanh(inner):
    return lambda x: 0.5 * x * (1 + torch.tanh(inner(x)))


ROOT = math.sqrt(2 / math.pi)
gelu_tanh.add(
    "exact_form",
    "You wrote the exact form. Here the tanh form is asked: they differ by up to 0.0005, near 2.7.",
    right_gelu,
    lambda x: F.gelu(x),
    lambda x: x * torch.special.ndtr(x),
)
gelu_tanh.add(
    "no_cubic_term",
    "The term 0.044715 x³ is missing inside tanh.",
    by_tanh(lambda x: ROOT * x),
)
gelu_tanh.add(
    "square_in_place_of_the_cube",
    "You squared x inside tanh; the small term has its cube, x³.",
    by_tanh(lambda x: ROOT * (x + 0.044715 * x**2)),
)
gelu_tanh.add(
    "other_power",
    "The small term inside tanh has x³, no other power.",
    by_tanh(lambda x: ROOT * (x + 0.044715 * x**4)),
    by_tanh(lambda x: ROOT * (x + 0.044715 * x**5)),
    by_tanh(lambda x: ROOT * (x + 0.044715 * 3 * x)),
    by_tanh(lambda x: ROOT * (x + 0.044715 * x)),
)
gelu_tanh.add(
    "cube_of_the_product",
    "You cubed 0.044715 as well: `(0.044715 * x) ** 3`. Only x is cubed: `0.044715 * x**3`.",
    by_tanh(lambda x: ROOT * (x + (0.044715 * x) ** 3)),
)
gelu_tanh.add(
    "cube_of_the_sum",
    "You cubed the whole bracket. Only the x behind 0.044715 is cubed.",
    by_tanh(lambda x: ROOT * (x + 0.044715 * x) ** 3),
)
gelu_tanh.add(
    "cubic_term_subtracted",
    "You subtracted 0.044715 x³; it is added.",
    by_tanh(lambda x: ROOT * (x - 0.044715 * x**3)),
)
gelu_tanh.add(
    "only_the_cubic_term",
    "Inside tanh x itself is missing: x + 0.044715 x³.",
    by_tanh(lambda x: ROOT * (0.044715 * x**3)),
)
for wrong in ("0.44715", "0.0044715", "0.04715", "0.047715", "0.44", "0.041715"):
    gelu_tanh.add(
        f"{wrong}_for_0.044715",
        f"You wrote {wrong} where the formula has 0.044715.",
        by_tanh(lambda x, factor=float(wrong): ROOT * (x + factor * x**3)),
    )
gelu_tanh.add(
    "no_factor_inside",
    "The factor sqrt(2 / pi), about 0.798, is missing inside tanh.",
    by_tanh(lambda x: x + 0.044715 * x**3),
)
gelu_tanh.add(
    "no_root_of_the_factor",
    "You multiplied by 2 / pi. The factor is its root, about 0.798.",
    by_tanh(lambda x: 2 / math.pi * (x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "root_of_two_over_pi",
    "You took the root of 2 alone and divided by pi. The root is over both: sqrt(2 / pi).",
    by_tanh(lambda x: math.sqrt(2) / math.pi * (x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "factor_upside_down",
    "Your factor is the root of pi / 2, about 1.25. It is the root of 2 / pi, about 0.798.",
    by_tanh(lambda x: math.sqrt(math.pi / 2) * (x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "root_of_two_pi",
    "Your factor is the root of 2 pi. It is the root of 2 / pi, about 0.798.",
    by_tanh(lambda x: math.sqrt(2 * math.pi) * (x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "factor_on_x_alone",
    "The factor sqrt(2 / pi) has to multiply the cubic term too: put x + 0.044715 x³ in "
    "parentheses.",
    by_tanh(lambda x: ROOT * x + 0.044715 * x**3),
)
gelu_tanh.add(
    "factor_outside_tanh",
    "The factor sqrt(2 / pi) stands outside tanh. It multiplies what tanh is given.",
    lambda x: 0.5 * x * (1 + ROOT * torch.tanh(x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "factor_rounded_to_0.8",
    "You rounded the factor to 0.8. It is 0.79788456: write `math.sqrt(2 / math.pi)`.",
    by_tanh(lambda x: 0.8 * (x + 0.044715 * x**3)),
)
gelu_tanh.add(
    "constant_slightly_off",
    "One of the two numbers is rounded too far or mistyped: they are `math.sqrt(2 / math.pi)`, "
    "which is 0.79788456, and 0.044715.",
    *(
        by_tanh(lambda x, k=k: k * (x + 0.044715 * x**3))
        for k in (0.79, 0.797, 0.798, 0.7979, 0.7978, math.sqrt(2 / 3.14))
    ),
    *(
        by_tanh(lambda x, k=k: ROOT * (x + k * x**3))
        for k in (0.04, 0.044, 0.04475, 0.045, 0.0447, 0.04471, 0.04472, 0.044175)
    ),
)
gelu_tanh.add(
    "sigmoid_for_tanh",
    "A sigmoid is no drop-in for (1 + tanh) / 2: sigmoid(2 z) equals it, with a 2 that you left "
    "out.",
    lambda x: x * torch.sigmoid(ROOT * (x + 0.044715 * x**3)),
    lambda x: 0.5 * x * (1 + torch.sigmoid(ROOT * (x + 0.044715 * x**3))),
)
gelu_tanh.add(
    "erf_of_the_tanh_s_inside",
    "You took erf of the tanh form's inside. Either erf(x / sqrt(2)), or tanh of the longer "
    "expression; here the second.",
    lambda x: 0.5 * x * (1 + torch.erf(ROOT * (x + 0.044715 * x**3))),
)
gelu_tanh.add(
    "tanh_of_the_cdf_s_inside",
    "You replaced erf by tanh and kept x / sqrt(2). tanh is given another inside: sqrt(2 / pi) "
    "times (x + 0.044715 x³).",
    by_tanh(lambda x: x / math.sqrt(2)),
)


@gelu_tanh("You cubed x in place (`pow_`, `**=`). The caller still needs x: use `x**3`.")
def cubes_x_in_place(x):
    inner = ROOT * (x + 0.044715 * x.pow_(3))
    return 0.5 * x * (1 + torch.tanh(inner))


@gelu_tanh("You cut the cubic term out of the gradient. It depends on x, and training needs it.")
def cubic_term_detached(x):
    return 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x.detach() ** 3)))


# Both modules


def after(change):
    """Answers that are right but for what `change(module, x, result)` makes of the result."""
    return [
        type(
            right.__name__,
            (right,),
            {"forward": lambda self, x, right=right: change(self, x, right.forward(self, x))},
        )
        for right in (FeedForward, SwiGLU)
    ]


def before(change):
    """Answers that are right, for an x changed by `change(x)`."""
    return [
        type(
            right.__name__,
            (right,),
            {"forward": lambda self, x, right=right: right.forward(self, change(x))},
        )
        for right in (FeedForward, SwiGLU)
    ]


def in_both_modules(name, sentence, *pairs):
    """Add answers, each a pair for FeedForward and SwiGLU, to both catalogues."""
    feed_forward.add(name, sentence, *(pair[0] for pair in pairs))
    swiglu.add(name, sentence, *(pair[1] for pair in pairs))


def cumulative_mean(x):
    steps = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    return x.cumsum(dim=1) / steps[:, None]


def places(x):
    return torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None]


MIXES = (
    "You mixed positions: a token's output depends on its neighbours. That is attention's job; "
    "this network works on each token alone."
)
in_both_modules("averages_the_tokens", MIXES, before(lambda x: x + x.mean(dim=1, keepdim=True)))
in_both_modules("average_in_place_of_the_token", MIXES, before(lambda x: 0 * x + x.mean(1, True)))
in_both_modules(
    "average_of_the_outputs",
    MIXES,
    after(lambda m, x, y: y + y.mean(1, True)),
    after(lambda m, x, y: y.mean(1, True).expand_as(y)),
)
in_both_modules(
    "attends",
    MIXES,
    before(lambda x: torch.softmax(x @ x.mT, dim=-1) @ x),
    before(lambda x: torch.softmax(x @ x.mT / x.shape[-1] ** 0.5, dim=-1) @ x),
)
in_both_modules("looks_to_the_left", MIXES, before(lambda x: x + x.roll(1, dims=1)))
in_both_modules("sums_up_the_past", MIXES, before(lambda x: x.cumsum(dim=1)))
in_both_modules("averages_the_past", MIXES, before(cumulative_mean))
in_both_modules("reads_backwards", MIXES, before(lambda x: x.flip(1)))
in_both_modules(
    "normalizes_over_the_sequence",
    "You normalized over the sequence, so each token depends on the others. No norm is asked for.",
    before(lambda x: (x - x.mean(1, True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()),
    before(lambda x: (x - x.mean(1, True)) / (x.std(1, keepdim=True) + 1e-5)),
)
in_both_modules(
    "mixes_the_batch",
    "You mixed the sentences of a batch: what stands in one must not reach another.",
    before(lambda x: x + x.mean(dim=0, keepdim=True)),
    before(lambda x: x + x.roll(1, dims=0)),
    before(lambda x: x - x.mean(dim=0, keepdim=True)),
    before(lambda x: x.mean(dim=0, keepdim=True).expand_as(x)),
)
in_both_modules(
    "view_in_place_of_transpose",
    "A `view` or `reshape` in another order put numbers of one token into another's place. No "
    "reshaping is needed: `nn.Linear` reads the last axis.",
    before(lambda x: x.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)),
    before(lambda x: x.transpose(0, 1).reshape(x.shape)),
)
in_both_modules(
    "works_along_the_sequence",
    "You transposed or reshaped x, so that the layers run along the sequence. They run along the "
    "features, which is the last axis already.",
    [
        type(
            right.__name__,
            (right,),
            {"forward": lambda s, x, r=right: r.forward(s, x.transpose(1, 2)).transpose(1, 2)},
        )
        for right in (FeedForward, SwiGLU)
    ],
)
in_both_modules(
    "flattens_the_sentence",
    "You flattened each sentence to one row. The layers work on each token: leave x as it is.",
    before(lambda x: x.flatten(1)),
)
in_both_modules(
    "knows_its_place",
    "The same token comes out differently at different places. Positions are put in elsewhere; "
    "here every place has the same computation.",
    before(lambda x: x + places(x)),
    after(lambda m, x, y: y * (1 + places(x))),
)
in_both_modules(
    "one_output_for_the_sentence",
    "You averaged over the sequence. Each token has an output of its own: (B, T, C) in, (B, T, C) "
    "out.",
    before(lambda x: x.mean(dim=1)),
    before(lambda x: x.mean(dim=1, keepdim=True)),
    after(lambda m, x, y: y.mean(dim=1)),
    after(lambda m, x, y: y.mean(dim=1, keepdim=True)),
)
in_both_modules(
    "last_token_only",
    "You returned the last token's output alone. Each token has one.",
    after(lambda m, x, y: y[:, -1]),
    after(lambda m, x, y: y[:, -1:]),
)
in_both_modules(
    "residual_added",
    "You added x to the result. The shortcut is put around this network later, by the block.",
    after(lambda m, x, y: x + y),
)
in_both_modules(
    "normalizes_first",
    "You normalized x first. The norm stands outside this network, in the block.",
    before(lambda x: F.layer_norm(x, x.shape[-1:])),
    before(lambda x: F.rms_norm(x, x.shape[-1:])),
)
in_both_modules(
    "normalizes_last",
    "You normalized the result. The norm stands outside this network, in the block.",
    after(lambda m, x, y: F.layer_norm(y, y.shape[-1:])),
    after(lambda m, x, y: F.rms_norm(y, y.shape[-1:])),
)
in_both_modules(
    "scaled_by_the_width",
    "You scaled by a root of the width. That belongs to attention and embeddings.",
    before(lambda x: x * x.shape[-1] ** 0.5),
    before(lambda x: x / x.shape[-1] ** 0.5),
    after(lambda m, x, y: y / y.shape[-1] ** 0.5),
    after(lambda m, x, y: y * y.shape[-1] ** 0.5),
)
in_both_modules(
    "softmax_at_the_end",
    "You ended with a softmax. The output projection is the last step.",
    after(lambda m, x, y: torch.softmax(y, -1)),
)
in_both_modules(
    "activation_at_the_end",
    "You applied one more activation, after the output projection. It stands between the "
    "projections alone.",
    after(lambda m, x, y: F.gelu(y)),
    after(lambda m, x, y: F.silu(y)),
    after(lambda m, x, y: F.relu(y)),
    after(lambda m, x, y: torch.tanh(y)),
    after(lambda m, x, y: torch.sigmoid(y)),
)
in_both_modules(
    "activation_at_the_start",
    "You applied an activation to x before the first projection. Project first.",
    before(F.gelu),
    before(F.silu),
    before(F.relu),
)
in_both_modules(
    "returns_a_tuple",
    "You returned a tuple: more than one thing, or one with a comma behind it. The result is one "
    "tensor.",
    after(lambda m, x, y: (y,)),
    after(lambda m, x, y: (y, x)),
    after(lambda m, x, y: (y, None)),
)
in_both_modules(
    "forgot_to_return",
    "You returned nothing: end `forward` with `return`.",
    after(lambda m, x, y: None),
)
in_both_modules("returns_x", "You returned x as it came.", after(lambda m, x, y: x))
in_both_modules(
    "changes_x_in_place",
    "You changed x in place (`x *= …`, `x.sub_(…)`). The caller still needs x: make a new tensor.",
    before(lambda x: x.mul_(2).div(2)),
    before(lambda x: x.sub_(x.mean(-1, keepdim=True))),
)
in_both_modules(
    "writes_the_result_into_x",
    "You wrote the result into x. The caller still needs x: return a new tensor.",
    after(lambda m, x, y: x.copy_(y)),
)
in_both_modules(
    "adds_the_result_into_x",
    "You added the result to x in place (`x += …`). The caller still needs x, and the shortcut is "
    "not this network's business.",
    after(lambda m, x, y: x.add_(y)),
)
in_both_modules(
    "x_detached",
    "You cut x out of the gradient (`.detach()`, `.data` or `torch.tensor(x)`), so nothing before "
    "this network could learn.",
    before(lambda x: x.detach()),
)
in_both_modules(
    "returns_float32",
    "You returned float32. The result has x's dtype.",
    after(lambda m, x, y: y.float()),
)
in_both_modules(
    "returns_float64",
    "You returned float64. The result has x's dtype.",
    after(lambda m, x, y: y.double()),
)
in_both_modules(
    "new_tensor_on_the_cpu",
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix.",
    after(lambda m, x, y: y + torch.zeros(y.shape, dtype=y.dtype)),
)
in_both_modules(
    "no_gradient_at_all",
    "You computed under `no_grad` or detached the result, so no gradient leaves this network.",
    after(lambda m, x, y: y.detach()),
)


def changed(change, **more):
    """Answers that are right once `change(module, d_model, hidden_dim)` has run in `__init__`."""
    answers = []
    for right in (FeedForward, SwiGLU):

        def __init__(self, d_model, hidden_dim, *args, right=right, **kwargs):
            right.__init__(self, d_model, hidden_dim, *args, **kwargs)
            change(self, d_model, hidden_dim)

        answers.append(type(right.__name__, (right,), {"__init__": __init__, **more}))
    return answers


def resized(size):
    """Answers whose hidden width is `size(d_model, hidden_dim)`."""
    return [
        lambda d_model, hidden_dim, *args, right=right, **kwargs: right(
            d_model, size(d_model, hidden_dim), *args, **kwargs
        )
        for right in (FeedForward, SwiGLU)
    ]


def freeze(module, d_model, hidden_dim):
    module.requires_grad_(False)


def freeze_output(module, d_model, hidden_dim):
    module.output_projection.requires_grad_(False)


def unregister(module, d_model, hidden_dim):
    """Keep the layers where no module looks for them."""
    layers = {name: module._modules.pop(name) for name in list(module._modules)}
    module.__dict__.update(layers)


def to_buffers(module, d_model, hidden_dim):
    for layer in module.children():
        for name, parameter in list(layer.named_parameters()):
            delattr(layer, name)
            layer.register_buffer(name, parameter.detach())


NO_LAYERS = (
    "Your module has no layers once `__init__` has run. Layers made in `forward` are new, and "
    "random, at every call; layers in a Python list or dict are not found. Make each one once, in "
    "`__init__`: `self.input_projection = nn.Linear(...)`."
)
in_both_modules("no_layers", NO_LAYERS, changed(unregister))
in_both_modules(
    "buffers",
    "Your weights are buffers: they move with the module but no optimizer trains them. Use "
    "`nn.Linear`.",
    changed(to_buffers),
)
in_both_modules(
    "frozen",
    "Your layers have requires_grad=False, so they would never be trained.",
    changed(freeze),
)
in_both_modules(
    "output_frozen",
    "The output projection has requires_grad=False, so it would never be trained.",
    changed(freeze_output),
)
in_both_modules(
    "hidden_width_ignored",
    "The hidden width is always 4 times the model's. Use the `hidden_dim` that you are given.",
    resized(lambda d_model, hidden_dim: 4 * d_model),
)
in_both_modules(
    "hidden_width_of_the_model",
    "The hidden width is the model's own. Use the `hidden_dim` that you are given.",
    resized(lambda d_model, hidden_dim: d_model),
)
in_both_modules(
    "hidden_width_times_four",
    "You made the hidden width 4 times `hidden_dim`. It is `hidden_dim` itself.",
    resized(lambda d_model, hidden_dim: 4 * hidden_dim),
)
in_both_modules(
    "hidden_width_two_thirds",
    "You took two thirds of `hidden_dim`. Whoever calls chooses the width: use it as it is.",
    resized(lambda d_model, hidden_dim: max(1, int(2 * hidden_dim / 3))),
)
in_both_modules(
    "sizes_swapped",
    "You swapped d_model and hidden_dim: the network goes from d_model to hidden_dim and back.",
    [
        lambda d_model, hidden_dim, *args, right=right, **kwargs: right(
            hidden_dim, d_model, *args, **kwargs
        )
        for right in (FeedForward, SwiGLU)
    ],
)


def without_super(self, d_model, hidden_dim, *args, **kwargs):
    self.first_layer = nn.Linear(d_model, hidden_dim)


in_both_modules(
    "no_super_init",
    "`super().__init__()` is missing: it is the first line of a module's `__init__`.",
    [
        type(right.__name__, (right,), {"__init__": without_super})
        for right in (FeedForward, SwiGLU)
    ],
)


def hidden_layer(module, d_model, hidden_dim):
    module.middle_projection = nn.Linear(hidden_dim, hidden_dim)


def last_layer(module, d_model, hidden_dim):
    module.last_projection = nn.Linear(d_model, d_model)


def own_norm(module, d_model, hidden_dim):
    module.norm = nn.LayerNorm(d_model)


def trained_scale(module, d_model, hidden_dim):
    module.scale = nn.Parameter(torch.ones(1))


def trained_scales(module, d_model, hidden_dim):
    module.scale = nn.Parameter(torch.ones(d_model))


in_both_modules(
    "one_more_layer",
    "There is a projection too many.",
    changed(hidden_layer),
    changed(last_layer),
)
in_both_modules(
    "own_norm",
    "There is a norm inside. It stands outside this network, in the block.",
    changed(own_norm),
)
in_both_modules(
    "trained_scale",
    "You train a scale that no formula here has.",
    changed(trained_scale),
    changed(trained_scales),
)

made: dict[tuple, dict[str, nn.Linear]] = {}


def share_layers(module, d_model, hidden_dim):
    """Give every module of these sizes the layers of the first, but a dropout of its own."""
    layers = {name: one for name, one in module.named_children() if isinstance(one, nn.Linear)}
    module._modules.update(made.setdefault((type(module).__mro__[1], d_model, hidden_dim), layers))


in_both_modules(
    "shared_layers",
    "All your modules of one size share their layers. Make them in `__init__`, for each module "
    "anew.",
    changed(share_layers),
)


def anew(module, x):
    """The module's forward pass with new layers in the place of its own."""
    sizes = module.output_projection.out_features, module.output_projection.in_features
    right = FeedForward if isinstance(module, FeedForward) else SwiGLU
    return right(*sizes).to(x.device, x.dtype)(x)


def reset_first(module, x):
    for layer in module.children():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    return next(one for one in (FeedForward, SwiGLU) if isinstance(module, one)).forward(module, x)


in_both_modules(
    "layers_made_in_forward",
    "`forward` makes new layers, or resets them, so each call has other weights and what was "
    "learned has no effect. Make them once, in `__init__`, and only use them in `forward`.",
    [type(right.__name__, (right,), {"forward": anew}) for right in (FeedForward, SwiGLU)],
    [type(right.__name__, (right,), {"forward": reset_first}) for right in (FeedForward, SwiGLU)],
)
in_both_modules(
    "only_in_training",
    "In eval mode you return x as it came. Only dropout knows the mode.",
    after(lambda m, x, y: y if m.training else x),
)


def keep_a_trace(module, x, y):
    module.seen = getattr(module, "seen", 0) + (0.1 if module.training else 0)
    return y * (1 + module.seen)


in_both_modules(
    "keeps_a_trace",
    "Your module remembers earlier calls, and its result changes with them.",
    after(keep_a_trace),
)


def keep_the_first(module, x, y):
    if getattr(module, "kept", None) is None or module.kept.shape != y.shape:
        module.kept = y.detach()
    return module.kept + 0 * y


in_both_modules(
    "keeps_the_first_result",
    "Your module keeps the result of its first call and returns it again.",
    after(keep_the_first),
)


# FeedForward alone


def between(activation):
    """A FeedForward with another activation."""

    def forward(self, x):
        hidden = self.dropout(activation(self.input_projection(x)))
        return self.dropout(self.output_projection(hidden))

    return type("FeedForward", (FeedForward,), {"forward": forward})


def by_parts(parts):
    """A FeedForward whose forward pass is `parts(self, hidden before activation, dropout)`."""
    return type(
        "FeedForward",
        (FeedForward,),
        {"forward": lambda self, x: parts(self, self.input_projection(x), self.dropout)},
    )


feed_forward.add(
    "no_activation",
    "There is no activation between the projections: two linear maps in a row are one linear map.",
    between(lambda hidden: hidden),
)
for name, activation, what in (
    ("relu_for_gelu", F.relu, "ReLU"),
    ("tanh_form_for_the_exact", right_gelu_tanh, "the tanh form of GELU"),
    ("silu_for_gelu", F.silu, "SiLU"),
    ("sigmoid_form_for_gelu", quick, "x * sigmoid(1.702 x)"),
    ("tanh_for_gelu", torch.tanh, "tanh"),
    ("sigmoid_for_gelu", torch.sigmoid, "the sigmoid"),
    ("leaky_relu_for_gelu", F.leaky_relu, "a leaky ReLU"),
    ("elu_for_gelu", F.elu, "ELU"),
    ("squared_relu_for_gelu", lambda x: F.relu(x).square(), "ReLU squared"),
    ("softmax_for_gelu", lambda x: torch.softmax(x, -1), "a softmax"),
):
    feed_forward.add(
        name,
        f"Your activation is {what}. The exact GELU is asked for: `F.gelu(x)` or your own `gelu`.",
        between(activation),
    )
feed_forward.add(
    "activation_after_the_output",
    "Your activation comes after the second projection. It stands between the two, where it keeps "
    "them from collapsing into one map.",
    by_parts(lambda self, hidden, drop: drop(F.gelu(self.output_projection(drop(hidden))))),
    by_parts(lambda self, hidden, drop: F.gelu(drop(self.output_projection(drop(hidden))))),
    by_parts(lambda self, hidden, drop: drop(F.gelu(self.output_projection(hidden)))),
)
feed_forward.add(
    "activation_after_the_output_too",
    "You applied GELU a second time, after the output projection. It stands between the two alone.",
    by_parts(lambda self, hidden, drop: drop(F.gelu(self.output_projection(drop(F.gelu(hidden)))))),
)
feed_forward.add(
    "gelu_twice",
    "You applied GELU twice in a row.",
    between(lambda hidden: F.gelu(F.gelu(hidden))),
)
feed_forward.add(
    "gated_by_itself",
    "You multiplied the hidden features by their own GELU. GELU alone is asked for.",
    between(lambda hidden: hidden * F.gelu(hidden)),
)
feed_forward.add(
    "returns_the_hidden_features",
    "You returned the hidden features. The output projection brings them back to d_model.",
    by_parts(lambda self, hidden, drop: drop(F.gelu(hidden))),
)
feed_forward.add(
    "second_projection_of_x",
    "You gave x to the second projection. It is given the hidden features.",
    type("FeedForward", (FeedForward,), {"forward": lambda self, x: self.output_projection(x)}),
)
feed_forward.add(
    "hidden_detached",
    "You cut the hidden features out of the gradient, so the first projection would never learn.",
    between(lambda hidden: F.gelu(hidden).detach()),
)


def biasless(input_bias, output_bias):
    """A FeedForward without one of its biases, or both."""

    class Answer(FeedForward):
        def __init__(self, d_model, hidden_dim, dropout=0.0):
            super().__init__(d_model, hidden_dim, dropout)
            self.input_projection = nn.Linear(d_model, hidden_dim, bias=input_bias)
            self.output_projection = nn.Linear(hidden_dim, d_model, bias=output_bias)

    return Answer


feed_forward.add(
    "no_bias",
    "A projection has no bias. Both have one: leave `bias=False` out.",
    biasless(False, False),
    biasless(False, True),
    biasless(True, False),
)


def bias_left_out(self, x):
    hidden = F.gelu(F.linear(x, self.input_projection.weight))
    return F.linear(self.dropout(hidden), self.output_projection.weight)


def hidden_bias_left_out(self, x):
    hidden = F.gelu(F.linear(x, self.input_projection.weight))
    return self.dropout(self.output_projection(self.dropout(hidden)))


def output_bias_left_out(self, x):
    hidden = self.dropout(F.gelu(self.input_projection(x)))
    return self.dropout(F.linear(hidden, self.output_projection.weight))


feed_forward.add(
    "bias_not_used",
    "A bias is there and not added. Call the layer, `self.input_projection(x)`, which adds it.",
    *(
        type("FeedForward", (FeedForward,), {"forward": forward})
        for forward in (bias_left_out, hidden_bias_left_out, output_bias_left_out)
    ),
)


class TiedProjections(FeedForward):
    def __init__(self, d_model, hidden_dim, dropout=0.0):
        super().__init__(d_model, hidden_dim, dropout)
        self.output_projection = nn.Linear(hidden_dim, d_model)
        self.output_projection.weight = nn.Parameter(self.input_projection.weight.T)
        self.output_projection.weight.data = self.input_projection.weight.data.T


feed_forward.add(
    "tied_projections",
    "The output projection is the input projection turned round. They are two layers, with weights "
    "of their own.",
    TiedProjections,
)


def tied_in_forward(self, x):
    hidden = self.dropout(F.gelu(self.input_projection(x)))
    out = F.linear(hidden, self.input_projection.weight.T, self.output_projection.bias)
    return self.dropout(out)


feed_forward.add(
    "second_projection_not_used",
    "You used the first projection's weight, turned round, in the place of the second's.",
    type("FeedForward", (FeedForward,), {"forward": tied_in_forward}),
)


def named(*names):
    """A FeedForward whose layers have other names; a dot makes a Sequential."""

    class Answer(nn.Module):
        def __init__(self, d_model, hidden_dim, dropout=0.0):
            super().__init__()
            layers = nn.Linear(d_model, hidden_dim), nn.Linear(hidden_dim, d_model)
            if names[0].isidentifier():
                for name, layer in zip(names, layers, strict=True):
                    setattr(self, name, layer)
            else:
                drop, parts = nn.Dropout(dropout), int(names[1][-1])
                steps = [layers[0], nn.GELU(), drop, layers[1], drop]
                if parts == 2:
                    steps = [layers[0], nn.GELU(), layers[1], drop]
                setattr(self, names[0][:-2], nn.Sequential(*steps))

    return Answer


feed_forward.add(
    "other_names",
    "Your layers have other names. Here they are `input_projection` and `output_projection`: saved "
    "weights are loaded by name.",
    named("fc1", "fc2"),
    named("input_projection", "fc2"),
    named("fc1", "output_projection"),
    named("net.0", "net.3"),
    named("net.0", "net.2"),
)

# Dropout


def dropping(after_input=None, activated=None, hidden=None, out=None, default=0.0):
    """A FeedForward with a function (module, tensor, p) at each place, or nothing there."""

    class Answer(FeedForward):
        def __init__(self, d_model, hidden_dim, dropout=default):
            super().__init__(d_model, hidden_dim, dropout)
            self.p = dropout

        def forward(self, x):
            def at(place, tensor):
                return tensor if place is None else place(self, tensor, self.p)

            inner = at(activated, self.input_projection(at(after_input, x)))
            return at(out, self.output_projection(at(hidden, F.gelu(inner))))

    return Answer


def drop(module, tensor, p):
    return F.dropout(tensor, p, module.training)


def drop_always(module, tensor, p):
    return F.dropout(tensor, p, True)


def drop_in_eval(module, tensor, p):
    return F.dropout(tensor, p, not module.training)


def keep(module, tensor, p):
    return F.dropout(tensor, 1 - p if p else 0.0, module.training)


def drop_unscaled(module, tensor, p):
    return F.dropout(tensor, p, module.training) * ((1 - p) if module.training else 1)


def drop_scaled_in_eval(module, tensor, p):
    return F.dropout(tensor, p, module.training) * (1 if module.training else 1 - p)


def drop_by_hand(module, tensor, p):
    return tensor * (torch.rand_like(tensor) > p) if module.training else tensor


def drop_by_hand_and_in_eval(module, tensor, p):
    return drop_by_hand(module, tensor, p) * (1 if module.training else 1 - p)


def drop_a_tenth(module, tensor, p):
    return F.dropout(tensor, 0.1 if p else 0.0, module.training)


def drop_a_tenth_always(module, tensor, p):
    return F.dropout(tensor, 0.1, module.training)


def drop_half(module, tensor, p):
    return F.dropout(tensor, 0.5 if p else 0.0, module.training)


def drop_half_always(module, tensor, p):
    return F.dropout(tensor, 0.5, module.training)


def drop_features(module, tensor, p):
    return F.dropout1d(tensor, p, module.training)


def drop_twice(module, tensor, p):
    return drop(module, drop(module, tensor, p), p)


def one_mask(module, tensor, p):
    return tensor * F.dropout(torch.ones_like(tensor[:1, :1]), p, module.training)


feed_forward.add(
    "no_dropout_after_the_output",
    "The dropout after the output projection is missing.",
    dropping(hidden=drop),
)
feed_forward.add(
    "no_dropout",
    "Nothing is dropped in training. Use `nn.Dropout(dropout)` after the activation and after the "
    "output projection.",
    dropping(),
)
feed_forward.add(
    "no_dropout_after_the_activation",
    "The dropout after the activation is missing.",
    dropping(out=drop),
)
feed_forward.add(
    "dropout_before_the_activation",
    "Your first dropout stands before the activation. It scales up what it keeps, and GELU of a "
    "larger number is another number: put it after the activation.",
    dropping(activated=drop, out=drop),
)
feed_forward.add(
    "dropout_on_the_input",
    "Your first dropout stands on the input x. It belongs after the activation.",
    dropping(after_input=drop, out=drop),
)
feed_forward.add(
    "dropout_on_the_input_too",
    "There is a dropout on the input x as well. Two are asked for: after the activation and after "
    "the output projection.",
    dropping(after_input=drop, hidden=drop, out=drop),
)
feed_forward.add(
    "dropout_on_both_sides_of_the_activation",
    "There is a dropout before the activation as well. Two are asked for: after the activation and "
    "after the output projection.",
    dropping(activated=drop, hidden=drop, out=drop),
)
feed_forward.add(
    "dropout_twice_after_the_output",
    "Both dropouts stand after the output projection. The first belongs after the activation.",
    dropping(out=drop_twice),
)
feed_forward.add(
    "dropout_doubled",
    "You dropped twice at one place.",
    dropping(hidden=drop_twice, out=drop_twice),
    dropping(hidden=drop, out=drop_twice),
    dropping(hidden=drop_twice, out=drop),
)
feed_forward.add(
    "dropout_in_eval_too",
    "You drop in eval mode too: `F.dropout(x, p)` and an `nn.Dropout` made in `forward` do not "
    "hear of it. Make `nn.Dropout(dropout)` in `__init__`.",
    dropping(hidden=drop_always, out=drop_always),
    dropping(hidden=drop, out=drop_always),
    dropping(hidden=drop_always, out=drop),
)
feed_forward.add(
    "dropout_in_eval_alone",
    "You drop in eval mode and not in training: it is the other way round.",
    dropping(hidden=drop_in_eval, out=drop_in_eval),
)
feed_forward.add(
    "probability_of_keeping",
    "You took `dropout` as the probability of keeping. It is the probability of dropping.",
    dropping(hidden=keep, out=keep),
)
feed_forward.add(
    "not_scaled_up",
    "You set numbers to 0 and left the others as they are. In training the others are divided by "
    "1 - p, so that the mean stays; `nn.Dropout` does that.",
    dropping(hidden=drop_unscaled, out=drop_unscaled),
    dropping(hidden=drop_by_hand, out=drop_by_hand),
)
feed_forward.add(
    "scaled_down_in_eval",
    "You multiplied by 1 - p in eval mode. `nn.Dropout` scales up in training, so nothing is left "
    "to do in eval.",
    dropping(hidden=drop_scaled_in_eval, out=drop_scaled_in_eval),
    dropping(hidden=drop_by_hand_and_in_eval, out=drop_by_hand_and_in_eval),
)
feed_forward.add(
    "dropout_fixed",
    "The `dropout` that you are given is not used: your probability is always the same.",
    dropping(hidden=drop_a_tenth, out=drop_a_tenth),
    dropping(hidden=drop_a_tenth_always, out=drop_a_tenth_always),
    dropping(hidden=drop_half, out=drop_half),
    dropping(hidden=drop_half_always, out=drop_half_always),
)
feed_forward.add(
    "drops_whole_tokens",
    "You dropped whole tokens together (`nn.Dropout1d`). `nn.Dropout` drops each number by itself.",
    dropping(hidden=drop_features, out=drop_features),
    dropping(hidden=drop, out=drop_features),
    dropping(hidden=drop_features, out=drop),
)
feed_forward.add(
    "one_mask_for_all_tokens",
    "All tokens lose the same features. `nn.Dropout` draws for each number.",
    dropping(hidden=one_mask, out=one_mask),
    dropping(hidden=drop, out=one_mask),
    dropping(hidden=one_mask, out=drop),
)
feed_forward.add(
    "default_dropout",
    "You drop where no dropout is given. Its default is 0.0.",
    dropping(hidden=drop, out=drop, default=0.1),
    dropping(hidden=drop, out=drop, default=0.5),
    dropping(hidden=drop, out=drop, default=0.2),
)


@feed_forward("`__init__` takes no `dropout`. It is the third argument, and 0.0 by default.")
class no_dropout_argument(FeedForward):
    def __init__(self, d_model, hidden_dim):
        super().__init__(d_model, hidden_dim)


# SwiGLU alone


def gated(mix):
    """A SwiGLU whose hidden features are `mix(gate, up)`."""

    def forward(self, x):
        return self.output_projection(mix(self.gate_projection(x), self.up_projection(x)))

    return type("SwiGLU", (SwiGLU,), {"forward": forward})


for name, sentence, *mixes in (
    (
        "gate_and_up_swapped",
        "You swapped gate and up: SiLU goes on the gate, and what comes up is multiplied by it.",
        lambda gate, up: gate * F.silu(up),
    ),
    (
        "silu_of_the_product",
        "You took SiLU of the product. SiLU goes on the gate alone, and then you multiply.",
        lambda gate, up: F.silu(gate * up),
    ),
    (
        "silu_on_both",
        "You put SiLU on both. The up projection is used as it is.",
        lambda gate, up: F.silu(gate) * F.silu(up),
    ),
    (
        "no_activation",
        "There is no activation on the gate: you multiplied two linear maps.",
        lambda gate, up: gate * up,
    ),
    (
        "sigmoid_gate",
        "Your gate is a sigmoid, as in the plain GLU. SwiGLU has SiLU: the gate times its sigmoid.",
        lambda gate, up: torch.sigmoid(gate) * up,
    ),
    (
        "gelu_gate",
        "Your gate has GELU, which makes it GEGLU. SwiGLU has SiLU.",
        lambda gate, up: F.gelu(gate) * up,
        lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    ),
    (
        "relu_gate",
        "Your gate has ReLU, which makes it ReGLU. SwiGLU has SiLU.",
        lambda gate, up: F.relu(gate) * up,
    ),
    (
        "tanh_gate",
        "Your gate has tanh. SwiGLU has SiLU: the gate times its sigmoid.",
        lambda gate, up: torch.tanh(gate) * up,
    ),
    (
        "softmax_gate",
        "Your gate is a softmax over the hidden features. SiLU looks at each number alone.",
        lambda gate, up: torch.softmax(gate, -1) * up,
    ),
    (
        "sharper_silu",
        "Your SiLU has a factor inside its sigmoid. It is gate * sigmoid(gate).",
        lambda gate, up: quick(gate) * up,
    ),
    (
        "softplus_gate",
        "Your gate has softplus. SwiGLU has SiLU: the gate times its sigmoid.",
        lambda gate, up: F.softplus(gate) * up,
    ),
    (
        "sigmoid_of_the_up_projection",
        "You multiplied the gate by the sigmoid of what comes up. SiLU multiplies the gate by its "
        "own sigmoid; what comes up is a third factor.",
        lambda gate, up: gate * torch.sigmoid(up),
    ),
    (
        "sum_for_product",
        "You added gate and up. The gate multiplies what comes up.",
        lambda gate, up: F.silu(gate) + up,
        lambda gate, up: F.silu(gate + up),
        lambda gate, up: gate + F.silu(up),
    ),
    (
        "up_not_used",
        "The up projection is not used: SiLU(gate) is multiplied by what comes up.",
        lambda gate, up: F.silu(gate),
        lambda gate, up: F.silu(gate) + 0 * up,
    ),
    (
        "gate_not_used",
        "The gate projection is not used: what comes up is multiplied by SiLU(gate).",
        lambda gate, up: up,
        lambda gate, up: F.silu(up),
        lambda gate, up: F.silu(up) + 0 * gate,
    ),
    (
        "gated_by_itself",
        "You used one projection for both gate and up. They have weights of their own.",
        lambda gate, up: F.silu(gate) * gate,
        lambda gate, up: F.silu(up) * up,
    ),
    (
        "one_minus_the_gate",
        "You turned the gate round: 1 - sigmoid.",
        lambda gate, up: gate * (1 - torch.sigmoid(gate)) * up,
        lambda gate, up: (1 - torch.sigmoid(gate)) * up,
        lambda gate, up: F.silu(-gate) * up,
    ),
    (
        "gate_detached",
        "You cut the gate out of the gradient, so the gate projection would never learn.",
        lambda gate, up: F.silu(gate).detach() * up,
        lambda gate, up: gate * torch.sigmoid(gate).detach() * up,
    ),
    (
        "up_detached",
        "You cut what comes up out of the gradient, so the up projection would never learn.",
        lambda gate, up: F.silu(gate) * up.detach(),
    ),
):
    swiglu.add(name, sentence, *map(gated, mixes))


swiglu.add(
    "matrix_product_for_the_gate",
    "You multiplied gate and up as matrices (`@`). They are multiplied number by number: `*`.",
    gated(lambda gate, up: F.silu(gate) @ up),
    gated(lambda gate, up: F.silu(gate) @ up.transpose(-1, -2)),
)


@swiglu(
    "SiLU comes after the output projection. It stands on the gate, before the two are multiplied.",
    name="activation_after_the_output",
)
class ActivatedLast(SwiGLU):
    def forward(self, x):
        return F.silu(self.output_projection(self.gate_projection(x) * self.up_projection(x)))


@swiglu(
    "You took SiLU of x, and then the gate projection. Project first: SiLU goes on what the gate "
    "projection makes.",
    name="activation_before_the_gate",
)
class ActivatedFirst(SwiGLU):
    def forward(self, x):
        return self.output_projection(self.gate_projection(F.silu(x)) * self.up_projection(x))


@swiglu(
    "You gave the gate's features to the up projection. Both projections are given x.",
    name="up_projection_of_the_gate",
)
class Chained(SwiGLU):
    def forward(self, x):
        return self.output_projection(self.up_projection(F.silu(self.gate_projection(x))))


@swiglu(
    "You multiplied x itself by the gate. What comes up is the up projection of x.",
    name="gate_times_x",
)
class GateTimesX(SwiGLU):
    def forward(self, x):
        return self.output_projection(F.silu(self.gate_projection(x)) * x)


@swiglu(
    "You returned the hidden features. The output projection brings them back to d_model.",
    name="returns_the_hidden_features",
)
class HiddenFeatures(SwiGLU):
    def forward(self, x):
        return F.silu(self.gate_projection(x)) * self.up_projection(x)


def swiglu_dropping(hidden, out):
    """A SwiGLU that drops these shares in training."""

    def forward(self, x):
        inner = F.silu(self.gate_projection(x)) * self.up_projection(x)
        inner = F.dropout(inner, hidden, self.training)
        return F.dropout(self.output_projection(inner), out, self.training)

    return type("SwiGLU", (SwiGLU,), {"forward": forward})


swiglu.add(
    "dropout_in_training",
    "You dropped in training. This network has no dropout, and no argument for it.",
    *(swiglu_dropping(*shares) for shares in ((0, 0.1), (0.1, 0), (0.1, 0.1))),
)


def swiglu_with_biases(**biases):
    class Answer(SwiGLU):
        def __init__(self, d_model, hidden_dim):
            super().__init__(d_model, hidden_dim)
            for name in list(self._modules):
                outputs, inputs = getattr(self, name).weight.shape
                setattr(self, name, nn.Linear(inputs, outputs, bias=biases.get(name, False)))

    return Answer


ALL = {"gate_projection": True, "up_projection": True, "output_projection": True}
swiglu.add(
    "has_biases",
    "Your projections have a bias. None is asked for: `nn.Linear(..., bias=False)`.",
    swiglu_with_biases(**ALL),
    *(swiglu_with_biases(**{name: True}) for name in ALL),
    *(swiglu_with_biases(**{**ALL, name: False}) for name in ALL),
)


@swiglu(
    "There are two projections only. SwiGLU has three: gate, up and output.",
    name="no_up_projection",
)
class TwoProjections(nn.Module):
    def __init__(self, d_model, hidden_dim):
        super().__init__()
        self.gate_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.output_projection = nn.Linear(hidden_dim, d_model, bias=False)


@swiglu(
    "There is no `output_projection`, so the result would keep the hidden width.",
    name="no_output_projection",
)
class NoOutput(nn.Module):
    def __init__(self, d_model, hidden_dim):
        super().__init__()
        self.gate_projection = nn.Linear(d_model, hidden_dim, bias=False)
        self.up_projection = nn.Linear(d_model, hidden_dim, bias=False)


def swiglu_named(gate, up, out):
    class Answer(nn.Module):
        def __init__(self, d_model, hidden_dim):
            super().__init__()
            for name in (gate, up):
                setattr(self, name, nn.Linear(d_model, hidden_dim, bias=False))
            setattr(self, out, nn.Linear(hidden_dim, d_model, bias=False))

    return Answer


swiglu.add(
    "other_names",
    "Your layers have other names. Here they are `gate_projection`, `up_projection` and "
    "`output_projection`: saved weights are loaded by name.",
    *(
        swiglu_named(
            *(right if kept else f"{right}_" for right, kept in zip(ALL, which, strict=True))
        )
        for which in itertools.product((False, True), repeat=3)
        if not all(which)
    ),
)


@swiglu(
    "Gate and up are one layer under two names. They have weights of their own.",
    name="one_layer_for_both",
)
class OneLayer(SwiGLU):
    def __init__(self, d_model, hidden_dim):
        super().__init__(d_model, hidden_dim)
        self.up_projection = self.gate_projection


def fused(name):
    """A SwiGLU with one layer of this name for gate and up."""

    class Answer(nn.Module):
        def __init__(self, d_model, hidden_dim):
            super().__init__()
            setattr(self, name, nn.Linear(d_model, 2 * hidden_dim, bias=False))
            self.output_projection = nn.Linear(hidden_dim, d_model, bias=False)

    return Answer


swiglu.add(
    "fused_projection",
    "You have one projection of twice the width and split it. Here gate and up are two layers: "
    "saved weights are loaded by name.",
    fused("gate_and_up"),
    fused("gate_projection"),
    fused("up_projection"),
)


# Counting


def in_both_counts(name, sentence, *slips):
    """Add `slip(count, bias)`, where `count(bias)` is the right number, to both catalogues."""

    def of_network(slip):
        return lambda c, f, bias=True: slip(lambda given: 2 * c * f + given * (c + f), bias)

    def of_attention(slip):
        return lambda c, bias=True: slip(lambda given: 4 * c * c + given * 4 * c, bias)

    feed_forward_parameters.add(name, sentence, *map(of_network, slips))
    attention_parameters.add(name, sentence, *map(of_attention, slips))


in_both_counts(
    "biases_always_counted",
    "`bias=False` has no effect: count no bias then.",
    lambda count, bias: count(True),
)
in_both_counts(
    "bias_turned_round",
    "You count the biases when `bias` is False, and leave them out when it is True.",
    lambda count, bias: count(not bias),
)
in_both_counts(
    "nothing_without_bias",
    "`a + b if bias else 0` means `(a + b) if bias else 0`: without biases you return 0. Put "
    "`(b if bias else 0)` in parentheses.",
    lambda count, bias: count(bias) if bias else 0,
)
in_both_counts(
    "a_float",
    "Your count is a float. A count is an int: `//` in place of `/`, `int(...)`, or no division at "
    "all.",
    lambda count, bias: float(count(bias)),
)
in_both_counts(
    "a_tensor",
    "Your count is a tensor. An int is asked for: `.numel()` is one, and `.item()` makes one.",
    lambda count, bias: torch.tensor(count(bias)),
)
in_both_counts(
    "a_text",
    "Your count is a string. An int is asked for: leave the formatting to whoever prints it.",
    lambda count, bias: f"{count(bias):,}",
    lambda count, bias: str(count(bias)),
)
in_both_counts(
    "printed",
    "You printed the count and returned nothing. `return` it.",
    lambda count, bias: print(count(bias)),
)


def f_and_c(function):
    """A count of a FeedForward's numbers: `function(C, F, bias)`."""
    return lambda d_model, hidden_dim, bias=True: function(d_model, hidden_dim, bias)


for name, sentence, *functions in (
    (
        "biases_never_counted",
        "You count the matrices alone. Each projection has a bias too: hidden_dim and d_model "
        "numbers.",
        lambda c, f, bias: 2 * c * f,
    ),
    (
        "hidden_bias_alone",
        "You counted the first projection's bias alone. The second has one too, of d_model.",
        lambda c, f, bias: 2 * c * f + (f if bias else 0),
    ),
    (
        "output_bias_alone",
        "You counted the second projection's bias alone. The first has one too, of hidden_dim.",
        lambda c, f, bias: 2 * c * f + (c if bias else 0),
    ),
    (
        "biases_of_one_size",
        "A bias has one number for each output: hidden_dim for the first, d_model for the second.",
        lambda c, f, bias: 2 * c * f + (2 * f if bias else 0),
        lambda c, f, bias: 2 * c * f + (2 * c if bias else 0),
    ),
    (
        "one_number_per_bias",
        "You counted one number for each bias. It has one for each output of its layer.",
        lambda c, f, bias: 2 * c * f + (2 if bias else 0),
        lambda c, f, bias: 2 * c * f + bias,
    ),
    (
        "tensors_counted",
        "You counted the tensors. What each of them holds is counted: `.numel()`.",
        lambda c, f, bias: 4,
        lambda c, f, bias: 4 if bias else 2,
    ),
    (
        "one_matrix",
        "You counted one matrix. There are two: to the hidden width, and back.",
        lambda c, f, bias: c * f + (c + f if bias else 0),
        lambda c, f, bias: c * f + (f if bias else 0),
    ),
    (
        "three_matrices",
        "You counted three matrices, as in SwiGLU. The plain network has two.",
        lambda c, f, bias: 3 * c * f + (c + f if bias else 0),
        lambda c, f, bias: 3 * c * f + (c + 2 * f if bias else 0),
        lambda c, f, bias: 3 * c * f,
    ),
    (
        "hidden_width_assumed",
        "You took the hidden width to be 4 times d_model. Use `hidden_dim`.",
        lambda c, f, bias: 8 * c * c + (5 * c if bias else 0),
        lambda c, f, bias: 8 * c * c + (c + f if bias else 0),
    ),
    (
        "sum_for_product",
        "A matrix has rows times columns numbers; you added them.",
        lambda c, f, bias: 2 * (c + f) + (c + f if bias else 0),
    ),
    (
        "square_matrices",
        "Your matrices are square. One goes from d_model to hidden_dim, the other back.",
        lambda c, f, bias: c * c + f * f + (c + f if bias else 0),
        lambda c, f, bias: 2 * c * c + (2 * c if bias else 0),
        lambda c, f, bias: 2 * f * f + (2 * f if bias else 0),
    ),
    (
        "biases_counted_twice",
        "You counted the biases twice.",
        lambda c, f, bias: 2 * (c * f + (c + f if bias else 0)),
    ),
    (
        "bias_multiplied",
        "The biases are added to the count, not multiplied into it.",
        lambda c, f, bias: 2 * c * f * ((c + f) if bias else 1),
        lambda c, f, bias: 2 * (c + bias) * (f + bias),
    ),
    (
        "norm_counted_too",
        "You counted a norm as well. The feed-forward network alone is asked for.",
        lambda c, f, bias: 2 * c * f + 2 * c + (c + f if bias else 0),
        lambda c, f, bias: 2 * c * f + c + (c + f if bias else 0),
        lambda c, f, bias: 2 * c * f + (2 * c + c + f if bias else 0),
    ),
    (
        "attention_counted_too",
        "You counted the attention as well. The feed-forward network alone is asked for.",
        lambda c, f, bias: 2 * c * f + 4 * c * c + (c + f + 4 * c if bias else 0),
    ),
    (
        "a_tuple",
        "You returned weights and biases apart. One int is asked for: their sum.",
        lambda c, f, bias: (2 * c * f, c + f if bias else 0),
        lambda c, f, bias: (2 * c * f, c + f) if bias else 2 * c * f,
        lambda c, f, bias: (c * f + (f if bias else 0), c * f + (c if bias else 0)),
    ),
):
    feed_forward_parameters.add(name, sentence, *map(f_and_c, functions))

feed_forward_parameters.add(
    "no_bias_by_default",
    "Where `bias` is not given, the biases are counted: its default is True.",
    lambda d_model, hidden_dim, bias=False: (
        2 * d_model * hidden_dim + (d_model + hidden_dim if bias else 0)
    ),
)


def c_alone(function):
    """A count of attention's numbers: `function(C, bias)`."""
    return lambda d_model, bias=True: function(d_model, bias)


for name, sentence, *counts in (
    (
        "biases_never_counted",
        "You count the matrices alone. Each of the four projections has a bias of d_model too.",
        lambda c, bias: 4 * c * c,
    ),
    (
        "output_projection_forgotten",
        "You counted three projections. Besides queries, keys and values there is the output "
        "projection.",
        lambda c, bias: 3 * c * c + (3 * c if bias else 0),
        lambda c, bias: 3 * c * c + (c if bias else 0),
        lambda c, bias: 3 * c * c + (4 * c if bias else 0),
    ),
    (
        "one_projection",
        "You counted one projection. There are four: queries, keys, values and output.",
        lambda c, bias: c * c + (c if bias else 0),
        lambda c, bias: c * c + (4 * c if bias else 0),
    ),
    (
        "two_projections",
        "You counted two projections. There are four: queries, keys, values and output.",
        lambda c, bias: 2 * c * c + (2 * c if bias else 0),
    ),
    (
        "one_bias",
        "You counted one bias. Each of the four projections has one.",
        lambda c, bias: 4 * c * c + (c if bias else 0),
    ),
    (
        "three_biases",
        "You counted three biases. Each of the four projections has one, the output's too.",
        lambda c, bias: 4 * c * c + (3 * c if bias else 0),
    ),
    (
        "one_number_per_bias",
        "You counted one number for each bias. It has d_model numbers.",
        lambda c, bias: 4 * c * c + (4 if bias else 0),
        lambda c, bias: 4 * c * c + bias,
    ),
    (
        "xor_for_a_power",
        "`^` is no power in Python: write `d_model**2`.",
        lambda c, bias: 4 * (c ^ 2) + (4 * c if bias else 0),
        lambda c, bias: (4 * c ^ 2) + (4 * c if bias else 0),
        lambda c, bias: 4 * ((c ^ 2) + (c if bias else 0)),
    ),
    (
        "not_squared",
        "A projection has d_model times d_model weights.",
        lambda c, bias: 4 * c + (4 * c if bias else 0),
        lambda c, bias: 8 * c + (4 * c if bias else 0),
    ),
    (
        "four_inside_the_square",
        "You squared the 4 as well. There are four matrices of d_model times d_model.",
        lambda c, bias: (4 * c) ** 2 + (4 * c if bias else 0),
    ),
    (
        "width_to_the_fourth",
        "You multiplied the four projections' sizes. Add them: four times d_model squared.",
        lambda c, bias: c**4 + (4 * c if bias else 0),
    ),
    (
        "feed_forward_counted",
        "That is the feed-forward network's count, or the whole block's. Attention alone is asked "
        "for.",
        lambda c, bias: 8 * c * c + (5 * c if bias else 0),
        lambda c, bias: 12 * c * c + (9 * c if bias else 0),
    ),
    (
        "norm_counted_too",
        "You counted a norm as well. Attention alone is asked for.",
        lambda c, bias: 4 * c * c + 2 * c + (4 * c if bias else 0),
        lambda c, bias: 4 * c * c + (4 * c + 2 * c if bias else 0),
    ),
    (
        "a_tuple",
        "You returned weights and biases apart. One int is asked for: their sum.",
        lambda c, bias: (4 * c * c, 4 * c if bias else 0),
        lambda c, bias: (4 * c * c, 4 * c) if bias else 4 * c * c,
    ),
):
    attention_parameters.add(name, sentence, *map(c_alone, counts))

attention_parameters.add(
    "no_bias_by_default",
    "Where `bias` is not given, the biases are counted: its default is True.",
    lambda d_model, bias=False: 4 * d_model * d_model + (4 * d_model if bias else 0),
)


ffn_quiz = quiz_mistakes(
    "ffn_quiz",
    "cbdabc",
    {
        1: {
            "a": "Negative hidden features do no harm, and GELU lets some through. What can two "
            "matrices in a row be multiplied into?",
            "b": "Gradients pass through a matrix as they do through GELU. The first projection "
            "would learn, but to no avail.",
            "d": "The projections read one token each, with or without an activation. Nothing here "
            "mixes tokens.",
        },
        2: {
            "a": "That would be so if the network mixed the tokens of a sentence. It can't: "
            "`nn.Linear` reads the last axis alone.",
            "c": "Later tokens follow earlier ones in attention. Here no token is seen by another.",
            "d": "The sentences of a batch share the weights, not the numbers: nothing passes from "
            "one to the other.",
        },
        3: {
            "a": "An activation has no weights, so there is nothing that loading could compare.",
            "b": "They are two functions: at 2.7 they are half a thousandth apart.",
            "c": "Half a thousandth is little beside features of order one. Most answers would be "
            "the same.",
        },
        4: {
            "b": "That is the two matrices alone. Each projection has a bias as well.",
            "c": "That is three matrices, as in SwiGLU. The plain network has two.",
            "d": "Both biases were taken as long as the hidden width. The second has one number "
            "for each of its own outputs.",
        },
        5: {
            "a": "A gate of 0 is not an open one. Put 0 into SiLU, and multiply.",
            "c": "That is a gate with a sigmoid alone. SiLU multiplies 0 by its sigmoid.",
            "d": "The shortcut that keeps the token stands outside this network. Put 0 into SiLU, "
            "and multiply.",
        },
        6: {
            "a": "`eval()` reaches the modules that a module owns. Who owns this one, and when was "
            "it made?",
            "b": "Layers can be made anywhere, which is why this slip goes unnoticed.",
            "d": "`nn.Dropout` never scales down: it scales up in training, so that eval needs "
            "nothing.",
        },
    },
)
