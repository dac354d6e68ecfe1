"""What the answers of lesson 05 must do.

Expected masks are written out pair by pair. Expected values come from torch's softmax, from
`F.scaled_dot_product_attention` and `nn.MultiheadAttention` in float64, or from a property. Sizes
differ, weights are of order one, and what is blocked is often what would count most.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import (
    Exercise,
    Failure,
    RuledOut,
    Subject,
    close,
    same,
    shape_of,
    short_name,
    type_of,
    untouched,
)
from autograder.judge.properties import (
    agrees_in_gradients,
    chunk_by_chunk,
    has_layers,
    leaves_untouched,
    owns_its_parameters,
    pair,
    refuses,
)
from autograder.judge.quiz import quiz

MULTI_HEAD = {"MultiheadAttention", "multi_head_attention_forward", "_native_multi_head_attention"}
DOT_PRODUCT = {
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
    "flex_attention",
}
TORCH_ATTENTION = RuledOut("torch's own attention", frozenset(MULTI_HEAD | DOT_PRODUCT))
TORCH_MULTI_HEAD = RuledOut("torch's own multi-head attention", frozenset(MULTI_HEAD))

causal_blocked_mask = Exercise("causal_blocked_mask")
padding_blocked_mask = Exercise("padding_blocked_mask")
allowed_mask = Exercise("allowed_mask")
masked_softmax = Exercise("masked_softmax")
attention = Exercise("attention", TORCH_ATTENTION)
kv_cache = Exercise("KVCache")
multi_head = Exercise("ManualMultiHeadAttention", TORCH_MULTI_HEAD)
masks_quiz = quiz("masks_quiz", "bdacdbc")

HALF = (torch.float16, torch.bfloat16)


def boolean(got, shape, what):
    """Fail unless `got` is a bool tensor of this shape."""
    shape_of(got, shape, what)
    if got.dtype != torch.bool:
        raise Failure(f"{what} has dtype {short_name(got.dtype)}; bool was asked for.")


def mask_of(rule, rows, columns, draw):
    """The bool matrix of `rule(i, j)`, written out pair by pair."""
    table = [[rule(i, j) for j in range(columns)] for i in range(rows)]
    return torch.tensor(table, device=draw.device)


# causal_blocked_mask


@causal_blocked_mask.check(points=1)
def is_a_square_of_booleans(answer, reference, draw):
    """The mask is (T, T) and bool, at a length of 1 too."""
    tried = [(length, answer(length)) for length in (7, 1)]
    for length, mask in tried:
        boolean(mask, (length, length), f"causal_blocked_mask({length})")


@causal_blocked_mask.check(points=2, needs=["is_a_square_of_booleans"])
def blocks_what_comes_later(answer, reference, draw):
    """Row i, a query, has True at the keys after i, and False at i and before it."""
    tried = [(length, answer(length)) for length in (4, 1, 70)]
    for length, mask in tried:
        right = mask_of(lambda i, j: j > i, length, length, draw)
        close(mask, right, f"causal_blocked_mask({length})")


@causal_blocked_mask.check(points=1, needs=["is_a_square_of_booleans"])
def is_made_on_the_device(answer, reference, draw):
    """It is made on the `device` that is given, whether by name or by position."""
    right = mask_of(lambda i, j: j > i, 3, 3, draw)
    for args, kwargs in (((3,), {"device": draw.device}), ((3, torch.device(draw.device)), {})):
        same(answer.call(args, kwargs).value, right, f"On `{draw.device}` the mask")
    answer.on_meta(3, device="meta")


# padding_blocked_mask


def padded(draw, pad_id, low, high):
    """Ids (5, 6) with padding on the right, on the left, on both sides, nowhere, everywhere."""
    ids = draw.integers(low, high, 5, 6)
    right = mask_of(
        lambda i, j: (i == 0 and j > 3) or (i == 1 and j < 2) or (i == 2 and j in (0, 5)) or i == 4,
        5,
        6,
        draw,
    )
    return ids.masked_fill(right, pad_id), right


@padding_blocked_mask.check(points=1)
def marks_padding(answer, reference, draw):
    """The mask is (B, T) and bool: True where the id is 0, on either side of a sentence."""
    ids, right = padded(draw, 0, 1, 50)
    tried = [(ids, answer(ids)), (ids[:2, 1:5], answer(ids[:2, 1:5].contiguous()))]
    for some, mask in tried:
        boolean(mask, some.shape, f"For token_ids of shape {tuple(some.shape)} the mask")
        close(mask, right if len(some) == 5 else right[:2, 1:5], "The mask")


@padding_blocked_mask.check(points=1, needs=["marks_padding"])
def uses_its_pad_id(answer, reference, draw):
    """Another `pad_id` is used, by position or by name; 0 is then a token like any other."""
    tried = []
    for pad_id, by_name in ((7, False), (-1, True), (50256, False)):
        ids, right = padded(draw, pad_id, 0, 6)
        mask = answer(ids, pad_id=pad_id) if by_name else answer(ids, pad_id)
        tried.append((pad_id, mask, right))
    for pad_id, mask, right in tried:
        boolean(mask, right.shape, f"With `pad_id={pad_id}` the mask")
        close(mask, right, f"With `pad_id={pad_id}` the mask")


@padding_blocked_mask.check(points=1, needs=["marks_padding"])
def leaves_token_ids_untouched(answer, reference, draw):
    """`token_ids` is the same after the call."""
    ids, _ = padded(draw, 7, 0, 6)
    untouched(answer.call((ids, 7), after=True).arguments[0], ids, "token_ids")


@padding_blocked_mask.check(points=1, needs=["marks_padding"])
def marks_on_the_device(answer, reference, draw):
    """Everything happens on the device of `token_ids`, so that it runs on a GPU."""
    answer.on_meta(padded(draw, 0, 1, 50)[0])


# allowed_mask

SIZES = ((3, 2, 4, 5), (4, 1, 3, 3), (2, 5, 1, 6))  # (B, H, Tq, Tk)


def some_blocked(draw, *shape):
    return draw.integers(0, 2, *shape) == 1


def allows(tried):
    """Fail unless each mask is bool, broadcasts to its sizes, and allows what it should there."""
    for mask, right, sizes in tried:
        what = f"With (B, H, Tq, Tk) = {sizes} the mask"
        boolean(mask, getattr(mask, "shape", ()), what)
        try:
            whole = mask.broadcast_to(sizes)
        except RuntimeError:
            raise Failure(
                f"{what} has shape {tuple(mask.shape)}, which does not broadcast to {sizes}."
            ) from None
        close(whole, right.expand(sizes), f"{what}, broadcast to that,")


@allowed_mask.check(points=1)
def turns_pairs(answer, reference, draw):
    """With pairs alone it is True exactly where `blocked_pairs` is False, for all B and H."""
    tried = []
    for place, sizes in enumerate(SIZES):
        pairs = some_blocked(draw, *sizes[2:])
        mask = answer(blocked_pairs=pairs) if place else answer(pairs)
        tried.append((mask, ~pairs, sizes))
    allows(tried)


@allowed_mask.check(points=1)
def turns_keys(answer, reference, draw):
    """With keys alone a key that is blocked is hidden from all queries of its sentence."""
    tried = []
    for place, sizes in enumerate(SIZES):
        keys = some_blocked(draw, sizes[0], sizes[3])
        mask = answer(blocked_keys=keys) if place else answer(None, keys)
        tried.append((mask, ~keys[:, None, None, :], sizes))
    allows(tried)


@allowed_mask.check(points=2, needs=["turns_pairs", "turns_keys"])
def joins_both(answer, reference, draw):
    """With both a query may look where neither the pair nor the key is blocked."""
    tried = []
    for sizes in SIZES:
        pairs, keys = some_blocked(draw, *sizes[2:]), some_blocked(draw, sizes[0], sizes[3])
        blocked = pairs[None, None] | keys[:, None, None, :]
        tried.append((answer(pairs, keys), ~blocked, sizes))
    allows(tried)


@allowed_mask.check(points=1, needs=["turns_pairs"])
def blocks_nothing_for_none(answer, reference, draw):
    """With neither it is True, and broadcasts to any (B, H, Tq, Tk)."""
    mask = answer()
    allows([(mask, torch.ones(sizes, dtype=torch.bool), sizes) for sizes in SIZES])


@allowed_mask.check(points=1, needs=["turns_pairs", "turns_keys"])
def leaves_both_masks_untouched(answer, reference, draw):
    """`blocked_pairs` and `blocked_keys` are the same after the call."""
    pairs, keys = some_blocked(draw, 4, 5), some_blocked(draw, 3, 5)
    leaves_untouched(answer, blocked_pairs=pairs, blocked_keys=keys)
    for given in ((pairs, None), (None, keys)):
        after = answer.call(given, after=True).arguments
        for name, got, before in zip(("blocked_pairs", "blocked_keys"), after, given, strict=True):
            if before is not None:
                untouched(got, before, name)


@allowed_mask.check(points=1, needs=["turns_pairs", "turns_keys"])
def turns_on_the_device(answer, reference, draw):
    """Everything happens on the device of the masks, so that it runs on a GPU."""
    pairs, keys = some_blocked(draw, 4, 5), some_blocked(draw, 3, 5)
    for given in ((pairs, keys), (pairs, None), (None, keys)):
        answer.on_meta(*given)


# masked_softmax


def mixed_mask(draw, *shape):
    """A random mask in which each row allows something and blocks something."""
    allowed = some_blocked(draw, *shape)
    place = draw.integers(0, shape[-1], *shape[:-1], 1)
    return allowed.scatter(-1, place, True).scatter(-1, (place + 1) % shape[-1], False)


def right_softmax(scores, allowed):
    """Torch's softmax over what is allowed, in float64; rows with nothing allowed are zeros."""
    filled = scores.double().masked_fill(~allowed, -torch.inf)
    return filled.softmax(dim=-1).masked_fill(~allowed, 0.0)


def softmax_with_history(scores, allowed):
    """The same for scores of order one, without an infinity that a gradient could meet."""
    parts = scores.exp() * allowed
    total = parts.sum(dim=-1, keepdim=True)
    return parts / torch.where(total > 0, total, 1.0)


def agrees(tried, **tolerances):
    """Fail unless each result is the softmax of its scores over what its mask allows."""
    for what, scores, allowed, got in tried:
        right = right_softmax(scores, allowed).to(scores.dtype)
        same(got, right, f"{what} the result", **tolerances)


@masked_softmax.check(points=1)
def is_a_softmax_over_keys(answer, reference, draw):
    """Where all is allowed it is torch's softmax over the last axis: each row sums to 1."""
    tried = []
    for shape in ((2, 3, 4, 5), (5, 3), (2, 1, 1, 6)):
        scores, allowed = 2 * draw.normal(*shape), torch.ones(shape, dtype=torch.bool)
        allowed = allowed.to(scores.device)
        tried.append((f"For scores {shape}", scores, allowed, answer(scores, allowed)))
    answer(scores, mixed_mask(draw, *shape))  # for the next check: some make NaN of both
    agrees(tried)


@masked_softmax.check(points=2, needs=["is_a_softmax_over_keys"])
def gives_nothing_to_what_is_blocked(answer, reference, draw):
    """A key that is not allowed gets weight 0, and the others share 1 as if it weren't there."""
    tried = []
    for shape in ((2, 3, 4, 5), (5, 3)):
        scores, allowed = 2 * draw.normal(*shape), mixed_mask(draw, *shape)
        tried.append((f"For scores {shape}", scores, allowed, answer(scores, allowed)))
    agrees(tried)
    for what, _, allowed, got in tried:
        if (left := got[~allowed].abs().max()) > 0:
            raise Failure(f"{what} what is blocked has a weight of up to {left:.1e}, not 0.")


@masked_softmax.check(points=1, needs=["gives_nothing_to_what_is_blocked"])
def broadcasts_the_mask(answer, reference, draw):
    """The mask may be smaller than the scores, such as (Tq, Tk) or (B, 1, 1, Tk)."""
    tried = []
    for shape in ((4, 5), (3, 1, 1, 5), (3, 1, 4, 5)):
        scores, allowed = 2 * draw.normal(3, 2, 4, 5), mixed_mask(draw, *shape)
        tried.append((f"For a mask {shape}", scores, allowed, answer(scores, allowed)))
    agrees(tried)


def partly_empty(draw, *shape):
    """A mask in which the first row of the last matrix, and all of the first one, is blocked."""
    allowed = mixed_mask(draw, *shape)
    allowed[-1, ..., 0, :] = False
    allowed[0] = False
    return allowed


@masked_softmax.check(points=2, needs=["is_a_softmax_over_keys"])
def makes_zeros_of_empty_rows(answer, reference, draw):
    """A row with nothing allowed is all zeros, not NaN, and leaves the rows beside it alone."""
    scores, allowed = 2 * draw.normal(3, 2, 4, 5), partly_empty(draw, 3, 2, 4, 5)
    tried = [("With rows in which nothing is allowed", scores, allowed)]
    scores = draw.normal(2, 3, 4)
    tried.append(("With nothing allowed", scores, torch.zeros_like(scores, dtype=torch.bool)))
    agrees([(*one, answer(*one[1:])) for one in tried])


@masked_softmax.check(points=2, needs=["gives_nothing_to_what_is_blocked"])
def holds_when_scores_are_large(answer, reference, draw):
    """Large scores change nothing about that, be they all far below 0, or the blocked ones high."""
    tried = []
    for shift in (5e4, -2e6):
        scores, allowed = draw.normal(3, 4, 5) + shift, mixed_mask(draw, 3, 4, 5)
        what = f"With all scores near {shift:.0e}".replace("e+0", "e")
        tried.append((what, scores, allowed, answer(scores, allowed)))
    scores, allowed = draw.normal(3, 4, 5), mixed_mask(draw, 3, 4, 5)
    scores = torch.where(allowed, scores, scores + 1e4)
    what = "With what is blocked 10000 higher than the rest"
    tried.append((what, scores, allowed, answer(scores, allowed)))
    agrees(tried)


@masked_softmax.check(points=2, needs=["is_a_softmax_over_keys"])
def sends_no_nan_back(answer, reference, draw):
    """Gradients reach `scores`, zero where nothing is allowed, and nowhere NaN."""
    scores, back = draw.normal(3, 2, 4, 5), draw.normal(3, 2, 4, 5)
    allowed = partly_empty(draw, 3, 2, 4, 5)
    agrees_in_gradients(
        answer.backward(back, scores, allowed).gradients[:1],
        lambda scores: softmax_with_history(scores, allowed),
        {"scores": scores},
        back,
    )


@masked_softmax.check(points=2, needs=["gives_nothing_to_what_is_blocked"])
def works_in_half_precision(answer, reference, draw):
    """The result has the dtype of `scores`; float16 and bfloat16 are right, empty rows too."""
    scores, allowed = draw.normal(3, 2, 4, 5), partly_empty(draw, 3, 2, 4, 5)
    back, full = draw.normal(3, 2, 4, 5), mixed_mask(draw, 3, 2, 4, 5)
    for dtype in (*HALF, torch.float64):
        one = scores.to(dtype)
        outcome = answer.backward(back.to(dtype), one, allowed)
        tried = [(f"For {short_name(dtype)} scores", one, allowed, outcome.value)]
        if dtype in HALF:
            low, what = one - 20000, f"For {short_name(dtype)} scores near -20000"
            tried.append((what, low, full, answer(low, full)))
        agrees(tried, rtol=5e-2, atol=5e-3)
        leaf = one.clone().double().requires_grad_()
        softmax_with_history(leaf, allowed).backward(back.double())
        what = f"For {short_name(dtype)} scores their gradient"
        same(outcome.gradients[0], leaf.grad.to(dtype), what, rtol=5e-2, atol=3e-2)


@masked_softmax.check(points=1, needs=["gives_nothing_to_what_is_blocked"])
def leaves_scores_and_mask_untouched(answer, reference, draw):
    """`scores` and `allowed` are the same after the call."""
    leaves_untouched(answer, scores=draw.normal(3, 4, 5), allowed=partly_empty(draw, 3, 4, 5))


@masked_softmax.check(points=1, needs=["gives_nothing_to_what_is_blocked"])
def stays_on_the_device(answer, reference, draw):
    """Everything happens on the device of `scores`, so that it runs on a GPU."""
    answer.on_meta(draw.normal(3, 4, 5), mixed_mask(draw, 3, 4, 5))


# attention


def inputs(draw, *leading, queries=4, keys=5, width=6):
    """Query, key and value of order one, by name."""
    return {
        "query": 1.5 * draw.normal(*leading, queries, width),
        "key": 1.5 * draw.normal(*leading, keys, width),
        "value": draw.normal(*leading, keys, width),
    }


def shifted(given, by):
    """Query and key whose scores are all near `by`: one feature of six is the same in each."""
    size = math.sqrt(abs(by) * math.sqrt(6))
    return {
        name: F.pad(given[name][..., 1:], (1, 0), value=value)
        for name, value in (("query", size), ("key", math.copysign(size, by)))
    }


def pair_of(result, given):
    """Output and weights; Failure unless these two came back, with their shapes."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        came = (
            f"a tensor of shape {tuple(result.shape)}"
            if isinstance(result, torch.Tensor)
            else f"a {type_of(result)}"
        )
        raise Failure(f"Two things were asked for, (output, weights); {came} came back.")
    output, weights = result
    rows = given["query"].shape[:-1]
    shape_of(output, (*rows, given["value"].shape[-1]), "The output")
    shape_of(weights, (*rows, given["key"].shape[-2]), "The weights, which come second,")
    return output, weights


def right_attention(query, key, value, allowed=None):
    """Torch's own, in float64 and with its history."""
    return F.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), attn_mask=allowed
    )


def right_weights(query, key, value, allowed=None):
    """The weights that torch used: what it makes of values that are the rows of an identity."""
    keys = key.shape[-2]
    rows = torch.eye(keys, dtype=torch.float64, device=key.device).expand(*key.shape[:-1], keys)
    return F.scaled_dot_product_attention(query.double(), key.double(), rows, attn_mask=allowed)


LEADING = ((1, 2), (), (2, 1, 3))


def attends(answer, tried, *parts):
    """Fail unless output (part 0), weights (1) or both of each call are torch's."""
    results = [
        (what, given, answer(given["query"], given["key"], given["value"], **more))
        for what, given in tried
        for more in [{name: given[name] for name in given if name == "allowed"}]
    ]
    for part in parts:
        for what, given, result in results:
            got = pair_of(result, given)[part]
            right = (right_attention, right_weights)[part](**given).to(given["query"].dtype)
            name = ("output", "weights")[part]
            # Scores near 200 are rounded in their fifth digit.
            same(got, right, f"{what} the {name}", rtol=1e-4, atol=1e-4)


@attention.check(points=1)
def returns_output_and_weights(answer, reference, draw):
    """A pair comes back: the output (..., Tq, D), then the weights (..., Tq, Tk)."""
    tried = [inputs(draw, *leading) for leading in ((3,), (2, 3))]
    for given, result in [(given, answer(*given.values())) for given in tried]:
        pair_of(result, given)


@attention.check(points=2, needs=["returns_output_and_weights"])
def weighs_by_scaled_dot_products(answer, reference, draw):
    """The weights are a softmax over the keys of query · key, divided by the root of D."""
    tried = []
    # 5 queries of 5 keys: nothing is causal by itself.
    for leading, width, queries in (((2, 3), 4, 3), ((6,), 9, 5)):
        given = inputs(draw, *leading, queries=queries, width=width)
        tried.append((f"At D = {width}", given))
    attends(answer, tried, 1)


@attention.check(points=1, needs=["returns_output_and_weights"])
def mixes_the_values(answer, reference, draw):
    """The output is the sum of the values, each times its weight."""
    for allowed in ((), (mixed_mask(draw, 4, 5),)):
        given = inputs(draw, 2, 3)
        output, weights = pair_of(answer(*given.values(), *allowed), given)
        right = torch.einsum("bhqk,bhkd->bhqd", weights.double(), given["value"].double())
        close(output, right.float(), "The output is not weights times values: it")


@attention.check(points=1, needs=["weighs_by_scaled_dot_products"])
def takes_any_leading_axes(answer, reference, draw):
    """It is torch's attention for any leading axes: none, a batch, a batch and heads, more."""
    attends(answer, [(f"With leading axes {one}", inputs(draw, *one)) for one in LEADING], 0)


@attention.check(points=2, needs=["weighs_by_scaled_dot_products"])
def looks_only_where_it_may(answer, reference, draw):
    """Where `allowed` is False the weight is 0, and the others share 1; it may broadcast."""
    tried = []
    for shape, wins_by in (
        ((4, 5), 0),
        ((2, 1, 1, 5), 100),
        ((2, 1, 1, 5), 1e6),
        ((2, 1, 4, 5), 0),
        ((2, 3, 4, 5), 0),
    ):
        given, allowed = inputs(draw, 2, 3), mixed_mask(draw, *shape)
        if wins_by:  # what is hidden would win by hundreds, or by millions
            given["key"] = torch.where(allowed.mT, given["key"], wins_by * given["key"])
        if shape == (4, 5):
            given |= shifted(given, 200)
        tried.append((f"With a mask {shape}", given | {"allowed": allowed}))
    attends(answer, tried, 1, 0)


def gradients_are_torch_s(answer, draw, allowed):
    """Fail unless gradients run back from the output as through torch's own attention."""
    given, more = inputs(draw, 3, 2), {} if allowed is None else {"allowed": allowed}
    back = draw.normal(3, 2, 4, 6)
    agrees_in_gradients(
        answer.backward((back, None), *given.values(), **more).gradients,
        lambda query, key, value: right_attention(query, key, value, **more),
        given,
        back.double(),
    )


@attention.check(points=2, needs=["looks_only_where_it_may"])
def gives_zeros_where_it_may_look_nowhere(answer, reference, draw):
    """A query that may look nowhere gets weights and an output of 0; nor does NaN come back."""
    tried = []
    for given, allowed in (
        (inputs(draw, 3, 2), partly_empty(draw, 3, 2, 4, 5)),
        (inputs(draw, 2), torch.zeros(4, 5, dtype=torch.bool, device=draw.device)),
    ):
        tried.append(("With rows in which nothing is allowed", given | {"allowed": allowed}))
    attends(answer, tried, 1, 0)
    gradients_are_torch_s(answer, draw, partly_empty(draw, 3, 2, 4, 5))


@attention.check(points=1, needs=["looks_only_where_it_may"])
def attention_lets_gradients_flow(answer, reference, draw):
    """Gradients reach query, key and value from the output."""
    for allowed in (None, mixed_mask(draw, 3, 2, 4, 5)):
        gradients_are_torch_s(answer, draw, allowed)


@attention.check(points=1, needs=["attention_lets_gradients_flow"])
def gradients_flow_through_the_weights(answer, reference, draw):
    """The weights that come back are those that were used: gradients reach query and key."""
    given, back = inputs(draw, 3, 2), draw.normal(3, 2, 4, 5)
    agrees_in_gradients(
        answer.backward((None, back), *given.values()).gradients[:2],
        lambda query, key: right_weights(query, key, given["value"]),
        {"query": given["query"], "key": given["key"]},
        back.double(),
    )


@attention.check(points=1, needs=["looks_only_where_it_may"])
def attention_keeps_the_dtype(answer, reference, draw):
    """Output and weights have the dtype of the query: float64, float32, float16 or bfloat16."""
    given, allowed = inputs(draw, 3, 2), mixed_mask(draw, 3, 2, 4, 5)
    masked = {"allowed": allowed}
    # In float64 all scores are near -4e6, where a small number in a blocked place would win.
    far = shifted(given, -4e6)
    for dtype, more in (
        (torch.float64, masked),
        (torch.float16, {}),
        (torch.float16, masked),
        (torch.bfloat16, masked),
    ):
        here = given | far if dtype == torch.float64 else given
        one = {name: tensor.to(dtype) for name, tensor in here.items()}
        result = pair_of(answer(*one.values(), **more), given)
        right = right_attention(**one, **more), right_weights(**one, **more)
        for name, got, wanted in zip(("output", "weights"), result, right, strict=True):
            what = f"For {short_name(dtype)} inputs the {name}"
            same(got, wanted.to(dtype), what, rtol=5e-2, atol=5e-2)


@attention.check(points=1, needs=["looks_only_where_it_may"])
def attention_leaves_its_inputs_untouched(answer, reference, draw):
    """Query, key, value and mask are the same after the call."""
    leaves_untouched(answer, **inputs(draw, 3, 2), allowed=partly_empty(draw, 3, 2, 4, 5))


@attention.check(points=1, needs=["looks_only_where_it_may"])
def attends_on_the_device(answer, reference, draw):
    """Everything happens on the device of the query, so that it runs on a GPU."""
    given = inputs(draw, 2, 3).values()
    answer.on_meta(*given)
    answer.on_meta(*given, mixed_mask(draw, 4, 5))


# KVCache


def tokens(draw, count):
    """Key and value of `count` tokens, (B, H, T, D)."""
    return draw.normal(2, 3, count, 4), draw.normal(2, 3, count, 4)


def cache_of(value, what="What came back"):
    """`value` if it is an object to be asked for its keys; Failure for plain data."""
    if not isinstance(value, Subject):
        raise Failure(f"{what} is a {type(value).__name__}; a KVCache was asked for.")
    return value


def holds(cache, what, computed=False, **right):
    """Fail unless `cache` has these `keys`, `values` (None: it is empty) and this `length`.

    All of them are read before one is judged, so that two answers are compared by the same. What
    was `computed` in float32 before it was stored is judged to float32's digits.
    """
    digits: dict = {"rtol": 1e-4, "atol": 2e-4} if computed else {}
    cache = cache_of(cache, what)
    found = [(name, cache.attribute(name), right[name]) for name in right]
    for name, got, wanted in found:
        if name == "length":
            counts(got, wanted, what)
        elif wanted is None and got is not None:
            raise Failure(f"`{name}` of {what} is not None; an empty cache has None there.")
        elif wanted is not None:
            same(got, wanted, f"`{name}` of {what}", **digits)


def counts(length, right, what):
    """Fail unless `length` is the int `right`."""
    if type(length) is not int:
        raise Failure(f"`length` of {what} is a {type_of(length)}; an int was asked for.")
    if length != right:
        raise Failure(f"`length` of {what} is {length}; it holds {right} tokens.")


def append(cache, key, value):
    return cache_of(cache).call((key, value), method="append").value


@kv_cache.check(points=1)
def begins_empty(answer, reference, draw):
    """A new cache is empty: `keys` and `values` are None, `length` is 0."""
    holds(answer(), "an empty cache", keys=None, values=None, length=0)


@kv_cache.check(points=1)
def holds_what_it_is_given(answer, reference, draw):
    """`KVCache(keys, values)` holds both, and `length` is the number of tokens."""
    keys, values = tokens(draw, 5)
    holds(answer(keys, values), "a cache of 5 tokens", keys=keys, values=values, length=5)
    keys, values = tokens(draw, 1)
    holds(answer(keys=keys, values=values), "a cache of 1 token", values=values, length=1)


@kv_cache.check(points=2, needs=["begins_empty", "holds_what_it_is_given"])
def appends_along_the_sequence(answer, reference, draw):
    """`append` returns a cache with the new tokens behind the old ones, from the first one on."""
    for start, counts in ((0, (1, 3, 4)), (2, (1,))):
        parts = [tokens(draw, count) for count in ((start,) if start else ()) + counts]
        cache = answer(*parts[0]) if start else answer()
        for key, value in parts[1:] if start else parts:
            cache = append(cache, key, value)
        keys, values = (torch.cat(one, dim=2) for one in zip(*parts, strict=True))
        length = keys.shape[2]
        what = f"a cache of {length}, its last {counts[-1]} appended"
        holds(cache, what, keys=keys, values=values, length=length)


@kv_cache.check(points=2, needs=["appends_along_the_sequence"])
def leaves_the_old_cache_alone(answer, reference, draw):
    """The old cache stays as it was, so that two texts can go on from one beginning."""
    empty, (keys, values), other = answer(), tokens(draw, 2), tokens(draw, 3)
    start = append(empty, keys, values)
    first = append(start, *other)
    append(start, *tokens(draw, 1))
    holds(empty, "the empty cache, after an append,", keys=None)
    what = "a cache of 2, after two appends,"
    holds(start, what, keys=keys, values=values, length=2)
    whole = torch.cat([keys, other[0]], dim=2)
    holds(first, "the first of two that go on from one cache", keys=whole)


@kv_cache.check(points=1, needs=["appends_along_the_sequence"])
def lets_gradients_through(answer, reference, draw):
    """Gradients reach the keys and values that were appended, to an empty cache too."""
    old, new = tokens(draw, 2), tokens(draw, 3)
    for cache, start in ((answer(), 0), (answer(*old), 2)):
        back = {name: draw.normal(2, 3, start + 3, 4) for name in ("keys", "values")}
        got = cache_of(cache).call(new, method="append", backward=back).gradients
        for name, one, right in zip(("key", "value"), got, back.values(), strict=True):
            if one is None:
                raise Failure(f"No gradient reaches `{name}`: something cuts it off.")
            same(one, right[:, :, start:], f"The gradient of `{name}`")


@kv_cache.check(points=1, needs=["appends_along_the_sequence"])
def cache_keeps_dtype_and_device(answer, reference, draw):
    """Keys and values keep their dtype and stay on their device."""
    parts = [tokens(draw, 2), tokens(draw, 3)]
    old, new = ([one.half() for one in part] for part in parts)
    keys, values = (torch.cat(pair, dim=2) for pair in zip(old, new, strict=True))
    holds(append(answer(*old), *new), "a cache of float16 tokens", keys=keys, values=values)
    cache = answer.on_meta()
    for part in parts:
        if not isinstance(cache, Subject):
            return  # it failed for another reason
        cache = cache.attribute("append").on_meta(*part)
    for name in ("keys", "values") if isinstance(cache, Subject) else ():
        if cache.attribute(name).device.type != "meta":
            raise Failure(f"The tokens were on another device, and `{name}` is on the CPU.")


# ManualMultiHeadAttention

NAMES = ("query", "key", "value", "output")


def loaded(answer, draw, width, heads, *, size=0.6, train=False, **kwargs):
    """A module of the answer in eval mode, and the weights of order one loaded into it.

    With `train` it stays in the mode of a new module.
    """
    weights = {}
    for name in NAMES:
        weights[f"{name}_projection.weight"] = size * draw.normal(width, width)
        weights[f"{name}_projection.bias"] = size * draw.gain(width)
    module = answer.call((width, heads), kwargs, seed=0).value
    if not isinstance(module, Subject):
        raise Failure(f"An nn.Module was asked for; this is a {type(module).__name__}.")
    module.load(**weights)
    return module if train else module.eval(), weights


def turned(x):
    """RoPE as multiplication by complex numbers, for tokens at 0, 1, 2, …"""
    width = x.shape[-1]
    speed = [10000 ** (-2 * i / width) for i in range(width // 2)]
    place = torch.arange(x.shape[-2], dtype=torch.float64, device=x.device)
    angles = place[:, None] * torch.tensor(speed, dtype=torch.float64, device=x.device)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], width // 2, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def projected(weights, name, x, heads):
    """(B, H, T, D), float64: head h has the h-th slice of the width."""
    wide = {key: tensor.double() for key, tensor in weights.items()}
    y = F.linear(x.double(), wide[f"{name}_projection.weight"], wide[f"{name}_projection.bias"])
    return torch.stack(y.chunk(heads, dim=-1), dim=1)


def right_heads(weights, heads, x, memory=None, allowed=None, rope=False):
    """What the module has to return, from torch's own attention, in float64 and with history."""
    source = x if memory is None else memory
    query, key, value = (
        projected(weights, name, one, heads)
        for name, one in (("query", x), ("key", source), ("value", source))
    )
    if rope:
        query, key = turned(query), turned(key)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    joined = torch.cat(mixed.unbind(dim=1), dim=-1)
    weight, bias = (weights[f"output_projection.{one}"].double() for one in ("weight", "bias"))
    return F.linear(joined, weight, bias)


def allowed_for(draw, queries, keys, key_valid=None, causal=False):
    """The allowed mask (B or 1, 1, Tq, Tk), written out: the queries are the last of the keys."""
    past = keys - queries
    pairs = mask_of(lambda i, j: not causal or j <= past + i, queries, keys, draw)
    return pairs[None, None] if key_valid is None else pairs & key_valid[:, None, None, :]


def valid_tokens(draw, length, left=True):
    """(3, T): padding on the left (or one token on the right), on the right, and none."""
    return mask_of(
        lambda i, j: not (i == 0 and (j < 2 if left else j == length - 1) or i == 1 and j > 2),
        3,
        length,
        draw,
    )


def agree(tried):
    """Fail unless each result is what the module has to return, to float32's digits."""
    for what, got, right in tried:
        same(got, right.float(), f"{what} the output", rtol=2e-4, atol=2e-4)


@multi_head.check(points=1)
def has_four_projections(answer, reference, draw):
    """It trains four linear layers (C, C) with bias, called as asked, and nothing else."""
    module = answer(6, 2)
    has_layers(module, {f"{name}_projection": (6, 6) for name in NAMES})
    types = module.describe(values=False).modules
    for name in [f"{name}_projection" for name in NAMES]:
        if types.get(name, ("",))[0] != "Linear":  # a subclass, then?
            if "Linear" not in module.attribute(name).kind().bases:
                raise Failure(f"`{name}` has to be an nn.Linear.")


@multi_head.check(points=4, needs=["has_four_projections"])
def attends_in_heads(answer, reference, draw):
    """With the same weights it returns what nn.MultiheadAttention returns, for any head count."""
    tried = []
    for width, heads, shape in ((15, 3, (2, 5)), (6, 6, (3, 4)), (4, 1, (1, 2))):
        module, weights = loaded(answer, draw, width, heads)
        x = draw.normal(*shape, width)
        tried.append((f"With C = {width}, H = {heads}", module(x), torch_s_own(weights, heads, x)))
    agree(tried)


def torch_s_own(weights, heads, x):
    """nn.MultiheadAttention with these weights copied into it, in float64."""
    own = nn.MultiheadAttention(x.shape[-1], heads, batch_first=True, dtype=torch.float64)
    stacked = {
        part: torch.cat([weights[f"{name}_projection.{part}"] for name in NAMES[:3]])
        for part in ("weight", "bias")
    }
    own.load_state_dict(
        {
            "in_proj_weight": stacked["weight"],
            "in_proj_bias": stacked["bias"],
            "out_proj.weight": weights["output_projection.weight"],
            "out_proj.bias": weights["output_projection.bias"],
        }
    )
    wide = x.double()
    return own.to(x.device)(wide, wide, wide, need_weights=False)[0].detach()


@multi_head.check(points=2, needs=["attends_in_heads"])
def looks_at_the_memory(answer, reference, draw):
    """With `memory` the queries come from the input, keys and values from the memory, unturned."""
    module, weights = loaded(answer, draw, 12, 3, use_rope=True)
    tried = []
    for queries, keys, hide in ((4, 6, False), (5, 5, False), (5, 2, True), (1, 3, True)):
        x, memory = draw.normal(3, queries, 12), draw.normal(3, keys, 12)
        valid = mask_of(lambda i, j: i != j or i > 1, 3, keys, draw)
        allowed = allowed_for(draw, queries, keys, valid) if hide else None
        masks = {"key_valid": valid} if hide else {}
        what = f"With {queries} queries, a memory of {keys}" + " and `key_valid`" * hide
        right = right_heads(weights, 3, x, memory, allowed)
        tried.append((what, module(x, memory, **masks), right))
    agree(tried)


@multi_head.check(points=2, needs=["attends_in_heads"])
def hides_padded_keys(answer, reference, draw):
    """`key_valid` hides keys, on either side, and nothing else: padded queries still look."""
    module, weights = loaded(answer, draw, 12, 3)
    x, valid = draw.normal(3, 5, 12), valid_tokens(draw, 5)
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 5, 5, valid))
    agree([("With `key_valid`", module(x, key_valid=valid), right)])


@multi_head.check(points=1, needs=["attends_in_heads"])
def silences_padded_queries(answer, reference, draw):
    """`query_valid` makes output rows zero, behind the output projection, and nothing else."""
    module, weights = loaded(answer, draw, 12, 3)
    x, memory, valid = draw.normal(3, 5, 12), draw.normal(3, 4, 12), valid_tokens(draw, 5)
    hidden = mask_of(lambda i, j: j != i, 3, 5, draw)
    calls = (
        ("With `query_valid`", module(x, query_valid=valid), None, None),
        ("With `query_valid` and a memory", module(x, memory, query_valid=valid), memory, None),
        (
            "With other `key_valid` and `query_valid`",
            module(x, key_valid=hidden, query_valid=valid),
            None,
            allowed_for(draw, 5, 5, hidden),
        ),
    )
    agree(
        [
            (what, got, right_heads(weights, 3, x, source, allowed) * valid[:, :, None])
            for what, got, source, allowed in calls
        ]
    )


@multi_head.check(points=2, needs=["attends_in_heads"])
def looks_back_only(answer, reference, draw):
    """With `causal` a token sees itself and what came before it."""
    module, weights = loaded(answer, draw, 12, 3)
    x = draw.normal(3, 5, 12)
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 5, 5, causal=True))
    agree([("With `causal`", module(x, causal=True), right)])


@multi_head.check(points=2, needs=["hides_padded_keys", "looks_back_only"])
def joins_causal_and_padding(answer, reference, draw):
    """Both masks together: a key is seen if neither hides it; who sees none gets the bias alone."""
    module, weights = loaded(answer, draw, 12, 3)
    x, valid = draw.normal(4, 6, 12), valid_tokens(draw, 6)
    valid = torch.cat([valid, torch.zeros_like(valid[:1])])  # and a sentence of padding alone
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 6, 6, valid, causal=True))
    both = module(x, key_valid=valid, causal=True)
    silent = module(x, key_valid=valid, causal=True, query_valid=valid)
    agree(
        [
            ("With `causal` and `key_valid`", both, right),
            ("With all three masks", silent, right * valid[:, :, None]),
        ]
    )


@multi_head.check(points=2, needs=["attends_in_heads"])
def turns_queries_and_keys(answer, reference, draw):
    """With `use_rope` queries and keys, not values, are turned head by head, as in lesson 4."""
    module, weights = loaded(answer, draw, 12, 3, use_rope=True)
    x, valid = draw.normal(3, 5, 12), valid_tokens(draw, 5, left=False)
    allowed = allowed_for(draw, 5, 5, valid, causal=True)
    agree(
        [
            ("With `use_rope`", module(x), right_heads(weights, 3, x, rope=True)),
            (
                "With `use_rope`, `causal` and `key_valid`",
                module(x, key_valid=valid, causal=True),
                right_heads(weights, 3, x, allowed=allowed, rope=True),
            ),
        ]
    )


# Dropout is made visible: all scores are equal, so each of two tokens has weight 1/2; token 0 is
# 1 in two features of each head and token 1 in the other two; the output adds a bias.


def with_visible_weights(answer, draw, *args, **kwargs):
    value = torch.zeros(12, 12)
    for row in range(12):
        value[row, row % 4 // 2] = 1.0
    bias, ones = draw.gain(12), torch.ones(12)
    module = answer.call((12, 3, *args), kwargs, seed=0).value.load(
        query_projection__weight=torch.zeros(12, 12),
        query_projection__bias=ones,
        key_projection__weight=torch.zeros(12, 12),
        key_projection__bias=ones,
        value_projection__weight=value,
        value_projection__bias=torch.zeros(12),
        output_projection__weight=torch.eye(12),
        output_projection__bias=bias,
    )
    x = torch.zeros(60, 2, 12, device=draw.device)
    x[:, 0, 0] = x[:, 1, 1] = 1.0
    return module, x, bias


@multi_head.check(points=2, needs=["attends_in_heads"])
def drops_weights(answer, reference, draw):
    """In training each weight of each head is dropped on its own, and the others are scaled up."""
    for by_name in (True, False):
        p = draw.number(0.3, 0.6)
        given = ((), {"dropout": p}) if by_name else ((p,), {})
        module, x, bias = with_visible_weights(answer, draw, *given[0], **given[1])
        seed = draw.integers(0, 1000).item()
        result = (module.train() if by_name else module).call((x,), seed=seed).value
        shape_of(result, x.shape)
        seen = (result - bias).unflatten(-1, (3, 2, 2))  # (B, Tq, H, Tk, twice the same)
        kept = seen > 0.25
        right = (kept * 0.5 / (1 - p)).float()
        what = f"With `dropout={p:.2f}` in training and two tokens of weight 1/2, a weight"
        close(seen, right, what, rtol=1e-3, atol=1e-4)
        if not torch.equal(kept[..., 0], kept[..., 1]):
            raise Failure(f"{what} is dropped as a whole, not for single features.")
        dropped = 1 - kept.double().mean().item()
        if abs(dropped - p) > 0.09:
            raise Failure(f"{what} is dropped in {dropped:.0%} of the cases, not in {p:.0%}.")
        for axis in range(4):
            if torch.equal(kept, kept.narrow(axis, 0, 1).expand_as(kept)):
                raise Failure(f"{what} is dropped on its own, not together with others.")
        if by_name and torch.equal(result, module.call((x,), seed=1000).value):
            raise Failure(f"{what} is drawn anew at each call. Two calls dropped the same ones.")


@multi_head.check(points=1, needs=["attends_in_heads"])
def drops_nothing_else(answer, reference, draw):
    """In eval mode nothing is dropped, and in training nothing where no dropout is given."""
    x, valid = draw.normal(3, 5, 12), valid_tokens(draw, 5, left=False)
    masks = {"key_valid": valid, "causal": True}
    allowed = allowed_for(draw, 5, 5, **masks)
    module, weights = loaded(answer, draw, 12, 3, dropout=0.5)
    quiet, masked = (module.call((x,), more, seed=1).value for more in ({}, masks))
    tried = [
        ("In eval mode, with `dropout=0.5`,", quiet, right_heads(weights, 3, x)),
        ("In eval mode, with both masks,", masked, right_heads(weights, 3, x, allowed=allowed)),
    ]
    module, weights = loaded(answer, draw, 12, 3, train=True)
    plain = module.call((x,), masks, seed=1).value
    right = right_heads(weights, 3, x, allowed=allowed)
    agree([*tried, ("In training, with no dropout given,", plain, right)])


def output_and_cache(result, what):
    """The two that come back with `use_cache`."""
    output, cache = pair(result, "(output, new cache)", what)
    return output, cache_of(cache, f"{what}: the second that came back")


def in_chunks(module, x, chunks, valid=None, **options):
    """The outputs for x given in `chunks`, each with the cache of those before, and the last."""

    def step(start, end, cache):
        now = options | ({} if valid is None else {"key_valid": valid[:, :end]})
        result = module(x[:, start:end], cache=cache, use_cache=True, **now)
        what = f"Tokens {start} to {end - 1}"
        output, cache = output_and_cache(result, what)
        shape_of(output, (x.shape[0], end - start, x.shape[2]), f"{what}: output")
        return output, cache

    return chunk_by_chunk(chunks, step)


CHUNKS = ((1, 1, 3), (3, 2))


@multi_head.check(points=1, needs=["attends_in_heads"])
def returns_a_cache(answer, reference, draw):
    """With `use_cache` a pair comes back, on the first call too: the output, and the new cache."""
    module, weights = loaded(answer, draw, 12, 3)
    x = draw.normal(2, 4, 12)
    output, cache = output_and_cache(module(x, use_cache=True), "With `use_cache`")
    agree([("With `use_cache`", output, right_heads(weights, 3, x))])
    keys, values = (projected(weights, name, x, 3).float() for name in ("key", "value"))
    holds(cache, "the cache that came back", computed=True, keys=keys, values=values, length=4)


@multi_head.check(points=3, needs=["returns_a_cache", "looks_back_only"])
def goes_on_from_a_cache(answer, reference, draw):
    """Causal chunks of 1, 2 or 3 tokens, each with the last cache, give what all at once gives."""
    module, weights = loaded(answer, draw, 12, 3)
    x = draw.normal(2, 5, 12)
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 5, 5, causal=True))
    tried = [(f"In chunks of {one}", in_chunks(module, x, one, causal=True)[0]) for one in CHUNKS]
    agree([(*one, right) for one in tried])


@multi_head.check(points=2, needs=["goes_on_from_a_cache", "turns_queries_and_keys"])
def turns_new_keys_from_where_they_stand(answer, reference, draw):
    """With `use_rope` new tokens stand behind the cached ones; keys are turned, then stored."""
    module, weights = loaded(answer, draw, 12, 3, use_rope=True)
    x, chunks = draw.normal(2, 5, 12), (1, 1, 3)
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 5, 5, causal=True), rope=True)
    module(draw.normal(2, 3, 12), causal=True, use_cache=True)  # another text leaves no trace
    got, cache = in_chunks(module, x, chunks, causal=True)
    agree([(f"With `use_rope` in chunks of {chunks}", got, right)])
    keys, values = (projected(weights, name, x, 3) for name in ("key", "value"))
    what = "the last cache, `use_rope`,"
    holds(cache, what, computed=True, keys=turned(keys).float(), values=values.float())


@multi_head.check(points=2, needs=["goes_on_from_a_cache", "joins_causal_and_padding"])
def hides_padding_in_the_cache(answer, reference, draw):
    """With a cache `key_valid` covers all tokens so far, padding on either side."""
    module, weights = loaded(answer, draw, 12, 3)
    x, valid, chunks = draw.normal(3, 5, 12), valid_tokens(draw, 5), (3, 1, 1)
    right = right_heads(weights, 3, x, allowed=allowed_for(draw, 5, 5, valid, causal=True))
    got, cache = in_chunks(module, x, chunks, valid, causal=True)
    agree([(f"With `key_valid` in chunks of {chunks}", got, right)])
    keys = projected(weights, "key", x, 3).float()
    holds(cache, "the last cache, padding or not,", computed=True, keys=keys)


@multi_head.check(points=1, needs=["returns_a_cache"])
def sees_all_so_far(answer, reference, draw):
    """Without `causal` new tokens see all cached and new ones; a cache alone is used as well."""
    module, weights = loaded(answer, draw, 12, 3)
    x, tried = draw.normal(2, 6, 12), []
    right = right_heads(weights, 3, x)
    _, cache = output_and_cache(module(x[:, :3], use_cache=True), "With `use_cache`")
    with_cache, _ = output_and_cache(
        module(x[:, 3:], cache=cache, use_cache=True), "With a cache and `use_cache`"
    )
    tried.append(("With a cache of 3 and 3 new tokens", with_cache, right[:, 3:]))
    alone = module(x[:, 3:], cache=cache)
    tried.append(("With a cache, without `use_cache`,", alone, right[:, 3:]))
    agree(tried)


@multi_head.check(points=1, needs=["returns_a_cache"])
def leaves_a_given_cache_alone(answer, reference, draw):
    """A cache that is given stays as it was: two texts can go on from one beginning."""
    module, weights = loaded(answer, draw, 12, 3)
    x, other = draw.normal(2, 5, 12), draw.normal(2, 2, 12)
    _, cache = output_and_cache(module(x[:, :3], use_cache=True), "With `use_cache`")
    module(other, cache=cache, use_cache=True)
    again = module(x[:, 3:], cache=cache)
    keys = projected(weights, "key", x[:, :3], 3).float()
    holds(cache, "a cache that was used twice", computed=True, keys=keys)
    agree(
        [("The second of two that go on from one cache:", again, right_heads(weights, 3, x)[:, 3:])]
    )


@multi_head.check(points=1)
def refuses_a_width_that_does_not_divide(answer, reference, draw):
    """A width that the heads don't divide is a ValueError, raised by `__init__`."""
    tried = [(sizes, answer.attempt(sizes)) for sizes in ((10, 3), (4, 8), (12, 5))]
    for (width, heads), outcome in tried:
        refuses(outcome, f"d_model is {width} and num_heads {heads}")


def gradients_are_right(loaded_module, draw, memory=None, key_valid=None, causal=False):
    """Fail unless gradients reach input, memory and parameters as through torch's attention."""
    module, weights = loaded_module
    x, back = draw.normal(3, 5, 12), draw.normal(3, 5, 12)
    given = {"query_input": x} | ({} if memory is None else {"memory": memory})
    options = {} if key_valid is None else {"key_valid": key_valid}
    options |= {"causal": True} if causal else {}
    allowed = None if memory is not None else allowed_for(draw, 5, 5, key_valid, causal)
    got = module.backward(back, *given.values(), **options)
    agrees_in_gradients(
        [*got.gradients[: len(given)], *(got.parameters[name] for name in weights)],
        lambda query_input, memory=None, **named: right_heads(
            named, 3, query_input, memory, allowed
        ).to(query_input.dtype),
        given | weights,
        back,
    )


@multi_head.check(points=2, needs=["attends_in_heads"])
def multi_head_lets_gradients_flow(answer, reference, draw):
    """Gradients reach the input, the memory and every parameter."""
    module = loaded(answer, draw, 12, 3)
    gradients_are_right(module, draw, draw.normal(3, 4, 12))
    gradients_are_right(module, draw, None, valid_tokens(draw, 5, left=False), True)


@multi_head.check(points=1, needs=["joins_causal_and_padding"])
def multi_head_sends_no_nan_back(answer, reference, draw):
    """Nor does NaN come back to anything where a token sees nobody."""
    gradients_are_right(loaded(answer, draw, 12, 3), draw, None, valid_tokens(draw, 5), True)


@multi_head.check(points=1, needs=["goes_on_from_a_cache"])
def gradients_flow_beside_a_cache(answer, reference, draw):
    """With a cache gradients reach the new tokens, and the parameters by way of the old ones."""
    module, weights = loaded(answer, draw, 12, 3)
    old, new, back = draw.normal(2, 3, 12), draw.normal(2, 2, 12), draw.normal(2, 2, 12)
    allowed = allowed_for(draw, 5, 5, causal=True)
    _, cache = output_and_cache(module(old, causal=True, use_cache=True), "With `use_cache`")
    got = module.backward(back, new, causal=True, cache=cache)
    agrees_in_gradients(
        [got.gradients[0], *(got.parameters[name] for name in weights)],
        lambda query_input, **named: right_heads(
            named, 3, torch.cat([old, query_input], dim=1), allowed=allowed
        )[:, 3:].to(old.dtype),
        {"query_input": new} | weights,
        back,
    )


@multi_head.check(points=1, needs=["attends_in_heads"])
def multi_head_keeps_the_dtype(answer, reference, draw):
    """Moved to another dtype it returns that dtype, with masks, with RoPE and with a cache."""
    x, valid = draw.normal(3, 5, 12), valid_tokens(draw, 5, left=False)
    allowed = allowed_for(draw, 5, 5, valid, causal=True)
    module, weights = loaded(answer, draw, 12, 3, use_rope=True, size=0.3)
    # In float64 scores are near 1e5, where a small number in a blocked place would win.
    for dtype, size in ((torch.float64, 300), (torch.float16, 1), (torch.bfloat16, 1)):
        module, one, more = module.to(dtype=dtype), (size * x).to(dtype), {"rope": True}
        if dtype == torch.bfloat16:
            got = module(one)
        else:
            got, more = (
                in_chunks(module, one, (3, 2), valid, causal=True)[0],
                more | {"allowed": allowed},
            )
        right = right_heads(weights, 3, size * x, **more).to(dtype)
        same(got, right, f"For {short_name(dtype)} inputs the output", rtol=5e-2, atol=5e-2)


@multi_head.check(points=1, needs=["attends_in_heads"])
def multi_head_leaves_its_inputs_untouched(answer, reference, draw):
    """The input, the memory and both masks are the same after the call."""
    module, _ = loaded(answer, draw, 12, 3, train=True, use_rope=True)
    x, memory, valid = draw.normal(3, 5, 12), draw.normal(3, 4, 12), valid_tokens(draw, 5)
    leaves_untouched(module, query_input=x, memory=memory)
    masks = {"key_valid": valid, "query_valid": valid, "causal": True}
    after = module.call((x,), masks, after=True)
    untouched(after.arguments[0], x, "query_input")
    for name in ("key_valid", "query_valid"):
        untouched(after.keywords[name], valid, name)


@multi_head.check(points=1, needs=["attends_in_heads"])
def is_the_same_at_every_call(answer, reference, draw):
    """A call leaves no trace in the next, be it longer, of another batch, or with a cache."""
    module, _ = loaded(answer, draw, 12, 3, use_rope=True)
    x = draw.normal(2, 4, 12)
    before = module(x, causal=True)
    module(2 * draw.normal(3, 6, 12), causal=True)
    module(draw.normal(2, 3, 12), causal=True, use_cache=True)
    same(module(x, causal=True), before, "A second call on the same x")


@multi_head.check(points=1, needs=["has_four_projections"])
def owns_its_projections(answer, reference, draw):
    """Two modules do not share weights."""
    owns_its_parameters(lambda: answer(6, 2), draw)


@multi_head.check(points=1, needs=["attends_in_heads"])
def multi_head_stays_on_the_device(answer, reference, draw):
    """Moved to another device all of it moves, and masks and positions are made there."""
    x, memory, valid = draw.normal(3, 5, 12), draw.normal(3, 4, 12), valid_tokens(draw, 5)
    answer(12, 3).to(device="meta").on_meta(x)
    module = answer(12, 3, use_rope=True).to(device="meta")
    module.on_meta(x)
    module.on_meta(x, memory, query_valid=valid)
    first = module.on_meta(x, key_valid=valid, causal=True, use_cache=True)
    if isinstance(first, tuple):
        module.on_meta(x, causal=True, cache=first[1])
