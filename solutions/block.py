"""Lesson 06: the block, in which tokens communicate and then compute."""

from torch import nn
from torch.nn import functional as F

from solutions.ffn import FeedForward
from solutions.masks import ManualMultiHeadAttention
from solutions.norm import ManualLayerNorm


def block_parameters(d_model, d_ff):
    """How many numbers a TransformerBlock trains, as an int: attention, two norms, the ffn."""
    ### BEGIN SOLUTION
    attention = 4 * (d_model * d_model + d_model)
    ffn = 2 * d_model * d_ff + d_ff + d_model
    norms = 2 * (d_model + d_model)
    return attention + ffn + norms
    ### END SOLUTION


class TransformerBlock(nn.Module):
    """h = x + attention(ln1(x)), then h + ffn(ln2(h)): pre-norm, over nn.MultiheadAttention.

    x (B, T, d_model), and so is the result. blocked_attn_mask (T, T) and key_padding_mask (B, T),
    True where blocked. d_ff is 4 · d_model unless given. ValueError where the heads do not divide
    the width. Equals `torch.nn.TransformerEncoderLayer` with norm_first=True and GELU.
    """

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        super().__init__()
        ### BEGIN SOLUTION
        if d_model % num_heads:
            raise ValueError(f"a width of {d_model} can't be split into {num_heads} equal heads")
        self.ln1 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, dropout, batch_first=True)
        self.ln2 = nn.LayerNorm(d_model)
        self.ffn = FeedForward(d_model, 4 * d_model if d_ff is None else d_ff, dropout)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        ### BEGIN SOLUTION
        normed = self.ln1(x)
        attended, _ = self.self_attn(
            normed,
            normed,
            normed,
            attn_mask=blocked_attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
        )
        x = x + self.dropout(attended)
        return x + self.ffn(self.ln2(x))
        ### END SOLUTION


class PostNormBlock(nn.Module):
    """h = norm1(x + attention(x)), then norm2(h + ff(h)): post-norm, with ReLU.

    x (B, T, embed_dim), and so is the result; key_padding_mask (B, T), True where blocked. Source:
    Vaswani and others, "Attention Is All You Need", 2017.
    """

    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        ### BEGIN SOLUTION
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.ff = nn.Sequential(
            nn.Linear(embed_dim, ff_dim), nn.ReLU(), nn.Linear(ff_dim, embed_dim)
        )
        self.norm2 = nn.LayerNorm(embed_dim)
        ### END SOLUTION

    def forward(self, x, key_padding_mask=None):
        ### BEGIN SOLUTION
        attended, _ = self.attn(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)
        x = self.norm1(x + attended)
        return self.norm2(x + self.ff(x))
        ### END SOLUTION


class FusedBlock(nn.Module):
    """A causal pre-norm block whose queries, keys and values come from one projection.

    x (B, T, d), and so is the result. `qkv` makes 3d features: queries, keys, values, each cut into
    heads as consecutive slices. Source: Radford and others, "Language Models are Unsupervised
    Multitask Learners", 2019.
    """

    def __init__(self, d, heads):
        super().__init__()
        ### BEGIN SOLUTION
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        ### END SOLUTION

    def attend(self, x):
        """Causal self-attention, (B, T, d) to (B, T, d)."""
        ### BEGIN SOLUTION
        thirds = self.qkv(x).chunk(3, dim=-1)
        query, key, value = (
            third.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for third in thirds
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2))
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        x = x + self.attend(self.ln1(x))
        return x + self.mlp(self.ln2(x))
        ### END SOLUTION


def to_reference(block):
    """An nn.TransformerEncoderLayer with copies of a TransformerBlock's weights.

    It has the block's dtype and device, and in eval mode its outputs.
    """
    ### BEGIN SOLUTION
    first, second = (part for part in block.ffn.modules() if isinstance(part, nn.Linear))
    reference = nn.TransformerEncoderLayer(
        d_model=block.self_attn.embed_dim,
        nhead=block.self_attn.num_heads,
        dim_feedforward=first.out_features,
        activation="gelu",
        norm_first=True,
        batch_first=True,
    ).to(first.weight)  # the block's dtype and device, before anything is rounded
    reference.norm1.load_state_dict(block.ln1.state_dict())
    reference.self_attn.load_state_dict(block.self_attn.state_dict())
    reference.norm2.load_state_dict(block.ln2.state_dict())
    reference.linear1.load_state_dict(first.state_dict())
    reference.linear2.load_state_dict(second.state_dict())
    return reference
    ### END SOLUTION


class EncoderBlock(nn.Module):
    """Pre-norm: every real token reads every real token, and each then computes by itself.

    x (B, T, d_model), and so is the result; valid_tokens (B, T), True at real tokens. The rows of
    the others come out zero.
    """

    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.attention_norm = ManualLayerNorm(d_model)
        self.self_attention = ManualMultiHeadAttention(d_model, num_heads, dropout, use_rope=True)
        self.ffn_norm = ManualLayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, hidden_dim, dropout)
        ### END SOLUTION

    def forward(self, x, valid_tokens):
        ### BEGIN SOLUTION
        x = x + self.self_attention(self.attention_norm(x), key_valid=valid_tokens)
        x = x + self.feed_forward(self.ffn_norm(x))
        return x.masked_fill(~valid_tokens[:, :, None], 0.0)
        ### END SOLUTION


class DecoderBlock(nn.Module):
    """Pre-norm: tokens read those before them, then a memory, and then compute.

    x (B, T, d_model), and so is the result; memory (B, S, d_model). target_valid_tokens (B, T) and
    memory_valid_tokens (B, S), True at real tokens. Rows of padding come out zero.
    """

    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.self_norm = ManualLayerNorm(d_model)
        self.self_attention = ManualMultiHeadAttention(d_model, num_heads, dropout, use_rope=True)
        self.cross_norm = ManualLayerNorm(d_model)
        self.cross_attention = ManualMultiHeadAttention(d_model, num_heads, dropout)
        self.ffn_norm = ManualLayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, hidden_dim, dropout)
        ### END SOLUTION

    def forward(self, x, memory, *, target_valid_tokens, memory_valid_tokens):
        ### BEGIN SOLUTION
        x = x + self.self_attention(self.self_norm(x), key_valid=target_valid_tokens, causal=True)
        x = x + self.cross_attention(self.cross_norm(x), memory, key_valid=memory_valid_tokens)
        x = x + self.feed_forward(self.ffn_norm(x))
        return x.masked_fill(~target_valid_tokens[:, :, None], 0.0)
        ### END SOLUTION


class DecoderOnlyBlock(nn.Module):
    """Pre-norm and causal, with a cache for writing token by token.

    x (B, T, d_model), and so is the result. valid_tokens (B, T), with a cache (B, T_total) over all
    tokens so far, True at real tokens; None means all real. Rows of padding come out zero. With
    `use_cache` (result, new cache) is returned.
    """

    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.attention_norm = ManualLayerNorm(d_model)
        self.self_attention = ManualMultiHeadAttention(d_model, num_heads, dropout, use_rope=True)
        self.ffn_norm = ManualLayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, hidden_dim, dropout)
        ### END SOLUTION

    def forward(self, x, valid_tokens, *, cache=None, use_cache=False):
        ### BEGIN SOLUTION
        attended, cache = self.self_attention(
            self.attention_norm(x), key_valid=valid_tokens, causal=True, cache=cache, use_cache=True
        )
        x = x + attended
        x = x + self.feed_forward(self.ffn_norm(x))
        if valid_tokens is not None:
            new = valid_tokens[:, -x.shape[1] :]  # with a cache its last columns
            x = x.masked_fill(~new[:, :, None], 0.0)
        return (x, cache) if use_cache else x
        ### END SOLUTION


# Put one letter for each question, for example 1: "a".
block_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: "", 7: "", 8: ""}
### BEGIN SOLUTION
block_quiz = {1: "c", 2: "a", 3: "d", 4: "b", 5: "c", 6: "d", 7: "a", 8: "b"}
### END SOLUTION
