"""Right answers of lesson 05 in other styles than the reference's. All must get full marks."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from solutions.masks import KVCache
from solutions.positions import apply_rope

# causal_blocked_mask


def causal_by_comparison(length, device=None):
    place = torch.arange(length, device=device)
    return place[None, :] > place[:, None]


def causal_by_tril(length, device=None):
    return ~torch.tril(torch.ones((length, length), device=device)).bool()


def causal_by_lists(length, device=None):
    return torch.tensor([[j > i for j in range(length)] for i in range(length)], device=device)


def causal_by_counting(length, device="cpu"):
    return (
        torch.eye(length, device=device)
        .cumsum(1)
        .bool()
        .logical_xor(torch.eye(length, dtype=torch.bool, device=device))
    )


def causal_by_torch_s_own(length, device=None):
    return nn.Transformer.generate_square_subsequent_mask(length, device=device) == -math.inf


def causal_row_by_row(length, device=None):
    mask = torch.zeros(length, length, dtype=torch.bool, device=device)
    for row in range(length):
        mask[row, row + 1 :] = True
    return mask


# padding_blocked_mask


def padding_by_eq(token_ids, pad_id=0):
    return token_ids.eq(pad_id)


def padding_by_difference(token_ids, pad_id=0):
    return (token_ids - pad_id).bool().logical_not()


def padding_by_isin(token_ids, pad_id=0):
    return torch.isin(token_ids, torch.tensor([pad_id], device=token_ids.device))


def padding_by_full(token_ids, pad_id=0):
    return token_ids == torch.full_like(token_ids, pad_id)


def padding_by_lists(token_ids, pad_id=0):
    rows = [[one == pad_id for one in row] for row in token_ids.tolist()]
    return torch.tensor(rows, device=token_ids.device)


# allowed_mask


def allowed_by_or(blocked_pairs=None, blocked_keys=None):
    blocked = torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    for one in (blocked_pairs, blocked_keys):
        blocked = blocked if one is None else blocked.to(one.device)
    if blocked_pairs is not None:
        blocked = blocked | blocked_pairs
    if blocked_keys is not None:
        blocked = blocked | blocked_keys.unsqueeze(1).unsqueeze(2)
    return torch.logical_not(blocked)


def allowed_by_cases(blocked_pairs=None, blocked_keys=None):
    keys = None if blocked_keys is None else blocked_keys.view(len(blocked_keys), 1, 1, -1)
    if blocked_pairs is None and keys is None:
        return torch.ones((1,), dtype=torch.bool)
    if keys is None:
        return blocked_pairs == False  # noqa: E712
    if blocked_pairs is None:
        return keys.logical_not()
    return torch.logical_not(torch.logical_or(blocked_pairs, keys))


def allowed_by_product(blocked_pairs=None, blocked_keys=None):
    pairs = torch.tensor(1) if blocked_pairs is None else 1 - blocked_pairs.long()
    keys = torch.tensor(1) if blocked_keys is None else 1 - blocked_keys.long()[:, None, None]
    return (pairs * keys).bool()


def allowed_by_where(blocked_pairs=None, blocked_keys=None):
    if blocked_keys is None:
        return torch.tensor([[True]]) if blocked_pairs is None else ~blocked_pairs[None, None]
    hidden = blocked_keys[:, None, None, :]
    if blocked_pairs is None:
        return ~hidden
    pairs = blocked_pairs.expand(len(blocked_keys), 1, *blocked_pairs.shape)
    return torch.where(hidden, False, ~pairs)


# masked_softmax


def softmax_by_infinity(scores, allowed):
    weights = torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1)
    return torch.where(allowed, weights, 0.0)


def softmax_by_nan_to_num(scores, allowed):
    return F.softmax(scores.masked_fill(allowed.logical_not(), -torch.inf), dim=-1).nan_to_num()


def softmax_by_exponentials(scores, allowed):
    low = torch.finfo(scores.dtype).min
    top = torch.where(allowed, scores, low).amax(-1, keepdim=True).detach()
    parts = torch.where(allowed, scores - top, low).exp() * allowed
    total = parts.sum(-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def softmax_by_opening_empty_rows(scores, allowed):
    some = allowed.any(dim=-1, keepdim=True)
    filled = torch.where(allowed | ~some, scores, -torch.inf)
    return filled.softmax(-1) * some.to(scores.dtype)


def softmax_in_float64(scores, allowed):
    wide = scores.double().masked_fill(~allowed, -1e300)
    return (wide.softmax(-1) * allowed).to(scores.dtype)


def softmax_by_bias(scores, allowed):
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    bias = torch.zeros(allowed.shape, dtype=wide.dtype, device=wide.device)
    bias = bias.masked_fill(~allowed, torch.finfo(wide.dtype).min / 2)
    return (torch.softmax(wide + bias, -1) * allowed).type_as(scores)


def softmax_row_by_row(scores, allowed):
    mask = allowed.expand(scores.shape)
    rows = []
    for row, free in zip(
        scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]), strict=True
    ):
        empty = torch.zeros_like(row)
        rows.append(empty.masked_scatter(free, row[free].softmax(0)) if free.any() else 0 * row)
    return torch.stack(rows).reshape(scores.shape)


def softmax_by_logarithms(scores, allowed):
    low = torch.finfo(scores.dtype).min
    logs = torch.log_softmax(torch.where(allowed, scores, low), dim=-1)
    return logs.exp().masked_fill(~allowed, 0)


def softmax_by_safe_softmax(scores, allowed):
    return torch.ops.aten._safe_softmax(scores.masked_fill(~allowed, -torch.inf), -1)


SOFTMAXES = [
    softmax_by_infinity,
    softmax_by_nan_to_num,
    softmax_by_exponentials,
    softmax_by_opening_empty_rows,
    softmax_in_float64,
    softmax_by_bias,
    softmax_row_by_row,
    softmax_by_logarithms,
    softmax_by_safe_softmax,
]

# attention


def attention_around(softmax):
    def attention(query, key, value, allowed=None):
        scale = query.shape[-1] ** -0.25
        scores = (query * scale) @ (key * scale).mT
        allowed = torch.ones_like(scores, dtype=torch.bool) if allowed is None else allowed
        weights = softmax(scores, allowed)
        return torch.matmul(weights, value), weights

    return attention


def attention_by_einsum(query, key, value, allowed=None):
    scores = torch.einsum("...qd,...kd->...qk", query, key) / query.size(-1) ** 0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if allowed is not None:
        weights = weights * allowed
    return torch.einsum("...qk,...kd->...qd", weights, value), weights


def attention_by_sums(query, key, value, allowed=None):
    root = torch.tensor(float(query.shape[-1]), dtype=query.dtype, device=query.device).sqrt()
    scores = (query[..., :, None, :] * key[..., None, :, :]).sum(-1) / root
    weights = softmax_by_infinity(scores, scores == scores if allowed is None else allowed)
    return [(weights[..., None] * value[..., None, :, :]).sum(-2), weights]


def attention_in_float64(query, key, value, allowed=None):
    wide = [one.double() for one in (query, key, value)]
    scores = wide[0] @ wide[1].transpose(-1, -2) / math.sqrt(query.shape[-1])
    weights = softmax_in_float64(
        scores, torch.tensor([True], device=query.device) if allowed is None else allowed
    )
    return (weights @ wide[2]).to(query.dtype), weights.to(query.dtype)


def attention_row_by_row(query, key, value, allowed=None):
    weights = []
    for i in range(query.shape[-2]):
        scores = (key @ query[..., i, :, None]).squeeze(-1) / query.shape[-1] ** 0.5
        if allowed is None:
            weights.append(scores.softmax(-1))
        else:
            free = allowed.expand(*query.shape[:-1], key.shape[-2])[..., i, :]
            weights.append(softmax_by_opening_empty_rows(scores, free))
    stacked = torch.stack(weights, dim=-2)
    return stacked @ value, stacked


# KVCache


@dataclass(frozen=True)
class FrozenCache:
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None

    @property
    def length(self) -> int:
        return self.keys.size(-2) if self.keys is not None else 0

    def append(self, key, value):
        if self.keys is None:
            return FrozenCache(key, value)
        return FrozenCache(torch.cat((self.keys, key), -2), torch.cat((self.values, value), -2))


class CacheOfTwo(NamedTuple):
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None

    @property
    def length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, key, value):
        keys = [one for one in (self.keys, key) if one is not None]
        values = [one for one in (self.values, value) if one is not None]
        return self._replace(keys=torch.cat(keys, 2), values=torch.cat(values, 2))


class CacheWithNumbers:
    def __init__(self, keys=None, values=None):
        self.keys = keys
        self.values = values
        self.length = 0 if keys is None else int(keys.shape[-2])

    def append(self, key, value):
        new = CacheWithNumbers()
        new.length = self.length + key.shape[-2]
        new.keys = self._behind(self.keys, key)
        new.values = self._behind(self.values, value)
        return new

    def _behind(self, old, new):
        if old is None:
            return new.clone()
        room = torch.empty(
            *new.shape[:2],
            self.length + new.shape[2],
            new.shape[3],
            dtype=new.dtype,
            device=new.device,
        )
        room[:, :, : self.length] = old
        room[:, :, self.length :] = new
        return room


class LazyCache:
    """Keeps the pieces, and joins them when asked."""

    def __init__(self, keys=None, values=None, pieces=()):
        self.pieces = pieces or (() if keys is None else ((keys, values),))

    keys = property(lambda self: self._joined(0))
    values = property(lambda self: self._joined(1))

    def _joined(self, which):
        return torch.cat([one[which] for one in self.pieces], 2) if self.pieces else None

    @property
    def length(self):
        return sum(key.shape[2] for key, _ in self.pieces)

    def append(self, key, value):
        return LazyCache(pieces=(*self.pieces, (key, value)))


class ModuleCache(nn.Module):
    def __init__(self, keys=None, values=None):
        super().__init__()
        self.keys, self.values = keys, values

    @property
    def length(self):
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, key, value):
        if not self.length:
            return ModuleCache(key, value)
        return ModuleCache(
            *(torch.cat(pair, 2) for pair in ((self.keys, key), (self.values, value)))
        )


# ManualMultiHeadAttention


class Projections(nn.Module):
    """The four layers; each style below writes its own forward."""

    def __init__(self, d_model, num_heads, dropout=0.0, use_rope=False):
        super().__init__()
        if d_model % num_heads != 0:
            raise ValueError("d_model must be divisible by num_heads")
        self.heads, self.head_dim, self.rope = num_heads, d_model // num_heads, use_rope
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.output_projection = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p=dropout)


class ByTorchsProduct(Projections):
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
        B, T, C = query_input.shape
        source = query_input if memory is None else memory
        q = self.query_projection(query_input).view(B, T, self.heads, -1).transpose(1, 2)
        k = self.key_projection(source).view(B, -1, self.heads, self.head_dim).transpose(1, 2)
        v = self.value_projection(source).view(B, -1, self.heads, self.head_dim).transpose(1, 2)
        start = cache.length if cache is not None else 0
        if self.rope and memory is None:
            place = torch.arange(start, start + T, device=q.device)
            q, k = apply_rope(q, place), apply_rope(k, place)
        cache = cache.append(k, v) if cache is not None else KVCache(k, v)
        mask = None
        if causal:
            rows = torch.arange(start, start + T, device=q.device)[:, None]
            mask = rows >= torch.arange(cache.length, device=q.device)
        if key_valid is not None:
            hidden = key_valid[:, None, None, :]
            mask = hidden if mask is None else mask & hidden
        p = self.dropout.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, cache.keys, cache.values, attn_mask=mask, dropout_p=p)
        y = self.output_projection(y.transpose(1, 2).contiguous().view(B, T, C))
        if query_valid is not None:
            y = y * query_valid.unsqueeze(-1)
        if use_cache:
            return y, cache
        return y


class ByEinsum(Projections):
    cache_class = FrozenCache

    def forward(self, query_input, memory=None, **options):
        source = memory if memory is not None else query_input
        named = {"query": query_input, "key": source, "value": source}
        q, k, v = (
            torch.stack(getattr(self, f"{name}_projection")(x).chunk(self.heads, -1), 1)
            for name, x in named.items()
        )
        past = options.get("cache") or self.cache_class()
        if self.rope and memory is None:
            place = torch.arange(q.shape[2], device=q.device) + past.length
            q, k = (apply_rope(one, place) for one in (q, k))
        cache = past.append(k, v)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, cache.keys) * self.head_dim**-0.5
        bias = torch.zeros_like(scores)
        low = torch.finfo(scores.dtype).min
        if options.get("causal"):
            future = torch.full(scores.shape[-2:], True, device=q.device).triu(1 + past.length)
            bias = bias.masked_fill(future, low)
        if options.get("key_valid") is not None:
            bias = bias.masked_fill(~options["key_valid"][:, None, None], low)
        weights = torch.where(bias == 0, scores, low).softmax(-1) * (bias == 0)
        mixed = torch.einsum("bhqk,bhkd->bqhd", self.dropout(weights), cache.values)
        y = self.output_projection(mixed.reshape(query_input.shape))
        if options.get("query_valid") is not None:
            y = torch.where(options["query_valid"][..., None], y, torch.zeros_like(y))
        return (y, cache) if options.get("use_cache") else y


class ByEinsumWithATuple(ByEinsum):
    cache_class = CacheOfTwo


class HeadByHead(Projections):
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
        source = query_input if memory is None else memory
        past = 0 if cache is None else cache.length
        outputs, keys, values = [], [], []
        for head in range(self.heads):
            part = slice(head * self.head_dim, (head + 1) * self.head_dim)
            q, k, v = (
                F.linear(x, layer.weight[part], layer.bias[part])
                for x, layer in (
                    (query_input, self.query_projection),
                    (source, self.key_projection),
                    (source, self.value_projection),
                )
            )
            if self.rope and memory is None:
                place = torch.arange(past, past + q.shape[1], device=q.device)
                q = apply_rope(q.unsqueeze(1), place).squeeze(1)
                k = apply_rope(k.unsqueeze(1), place).squeeze(1)
            if past:
                k = torch.cat([cache.keys[:, head], k], 1)
                v = torch.cat([cache.values[:, head], v], 1)
            keys.append(k)
            values.append(v)
            scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.head_dim)
            free = torch.ones_like(scores, dtype=torch.bool)
            if causal:
                free = free.tril(diagonal=past)
            if key_valid is not None:
                free = free & key_valid[:, None]
            outputs.append(torch.bmm(self.dropout(softmax_by_infinity(scores, free)), v))
        y = self.output_projection(torch.cat(outputs, dim=-1))
        if query_valid is not None:
            y = y * query_valid[:, :, None].to(y.dtype)
        new = CacheWithNumbers(torch.stack(keys, 1), torch.stack(values, 1))
        return [y, new] if use_cache else y


class HeadsInTheBatch(Projections):
    """One product for all three projections, heads folded into the batch, a mask kept."""

    def __init__(self, d_model, num_heads, dropout=0.0, use_rope=False):
        super().__init__(d_model, num_heads, dropout, use_rope)
        ones = torch.ones(64, 64, dtype=torch.bool)
        self.register_buffer("future", ones.triu(1), persistent=False)

    def fold(self, x):
        return x.unflatten(-1, (self.heads, self.head_dim)).permute(0, 2, 1, 3).flatten(0, 1)

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
        layers = (self.query_projection, self.key_projection, self.value_projection)
        if memory is None:
            weight = torch.cat([layer.weight for layer in layers])
            bias = torch.cat([layer.bias for layer in layers])
            q, k, v = F.linear(query_input, weight, bias).chunk(3, dim=-1)
        else:
            q, k, v = (
                layer(x) for layer, x in zip(layers, (query_input, memory, memory), strict=True)
            )
        B, T, C = query_input.shape
        cache = LazyCache() if cache is None else cache
        start = cache.length
        q, k, v = (self.fold(x).unflatten(0, (B, self.heads)) for x in (q, k, v))
        if self.rope and memory is None:
            place = torch.arange(start, start + T, device=q.device)
            q, k = apply_rope(q, place), apply_rope(k, place)
        cache = cache.append(k, v)
        total = cache.length
        scores = torch.baddbmm(
            torch.zeros(1, 1, 1, dtype=q.dtype, device=q.device),
            q.flatten(0, 1),
            cache.keys.flatten(0, 1).mT,
            alpha=self.head_dim**-0.5,
        )
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if causal:
            hidden = hidden | self.future[start:total, :total]
        if key_valid is not None:
            hidden = hidden | (~key_valid).repeat_interleave(self.heads, 0)[:, None]
        weights = softmax_by_nan_to_num(scores, ~hidden)
        mixed = self.dropout(weights) @ cache.values.flatten(0, 1)
        y = mixed.unflatten(0, (B, self.heads)).transpose(1, 2).reshape(B, T, C)
        y = F.linear(y, self.output_projection.weight, self.output_projection.bias)
        if query_valid is not None:
            y = y.masked_fill(query_valid.logical_not().unsqueeze(2), 0)
        return y if not use_cache else (y, cache)


class AsInLargeModels(Projections):
    """The softmax in float32, a mask only where there are two new tokens, weights in `forward`."""

    def forward(self, query_input, memory=None, *, cache=None, use_cache=False, **masks):
        source = query_input if memory is None else memory
        layers = (self.query_projection, self.key_projection, self.value_projection)
        q, k, v = (
            torch.stack(layer(x).tensor_split(self.heads, dim=-1), dim=1)
            for layer, x in zip(layers, (query_input, source, source), strict=True)
        )
        start = 0 if cache is None else cache.length
        if self.rope and memory is None:
            places = torch.arange(start, start + q.shape[2], device=q.device)
            q, k = apply_rope(torch.cat([q, k]), places).chunk(2)
        cache = (KVCache() if cache is None else cache).append(k, v)
        scores = (q * self.head_dim**-0.5) @ cache.keys.mT
        seen = torch.ones(1, 1, *scores.shape[2:], dtype=torch.bool, device=q.device)
        if masks.get("causal") and q.shape[2] > 1:
            seen = seen.tril(start)
        if masks.get("key_valid") is not None:
            seen = seen & masks["key_valid"][:, None, None]
        weights = softmax_by_opening_empty_rows(scores.float(), seen).to(v.dtype)
        mixed = F.dropout(weights, self.dropout.p, self.training) @ cache.values
        y = self.output_projection(torch.cat(mixed.unbind(1), dim=-1))
        if masks.get("query_valid") is not None:
            y = torch.where(masks["query_valid"][..., None], y, 0.0)
        return (y, cache) if use_cache else y


STYLES = {
    "causal_blocked_mask": [
        causal_by_comparison,
        causal_by_tril,
        causal_by_lists,
        causal_by_counting,
        causal_by_torch_s_own,
        causal_row_by_row,
    ],
    "padding_blocked_mask": [
        padding_by_eq,
        padding_by_difference,
        padding_by_isin,
        padding_by_full,
        padding_by_lists,
    ],
    "allowed_mask": [allowed_by_or, allowed_by_cases, allowed_by_product, allowed_by_where],
    "masked_softmax": SOFTMAXES,
    "attention": [
        *map(attention_around, SOFTMAXES),
        attention_by_einsum,
        attention_by_sums,
        attention_in_float64,
        attention_row_by_row,
    ],
    "KVCache": [FrozenCache, CacheOfTwo, CacheWithNumbers, LazyCache, ModuleCache],
    "ManualMultiHeadAttention": [
        ByTorchsProduct,
        ByEinsum,
        ByEinsumWithATuple,
        HeadByHead,
        HeadsInTheBatch,
        AsInLargeModels,
    ],
    "masks_quiz": [{1: "B", 2: " d ", 3: "a", 4: "C", 5: "d", 6: "b", 7: "c", "note": "mine"}],
}
