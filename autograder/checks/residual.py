"""What the answers of lesson 03 must do.

Expected values come from torch's own LayerNorm and Linear put together by the formula, from
torch.autograd, or from a property: a branch of zeros, a dropout of everything.
"""

import math
import re
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import (
    Drawn,
    Exercise,
    Failure,
    Subject,
    close,
    recipe,
    same,
    shape_of,
    type_of,
    untouched,
)
from autograder.judge.properties import (
    agrees_in_gradients,
    keeps_dtypes,
    leaves_untouched,
    refuses,
)
from autograder.judge.quiz import quiz

residual = Exercise("residual")
pre_norm = Exercise("PreNormResidual")
post_norm = Exercise("PostNormResidual")
gradient_report = Exercise("gradient_report")
residual_quiz = quiz("residual_quiz", "cadbda")

SHAPES = ((2, 3, 5), (4, 7), (6,), (3, 1, 4), (2, 1, 3, 2, 4))


# What tells one mistake from another


def tensor_or_type(value):
    """A tensor as it is, and of what was not asked for only what it is: a tuple, a str."""
    return value if isinstance(value, torch.Tensor) else type_of(value)


def entries(report):
    """A report as it is, and of its values that are neither float nor None only what they are."""
    if not isinstance(report, dict):
        return type_of(report)
    return {
        name if isinstance(name, str | int) else type_of(name): (
            one if one is None or isinstance(one, float) else type_of(one)
        )
        for name, one in report.items()
    }


# residual


@residual.check(points=1)
def adds(answer, reference, draw):
    """The result is the sum of `x` and `update`, for any number of axes."""
    x, update, right = torch.tensor([[2.5, 1.0], [-0.4, 3.0], [2.1, 4.0]], device=draw.device)
    with answer.known_by(tensor_or_type):
        result = answer(x, update)
    same(result, right, "For x = [2.5, 1] and update = [-0.4, 3] the result")
    for shape in SHAPES:
        x, update = draw.normal(*shape), draw.gain(*shape)
        same(answer(x, update), torch.add(x, update), f"For two tensors of shape {shape} it")


@residual.check(points=1, needs=["adds"])
def adds_any_two_of_one_shape(answer, reference, draw):
    """So it is for single numbers, which have no axes, and for transposed tensors."""
    for x, update, what in (
        (draw.normal(), draw.gain(), "Two single numbers: the result"),
        (draw.normal(2, 5, 3).mT, draw.gain(2, 5, 3).mT, "Two transposed tensors: the result"),
        (draw.normal(4, 7), draw.gain(7, 4).mT, "The update was transposed: the result"),
    ):
        same(answer(x, update), torch.add(x, update), what)


# Pairs that broadcasting would join, either way round, then pairs that torch can't add.
JOINED = (
    ((2, 3, 5), (2, 1, 5)),
    ((2, 3, 5), (2, 3, 1)),
    ((2, 3, 5), (1, 3, 5)),
    ((2, 3, 5), (3, 5)),
    ((4, 7), (7,)),
    ((4, 7), (1,)),
    ((3, 3), (3,)),
    ((2, 5), (1, 2, 5)),
    ((4,), ()),
)
APART = (((2, 3, 5), (2, 4, 5)), ((2, 3, 5), (3, 2, 5)), ((6, 5), (2, 3, 5)), ((4,), (7,)))


def all_refused(answer, pairs, draw):
    """The message for each pair of shapes; Failure for the first that raises no ValueError."""
    # All are tried before any is judged: which ones pass tells one mistake from another.
    with answer.known_by(tensor_or_type):
        tried = {pair: answer.attempt(tuple(draw.normal(*one) for one in pair)) for pair in pairs}
    return {
        pair: refuses(outcome, f"x has shape {pair[0]}, update {pair[1]}")
        for pair, outcome in tried.items()
    }


@residual.check(points=2, needs=["adds"])
def refuses_what_broadcasting_would_join(answer, reference, draw):
    """Shapes that broadcasting would join, such as (2, 3, 5) and (2, 1, 5), raise a ValueError."""
    all_refused(answer, [*JOINED, *(pair[::-1] for pair in JOINED)], draw)


@residual.check(points=1, needs=["adds"])
def refuses_what_does_not_fit(answer, reference, draw):
    """Shapes that can't be added raise a ValueError too, not torch's own RuntimeError."""
    all_refused(answer, APART, draw)


@residual.check(points=1, needs=["refuses_what_broadcasting_would_join"])
def names_both_shapes(answer, reference, draw):
    """The error's message holds both shapes."""
    messages = all_refused(answer, [*JOINED[:5], *APART], draw)
    answer.note([re.findall(r"\d+", message) for message in messages.values()])
    for (one, other), message in messages.items():
        said = message.replace(" ", "")
        for shape in (one, other):
            if not any(str(form).replace(" ", "") in said for form in (shape, list(shape))):
                raise Failure(
                    f"x has shape {one}, update {other}, and the message is «{message}». It should "
                    f"hold both, and {shape} is not there."
                )


@residual.check(points=1, needs=["adds"])
def leaves_its_inputs_untouched(answer, reference, draw):
    """`x` and `update` are the same after the call."""
    leaves_untouched(answer, x=draw.normal(3, 5), update=draw.normal(3, 5))


@residual.check(points=1, needs=["adds"])
def lets_gradients_flow(answer, reference, draw):
    """Gradients reach `x` and `update`."""
    inputs = {"x": draw.normal(3, 2, 5), "update": draw.normal(3, 2, 5)}
    back = draw.normal(3, 2, 5)
    outcome = answer.backward(back, *inputs.values())
    agrees_in_gradients(outcome.gradients, lambda x, update: torch.add(x, update), inputs, back)


@residual.check(points=1, needs=["adds"])
def keeps_the_dtype(answer, reference, draw):
    """The result has the dtype of `x`: float64, float32, float16 or bfloat16."""
    keeps_dtypes(answer, draw.normal(3, 5), draw.normal(3, 5))


@residual.check(points=1, needs=["adds"])
def stays_on_the_device(answer, reference, draw):
    """Everything happens on the device of `x`, so that it runs on a GPU."""
    answer.on_meta(draw.normal(3, 2, 5), draw.normal(3, 2, 5))


# The two modules


def around(answer, branch, width, draw, *dropout, train=None):
    """The answer's module around `branch`, a recipe, with torch's own norm and branch, all drawn.

    The same weights are in the module and in torch's two.
    """
    own = {"norm": nn.LayerNorm(width), "branch": branch.make()}
    values = {}
    for part, one in own.items():
        one.requires_grad_(False).to(draw.device)
        for name, parameter in one.named_parameters():
            values[f"{part}.{name}"] = parameter.copy_(draw.gain(*parameter.shape))
    module = answer.call((width, branch, *dropout), load=values, train=train).value
    own["norm"].eps = module.attribute("norm.eps")  # which one it has is nobody's promise
    return module, own["norm"], own["branch"]


def linear(width):
    return recipe("Linear", width, width)


def parts(module, **kinds):
    """A description, after a Failure where a submodule is missing or no nn. of its kind.

    Mistakes are told apart by which part is what, and not by the names of others.
    """
    with module.aside():
        found = module.describe()
    others = [one for one in found.parameters if one.split(".")[0] not in kinds]
    module.note([[name in found.modules for name in kinds], bool(others)])
    for name in kinds:
        if name not in found.modules:
            has = ", ".join(one for one in found.modules if one and "." not in one) or "none"
            raise Failure(f"There is no submodule `{name}`; the submodules are: {has}.")
    for name, kind in kinds.items():
        with module.aside():
            bases = module.attribute(name).kind().bases
        inside = [one for one in found.state if one.startswith(f"{name}.")]
        module.note([kind in bases, "_DropoutNd" in bases, inside])
        if kind not in bases:
            wanted = "the module that was given" if name == "branch" else f"torch's own nn.{kind}"
            raise Failure(
                f"`{name}` is of the kind {found.modules[name][0]}; {wanted} was asked for."
            )
    return found


def module_checks(exercise, formula, written, on_zeros):
    """Add what both modules promise; `formula(x, branch, norm)` is what `written` says."""
    first, gate = ["has_its_parts"], ["follows_the_formula"]

    def has_its_parts(answer, reference, draw):
        def branch(width):
            return recipe("RMSNorm", width)  # its first weights are no random numbers

        modules = (
            answer(5, branch(5)),
            answer(7, branch(7), 0.25),
            answer(width=7, branch=branch(7), dropout=0.75),
        )
        for module, width in zip(modules, (5, 7, 7), strict=True):
            kinds = {"norm": "LayerNorm", "branch": "RMSNorm"}
            if module is not modules[0]:  # without a dropout anything may stand there
                kinds["dropout"] = "Dropout"
            found = parts(module, **kinds).parameters
            expected = ("norm.weight", "norm.bias", "branch.weight")
            own = {found[name].storage for name in expected if name in found}
            extra = [name for name, one in found.items() if one.storage not in own]
            shapes = [found[name].shape if name in found else None for name in expected]
            frozen = [name in found and not found[name].requires_grad for name in expected]
            module.note([shapes, frozen, len(extra)])
            for name in expected:
                if name not in found:
                    raise Failure(f"There is no parameter `{name}`; there are: {', '.join(found)}.")
                if found[name].shape != (width,):
                    raise Failure(f"`{name}` has shape {found[name].shape}, not ({width},).")
                if not found[name].requires_grad:
                    raise Failure(f"`{name}` has requires_grad=False, so it would not be trained.")
            if extra:
                raise Failure(f"It also trains {', '.join(extra)}, which the formula has not.")
        given, weight = answer.make(branch(5)), draw.gain(5)
        before = given.attribute("weight")
        module = answer(5, given)
        same(given.attribute("weight"), before, "`__init__` changed the branch: its weight")
        given.load(weight=weight)
        said = "`branch` is not the module that was given: after a step of that one, its weight"
        same(module.attribute("branch.weight"), weight, said)
        for module, p in zip(modules[1:], (0.25, 0.75), strict=True):
            if module.attribute("dropout.p") != p:
                raise Failure(f"dropout={p} was given, and `dropout.p` is otherwise.")

    def keeps_the_old_path(answer, reference, draw):
        for shape in SHAPES:
            width = shape[-1]
            module, norm, _ = around(answer, linear(width), width, draw)
            zeros = {"branch.weight": torch.zeros(width, width), "branch.bias": torch.zeros(width)}
            x = draw.normal(*shape) + 0.5
            expected = formula(x, torch.zeros_like, norm)
            with module.known_by(tensor_or_type):
                result = module.load(**zeros)(x)
            same(result, expected, "The branch gives zeros, and the result")

    def follows_the_formula(answer, reference, draw):
        for shape, given in [*((shape, (0.0,)) for shape in SHAPES), (SHAPES[0], ())]:
            module, norm, branch = around(answer, linear(shape[-1]), shape[-1], draw, *given)
            x = 2 * draw.normal(*shape) + 1
            with module.known_by(tensor_or_type):
                if shape == SHAPES[0]:
                    # In eval mode too: an update may be missing in training alone.
                    module.eval().attempt((x,))
                    module.train()
                result = module(x)
            said = "" if given else ", no `dropout` was given"
            same(result, formula(x, branch, norm), f"x has shape {shape}{said}, and the result")

    def takes_any_branch(answer, reference, draw):
        for kind in (
            recipe("Tanh"),
            recipe("Sequential", recipe("Linear", 6, 4), recipe("GELU"), recipe("Linear", 4, 6)),
            recipe("TransformerEncoderLayer", 6, 2, 4, dropout=0.0, batch_first=True),
            recipe("Dropout", 1.0),  # zeros in training, nothing in eval
        ):
            module, norm, branch = around(answer, kind, 6, draw)
            x = draw.normal(2, 3, 6)
            same(module(x), formula(x, branch, norm), f"The branch is a {kind.module}. The result")

    def passes_arguments_on(answer, reference, draw):
        x, extra = draw.normal(2, 3, 5), draw.normal(2, 3, 4)
        module, norm, branch = around(answer, recipe("Bilinear", 5, 4, 5), 5, draw)
        expected = formula(x, lambda one: branch(one, extra), norm)
        calls: list[Any] = [((x, extra), {}, "by position"), ((x,), {"input2": extra}, "by name")]
        # What works tells one mistake from another.
        for args, kwargs in (*(call[:2] for call in calls), ((x, extra, extra), {})):
            module.attempt(args, kwargs)
        for args, kwargs, how in calls:
            result = module.call(args, kwargs).value
            same(result, expected, f"The branch takes a second tensor {how}. The result")
        x, memory = draw.normal(2, 3, 6), draw.normal(2, 5, 6)
        blocked = torch.ones(3, 3, dtype=torch.bool, device=draw.device).triu(1)
        kind = recipe("TransformerDecoderLayer", 6, 2, 4, dropout=0.0, batch_first=True)
        module, norm, branch = around(answer, kind, 6, draw)
        expected = formula(x, lambda one: branch(one, memory, blocked), norm)
        # The branch divides by small deviations: a sum in another order shows in the fourth digit.
        results = [module(x, memory, blocked), module(x, memory, tgt_mask=blocked)]
        for result, how in zip(
            results, ("The branch takes two more", "It takes one more of each"), strict=True
        ):
            same(result, expected, f"{how}. The result", rtol=1e-3, atol=1e-3)

    def drops_the_branch_alone(answer, reference, draw):
        x, (module, norm, _) = draw.normal(4, 3, 5), around(answer, linear(5), 5, draw, 1.0)
        result = module(x)
        expected = formula(x, torch.zeros_like, norm)
        same(result, expected, "With `dropout=1.0` in training the branch is gone. The result")

    def drops_feature_by_feature(answer, reference, draw):
        # A row can only be one of 32: each feature of its update dropped or not.
        p, x = draw.number(0.25, 0.35), draw.normal(240, 5)
        module, norm, branch = around(answer, linear(5), 5, draw, p)
        kept = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 5).to(x.device)  # (32, 5)

        def nearest(result, factor):
            possible = formula(x[:, None], lambda one: branch(one) * kept * factor, norm)
            return (result[:, None] - possible).abs().amax(-1).min(-1)

        def drawn(result):
            """By how many of which entries are dropped, whatever the order in which they were."""
            if not (isinstance(result, torch.Tensor) and result.shape == x.shape):
                return result
            for factor in (1 / (1 - p), 1.0):
                off, which = nearest(result, factor)
                if (off < 1e-3).all():
                    if len(which.unique()) == 1:
                        return "all rows alike"
                    if ((which == 0) | (which == 31)).all():
                        return [factor, "whole rows"]
                    return [factor, Drawn((1 - kept[which]).long())]
            return result

        with module.known_by(drawn):
            result, again = module(x), module(x)
        shape_of(result, x.shape)
        off, which = nearest(result, 1 / (1 - p))
        if drawn(result) == "all rows alike":  # of one or two draws it can't be told what alike is
            with answer.aside():
                more = [module(x) for _ in range(24)]
            masks = {int(nearest(one, 1 / (1 - p))[1][0]) for one in more if one.shape == x.shape}
            module.note([0 in masks, 31 in masks, bool(masks - {0, 31})])
        if not (off < 1e-3).all():
            raise Failure(
                f"With `dropout={p:.2f}` in training each feature of the branch's output becomes 0 "
                f"or is divided by {1 - p:.2f}, and nothing else changes. Row "
                f"{int((~(off < 1e-3)).nonzero()[0])} of the result is nothing that can come of it."
            )
        dropped = 1 - kept[which].mean().item()
        if abs(dropped - p) > 0.1:
            raise Failure(
                f"With `dropout={p:.2f}` in training {dropped:.0%} of the branch's features were "
                f"dropped; about {p:.0%} were asked for."
            )
        if len(which.unique()) < 10 or ((which == 0) | (which == 31)).float().mean() > 0.5:
            raise Failure("Each feature of each token is dropped on its own, not several together.")
        if torch.equal(result, again):
            raise Failure("Two calls in training dropped the same: dropout is drawn at each call.")

    def is_still_in_eval(answer, reference, draw):
        x = draw.normal(4, 3, 5)
        module, norm, branch = around(answer, linear(5), 5, draw, 0.75, train=False)
        result = module(x)
        same(result, formula(x, branch, norm), "With `dropout=0.75` in eval mode the result")
        module, norm, _ = around(answer, recipe("Dropout", 1.0), 5, draw, train=False)
        expected = formula(x, lambda one: one, norm)
        same(module(x), expected, "The branch is a Dropout. In eval mode the result")

    def leaves_x_untouched(answer, reference, draw):
        module, _, _ = around(answer, linear(5), 5, draw)
        x = draw.normal(3, 5)
        leaves_untouched(module, x=x)
        # An Identity hands x itself on: what is done to its output in place is done to x.
        for p in (0.0, 0.5):
            module = answer(5, recipe("Identity"), p)
            untouched(module.call((x,), after=True).arguments[0], x, "x")

    def lets_gradients_flow(answer, reference, draw):
        x, back = draw.normal(3, 2, 5), draw.normal(3, 2, 5)
        module, norm, _ = around(answer, linear(5), 5, draw)
        values = {"norm.weight": draw.gain(5), "norm.bias": draw.gain(5)}
        values |= {"branch.weight": draw.gain(5, 5), "branch.bias": draw.gain(5)}
        module.load(**values)
        modes = [module.train(training).backward(back, x) for training in (True, False)]
        for got in modes:
            agrees_in_gradients(
                [got.gradients[0], *(got.parameters[name] for name in values)],
                lambda x, **named: formula(
                    x,
                    lambda one: F.linear(one, named["branch.weight"], named["branch.bias"]),
                    lambda one: F.layer_norm(
                        one, (5,), named["norm.weight"], named["norm.bias"], norm.eps
                    ),
                ),
                {"x": x, **values},
                back,
            )
        # A Tanh needs its own output on the way back: nobody may write into it.
        around(answer, recipe("Tanh"), 5, draw, 0.5)[0].backward(back, x)
        module, norm, branch = around(answer, recipe("Tanh"), 5, draw)
        got = module.backward(back, x).gradients
        agrees_in_gradients(got, lambda x: formula(x, branch, norm), {"x": x}, back)

    def keeps_the_dtype(answer, reference, draw):
        values = {"branch.weight": draw.gain(5, 5) / 5, "branch.bias": draw.gain(5)}
        keeps_dtypes(
            lambda x: answer.call((5, linear(5)), load=values).value.to(dtype=x.dtype)(x),
            draw.normal(3, 5),
        )

    def stays_on_the_device(answer, reference, draw):
        answer(5, linear(5), 0.5).to(device="meta").on_meta(draw.normal(3, 2, 5))

    for run, sentence, points, needs in (
        (
            has_its_parts,
            "`norm` is an nn.LayerNorm, `branch` what was given, `dropout` an nn.Dropout; nothing "
            "else is trained.",
            1,
            (),
        ),
        (keeps_the_old_path, on_zeros, 1, first),
        (follows_the_formula, f"The result is {written}, whatever the weights.", 2, first),
        (takes_any_branch, "The branch may be any module that keeps the shape.", 1, gate),
        (passes_arguments_on, "Further arguments of a call go to the branch.", 1, gate),
        (drops_the_branch_alone, "Dropout stands on the branch, not on the shortcut.", 1, gate),
        (
            drops_feature_by_feature,
            "In training each feature of the branch is dropped on its own, or divided by 1 - p.",
            1,
            gate,
        ),
        (is_still_in_eval, "In eval mode nothing is dropped.", 1, gate),
        (leaves_x_untouched, "`x` is the same after the call.", 1, gate),
        (
            lets_gradients_flow,
            "Gradients reach `x` and all parameters, through the branch and past it, in eval too.",
            1,
            gate,
        ),
        (keeps_the_dtype, "Moved to another dtype, it returns that dtype.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it moves.", 1, gate),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


module_checks(
    pre_norm,
    lambda x, branch, norm: x + branch(norm(x)),
    "x + branch(norm(x))",
    "A branch that gives zeros changes nothing: x comes back as it was.",
)
module_checks(
    post_norm,
    lambda x, branch, norm: norm(x + branch(x)),
    "norm(x + branch(x))",
    "Beside a branch that gives zeros the result is norm(x).",
)


# gradient_report

SMALL = recipe(
    "Sequential",
    recipe("Linear", 5, 4),
    recipe("GELU"),
    recipe("LayerNorm", 4),
    recipe("Linear", 4, 3),
)
DEEP = recipe("TransformerEncoderLayer", 6, 2, 4, dropout=0.0, batch_first=True, norm_first=True)
FIRST, LAST = recipe("Linear", 5, 4), recipe("Linear", 4, 3)
NORMED = recipe("Sequential", FIRST, recipe("BatchNorm1d", 4), LAST)
DROPPED = recipe("Sequential", FIRST, recipe("Dropout", 1.0), LAST)
HALVED = recipe("Sequential", FIRST, recipe("Dropout", 0.5), LAST)


class Model:
    """A model on the answer's side, `there`, and the same one here, to compute what is right."""

    def __init__(self, answer: Subject, made_from, draw):
        self.here = made_from.make().to(draw.device)
        with torch.no_grad():
            self.start = {
                name: one.copy_(draw.gain(*one.shape, dtype=one.dtype)).clone()
                for name, one in self.here.named_parameters()
            }
        self.there = answer.make(made_from, load=self.start)

    def freeze(self, *names):
        self.there.assign({f"{name}.requires_grad": False for name in names})
        for name in names:
            self.here.get_parameter(name).requires_grad_(False)
        return self

    def mode(self, training, *others):
        """All of it in one mode, the submodules `others` in the other."""
        modes = {"": training, **dict.fromkeys(others, not training)}
        self.there.modes(modes)
        for name, train in modes.items():
            self.here.get_submodule(name).train(train)
        return self

    def with_gradients(self, draw):
        """Gradients of an earlier pass; returns them."""
        given = {name: draw.gain(*one.shape) for name, one in self.start.items()}
        self.there.assign({f"{name}.grad": gradient for name, gradient in given.items()})
        return given

    def expected(self, x):
        return self.norms(self.here(x))

    def norms(self, output):
        output.square().mean().backward()
        found = {}
        for name, one in self.here.named_parameters():
            found[name] = None if one.grad is None else one.grad.double().norm().item()
            one.grad = None
        return found

    def modes(self):
        """Whether each submodule is in training mode, on the answer's side."""
        names = [name for name, _ in self.here.named_modules()]
        paths = [f"{name}.training".removeprefix(".") for name in names]
        return dict(zip(names, self.there.attributes(paths), strict=True))

    def same_modes(self, modes, when):
        for name, one in self.here.named_modules():
            if modes[name] != one.training:
                words = {True: "train", False: "eval"}
                raise Failure(
                    f"{when}, {f'submodule `{name}`' if name else 'the model'} is in "
                    f"{words[modes[name]]} mode; it was in {words[one.training]} mode."
                )

    def same_gradients(self, given, when):
        """Fail unless each `.grad` is None or what was `given`."""
        gradients = self.there.attributes([f"{name}.grad" for name in self.start])
        for name, gradient in zip(self.start, gradients, strict=True):
            if gradient is None:
                continue
            if name not in given:
                raise Failure(f"{when}, `{name}` has a `.grad`; it had none before.")
            said = f"{when}, `{name}.grad` is neither None nor what it was. It"
            same(gradient, given[name], said)


def report_of(report, expected):
    """Fail unless `report` is a dict with the names of `expected` and a float or None for each."""
    if not isinstance(report, dict):
        shown = type_of(report)
        raise Failure(f"The result is a {shown}; a dict was asked for.")
    if missing := [name for name in expected if name not in report]:
        raise Failure(f"`{missing[0]}` is missing in the dict. It has: {list(report)}.")
    if extra := [name for name in report if name not in expected]:
        raise Failure(f"The dict has {extra[0]!r}, which is no parameter's name.")
    for name, value in report.items():
        if value is not None and not isinstance(value, float):
            shown = type_of(value)
            raise Failure(f"The value of `{name}` is a {shown}; a float was asked for.")


def agrees(report, expected, when="", rtol=1e-4):
    """Fail unless `report` has these norms."""
    report_of(report, expected)
    for name, right in expected.items():
        got = report[name]
        if got is None or right is None:
            if got is not right:
                said = (
                    "no gradient arrived, so None was asked for"
                    if right is None
                    else (f"a gradient of norm {right:.6g} arrived")
                )
                raise Failure(f"{when}`{name}` is {got}; {said}.")
            continue
        close(
            torch.tensor(got, dtype=torch.float64),
            torch.tensor(right, dtype=torch.float64),
            f"{when}`{name}`",
            rtol=rtol,
            atol=rtol / 100,
        )


@gradient_report.check(points=1)
def names_every_parameter(answer, reference, draw):
    """A dict has each parameter's name, those of submodules too, and a float for it."""
    for kind, x in (
        (SMALL, draw.normal(7, 5)),
        (DEEP, draw.normal(2, 3, 6)),
        (recipe("Linear", 5, 3), draw.normal(7, 5)),
    ):
        model = Model(answer, kind, draw)
        with answer.known_by(entries):
            report = answer(model.there, x)
        report_of(report, model.start)


@gradient_report.check(points=2, needs=["names_every_parameter"])
def measures_gradients(answer, reference, draw):
    """The numbers are the L2 norms of the gradients of `model(x).square().mean()`."""
    for kind, x in (
        (recipe("Linear", 5, 3), draw.normal(7, 5)),
        (SMALL, draw.normal(2, 7, 5)),
        (DEEP, draw.normal(2, 3, 6)),
    ):
        model = Model(answer, kind, draw)
        agrees(answer(model.there, x), model.expected(x))


@gradient_report.check(points=1, needs=["measures_gradients"])
def says_none_for_frozen_parameters(answer, reference, draw):
    """A frozen parameter (`requires_grad=False`) is in the dict with None."""
    x = draw.normal(7, 5)
    for frozen in (("0.weight", "0.bias"), ("3.weight",)):
        model = Model(answer, SMALL, draw).freeze(*frozen)
        expected, said = model.expected(x), f"{' and '.join(frozen)} frozen"
        with answer.known_by(entries):
            agrees(answer(model.there, x), expected, f"{said}: ")
            model.with_gradients(draw)
            agrees(answer(model.there, x), expected, f"{said}, with a `.grad` of an earlier pass: ")


@gradient_report.check(points=1, needs=["measures_gradients"])
def says_none_where_no_gradient_arrived(answer, reference, draw):
    """A trainable layer that the model never calls is in the dict with None."""
    x, model, spare = draw.normal(7, 5), Model(answer, SMALL, draw), recipe("Linear", 2, 2)
    model.there.assign({"0.spare": spare})
    model.here[0].spare = spare.make()
    with answer.known_by(entries):
        report = answer(model.there, x)
    agrees(report, model.expected(x))


@gradient_report.check(points=1, needs=["measures_gradients"])
def tells_zero_from_none(answer, reference, draw):
    """A gradient that arrived and is all zeros has norm 0.0, not None."""
    x, model = draw.normal(7, 5), Model(answer, DROPPED, draw)
    agrees(answer(model.there, x), model.expected(x), "A dropout of 1.0 stands behind layer 0: ")


@gradient_report.check(points=2, needs=["measures_gradients"])
def runs_in_the_mode_it_finds(answer, reference, draw):
    """The pass runs in the mode the model is in, and each submodule in its own."""
    x, found = draw.normal(7, 5), {}
    for kind in (NORMED, DROPPED):
        for training in (True, False):
            for others in ((), ("1",)):
                model = Model(answer, kind, draw).mode(training, *others)
                mode = "train" if training else "eval"
                said = f"The model in {mode} mode{', submodule 1 in the other' if others else ''}: "
                found[kind, said] = answer(model.there, x), model.expected(x)
    for (_, said), (report, expected) in found.items():
        agrees(report, expected, said)


@gradient_report.check(points=1, needs=["measures_gradients"])
def leaves_the_modes(answer, reference, draw):
    """Afterwards every submodule is in the mode it was in."""
    x, models = draw.normal(7, 5), []
    for training in (True, False):
        for others in ((), ("1",), ("0", "2")):
            models.append(Model(answer, NORMED, draw).mode(training, *others))
            answer(models[-1].there, x)
    for model, modes in [(model, model.modes()) for model in models]:
        model.same_modes(modes, "After the call")


@gradient_report.check(points=1, needs=["measures_gradients"])
def counts_this_pass_alone(answer, reference, draw):
    """All numbers are of one and the same pass, and nothing of an earlier one is in them."""
    x, model = draw.normal(7, 5), Model(answer, SMALL, draw)
    expected = model.expected(x)
    answer(model.there, x)
    agrees(answer(model.there, x), expected, "The second report of one model: ")
    model.with_gradients(draw)
    agrees(answer(model.there, x), expected, "With gradients of an earlier pass there: ")
    # Of 4 features dropped or not, one pass has one of 16 choices, for all parameters the same.
    x, model = draw.normal(1, 5), Model(answer, HALVED, draw)
    first, _, last = model.here
    choices = torch.cartesian_prod(*[torch.tensor([0.0, 2.0])] * 4).to(x.device)
    possible = [model.norms(last(first(x) * kept)) for kept in choices]
    with answer.known_by(lambda report: apart(report, possible)):
        reports = [answer(model.there, x) for _ in range(3)]
    for report in reports:
        report_of(report, model.start)
        if not any(_agree(report, one) for one in possible):
            raise Failure(
                "With a dropout in the model no single pass has all of these norms: call the "
                "model once, and take every gradient from that."
            )


def apart(report, possible):
    """Whether each number is right for some pass, though not for one and the same; else it all."""
    if isinstance(report, dict) and all(
        any(_agree({name: one}, {name: right.get(name)}) for right in possible)
        for name, one in report.items()
    ):
        return "of some pass"
    return report


def _agree(report, expected):
    try:
        agrees(report, expected)
    except Failure:
        return False
    return True


@gradient_report.check(points=1, needs=["measures_gradients"])
def leaves_the_gradients(answer, reference, draw):
    """Afterwards each `.grad` is None or what it was before."""
    x, model = draw.normal(7, 5), Model(answer, SMALL, draw)
    answer(model.there, x)
    model.same_gradients({}, "After the call")
    given = model.with_gradients(draw)
    answer(model.there, x)
    model.same_gradients(given, "After the call")


# Each with the name that the error has to hold: a NaN reaches all, an overflow one alone.
def poisoned(draw):
    x = draw.normal(7, 5)
    x[3, 1] = float("nan")
    return x


def overflowing(answer, draw, columns, sign):
    """A model and an x for which these columns of 1.weight's gradient alone overflow float32.

    `sign` is that of the infinities.
    """
    large = torch.tensor([1e37 if one in columns else 1.0 for one in range(4)], device=draw.device)
    model = Model(answer, recipe("Sequential", FIRST, LAST), draw)
    model.there.load(
        **{
            "0.weight": torch.zeros(4, 5),
            "0.bias": draw.gain(4).abs() * large,
            "1.weight": draw.gain(3, 4) / large,
            "1.bias": sign * 1e4 * draw.gain(3).abs(),
        }
    )
    return model, draw.normal(7, 5)


def names_first(outcome, model, right, what):
    """Fail unless a ValueError was raised whose message names `right` before other parameters."""
    message = refuses(outcome, what)
    names = "|".join(re.escape(name) for name in sorted(model.start, key=len, reverse=True))
    found = re.findall(rf"(?<![\w.])(?:{names})(?!\w)", message)
    if not found or found[0] != right:
        raise Failure(
            f"{what}: the first parameter whose gradient is not finite is `{right}`, and the "
            f"message is «{message}»."
        )


@gradient_report.check(points=2, needs=["measures_gradients"])
def refuses_a_gradient_that_is_not_finite(answer, reference, draw):
    """A gradient with NaN or infinity raises a ValueError that names the first such parameter."""
    x, frozen = poisoned(draw), Model(answer, SMALL, draw).freeze("0.weight", "0.bias")
    cases = (
        (Model(answer, SMALL, draw), x, "0.weight", "x holds a NaN"),
        (frozen, x, "2.weight", "x holds a NaN, layer 0 is frozen"),
        (*overflowing(answer, draw, range(4), 1), "1.weight", "One gradient overflows"),
        (*overflowing(answer, draw, [1], 1), "1.weight", "One gradient overflows in a part"),
        (*overflowing(answer, draw, [2], -1), "1.weight", "One has minus infinity in a part"),
    )
    # All are tried before any is judged: which ones raise tells one mistake from another, and so
    # does whether a number is finite, whichever it is.
    with answer.known_by(which_are_finite):
        tried = [answer.attempt((model.there, x)) for model, x, _, _ in cases]
    errors = [one.error for one in tried if one.error and "ValueError" in one.error["bases"]]
    answer.note([re.findall(r"\d+(?:\.\w+)*", error["message"])[:1] for error in errors])
    for outcome, (model, _, right, what) in zip(tried, cases, strict=True):
        names_first(outcome, model, right, what)


def which_are_finite(report):
    if not isinstance(report, dict):
        return type_of(report)
    return {
        name: math.isfinite(one) if isinstance(one, float) else type_of(one)
        for name, one in report.items()
    }


@gradient_report.check(points=2, needs=["refuses_a_gradient_that_is_not_finite"])
def cleans_up_when_it_raises(answer, reference, draw):
    """Modes and gradients are left alone also when it raises, or when the model does."""
    for x, when in (
        (draw.normal(7, 4), "After an x of the wrong width"),
        (poisoned(draw), "After a gradient that is not finite"),
    ):
        for before in (False, True):
            model = Model(answer, NORMED, draw).mode(not before, "1")
            given = model.with_gradients(draw) if before else {}
            with answer.known_by(lambda report: "a result"):
                outcome = answer.attempt((model.there, x))
            if outcome.error is None:
                raise Failure(f"{when}: no error was raised.")
            model.same_modes(model.modes(), when)
            model.same_gradients(given, when)


@gradient_report.check(points=1, needs=["measures_gradients"])
def leaves_model_and_x_untouched(answer, reference, draw):
    """The parameters, what is frozen of them, and `x` are the same after the call."""
    x, model = draw.normal(7, 5), Model(answer, SMALL, draw).freeze("0.bias")
    after = answer.call((model.there, x), after=True).arguments
    with answer.aside():
        found = model.there.describe()
    # Not by what was written into them: a step has any size.
    moved = [not torch.equal(found.state[name], start) for name, start in model.start.items()]
    answer.note([moved, [one.requires_grad for one in found.parameters.values()]])
    untouched(after[1], x, "x")
    for name, start in model.start.items():
        same(found.state[name], start, f"`{name}`, after the call,")
        if found.parameters[name].requires_grad != (name != "0.bias"):
            raise Failure(f"`{name}.requires_grad` was changed.")


@gradient_report.check(points=1, needs=["measures_gradients"])
def follows_the_model_s_dtype(answer, reference, draw):
    """A model in float64 is given `x` as it is, and so is one that reads token ids."""
    kind = recipe("Linear", 5, 3, dtype=torch.float64)
    model, x = Model(answer, kind, draw), 1e-3 * draw.normal(7, 5, dtype=torch.float64)
    agrees(answer(model.there, x), model.expected(x), "In float64: ", rtol=1e-6)
    for name, after in model.there.describe().state.items():
        same(after, model.start[name], f"`{name}` of a float64 model, after the call,")
    model = Model(answer, recipe("Sequential", recipe("Embedding", 6, 5), FIRST), draw)
    ids = draw.integers(0, 6, 2, 3)
    agrees(answer(model.there, ids), model.expected(ids), "Layer 0 is an nn.Embedding: ")


@gradient_report.check(points=1, needs=["measures_gradients"])
def follows_the_model_s_device(answer, reference, draw):
    """Everything happens on the device of the model and `x`, so that it runs on a GPU."""
    model = answer.make(SMALL).to(device="meta")
    try:
        answer.on_meta(model, draw.normal(7, 5))
    finally:
        # Seen also when it failed: whether x or the model was moved tells one from the other.
        found = model.describe(values=False).parameters
    for name, one in found.items():
        if one.device != "meta":
            raise Failure(f"`{name}` was moved to `{one.device}`: the model stays where it is.")
