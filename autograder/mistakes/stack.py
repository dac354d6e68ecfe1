"""Known wrong answers of lesson 07, each with the sentence its author should hear."""

import math
from typing import Any

import torch
from torch import nn

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions import stack as right
from solutions.block import (
    DecoderBlock,
    DecoderOnlyBlock,
    EncoderBlock,
    PostNormBlock,
    TransformerBlock,
    block_parameters,
)
from solutions.masks import causal_blocked_mask
from solutions.positions import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    sinusoidal_table,
)

tiny = Mistakes("TinyTransformerEncoder")
stack_parameters = Mistakes("stack_parameters")
language_model = Mistakes("DecoderOnlyLM")
seq2seq = Mistakes("Seq2SeqTransformer")
recommender = Mistakes("LessonRecommender")


# The right models, each step a method that a mistake replaces. `slip` stands at the end of
# `__init__` and is told its arguments.


class Tiny(right.TinyTransformerEncoder):
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
        super().__init__(vocab_size, d_model, num_heads, num_layers, d_ff, max_len, dropout)
        self.slip(vocab_size, d_model, num_heads, num_layers, d_ff, max_len, dropout)

    def slip(self, vocab, width, heads, layers, hidden, longest, dropout):
        pass

    def embed(self, ids):
        x = self.token_embedding(ids)
        return self.position(x * math.sqrt(x.shape[-1]))

    def blocked(self, ids, causal):
        return causal_blocked_mask(ids.shape[1], ids.device) if causal else None

    def through(self, x, blocked, padding):
        for block in self.blocks:
            x = block(x, blocked, padding)
        return x

    def finish(self, x):
        return self.output_head(self.final_norm(x))

    def forward(self, token_ids, key_padding_mask=None, causal=False):
        x = self.embed(token_ids)
        x = self.through(x, self.blocked(token_ids, causal), key_padding_mask)
        return self.finish(x)


class LM(right.DecoderOnlyLM):
    def __init__(self, vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout=0.0):
        super().__init__(vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout)
        self.slip(vocab_size, d_model, num_heads, num_layers, hidden_dim, dropout)

    def slip(self, vocab, width, heads, layers, hidden, dropout):
        pass

    def embed(self, ids):
        return self.token_embedding(ids)

    def given(self, caches, use_cache):
        return [None] * len(self.blocks) if caches is None else caches

    def valid(self, ids, valid):
        return valid

    def through(self, x, valid, caches):
        new_caches = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, valid, cache=cache, use_cache=True)
            new_caches.append(cache)
        return x, new_caches

    def finish(self, x):
        return self.output_head(self.final_norm(x))

    def give(self, logits, caches, use_cache):
        return (logits, caches) if use_cache else logits

    def forward(self, token_ids, valid_tokens=None, *, caches=None, use_cache=False):
        x, caches = self.through(
            self.embed(token_ids),
            self.valid(token_ids, valid_tokens),
            self.given(caches, use_cache),
        )
        return self.give(self.finish(x), caches, use_cache)


class Seq2Seq(right.Seq2SeqTransformer):
    def __init__(
        self, source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout=0.0
    ):
        sizes = source_vocab, target_vocab, d_model, num_heads, num_layers, hidden_dim, dropout
        super().__init__(*sizes)
        self.slip(*sizes)

    def slip(self, source, target, width, heads, layers, hidden, dropout):
        pass

    def read(self, ids):
        return self.source_embedding(ids)

    def write(self, ids):
        return self.target_embedding(ids)

    def up(self, x, valid):
        for block in self.encoder:
            x = block(x, valid)
        return x

    def down(self, x, memory, valid, memory_valid):
        for block in self.decoder:
            x = block(x, memory, target_valid_tokens=valid, memory_valid_tokens=memory_valid)
        return x

    def finish(self, x):
        return self.output_head(self.decoder_norm(x))

    def encode(self, source_ids, source_valid):
        return self.encoder_norm(self.up(self.read(source_ids), source_valid))

    def decode(self, target_ids, memory, target_valid, source_valid):
        x = self.down(self.write(target_ids), memory, target_valid, source_valid)
        return self.finish(x)


class Recommender(right.LessonRecommender):
    def __init__(self, num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len=64):
        super().__init__(num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len)
        self.slip(num_lessons, d_model, num_heads, num_layers, hidden_dim, max_len)

    def slip(self, lessons, width, heads, layers, hidden, longest):
        pass

    def real(self, history):
        return history != 0

    def embed(self, history):
        return self.position(self.lesson_embedding(history))

    def blocked(self, real):
        return ~(real | ~real.any(dim=1, keepdim=True))

    def through(self, x, blocked):
        for block in self.blocks:
            x = block(x, blocked)
        return x

    def pool(self, x, real):
        count = real.sum(dim=1, keepdim=True).clamp(min=1)
        return x.masked_fill(~real[:, :, None], 0.0).sum(dim=1) / count

    def finish(self, x):
        return self.output_head(x)

    def forward(self, history):
        real = self.real(history)
        x = self.through(self.embed(history), self.blocked(real))
        return self.finish(self.pool(x, real))


ALL: tuple[tuple[Mistakes, Any], ...] = (
    (tiny, Tiny),
    (language_model, LM),
    (seq2seq, Seq2Seq),
    (recommender, Recommender),
)
NAMED = ALL[:2]


def add(catalogue, base, name, sentence, *steps):
    """Add a model for each of `steps`: methods by name that go wrong, or a whole class."""
    made = [one if isinstance(one, type) else type("Wrong", (base,), one) for one in steps]
    catalogue.add(name, sentence, *made)


def slips(catalogue, base, name, sentence, *steps):
    """Add a slip at the end of `__init__`, one for each `step(self, *arguments)`."""
    add(catalogue, base, name, sentence, *({"slip": step} for step in steps))


def lists_of(model):
    """The names of a model's lists of blocks."""
    return [name for name, one in model.named_children() if isinstance(one, nn.ModuleList)]


# Slips of all four


def repeats(*names):
    """The first block of these lists of blocks, or of all, in every place."""

    def slip(self, *arguments):
        for name in names or lists_of(self):
            blocks = getattr(self, name)
            setattr(self, name, nn.ModuleList([blocks[0]] * len(blocks)))

    return slip


def in_a_list(*names):
    def slip(self, *arguments):
        for name in names or lists_of(self):
            blocks = list(getattr(self, name))
            delattr(self, name)
            object.__setattr__(self, name, blocks)

    return slip


KEPT: dict[Any, nn.Module] = {}


def keeps_one_head(self, *arguments):
    """The last layer is made once, for all models of these sizes."""
    name = [name for name, _ in self.named_children()][-1]
    self.add_module(name, KEPT.setdefault((type(self).__name__, *arguments), getattr(self, name)))


def keeps_one_embedding(self, *arguments):
    key = "LM", *arguments
    self.token_embedding = KEPT.setdefault(key, self.token_embedding)
    self.output_head.weight = self.token_embedding.weight


for catalogue, base in ALL:
    places = [["encoder"], ["decoder"], []] if base is Seq2Seq else [[]]
    slips(
        catalogue,
        base,
        "one_block_repeated",
        "One block stands in every place (`[block] * num_layers`): all layers share one set of "
        "weights. Make a new one for each: `block(…) for _ in range(num_layers)`.",
        *(repeats(*names) for names in places),
    )
    slips(
        catalogue,
        base,
        "blocks_in_a_python_list",
        "The blocks stand in a Python list, which hides them: no optimizer finds their weights. "
        "Put them into an nn.ModuleList.",
        *(in_a_list(*names) for names in places),
    )
    add(
        catalogue,
        base,
        "probabilities_returned",
        "You returned probabilities, or their logarithms. Logits are asked for: what comes out of "
        "the head, without a softmax or a sigmoid.",
        {"finish": lambda self, x, base=base: base.finish(self, x).softmax(-1)},
        {"finish": lambda self, x, base=base: base.finish(self, x).log_softmax(-1)},
    )
    add(
        catalogue,
        base,
        "forgot_to_return",
        "You returned nothing: end with `return`.",
        {"forward": lambda self, *_, **__: None},
        *([{"encode": lambda self, *_: None}] if base is Seq2Seq else []),
    )
    slips(
        catalogue,
        base,
        "one_part_for_all_models",
        "A part is made once and kept outside the object, so all models share it. Make all parts "
        "in `__init__`.",
        keeps_one_embedding if base is LM else keeps_one_head,
    )


class NormsTheEmbedding(Tiny):
    def embed(self, ids):
        x = self.token_embedding(ids)
        return self.position(self.final_norm(x * math.sqrt(x.shape[-1])))

    def finish(self, x):
        return self.output_head(x)


def has_no_norm(self, *arguments):
    del self.final_norm


for catalogue, base in NAMED:
    add(
        catalogue,
        base,
        "no_final_norm",
        "The final norm is missing in front of the head. What pre-norm blocks leave on the stream "
        "grows from block to block.",
        {"finish": lambda self, x: self.output_head(x)},
        {"finish": lambda self, x: self.output_head(x), "slip": has_no_norm},
    )
    add(
        catalogue,
        base,
        "final_norm_in_front_of_the_blocks",
        "The final norm stands in front of the blocks. It belongs behind the last one.",
        {
            "embed": lambda self, ids, base=base: self.final_norm(base.embed(self, ids)),
            "finish": lambda self, x: self.output_head(x),
        },
        *([NormsTheEmbedding] if base is Tiny else []),
    )
    add(
        catalogue,
        base,
        "blocks_read_the_embedding",
        "Every block reads the embedding again, so only the last one counts. Each block reads what "
        "the one before it gives: `x = block(x, …)`.",
        {
            "through": lambda self, x, *masks, base=base: (
                self.blocks[-1](x, *masks)
                if base is Tiny
                else (self.blocks[-1](x, masks[0]), list(masks[1]))
            )
        },
    )
    add(
        catalogue,
        base,
        "ids_written_into",
        "You wrote into `token_ids`. They belong to the caller: make a new tensor.",
        {
            "embed": lambda self, ids, base=base: (
                base.embed(self, ids.clone()) + 0 * ids.zero_().sum()
            )
        },
    )
    add(
        catalogue,
        base,
        "embedding_detached",
        "You cut the embedding out of the gradient (`.detach()`, `.data`, `no_grad`), so it never "
        "learns.",
        {
            "embed": lambda self, ids, base=base: base.embed(self, ids).detach(),
        },
    )
    add(
        catalogue,
        base,
        "float32_inside",
        "You turn x into float32. It stays in the dtype of the weights.",
        {"embed": lambda self, ids, base=base: base.embed(self, ids).float()},
        {"finish": lambda self, x, base=base: base.finish(self, x.float())},
    )
    slips(
        catalogue,
        base,
        "last_block_missing",
        "There are not as many blocks as `num_layers` says.",
        lambda self, *_: self.blocks.__delitem__(-1),
    )


# TinyTransformerEncoder alone


def embeds(name, sentence, *steps):
    add(tiny, Tiny, name, sentence, *({"embed": step} for step in steps))


embeds(
    "embedding_not_scaled",
    "The embedding is not scaled. It is multiplied by the root of C before positions are added.",
    lambda self, ids: self.position(self.token_embedding(ids)),
)
embeds(
    "scaled_by_another_number",
    "The embedding is multiplied by another number than the root of C.",
    *(
        lambda self, ids, number=number: self.position(
            self.token_embedding(ids) * number(*ids.shape, self.token_embedding.embedding_dim, self)
        )
        for number in (
            lambda batch, length, width, _: width,
            lambda batch, length, width, _: width**-0.5,
            lambda batch, length, width, _: length**0.5,
            lambda batch, length, width, _: length,
            lambda batch, length, width, self: self.token_embedding.num_embeddings**0.5,
            lambda batch, length, width, self: (width / self.blocks[0].self_attn.num_heads) ** 0.5,
        )
    ),
)
embeds(
    "positions_scaled_too",
    "You multiplied the sum by the root of C. Only the embedding is scaled, before positions are "
    "added.",
    lambda self, ids: (
        self.position(self.token_embedding(ids)) * math.sqrt(self.token_embedding.embedding_dim)
    ),
)
embeds(
    "no_positions",
    "Positions are missing: the sinusoids are added to the scaled embedding.",
    lambda self, ids: self.token_embedding(ids) * math.sqrt(self.token_embedding.embedding_dim),
)


def at_first(change):
    """The masks for the first block, and for the others what `change` makes of them."""

    def through(self, x, *masks):
        for block in self.blocks:
            x, masks = block(x, *masks), change(*masks)
        return x

    return {"through": through}


add(
    tiny,
    Tiny,
    "mask_for_the_first_layer_only",
    "A mask reaches the first block alone. In every layer tokens look around anew, so every block "
    "gets both.",
    at_first(lambda blocked, padding: ()),
    at_first(lambda blocked, padding: (blocked, None)),
    at_first(lambda blocked, padding: (None, padding)),
)


def with_masks(change):
    return {
        "through": lambda self, x, blocked, padding: Tiny.through(
            self, x, *change(x, blocked, padding)
        )
    }


add(
    tiny,
    Tiny,
    "padding_not_passed_on",
    "`key_padding_mask` never reaches the blocks.",
    with_masks(lambda x, blocked, padding: (blocked, None)),
)
add(
    tiny,
    Tiny,
    "causal_without_effect",
    "`causal` changes nothing: no causal mask reaches the blocks.",
    with_masks(lambda x, blocked, padding: (None, padding)),
)
add(
    tiny,
    Tiny,
    "always_causal",
    "Your model is always causal. It is when `causal` is True, and not by default.",
    {"blocked": lambda self, ids, causal: causal_blocked_mask(ids.shape[1], ids.device)},
)
add(
    tiny,
    Tiny,
    "one_mask_at_a_time",
    "With `causal` and padding together, only one of the two is hidden. Both masks go to every "
    "block.",
    with_masks(lambda x, blocked, padding: (blocked, padding if blocked is None else None)),
    with_masks(lambda x, blocked, padding: (blocked if padding is None else None, padding)),
)
add(
    tiny,
    Tiny,
    "masks_exchanged",
    "The two masks have changed places: a TransformerBlock takes the mask of pairs first, then "
    "that of padding.",
    with_masks(lambda x, blocked, padding: (padding, blocked)),
    with_masks(lambda x, blocked, padding: (padding, None)),
)
add(
    tiny,
    Tiny,
    "causal_mask_turned_round",
    "The causal mask has the other polarity or the other corner: True is what a TransformerBlock "
    "must not read, key j > query i.",
    with_masks(lambda x, blocked, padding: (None if blocked is None else ~blocked, padding)),
    with_masks(lambda x, blocked, padding: (None if blocked is None else blocked.mT, padding)),
)
add(
    tiny,
    Tiny,
    "padding_turned_round",
    "The padding mask has the other polarity on its way to the blocks: True is padding in both.",
    with_masks(lambda x, blocked, padding: (blocked, None if padding is None else ~padding)),
)
add(
    tiny,
    Tiny,
    "mask_on_the_cpu",
    "The causal mask is made on the CPU, whatever the ids are on: `device=token_ids.device`.",
    {
        "blocked": lambda self, ids, causal: (
            torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device="cpu").triu(1)
            if causal
            else None
        )
    },
)
add(
    tiny,
    Tiny,
    "one_row_for_each_text",
    "One row comes back for each text, of one token or the mean. Every token gets logits of its "
    "own.",
    {"finish": lambda self, x: Tiny.finish(self, x).mean(dim=1)},
)


def blocks_of(make):
    def slip(self, vocab, width, heads, layers, hidden, longest, dropout):
        made = (make(width, heads, hidden, dropout) for _ in range(layers))
        self.blocks = nn.ModuleList(made)

    return slip


slips(
    tiny,
    Tiny,
    "hidden_width_not_passed_on",
    "`d_ff` never reaches the blocks.",
    blocks_of(lambda width, heads, hidden, dropout: TransformerBlock(width, heads, None, dropout)),
)
slips(
    tiny,
    Tiny,
    "heads_not_passed_on",
    "`num_heads` never reaches the blocks.",
    *(
        blocks_of(
            lambda width, heads, hidden, dropout, other=other: TransformerBlock(
                width, other, hidden, dropout
            )
        )
        for other in (1, 4)
    ),
)
slips(
    tiny,
    Tiny,
    "dropout_not_passed_on",
    "`dropout` never reaches the blocks: they have their own default, or none.",
    blocks_of(lambda width, heads, hidden, dropout: TransformerBlock(width, heads, hidden)),
    blocks_of(lambda width, heads, hidden, dropout: TransformerBlock(width, heads, hidden, 0.0)),
)
slips(
    tiny,
    Tiny,
    "longest_not_passed_on",
    "`max_len` never reaches the positions, so that longer texts raise nothing.",
    lambda self, vocab, width, *rest: setattr(
        self, "position", SinusoidalPositionalEncoding(width, dropout=rest[-1])
    ),
)
slips(
    tiny,
    Tiny,
    "positions_are_trained",
    "The positions are trained. Sinusoids are asked for, from lesson 4.",
    lambda self, vocab, width, *rest: setattr(
        self, "position", LearnedPositionalEncoding(width, rest[-2], rest[-1])
    ),
)
slips(
    tiny,
    Tiny,
    "head_without_bias",
    "The head has no bias. Here it has one.",
    lambda self, vocab, width, *_: setattr(
        self, "output_head", nn.Linear(width, vocab, bias=False)
    ),
)
slips(
    tiny,
    Tiny,
    "head_tied",
    "The head shares the embedding's matrix. Here it has one of its own.",
    lambda self, *_: setattr(self.output_head, "weight", self.token_embedding.weight),
)


def with_default(place, name, default):
    """The model with another default for the argument of this name, which is in this place."""

    class OtherDefault(Tiny):
        def __init__(self, *args, **options):
            super().__init__(*args, **(options if len(args) > place else {name: default} | options))

    return OtherDefault


tiny.add(
    "other_defaults",
    "A default is not the one asked for: 64 features, 4 heads, 2 layers, 4 · d_model hidden "
    "features, 256 positions, a dropout of 0.1.",
    with_default(2, "num_heads", 8),
    with_default(5, "max_len", 512),
    with_default(6, "dropout", 0.0),
)
add(
    tiny,
    Tiny,
    "hidden_width_fixed",
    "Where `d_ff` is None, or is not given, you take one width for all, such as 256. That is "
    "4 · d_model at a width of 64 alone.",
    with_default(4, "d_ff", 256),
    {
        "slip": blocks_of(
            lambda width, heads, hidden, drop: TransformerBlock(width, heads, hidden or 256, drop)
        )
    },
)


class KeepsItsMask(Tiny):
    kept = None

    def blocked(self, ids, causal):
        if causal:
            self.kept = Tiny.blocked(self, ids, causal)
        return self.kept


tiny.add(
    "mask_kept_in_the_model",
    "You keep the causal mask in the model, so that one call decides for the next. Each call makes "
    "its own, or None.",
    KeepsItsMask,
)


# stack_parameters


def counted(name, sentence, *counts):
    stack_parameters.add(name, sentence, *counts)


def count(vocab_size, d_model, num_layers, d_ff):
    return right.stack_parameters(vocab_size, d_model, num_layers, d_ff)


counted(
    "head_not_counted",
    "The head is missing: it has a matrix of its own, V · C numbers, and a bias.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) - vocab_size * (d_model + 1)
    ),
)
counted(
    "head_tied_in_the_count",
    "You counted the matrix of V · C once. The head is not tied here: there are two.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) - vocab_size * d_model
    ),
)
counted(
    "head_bias_missing",
    "The head's bias is missing, V numbers.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) - vocab_size
    ),
)
counted(
    "final_norm_missing",
    "The final norm is missing, 2 · C numbers.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) - 2 * d_model
    ),
)
counted(
    "final_norm_counted_half",
    "The final norm has a weight and a bias: 2 · C numbers.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) - d_model
    ),
)
counted(
    "a_norm_in_every_layer",
    "The final norm stands once, behind the last block, and not in every layer.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) + 2 * d_model * (num_layers - 1)
    ),
)
counted(
    "one_layer_counted",
    "The blocks are counted once. There are `num_layers` of them.",
    lambda vocab_size, d_model, num_layers, d_ff: count(vocab_size, d_model, 1, d_ff),
)
counted(
    "positions_counted",
    "Sinusoids are not trained: they are a buffer, and count nothing.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, num_layers, d_ff) + 256 * d_model
    ),
)
counted(
    "hidden_width_fixed",
    "You counted with 4 · d_model hidden features. The hidden width is `d_ff`.",
    lambda vocab_size, d_model, num_layers, d_ff: count(
        vocab_size, d_model, num_layers, 4 * d_model
    ),
)
counted(
    "widths_exchanged",
    "The widths have changed places: `block_parameters` takes `d_model` first, then `d_ff`.",
    lambda vocab_size, d_model, num_layers, d_ff: (
        count(vocab_size, d_model, 0, d_ff) + num_layers * block_parameters(d_ff, d_model)
    ),
)
counted(
    "a_float",
    "The count is a float. Multiply and add ints, and it is one.",
    lambda vocab_size, d_model, num_layers, d_ff: float(
        count(vocab_size, d_model, num_layers, d_ff)
    ),
)
counted(
    "forgot_to_return",
    "You returned nothing: end with `return`.",
    lambda vocab_size, d_model, num_layers, d_ff: None,
)


# DecoderOnlyLM alone


def lm(name, sentence, *steps):
    add(language_model, LM, name, sentence, *steps)


def unties(self, vocab, width, *_):
    self.output_head.weight = nn.Parameter(self.token_embedding.weight.detach().clone())


def ties_the_values(self, *_):
    weight = self.token_embedding.weight
    self.output_head.weight = nn.Parameter(weight.data)


slips(
    language_model,
    LM,
    "tied_by_copying",
    "The head has a matrix of its own, or a copy of the embedding's, which parts from it at the "
    "first step. Tie them: `self.output_head.weight = self.token_embedding.weight`.",
    unties,
)
slips(
    language_model,
    LM,
    "tied_by_the_values_alone",
    "Head and embedding are two parameters over the same memory (`.data`): an optimizer steps "
    "twice, and `.to(…)` parts them. Assign the parameter itself.",
    ties_the_values,
)
slips(
    language_model,
    LM,
    "embedding_too_large_at_first",
    "nn.Embedding draws numbers of order one. Tied to the head they make logits of order "
    "sqrt(C), and the first loss is far above ln V. Draw them small: "
    "`nn.init.normal_(…, std=0.02)`.",
    lambda self, *_: nn.init.normal_(self.token_embedding.weight),
)
slips(
    language_model,
    LM,
    "head_with_a_bias",
    "The head has a bias. Here it has none.",
    lambda self, vocab, *_: setattr(self.output_head, "bias", nn.Parameter(torch.zeros(vocab))),
)
slips(
    language_model,
    LM,
    "heads_not_passed_on",
    "`num_heads` never reaches the blocks.",
    *(
        lambda self, vocab, width, heads, layers, hidden, dropout, other=other: setattr(
            self,
            "blocks",
            nn.ModuleList(DecoderOnlyBlock(width, other, hidden, dropout) for _ in range(layers)),
        )
        for other in (1, 4)
    ),
)
slips(
    language_model,
    LM,
    "dropout_not_passed_on",
    "`dropout` never reaches the blocks.",
    lambda self, vocab, width, heads, layers, hidden, dropout: setattr(
        self,
        "blocks",
        nn.ModuleList(DecoderOnlyBlock(width, heads, hidden) for _ in range(layers)),
    ),
)
lm(
    "embedding_scaled",
    "The embedding is multiplied. Here it goes in as it is: no sinusoids are added to it.",
    {
        "embed": lambda self, ids: (
            LM.embed(self, ids) * math.sqrt(self.token_embedding.embedding_dim)
        )
    },
)
lm(
    "positions_added",
    "Positions are added to the embedding. Here it goes in as it is: the blocks turn their queries "
    "and keys by positions already.",
    {
        "embed": lambda self, ids: (
            LM.embed(self, ids) + sinusoidal_table(ids.shape[1], self.token_embedding.embedding_dim)
        )
    },
)
lm(
    "valid_not_passed_on",
    "`valid_tokens` never reaches the blocks, so real tokens read padding.",
    {"valid": lambda self, ids, valid: None},
)
lm(
    "valid_turned_round",
    "`valid_tokens` is turned round on its way. It is True at real tokens in both.",
    {"valid": lambda self, ids, valid: None if valid is None else ~valid},
)


def valid_for_the_first_alone(self, x, valid, caches):
    new_caches = []
    for block, cache in zip(self.blocks, caches, strict=True):
        x, cache = block(x, valid, cache=cache, use_cache=True)
        new_caches.append(cache)
        valid = None
    return x, new_caches


lm(
    "valid_for_the_first_layer_only",
    "`valid_tokens` reaches the first block alone. In every layer tokens look around anew, so "
    "every block gets it.",
    {"through": valid_for_the_first_alone},
)
lm(
    "new_columns_of_valid_alone",
    "With caches you pass on the columns of the new tokens alone. Old padding is in the cache, and "
    "stays hidden only if all of `valid_tokens` goes on.",
    {"valid": lambda self, ids, valid: None if valid is None else valid[:, -ids.shape[1] :]},
)
lm(
    "none_made_to_ones_of_the_new_tokens",
    "You put a mask over the new tokens where `valid_tokens` is None. With caches it has to cover "
    "the old ones too: pass None on, the blocks know it.",
    {"valid": lambda self, ids, valid: torch.ones_like(ids) == 1 if valid is None else valid},
)
lm(
    "mask_on_the_cpu",
    "A mask is made on the CPU, whatever the ids are on: `device=token_ids.device`.",
    {
        "valid": lambda self, ids, valid: (
            valid
            if valid is not None or ids.device.type == "cpu"
            else torch.ones(ids.shape, dtype=torch.bool, device="cpu")
        )
    },
)


def one_cache_for_all(self, x, valid, caches):
    new_caches, cache = [], caches[-1]
    for block in self.blocks:
        x, cache = block(x, valid, cache=cache, use_cache=True)
        new_caches.append(cache)
    return x, new_caches


lm(
    "one_cache_for_all_layers",
    "All layers share one cache. Each layer has keys and values of its own: layer i goes on from "
    "`caches[i]`.",
    {"through": one_cache_for_all},
    {"given": lambda self, caches, use: LM.given(self, caches and caches[:1] * len(caches), use)},
)
lm(
    "caches_in_the_wrong_order",
    "The caches come back in another order than that of the layers.",
    {"give": lambda self, x, caches, use: (x, caches[::-1]) if use else x},
)
lm(
    "caches_not_used",
    "The caches that are given are not used: every call begins anew.",
    {"given": lambda self, caches, use_cache: [None] * len(self.blocks)},
)
lm(
    "caches_used_with_use_cache_alone",
    "Caches that are given are used without `use_cache` too: that says only what comes back.",
    {"given": lambda self, caches, use: LM.given(self, caches if use else None, use)},
)
lm(
    "last_cache_alone_comes_back",
    "You returned one cache. A list comes back, with one cache for each layer.",
    {"give": lambda self, x, caches, use: (x, caches[-1]) if use else x},
)
lm(
    "caches_come_back_on_going_on_alone",
    "On the first call no caches come back. With `use_cache` they always do.",
    {
        "through": lambda self, x, valid, caches: (
            LM.through(self, x, valid, caches)[0],
            None if caches[0] is None else LM.through(self, x, valid, caches)[1],
        )
    },
    {
        "forward": lambda self, ids, valid_tokens=None, *, caches=None, use_cache=False: LM.forward(
            self, ids, valid_tokens, caches=caches, use_cache=use_cache and caches is not None
        )
    },
)
lm(
    "always_a_pair",
    "Without `use_cache` the logits alone come back.",
    {"give": lambda self, x, caches, use: (x, caches)},
)


def unpacks_one(self, x, valid, caches):
    x, cache = self.blocks[0](x, valid)


lm(
    "a_pair_unpacked_without_use_cache",
    "Without `use_cache` a block returns x alone, which is no pair. Ask each block for its cache, "
    "and give back what you were asked for.",
    {"through": unpacks_one},
)


def grows_the_old_caches(self, x, valid, caches):
    x, new_caches = LM.through(self, x, valid, caches)
    for old, new in zip(caches, new_caches, strict=True):
        if old is not None:
            old.keys, old.values = new.keys, new.values
    return x, new_caches


def writes_into_the_list(self, x, valid, caches):
    for place, block in enumerate(self.blocks):
        x, caches[place] = block(x, valid, cache=caches[place], use_cache=True)
    return x, caches


class KeepsItsCaches(LM):
    def given(self, caches, use_cache):
        return LM.given(self, None if caches is None else self.kept, use_cache)

    def give(self, logits, caches, use_cache):
        self.kept = caches
        return LM.give(self, logits, caches, use_cache)


lm(
    "given_caches_changed",
    "You changed the caches that were given, or their list, or kept them in the model. Whoever "
    "gave them may go on from them twice: put each new cache into a new list.",
    {"through": grows_the_old_caches},
    {"through": writes_into_the_list},
    KeepsItsCaches,
)
lm(
    "last_token_alone",
    "One row of logits comes back for each text, that of the last token. All tokens that are "
    "given get theirs.",
    {"finish": lambda self, x: LM.finish(self, x)[:, -1:]},
    {"finish": lambda self, x: LM.finish(self, x)[:, -1]},
)
lm(
    "shifted_inside",
    "The model shifts, or leaves a token out. Row t belongs to token t; the loss shifts, in lesson "
    "8.",
    {"embed": lambda self, ids: LM.embed(self, ids.roll(1, dims=1))},
    {"finish": lambda self, x: LM.finish(self, x)[:, :-1]},
)
lm(
    "head_s_side_detached",
    "The head reads a detached matrix, so the embedding learns from one of its two uses alone.",
    {"finish": lambda self, x: self.final_norm(x) @ self.output_head.weight.detach().mT},
)


def not_causal(self, x, valid, caches):
    valid = torch.ones_like(x[:, :, 0]) == 1 if valid is None else valid
    return Encoders.run(self.blocks, x, valid), list(caches)


class Encoders:
    @staticmethod
    def run(blocks, x, valid):
        for block in blocks:
            x = EncoderBlock.forward(block, x, valid)
        return x


lm(
    "not_causal",
    "Your blocks read what comes later. A decoder-only model is causal: DecoderOnlyBlock.",
    {"through": not_causal},
)


# Seq2SeqTransformer alone


def s2s(name, sentence, *steps):
    add(seq2seq, Seq2Seq, name, sentence, *steps)


def real(valid):
    return torch.ones_like(valid)


s2s(
    "source_mask_not_passed_on",
    "`source_valid` never reaches the encoder, so real tokens read padding.",
    {"up": lambda self, x, valid: Seq2Seq.up(self, x, real(valid))},
)


def masks_the_first(self, x, valid):
    for block in self.encoder:
        x, valid = block(x, valid), real(valid)
    return x


s2s(
    "source_mask_for_the_first_layer_only",
    "`source_valid` reaches the encoder's first block alone. Every block gets it.",
    {"up": masks_the_first},
)
s2s(
    "memory_mask_not_passed_on",
    "The decoder reads rows of the memory that are padding: `source_valid` is its "
    "`memory_valid_tokens`.",
    {
        "down": lambda self, x, memory, valid, memory_valid: Seq2Seq.down(
            self, x, memory, valid, real(memory_valid)
        )
    },
)
s2s(
    "target_mask_not_passed_on",
    "`target_valid` never reaches the decoder, so real tokens read padding.",
    {
        "down": lambda self, x, memory, valid, memory_valid: Seq2Seq.down(
            self, x, memory, real(valid), memory_valid
        )
    },
)
s2s(
    "masks_exchanged",
    "The masks of source and target are exchanged: the target's rows have `target_valid`, the "
    "memory's have `source_valid`.",
    {
        "down": lambda self, x, memory, valid, memory_valid: Seq2Seq.down(
            self, x, memory, memory_valid, valid
        )
    },
)


s2s(
    "decoder_not_causal",
    "The decoder reads later target tokens, which it is to predict. Its self-attention is causal.",
    {
        "down": lambda self, x, memory, valid, memory_valid: self.decoder[-1](
            self.decoder[0](
                x + x.sum(dim=1, keepdim=True),
                memory,
                target_valid_tokens=valid,
                memory_valid_tokens=memory_valid,
            ),
            memory,
            target_valid_tokens=valid,
            memory_valid_tokens=memory_valid,
        )
    },
)


def causal_up(self, x, valid):
    for block in self.encoder:
        x = DecoderOnlyBlock.forward(block, x, valid)
    return x


s2s(
    "encoder_causal",
    "The encoder is causal. The whole source is known, so every token reads every token.",
    {"up": causal_up},
)
s2s(
    "shifted_inside",
    "The target is shifted, or cut, inside the model. `forward` takes it as it comes; who trains "
    "the model shifts.",
    {"write": lambda self, ids: Seq2Seq.write(self, ids.roll(1, dims=1).contiguous())},
    {"finish": lambda self, x: Seq2Seq.finish(self, x)[:, :-1]},
)


def with_memories(others):
    """The memory for the first block, and for the others `others(x, memory)` and its mask."""

    def down(self, x, memory, valid, memory_valid):
        for block in self.decoder:
            x = block(x, memory, target_valid_tokens=valid, memory_valid_tokens=memory_valid)
            memory, memory_valid = others(x, memory, valid, memory_valid)
        return x

    return {"down": down}


s2s(
    "memory_for_the_first_layer_only",
    "The memory reaches the first decoder block alone. Every block reads it, as it is.",
    with_memories(lambda x, memory, valid, memory_valid: (0 * memory, memory_valid)),
    with_memories(lambda x, memory, valid, memory_valid: (x, valid)),
)


def reads_itself(self, x, memory, valid, memory_valid):
    for block in self.decoder:
        x = block(x, x, target_valid_tokens=valid, memory_valid_tokens=valid)
    return x


s2s(
    "memory_not_read",
    "The decoder does not read the memory: the source changes nothing.",
    {
        "down": lambda self, x, memory, valid, memory_valid: Seq2Seq.down(
            self, x, 0 * memory, valid, memory_valid
        )
    },
    {"down": reads_itself},
)
s2s(
    "reads_one_row_of_the_memory",
    "The memory is made to a single row (its mean, its first or its last). The decoder reads all "
    "rows, each for itself.",
    {"encode": lambda self, ids, valid: Seq2Seq.encode(self, ids, valid).mean(dim=1, keepdim=True)},
    *(
        {
            "down": lambda self, x, memory, valid, memory_valid, one=one, first=first: Seq2Seq.down(
                self, x, one(memory), valid, first(memory_valid)
            )
        }
        for one, first in (
            (lambda memory: memory.mean(dim=1, keepdim=True), lambda valid: None),
            (lambda memory: memory[:, -1:], lambda valid: None),
            (lambda memory: memory[:, :1], lambda valid: valid[:, :1]),
        )
    ),
)


class KeepsItsMemory(Seq2Seq):
    def encode(self, source_ids, source_valid):
        self.memory = Seq2Seq.encode(self, source_ids, source_valid)
        return self.memory

    def decode(self, target_ids, memory, target_valid, source_valid):
        return Seq2Seq.decode(self, target_ids, self.memory, target_valid, source_valid)


s2s(
    "memory_kept_in_the_model",
    "`decode` reads a memory that `encode` kept in the model, and not the one it is given.",
    KeepsItsMemory,
)
s2s(
    "memory_detached",
    "You cut the memory out of the gradient, so the encoder never learns.",
    {
        "encode": lambda self, ids, valid: Seq2Seq.encode(self, ids, valid).detach(),
    },
)
s2s(
    "source_written_into",
    "You wrote into the ids that were given. They belong to the caller.",
    {
        "read": lambda self, ids: Seq2Seq.read(self, ids.clone()) + 0 * ids.zero_().sum(),
    },
)
s2s(
    "forward_encodes_alone",
    "`forward` is not `decode` of what `encode` returns.",
    {
        "forward": lambda self, source_ids, target_ids, source_valid, target_valid: self.decode(
            target_ids,
            self.up(self.read(source_ids), source_valid),
            target_valid,
            source_valid,
        )
    },
    {
        "encode": lambda self, ids, valid: self.up(self.read(ids), valid),
        "forward": lambda self, source_ids, target_ids, source_valid, target_valid: self.decode(
            target_ids,
            Seq2Seq.encode(self, source_ids, source_valid),
            target_valid,
            source_valid,
        ),
    },
)
s2s(
    "float32_inside",
    "You turn x into float32. It stays in the dtype of the weights.",
    {"read": lambda self, ids: Seq2Seq.read(self, ids).float()},
)
s2s(
    "mask_on_the_cpu",
    "A tensor is made on the CPU, whatever the ids are on: `device=token_ids.device`.",
    {
        "read": lambda self, ids: (
            Seq2Seq.read(self, ids) + torch.zeros(ids.shape[1], device="cpu")[:, None]
        )
    },
)


def seq2seq_sizes(name, sentence, *steps):
    slips(seq2seq, Seq2Seq, name, sentence, *steps)


SIDES = {"encoder": EncoderBlock, "decoder": DecoderBlock}


def blocks_on(sides, make):
    def slip(self, source, target, width, heads, layers, hidden, dropout):
        for name in sides:
            made = (make(SIDES[name], width, heads, hidden, dropout) for _ in range(layers))
            setattr(self, name, nn.ModuleList(made))

    return slip


def both_sides(make):
    return blocks_on(SIDES, make)


def sides(make):
    """Wrong on both sides, or on one of the two."""
    return [blocks_on(names, make) for names in (SIDES, ["encoder"], ["decoder"])]


seq2seq_sizes(
    "hidden_width_not_passed_on",
    "`hidden_dim` does not reach all blocks.",
    *sides(lambda block, width, heads, hidden, drop: block(width, heads, 4 * width, drop)),
)
seq2seq_sizes(
    "heads_not_passed_on",
    "`num_heads` does not reach all blocks.",
    *sides(lambda block, width, heads, hidden, dropout: block(width, 1, hidden, dropout)),
)
seq2seq_sizes(
    "dropout_not_passed_on",
    "`dropout` does not reach all blocks.",
    *sides(lambda block, width, heads, hidden, dropout: block(width, heads, hidden)),
)
seq2seq_sizes(
    "dropout_by_default",
    "Something is dropped though no `dropout` was given: it is 0.0 by default.",
    both_sides(lambda block, width, heads, hidden, drop: block(width, heads, hidden, drop or 0.1)),
)


seq2seq_sizes(
    "one_block_on_a_side",
    "The encoder or the decoder does not have `num_layers` blocks. Both have that many.",
    *(
        lambda self, *_, side=side, of=of: setattr(self, side, getattr(self, side)[of])
        for of in (slice(1), slice(-1))
        for side in SIDES
    ),
)


def exchanged(self, source, target, width, *_):
    self.source_embedding = nn.Embedding(target, width)
    self.target_embedding = nn.Embedding(source, width)


seq2seq_sizes(
    "vocabularies_exchanged",
    "Source and target are exchanged, or one vocabulary serves for both: the source has "
    "`source_vocab` ids, the target and the logits `target_vocab`.",
    exchanged,
    lambda self, source, target, width, *_: setattr(self, "output_head", nn.Linear(width, source)),
    lambda self, source, target, width, *_: setattr(
        self, "target_embedding", nn.Embedding(source, width)
    ),
    lambda self, *_: setattr(self, "target_embedding", self.source_embedding),
)


def without_rope(*names):
    def slip(self, *arguments):
        for name in names:
            for block in getattr(self, name):
                block.self_attention.use_rope = False

    return slip


seq2seq_sizes(
    "order_unknown",
    "The order of tokens changes nothing in the source. Attention needs positions: RoPE in the "
    "blocks, or something added to the embeddings.",
    without_rope("encoder"),
)


# LessonRecommender alone


def recommends(name, sentence, *steps):
    add(recommender, Recommender, name, sentence, *steps)


def pools(name, sentence, *steps):
    recommends(name, sentence, *({"pool": step} for step in steps))


pools(
    "mean_over_padding_too",
    "The mean is taken over padding too: you divide by the length of the row. Sum the real "
    "positions, and divide by their number.",
    lambda self, x, real: x.mean(dim=1),
    lambda self, x, real: x.masked_fill(~real[:, :, None], 0.0).mean(dim=1),
)
pools(
    "padding_in_the_sum",
    "You divide by the number of real positions, but what you sum has the padding in it.",
    lambda self, x, real: x.sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1),
)
pools(
    "summed",
    "You summed. A long history then has larger logits than a short one; the mean is asked for.",
    lambda self, x, real: x.masked_fill(~real[:, :, None], 0.0).sum(dim=1),
)


def last(self, x, real):
    place = real.sum(dim=1).clamp(min=1) - 1
    return x[torch.arange(len(x), device=x.device), place]


pools(
    "one_position_read",
    "You read a single position. The mean over all real positions is asked for.",
    last,
    lambda self, x, real: x[:, 0],
)
pools(
    "last_column_read",
    "You read the last column, which is padding in most histories. The mean over all real "
    "positions is asked for.",
    lambda self, x, real: x[:, -1],
)
pools(
    "largest_taken",
    "You took the largest of each feature. The mean is asked for.",
    lambda self, x, real: (
        x.masked_fill(~real[:, :, None], -9e3).max(dim=1).values * real.any(dim=1, keepdim=True)
    ),
    lambda self, x, real: x.masked_fill(~real[:, :, None], 0.0).amax(dim=1),
    lambda self, x, real: x.amax(dim=1),
)


def divides(self, x, real):
    return x.masked_fill(~real[:, :, None], 0.0).sum(dim=1) / real.sum(dim=1, keepdim=True)


pools(
    "divided_by_nothing",
    "An empty history has no real position, and 0 / 0 is `nan`. Divide by at least 1: "
    "`count.clamp(min=1)`.",
    divides,
)


class Weighing(PostNormBlock):
    """It asks for the weights of attention, which are `nan` where every key is blocked."""

    def forward(self, x, key_padding_mask=None):
        x = self.norm1(x + self.attn(x, x, x, key_padding_mask=key_padding_mask)[0])
        return self.norm2(x + self.ff(x))


def weighs_with_zeros(self, x, real):
    weights = real / real.sum(dim=1, keepdim=True).clamp(min=1)
    return (x * weights[:, :, None].to(x.dtype)).sum(dim=1)


def weighing(self, lessons, width, heads, layers, hidden, longest):
    self.blocks = nn.ModuleList(Weighing(width, heads, hidden) for _ in range(layers))


recommends(
    "every_key_blocked",
    "In an empty history every key is blocked, and a softmax over nothing is `nan`. Painted over, "
    "it is still in the gradient of the whole batch. Leave a key open there: it is left out of the "
    "mean anyhow.",
    {"blocked": lambda self, real: ~real, "slip": weighing},
    {"blocked": lambda self, real: ~real, "pool": weighs_with_zeros},
)
recommends(
    "padding_not_hidden_in_attention",
    "Real lessons read padding: no mask reaches the blocks.",
    {"blocked": lambda self, real: torch.zeros_like(real)},
)


def masks_the_first_block(self, x, blocked):
    for block in self.blocks:
        x, blocked = block(x, blocked), torch.zeros_like(blocked)
    return x


recommends(
    "mask_for_the_first_layer_only",
    "The mask reaches the first block alone. Every block gets it.",
    {"through": masks_the_first_block},
)
recommends(
    "mask_turned_round",
    "The mask is turned round: a PostNormBlock must not read where it is True.",
    {"blocked": lambda self, real: real},
    {"blocked": lambda self, real: ~Recommender.blocked(self, real)},
)
recommends(
    "no_positions",
    "The order of lessons changes nothing: positions are missing.",
    {"embed": lambda self, history: self.lesson_embedding(history)},
    {
        "embed": lambda self, history: self.lesson_embedding(history),
        "slip": lambda self, *_: delattr(self, "position"),
    },
)


def fills(ids):
    """An empty history gets a lesson, in place."""
    ids[(ids == 0).all(dim=1), 0] = 1
    return ids


recommends(
    "history_written_into",
    "You wrote into the history that was given. It belongs to the caller.",
    {
        "embed": lambda self, ids: Recommender.embed(self, ids.clone()) + 0 * ids.zero_().sum(),
        "real": lambda self, ids: ids.clone() != 0,
    },
    {"embed": lambda self, ids: Recommender.embed(self, fills(ids))},
)
recommends(
    "embedding_detached",
    "You cut the embedding out of the gradient, so it never learns.",
    {"embed": lambda self, ids: Recommender.embed(self, ids).detach()},
    {"embed": lambda self, ids: self.position(self.lesson_embedding(ids).detach())},
)
pools(
    "float32_inside",
    "Something is float32 whatever the weights are: a mask, the count or the sum. Use "
    "`masked_fill`, or `.to(x.dtype)`.",
    lambda self, x, real: Recommender.pool(self, x, real).float(),
    lambda self, x, real: (
        (x * real[:, :, None].float()).sum(dim=1) / real.float().sum(dim=1, keepdim=True).clamp(1)
    ),
)
recommends(
    "mask_on_the_cpu",
    "A tensor is made on the CPU, whatever the history is on: `device=history.device`.",
    {
        "embed": lambda self, ids: (
            Recommender.embed(self, ids) + torch.zeros(ids.shape[1], device="cpu")[:, None]
        )
    },
)


def recommender_sizes(name, sentence, *steps):
    slips(recommender, Recommender, name, sentence, *steps)


def no_row_for_padding(self, lessons, width, *_):
    self.lesson_embedding = nn.Embedding(lessons, width, padding_idx=0)


recommender_sizes(
    "last_lesson_unknown",
    "The embedding has `num_lessons` rows, and the last lesson has none: ids go from 0, padding, "
    "to `num_lessons`. That is one row more.",
    no_row_for_padding,
)
recommender_sizes(
    "padding_idx_of_a_lesson",
    "A lesson is the `padding_idx` of the embedding, so that it never learns. Padding is 0.",
    *(
        lambda self, lessons, width, *_, first=first: setattr(
            self,
            "lesson_embedding",
            nn.Embedding(lessons + 1, width, padding_idx=1 if first else lessons),
        )
        for first in (False, True)
    ),
)
recommender_sizes(
    "a_score_for_padding",
    "There is a score for padding too. `num_lessons` logits are asked for, column j for lesson "
    "j + 1.",
    lambda self, lessons, width, *_: setattr(self, "output_head", nn.Linear(width, lessons + 1)),
)
recommender_sizes(
    "longest_not_passed_on",
    "`max_len` never reaches the positions, so that longer histories raise nothing.",
    lambda self, lessons, width, *_: setattr(
        self, "position", LearnedPositionalEncoding(width, max_len=100)
    ),
)


class PlainPositions(nn.Module):
    def __init__(self, width, longest):
        super().__init__()
        self.position_embedding = nn.Embedding(longest, width)

    def forward(self, x):
        return x + self.position_embedding(torch.arange(x.shape[1], device=x.device))


recommender_sizes(
    "no_value_error",
    "Past `max_len` an IndexError comes from the embedding, and on a GPU worse. Test for the "
    "length and raise a ValueError.",
    lambda self, *sizes: setattr(self, "position", PlainPositions(sizes[1], sizes[-1])),
)


def recommending(make):
    def slip(self, lessons, width, heads, layers, hidden, longest):
        made = (make(width, heads, hidden) for _ in range(layers))
        self.blocks = nn.ModuleList(made)

    return slip


class PreNorm(TransformerBlock):
    def __init__(self, width, heads, hidden):
        super().__init__(width, heads, hidden, dropout=0.0)

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        return super().forward(x, None, blocked_attn_mask)


def with_a_final_norm(self, *sizes):
    recommending(PreNorm)(self, *sizes)
    self.final_norm = nn.LayerNorm(sizes[1])


add(
    recommender,
    Recommender,
    "pre_norm_blocks",
    "The blocks are pre-norm. Here they are post-norm: `PostNormBlock`, with a norm on each sum.",
    {"slip": recommending(PreNorm)},
    {
        "slip": with_a_final_norm,
        "through": lambda self, x, blocked: self.final_norm(Recommender.through(self, x, blocked)),
    },
    {
        "slip": recommending(EncoderBlock),
        "blocked": lambda self, real: ~Recommender.blocked(self, real),
    },
)
recommender_sizes(
    "hidden_width_not_passed_on",
    "`hidden_dim` does not reach the blocks.",
    recommending(lambda width, heads, hidden: PostNormBlock(width, heads, 4 * width)),
)
recommender_sizes(
    "heads_not_passed_on",
    "`num_heads` does not reach the blocks.",
    recommending(lambda width, heads, hidden: PostNormBlock(width, 1, hidden)),
)
recommender_sizes(
    "last_block_missing",
    "There are not as many blocks as `num_layers` says.",
    lambda self, *_: setattr(self, "blocks", self.blocks[:1]),
    lambda self, *_: setattr(self, "blocks", self.blocks[:-1]),
)


# The quiz

stack_quiz = quiz_mistakes(
    "stack_quiz",
    "bdacdba",
    {
        1: {
            "a": "That is what stands inside, in front of the head: one row of C = 64 features for "
            "each token.",
            "c": "Every token gets logits, not the last one alone.",
            "d": "Heads split the width inside attention. Outside nothing is left of them.",
        },
        2: {
            "a": "Shapes are the same: the one block has the right shapes.",
            "b": "It falls, a little slower: one block can learn too.",
            "c": "All names are there. `state_dict` lists the one block once for each place.",
        },
        3: {
            "b": "That is ln 1000. An even guess among 50 words costs ln 50.",
            "c": "That is 50 / 64. The width has no part in the loss of an even guess.",
            "d": "A loss of 0 is that of a model that knows every next token.",
        },
        4: {
            "a": "The vocabulary makes the embedding and the head longer, and no block.",
            "b": "More layers make more blocks of the same size.",
            "d": "Heads split the width that is there. They add no weights.",
        },
        5: {
            "a": "A copy is equal at first. After one step it is not.",
            "b": "nn.Linear keeps its matrix as (V, C) too, so nothing has to be turned.",
            "c": "Frozen, it would not learn at all. Tied, it learns from both its uses.",
        },
        6: {
            "a": "Then the second layer reads padding again. A mask for one layer is none.",
            "c": "The head reads one token at a time. There is nothing to hide from it.",
            "d": "The embedding reads one token at a time. There is nothing to hide from it.",
        },
        7: {
            "b": "The causal mask is the same in both. What the decoder has more is a source.",
            "c": "The encoder reads its source in full: no token of it is a secret.",
            "d": "Both end with a norm and a head.",
        },
    },
)
