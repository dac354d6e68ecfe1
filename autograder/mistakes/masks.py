"""Known wrong answers of lesson 05, each with the sentence its author should hear.

Masks, the softmax and attention are each written once with their parts as arguments, the cache and
the module once with their steps as methods, so that a mistake is one part or one step gone wrong.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.masks import KVCache
from solutions.masks import allowed_mask as right_allowed
from solutions.masks import attention as right_attention
from solutions.masks import causal_blocked_mask as right_causal
from solutions.masks import masked_softmax as right_softmax
from solutions.positions import apply_rope

causal_blocked_mask = Mistakes("causal_blocked_mask")
padding_blocked_mask = Mistakes("padding_blocked_mask")
allowed_mask = Mistakes("allowed_mask")
masked_softmax = Mistakes("masked_softmax")
attention = Mistakes("attention")
kv_cache = Mistakes("KVCache")
multi_head = Mistakes("ManualMultiHeadAttention")

# What people put in a mask's place, and what they ask of it.
NUMBERS = (torch.float32, torch.int64, torch.int32, torch.uint8)
LOW = (-math.inf, -1e9, -1e4)
TRUTH = "`not`, `and`, `or` and `if` ask for one truth, and a tensor of many has none. "


# causal_blocked_mask


def causal(name, sentence, *makes):
    """Add functions that return `make` of a (T, T) tensor of True on the device."""

    def function(make):
        return lambda length, device=None: make(
            torch.ones(length, length, dtype=torch.bool, device=device)
        )

    causal_blocked_mask.add(name, sentence, *map(function, makes))


causal(
    "polarity_inverted",
    "Your mask is True where a token may look. This one is `blocked`: True where it may not, so "
    "above the diagonal.",
    lambda ones: ones.tril(),
)
causal(
    "diagonal_blocked",
    "You blocked the diagonal too, so a token can't see itself and the first one sees nothing. "
    "Begin one above it: `triu(diagonal=1)`.",
    lambda ones: ones.triu(),
)
causal(
    "next_token_visible",
    "You begin two above the diagonal, so each token sees the next one: just what it has to guess. "
    "Begin one above it: `triu(diagonal=1)`.",
    lambda ones: ones.triu(2),
)
causal(
    "past_blocked",
    "You blocked the past. Rows are queries and columns are keys: the future of row i is to its "
    "right, above the diagonal.",
    lambda ones: ones.tril(-1),
)
causal(
    "numbers_in_place_of_bool",
    "Your mask holds 0 and 1. It is bool: end with `.bool()`, or compare, or begin with "
    "`dtype=torch.bool`.",
    *(lambda ones, dtype=dtype: ones.triu(1).to(dtype) for dtype in NUMBERS),
)
causal(
    "minus_infinity_in_place_of_bool",
    "Your mask holds 0 and minus infinity, or what is as good, to be added to scores. This one is "
    "bool: True where it is blocked.",
    *(
        lambda ones, low=low: torch.zeros_like(ones, dtype=torch.float32).masked_fill(
            ones.triu(1), low
        )
        for low in LOW
    ),
)
causal(
    "axes_added",
    "You added an axis for the batch or the heads. The mask is (T, T), and `allowed_mask` sees to "
    "the rest.",
    lambda ones: ones.triu(1)[None],
    lambda ones: ones.triu(1)[None, None],
)
causal("forgot_to_return", "You returned nothing: end with `return`.", lambda ones: None)


@causal_blocked_mask(
    "You made the mask on the CPU, whatever `device` says. Pass it on: `device=device`.",
)
def device_ignored(length, device=None):
    return right_causal(length)


@causal_blocked_mask(
    "Your function has no argument `device`. The mask has to be made where the scores are."
)
def no_device(length):
    return right_causal(length)


# padding_blocked_mask


def padding(name, sentence, *functions):
    padding_blocked_mask.add(name, sentence, *functions)


padding(
    "polarity_inverted",
    "Your mask is True at real tokens. This one is `blocked`: True at padding.",
    lambda token_ids, pad_id=0: token_ids != pad_id,
)
padding(
    "pad_id_ignored",
    "The `pad_id` you were given is not used: yours is always 0.",
    lambda token_ids, pad_id=0: token_ids == 0,
    lambda token_ids, pad_id=0: ~token_ids.bool(),
)
padding(
    "smaller_ids_blocked",
    "You compared with `<=`. Padding is what equals `pad_id`.",
    lambda token_ids, pad_id=0: token_ids <= pad_id,
)
padding(
    "right_side_alone",
    "You marked padding on the right alone. Models that write are padded on the left: compare each "
    "id with `pad_id`.",
    lambda token_ids, pad_id=0: (token_ids == pad_id).flip(1).long().cumprod(1).flip(1).bool(),
)
padding(
    "counted_from_the_left",
    "You counted the real tokens, and took them to stand at the beginning. Padding may be on the "
    "left: compare each id with `pad_id`.",
    lambda token_ids, pad_id=0: (
        torch.arange(token_ids.shape[1], device=token_ids.device)
        >= (token_ids != pad_id).sum(1, keepdim=True)
    ),
)
padding(
    "numbers_in_place_of_bool",
    "Your mask holds 0 and 1. It is bool, as a comparison gives it.",
    *(
        lambda token_ids, pad_id=0, dtype=dtype, turn=turn: ((token_ids == pad_id) ^ turn).to(dtype)
        for dtype in NUMBERS
        for turn in (False, True)
    ),
)
padding(
    "minus_infinity_in_place_of_bool",
    "Your mask holds 0 and minus infinity, or what is as good, to be added to scores. This one is "
    "bool: True at padding.",
    *(
        lambda token_ids, pad_id=0, low=low: torch.zeros(
            token_ids.shape, device=token_ids.device
        ).masked_fill(token_ids == pad_id, low)
        for low in LOW
    ),
)
padding(
    "axes_added",
    "You added axes for the heads and the queries. The mask is (B, T), and `allowed_mask` sees to "
    "the rest.",
    lambda token_ids, pad_id=0: (token_ids == pad_id)[:, None, None, :],
    lambda token_ids, pad_id=0: (token_ids == pad_id)[:, None, :],
    lambda token_ids, pad_id=0: (token_ids == pad_id)[:, :, None],
    lambda token_ids, pad_id=0: (token_ids == pad_id)[:, None, :].expand(
        -1, token_ids.shape[1], -1
    ),
)
padding("forgot_to_return", "You returned nothing: end with `return`.", lambda *_, **__: None)


@padding_blocked_mask("You changed `token_ids` itself. A comparison makes a new tensor.")
def changes_token_ids(token_ids, pad_id=0):
    mask = token_ids == pad_id
    token_ids -= pad_id
    token_ids[mask] = 1
    return mask


@padding_blocked_mask(
    "You made a new tensor without `device=token_ids.device`. It is on the CPU, and a GPU refuses "
    "to mix."
)
def mask_on_the_cpu(token_ids, pad_id=0):
    return token_ids == torch.full(token_ids.shape, pad_id)


# allowed_mask


def allowed_by(
    pairs=lambda one: ~one,
    keys=lambda one: ~one[:, None, None, :],
    join=lambda one, other: one & other,
    nothing=lambda: torch.tensor(True),
):
    """`pairs` and `keys` turn a mask, `join` puts the two together, `nothing` is for neither."""

    def function(blocked_pairs=None, blocked_keys=None):
        found = [] if blocked_pairs is None else [pairs(blocked_pairs)]
        found += [] if blocked_keys is None else [keys(blocked_keys)]
        if len(found) == 2:
            return join(*found)
        return found[0] if found else nothing()

    return function


allowed_mask.add(
    "polarity_kept",
    "You joined the masks and did not turn them: yours is True where it is blocked. `allowed` is "
    "True where a query may look.",
    allowed_by(
        lambda one: one,
        lambda one: one[:, None, None, :],
        lambda one, other: one | other,
        lambda: torch.tensor(False),
    ),
    allowed_by(lambda one: one, lambda one: one[:, None, None, :], lambda one, other: one | other),
)
allowed_mask.add(
    "pairs_not_turned",
    "You turned the keys and not the pairs. `blocked_pairs` is True where it is blocked, too.",
    allowed_by(pairs=lambda one: one),
)
allowed_mask.add(
    "keys_not_turned",
    "You turned the pairs and not the keys. `blocked_keys` is True at what is blocked, too.",
    allowed_by(keys=lambda one: one[:, None, None, :]),
)
allowed_mask.add(
    "either_is_enough",
    "You allow what one of the two masks allows. A query may look only where both do: turn each, "
    "then `&`; or join the blocked ones with `|`, then turn.",
    allowed_by(join=lambda one, other: one | other),
    allowed_by(keys=lambda one: (one | ~one)[:, None, None, :]),  # of True and the keys
)
allowed_mask.add(
    "keys_dropped_beside_pairs",
    "With both given you use the pairs alone, so padding is seen.",
    allowed_by(join=lambda one, other: one),
)
allowed_mask.add(
    "pairs_dropped_beside_keys",
    "With both given you use the keys alone, so the future is seen.",
    allowed_by(join=lambda one, other: other),
)
allowed_mask.add(
    "padding_put_on_queries",
    "You put `blocked_keys` on the query axis. Its tokens are keys, the last axis: "
    "`blocked_keys[:, None, None, :]`.",
    allowed_by(keys=lambda one: ~one[:, None, :, None]),
    allowed_by(keys=lambda one: ~one[:, :, None]),
)
allowed_mask.add(
    "axis_of_the_heads_missing",
    "`blocked_keys` needs two more axes, for the heads and the queries: (B, 1, 1, Tk). Torch lines "
    "shapes up from the right.",
    allowed_by(keys=lambda one: ~one[:, None, :]),
    allowed_by(keys=lambda one: ~one),
    allowed_by(keys=lambda one: ~one[None, None]),
    allowed_by(keys=lambda one: ~one[None, :, None, :]),
)
allowed_mask.add(
    "none_for_nothing_blocked",
    "With neither mask you return None. A True tensor was asked for: it broadcasts to anything.",
    allowed_by(nothing=lambda: None),
)
allowed_mask.add(
    "true_without_a_tensor",
    "With neither mask you return Python's True. A tensor was asked for: `torch.tensor(True)`.",
    allowed_by(nothing=lambda: True),
)


def turns_none(blocked_pairs=None, blocked_keys=None):
    return ~blocked_pairs & ~blocked_keys[:, None, None, :]


def joins_what_is_not_there(blocked_pairs=None, blocked_keys=None):
    if blocked_pairs is None and blocked_keys is None:
        raise UnboundLocalError
    return right_allowed(blocked_pairs, blocked_keys)


def turns_none_alone(blocked_pairs=None, blocked_keys=None):
    if blocked_pairs is None:
        return ~blocked_keys[:, None, None, :]
    if blocked_keys is None:
        return ~blocked_pairs
    return right_allowed(blocked_pairs, blocked_keys)


allowed_mask.add(
    "none_is_not_looked_at",
    "You use a mask without looking whether it is None. Each of the two may be.",
    turns_none,
    lambda blocked_pairs=None, blocked_keys=None: right_allowed(~~blocked_pairs, blocked_keys),
    lambda blocked_pairs=None, blocked_keys=None: right_allowed(blocked_pairs, ~~blocked_keys),
)
allowed_mask.add(
    "both_none_forgotten",
    "Each mask may be None, and both may: then nothing is blocked, and a True tensor was asked "
    "for.",
    turns_none_alone,
    joins_what_is_not_there,
)
allowed_mask.add(
    "truth_of_a_tensor",
    TRUTH + "Use `~`, `&` and `is not None`.",
    allowed_by(pairs=lambda one: not one),
    allowed_by(keys=lambda one: not one),
    allowed_by(pairs=lambda one: not one, keys=lambda one: not one),
    allowed_by(join=lambda one, other: one and other),
)


def as_numbers(make):
    return lambda blocked_pairs=None, blocked_keys=None: make(
        right_allowed(blocked_pairs, blocked_keys)
    )


allowed_mask.add(
    "numbers_in_place_of_bool",
    "Your mask holds 0 and 1. It is bool.",
    *(as_numbers(lambda one, dtype=dtype: one.to(dtype)) for dtype in NUMBERS),
)
allowed_mask.add(
    "minus_infinity_in_place_of_bool",
    "Your mask holds 0 and minus infinity, or what is as good, to be added to scores. This one is "
    "bool: True where a query may look.",
    *(as_numbers(lambda one, low=low: torch.where(one, 0.0, low)) for low in LOW),
)
allowed_mask.add(
    "forgot_to_return", "You returned nothing: end with `return`.", as_numbers(lambda one: None)
)
allowed_mask.add(
    "new_mask_on_the_cpu",
    "You made a new tensor without naming a device. It is on the CPU, and a GPU refuses to mix.",
    as_numbers(lambda one: one & torch.ones(one.shape, dtype=torch.bool)),
    as_numbers(lambda one: one.cpu()),
)


def turned_in_place(*places):
    def function(blocked_pairs=None, blocked_keys=None):
        allowed = right_allowed(blocked_pairs, blocked_keys)
        masks = (blocked_pairs, blocked_keys)
        for mask in (masks[place] for place in places if masks[place] is not None):
            mask.logical_not_()
        return allowed

    return function


allowed_mask.add(
    "changes_a_mask_in_place",
    "You changed a mask in place (`|=`, `logical_not_`). The caller still needs it.",
    turned_in_place(0, 1),
    turned_in_place(0),
    turned_in_place(1),
)


# masked_softmax, and attention around it

softmaxes: list[tuple[str, str, tuple[Any, ...]]] = []  # what attention is wrong about as well


def softmax(name, sentence, *functions):
    """Add wrong softmaxes; the attention that is built on each follows below."""
    masked_softmax.add(name, sentence, *functions)
    softmaxes.append((name, sentence, functions))


def filled(value, dim=-1):
    """Fill what is blocked with `value(scores)`, then the softmax."""
    return lambda scores, allowed: scores.masked_fill(~allowed, value(scores)).softmax(dim)


def zeroed(function):
    """`function`, with what is blocked set to 0 afterwards."""
    return lambda scores, allowed: function(scores, allowed).masked_fill(~allowed, 0.0)


def lowest(scores):
    return torch.finfo(scores.dtype).min


softmax(
    "polarity_inverted",
    "You hid what is allowed and kept what is blocked. `allowed` is True where a query may look: "
    "fill where it is False, `~allowed`.",
    lambda scores, allowed: right_softmax(scores, ~allowed),
    lambda scores, allowed: scores.masked_fill(allowed, -math.inf).softmax(-1),
    lambda scores, allowed: scores.masked_fill(allowed, lowest(scores)).softmax(-1),
    zeroed(lambda scores, allowed: scores.masked_fill(allowed, lowest(scores)).softmax(-1)),
    lambda scores, allowed: right_softmax(scores, allowed).masked_fill(allowed, 0.0),
)
softmax(
    "mask_has_no_effect",
    "Your mask has no effect. `masked_fill` returns a new tensor: use what it returns, or a "
    "softmax of the plain scores is left.",
    lambda scores, allowed: scores.softmax(-1),
)
softmax(
    "filled_with_zero",
    "You set blocked scores to 0. The softmax makes exp(0) = 1 of that, not 0: use the lowest "
    "number, or minus infinity.",
    filled(lambda scores: 0.0),
    lambda scores, allowed: (scores * allowed).softmax(-1),
)
softmax(
    "filled_with_zero_and_zeroed",
    "You set blocked scores to 0, and their weights to 0 after the softmax. In between they take "
    "exp(0) = 1 of each row's sum: fill with the lowest number.",
    zeroed(filled(lambda scores: 0.0)),
)
softmax(
    "masked_after_the_softmax",
    "You set weights to 0 after the softmax, so a row no longer sums to 1, and the future still "
    "counts in that sum. Fill the scores before the softmax.",
    lambda scores, allowed: scores.softmax(-1).masked_fill(~allowed, 0.0),
)


def shares(weigh):
    """The ways in which people hide what is blocked among weights, and divide by what is left."""
    return (
        lambda scores, allowed, hide=hide, divide=divide: divide(hide(weigh(scores), allowed))
        for hide in (
            lambda weights, allowed: weights * allowed,
            lambda weights, allowed: weights.masked_fill(~allowed, 0.0),
        )
        for divide in (
            lambda left: left / left.sum(-1, keepdim=True),
            lambda left: (left / left.sum(-1, keepdim=True)).nan_to_num(0.0),
            lambda left: left / left.sum(-1, keepdim=True).clamp(min=1e-9),
            *(
                lambda left, least=least: left / (left.sum(-1, keepdim=True) + least)
                for least in (1e-9, 1e-8, 1e-6)
            ),
        )
    )


softmax(
    "renormalized_after_the_softmax",
    "You set weights to 0 after the softmax and divided by what is left. Where a blocked score is "
    "much the highest, nothing is left to divide. Fill the scores before the softmax.",
    *shares(lambda scores: scores.softmax(-1)),
)


def small_fills(number):
    """The three ways in which people fill with a number."""
    fill = filled(lambda scores: number)
    return fill, zeroed(fill), lambda scores, allowed: (scores + ~allowed * number).softmax(-1)


softmax(
    "filled_with_a_small_number",
    "The number you filled with is not low enough: scores may be lower still, and then what is "
    "blocked gets the weight. Use `torch.finfo(scores.dtype).min`, or minus infinity.",
    *(one for number in (1e1, 1e2, 1e4, 65504.0, 1e6) for one in small_fills(-number)),
    zeroed(lambda scores, allowed: (scores + ~allowed * scores.new_tensor(-1e4)).softmax(-1)),
)
softmax(
    "number_does_not_fit_float16",
    "Your fill does not fit float16, which ends at -65504. Use the lowest number of the scores' "
    "own dtype, `torch.finfo(scores.dtype).min`, or minus infinity.",
    zeroed(filled(lambda scores: -1e9)),
    zeroed(filled(lambda scores: torch.finfo(torch.float32).min)),
)
softmax(
    "empty_rows_nan",
    "A row with nothing allowed became NaN: all its scores are minus infinity, and the softmax "
    "divides 0 by 0. Set the weights of what is blocked to 0 as well.",
    filled(lambda scores: -math.inf),
    lambda scores, allowed: (
        scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf)
    ).softmax(-1),
)
softmax(
    "empty_rows_uniform",
    "A row with nothing allowed looks everywhere alike: all its scores are the same number. Set "
    "the weights of what is blocked to 0 as well.",
    filled(lowest),
    filled(lambda scores: -1e9 if scores.dtype != torch.float16 else -6e4),
    filled(lambda scores: -1e9),
    lambda scores, allowed: (scores + ~allowed * -1e9).softmax(-1),
)
softmax(
    "nan_comes_back",
    "Going forward your empty rows are 0, but NaN comes back through them: `nan_to_num` cleans "
    "the result, and not what the softmax sends back to the scores. Make no NaN at all.",
    lambda scores, allowed: (
        (scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf))
        .softmax(-1)
        .nan_to_num(0.0)
    ),
    lambda scores, allowed: (
        (scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf))
        .softmax(-1)
        .masked_fill(~allowed, 0.0)
    ),
)


def over(dim):
    """The masked softmax over another axis."""
    return zeroed(filled(lowest, dim))


softmax(
    "softmax_over_the_queries",
    "Your softmax runs over the queries, `dim=-2`. Each query shares 1 among its keys: `dim=-1`.",
    over(-2),
)
softmax(
    "softmax_over_the_batch", "Your softmax runs over the batch. It belongs on `dim=-1`.", over(0)
)
softmax(
    "axis_counted_from_the_left",
    "You counted an axis from the left. There may be more axes or fewer: count from the right, "
    "where the last is -1 and the one before it -2.",
    *map(over, (1, 2, 3)),
)
softmax(
    "largest_score_not_taken_off",
    "You wrote exp(score) over its sum. exp of a large score is infinity, and infinity over "
    "infinity is NaN: take each row's largest score off first, or use `torch.softmax`.",
    *shares(torch.exp),
    zeroed(
        lambda scores, allowed: (
            scores.masked_fill(~allowed, lowest(scores)).exp()
            / scores.masked_fill(~allowed, lowest(scores)).exp().sum(-1, keepdim=True)
        )
    ),
)
softmax(
    "infinity_times_zero",
    "You multiplied the mask by minus infinity. Where it is 0 that makes NaN, not 0: use "
    "`masked_fill`.",
    lambda scores, allowed: (scores + ~allowed * -math.inf).softmax(-1),
    zeroed(lambda scores, allowed: (scores + ~allowed * -math.inf).softmax(-1)),
)
softmax(
    "mask_added_as_numbers",
    "You added the mask to the scores, so an allowed key gets 1 more and nothing is hidden. Use "
    "`masked_fill`.",
    lambda scores, allowed: (scores + allowed).softmax(-1),
    lambda scores, allowed: zeroed(lambda s, a: (s + a).softmax(-1))(scores, allowed),
)
softmax(
    "scores_detached",
    "You cut the scores out of the gradient (`.detach()`, `.data` or `no_grad`), so nothing would "
    "learn where to look.",
    lambda scores, allowed: right_softmax(scores.detach(), allowed),
)
softmax(
    "returns_float32",
    "You computed in float32 and returned it. The result has the dtype of the scores.",
    lambda scores, allowed: right_softmax(scores.float(), allowed),
    lambda scores, allowed: right_softmax(scores, allowed).float(),
)
softmax(
    "new_tensor_on_the_cpu",
    "You made a new tensor without `device=scores.device`. It is on the CPU, and a GPU refuses to "
    "mix.",
    lambda scores, allowed: (
        torch.zeros(scores.shape, dtype=scores.dtype) + right_softmax(scores, allowed)
    ),
)


@masked_softmax("You changed `allowed` in place. The caller still needs it: `~allowed` is new.")
def changes_the_mask(scores, allowed):
    weights = right_softmax(scores, allowed)
    allowed.logical_not_()
    return weights


def writes_into_scores(scores, allowed):
    weights = right_softmax(scores, allowed)
    scores.data.masked_fill_(~allowed, lowest(scores))
    return weights


def fills_in_place(scores, allowed):
    return right_softmax(scores.masked_fill_(~allowed, lowest(scores)), allowed)


def sets_by_index(scores, allowed):
    scores[~allowed] = lowest(scores)
    return right_softmax(scores, allowed)


masked_softmax.add(
    "changes_scores_in_place",
    "You wrote into the scores (`masked_fill_`, or an assignment to `scores[...]`). The caller "
    "still needs them: `masked_fill` makes a new tensor.",
    fills_in_place,
    writes_into_scores,
    sets_by_index,
)


def zeroes_in_place(scores, allowed):
    return filled(lowest)(scores, allowed).masked_fill_(~allowed, 0.0)


def zeroes_by_index(scores, allowed):
    weights = filled(lowest)(scores, allowed)
    weights[~allowed] = 0.0
    return weights


masked_softmax.add(
    "changes_weights_in_place",
    "You wrote into what the softmax made (`masked_fill_`, or an assignment to `weights[...]`), "
    "which it needs for its gradient: `masked_fill` makes a new tensor.",
    zeroes_in_place,
    zeroes_by_index,
)
masked_softmax.add(
    "mask_does_not_broadcast",
    "You picked scores with the mask as an index, which needs a mask as large as the scores. It "
    "may be smaller: `masked_fill` and `torch.where` broadcast.",
    lambda scores, allowed: zeroed(lambda s, a: indexed(s, a))(scores, allowed),
)
masked_softmax.add(
    "forgot_to_return", "You returned nothing: end with `return`.", lambda scores, allowed: None
)


def indexed(scores, allowed):
    scores = scores.clone()
    scores[~allowed] = lowest(scores)
    return scores.softmax(-1)


# attention


def attention_by(
    scores=lambda query, key: query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]),
    weigh=right_softmax,
    give=lambda weights, value: (weights @ value, weights),
):
    def function(query, key, value, allowed=None):
        found = scores(query, key)
        return give(found.softmax(-1) if allowed is None else weigh(found, allowed), value)

    return function


def unmasked_too(weigh):
    """Attention around a wrong softmax, which is wrong without a mask too."""
    ones = torch.ones(1, dtype=torch.bool)

    def function(query, key, value, allowed=None):
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = weigh(scores, ones.to(scores.device) if allowed is None else allowed)
        return weights @ value, weights

    return function


WITHOUT_A_MASK_TOO = {
    "softmax_over_the_queries",
    "softmax_over_the_batch",
    "axis_counted_from_the_left",
    "scores_detached",
    "returns_float32",
}
MORE: dict[str, list[Any]] = {
    "axis_counted_from_the_left": [
        attention_by(lambda query, key, turn=turn: query @ turn(key) / key.shape[-1] ** 0.5)
        for turn in (
            lambda key: key.transpose(1, 2),
            lambda key: key.transpose(2, 3),
            lambda key: key.permute(0, 2, 1),
            lambda key: key.permute(0, 1, 3, 2),
        )
    ],
    "returns_float32": [
        lambda query, key, value, allowed=None: right_attention(
            query.float(), key.float(), value.float(), allowed
        ),
        attention_by(give=lambda weights, value: ((weights @ value).float(), weights.float())),
    ],
    "new_tensor_on_the_cpu": [
        lambda query, key, value, allowed=None: right_attention(
            query,
            key,
            value,
            torch.ones(key.shape[-2], dtype=torch.bool) & (True if allowed is None else allowed),
        )
    ],
}
for name, sentence, functions in softmaxes:
    more = MORE.get(name, [])
    if name in WITHOUT_A_MASK_TOO:
        attention.add(name, sentence, *map(unmasked_too, functions), *more)
    else:
        attention.add(name, sentence, *(attention_by(weigh=one) for one in functions), *more)


def scaled(name, sentence, *scales):
    """Add attention whose dot products are multiplied by `scale(query, key)`."""
    attention.add(
        name,
        sentence,
        *(
            attention_by(lambda query, key, by=by: query @ key.transpose(-2, -1) * by(query, key))
            for by in scales
        ),
    )


scaled(
    "not_scaled",
    "You did not scale the scores. Divide by the root of D: without it they grow with the width, "
    "and the softmax picks a single key.",
    lambda query, key: 1.0,
)
scaled(
    "scaled_by_the_width",
    "You divided by D, or twice by its root. It is the root of D: `math.sqrt(query.shape[-1])`.",
    lambda query, key: 1 / query.shape[-1],
)
scaled(
    "multiplied_by_the_root",
    "You multiplied by the root of D. Divide by it.",
    lambda query, key: math.sqrt(query.shape[-1]),
)
scaled(
    "scaled_by_the_number_of_keys",
    "You divided by the root of the number of tokens. D is the width of a query, its last axis.",
    lambda query, key: 1 / math.sqrt(key.shape[-2]),
    lambda query, key: 1 / math.sqrt(query.shape[-2]),
)
scaled(
    "root_taken_twice",
    "You took the root of the root of D. One of query and key may be divided by the root, or both "
    "by the fourth root.",
    lambda query, key: query.shape[-1] ** -0.25,
)


attention.add(
    "scaled_after_the_softmax",
    "You divided the weights by the root of D. Divide the scores, before the softmax.",
    attention_by(
        lambda query, key: query @ key.transpose(-2, -1),
        give=lambda weights, value: (
            weights @ value / value.shape[-1] ** 0.5,
            weights / value.shape[-1] ** 0.5,
        ),
    ),
)
attention.add(
    "key_not_transposed",
    "You multiplied query and key without transposing the key. Its last two axes are exchanged "
    "first: `key.transpose(-2, -1)`.",
    attention_by(lambda query, key: query @ key / math.sqrt(query.shape[-1])),
)
attention.add(
    "all_axes_transposed",
    "`key.T` turns all axes around. Exchange the last two: `key.transpose(-2, -1)`.",
    attention_by(
        lambda query, key: query @ key.permute(*reversed(range(key.dim()))) / key.shape[-1] ** 0.5
    ),
)
attention.add(
    "query_and_key_exchanged",
    "Your scores are (Tk, Tq): a row for each key. Each query has a row: query times the "
    "transposed key.",
    lambda query, key, value, allowed=None: right_attention(key, query, query, allowed),
    attention_by(lambda query, key: key @ query.transpose(-2, -1) / math.sqrt(query.shape[-1])),
)
attention.add(
    "output_alone",
    "You returned the output alone. A pair is asked for: `return output, weights`.",
    attention_by(give=lambda weights, value: weights @ value),
)
attention.add(
    "weights_first",
    "You returned the weights first. The output comes first: `return output, weights`.",
    attention_by(give=lambda weights, value: (weights, weights @ value)),
)
attention.add(
    "values_exchanged_for_keys",
    "You mixed the keys. The output is made of the values: `weights @ value`.",
    lambda query, key, value, allowed=None: right_attention(query, key, key + 0 * value, allowed),
)
attention.add(
    "weights_detached",
    "You cut the weights out of the gradient before you returned them (`.detach()`). They are "
    "asked for as they were used.",
    attention_by(give=lambda weights, value: (weights @ value, weights.detach())),
)
attention.add(
    "values_detached",
    "You cut the values out of the gradient (`.detach()` or `.data`), so they would never learn.",
    attention_by(give=lambda weights, value: (weights @ value.detach(), weights)),
)


def weights_before_the_mask(query, key, value, allowed=None):
    output, _ = right_attention(query, key, value, allowed)
    return output, right_attention(query, key, value)[1]


def scores_as_weights(query, key, value, allowed=None):
    output, _ = right_attention(query, key, value, allowed)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    return output, scores if allowed is None else scores.masked_fill(~allowed, lowest(scores))


attention.add(
    "weights_before_the_mask",
    "The weights you return are those before the mask. Return what the values were multiplied by.",
    weights_before_the_mask,
)
attention.add(
    "scores_in_place_of_weights",
    "You returned the scores. Return what the softmax made of them.",
    scores_as_weights,
)


def changes_the_query(query, key, value, allowed=None):
    result = right_attention(query, key, value, allowed)
    query.data.div_(math.sqrt(query.shape[-1]))
    return result


def divides_the_query_in_place(query, key, value, allowed=None):
    query /= math.sqrt(query.shape[-1])
    scores = query @ key.transpose(-2, -1)
    weights = scores.softmax(-1) if allowed is None else right_softmax(scores, allowed)
    return weights @ value, weights


attention.add(
    "changes_the_query_in_place",
    "You scaled the query in place (`query /= …`). The caller still needs it: make a new tensor.",
    divides_the_query_in_place,
    changes_the_query,
)


@attention("You changed the mask in place. The caller still needs it: `~allowed` is new.")
def changes_allowed_in_place(query, key, value, allowed=None):
    result = right_attention(query, key, value, allowed)
    if allowed is not None:
        allowed.logical_not_()
    return result


@attention(
    "You called torch's own attention. It is right, and it is what this exercise asks you to "
    "write: three lines."
)
def torch_attention(query, key, value, allowed=None):
    output = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    return output, right_attention(query, key, value, allowed)[1]


def mask_needed_by_name(query, key, value, allowed):
    return right_attention(query, key, value, allowed)


def none_not_looked_at(query, key, value, allowed=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~allowed, lowest(scores)).softmax(-1)
    return weights @ value, weights


attention.add(
    "none_is_not_looked_at",
    "You use `allowed` without looking whether it is None: then nothing is blocked.",
    none_not_looked_at,
    mask_needed_by_name,
)
attention.add(
    "truth_of_a_tensor",
    TRUTH + "Ask whether it `is None`.",
    attention_by(weigh=lambda scores, allowed: right_softmax(scores, allowed or allowed)),
)
attention.add("forgot_to_return", "You returned nothing: end with `return`.", lambda *_, **__: None)


# KVCache


class Cache:
    """A right cache whose steps can go wrong one at a time."""

    def __init__(self, keys=None, values=None):
        self.keys, self.values = keys, values
        self.begin()

    def begin(self):
        pass

    @property
    def length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def join(self, old, new):
        return new if old is None else torch.cat([old, new], dim=2)

    def append(self, key, value):
        return type(self)(self.join(self.keys, key), self.join(self.values, value))


def caches(name, sentence, *steps):
    """Add a cache for each of `steps`, methods by name that go wrong."""
    kv_cache.add(name, sentence, *(type("KVCache", (Cache,), one) for one in steps))


def later(append):
    """Steps in which only what is appended to tokens goes wrong."""
    return {
        "append": lambda self, key, value: (
            type(self)(key, value) if self.keys is None else append(self, key, value)
        )
    }


def joined(dim):
    return {"join": lambda self, old, new: new if old is None else torch.cat([old, new], dim=dim)}


caches(
    "overwritten",
    "Your new cache holds the new tokens alone. They are joined behind the old ones: "
    "`torch.cat([self.keys, key], dim=2)`.",
    {"join": lambda self, old, new: new},
)
caches(
    "new_tokens_first",
    "You put the new tokens before the old ones. They come behind.",
    {"join": lambda self, old, new: new if old is None else torch.cat([new, old], dim=2)},
)
caches(
    "joined_along_the_heads",
    "You joined along axis 1, the heads. Tokens are axis 2 of (B, H, T, D).",
    joined(1),
)
caches(
    "joined_along_the_batch",
    "You joined along axis 0, the batch: `torch.cat` without `dim`. Tokens are axis 2 of "
    "(B, H, T, D).",
    joined(0),
)
caches(
    "joined_along_the_features",
    "You joined along the last axis, the features. Tokens are axis 2 of (B, H, T, D).",
    joined(3),
)
caches(
    "empty_cache_not_looked_at",
    "The first `append` finds None where old keys would be, and `torch.cat` can't join that. Look "
    "whether the cache is empty.",
    {"join": lambda self, old, new: torch.cat([old, new], dim=2)},
)
caches(
    "keys_and_values_exchanged",
    "You exchanged keys and values. Keys come first, here and in `append`.",
    {"begin": lambda self: self.__dict__.update(keys=self.values, values=self.keys)},
    {
        "append": lambda self, key, value: (
            type(self)(value, key) if self.keys is None else Cache.append(self, key, value)
        )
    },
    *(
        one
        for make in (
            lambda self, key, value: type(self)(
                self.join(self.values, value), self.join(self.keys, key)
            ),
            lambda self, key, value: type(self)(
                self.join(self.keys, value), self.join(self.values, key)
            ),
        )
        for one in ({"append": make}, later(make))
    ),
)
caches(
    "joined_to_the_other",
    "You joined `value` to the old keys, or `key` to the old values. Each goes behind its own.",
    later(
        lambda self, key, value: type(self)(self.join(self.keys, key), self.join(self.keys, value))
    ),
    later(
        lambda self, key, value: type(self)(
            self.join(self.values, key), self.join(self.values, value)
        )
    ),
)
caches(
    "one_of_two_joined",
    "You joined one of keys and values and not the other. The new cache holds all of both.",
    later(lambda self, key, value: type(self)(self.join(self.keys, key), value)),
    later(lambda self, key, value: type(self)(self.join(self.keys, key), self.values)),
    later(lambda self, key, value: type(self)(key, self.join(self.values, value))),
)
caches(
    "stacked",
    "`torch.stack` makes a new axis. Tokens are joined along one that is there: `torch.cat`.",
    {"join": lambda self, old, new: new if old is None else torch.stack([old, new], dim=2)},
)


class Grows(Cache):
    """Changes itself."""

    def append(self, key, value):
        self.keys, self.values = self.join(self.keys, key), self.join(self.values, value)
        return self


class GrowsAndCopies(Grows):
    def append(self, key, value):
        Grows.append(self, key, value)
        return type(self)(self.keys, self.values)


class GrowsAndReturnsNothing(Grows):
    def append(self, key, value):
        Grows.append(self, key, value)


kv_cache.add(
    "changes_itself",
    "`append` changed the cache that it was called on. It makes a new one and leaves the old one "
    "as it was: two texts may go on from one beginning.",
    Grows,
    GrowsAndCopies,
    *(type("KVCache", (Cache,), later(one.append)) for one in (Grows, GrowsAndCopies)),
)
kv_cache.add(
    "returns_nothing",
    "`append` returns nothing. It returns the new cache: `return KVCache(...)`.",
    GrowsAndReturnsNothing,
    *(
        type("KVCache", (Cache,), one)
        for make in [lambda self, key, value: None]
        for one in ({"append": make}, later(make))
    ),
)
caches(
    "returns_the_tensors",
    "`append` returns keys and values. Put them into a new `KVCache`.",
    *(
        one
        for kind in (tuple, list)
        for make in [
            lambda self, key, value, kind=kind: kind(
                (self.join(self.keys, key), self.join(self.values, value))
            )
        ]
        for one in ({"append": make}, later(make))
    ),
)


def with_length(length, **methods):
    return {"length": property(length), **methods}


caches(
    "length_counts_another_axis",
    "Your `length` is the size of another axis: the batch, as `len` gives it, the heads or the "
    "features. Tokens are axis 2 of (B, H, T, D).",
    *(
        with_length(lambda self, axis=axis: 0 if self.keys is None else self.keys.shape[axis])
        for axis in (0, 1, 3)
    ),
)
caches(
    "length_of_an_empty_cache",
    "An empty cache has the length 0. Look whether `keys` is None before you ask for its shape.",
    with_length(lambda self: self.keys.shape[2]),
)
caches(
    "truth_of_a_tensor",
    TRUTH + "Ask whether `keys` is None.",
    with_length(lambda self: self.keys.shape[2] if self.keys else 0),
    {"join": lambda self, old, new: torch.cat([old, new], dim=2) if old else new},
)
caches(
    "length_is_a_tensor",
    "Your `length` is a tensor or a float. An int is asked for, as `shape` has it.",
    with_length(lambda self: torch.tensor(0 if self.keys is None else self.keys.shape[2])),
    with_length(lambda self: 0 if self.keys is None else torch.tensor(self.keys.shape[2])),
    with_length(lambda self: 0.0 if self.keys is None else float(self.keys.shape[2])),
)
caches(
    "length_is_a_method",
    "`length` is a method, so `cache.length` is no number. Put `@property` above it.",
    {"length": lambda self: 0 if self.keys is None else self.keys.shape[2]},
)


def begins_with(empty):
    def begin(self):
        if self.keys is None:
            self.keys = self.values = empty

    return {
        "begin": begin,
        "length": property(lambda self: self.keys.shape[2] if len(self.keys) else 0),
    }


caches(
    "empty_tensors_for_none",
    "An empty cache has None for keys and values. Yours makes tensors of no tokens.",
    begins_with(torch.zeros(2, 3, 0, 4)),
    begins_with(torch.tensor([])),
    begins_with([]),
)


caches(
    "arguments_ignored",
    "You ignore the keys and values that `KVCache(keys, values)` is given.",
    {
        "begin": lambda self: self.__dict__.update(keys=None, values=None),
        "append": lambda self, key, value: _grown(self, key, value),
    },
)


def _grown(cache, key, value):
    new = type(cache)()
    new.keys, new.values = cache.join(cache.keys, key), cache.join(cache.values, value)
    return new


caches(
    "detached",
    "You cut keys and values out of the gradient (`.detach()`, `.data` or `no_grad`). A cache only "
    "joins them.",
    {
        "join": lambda self, old, new: (
            new.detach() if old is None else torch.cat([old.detach(), new.detach()], dim=2)
        )
    },
    {
        "append": lambda self, key, value: torch.no_grad()(Cache.append)(self, key, value),
    },
)
caches(
    "float32_always",
    "You turn keys and values into float32. They keep their dtype.",
    {"begin": lambda self: _each(self, lambda one: one.float())},
)
caches(
    "kept_on_the_cpu",
    "You copy into a tensor that is on the CPU. Keys and values stay on their device: `torch.cat` "
    "sees to that.",
    {"join": lambda self, old, new: _copied(old, new)},
    {"begin": lambda self: _each(self, lambda one: one.cpu())},
)


def _each(cache, change):
    if cache.keys is not None:
        cache.keys, cache.values = change(cache.keys), change(cache.values)


def _copied(old, new):
    past = 0 if old is None else old.shape[2]
    room = torch.zeros(*new.shape[:2], past + new.shape[2], new.shape[3], dtype=new.dtype)
    if past:
        room[:, :, :past] = old
    room[:, :, past:] = new
    return room


# ManualMultiHeadAttention, a step at a time


class Attention(nn.Module):
    query_projection: nn.Module
    key_projection: nn.Module
    value_projection: nn.Module
    output_projection: nn.Module

    def __init__(self, d_model, num_heads, dropout=0.0, use_rope=False):
        super().__init__()
        self.refuse(d_model, num_heads)
        self.width, self.num_heads, self.use_rope = d_model, num_heads, use_rope
        self.make_layers(d_model)
        self.dropout = nn.Dropout(dropout)

    def refuse(self, width, heads):
        if width % heads:
            raise ValueError(f"{width} features can't be shared by {heads} heads")

    def make_layers(self, width):
        self.update([f"{name}_projection" for name in ("query", "key", "value", "output")], width)

    def update(self, names, width, **widths):
        for name in (*names, *widths):
            setattr(self, name, nn.Linear(width, widths.get(name, width)))

    def sources(self, x, memory):
        """What queries, keys and values are made of."""
        source = x if memory is None else memory
        return x, source, source

    def project(self, x, memory):
        sources = self.sources(x, memory)
        return (
            self.query_projection(sources[0]),
            self.key_projection(sources[1]),
            self.value_projection(sources[2]),
        )

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)

    def positions(self, past, length, device):
        return past + torch.arange(length, device=device)

    def rotate(self, x, past):
        return apply_rope(x, self.positions(past, x.shape[2], x.device))

    def turns(self, memory):
        return self.use_rope and memory is None

    def turn(self, query, key, value, past, memory):
        if self.turns(memory):
            query, key = self.rotate(query, past), self.rotate(key, past)
        return query, key, value

    def remembered(self, cache):
        return KVCache() if cache is None else cache

    def extend(self, past, key, value):
        return past.append(key, value)

    def blocked_pairs(self, queries, keys, device):
        return right_causal(keys, device)[keys - queries :]

    def blocked_keys(self, key_valid):
        return ~key_valid

    def allowed(self, pairs, keys, device):
        return right_allowed(pairs, keys).to(device)

    def scores(self, query, key):
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])

    def weigh(self, scores, allowed):
        return right_softmax(scores, allowed)

    def drop(self, weights):
        return self.dropout(weights)

    def mix(self, weights, values):
        return weights @ values

    def project_out(self, x):
        return self.output_projection(x)

    def silence(self, output, query_valid, key_valid):
        if query_valid is None:
            return output
        return output.masked_fill(~query_valid[:, :, None], 0.0)

    def give(self, output, cache, use_cache, weights):
        return (output, cache) if use_cache else output

    def attend(self, query, keys, values, pairs, blocked_keys):
        allowed = self.allowed(pairs, blocked_keys, query.device)
        weights = self.drop(self.weigh(self.scores(query, keys), allowed))
        return self.mix(weights, values), weights

    def forward(
        self,
        query_input,
        memory=None,
        *,
        key_valid=None,
        query_valid=None,
        causal=False,
        cache=None,
        use_cache=False,
    ):
        query, key, value = map(self.split, self.project(query_input, memory))
        past = self.remembered(cache)
        query, key, value = self.turn(query, key, value, past.length, memory)
        cache = self.extend(past, key, value)
        length = cache.keys.shape[2]
        pairs = self.blocked_pairs(query.shape[2], length, query.device) if causal else None
        hidden = None if key_valid is None else self.blocked_keys(key_valid)
        mixed, weights = self.attend(query, cache.keys, cache.values, pairs, hidden)
        output = self.project_out(self.merge(mixed))
        output = self.silence(output, query_valid, key_valid)
        return self.give(output, cache, use_cache, weights)


def heads(name, sentence, *steps):
    """Add a module for each of `steps`: methods by name that go wrong, or a whole class."""
    multi_head.add(
        name,
        sentence,
        *(one if isinstance(one, type) else type("Wrong", (Attention,), one) for one in steps),
    )


def layers(make):
    """The four layers, made in another way."""
    return {"make_layers": lambda self, width: make(self, width)}


def _each_layer(self, make, names=("query", "key", "value", "output")):
    for name in names:
        setattr(self, f"{name}_projection", make(name))


# Its layers

heads(
    "one_projection_for_all_three",
    "Queries, keys and values come from one and the same layer. Each has its own: a token looks "
    "for one thing, offers another, and hands over a third.",
    {
        "make_layers": lambda self, width: _shares(self, width, ("key", "value")),
    },
    {"project": lambda self, x, memory: (self.query_projection(x),) * 3},
    {
        "project": lambda self, x, memory: tuple(
            self.query_projection(one) for one in self.sources(x, memory)
        )
    },
)


def _shares(self, width, names, owner="query"):
    Attention.make_layers(self, width)
    for name in names:
        setattr(self, f"{name}_projection", getattr(self, f"{owner}_projection"))


heads(
    "one_projection_for_two",
    "Two of queries, keys and values come from one and the same layer, and another layer is never "
    "used. Each has its own.",
    *(
        {"project": lambda self, x, memory, names=names: _projects_by(self, x, memory, names)}
        for names in (
            ("query", "key", "key"),
            ("query", "query", "value"),
            ("query", "key", "query"),
            ("query", "value", "value"),
            ("key", "key", "value"),
        )
    ),
)


def _projects_by(self, x, memory, names):
    layers = [getattr(self, f"{name}_projection") for name in names]
    return tuple(layer(one) for layer, one in zip(layers, self.sources(x, memory), strict=True))


heads(
    "keys_and_values_exchanged",
    "You made the keys with `value_projection` and the values with `key_projection`.",
    {"project": lambda self, x, memory: _projects_by(self, x, memory, ("query", "value", "key"))},
)
heads(
    "no_output_projection",
    "There is no `output_projection` once `__init__` has run. Make it there: it mixes what the "
    "heads found.",
    layers(
        lambda self, width: _each_layer(
            self, lambda name: nn.Linear(width, width), ("query", "key", "value")
        )
    ),
    {"make_layers": lambda self, width: _identity_out(self, width)},
)


def _identity_out(self, width):
    Attention.make_layers(self, width)
    self.output_projection = nn.Identity()


heads(
    "output_projection_unused",
    "You made an `output_projection` and never call it. It mixes what the heads found.",
    {"project_out": lambda self, x: x},
    {"project_out": lambda self, x: x + 0 * self.output_projection(x)},
)
heads(
    "projections_without_bias",
    "Your projections have no bias. Leave `bias` at its default.",
    layers(lambda self, width: _each_layer(self, lambda name: nn.Linear(width, width, bias=False))),
    layers(
        lambda self, width: _each_layer(
            self, lambda name: nn.Linear(width, width, bias=name == "output")
        )
    ),
    layers(
        lambda self, width: _each_layer(
            self, lambda name: nn.Linear(width, width, bias=name != "output")
        )
    ),
)
heads(
    "no_layers_to_be_found",
    "Your module has no layers once `__init__` has run: a Python list hides them, and those made "
    "in `forward` come too late, with new weights at each call. Make each an attribute, once.",
    layers(lambda self, width: None),
)
heads(
    "shared_by_all_modules",
    "All your modules share their layers: they were made once for the class, or as a default. Make "
    "them in `__init__`.",
    layers(lambda self, width: _each_layer(self, lambda name: _shared_layer(name, width))),
)

_LAYERS: dict[tuple[str, int], nn.Linear] = {}


def _shared_layer(name, width):
    return _LAYERS.setdefault((name, width), nn.Linear(width, width))


heads(
    "shortcut_inside",
    "You added the input to the result. The shortcut belongs to the block around this module, in "
    "lesson 6.",
    {
        "forward": lambda self, query_input, memory=None, **options: _plus(
            Attention.forward(self, query_input, memory, **options), query_input
        )
    },
)


def _plus(result, x):
    return (result[0] + x, *result[1:]) if isinstance(result, tuple) else result + x


# Its heads

heads(
    "split_without_transpose",
    "You split with `view(B, H, T, D)`. That cuts rows apart and mixes tokens: split the width, "
    "`view(B, T, H, D)`, and then `transpose(1, 2)`.",
    {"split": lambda self, x: x.reshape(len(x), self.num_heads, x.shape[1], -1)},
    {
        "split": lambda self, x: x.reshape(len(x), self.num_heads, x.shape[1], -1),
        "merge": lambda self, x: x.reshape(len(x), x.shape[2], -1),
    },
)
heads(
    "merged_without_transpose",
    "You joined the heads before tokens were back on axis 1: `transpose(1, 2)` first.",
    {"merge": lambda self, x: x.reshape(len(x), x.shape[2], -1)},
    {"merge": lambda self, x: x.flatten(2)},
)
heads(
    "view_of_what_is_transposed",
    "After `transpose` the numbers do not lie in the order of their axes, and `view` can't join "
    "those: use `flatten(2)` or `reshape`.",
    {"merge": lambda self, x: x.transpose(1, 2).view(len(x), x.shape[2], self.width)},
)
heads(
    "keys_not_transposed",
    "You multiplied queries and keys without transposing the keys: `key.transpose(-2, -1)`.",
    {"scores": lambda self, query, key: query @ key / math.sqrt(query.shape[-1])},
)
heads(
    "heads_on_the_token_axis",
    "You did not bring the heads in front of the tokens, so each token looks at its own heads. "
    "`transpose(1, 2)` after the split.",
    {
        "split": lambda self, x: x.unflatten(-1, (self.num_heads, -1)),
        "merge": lambda self, x: x.flatten(2),
        "extend": lambda self, past, key, value: KVCache(key, value),
        "blocked_pairs": lambda self, queries, keys, device: right_causal(keys, device),
        "allowed": lambda self, pairs, keys, device: torch.ones(1, dtype=torch.bool, device=device),
    },
)
heads(
    "heads_averaged",
    "You averaged the heads, or added them up. They are joined side by side: C features again.",
    {"merge": lambda self, x: x.mean(1, keepdim=True).expand(x.shape).transpose(1, 2).flatten(2)},
    {"merge": lambda self, x: x.mean(1)},
    {"merge": lambda self, x: x.sum(1, keepdim=True).expand(x.shape).transpose(1, 2).flatten(2)},
)
heads(
    "features_dealt_out",
    "You dealt the features out to the heads one by one. Head h gets the h-th slice of the width, "
    "D neighbours: the heads come before D in the split.",
    {"split": lambda self, x: x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)},
    {
        "split": lambda self, x: x.unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2),
        "merge": lambda self, x: x.permute(0, 2, 3, 1).flatten(2),
    },
)


# Its scores and weights


def weighs(function):
    return {"weigh": lambda self, scores, allowed: function(scores, allowed)}


def scale(by):
    return {"scores": lambda self, query, key: query @ key.transpose(-2, -1) * by(self, query)}


heads(
    "not_scaled",
    "You did not scale the scores. Divide by the root of D, the width of one head.",
    scale(lambda self, query: 1.0),
)
heads(
    "scaled_by_the_whole_width",
    "You divided by the root of `d_model`. D is the width of one head, d_model / num_heads.",
    scale(lambda self, query: self.width**-0.5),
)
heads(
    "scaled_by_the_head_s_width",
    "You divided by D in all. It is the root of D, once: `F.scaled_dot_product_attention` divides "
    "by itself.",
    scale(lambda self, query: 1 / query.shape[-1]),
)
heads(
    "scaled_by_the_number_of_heads",
    "You divided by the root of the number of heads. D is the width of one head.",
    scale(lambda self, query: self.num_heads**-0.5),
)
heads(
    "softmax_over_the_queries",
    "Your softmax runs over the queries. Each query shares 1 among its keys: `dim=-1`.",
    {"weigh": lambda self, scores, allowed: over(-2)(scores, allowed)},
)
heads(
    "softmax_over_the_heads",
    "Your softmax runs over the heads. Each query shares 1 among its keys: `dim=-1`.",
    {"weigh": lambda self, scores, allowed: over(1)(scores, allowed)},
)
heads(
    "returns_the_weights_too",
    "You returned the weights as well. The output alone is asked for, and with `use_cache` the "
    "output and the cache.",
    {"give": lambda self, output, cache, use_cache, weights: (output, weights)},
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (output, weights, cache) if use_cache else (output, weights)
        )
    },
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (output, cache) if use_cache else (output, weights)
        )
    },
)
heads(
    "forgot_to_return",
    "You returned nothing: end with `return`.",
    {"give": lambda self, output, cache, use_cache, weights: None},
)

# Its memory

heads(
    "memory_ignored",
    "You ignore `memory`. With it, keys and values are made of the memory.",
    {"sources": lambda self, x, memory: (x, x, x)},
)
heads(
    "keys_from_the_query_side",
    "With a memory your keys still come from the query's side. Keys and values both come from the "
    "memory.",
    {"sources": lambda self, x, memory: (x, x, x if memory is None else memory)},
)
heads(
    "values_from_the_query_side",
    "With a memory your values still come from the query's side. Keys and values both come from "
    "the memory.",
    {"sources": lambda self, x, memory: (x, x if memory is None else memory, x)},
)
heads(
    "queries_from_the_memory",
    "With a memory your queries come from it too. They come from `query_input`: who asks is one, "
    "who is asked the other.",
    {"sources": lambda self, x, memory: (x if memory is None else memory,) * 3},
)
heads(
    "memory_turned",
    "With `use_rope` you turned the queries and keys of cross-attention as well. Between two "
    "sequences no offset is defined: turn only without a memory.",
    {"turns": lambda self, memory: self.use_rope},
    {
        "turn": lambda self, query, key, value, past, memory: (
            tuple(
                apply_rope(one, self.positions(past, query.shape[2], query.device))
                for one in (query, key)
            )
            + (value,)
            if self.use_rope
            else (query, key, value)
        )
    },
)


class AsksForTheTruth(Attention):
    asks = "memory"

    def forward(self, query_input, memory=None, *, query_valid=None, key_valid=None, **options):
        bool({"memory": memory, "query_valid": query_valid, "key_valid": key_valid}[self.asks])
        valid = {"query_valid": query_valid, "key_valid": key_valid}
        return super().forward(query_input, memory, **valid, **options)


heads(
    "truth_of_a_tensor",
    TRUTH + "Ask whether it `is None`.",
    *(
        type("Wrong", (AsksForTheTruth,), {"asks": one})
        for one in ("memory", "query_valid", "key_valid")
    ),
)

# Its masks

heads(
    "masks_inverted",
    "You hide what may be seen: `allowed_mask` and `masked_softmax` both mean True as allowed. "
    "Turn it no more.",
    weighs(lambda scores, allowed: right_softmax(scores, ~allowed)),
)
heads(
    "infinity_times_zero",
    "You multiplied a mask by minus infinity. Where it is 0 that makes NaN, not 0: use your "
    "`masked_softmax`.",
    weighs(lambda scores, allowed: (scores + ~allowed * -math.inf).softmax(-1)),
)
heads(
    "mask_without_axes",
    "Where nothing is blocked `allowed_mask()` has no axes, which `F.scaled_dot_product_attention` "
    "does not take: give it None.",
    {
        "attend": lambda self, query, keys, values, pairs, hidden: (
            F.scaled_dot_product_attention(
                query, keys, values, self.allowed(pairs, hidden, query.device)
            ),
            None,
        )
    },
)
heads(
    "key_valid_ignored",
    "You ignore `key_valid`: padding is seen like any token.",
    {"blocked_keys": lambda self, key_valid: torch.zeros_like(key_valid)},
)
heads(
    "key_valid_inverted",
    "You hide the real tokens and show the padding. `key_valid` is True at real tokens: blocked is "
    "`~key_valid`.",
    {"blocked_keys": lambda self, key_valid: key_valid},
)
heads(
    "padding_hidden_as_queries",
    "You used `key_valid` on the query axis. It hides keys: (B, 1, 1, Tk).",
    {
        "allowed": lambda self, pairs, keys, device: (
            right_allowed(pairs, None).to(device)
            if keys is None
            else right_allowed(pairs, None).to(device) & ~keys[:, None, :, None]
        )
    },
)
heads(
    "key_valid_silences_queries",
    "You made the output rows of padding zero. `key_valid` hides keys and nothing else; "
    "`query_valid` makes rows zero.",
    {
        "silence": lambda self, output, query_valid, key_valid: Attention.silence(
            self,
            output,
            key_valid
            if query_valid is None and key_valid is not None and key_valid.shape == output.shape[:2]
            else query_valid,
            None,
        )
    },
)
heads(
    "query_valid_ignored",
    "You ignore `query_valid`. Where it is False the output row is zero.",
    {"silence": lambda self, output, query_valid, key_valid: output},
)
heads(
    "query_valid_inverted",
    "You made the rows of real tokens zero. `query_valid` is True at real tokens.",
    {
        "silence": lambda self, output, query_valid, key_valid: (
            output if query_valid is None else output.masked_fill(query_valid[:, :, None], 0.0)
        )
    },
)


class SilencesBeforeTheProjection(Attention):
    def forward(self, query_input, memory=None, *, query_valid=None, **options):
        self.valid = query_valid
        return super().forward(query_input, memory, query_valid=None, **options)

    def project_out(self, x):
        return super().project_out(Attention.silence(self, x, self.valid, None))


class SilencesTheInput(Attention):
    def forward(self, query_input, memory=None, *, query_valid=None, **options):
        x = Attention.silence(self, query_input, query_valid, None)
        return super().forward(x, memory, query_valid=query_valid, **options)


class SilencesTheInputAlone(Attention):
    def forward(self, query_input, memory=None, *, query_valid=None, **options):
        x = Attention.silence(self, query_input, query_valid, None)
        return super().forward(x, memory, **options)


heads(
    "silenced_before_the_projection",
    "You made rows zero before `output_projection`, which then adds its bias. Make them zero at "
    "the end.",
    SilencesBeforeTheProjection,
)
heads(
    "input_silenced",
    "You made input rows zero for `query_valid`. It makes output rows zero and does nothing else: "
    "other queries may still look at that token.",
    SilencesTheInput,
    SilencesTheInputAlone,
)


def pairs(make):
    """Another causal mask, from (queries, keys, device)."""
    return {"blocked_pairs": lambda self, queries, keys, device: make(queries, keys, device)}


heads(
    "causal_ignored",
    "You ignore `causal`: every token sees the ones after it.",
    pairs(lambda queries, keys, device: None),
)
heads(
    "causal_always",
    "You are causal at every call. Without `causal` a token sees the ones after it too.",
    {
        "allowed": lambda self, pairs, keys, device: right_allowed(
            right_causal(5, device) if pairs is None else pairs, keys
        )
    },
    {"scores": lambda self, query, key: Attention.scores(self, query, key) + _future(query, key)},
)


def _future(query, key):
    queries, keys = query.shape[2], key.shape[2]
    low = torch.zeros(queries, keys, dtype=query.dtype, device=query.device)
    return low.masked_fill(right_causal(keys, query.device)[keys - queries :], -1e4)


heads(
    "past_blocked",
    "With `causal` a token sees what comes after it and not what came before. Rows are queries: "
    "blocked is what lies above the diagonal.",
    pairs(lambda queries, keys, device: _ones(keys, device).tril(-1)[keys - queries :]),
)
heads(
    "causal_inverted",
    "You handed a mask of what is blocked to what expects the allowed. With `causal` yours sees "
    "the future alone.",
    pairs(lambda queries, keys, device: _ones(keys, device).tril()[keys - queries :]),
)
heads(
    "next_token_visible",
    "With `causal` a token sees the one after it, which is what it has to guess. Block from one "
    "above the diagonal on.",
    pairs(lambda queries, keys, device: _ones(keys, device).triu(2)[keys - queries :]),
)
heads(
    "itself_blocked",
    "With `causal` a token does not see itself. Block from one above the diagonal on.",
    pairs(lambda queries, keys, device: _ones(keys, device).triu()[keys - queries :]),
)


def _ones(length, device):
    return torch.ones(length, length, dtype=torch.bool, device=device)


def joins(join):
    """The two masks joined in another way where both are there."""
    return {
        "allowed": lambda self, pairs, keys, device: (
            right_allowed(pairs, keys).to(device)
            if pairs is None or keys is None
            else join(right_allowed(pairs, None), right_allowed(None, keys))
        )
    }


heads(
    "either_mask_is_enough",
    "With `causal` and `key_valid` you allow what one of the two allows. A key is seen only where "
    "neither hides it.",
    joins(lambda one, other: one | other),
)
heads(
    "padding_dropped_beside_causal",
    "With `causal` you forget `key_valid`. Both hide keys, together.",
    joins(lambda one, other: one),
)
heads(
    "causal_dropped_beside_padding",
    "With `key_valid` you forget `causal`. Both hide keys, together.",
    joins(lambda one, other: other),
)


heads(
    "masked_after_the_softmax",
    "You set weights to 0 after the softmax, so hidden keys still count in each row's sum.",
    weighs(lambda scores, allowed: scores.softmax(-1).masked_fill(~allowed, 0.0)),
)
heads(
    "filled_with_a_small_number",
    "You filled with a number that is not low enough, so hidden keys keep some weight. Use your "
    "`masked_softmax`.",
    weighs(filled(lambda scores: -10.0)),
    weighs(filled(lambda scores: -1.0)),
    *(weighs(zeroed(filled(lambda scores, by=by: -by))) for by in (10.0, 1e2, 1e3, 1e4)),
)
heads(
    "rows_that_see_nothing_are_nan",
    "A token that sees nothing became NaN: a padded first token under a causal mask is one. Use "
    "your `masked_softmax`, which makes zeros of such a row.",
    weighs(filled(lambda scores: -math.inf)),
    weighs(
        lambda scores, allowed: (
            scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf)
        ).softmax(-1)
    ),
)
heads(
    "rows_that_see_nothing_see_all",
    "A token that sees nothing looks everywhere alike, at hidden keys too. Use your "
    "`masked_softmax`, which makes zeros of such a row.",
    weighs(filled(lowest)),
    *(weighs(filled(lambda scores, by=by: -by)) for by in (1e9, 1e4)),
)
heads(
    "rows_that_see_nothing_are_zero",
    "The output of a token that sees nobody is the bias of `output_projection`, since its weights "
    "are 0; yours is 0. If you cleaned NaN away at the end, make none: use your `masked_softmax`.",
    {
        **weighs(filled(lambda scores: -math.inf)),
        "silence": lambda self, output, query_valid, key_valid: Attention.silence(
            self, output.nan_to_num(0.0), query_valid, key_valid
        ),
    },
)
heads(
    "nan_comes_back",
    "Going forward all is well, but NaN comes back through a token that sees nothing. Make no NaN "
    "at all: use your `masked_softmax`.",
    weighs(
        lambda scores, allowed: (
            (scores + torch.zeros_like(scores).masked_fill(~allowed, -math.inf))
            .softmax(-1)
            .nan_to_num(0.0)
        )
    ),
)

# Its dropout


class DropsNothing(Attention):
    def drop(self, weights):
        return weights


class DropsTheOutput(DropsNothing):
    def project_out(self, x):
        return self.dropout(super().project_out(x))


class DropsTwice(Attention):
    def project_out(self, x):
        return self.dropout(super().project_out(x))


class DropsTheMixture(DropsNothing):
    def mix(self, weights, values):
        return self.dropout(weights @ values)


class DropsTheJoinedMixture(DropsNothing):
    def merge(self, x):
        return self.dropout(super().merge(x))


class DropsTheScores(DropsNothing):
    def weigh(self, scores, allowed):
        return right_softmax(self.dropout(scores), allowed)


class DropsInEval(Attention):
    def drop(self, weights):
        return F.dropout(weights, self.dropout.p)


class DropsAlways(Attention):
    def __init__(self, d_model, num_heads, dropout=0.1, use_rope=False):
        super().__init__(d_model, num_heads, dropout, use_rope)


class DropsAndShares(Attention):
    def drop(self, weights):
        dropped = self.dropout(weights)
        return dropped / dropped.sum(-1, keepdim=True).clamp(min=1e-9)


heads("dropout_unused", "You never use the dropout. It falls on the weights.", DropsNothing)
heads(
    "dropout_on_the_output",
    "Your dropout falls on the output. Here it falls on the attention weights.",
    DropsTheOutput,
)
heads(
    "dropout_twice",
    "Your dropout falls on the weights and on the output. Here it falls on the weights alone.",
    DropsTwice,
)
heads(
    "dropout_on_the_mixture",
    "Your dropout falls on what the heads found. Here it falls on the weights, before they meet "
    "the values.",
    DropsTheMixture,
    DropsTheJoinedMixture,
)
heads(
    "dropout_on_the_scores",
    "Your dropout falls on the scores, before the softmax, where a 0 hides nothing. It falls on "
    "the weights.",
    DropsTheScores,
)
heads(
    "dropout_in_eval_mode",
    "You drop in eval mode too. `nn.Dropout` looks at the mode; `F.dropout` has to be told: "
    "`training=self.training`.",
    DropsInEval,
)
heads(
    "dropout_by_default",
    "Where no dropout is given it is 0.0.",
    DropsAlways,
    type(
        "DropsMore",
        (Attention,),
        {
            "__init__": lambda self, d_model, num_heads, dropout=0.5, use_rope=False: (
                Attention.__init__(self, d_model, num_heads, dropout, use_rope)
            )
        },
    ),
)
heads(
    "renormalized_after_the_dropout",
    "You made the rows sum to 1 again after the dropout. What is left is scaled by 1 / (1 - p), "
    "and that is all.",
    DropsAndShares,
)

# Its rotation

heads(
    "rope_ignored",
    "You ignore `use_rope`. With it queries and keys are turned by their positions.",
    {"turns": lambda self, memory: False},
)
heads(
    "rope_always",
    "You turn queries and keys without `use_rope` too.",
    {"turns": lambda self, memory: memory is None},
)
heads(
    "values_turned",
    "You turned the values as well. Positions are for comparing: turn queries and keys alone.",
    {
        "turn": lambda self, query, key, value, past, memory: (
            tuple(self.rotate(one, past) for one in (query, key, value))
            if self.turns(memory)
            else (query, key, value)
        )
    },
)
heads(
    "query_alone_turned",
    "You turned the queries alone. Both are turned, so that only their distance is left.",
    {
        "turn": lambda self, query, key, value, past, memory: (
            (self.rotate(query, past), key, value) if self.turns(memory) else (query, key, value)
        )
    },
)
heads(
    "turned_before_the_split",
    "You turned before the heads were split, with the frequencies of the whole width. Split first, "
    "so that each head has all of them.",
    {
        "rotate": lambda self, x, past: self.split(
            apply_rope(self.merge(x)[:, None], self.positions(past, x.shape[2], x.device))[:, 0]
        )
    },
)
heads(
    "halves_turned",
    "You turned halves. The pairs of `apply_rope` in lesson 4 are neighbours.",
    {"rotate": lambda self, x, past: _turn_halves(x, self.positions(past, x.shape[2], x.device))},
)


def _turn_halves(x, positions):
    a, b = x.chunk(2, -1)
    return torch.cat(
        apply_rope(torch.stack([a, b], -1).flatten(-2), positions)
        .unflatten(-1, (-1, 2))
        .unbind(-1),
        -1,
    )


heads(
    "positions_begin_again",
    "With a cache your positions begin at 0 again. New tokens stand behind the cached ones: begin "
    "at `cache.length`.",
    {"positions": lambda self, past, length, device: torch.arange(length, device=device)},
    *(
        {
            "turn": lambda self, query, key, value, past, memory, of=of: (
                (self.rotate(query, past * of), self.rotate(key, past * (1 - of)), value)
                if self.turns(memory)
                else (query, key, value)
            )
        }
        for of in (0, 1)  # the queries', the keys'
    ),
)
heads(
    "positions_one_off",
    "With a cache your positions are one off. The first new token stands at `cache.length`.",
    *(
        {
            "positions": lambda self, past, length, device, off=off: (
                past + torch.arange(length, device=device) + off(past)
            )
        }
        for off in (
            lambda past: bool(past),
            lambda past: -bool(past),
            lambda past: 1,
            lambda past: -1,
        )
    ),
)
heads(
    "one_position_for_all_new_tokens",
    "All new tokens have the position of the first. Count on: `past + torch.arange(...)`.",
    {
        "positions": lambda self, past, length, device: (
            past + torch.arange(length, device=device) * (past == 0)
        )
    },
    {"positions": lambda self, past, length, device: torch.full((length,), past, device=device)},
)


class TurnsWhatIsCached(Attention):
    """Stores keys as they are, or turned, and turns all of them at each call."""

    stores_turned = False

    def turn(self, query, key, value, past, memory):
        self.turning = self.turns(memory)
        if self.turning:
            query = self.rotate(query, past)
        return query, key, value

    def extend(self, past, key, value):
        cache = past.append(key, value)
        if not self.turning:
            return cache
        self.turned = KVCache(self.rotate(cache.keys, 0), cache.values)
        return self.turned if self.stores_turned else cache

    def attend(self, query, keys, values, pairs, hidden):
        keys = self.turned.keys if self.turning else keys
        return super().attend(query, keys, values, pairs, hidden)


class TurnsTwice(TurnsWhatIsCached):
    stores_turned = True


heads(
    "keys_stored_unturned",
    "You stored the keys before turning them, and turn all of them at every step. Turn a key once, "
    "at its own position, then store it.",
    TurnsWhatIsCached,
)
heads(
    "keys_turned_twice",
    "You turned the cached keys again at every step. A key is turned once, at its own position, "
    "before it is stored.",
    TurnsTwice,
)

# Its cache

heads(
    "use_cache_ignored",
    "With `use_cache` a pair is asked for, on the first call too: the output, and the new cache.",
    {"give": lambda self, output, cache, use_cache, weights: output},
)
heads(
    "cache_first",
    "With `use_cache` you returned the cache first. The output comes first.",
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (cache, output) if use_cache else output
        )
    },
)
heads(
    "keys_and_values_in_place_of_a_cache",
    "With `use_cache` you returned keys and values as they are. Put them into a `KVCache`.",
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (output, (cache.keys, cache.values)) if use_cache else output
        )
    },
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (output, cache.keys, cache.values) if use_cache else output
        )
    },
)


class NoneOnTheFirstCall(Attention):
    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        if use_cache and cache is None:
            return super().forward(query_input, memory, **options), None
        return super().forward(query_input, memory, cache=cache, use_cache=use_cache, **options)


class OldCache(Attention):
    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        result = super().forward(query_input, memory, cache=cache, use_cache=use_cache, **options)
        return (result[0], cache or KVCache()) if use_cache else result


class NewTokensAlone(Attention):
    def extend(self, past, key, value):
        self.new = KVCache(key, value)
        return past.append(key, value)

    def give(self, output, cache, use_cache, weights):
        return (output, self.new) if use_cache else output


class UsesACacheWithUseCacheAlone(Attention):
    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        cache = cache if use_cache else None
        return super().forward(query_input, memory, cache=cache, use_cache=use_cache, **options)


class PairForACache(Attention):
    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        use_cache = use_cache or cache is not None
        return super().forward(query_input, memory, cache=cache, use_cache=use_cache, **options)


class KeepsItsOwnCache(Attention):
    mine = None

    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        given = self.mine if use_cache else None
        result = super().forward(query_input, memory, cache=given, use_cache=use_cache, **options)
        if use_cache:
            self.mine = result[1]
        return result


class GoesOnFromItsOwnCache(KeepsItsOwnCache):
    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **options):
        given = self.mine if cache is None else cache
        result = Attention.forward(
            self, query_input, memory, cache=given, use_cache=use_cache, **options
        )
        if use_cache:
            self.mine = result[1]
        return result


class NewKeyValidAlone(Attention):
    def forward(self, query_input, memory=None, *, key_valid=None, cache=None, **options):
        if key_valid is not None and cache is not None:
            past = torch.ones_like(key_valid[:, : cache.length])
            key_valid = torch.cat([past, key_valid[:, cache.length :]], dim=1)
        return super().forward(query_input, memory, key_valid=key_valid, cache=cache, **options)


class NoKeyValidWithACache(Attention):
    def forward(self, query_input, memory=None, *, key_valid=None, cache=None, **options):
        key_valid = key_valid if cache is None else None
        return super().forward(query_input, memory, key_valid=key_valid, cache=cache, **options)


class CachesWithoutGradient(Attention):
    def extend(self, past, key, value):
        if past.keys is None:
            return past.append(key, value)
        return past.append(key.detach(), value.detach())


class WritesIntoTheCache(Attention):
    def extend(self, past, key, value):
        new = past.append(key, value)
        past.keys, past.values = new.keys, new.values
        return new


heads(
    "no_cache_on_the_first_call",
    "On the first call, with `use_cache` and no cache, you return None for the cache. There is "
    "one: it holds the tokens of that call.",
    NoneOnTheFirstCall,
)
heads(
    "old_cache_returned",
    "You returned the cache that you were given. The new tokens have to be in the one you return.",
    OldCache,
)
heads(
    "cache_ignored",
    "You ignore the cache, so new tokens see each other alone. One that is given is used, with "
    "`use_cache` or without.",
    {"remembered": lambda self, cache: KVCache()},
    {"extend": lambda self, past, key, value: KVCache(key, value)},
    UsesACacheWithUseCacheAlone,
)
heads(
    "appended_cache_dropped",
    "`append` returns a new cache and leaves the old one as it was: keep what it returns.",
    {"extend": lambda self, past, key, value: past},
)
heads(
    "cache_overwritten",
    "The cache you return holds the new tokens alone. Return the one they were appended to.",
    NewTokensAlone,
)
heads(
    "pair_for_a_cache",
    "A cache was given and `use_cache` was not: the output alone is asked for.",
    PairForACache,
)
heads(
    "pair_at_every_call",
    "You return the cache at every call. Without `use_cache` the output alone is asked for.",
    {"give": lambda self, output, cache, use_cache, weights: (output, cache)},
)
heads(
    "cache_kept_in_the_module",
    "You keep the cache in the module, so that one text goes on in the next. Use the one that is "
    "given, and return the new one.",
    KeepsItsOwnCache,
    GoesOnFromItsOwnCache,
)
heads(
    "cached_without_gradient",
    "You cut new keys and values out of the gradient on their way into the cache (`.detach()` or "
    "`no_grad`). Store them as they are.",
    CachesWithoutGradient,
    {"extend": lambda self, past, key, value: past.append(key.detach(), value.detach())},
    {
        "give": lambda self, output, cache, use_cache, weights: (
            (output, KVCache(cache.keys.detach(), cache.values.detach())) if use_cache else output
        )
    },
)
heads(
    "given_cache_changed",
    "You changed the cache that you were given. `append` makes a new one.",
    WritesIntoTheCache,
)
heads(
    "mask_of_the_new_tokens_alone",
    "With a cache you made a square mask of the new tokens alone. It has a row for each new token "
    "and a column for every token so far: (Tq, T_total).",
    pairs(lambda queries, keys, device: right_causal(queries, device)),
)
heads(
    "mask_from_the_first_row",
    "With a cache you took the first rows of the mask, as `is_causal=True` does: a new token sees "
    "as far as if it stood at the beginning. Take the last rows: `[cache.length:]`.",
    pairs(lambda queries, keys, device: right_causal(keys, device)[:queries]),
)
heads(
    "new_tokens_see_all_new_ones",
    "In a chunk each new token sees those after it. `causal` holds among the new ones as well.",
    {
        "blocked_pairs": lambda self, queries, keys, device: (
            right_causal(keys, device)[keys - queries :] if queries == keys else None
        )
    },
)
heads(
    "cached_padding_seen",
    "With a cache you use `key_valid` for the new tokens alone, or not at all, and cached padding "
    "is seen. It covers all tokens so far.",
    NewKeyValidAlone,
    NoKeyValidWithACache,
)


# Its errors, dtypes, devices and gradients


def refusing(refuse):
    return {"refuse": lambda self, width, heads: refuse(width, heads)}


def _asserts(width, heads):
    assert width % heads == 0


def _raises(error):
    def refuse(width, heads):
        if width % heads:
            raise error(f"{width} and {heads}")

    return refuse


heads(
    "no_error_for_a_width_that_does_not_divide",
    "Your `__init__` doesn't look whether `num_heads` divides `d_model`. If it does not, raise a "
    "ValueError there, or a call fails later with a riddle.",
    refusing(lambda width, heads: None),
)
heads(
    "another_error",
    "A ValueError was asked for where `num_heads` does not divide `d_model`: `raise "
    "ValueError(...)`.",
    refusing(_asserts),
    refusing(_raises(TypeError)),
)


def forward_with(change):
    """A module whose output is changed at the end."""
    return {
        "silence": lambda self, output, query_valid, key_valid: change(
            Attention.silence(self, output, query_valid, key_valid)
        )
    }


heads(
    "returns_float32",
    "Your result is float32, or float64, whatever came in. It has the input's dtype.",
    forward_with(lambda output: output.float()),
    forward_with(lambda output: output.double()),
)
heads(
    "weights_stay_float32",
    "Your weights are float32 where the module is not, and torch does not multiply the two. Bring "
    "them back: `.to(value.dtype)`.",
    weighs(lambda scores, allowed: right_softmax(scores.float(), allowed)),
)
heads(
    "mask_on_the_cpu",
    "You made the causal mask on the CPU. Make it where the scores are: pass `device`.",
    pairs(lambda queries, keys, device: right_causal(keys)[keys - queries :]),
)
heads(
    "positions_on_the_cpu",
    "You made the positions on the CPU. Make them where the input is: `device=...`.",
    {"positions": lambda self, past, length, device: past + torch.arange(length)},
)
heads(
    "nothing_blocked_on_the_cpu",
    "Where nothing is blocked, `allowed_mask()` does not know the device, and its True is on the "
    "CPU. Move it: `.to(query.device)`.",
    {"allowed": lambda self, pairs, keys, device: right_allowed(pairs, keys)},
)


class ChangesTheInput(Attention):
    def forward(self, query_input, memory=None, **options):
        result = super().forward(query_input, memory, **options)
        query_input.data.mul_(2.0)
        return result


heads(
    "changes_the_input",
    "You wrote into the input. The caller still needs it: make a new tensor.",
    ChangesTheInput,
)


class TorchInside(Attention):
    def attend(self, query, keys, values, pairs, hidden):
        own = nn.MultiheadAttention(self.width, self.num_heads).to(query)
        row = torch.zeros(1, 1, self.width).to(query)
        own(row, row, row)
        return super().attend(query, keys, values, pairs, hidden)


heads(
    "torch_inside",
    "You used nn.MultiheadAttention. Your own four layers and your own heads are asked for.",
    TorchInside,
)


def detaches(place):
    def project(self, x, memory):
        found = list(Attention.project(self, x, memory))
        found[place] = found[place].detach()
        return tuple(found)

    return {"project": project}


heads(
    "cut_out_of_the_gradient",
    "You cut something out of the gradient (`.detach()`, `.data` or `no_grad`), so layers before "
    "it would never learn.",
    *map(detaches, range(3)),
    {
        "sources": lambda self, x, memory: (
            x,
            *(2 * (x if memory is None else memory.detach(),)),
        )
    },
    weighs(lambda scores, allowed: right_softmax(scores, allowed).detach()),
    {"mix": lambda self, weights, values: (weights @ values).detach()},
    {"sources": lambda self, x, memory: (x.detach(), *(2 * ((x if memory is None else memory),)))},
)


class RemembersTheFirstLength(Attention):
    blocked = None

    def blocked_pairs(self, queries, keys, device):
        if self.blocked is None or keys - queries:
            self.blocked = right_causal(keys, device)
        return self.blocked[keys - queries : keys, :keys]


heads(
    "mask_kept_from_the_first_call",
    "You keep the mask of the first call, and a longer text then finds it too small. Make it for "
    "each call.",
    RemembersTheFirstLength,
)


masks_quiz = quiz_mistakes(
    "masks_quiz",
    "bdacdbc",
    {
        1: {
            "a": "That is what nn.MultiheadAttention makes of it. In this function True means the "
            "opposite: look at the table of the two conventions.",
            "c": "A mask of True and False is fine here, and no error warns you. What does True "
            "mean in this function?",
            "d": "`is_causal=True` is another way to get a mask, and needs none from you. The one "
            "you give is used.",
        },
        2: {
            "a": "No learning rate gets below what can be known. Where could the model have the "
            "answer from?",
            "b": "Padding is easy to guess and can make a loss a little better. Far below what is "
            "possible means that the answers themselves are read.",
            "c": "Without dropout a loss is a little lower, but still not below what can be known.",
        },
        3: {
            "b": "A token may look at itself too: what it has to guess is the one after it.",
            "c": "Key 3 is the next token, the one that query 2 has to guess.",
            "d": "Those are the token itself and its future: that mask is transposed.",
        },
        4: {
            "a": "Zeros are what you want. The softmax divides by the sum of the exponentials, and "
            "here that sum is 0.",
            "b": "Equal shares come of equal finite scores. The exponential of minus infinity is "
            "0: what is 0 / 0?",
            "d": "torch raises no error here. It computes 0 / 0 and goes on.",
        },
        5: {
            "a": "8 is the number of heads. How wide is one head?",
            "b": "512 is the whole width. A dot product runs over the features of one head.",
            "c": "A dot product is a sum over features, not over tokens; how many features has a "
            "head?",
        },
        6: {
            "a": "(3, 3) has columns for the new tokens alone. Each of them looks at the cached "
            "ones as well.",
            "c": "Among the new tokens the future is hidden too: the first one does not see the "
            "other two.",
            "d": "(13, 13) has a row for every cached token too. Their outputs are written "
            "already; only new tokens ask.",
        },
        7: {
            "a": "`query_valid` makes rows zero. `key_valid` hides the token from others.",
            "b": "`nan` comes of a row that may read nobody. This one may read all real tokens.",
            "d": "Nothing hands the input through: a shortcut belongs to the block, in lesson 6.",
        },
    },
)
