"""Lesson 07: whole models, from token ids to logits."""

import math

from torch import nn

from solutions.block import (
    DecoderBlock,
    DecoderOnlyBlock,
    EncoderBlock,
    PostNormBlock,
    TransformerBlock,
    block_parameters,
)
from solutions.masks import causal_blocked_mask
from solutions.norm import ManualLayerNorm
from solutions.positions import LearnedPositionalEncoding, SinusoidalPositionalEncoding


class TinyTransformerEncoder(nn.Module):
    """Embed, scale by sqrt(C), add sinusoids, run the blocks, norm, and score every token.

    token_ids (B, T) of integers below vocab_size; key_padding_mask (B, T), True where blocked;
    with `causal` no token sees a later one. Returns logits (B, T, vocab_size). ValueError past
    `max_len`.
    """

    def __init__(
        self,
        vocab_size,
        d_model=64,
        num_heads=4,
        num_layers=2,
        d_ff=None,
        max_len=256,
        dropout=0.1,
    ):
        super().__init__()
        ### BEGIN SOLUTION
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.token_embedding.weight, std=d_model**-0.5)  # of order 1 once scaled
        self.position = SinusoidalPositionalEncoding(d_model, max_len, dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)
        )
        self.final_norm = nn.LayerNorm(d_model)
        self.output_head = nn.Linear(d_model, vocab_size)
        ### END SOLUTION

    def forward(self, token_ids, key_padding_mask=None, causal=False):
        ### BEGIN SOLUTION
        x = self.token_embedding(token_ids)  # (B, T, C)
        x = self.position(x * math.sqrt(x.shape[-1]))
        blocked = causal_blocked_mask(token_ids.shape[1], token_ids.device) if causal else None
        for block in self.blocks:
            x = block(x, blocked, key_padding_mask)
        return self.output_head(self.final_norm(x))  # (B, T, V)
        ### END SOLUTION


def stack_parameters(vocab_size, d_model, num_layers, d_ff):
    """How many numbers a TinyTransformerEncoder trains, as an int."""
    ### BEGIN SOLUTION
    embedding = vocab_size * d_model
    blocks = num_layers * block_parameters(d_model, d_ff)
    final_norm = 2 * d_model
    head = d_model * vocab_size + vocab_size
    return embedding + blocks + final_norm + head
    ### END SOLUTION


class DecoderOnlyLM(nn.Module):
    """Token ids to logits of the next token at every position, one matrix in and out.

    token_ids (B, T); valid_tokens (B, T), with caches (B, T_total) over all tokens so far, True at
    real tokens, None means all real. Returns logits (B, T, vocab_size), with `use_cache` a pair of
    them and a list of one cache per layer. Source: Press and Wolf, "Using the Output Embedding to
    Improve Language Models", 2017.
    """

    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.token_embedding.weight, std=0.02)  # the head too: logits near 0
        self.blocks = nn.ModuleList(
            DecoderOnlyBlock(d_model, num_heads, hidden_dim, dropout) for _ in range(num_layers)
        )
        self.final_norm = ManualLayerNorm(d_model)
        self.output_head = nn.Linear(d_model, vocab_size, bias=False)
        self.output_head.weight = self.token_embedding.weight
        ### END SOLUTION

    def forward(self, token_ids, valid_tokens=None, *, caches=None, use_cache=False):
        ### BEGIN SOLUTION
        x = self.token_embedding(token_ids)  # (B, T, C)
        caches = [None] * len(self.blocks) if caches is None else caches
        new_caches = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, valid_tokens, cache=cache, use_cache=True)
            new_caches.append(cache)
        logits = self.output_head(self.final_norm(x))  # (B, T, V)
        return (logits, new_caches) if use_cache else logits
        ### END SOLUTION


class Seq2SeqTransformer(nn.Module):
    """Reads a source sequence in full, then scores each next token of a target sequence.

    source_ids (B, S), target_ids (B, T), source_valid (B, S) and target_valid (B, T), True at real
    tokens. `encode` returns the memory (B, S, d_model), `decode` and `forward` logits
    (B, T, target_vocab). Source: Vaswani and others, "Attention Is All You Need", 2017.
    """

    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        super().__init__()
        ### BEGIN SOLUTION
        sizes = d_model, num_heads, hidden_dim, dropout
        self.source_embedding = nn.Embedding(source_vocab, d_model)
        self.encoder = nn.ModuleList(EncoderBlock(*sizes) for _ in range(num_layers))
        self.encoder_norm = ManualLayerNorm(d_model)
        self.target_embedding = nn.Embedding(target_vocab, d_model)
        self.decoder = nn.ModuleList(DecoderBlock(*sizes) for _ in range(num_layers))
        self.decoder_norm = ManualLayerNorm(d_model)
        self.output_head = nn.Linear(d_model, target_vocab)
        ### END SOLUTION

    def encode(self, source_ids, source_valid):
        ### BEGIN SOLUTION
        x = self.source_embedding(source_ids)  # (B, S, C)
        for block in self.encoder:
            x = block(x, source_valid)
        return self.encoder_norm(x)
        ### END SOLUTION

    def decode(self, target_ids, memory, target_valid, source_valid):
        ### BEGIN SOLUTION
        x = self.target_embedding(target_ids)  # (B, T, C)
        for block in self.decoder:
            x = block(x, memory, target_valid_tokens=target_valid, memory_valid_tokens=source_valid)
        return self.output_head(self.decoder_norm(x))  # (B, T, target_vocab)
        ### END SOLUTION

    def forward(self, source_ids, target_ids, source_valid, target_valid):
        ### BEGIN SOLUTION
        memory = self.encode(source_ids, source_valid)
        return self.decode(target_ids, memory, target_valid, source_valid)
        ### END SOLUTION


class LessonRecommender(nn.Module):
    """A history of lessons to a score for every lesson: which one comes next?

    history (B, T) of lesson ids from 1 to num_lessons, 0 is padding, on the right. Returns logits
    (B, num_lessons), finite for an empty history too; column j is lesson id j + 1. ValueError past
    `max_len`.
    """

    def __init__(self, num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len=64):
        super().__init__()
        ### BEGIN SOLUTION
        self.lesson_embedding = nn.Embedding(num_lessons + 1, d_model, padding_idx=0)
        self.position = LearnedPositionalEncoding(d_model, max_len)
        self.blocks = nn.ModuleList(
            PostNormBlock(d_model, num_heads, hidden_dim) for _ in range(num_layers)
        )
        self.output_head = nn.Linear(d_model, num_lessons)
        ### END SOLUTION

    def forward(self, history):
        ### BEGIN SOLUTION
        real = history != 0
        empty = ~real.any(dim=1, keepdim=True)
        x = self.position(self.lesson_embedding(history))  # (B, T, C)
        for block in self.blocks:
            x = block(x, ~(real | empty))  # with every key blocked a softmax has no answer
        count = real.sum(dim=1, keepdim=True).clamp(min=1)
        total = x.masked_fill(~real[:, :, None], 0.0).sum(dim=1)
        return self.output_head(total / count)  # (B, num_lessons)
        ### END SOLUTION


# Put one letter for each question, for example 1: "a".
stack_quiz = {1: "", 2: "", 3: "", 4: "", 5: "", 6: "", 7: ""}
### BEGIN SOLUTION
stack_quiz = {1: "b", 2: "d", 3: "a", 4: "c", 5: "d", 6: "b", 7: "a"}
### END SOLUTION
