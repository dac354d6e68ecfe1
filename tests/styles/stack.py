"""Right answers of lesson 07 in other styles than the reference's. All must get full marks."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from solutions.block import (
    DecoderBlock,
    DecoderOnlyBlock,
    EncoderBlock,
    PostNormBlock,
)
from solutions.masks import causal_blocked_mask
from solutions.positions import SinusoidalPositionalEncoding, sinusoidal_table
from solutions.residual import PostNormResidual, PreNormResidual
from tests.styles.block import InSequence, TokensFirst

# TinyTransformerEncoder


class TorchsLayers(nn.Module):
    """Blocks of torch's own, default initialisation, positions on the fly."""

    def __init__(
        self, vocab_size, d_model=64, num_heads=4, num_layers=2, d_ff=None, max_len=256, dropout=0.1
    ):
        super().__init__()
        self.max_len, self.width = max_len, d_model
        self.output_head = nn.Linear(d_model, vocab_size)
        self.final_norm = nn.LayerNorm(d_model)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            self.blocks.append(
                nn.TransformerEncoderLayer(
                    d_model,
                    num_heads,
                    d_ff or 4 * d_model,
                    dropout,
                    "gelu",
                    batch_first=True,
                    norm_first=True,
                )
            )
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position = nn.Dropout(dropout)

    def forward(self, token_ids, key_padding_mask=None, causal=False):
        length = token_ids.size(1)
        if length > self.max_len:
            raise ValueError(f"{length} tokens, and max_len is {self.max_len}")
        x = self.token_embedding(token_ids) * self.width**0.5
        x = self.position(x + sinusoidal_table(length, self.width).to(x))
        mask = None
        if causal:
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        for block in self.blocks:
            x = block(x, src_mask=mask, src_key_padding_mask=key_padding_mask)
        return self.output_head(self.final_norm(x))


class OtherInsides(nn.Module):
    """Blocks whose ffn is written otherwise; the mask is always made and used by name."""

    make: Any = InSequence

    def __init__(
        self, vocab_size, d_model=64, num_heads=4, num_layers=2, d_ff=None, max_len=256, dropout=0.1
    ):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.position = SinusoidalPositionalEncoding(d_model, max_len=max_len)
        self.blocks = nn.ModuleList(
            [self.make(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)]
        )
        self.final_norm = nn.LayerNorm(d_model)
        self.output_head = nn.Linear(d_model, vocab_size)
        self.scale = math.sqrt(d_model)

    def forward(self, token_ids, key_padding_mask=None, causal=False):
        x = self.position(self.token_embedding(token_ids).mul(self.scale))
        later = causal_blocked_mask(token_ids.shape[1], device=token_ids.device)
        for number in range(len(self.blocks)):
            x = self.blocks[number](
                x,
                blocked_attn_mask=later if causal else torch.zeros_like(later),
                key_padding_mask=key_padding_mask,
            )
        x = self.final_norm(x)
        return self.output_head(x)


class TokensFirstInside(OtherInsides):
    make = TokensFirst


class Attend(nn.Module):
    """torch's attention as a branch of a residual."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, dropout, batch_first=True)

    def forward(self, x, blocked, padding):
        return self.inner(x, x, x, attn_mask=blocked, key_padding_mask=padding)[0]


class FromResiduals(nn.Module):
    """A pre-norm block of lesson 3's parts, under names of its own."""

    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        hidden = 4 * width if hidden is None else hidden
        self.talk = PreNormResidual(width, Attend(width, heads, dropout), dropout)
        ffn = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.think = PreNormResidual(width, ffn, dropout)

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        return self.think(self.talk(x, blocked_attn_mask, key_padding_mask))


class BlocksOfItsOwn(OtherInsides):
    make = FromResiduals


# stack_parameters


def by_building(vocab_size, d_model, num_layers, d_ff):
    blocks = [nn.TransformerEncoderLayer(d_model, 1, d_ff) for _ in range(num_layers)]
    parts = nn.ModuleList([*blocks, nn.Embedding(vocab_size, d_model), nn.LayerNorm(d_model)])
    parts.append(nn.Linear(d_model, vocab_size))
    return sum(one.numel() for one in parts.parameters())


def by_polynomial(vocab_size, d_model, num_layers, d_ff):
    block = 4 * d_model**2 + 9 * d_model + d_ff * (2 * d_model + 1)
    return vocab_size * (2 * d_model + 1) + num_layers * block + 2 * d_model


def by_shapes(vocab_size, d_model, num_layers, d_ff):
    shapes = [(d_model, d_model), (d_model,)] * 4 + [(d_model,)] * 4
    shapes += [(d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)]
    shapes = shapes * num_layers + [(vocab_size, d_model)] * 2 + [(vocab_size,)] + [(d_model,)] * 2
    return sum(torch.Size(shape).numel() for shape in shapes)


def by_counting_a_model(vocab_size, d_model, num_layers, d_ff):
    model = OtherInsides(vocab_size, d_model, 1, num_layers, d_ff)
    return sum(math.prod(one.shape) for one in model.parameters())


# DecoderOnlyLM


class HeadFirst(nn.Module):
    """The embedding gets the head's matrix; blocks with a mask always; caches as a tuple."""

    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__()
        self.output_head = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.output_head.weight, 0.0, 0.01)
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.token_embedding.weight = self.output_head.weight
        self.final_norm = nn.LayerNorm(d_model)
        self.blocks = nn.ModuleList()
        for _ in range(num_layers):
            self.blocks.append(DecoderOnlyBlock(d_model, num_heads, hidden_dim, dropout))

    def forward(self, token_ids, valid_tokens=None, *, caches=None, use_cache=False):
        h = self.token_embedding(token_ids)
        if valid_tokens is None:
            past = 0 if caches is None else caches[0].length
            size = (len(token_ids), past + token_ids.shape[1])
            valid_tokens = torch.ones(size, dtype=torch.bool, device=token_ids.device)
        new: tuple[Any, ...] = ()
        for place, block in enumerate(self.blocks):
            cache = caches[place] if caches else None
            if use_cache:
                h, now = block(h, valid_tokens, cache=cache, use_cache=True)
                new = (*new, now)
            else:
                h = block(h, valid_tokens, cache=cache)
        h = self.final_norm(h)
        return (self.output_head(h), new) if use_cache else self.output_head(h)


class WithRMSNorm(nn.Module):
    """An RMSNorm at the end, the product with the matrix written out, a list for a result."""

    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        with torch.no_grad():
            self.token_embedding.weight.mul_(0.02)
        blocks = [
            DecoderOnlyBlock(d_model, num_heads, hidden_dim, dropout) for _ in range(num_layers)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.final_norm: nn.Module = nn.RMSNorm(d_model, eps=1e-6)
        self.output_head = nn.Linear(d_model, vocab_size, bias=False)
        self.output_head.weight = self.token_embedding.weight

    def forward(self, token_ids, valid_tokens=None, *, caches=None, use_cache=False):
        x, kept = F.embedding(token_ids, self.output_head.weight), []
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=False):
            x, cache = block(x, valid_tokens, cache=cache, use_cache=True)
            kept.append(cache)
        logits = torch.einsum("btc,vc->btv", self.final_norm(x), self.token_embedding.weight)
        if not use_cache:
            return logits
        return [logits, kept]


class SmallEverywhere(WithRMSNorm):
    """All matrices are drawn small, as in GPT-2, and the norm is torch's layer norm."""

    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__(vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout)
        self.final_norm = nn.LayerNorm(d_model)
        self.apply(self.draw)

    @staticmethod
    def draw(part):
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)


class OwnBlock(nn.Module):
    """Attention of torch's functions, names of its own, and its cache a pair of tensors."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.pre, self.post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x, valid, cache=None):
        q, k, v = self.qkv(self.pre(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
        queries, keys = q.shape[2], k.shape[2]
        allowed = torch.ones(queries, keys, dtype=torch.bool, device=x.device)
        allowed = allowed.tril(keys - queries)[None, None]
        if valid is not None:
            allowed = allowed & valid[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q, k, v, allowed)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.post(x))))
        if valid is not None:
            x = x * valid[:, -queries:, None]
        return x if cache is None and not self.keeps else (x, (k, v))

    keeps = False


class BlocksItMade(nn.Module):
    """Blocks that no other lesson has, without RoPE; caches of plain tensors."""

    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        self.embedding_dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            OwnBlock(d_model, num_heads, hidden_dim) for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(d_model)
        self.output_head = nn.Linear(d_model, vocab_size, bias=False)
        self.output_head.weight = self.token_embedding.weight

    def forward(self, token_ids, valid_tokens=None, *, caches=None, use_cache=False):
        x = self.embedding_dropout(self.token_embedding(token_ids))
        empty = x.new_zeros(len(x), self.blocks[0].heads, 0, x.shape[-1] // self.blocks[0].heads)
        new = []
        for place, block in enumerate(self.blocks):
            x, cache = block(x, valid_tokens, caches[place] if caches else (empty, empty))
            new.append(cache)
        logits = self.output_head(self.final_norm(x))
        return (logits, new) if use_cache else logits


# Seq2SeqTransformer


class NoNorms(nn.Module):
    """No norm behind the encoder, scaled embeddings with dropout, the target's matrix tied."""

    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        super().__init__()
        self.src = nn.Embedding(source_vocab, d_model)
        self.tgt = nn.Embedding(target_vocab, d_model)
        self.drop, self.scale = nn.Dropout(dropout), d_model**0.5
        args = (d_model, num_heads, hidden_dim, dropout)
        self.enc = nn.ModuleList([EncoderBlock(*args) for _ in range(num_layers)])
        self.dec = nn.ModuleList([DecoderBlock(*args) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, target_vocab, bias=False)
        self.head.weight = self.tgt.weight

    def encode(self, source_ids, source_valid):
        h = self.drop(self.src(source_ids) * self.scale)
        for layer in self.enc:
            h = layer(h, source_valid)
        return h

    def decode(self, target_ids, memory, target_valid, source_valid):
        h = self.drop(self.tgt(target_ids) * self.scale)
        masks = {"target_valid_tokens": target_valid, "memory_valid_tokens": source_valid}
        for layer in self.dec:
            h = layer(h, memory, **masks)
        return self.head(self.norm(h))

    def forward(self, source_ids, target_ids, source_valid, target_valid):
        return self.decode(
            target_ids, self.encode(source_ids, source_valid), target_valid, source_valid
        )


class TorchsTransformer(nn.Module):
    """torch's own layers, sinusoids, and a mask that never blocks a whole row."""

    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        super().__init__()
        self.table = {"source": nn.Embedding(source_vocab, d_model)}
        self.source = self.table["source"]
        self.target = nn.Embedding(target_vocab, d_model)
        self.position = SinusoidalPositionalEncoding(d_model, 64)
        options = {"dropout": dropout, "batch_first": True, "norm_first": True}
        sizes = (d_model, num_heads, hidden_dim)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(*sizes, **options) for _ in range(num_layers)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(*sizes, **options) for _ in range(num_layers)
        )
        self.heads, self.head = num_heads, nn.Linear(d_model, target_vocab)

    def encode(self, source_ids, source_valid):
        x = self.position(self.source(source_ids))
        for layer in self.encoder:
            x = layer(x, src_key_padding_mask=~source_valid)
        return x

    def decode(self, target_ids, memory, target_valid, source_valid):
        x, length = self.position(self.target(target_ids)), target_ids.shape[1]
        blocked = causal_blocked_mask(length, x.device) | ~target_valid[:, None, :]
        blocked &= ~torch.eye(length, dtype=torch.bool, device=x.device)  # each may read itself
        blocked = blocked.repeat_interleave(self.heads, dim=0)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=blocked, memory_key_padding_mask=~source_valid)
        return self.head(x)

    def forward(self, source_ids, target_ids, source_valid, target_valid):
        memory = self.encode(source_ids, source_valid)
        return self.decode(target_ids, memory, target_valid, source_valid)


class TheWholeOfTorchs(nn.Module):
    """torch's own stacks, post-norm, whose softmax is sure of itself on scaled embeddings."""

    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        super().__init__()
        self.root = d_model**0.5
        self.source = nn.Embedding(source_vocab, d_model)
        self.target = nn.Embedding(target_vocab, d_model)
        self.position = SinusoidalPositionalEncoding(d_model, dropout=dropout)
        sizes = d_model, num_heads, hidden_dim, dropout
        reader = nn.TransformerEncoderLayer(*sizes, batch_first=True)
        norm = nn.LayerNorm(d_model)
        self.encoder = nn.TransformerEncoder(reader, num_layers, norm, enable_nested_tensor=False)
        writer = nn.TransformerDecoderLayer(*sizes, batch_first=True)
        self.decoder = nn.TransformerDecoder(writer, num_layers, nn.LayerNorm(d_model))
        self.head = nn.Linear(d_model, target_vocab)

    def encode(self, source_ids, source_valid):
        x = self.position(self.source(source_ids) * self.root)
        return self.encoder(x, src_key_padding_mask=~source_valid)

    def decode(self, target_ids, memory, target_valid, source_valid):
        x = self.decoder(
            self.position(self.target(target_ids) * self.root),
            memory,
            tgt_mask=causal_blocked_mask(target_ids.shape[1], target_ids.device),
            tgt_key_padding_mask=~target_valid,
            memory_key_padding_mask=~source_valid,
        )
        return self.head(x)

    def forward(self, source_ids, target_ids, source_valid, target_valid):
        memory = self.encode(source_ids, source_valid)
        return self.decode(target_ids, memory, target_valid, source_valid)


class Encoder(nn.Module):
    def __init__(self, vocab, *sizes, count):
        super().__init__()
        self.table = nn.Embedding(vocab, sizes[0], padding_idx=0)
        self.layers = nn.ModuleList(EncoderBlock(*sizes) for _ in range(count))
        self.norm = nn.RMSNorm(sizes[0])

    def forward(self, ids, valid):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, valid)
        return self.norm(x) * valid.unsqueeze(-1)


class Decoder(nn.Module):
    def __init__(self, vocab, *sizes, count):
        super().__init__()
        self.table = nn.Embedding(vocab, sizes[0])
        self.layers = nn.ModuleList(DecoderBlock(*sizes) for _ in range(count))
        self.head = nn.Sequential(nn.LayerNorm(sizes[0]), nn.Linear(sizes[0], vocab))

    def forward(self, ids, memory, valid, memory_valid):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, memory, target_valid_tokens=valid, memory_valid_tokens=memory_valid)
        return self.head(x)


class TwoModules(nn.Module):
    """An encoder and a decoder that are modules of their own."""

    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        super().__init__()
        sizes = (d_model, num_heads, hidden_dim, dropout)
        self.decoder = Decoder(target_vocab, *sizes, count=num_layers)
        self.encoder = Encoder(source_vocab, *sizes, count=num_layers)

    def encode(self, source_ids, source_valid):
        return self.encoder(source_ids, source_valid)

    def decode(self, target_ids, memory, target_valid, source_valid):
        return self.decoder(target_ids, memory, target_valid, source_valid)

    def forward(self, source_ids, target_ids, source_valid, target_valid):
        memory = self.encoder(source_ids, source_valid)
        return self.decoder(target_ids, memory, target_valid, source_valid)


class PaddingCleared(NoNorms):
    """Logits of padding are zero, and so is its memory."""

    def encode(self, source_ids, source_valid):
        memory = super().encode(source_ids, source_valid)
        return torch.where(source_valid[..., None], memory, torch.zeros_like(memory))

    def decode(self, target_ids, memory, target_valid, source_valid):
        logits = super().decode(target_ids, memory, target_valid, source_valid)
        return logits.masked_fill(~target_valid[..., None], 0.0)


# LessonRecommender


class Weighted(nn.Module):
    """The mean as a product with weights; an empty history reads its first column."""

    def __init__(self, num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len=64):
        super().__init__()
        self.items = nn.Embedding(1 + num_lessons, d_model)
        self.places = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(
            [PostNormBlock(d_model, num_heads, hidden_dim) for _ in range(num_layers)]
        )
        self.out = nn.Linear(d_model, num_lessons, bias=False)

    def forward(self, history):
        steps = history.shape[1]
        if steps > self.places.num_embeddings:
            raise ValueError("history is too long")
        pad = history.eq(0)
        blocked = pad.clone()
        blocked[:, 0] = False
        h = self.items(history) + self.places(torch.arange(steps, device=history.device))
        for layer in self.layers:
            h = layer(h, key_padding_mask=blocked)
        share = (~pad).to(h.dtype)
        share = share / share.sum(dim=1, keepdim=True).clamp(min=1.0)
        return self.out(torch.einsum("bt,btc->bc", share, h))


class OfTorchsLayers(nn.Module):
    """torch's post-norm layers, sinusoids, a norm and a hidden layer in front of the scores."""

    def __init__(self, num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len=64):
        super().__init__()
        self.embed = nn.Embedding(num_lessons + 1, d_model, padding_idx=0)
        self.position = SinusoidalPositionalEncoding(d_model, max_len)
        self.body = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, num_heads, hidden_dim, 0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.head = nn.Sequential(
            nn.LayerNorm(d_model),
            nn.Linear(d_model, d_model),
            nn.ReLU(),
            nn.Linear(d_model, num_lessons),
        )

    def forward(self, history):
        real = history > 0
        blocked = ~real & real.any(dim=1)[:, None]
        x = self.position(self.embed(history))
        for block in self.body:
            x = block(x, src_key_padding_mask=blocked)
        x = torch.where(real[..., None], x, torch.zeros_like(x))
        return self.head(x.sum(dim=1) / torch.clamp(real.sum(dim=1), min=1)[:, None])


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, blocked):
        return self.inner(x, x, x, key_padding_mask=blocked, need_weights=False)[0]


class FromPostNormResiduals(nn.Module):
    """Blocks of lesson 3's parts, a table of positions as a parameter, a learned start."""

    def __init__(self, num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len=64):
        super().__init__()
        self.max_len = max_len
        self.table = nn.Parameter(torch.randn(num_lessons + 1, d_model))
        self.positions = nn.Parameter(0.1 * torch.randn(1, max_len, d_model))
        self.attend, self.feed = nn.ModuleList(), nn.ModuleList()
        for _ in range(num_layers):
            self.attend.append(PostNormResidual(d_model, Attention(d_model, num_heads)))
            ffn = nn.Sequential(
                nn.Linear(d_model, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, d_model)
            )
            self.feed.append(PostNormResidual(d_model, ffn))
        self.scores = nn.Linear(d_model, num_lessons)

    def forward(self, history):
        if history.shape[1] > self.max_len:
            raise ValueError(history.shape[1])
        real = history != 0
        open_keys = real | (real.sum(dim=1, keepdim=True) == 0)
        x = self.table[history] + self.positions[:, : history.shape[1]]
        for attend, feed in zip(self.attend, self.feed, strict=True):
            x = feed(attend(x, ~open_keys))
        total = (x * real.unsqueeze(-1)).sum(1)
        return self.scores(total / real.sum(1, keepdim=True).clamp_min(1))


class RowByRow(Weighted):
    """Each history alone, cut to its length; an empty one has the scores of zeros."""

    def forward(self, history):
        if history.shape[1] > self.places.num_embeddings:
            raise ValueError("too long")
        rows = []
        for one in history:
            one = one[one != 0]
            if len(one) == 0:
                rows.append(self.out(self.items.weight.new_zeros(self.items.embedding_dim)))
                continue
            x = self.items(one) + self.places.weight[: len(one)]
            x = x[None]
            for layer in self.layers:
                x = layer(x)
            rows.append(self.out(x[0].mean(dim=0)))
        return torch.stack(rows)


STYLES = {
    "TinyTransformerEncoder": [TorchsLayers, OtherInsides, TokensFirstInside, BlocksOfItsOwn],
    "stack_parameters": [by_building, by_polynomial, by_shapes, by_counting_a_model],
    "DecoderOnlyLM": [HeadFirst, WithRMSNorm, SmallEverywhere, BlocksItMade],
    "Seq2SeqTransformer": [
        NoNorms,
        TorchsTransformer,
        TheWholeOfTorchs,
        TwoModules,
        PaddingCleared,
    ],
    "LessonRecommender": [Weighted, OfTorchsLayers, FromPostNormResiduals, RowByRow],
    "stack_quiz": [
        {1: "B", 2: "d ", 3: "a", 4: "c", 5: "d", 6: "b", 7: "a"},
        {number: letter for number, letter in enumerate("bdacdba", 1)},
    ],
}
