"""Known wrong answers of lesson 03, each with the sentence its author should hear."""

import copy
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.residual import PostNormResidual, PreNormResidual
from solutions.residual import residual as right_residual

residual = Mistakes("residual")
pre_norm = Mistakes("PreNormResidual")
post_norm = Mistakes("PostNormResidual")
gradient_report = Mistakes("gradient_report")
BOTH: tuple[tuple[Mistakes, Any], ...] = (
    (pre_norm, PreNormResidual),
    (post_norm, PostNormResidual),
)


# residual: what is returned for two equal shapes


def sums(name, sentence, *results):
    """Add answers that look at the shapes rightly and return `result(x, update)`."""

    def checked(result):
        def function(x, update):
            right_residual(x.detach(), update.detach())
            return result(x, update)

        return function

    residual.add(name, sentence, *map(checked, results))


sums(
    "update_returned_alone",
    "You returned the update alone. That throws the old path away: the result is `x + update`.",
    lambda x, update: update,
    lambda x, update: update.clone(),
)
sums("x_returned_alone", "You returned x alone; the update is missing.", lambda x, update: x)
sums("shortcut_doubled", "You added x twice. It is added once.", lambda x, update: 2 * x + update)
sums("update_doubled", "You added the update twice. It is added once.", lambda x, u: x + 2 * u)
sums("update_subtracted", "You subtracted the update. It is added.", lambda x, u: x - u)
sums("x_subtracted", "You subtracted x. The result is `x + update`.", lambda x, u: u - x)
sums(
    "averaged",
    "You took the mean of the two. A residual is their plain sum: x keeps its full weight.",
    lambda x, update: (x + update) / 2,
    lambda x, update: torch.lerp(x, update, 0.5),
)
sums(
    "divided_by_the_root_of_two",
    "You divided the sum by the root of 2 to keep its spread. That shrinks x at every layer; the "
    "result is the plain sum.",
    lambda x, update: (x + update) / math.sqrt(2),
)
sums("multiplied", "You multiplied the two. They are added.", lambda x, update: x * update)
sums(
    "joined_end_to_end",
    "You joined the two tensors (`cat` or `stack`). They are added, feature by feature.",
    lambda x, update: torch.cat([x, update], -1) if x.dim() else torch.stack([x, update]),
    lambda x, update: torch.cat([x, update]) if x.dim() else torch.stack([x, update]),
    lambda x, update: torch.stack([x, update]),
)
sums("maximum_taken", "You took the larger of the two. They are added.", torch.maximum)
sums(
    "relu_after_the_sum",
    "You put a ReLU on the sum, as the first residual networks did. Here nothing follows the sum: "
    "negative features pass too.",
    lambda x, update: torch.relu(x + update),
)
sums(
    "sum_normalized",
    "You normalized the sum. That is what PostNormResidual does later; here it is the sum alone.",
    lambda x, u: F.layer_norm(x + u, x.shape[-1:]) if x.dim() else x + u,
)
sums(
    "normalized_x_added",
    "You added the normalized x. The shortcut carries x as it came.",
    lambda x, u: F.layer_norm(x, x.shape[-1:]) + u if x.dim() else x + u,
)
sums(
    "changes_x_in_place",
    "You changed x in place (`x += update`, `x.add_(…)`). The caller still needs x: `x + update` "
    "makes a new tensor.",
    lambda x, update: x.add_(update) if not x.requires_grad else x + update,
    lambda x, update: x.add_(update),
    lambda x, update: x.data.add_(update) + 0 * update,
)
sums(
    "changes_the_update_in_place",
    "You changed the update in place (`update += x`). The caller may still need it: `x + update` "
    "makes a new tensor.",
    lambda x, update: update.add_(x) if not x.requires_grad else x + update,
    lambda x, update: update.add_(x),
)
sums(
    "x_detached",
    "You cut x out of the gradient (`.detach()`, `.data`, `torch.tensor(x)`). The shortcut is "
    "there to carry gradients past the branch.",
    lambda x, update: x.detach() + update,
)
sums(
    "update_detached",
    "You cut the update out of the gradient (`.detach()` or `.data`), so the branch would never "
    "learn.",
    lambda x, update: x + update.detach(),
)
sums(
    "no_gradient_at_all",
    "You added under `no_grad`, or on `.data`, so no gradient comes back at all.",
    lambda x, update: x.detach() + update.detach(),
)
sums(
    "returns_float32",
    "You computed in float32 and returned it. The result has x's dtype.",
    lambda x, update: x.float() + update.float(),
)
sums(
    "returns_float64",
    "You computed in float64 and returned it. The result has x's dtype.",
    lambda x, update: x.double() + update,
)
sums(
    "new_tensor_on_the_cpu",
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix.",
    lambda x, update: torch.zeros(x.shape, dtype=x.dtype) + x + update,
)
sums(
    "numbers_laid_out_by_view",
    "`view` takes no tensor that was transposed: its numbers lie in another order. A plain "
    "`x + update` takes any.",
    lambda x, update: (x.view(-1) + update.view(-1)).view(x.shape),
)
sums("returns_both", "You returned a tuple. The sum alone is asked for.", lambda x, u: (x + u, u))
sums("forgot_to_return", "You returned nothing: end with `return`.", lambda x, update: None)


# residual: what is done about shapes that differ


def refusing(unless, error=ValueError):
    """A residual that raises where `unless(x, update)` does not hold, and else adds."""

    def function(x, update):
        if not unless(x, update):
            raise error(f"x has shape {tuple(x.shape)}, its update {tuple(update.shape)}")
        return x + update

    return function


def saying(words):
    """A residual whose error says `words(x's shape, update's shape)`."""

    def function(x, update):
        if x.shape != update.shape:
            raise ValueError(words(tuple(x.shape), tuple(update.shape)))
        return x + update

    return function


residual.add(
    "broadcasts",
    "Shapes that differ are added. A (2, 1, 5) update is then stretched over all tokens, without "
    "an error. Compare `x.shape` with `update.shape` first, and `raise` where they differ.",
    lambda x, update: x + update,
)
residual.add(
    "torch_s_error_passed_on",
    "You turned torch's own error into a ValueError. torch raises none where it can broadcast: "
    "compare the shapes yourself.",
    lambda x, update: refusing(lambda *_: _can_add(x, update))(x, update),
)


def _can_add(x, update):
    try:
        torch.broadcast_shapes(x.shape, update.shape)
    except RuntimeError:
        return False
    return True


residual.add(
    "last_axis_compared",
    "You compared the last axis alone. All axes have to agree: compare `x.shape` with "
    "`update.shape`.",
    refusing(lambda x, u: x.shape[-1:] == u.shape[-1:]),
    refusing(lambda x, u: x.shape[-1] == u.shape[-1]),
)
residual.add(
    "first_axis_compared",
    "You compared the first axis alone (`len`, `shape[0]`). All axes have to agree.",
    refusing(lambda x, u: x.shape[:1] == u.shape[:1]),
    refusing(lambda x, u: x.shape[0] == u.shape[0]),
    refusing(lambda x, u: len(x) == len(u)),
)
residual.add(
    "axes_zipped",
    "You compared axis by axis with `zip`, which ends with the shorter shape. Compare the whole "
    "shapes.",
    refusing(lambda x, u: all(a == b for a, b in zip(x.shape, u.shape, strict=False))),
    refusing(lambda x, u: all(a == b for a, b in zip(x.shape[::-1], u.shape[::-1], strict=False))),
)
residual.add(
    "first_and_last_axis_compared",
    "You compared the first and the last axis. All axes have to agree, also those between.",
    refusing(lambda x, u: x.shape[:1] == u.shape[:1] and x.shape[-1:] == u.shape[-1:]),
    refusing(lambda x, u: x.shape[0] == u.shape[0] and x.shape[-1] == u.shape[-1]),
)
residual.add(
    "number_of_axes_compared",
    "You compared the number of axes. (2, 3, 5) and (2, 1, 5) have three each: compare the shapes.",
    refusing(lambda x, u: x.dim() == u.dim()),
)
residual.add(
    "number_of_elements_compared",
    "You compared the number of elements. (2, 3, 5) and (3, 2, 5) have 30 each: compare the "
    "shapes.",
    refusing(lambda x, u: x.numel() == u.numel()),
)
residual.add(
    "only_the_result_compared",
    "You compared the result's shape with x's. An update of (2, 1, 5) is stretched to x's shape, "
    "and nobody sees it: compare `x.shape` with `update.shape`.",
    refusing(lambda x, u: _can_add(x, u) and torch.broadcast_shapes(x.shape, u.shape) == x.shape),
    refusing(lambda x, u: not _can_add(x, u) or (x + u).shape == x.shape),
)
residual.add(
    "only_the_update_compared",
    "You compared the result's shape with the update's. An x of (2, 1, 5) is stretched to it.",
    refusing(lambda x, u: _can_add(x, u) and torch.broadcast_shapes(x.shape, u.shape) == u.shape),
    refusing(lambda x, u: not _can_add(x, u) or (x + u).shape == u.shape),
)
residual.add(
    "only_axes_of_length_one_refused",
    "You refused updates with an axis of length 1. A (2, 1, 5) update is right for a (2, 1, 5) x, "
    "and other shapes differ too: compare the shapes.",
    refusing(lambda x, u: 1 not in u.shape),
)
residual.add(
    "only_what_broadcasts_refused",
    "You refused what broadcasting would join, and left the rest to torch, which raises a "
    "RuntimeError. Every pair of different shapes raises a ValueError.",
    refusing(lambda x, u: x.shape == u.shape or not _can_add(x, u)),
)
residual.add(
    "shapes_compared_as_sets",
    "You compared sorted shapes, or sets. (2, 3, 5) and (3, 2, 5) hold the same numbers in another "
    "order.",
    refusing(lambda x, u: sorted(x.shape) == sorted(u.shape)),
)
residual.add(
    "always_raises",
    "It raises for equal shapes too. `x.size` without brackets is a method, never equal to another "
    "tensor's; use `x.shape`, and `!=`.",
    refusing(lambda x, u: False),
    refusing(lambda x, u: x.shape != u.shape),
)
for kind in (AssertionError, RuntimeError, TypeError, Exception):
    residual.add(
        f"raises_{kind.__name__}",
        f"You raised {'an' if kind.__name__[0] in 'AE' else 'a'} {kind.__name__}"
        f"{' (that is what `assert` does)' if kind is AssertionError else ''}. The callers look "
        "for a ValueError: `raise ValueError(...)`.",
        refusing(lambda x, u: x.shape == u.shape, kind),
    )


def _update_stretched(x, update):
    return x + update.expand_as(x) if x.shape != update.shape else x + update


def on_other_shapes(name, sentence, *results):
    """Add answers that add equal shapes and return `result(x, update)` for others."""

    def choosing(result):
        return lambda x, u: x + u if x.shape == u.shape else result(x, u)

    residual.add(name, sentence, *map(choosing, results))


on_other_shapes(
    "update_stretched",
    "You stretched the update to x's shape yourself. Shapes that differ are an error here.",
    lambda x, update: x + update.expand_as(x),
    lambda x, update: x + torch.broadcast_to(update, x.shape),
)
on_other_shapes(
    "reshaped",
    "You reshaped the update to x's shape. Its numbers would land at other tokens: shapes that "
    "differ are an error.",
    lambda x, update: x + update.reshape(x.shape),
    lambda x, update: x + update.view_as(x),
)
on_other_shapes(
    "x_returned_where_shapes_differ",
    "You returned x where the shapes differ. Nobody would notice: raise a ValueError.",
    lambda x, update: x,
)
on_other_shapes(
    "nothing_returned_where_shapes_differ",
    "Where the shapes differ you returned or printed something. Raise a ValueError.",
    lambda x, update: None,
    lambda x, update: ValueError("shapes differ"),
    lambda x, update: "shapes differ",
)
residual.add(
    "message_without_shapes",
    "The message doesn't hold the shapes. Whoever reads it wants both: put them in with an "
    "f-string.",
    saying(lambda x, update: "the shapes differ"),
)
residual.add(
    "message_with_x_s_shape_alone",
    "The message holds x's shape alone. Put the update's in too.",
    saying(lambda x, update: f"expected {x}"),
)
residual.add(
    "message_with_the_update_s_shape_alone",
    "The message holds the update's shape alone. Put x's in too.",
    saying(lambda x, update: f"bad update {update}"),
)
residual.add(
    "message_with_other_numbers",
    "The message holds counts (of axes or elements), or shapes written in another way. Put "
    "`tuple(x.shape)` and `tuple(update.shape)` in.",
    saying(lambda x, update: f"{len(x)} axes and {len(update)}"),
    saying(lambda x, update: f"{math.prod(x)} elements and {math.prod(update)}"),
    saying(lambda x, update: f"{'x'.join(map(str, x))} and {'x'.join(map(str, update))}"),
)


# PreNormResidual and PostNormResidual


def module_of(forward, norm=nn.LayerNorm, drop=nn.Dropout):
    """A module with the right parts whose forward is `forward(self, x, branch)`.

    `branch` is the module's own, with the further arguments of the call already in.
    """

    class Module(nn.Module):
        def __init__(self, width, branch, dropout=0.0):
            super().__init__()
            self.norm, self.branch, self.dropout = norm(width), branch, drop(dropout)

        def forward(self, x, *args, **kwargs):
            return forward(self, x, lambda one: self.branch(one, *args, **kwargs))

    return Module


def pre(m, x, branch):
    return x + m.dropout(branch(m.norm(x)))


def post(m, x, branch):
    return m.norm(x + m.dropout(branch(x)))


def slips(catalogue, name, sentence, *forwards):
    catalogue.add(name, sentence, *map(module_of, forwards))


def both(name, sentence, in_pre, in_post):
    """Add a slip to both catalogues: a forward, or a list of them, for each of the two."""
    for catalogue, forwards in ((pre_norm, in_pre), (post_norm, in_post)):
        forwards = forwards if isinstance(forwards, list) else [forwards]
        slips(catalogue, name, sentence, *forwards)


slips(
    pre_norm,
    "post_norm_instead",
    "This is post-norm: the norm stands on the sum. In pre-norm it stands in front of the branch, "
    "and nothing stands on the sum.",
    post,
    lambda m, x, branch: m.norm(m.dropout(x + branch(x))),
)
slips(
    post_norm,
    "pre_norm_instead",
    "This is pre-norm: the norm stands in front of the branch. In post-norm the branch gets x, and "
    "the norm stands on the sum.",
    pre,
    lambda m, x, branch: m.dropout(x + branch(m.norm(x))),
)
slips(
    pre_norm,
    "normalized_input_added",
    "You added the normalized x in place of x (`x = self.norm(x)` overwrites it). The shortcut "
    "carries x as it came: give the normalized one another name.",
    lambda m, x, branch: m.norm(x) + m.dropout(branch(m.norm(x))),
)
slips(
    post_norm,
    "normalized_input_added",
    "You normalized x first and then added the branch to that. In post-norm the norm comes last, "
    "on the sum.",
    lambda m, x, branch: m.norm(x) + m.dropout(branch(m.norm(x))),
    lambda m, x, branch: m.norm(x) + m.dropout(branch(x)),
)
both(
    "norm_missing",
    "The norm is made and never used: call `self.norm` in `forward`.",
    lambda m, x, branch: x + m.dropout(branch(x)),
    lambda m, x, branch: x + m.dropout(branch(x)),
)
both(
    "norm_s_weights_ignored",
    "You normalize without the weight and bias of `self.norm`: by `F.layer_norm(x, ...)` alone, or "
    "with a new nn.LayerNorm at each call. Call `self.norm`.",
    lambda m, x, branch: x + m.dropout(branch(F.layer_norm(x, x.shape[-1:]))),
    lambda m, x, branch: F.layer_norm(x + m.dropout(branch(x)), x.shape[-1:]),
)
slips(
    pre_norm,
    "norm_on_the_branch_s_output",
    "You normalized what comes out of the branch. In pre-norm the norm stands in front of it.",
    lambda m, x, branch: x + m.dropout(m.norm(branch(x))),
    lambda m, x, branch: x + m.norm(m.dropout(branch(x))),
)
slips(
    post_norm,
    "norm_on_the_branch_alone",
    "You normalized the branch's output before the sum. In post-norm the norm stands on the sum.",
    lambda m, x, branch: x + m.dropout(m.norm(branch(x))),
    lambda m, x, branch: x + m.norm(m.dropout(branch(x))),
)
both(
    "norm_used_twice",
    "You used the norm twice. It stands in one place of the formula.",
    [
        lambda m, x, branch: m.norm(x + m.dropout(branch(m.norm(x)))),
        lambda m, x, branch: x + m.dropout(m.norm(branch(m.norm(x)))),
        lambda m, x, branch: x + m.dropout(branch(m.norm(m.norm(x)))),
    ],
    [
        lambda m, x, branch: m.norm(x + m.dropout(branch(m.norm(x)))),
        lambda m, x, branch: m.norm(x + m.dropout(m.norm(branch(x)))),
        lambda m, x, branch: m.norm(m.norm(x + m.dropout(branch(x)))),
        lambda m, x, branch: m.norm(m.norm(x) + m.dropout(branch(x))),
        lambda m, x, branch: m.norm(m.norm(x) + m.dropout(branch(m.norm(x)))),
    ],
)
both(
    "shortcut_missing",
    "x itself is missing in the sum. Without the shortcut a layer has to say everything anew.",
    lambda m, x, branch: m.dropout(branch(m.norm(x))),
    [
        lambda m, x, branch: m.norm(m.dropout(branch(x))),
        lambda m, x, branch: m.dropout(branch(x)),
        lambda m, x, branch: m.dropout(branch(m.norm(x))),
    ],
)
both(
    "branch_missing",
    "The branch is never called.",
    [
        lambda m, x, branch: x,
        lambda m, x, branch: x + m.dropout(m.norm(x)),
        lambda m, x, branch: m.dropout(m.norm(x)),
    ],
    [
        lambda m, x, branch: m.norm(x),
        lambda m, x, branch: m.norm(x + m.dropout(x)),
        lambda m, x, branch: m.norm(m.dropout(x)),
    ],
)
both(
    "shortcut_doubled",
    "x is added twice. It is added once; a sum that doubles grows past all bounds with depth.",
    [
        lambda m, x, branch: 2 * x + m.dropout(branch(m.norm(x))),
        lambda m, x, branch: x + m.norm(x) + m.dropout(branch(m.norm(x))),
    ],
    [
        lambda m, x, branch: m.norm(2 * x + m.dropout(branch(x))),
        lambda m, x, branch: x + m.norm(x + m.dropout(branch(x))),
    ],
)
both(
    "update_subtracted",
    "You subtracted the branch's output. It is added.",
    lambda m, x, branch: x - m.dropout(branch(m.norm(x))),
    lambda m, x, branch: m.norm(x - m.dropout(branch(x))),
)
both(
    "averaged",
    "You took the mean of x and the update, or scaled their sum. It is the plain sum.",
    [
        lambda m, x, branch: (x + m.dropout(branch(m.norm(x)))) / 2,
        lambda m, x, branch: (x + m.dropout(branch(m.norm(x)))) / math.sqrt(2),
        lambda m, x, branch: x + m.dropout(branch(m.norm(x))) / 2,
    ],
    [
        lambda m, x, branch: m.norm((x + m.dropout(branch(x))) / 2),
        lambda m, x, branch: m.norm(x + m.dropout(branch(x))) / 2,
        lambda m, x, branch: m.norm(x + m.dropout(branch(x)) / 2),
        lambda m, x, branch: m.norm(x / 2 + m.dropout(branch(x))),
    ],
)
both(
    "branch_applied_twice",
    "The branch is called twice. Each call of the module calls it once.",
    lambda m, x, branch: x + m.dropout(branch(branch(m.norm(x)))),
    lambda m, x, branch: m.norm(x + m.dropout(branch(branch(x)))),
)
both(
    "activation_on_the_sum",
    "You put an activation on the sum. Nothing else stands on the shortcut.",
    [
        lambda m, x, branch: F.relu(pre(m, x, branch)),
        lambda m, x, branch: F.gelu(pre(m, x, branch)),
    ],
    [
        lambda m, x, branch: F.relu(post(m, x, branch)),
        lambda m, x, branch: F.gelu(post(m, x, branch)),
        lambda m, x, branch: m.norm(F.relu(x + m.dropout(branch(x)))),
    ],
)
both(
    "activation_on_the_branch",
    "You put an activation on the branch's output. What the branch gives is added as it is.",
    [
        lambda m, x, branch: x + m.dropout(F.relu(branch(m.norm(x)))),
        lambda m, x, branch: x + m.dropout(F.gelu(branch(m.norm(x)))),
    ],
    [
        lambda m, x, branch: m.norm(x + m.dropout(F.relu(branch(x)))),
        lambda m, x, branch: m.norm(x + m.dropout(F.gelu(branch(x)))),
    ],
)
slips(
    pre_norm,
    "branch_reads_x",
    "The branch reads x itself, and the norm stands on the shortcut. It is the other way round.",
    lambda m, x, branch: m.norm(x) + m.dropout(branch(x)),
)

# Where dropout stands

both(
    "dropout_on_the_sum",
    "Dropout stands on the sum. It wipes out parts of x too, at every layer anew; put it on the "
    "branch's output, before the sum.",
    lambda m, x, branch: m.dropout(x + branch(m.norm(x))),
    [
        lambda m, x, branch: m.norm(m.dropout(x + branch(x))),
        lambda m, x, branch: m.dropout(m.norm(x + branch(x))),
    ],
)
both(
    "dropout_on_the_shortcut",
    "Dropout stands on the shortcut. It belongs on the branch: the old path stays whole.",
    [
        lambda m, x, branch: m.dropout(x) + branch(m.norm(x)),
        lambda m, x, branch: m.dropout(x) + m.dropout(branch(m.norm(x))),
    ],
    [
        lambda m, x, branch: m.norm(m.dropout(x) + branch(x)),
        lambda m, x, branch: m.norm(m.dropout(x) + m.dropout(branch(x))),
    ],
)
both(
    "dropout_before_the_branch",
    "Dropout stands in front of the branch. It belongs on what the branch gives, before the sum.",
    [
        lambda m, x, branch: x + branch(m.dropout(m.norm(x))),
        lambda m, x, branch: x + branch(m.norm(m.dropout(x))),
    ],
    lambda m, x, branch: m.norm(x + branch(m.dropout(x))),
)
both(
    "dropout_missing",
    "The dropout is made and never used.",
    lambda m, x, branch: x + branch(m.norm(x)),
    lambda m, x, branch: m.norm(x + branch(x)),
)
both(
    "dropout_twice",
    "Dropout is used twice on the branch. Once, on its output, is enough: twice drops more than "
    "you asked for.",
    [
        lambda m, x, branch: x + m.dropout(m.dropout(branch(m.norm(x)))),
        lambda m, x, branch: x + m.dropout(branch(m.dropout(m.norm(x)))),
    ],
    [
        lambda m, x, branch: m.norm(x + m.dropout(m.dropout(branch(x)))),
        lambda m, x, branch: m.norm(x + m.dropout(branch(m.dropout(x)))),
    ],
)


def dropping(name, sentence, *drops):
    """Add slips inside the dropout itself: `drop(m, update)` in the place of `m.dropout`."""

    def in_pre(drop):
        return lambda m, x, branch: x + drop(m, branch(m.norm(x)))

    def in_post(drop):
        return lambda m, x, branch: m.norm(x + drop(m, branch(x)))

    both(name, sentence, [*map(in_pre, drops)], [*map(in_post, drops)])


dropping(
    "drops_in_eval_too",
    "It drops in eval mode too: `F.dropout` is on unless you pass `training=self.training`. "
    "`self.dropout(...)` sees to that itself.",
    lambda m, update: F.dropout(update, m.dropout.p),
)
dropping(
    "drops_in_eval_only",
    "It drops in eval mode and not in training: the switch is the wrong way round.",
    lambda m, update: F.dropout(update, m.dropout.p, training=not m.training),
)
dropping(
    "fixed_probability",
    "The `dropout` you were given is not used: your probability is a fixed one.",
    lambda m, update: F.dropout(update, 0.1, m.training),
    lambda m, update: F.dropout(update, 0.5, m.training),
)
dropping(
    "keep_probability",
    "You took `dropout` for the probability to keep a feature. It is the probability to drop it.",
    lambda m, update: F.dropout(update, 1 - m.dropout.p, m.training),
)
dropping(
    "not_scaled",
    "You put features to 0 and did not divide the rest by 1 - p, so training and eval differ in "
    "size. `nn.Dropout` does both.",
    lambda m, update: update * (torch.rand_like(update) >= m.dropout.p) if m.training else update,
)
dropping(
    "scaled_in_eval",
    "You multiply by 1 - p in eval mode. `nn.Dropout` divides by it in training, and does nothing "
    "in eval.",
    lambda m, update: m.dropout(update) if m.training else update * (1 - m.dropout.p),
)
dropping(
    "whole_tokens_dropped",
    "You drop whole tokens, or the whole branch at once. `nn.Dropout` drops each feature on its "
    "own.",
    lambda m, update: update * m.dropout(torch.ones_like(update[..., :1])),
    lambda m, update: update * m.dropout(torch.ones_like(update[(0,) * update.dim()])),
)
dropping(
    "one_mask_for_all_tokens",
    "Every token loses the same features. Each token has a mask of its own: call `self.dropout` on "
    "the whole tensor.",
    lambda m, update: update * m.dropout(torch.ones_like(update[(0,) * (update.dim() - 1)])),
)


def drops_by_default(catalogue, right: Any):
    class DropsByDefault(right):
        def __init__(self, width, branch, dropout=0.1):
            super().__init__(width, branch, dropout)

    catalogue.add(
        "drops_by_default",
        "Your dropout is 0.1 where none is given. The default here is 0.0.",
        DropsByDefault,
    )


for catalogue, right in BOTH:
    drops_by_default(catalogue, right)

# What is made in __init__


def parts(name, sentence, *makes):
    """Add slips in `__init__` to both: `make(module, width, branch, p)`, after the right parts."""

    def made(right: Any, make):
        class Module(right):
            def __init__(self, width, branch, dropout=0.0):
                super().__init__(width, branch, dropout)
                make(self, width, branch, dropout)

        return Module

    for catalogue, right in BOTH:
        catalogue.add(name, sentence, *(made(right, make) for make in makes))


def renamed(right: Any, old, new):
    class Module(right):
        def __init__(self, width, branch, dropout=0.0):
            super().__init__(width, branch, dropout)
            part = self._modules.pop(old)
            self.add_module(new, part)
            # Found under its old name by `forward`, and listed under the new one.
            object.__setattr__(self, old, part)

    return Module


def without_norm(right: Any):
    class Module(right):
        def __init__(self, width, branch, dropout=0.0):
            super().__init__(width, branch, dropout)
            object.__setattr__(self, "norm", self._modules.pop("norm"))

    return Module


for catalogue, right in BOTH:
    catalogue.add(
        "norm_named_otherwise",
        "No layer is called `norm`: yours has another name, or there is none. Saved weights are "
        "loaded by name, so the names are part of what is asked for.",
        renamed(right, "norm", "ln"),
        without_norm(right),
    )
    catalogue.add(
        "branch_named_otherwise",
        "The branch is not called `branch`. Saved weights are loaded by name, so the names are "
        "part of what is asked for.",
        renamed(right, "branch", "sublayer"),
    )
    catalogue.add(
        "no_layer_called_dropout",
        "There is no layer called `dropout`: yours has another name, or is a number that you give "
        "to `F.dropout`. Make it in `__init__`: `self.dropout = nn.Dropout(dropout)`.",
        renamed(right, "dropout", "drop"),
    )


def _in_a_list(module, width, branch, p):
    del module.branch
    holder = [branch]
    object.__setattr__(module, "branch", lambda *args, **kwargs: holder[0](*args, **kwargs))


def _frozen(part):
    def make(module, width, branch, p):
        getattr(module, part).requires_grad_(False)

    return make


parts(
    "branch_in_a_list",
    "The branch is in a Python list or a function, where the module does not see it: it is not "
    "trained, saved or moved. Write `self.branch = branch`.",
    _in_a_list,
)
parts(
    "branch_frozen",
    "You switched off the branch's gradients. It has to be trained.",
    _frozen("branch"),
)
parts(
    "norm_frozen",
    "You switched off the norm's gradients. Its weight and bias are trained.",
    _frozen("norm"),
)
parts(
    "norm_without_weight",
    "Your norm has no weight and bias (`elementwise_affine=False`). Leave that argument out.",
    lambda m, width, branch, p: setattr(m, "norm", nn.LayerNorm(width, elementwise_affine=False)),
)
parts(
    "norm_without_bias",
    "Your norm has no bias (`bias=False`). Leave that argument out.",
    lambda m, width, branch, p: setattr(m, "norm", nn.LayerNorm(width, bias=False)),
)
parts(
    "RMSNorm_for_LayerNorm",
    "Your norm is an RMSNorm; an nn.LayerNorm is asked for.",
    lambda m, width, branch, p: setattr(m, "norm", nn.RMSNorm(width)),
)
parts(
    "BatchNorm_for_LayerNorm",
    "Your norm is a BatchNorm, which mixes the tokens of a batch; an nn.LayerNorm is asked for.",
    lambda m, width, branch, p: setattr(m, "norm", nn.BatchNorm1d(width)),
)
parts(
    "whole_channels_dropped",
    "Your dropout is a relative of nn.Dropout, such as nn.Dropout1d, which drops whole rows. An "
    "nn.Dropout is asked for.",
    lambda m, width, branch, p: setattr(m, "dropout", nn.Dropout1d(p)),
)
parts(
    "dropout_probability_ignored",
    "`nn.Dropout()` has its own default, 0.5: pass the `dropout` that you were given.",
    lambda m, width, branch, p: setattr(m, "dropout", nn.Dropout()),
)
parts(
    "another_probability",
    "`nn.Dropout` got another number than the `dropout` you were given: a fixed one, or 1 minus "
    "it. It takes the probability to drop.",
    lambda m, width, branch, p: setattr(m, "dropout", nn.Dropout(0.1)),
    lambda m, width, branch, p: setattr(m, "dropout", nn.Dropout(1 - p)),
)
parts(
    "another_branch",
    "`self.branch` is a copy, or a module of your own. Keep the one that was given: "
    "`self.branch = branch`.",
    lambda m, width, branch, p: setattr(m, "branch", copy.deepcopy(branch)),
    lambda m, width, branch, p: setattr(m, "branch", nn.Linear(width, width)),
)
parts(
    "branch_s_weights_set",
    "You set the branch's weights. They are not yours: whoever gave it may have trained it.",
    lambda m, width, branch, p: [nn.init.zeros_(one) for one in branch.parameters()],
)


class OwnNorm(nn.Module):
    """A layer norm as in lesson 01."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))


parts(
    "norm_of_another_kind",
    "Your norm is one of your own, or another of torch's. torch's nn.LayerNorm is asked for.",
    lambda m, width, branch, p: setattr(m, "norm", OwnNorm(width)),
)
parts(
    "norm_made_twice",
    "You made two norms, and the formula has one. Even an unused one is saved and counted.",
    lambda m, width, branch, p: setattr(m, "norm2", nn.LayerNorm(width)),
)
parts(
    "trained_factor",
    "You gave the branch a factor that is trained. The formula has none.",
    lambda m, width, branch, p: setattr(m, "scale", nn.Parameter(torch.ones(width))),
)

# How the branch is called


def calling(name, sentence, *calls):
    """Add slips in the call of the branch: `call(branch, x, args, kwargs)`, to both."""

    def in_pre(call):
        class Module(PreNormResidual):
            def forward(self, x, *args, **kwargs):
                return x + self.dropout(call(self.branch, self.norm(x), args, kwargs))

        return Module

    def in_post(call):
        class Module(PostNormResidual):
            def forward(self, x, *args, **kwargs):
                return self.norm(x + self.dropout(call(self.branch, x, args, kwargs)))

        return Module

    pre_norm.add(name, sentence, *map(in_pre, calls))
    post_norm.add(name, sentence, *map(in_post, calls))


def takes_too_little(catalogue, right: Any):
    class NoArguments(right):
        def forward(self, x):
            return super().forward(x)

    class NoKeywords(right):
        def forward(self, x, *args):
            return super().forward(x, *args)

    class NoPositions(right):
        def forward(self, x, **kwargs):
            return super().forward(x, **kwargs)

    class OneMore(right):
        def forward(self, x, other=None, **kwargs):
            return super().forward(x, *([] if other is None else [other]), **kwargs)

    class OneMoreAlone(right):
        def forward(self, x, other=None):
            return super().forward(x, *([] if other is None else [other]))

    catalogue.add(
        "takes_no_further_arguments",
        "`forward` takes x alone. Let it take `*args, **kwargs`, and hand both on to the branch.",
        NoArguments,
    )
    catalogue.add(
        "takes_no_keywords",
        "`forward` takes no arguments by name. Let it take `*args, **kwargs`, and hand both on.",
        NoKeywords,
    )
    catalogue.add(
        "takes_no_positions",
        "`forward` takes further arguments by name only. Let it take `*args, **kwargs`.",
        NoPositions,
    )
    catalogue.add(
        "takes_one_more_argument",
        "`forward` takes one further argument. There may be any number: `*args, **kwargs`.",
        OneMore,
        OneMoreAlone,
    )


for catalogue, right in BOTH:
    takes_too_little(catalogue, right)
calling(
    "arguments_swallowed",
    "`forward` takes the further arguments and does not hand them on. The branch needs them: "
    "`self.branch(..., *args, **kwargs)`.",
    lambda branch, x, args, kwargs: branch(x),
)
calling(
    "keywords_swallowed",
    "Arguments by name are not handed on to the branch. Add `**kwargs` to its call.",
    lambda branch, x, args, kwargs: branch(x, *args),
)
calling(
    "positions_swallowed",
    "Arguments by position are not handed on to the branch. Add `*args` to its call.",
    lambda branch, x, args, kwargs: branch(x, **kwargs),
)
calling(
    "stars_forgotten",
    "Stars are missing in the call: `branch(x, *args, **kwargs)`. Without them the branch gets a "
    "tuple and a dict, and with one star for two their names.",
    lambda branch, x, args, kwargs: branch(x, args, kwargs),
    lambda branch, x, args, kwargs: branch(x, args, **kwargs),
    lambda branch, x, args, kwargs: branch(x, args, **kwargs) if args else branch(x, **kwargs),
    lambda branch, x, args, kwargs: branch(x, *args, kwargs),
    lambda branch, x, args, kwargs: branch(x, *args, *kwargs),
)
calling(
    "branch_s_weights_called_by_hand",
    "You used the branch's own weights in place of calling it. A branch may be any module: "
    "`self.branch(...)`.",
    lambda branch, x, args, kwargs: (
        F.linear(x, branch.weight, branch.bias) if not args and not kwargs else branch(x, *args)
    ),
)

# Gradients, dtypes, devices, inputs

both(
    "changes_x_in_place",
    "You changed x in place (`x += …`). The caller still needs x, and so does the norm's backward "
    "pass: `x + …` makes a new tensor.",
    [
        lambda m, x, branch: x.add_(m.dropout(branch(m.norm(x)))),
        lambda m, x, branch: x.data.add_(m.dropout(branch(m.norm(x)))),
    ],
    [
        lambda m, x, branch: m.norm(x.add_(m.dropout(branch(x)))),
        lambda m, x, branch: m.norm(x.data.add_(m.dropout(branch(x)))),
    ],
)
both(
    "dropout_in_place",
    "Dropout works in place (`inplace=True`). It writes into the branch's output, which the branch "
    "may need on the way back, and which is x itself where the branch hands x on.",
    lambda m, x, branch: x + F.dropout(branch(m.norm(x)), m.dropout.p, m.training, inplace=True),
    [
        lambda m, x, branch: m.norm(
            x + F.dropout(branch(x), m.dropout.p, m.training, inplace=True)
        ),
        lambda m, x, branch: m.norm(
            x.clone() + F.dropout(branch(x), m.dropout.p, m.training, inplace=True)
        ),
    ],
)
both(
    "adds_x_to_the_update_in_place",
    "You added x to the branch's output in place (`update += x`). The branch may need it on the "
    "way back, and it is x itself where the branch hands x on: `x + update` makes a new tensor.",
    lambda m, x, branch: m.dropout(branch(m.norm(x))).add_(x),
    [
        lambda m, x, branch: m.norm(branch(x).add_(x)) if not m.dropout.p else post(m, x, branch),
        lambda m, x, branch: m.norm(m.dropout(branch(x)).add_(x)),
    ],
)
both(
    "shortcut_detached",
    "You cut the shortcut out of the gradient (`x.detach()`, `.data`). It is there to carry "
    "gradients past the branch.",
    lambda m, x, branch: x.detach() + m.dropout(branch(m.norm(x))),
    lambda m, x, branch: m.norm(x.detach() + m.dropout(branch(x))),
)
both(
    "branch_detached",
    "You cut the branch's output out of the gradient (`.detach()`, `no_grad`), so it never learns.",
    lambda m, x, branch: x + m.dropout(branch(m.norm(x))).detach(),
    lambda m, x, branch: m.norm(x + m.dropout(branch(x)).detach()),
)
both(
    "branch_s_input_detached",
    "You cut off what the branch reads (`.detach()`). Gradients go back through the branch too.",
    lambda m, x, branch: x + m.dropout(branch(m.norm(x).detach())),
    lambda m, x, branch: m.norm(x + m.dropout(branch(x.detach()))),
)
slips(
    pre_norm,
    "norm_s_input_detached",
    "You cut off what the norm reads (`.detach()`). Gradients go back through the branch too.",
    lambda m, x, branch: x + m.dropout(branch(m.norm(x.detach()))),
)
both(
    "no_gradient_at_all",
    "You computed under `no_grad` or on `.data`, so no gradient comes back at all.",
    lambda m, x, branch: pre(m, x, branch).detach(),
    lambda m, x, branch: post(m, x, branch).detach(),
)
both(
    "returns_float32",
    "You converted x to float32. A module that was moved to another dtype gets x in that dtype.",
    [
        lambda m, x, branch: pre(m, x.float(), branch),
        lambda m, x, branch: pre(m, x, branch).float(),
    ],
    [
        lambda m, x, branch: post(m, x.float(), branch),
        lambda m, x, branch: post(m, x, branch).float(),
    ],
)
both(
    "new_tensor_on_the_cpu",
    "You made a new tensor without `device=x.device`. It is on the CPU, and a GPU refuses to mix.",
    lambda m, x, branch: torch.zeros(x.shape, dtype=x.dtype) + pre(m, x, branch),
    lambda m, x, branch: torch.zeros(x.shape, dtype=x.dtype) + post(m, x, branch),
)
both(
    "only_in_training",
    "In eval mode you return x as it came. Eval switches off the dropout and nothing else.",
    lambda m, x, branch: pre(m, x, branch) if m.training else x,
    lambda m, x, branch: post(m, x, branch) if m.training else x,
)
both(
    "returns_a_tuple",
    "You returned a tuple. One tensor is asked for.",
    lambda m, x, branch: (pre(m, x, branch), x),
    lambda m, x, branch: (post(m, x, branch), x),
)
both(
    "forgot_to_return",
    "`forward` returns nothing: end it with `return`.",
    lambda m, x, branch: None,
    lambda m, x, branch: None,
)


# gradient_report


def mean_square(model, x):
    return model(x).square().mean()


def length(gradient):
    return gradient.double().norm().item()


def gradients(model, x, loss=mean_square):
    """{name: gradient or None}, leaving everything as it is."""
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    arrived = torch.autograd.grad(loss(model, x), list(trained.values()), allow_unused=True)
    found = dict(zip(trained, arrived, strict=True))
    return {name: found.get(name) for name, _ in model.named_parameters()}


def first_not_finite(found):
    for name, gradient in found.items():
        if gradient is not None and not gradient.isfinite().all():
            return name
    return None


def refuse(found):
    if name := first_not_finite(found):
        raise ValueError(f"the gradient of {name} is not finite")


def report_by(loss=mean_square, measure=length, guard=refuse, none=None):
    """A right report, but for what is given otherwise."""

    def function(model, x):
        found = gradients(model, x, loss)
        guard(found)
        return {name: none if one is None else measure(one) for name, one in found.items()}

    return function


right_report = report_by()


def losses(name, sentence, *others):
    gradient_report.add(name, sentence, *(report_by(loss=one) for one in others))


def measures(name, sentence, *others):
    gradient_report.add(name, sentence, *(report_by(measure=one) for one in others))


losses(
    "sum_for_mean",
    "You summed the squares. The loss is their mean: `model(x).square().mean()`.",
    lambda model, x: model(x).square().sum(),
)
losses(
    "no_square",
    "The square is missing: the loss is `model(x).square().mean()`.",
    lambda model, x: model(x).mean(),
)
losses(
    "summed_output",
    "You ran back from the sum of the output. The loss is the mean of its squares.",
    lambda model, x: model(x).sum(),
)
losses(
    "absolute_values",
    "You took absolute values in place of squares.",
    lambda model, x: model(x).abs().mean(),
)
losses(
    "square_of_the_mean",
    "You squared the mean. The loss is the mean of the squares: square first.",
    lambda model, x: model(x).mean().square(),
)
losses(
    "root_of_the_loss",
    "You took the root of the loss. It is the mean of the squares, without a root.",
    lambda model, x: model(x).square().mean().sqrt(),
    lambda model, x: model(x).norm(),
)
losses(
    "half_the_loss",
    "You halved the loss. It is the plain mean of the squares.",
    lambda model, x: model(x).square().mean() / 2,
)
losses(
    "first_row_alone",
    "You passed part of x. The whole of it goes through the model at once.",
    lambda model, x: model(x[:1]).square().mean(),
    lambda model, x: model(x[0]).square().mean(),
)
losses(
    "random_input",
    "You made an input of your own. The pass runs on x.",
    lambda model, x: model(torch.ones_like(x)).square().mean(),
    lambda model, x: model(torch.randn_like(x)).square().mean(),
)
measures(
    "squared_norm",
    "You did not take the root: the L2 norm is the root of the sum of squares.",
    lambda gradient: gradient.double().square().sum().item(),
)
measures(
    "sum_of_absolute_values",
    "You summed absolute values, which is the L1 norm. L2 is the root of the sum of squares.",
    lambda gradient: gradient.double().abs().sum().item(),
)
measures(
    "largest_value",
    "You took the largest entry. The L2 norm is the root of the sum of squares.",
    lambda gradient: gradient.double().abs().max().item(),
    lambda gradient: gradient.double().max().item(),
)
measures(
    "mean_of_the_gradient",
    "You took a mean of the gradient's entries. The L2 norm is the root of the sum of squares.",
    lambda gradient: gradient.double().mean().item(),
    lambda gradient: gradient.double().abs().mean().item(),
)
measures(
    "sum_of_the_gradient",
    "You summed the gradient's entries, where signs cancel. The L2 norm is the root of the sum of "
    "squares.",
    lambda gradient: gradient.double().sum().item(),
    lambda gradient: abs(gradient.double().sum().item()),
)
measures(
    "root_mean_square",
    "You divided by the number of entries: that is the root mean square. The L2 norm is the root "
    "of the sum of squares.",
    lambda gradient: gradient.double().square().mean().sqrt().item(),
)
measures(
    "standard_deviation",
    "You took the standard deviation. The L2 norm is the root of the sum of squares.",
    lambda gradient: gradient.double().std(correction=0).item(),
    lambda gradient: gradient.double().std().item() if gradient.numel() > 1 else 0.0,
)
measures(
    "spectral_norm",
    "You took a matrix norm. The L2 norm treats all entries alike: the root of the sum of squares.",
    lambda gradient: torch.linalg.norm(gradient.double(), 2).item(),
)
measures(
    "rounded",
    "You rounded the norms. Give them as they are.",
    lambda one: round(length(one), 2),
    lambda one: round(length(one), 3),
    lambda one: round(length(one), 4),
)
measures(
    "tensors_for_floats",
    "The values are tensors. `.item()` or `float(...)` makes a float of one number.",
    lambda gradient: gradient.norm(),
)
measures("strings_for_floats", "The values are strings. A float is asked for.", lambda one: "0.1")
measures(
    "clipped",
    "You clipped the norms at 1. A report says what is there.",
    lambda gradient: min(length(gradient), 1.0),
)
measures(
    "zero_taken_for_none",
    "A norm of 0.0 became None: `if norm:` is false for 0 too. Ask `if gradient is None`.",
    lambda gradient: length(gradient) or None,
)
gradient_report.add(
    "zero_for_none",
    "You put 0.0 where no gradient arrived, by hand, by zeros in `.grad` before the pass, or by "
    "`materialize_grads`. That is None: a gradient of zeros is something else.",
    report_by(none=0.0),
    lambda model, x: {
        name: (norm or 0.0) if model.get_parameter(name).requires_grad else None
        for name, norm in right_report(model, x).items()
    },
)
gradient_report.add(
    "nan_for_none",
    "You put NaN where no gradient arrived. That is None.",
    report_by(none=float("nan")),
)
gradient_report.add(
    "word_for_none",
    "You put a word where no gradient arrived. That is None.",
    report_by(none="None"),
)


def changed(name, sentence, *changes):
    """Add reports that are right until `change(report, model)`."""

    def function(change):
        return lambda model, x: change(right_report(model, x), model)

    gradient_report.add(name, sentence, *map(function, changes))


changed(
    "left_out_without_gradient",
    "Parameters without a gradient are left out. Each parameter is in the dict, those with None.",
    lambda report, model: {name: norm for name, norm in report.items() if norm is not None},
)
changed(
    "frozen_left_out",
    "Frozen parameters are left out. They are in the dict too, with None.",
    lambda report, model: {
        name: report[name] for name, one in model.named_parameters() if one.requires_grad
    },
)
changed(
    "weights_alone",
    "Biases are left out. Every parameter is in the dict.",
    lambda report, model: {name: norm for name, norm in report.items() if "weight" in name},
    lambda report, model: {
        name: report[name] for name, one in model.named_parameters() if one.dim() > 1
    },
)
changed(
    "own_parameters_alone",
    "Parameters of submodules are left out (`recurse=False`, `_parameters`, or one level of "
    "`children`).",
    lambda report, model: {name: report[name] for name in model._parameters},
    lambda report, model: {name: norm for name, norm in report.items() if name.count(".") < 2},
)
changed(
    "short_names",
    "The names are cut to their last part, so that `0.weight` and `3.weight` are one entry. Take "
    "them as `named_parameters()` gives them.",
    lambda report, model: {name.rpartition(".")[2]: norm for name, norm in report.items()},
)
changed(
    "names_without_dots",
    "The names are rewritten. Take them as `named_parameters()` gives them.",
    lambda report, model: {name.replace(".", "_"): norm for name, norm in report.items()},
    lambda report, model: {f"{name}.grad": norm for name, norm in report.items()},
)
changed(
    "numbers_for_names",
    "The keys are numbers. Each is the parameter's name, from `named_parameters()`.",
    lambda report, model: dict(enumerate(report.values())),
)
changed(
    "layers_for_parameters",
    "The keys are the names of layers. Each parameter has an entry of its own.",
    lambda report, model: {name.rpartition(".")[0]: norm for name, norm in report.items()},
)
changed(
    "parameters_for_names",
    "The keys are the parameters themselves. Each key is the parameter's name.",
    lambda report, model: {one: report[name] for name, one in model.named_parameters()},
)
changed(
    "one_number_for_all",
    "You returned one number. A dict with a norm for each parameter is asked for.",
    lambda report, model: sum(norm**2 for norm in report.values() if norm) ** 0.5,
)
changed(
    "list_for_dict",
    "You returned a list. A dict from names to norms is asked for.",
    lambda report, model: list(report.items()),
)
changed(
    "total_added",
    "There is an entry that is no parameter's name. The dict has the parameters and nothing else.",
    lambda report, model: report | {"total": sum(norm or 0.0 for norm in report.values())},
)
changed(
    "buffers_too",
    "The dict has buffers in it, such as a batch norm's means (`state_dict`). They are no "
    "parameters: go through `named_parameters()`.",
    lambda report, model: {name: report.get(name) for name in model.state_dict()},
)
changed(
    "forgot_to_return",
    "You returned nothing (printing is not returning): end with `return`.",
    lambda report, model: None,
)


@gradient_report(
    "These are the norms of the parameters, not of their gradients: take `parameter.grad`."
)
def norms_of_the_weights(model, x):
    right_report(model, x)
    return {name: length(one) for name, one in model.named_parameters()}


# Modes


def with_modes(before, after=lambda model, were: None, always=False):
    """A right report, after `before(model)` and followed by `after(model, the modes before)`.

    `after` runs also when the report raises, if `always`.
    """

    def function(model, x):
        were = {one: one.training for one in model.modules()}
        before(model)
        try:
            report = right_report(model, x)
        except Exception:
            if always:
                after(model, were)
            raise
        after(model, were)
        return report

    return function


def _restore(model, were):
    for module, training in were.items():
        module.training = training


def _restore_the_top(model, were):
    model.train(were[model])


gradient_report.add(
    "runs_in_training_mode",
    "You called `model.train()`. The pass runs in the mode the model is in: dropout and batch norm "
    "do other things in the other.",
    with_modes(lambda model: model.train(), _restore),
    with_modes(lambda model: model.train(), _restore, always=True),
    with_modes(lambda model: model.train(), _restore_the_top),
    with_modes(lambda model: model.train(), _restore_the_top, always=True),
    with_modes(lambda model: model.train()),
)
gradient_report.add(
    "runs_in_eval_mode",
    "You called `model.eval()`. The pass runs in the mode the model is in: dropout and batch norm "
    "do other things in the other.",
    with_modes(lambda model: model.eval(), _restore),
    with_modes(lambda model: model.eval(), _restore, always=True),
    with_modes(lambda model: model.eval(), _restore_the_top),
    with_modes(lambda model: model.eval(), _restore_the_top, always=True),
    with_modes(lambda model: model.eval()),
    with_modes(lambda model: model.eval(), lambda model, were: model.train()),
)
gradient_report.add(
    "one_mode_for_all",
    "You put every submodule into the model's own mode: `model.train(model.training)` reaches all "
    "of them. Some may be in eval mode on purpose.",
    with_modes(lambda model: model.train(model.training)),
    with_modes(lambda model: model.train(model.training), _restore, always=True),
    with_modes(lambda model: None, _restore_the_top),
    with_modes(lambda model: None, _restore_the_top, always=True),
)
gradient_report.add(
    "left_in_training_mode",
    "You left the model in training mode. Its modes are not yours to change.",
    with_modes(lambda model: None, lambda model, were: model.train()),
)
gradient_report.add(
    "left_in_eval_mode",
    "You left the model in eval mode. Its modes are not yours to change.",
    with_modes(lambda model: None, lambda model, were: model.eval()),
)

# Gradients that are left, or were there


def clear(model):
    for one in model.parameters():
        one.grad = None


def set_to_zero(model):
    model.zero_grad(set_to_none=False)


def nothing(model):
    pass


def by_backward(before=clear, after=clear, guard=refuse, backward=None, frozen=True):
    """A report by `loss.backward()`, with `before` and `after` it done to the model.

    The `.grad` of `frozen` parameters is read too.
    """

    def function(model, x):
        before(model)
        (backward or torch.Tensor.backward)(mean_square(model, x))
        found = {
            name: one.grad if frozen or one.requires_grad else None
            for name, one in model.named_parameters()
        }
        guard(found)
        report = {name: None if one is None else length(one) for name, one in found.items()}
        after(model)
        return report

    return function


def finally_clear(function):
    def guarded(model, x):
        try:
            return function(model, x)
        finally:
            clear(model)

    return guarded


gradient_report.add(
    "gradients_left_behind",
    "The gradients of this pass are left in `.grad`, and the next `step` of an optimizer would use "
    "them. Clear them, or use `torch.autograd.grad`, which writes none.",
    by_backward(after=nothing),
    by_backward(before=set_to_zero, after=nothing),
)
gradient_report.add(
    "added_to_earlier_gradients",
    "Gradients that were there already are in your numbers: `backward` adds to `.grad`. Clear "
    "them first, or use `torch.autograd.grad`.",
    by_backward(before=nothing),
    finally_clear(by_backward(before=nothing)),
)
gradient_report.add(
    "added_up_and_left",
    "`backward` adds to `.grad`. You clear neither before nor after, so earlier gradients are in "
    "your numbers, and yours stay behind.",
    by_backward(before=nothing, after=nothing),
    by_backward(before=nothing, after=nothing, frozen=False),
)
gradient_report.add(
    "zeros_left_behind",
    "Zeros are left in `.grad` (`set_to_none=False`, `.zero_()`), where None or something else "
    "stood. An optimizer with momentum moves on zeros too.",
    lambda model, x: _with_zeros_after(model, x),
    by_backward(after=set_to_zero),
    lambda model, x: set_to_zero(model) or right_report(model, x),
)


def _with_zeros_after(model, x):
    try:
        return by_backward(after=nothing)(model, x)
    finally:
        set_to_zero(model)


gradient_report.add(
    "not_cleaned_up_when_it_raises",
    "When it raises, gradients are left behind that were not there: what comes after `raise` does "
    "not run. Put the cleaning into `finally`, or use `torch.autograd.grad`.",
    by_backward(),
)


def _kept(always, frozen=True):
    """Adds to the `.grad` it kept and puts that back: `always`, or when nothing is raised."""

    def function(model, x):
        before = {one: one.grad for one in model.parameters()}
        done = False
        try:
            report = by_backward(before=nothing, after=nothing, frozen=frozen)(model, x)
            done = True
        finally:
            if done or always:
                for one, gradient in before.items():
                    one.grad = gradient
        return report

    return function


gradient_report.add(
    "kept_without_clearing",
    "You kept the earlier `.grad` without clearing it. `backward` adds into that very tensor, so "
    "what you put back is changed, and your numbers hold both. Keep it, then set `.grad` to None.",
    _kept(always=True),
    _kept(always=False),
    _kept(always=False, frozen=False),
)


@gradient_report(
    "Earlier gradients came back changed. Either leave `.grad` alone, or put back what was there."
)
def earlier_gradients_changed(model, x):
    report = right_report(model, x)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return report


def _twice(loss):
    loss.backward(retain_graph=True)
    loss.backward()


@gradient_report(
    "A frozen parameter still holds the `.grad` of an earlier pass, and you reported that. No "
    "gradient of this pass arrives there: None."
)
def earlier_gradient_of_a_frozen_parameter(model, x):
    report = right_report(model, x)
    for name, one in model.named_parameters():
        if not one.requires_grad and one.grad is not None:
            report[name] = length(one.grad)
    return report


@gradient_report(
    "You call the model anew for each parameter. With dropout each call drops others, so the "
    "numbers belong to different passes: call it once, and take all gradients from that loss."
)
def a_pass_for_each_parameter(model, x):
    found = {name: gradients(model, x)[name] for name, _ in model.named_parameters()}
    refuse(found)
    return {name: None if one is None else length(one) for name, one in found.items()}


gradient_report.add(
    "two_passes",
    "You ran back twice, and `backward` adds up. One pass is asked for.",
    finally_clear(by_backward(backward=_twice)),
)


def _modes_not_restored_when_it_raises(model, x):
    were = {one: one.training for one in model.modules()}
    model.zero_grad()
    try:
        report = right_report(model, x)
    except Exception:
        model.eval()
        raise
    _restore(model, were)
    return report


gradient_report.add(
    "modes_changed_when_it_raises",
    "When it raises, the modes are not what they were. Don't touch them, or restore them in "
    "`finally`.",
    _modes_not_restored_when_it_raises,
)

# Gradients that are not finite


def guards(name, sentence, *others):
    gradient_report.add(name, sentence, *(report_by(guard=one) for one in others))


def raising(choose, error=ValueError, words="the gradient of {} is not finite"):
    """A guard that raises with the name `choose(found)` returns, unless that is None."""

    def guard(found):
        name = choose(found)
        if name is not None:
            raise error(words.format(name))

    return guard


def _all_not_finite(found):
    return [name for name, one in found.items() if one is not None and not one.isfinite().all()]


guards(
    "lets_anything_pass",
    "A gradient with NaN or infinity has to raise a ValueError. Look at each: "
    "`torch.isfinite(gradient).all()`.",
    nothing,
)
guards(
    "looks_for_nan_alone",
    "You looked for NaN alone. Infinity is not finite either: `torch.isfinite` sees both.",
    raising(
        lambda found: next(
            (name for name, one in found.items() if one is not None and one.isnan().any()), None
        )
    ),
)
guards(
    "looks_for_infinity_alone",
    "You looked for infinity alone. NaN is not finite either: `torch.isfinite` sees both.",
    raising(
        lambda found: next(
            (name for name, one in found.items() if one is not None and one.isinf().any()), None
        )
    ),
)
guards(
    "refuses_where_all_are_bad",
    "You raise only where every entry is bad (`.any()` for `.all()`). One is enough: "
    "`not torch.isfinite(gradient).all()`.",
    raising(
        lambda found: next(
            (n for n, one in found.items() if one is not None and not one.isfinite().any()), None
        )
    ),
)
guards(
    "names_the_last",
    "The error names the last parameter whose gradient is not finite. The first is asked for.",
    raising(lambda found: (_all_not_finite(found) or [None])[-1]),
)
guards(
    "names_none",
    "The error doesn't hold the parameter's name. Put it into the message, whole, as "
    "`named_parameters()` gives it.",
    raising(first_not_finite, words="a gradient is not finite"),
)
guards(
    "names_the_layer",
    "The error names the layer, not the parameter. Give the name as `named_parameters()` does.",
    raising(lambda found: (name := first_not_finite(found)) and name.rpartition(".")[0]),
)
guards(
    "names_the_first_of_all",
    "The error names the model's first parameter, whatever its gradient. Name the first one whose "
    "gradient is not finite.",
    raising(lambda found: next(iter(found)) if first_not_finite(found) else None),
    raising(
        lambda found: (
            next(name for name, one in found.items() if one is not None)
            if first_not_finite(found)
            else None
        )
    ),
)
for other in (RuntimeError, AssertionError, FloatingPointError, Exception):
    guards(
        f"raises_{other.__name__}",
        f"A gradient that is not finite raised {'an' if other.__name__[0] in 'AE' else 'a'} "
        f"{other.__name__}. The callers look for a ValueError.",
        raising(first_not_finite, other),
    )


def _loss_guarded(words):
    def loss_of(model, x):
        loss = mean_square(model, x)
        if not loss.isfinite():
            raise ValueError(words.format(next(iter(model.named_parameters()))[0]))
        return loss

    return loss_of


gradient_report.add(
    "looks_at_the_loss",
    "You looked at the loss. A finite loss can have a gradient that is not: look at each gradient, "
    "and name the parameter.",
    report_by(loss=_loss_guarded("the loss is not finite"), guard=nothing),
    report_by(loss=_loss_guarded("the loss is not finite")),
    report_by(loss=_loss_guarded("{} is not finite"), guard=nothing),
)


@gradient_report(
    "You replaced what is not finite by a number. It has to raise a ValueError, so that nobody "
    "trains on it."
)
def bad_values_replaced(model, x):
    return report_by(guard=nothing, measure=lambda one: length(one.nan_to_num()))(model, x)


def _swallowed(model, x):
    try:
        return right_report(model, x)
    except Exception:
        return None


def _model_s_errors_swallowed(model, x):
    try:
        model(x)
    except Exception:
        return None
    return right_report(model, x)


gradient_report.add(
    "errors_swallowed",
    "You caught the error (`except`) and went on. It has to reach the caller: `finally` cleans up "
    "and lets it pass.",
    _swallowed,
    _model_s_errors_swallowed,
)


def _skipped(model, x):
    def measure(one):
        return length(one) if one.isfinite().all() else None

    return report_by(guard=nothing, measure=measure)(model, x)


def _left_out(model, x):
    found = gradients(model, x)
    kept = {name: one for name, one in found.items() if one is None or one.isfinite().all()}
    return {name: None if one is None else length(one) for name, one in kept.items()}


gradient_report.add(
    "bad_values_skipped",
    "You skipped gradients that are not finite. They raise a ValueError.",
    _skipped,
    _left_out,
)


# The model and x themselves


def _after(name, sentence, *others):
    """Add right reports that do `other(model, x)` afterwards."""

    def function(other):
        def answer(model, x):
            report = right_report(model, x)
            other(model, x)
            return report

        return answer

    gradient_report.add(name, sentence, *map(function, others))


def _step(model, x):
    found = gradients(model, x)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if found[name] is not None:
                one -= 0.01 * found[name]


_after(
    "takes_a_step",
    "The weights were changed: a report takes no step of an optimizer.",
    _step,
)
_after(
    "thaws_the_model",
    "You switched `requires_grad` on. Frozen parameters stay frozen.",
    lambda model, x: model.requires_grad_(),
)


def _frozen_afterwards(model, x):
    trained = [one for one in model.parameters() if one.requires_grad]
    report = right_report(model, x) if trained else dict.fromkeys(dict(model.named_parameters()))
    model.requires_grad_(False)
    return report


def _frozen_and_stopped_by_it(model, x):
    report = right_report(model, x)
    model.requires_grad_(False)
    return report


gradient_report.add(
    "freezes_the_model",
    "You switched `requires_grad` off. The model has to train on.",
    _frozen_afterwards,
    _frozen_and_stopped_by_it,
)
_after(
    "changes_x",
    "x itself was changed. Make a new tensor.",
    lambda model, x: x.detach().zero_(),
)


@gradient_report(
    "You gave frozen parameters a gradient: `requires_grad_()` thaws them. Theirs is None."
)
def frozen_measured_too(model, x):
    were = {one: one.requires_grad for one in model.parameters()}
    model.requires_grad_()
    try:
        return right_report(model, x)
    finally:
        for one, was in were.items():
            one.requires_grad_(was)


@gradient_report(
    "A frozen parameter stopped it: its gradient can't be asked for. Leave those with "
    "`requires_grad=False` out of what you ask for, and give them None."
)
def stopped_by_a_frozen_parameter(model, x):
    names, parameters = zip(*model.named_parameters(), strict=True)
    arrived = torch.autograd.grad(mean_square(model, x), parameters, allow_unused=True)
    found = dict(zip(names, arrived, strict=True))
    refuse(found)
    return {name: None if one is None else length(one) for name, one in found.items()}


@gradient_report(
    "A parameter without a gradient stopped it: `.grad` is None there, and None has no `norm`."
)
def stopped_by_none(model, x):
    found = gradients(model, x)
    refuse({name: one for name, one in found.items() if one is not None})
    return {name: found[name].norm().item() for name in found}


@gradient_report(
    "A trainable parameter that the model doesn't use stopped it. `torch.autograd.grad` gives None "
    "for it with `allow_unused=True`."
)
def stopped_by_an_unused_parameter(model, x):
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    arrived = torch.autograd.grad(mean_square(model, x), list(trained.values()))
    found = dict(zip(trained, arrived, strict=True))
    refuse(found)
    return {
        name: length(found[name]) if name in found else None for name, _ in model.named_parameters()
    }


gradient_report.add(
    "no_graph",
    "You asked for gradients under `no_grad`, so there is no graph to run back through.",
    lambda model, x: mean_square(model, x).detach().backward(),
    lambda model, x: dict.fromkeys(right_report(model, x)),
)


@gradient_report(
    "You converted x to float32. A model in another dtype needs x as it is.",
)
def x_converted(model, x):
    return right_report(model, x.float())


@gradient_report(
    "You moved x to the CPU, or made a new tensor there. On a GPU the model is elsewhere."
)
def x_moved_to_the_cpu(model, x):
    return right_report(model, x.cpu())


@gradient_report(
    "You switched on gradients for x. Only those of the parameters are asked for, and x may hold "
    "token ids, which have none."
)
def gradients_switched_on_for_x(model, x):
    return right_report(model, x.requires_grad_())


gradient_report.add(
    "model_moved_to_the_cpu",
    "You moved the model to the CPU. It stays where it is: whoever called you trains it there.",
    lambda model, x: right_report(model.cpu(), x.cpu()),
    lambda model, x: right_report(model.cpu(), x),
)


gradient_report.add(
    "model_converted",
    "You converted the model (`.float()`, `.double()`). It has its own dtype, and the way back is "
    "no way: digits are lost.",
    lambda model, x: right_report(model.float(), x.float()),
    lambda model, x: right_report(model.float(), x),
    lambda model, x: right_report(model.double(), x.double()),
    lambda model, x: _in_float32(model, x),
)


def _in_float32(model, x):
    dtype = next(model.parameters()).dtype
    try:
        return right_report(model.float(), x.to(torch.float32))
    finally:
        model.to(dtype)


@gradient_report("These are gradients with respect to x. Each parameter has its own.")
def gradient_of_x(model, x):
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(mean_square(model, x), [x])
    return {name: length(found) for name, _ in model.named_parameters()}


@gradient_report(
    "You took each row's gradient norm and averaged. There is one pass over the whole of x."
)
def averaged_over_rows(model, x):
    reports = [right_report(model, x[row : row + 1]) for row in range(len(x))]
    return {
        name: None if norm is None else sum(one[name] for one in reports) / len(reports)
        for name, norm in reports[0].items()
    }


residual_quiz = quiz_mistakes(
    "residual_quiz",
    "cadbda",
    {
        1: {
            "a": "Zeros added to a number leave it as it was. Nothing is multiplied here.",
            "b": "Only a norm on the sum could do that, and pre-norm has none there: its norm is "
            "for the branch's eyes.",
            "d": "The branch reads the normalized x, but answers with zeros; what it answers is "
            "what is added.",
        },
        2: {
            "b": "torch raises an error only for axes that differ where neither has length 1. Here "
            "one of them has.",
            "c": "Addition never cuts a tensor short; the axis of length 1 is treated otherwise.",
            "d": "Nothing is spread over the tokens in shares: each of them gets the same full "
            "numbers.",
        },
        3: {
            "a": "At p = 0.1 nine of ten features pass one layer. They have to pass all twelve.",
            "b": "Only a feature that is dropped nowhere comes through, and each layer drops anew: "
            "multiply, don't add.",
            "c": "That would be so if the masks fell on the branch alone. Here they fall on the "
            "sum, old path included.",
        },
        4: {
            "a": "The norm in front of the branch touches what the branch reads, not what is "
            "added to.",
            "c": "Both have a shortcut from end to end. Ask what stands on it.",
            "d": "Each has one norm for each branch; what differs is where it stands.",
        },
        5: {
            "a": "Building a graph is one thing, what a layer computes another; this line is "
            "about the graph alone.",
            "b": "Whether a layer drops depends on its `training` flag, and nothing here has set "
            "that.",
            "c": "No mode was changed. Dropout looks at its own flag and at nothing else.",
        },
        6: {
            "b": "`backward` adds to what is in `.grad`; it overwrites nothing.",
            "c": "Nothing is refused: a second backward pass of a new loss is allowed.",
            "d": "No mean is taken; what arrives is added to what is there.",
        },
    },
)
