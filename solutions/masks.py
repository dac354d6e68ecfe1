"""Lesson 05: attention, the masks that say who may look at whom, and the cache."""

import math

import torch
from torch import nn

from solutions.positions import apply_rope


def causal_blocked_mask(length, device=None):
    """True where a token would look at a later one: key j > query i.

    Returns (T, T) bool, a row for each query, on `device`.
    """
    ### BEGIN SOLUTION
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(diagonal=1)
    ### END SOLUTION


def padding_blocked_mask(token_ids, pad_id=0):
    """True where a token is padding. token_ids (B, T); returns (B, T) bool."""
    ### BEGIN SOLUTION
    return token_ids == pad_id
    ### END SOLUTION


def allowed_mask(blocked_pairs=None, blocked_keys=None):
    """True where a query may look at a key: neither the pair is blocked nor the key.

    blocked_pairs (Tq, Tk), blocked_keys (B, Tk), True where blocked; None blocks nothing. Returns
    bool that broadcasts to (B, H, Tq, Tk).
    """
    ### BEGIN SOLUTION
    allowed = torch.tensor(True)
    if blocked_pairs is not None:
        allowed = allowed & ~blocked_pairs
    if blocked_keys is not None:
        allowed = allowed & ~blocked_keys[:, None, None, :]  # (B, 1, 1, Tk)
    return allowed
    ### END SOLUTION


def masked_softmax(scores, allowed):
    """Softmax over the last axis, in which a key that is not allowed gets weight 0.

    scores (..., Tq, Tk), allowed bool that broadcasts to it. A row with nothing allowed is all
    zeros, and its gradient too.
    """
    ### BEGIN SOLUTION
    # The lowest number rather than -inf, which makes NaN of a row with nothing allowed.
    lowest = torch.finfo(scores.dtype).min
    weights = torch.softmax(scores.masked_fill(~allowed, lowest), dim=-1)
    return weights.masked_fill(~allowed, 0.0)
    ### END SOLUTION


def attention(query, key, value, allowed=None):
    """softmax(query · key / sqrt(D)) · value, and the weights: what the softmax gave.

    query (..., Tq, D), key and value (..., Tk, D), allowed as in `masked_softmax` or None; returns
    (..., Tq, D) and (..., Tq, Tk). Source: Vaswani and others, "Attention Is All You Need", 2017;
    equals `torch.nn.functional.scaled_dot_product_attention`.
    """
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = scores.softmax(dim=-1) if allowed is None else masked_softmax(scores, allowed)
    return weights @ value, weights
    ### END SOLUTION


class KVCache:
    """The keys and values of all tokens so far, (B, H, T, D) each, or None while it is empty."""

    def __init__(self, keys=None, values=None):
        ### BEGIN SOLUTION
        self.keys, self.values = keys, values
        ### END SOLUTION

    @property
    def length(self):
        """T, the number of tokens in it."""
        ### BEGIN SOLUTION
        return 0 if self.keys is None else self.keys.shape[2]
        ### END SOLUTION

    def append(self, key, value):
        """A new cache with these tokens behind the old ones; this one stays as it is."""
        ### BEGIN SOLUTION
        if self.keys is None:
            return KVCache(key, value)
        return KVCache(torch.cat([self.keys, key], dim=2), torch.cat([self.values, value], dim=2))
        ### END SOLUTION


class ManualMultiHeadAttention(nn.Module):
    """Attention in several heads, each on its own slice of the width, between four projections.

    query_input (B, Tq, C); memory (B, Tk, C) makes it cross-attention, which is never rotated,
    causal or cached. key_valid (B, Tk), with a cache over all tokens so far, hides keys;
    query_valid (B, Tq) makes output rows zero; True is a real token in both. Returns (B, Tq, C),
    with `use_cache` a pair of that and the cache that includes the new tokens. ValueError where
    the heads do not divide the width.
    """

    def __init__(self, d_model, num_heads, dropout=0.0, use_rope=False):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % num_heads:
            raise ValueError(f"a width of {d_model} can't be split into {num_heads} equal heads")
        self.num_heads, self.use_rope = num_heads, use_rope
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.output_projection = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def split_heads(self, x):
        """(B, T, C) to (B, H, T, D): head h gets the h-th slice of the width."""
        ### BEGIN SOLUTION
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        ### END SOLUTION

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
        ### BEGIN SOLUTION
        source = query_input if memory is None else memory
        query = self.split_heads(self.query_projection(query_input))  # (B, H, Tq, D)
        key = self.split_heads(self.key_projection(source))
        value = self.split_heads(self.value_projection(source))
        past = KVCache() if cache is None else cache
        if self.use_rope and memory is None:
            positions = past.length + torch.arange(query.shape[2], device=query.device)
            query, key = apply_rope(query, positions), apply_rope(key, positions)
        cache = past.append(key, value)
        blocked = causal_blocked_mask(cache.length, query.device)[past.length :] if causal else None
        allowed = allowed_mask(blocked, None if key_valid is None else ~key_valid)
        allowed = allowed.to(query.device)  # where nothing is blocked it did not know the device
        scores = query @ cache.keys.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = self.dropout(masked_softmax(scores, allowed))  # (B, H, Tq, Tk)
        heads = weights @ cache.values
        output = self.output_projection(heads.transpose(1, 2).flatten(2))  # (B, Tq, C)
        if query_valid is not None:
            output = output.masked_fill(~query_valid[:, :, None], 0.0)
        return (output, cache) if use_cache else output
        ### END SOLUTION


# Put one letter for each question, for example 1: "a".
masks_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: "", 7: ""}
### BEGIN SOLUTION
masks_quiz = {1: "b", 2: "d", 3: "a", 4: "c", 5: "d", 6: "b", 7: "c"}
### END SOLUTION
