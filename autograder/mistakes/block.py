"""Known wrong answers of lesson 06, each with the sentence its author should hear."""

import inspect
import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions import block as right
from solutions.block import to_reference as right_reference
from solutions.masks import ManualMultiHeadAttention

block_parameters = Mistakes("block_parameters")
transformer = Mistakes("TransformerBlock")
post_norm = Mistakes("PostNormBlock")
fused = Mistakes("FusedBlock")
to_reference = Mistakes("to_reference")
encoder = Mistakes("EncoderBlock")
decoder = Mistakes("DecoderBlock")
decoder_only = Mistakes("DecoderOnlyBlock")


# The right blocks, each step a method that a mistake replaces. `flow` is told the pairs of norm and
# branch in their order.


def pre(x, pairs):
    for norm, branch in pairs:
        x = x + branch(norm(x))
    return x


def post_norm_flow(x, pairs):
    for norm, branch in pairs:
        x = norm(x + branch(x))
    return x


class Flow:
    def flow(self, x, pairs):
        return pre(x, pairs)

    def order(self, pairs):
        return pairs

    def finish(self, x, valid):
        return x.masked_fill(~valid[:, :, None], 0.0)


class Transformer(Flow, right.TransformerBlock):
    def read(self, query, key, value, blocked, padding):
        attended, _ = self.self_attn(
            query, key, value, attn_mask=blocked, key_padding_mask=padding, need_weights=False
        )
        return attended

    def attend(self, h, blocked, padding):
        return self.dropout(self.read(h, h, h, blocked, padding))

    def feed(self, h):
        return self.ffn(h)

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        def attend(h):
            return self.attend(h, blocked_attn_mask, key_padding_mask)

        return self.flow(x, self.order([(self.ln1, attend), (self.ln2, self.feed)]))


class PostNorm(Flow, right.PostNormBlock):
    def flow(self, x, pairs):
        return post_norm_flow(x, pairs)

    def attend(self, h, padding):
        return self.attn(h, h, h, key_padding_mask=padding, need_weights=False)[0]

    def feed(self, h):
        return self.ff(h)

    def forward(self, x, key_padding_mask=None):
        attend = lambda h: self.attend(h, key_padding_mask)  # noqa: E731
        return self.flow(x, self.order([(self.norm1, attend), (self.norm2, self.feed)]))


class Fused(Flow, right.FusedBlock):
    def thirds(self, x):
        return self.qkv(x).chunk(3, dim=-1)

    def split(self, third):
        return third.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def query_key_value(self, x):
        return tuple(self.split(third) for third in self.thirds(x))

    def blocked(self, length, device):
        return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)

    def scale(self, query):
        return query.shape[-1] ** -0.5

    def weigh(self, scores, blocked):
        return scores.masked_fill(blocked, -math.inf).softmax(-1)

    def merge(self, mixed):
        return mixed.transpose(1, 2).flatten(2)

    def project_out(self, x):
        return self.proj(x)

    def attend(self, x):
        query, key, value = self.query_key_value(x)
        scores = query @ key.transpose(-2, -1) * self.scale(query)
        weights = self.weigh(scores, self.blocked(x.shape[1], x.device))
        return self.project_out(self.merge(weights @ value))

    def feed(self, h):
        return self.mlp(h)

    def forward(self, x):
        return self.flow(x, self.order([(self.ln1, self.attend), (self.ln2, self.feed)]))


class Encoder(Flow, right.EncoderBlock):
    def attend(self, h, valid):
        return self.self_attention(h, key_valid=valid)

    def feed(self, h):
        return self.feed_forward(h)

    def forward(self, x, valid_tokens):
        attend = lambda h: self.attend(h, valid_tokens)  # noqa: E731
        pairs = [(self.attention_norm, attend), (self.ffn_norm, self.feed)]
        return self.finish(self.flow(x, self.order(pairs)), valid_tokens)


class Decoder(Flow, right.DecoderBlock):
    def attend(self, h, valid):
        return self.self_attention(h, key_valid=valid, causal=True)

    def cross(self, h, memory, valid, memory_valid):
        return self.cross_attention(h, memory, key_valid=memory_valid)

    def feed(self, h):
        return self.feed_forward(h)

    def forward(self, x, memory, *, target_valid_tokens, memory_valid_tokens):
        pairs = [
            (self.self_norm, lambda h: self.attend(h, target_valid_tokens)),
            (
                self.cross_norm,
                lambda h: self.cross(h, memory, target_valid_tokens, memory_valid_tokens),
            ),
            (self.ffn_norm, self.feed),
        ]
        return self.finish(self.flow(x, self.order(pairs)), target_valid_tokens)


class DecoderOnly(Flow, right.DecoderOnlyBlock):
    def attend(self, h, valid, cache):
        return self.self_attention(h, key_valid=valid, causal=True, cache=cache, use_cache=True)

    def feed(self, h):
        return self.feed_forward(h)

    def new(self, valid, length):
        return valid[:, -length:]

    def give(self, x, cache, given, use_cache):
        return (x, cache) if use_cache else x

    def all_real(self, x, valid, cache):
        return valid

    def forward(self, x, valid_tokens, *, cache=None, use_cache=False):
        kept = [cache]
        valid_tokens = self.all_real(x, valid_tokens, cache)

        def attend(h):
            attended, kept[0] = self.attend(h, valid_tokens, cache)
            return attended

        pairs = [(self.attention_norm, attend), (self.ffn_norm, self.feed)]
        x = self.flow(x, self.order(pairs))
        if valid_tokens is not None:
            x = self.finish(x, self.new(valid_tokens, x.shape[1]))
        return self.give(x, kept[0], cache, use_cache)


NORMS = {
    Transformer: ("ln1", "ln2"),
    PostNorm: ("norm1", "norm2"),
    Fused: ("ln1", "ln2"),
    Encoder: ("attention_norm", "ffn_norm"),
    Decoder: ("self_norm", "cross_norm", "ffn_norm"),
    DecoderOnly: ("attention_norm", "ffn_norm"),
}
ATTENTION = {
    Transformer: ("self_attn",),
    PostNorm: ("attn",),
    Fused: ("qkv", "proj"),
    Encoder: ("self_attention",),
    Decoder: ("self_attention", "cross_attention"),
    DecoderOnly: ("self_attention",),
}
FFN = {
    Transformer: "ffn",
    PostNorm: "ff",
    Fused: "mlp",
    Encoder: "feed_forward",
    Decoder: "feed_forward",
    DecoderOnly: "feed_forward",
}

PRE: tuple[tuple[Mistakes, Any], ...] = (
    (transformer, Transformer),
    (fused, Fused),
    (encoder, Encoder),
    (decoder, Decoder),
    (decoder_only, DecoderOnly),
)
ALL: tuple[tuple[Mistakes, Any], ...] = (*PRE, (post_norm, PostNorm))


def add(catalogue, base, name, sentence, *steps):
    """Add a block for each of `steps`: methods by name that go wrong, or a whole class."""
    made = [one if isinstance(one, type) else type("Wrong", (base,), one) for one in steps]
    catalogue.add(name, sentence, *made)


def flows(name, sentence, *flow, to=PRE):
    """Add a slip in the order of things to all pre-norm blocks: each `flow(x, pairs)`."""
    for catalogue, base in to:
        steps = [{"flow": lambda self, x, pairs, one=one: one(x, pairs)} for one in flow]
        add(catalogue, base, name, sentence, *steps)


# The order of things: pre-norm


def one_after_another(step, x, pairs):
    for norm, branch in pairs:
        x = step(x, norm, branch)
    return x


def steps_of(name, sentence, *steps, to=PRE):
    """Add a slip in how each branch is written: `step(x, norm, branch)`."""
    flows(
        name,
        sentence,
        *(lambda x, pairs, step=step: one_after_another(step, x, pairs) for step in steps),
        to=to,
    )


def only_at(place, step):
    """A flow in which the branch at `place` alone is written by `step`."""

    def flow(x, pairs):
        for number, (norm, branch) in enumerate(pairs):
            x = x + branch(norm(x)) if number != place else step(x, norm, branch)
        return x

    return flow


def either(name, sentence, *steps, everywhere=True):
    """Add a slip made at all branches, or at a single one."""
    for catalogue, base in PRE:
        made = [only_at(place, step) for step in steps for place in range(len(NORMS[base]))]
        if everywhere:
            made += [lambda x, pairs, one=one: one_after_another(one, x, pairs) for one in steps]
        flows(name, sentence, *made, to=[(catalogue, base)])


steps_of(
    "post_norm_instead",
    "This is post-norm: the norm stands on the sum. In pre-norm it stands in front of the branch, "
    "and nothing stands on the sum.",
    lambda x, norm, branch: norm(x + branch(x)),
)
either(
    "normalized_input_added",
    "You added the normalized x in place of x (`x = norm(x)` overwrites it). The shortcut carries "
    "x as it came: give the normalized one another name.",
    lambda x, norm, branch: (lambda n: n + branch(n))(norm(x)),
)
either(
    "branch_reads_x_itself",
    "A branch reads x without a norm. In pre-norm every branch reads the normalized x.",
    lambda x, norm, branch: x + branch(x),
)
either(
    "shortcut_missing",
    "A shortcut is missing: you went on with what the branch gives. It is added to x.",
    lambda x, norm, branch: branch(norm(x)),
)
either(
    "norm_behind_the_branch",
    "You normalized what comes out of a branch. In pre-norm the norm stands in front of it.",
    lambda x, norm, branch: x + norm(branch(x)),
)
either(
    "branch_missing",
    "A branch never writes: one of attention and the ffn is not called.",
    lambda x, norm, branch: x,
    everywhere=False,
)
flows(
    "one_norm_used_for_all",
    "One norm is used in front of every branch, and the others never. Each branch has its own: "
    "they learn different gains.",
    lambda x, pairs: one_after_another(lambda x, _, branch: x + branch(pairs[0][0](x)), x, pairs),
    lambda x, pairs: one_after_another(lambda x, _, branch: x + branch(pairs[-1][0](x)), x, pairs),
)
flows(
    "norms_exchanged",
    "The norms stand in front of the wrong branches.",
    lambda x, pairs: pre(
        x, [(norm, branch) for (norm, _), (_, branch) in zip(pairs[::-1], pairs, strict=True)]
    ),
)
flows(
    "ffn_first",
    "The ffn comes first. Tokens communicate, then compute: attention comes first.",
    lambda x, pairs: pre(x, [pairs[-1], *pairs[:-1]]),
    lambda x, pairs: pre(
        x,
        [
            (norm, branch)
            for (norm, _), (_, branch) in zip(pairs, [pairs[-1], *pairs[:-1]], strict=True)
        ],
    ),
)
flows(
    "all_branches_side_by_side",
    "All your branches read the same x, side by side. Each reads what the one before it has "
    "written.",
    lambda x, pairs: x + sum(branch(norm(x)) for norm, branch in pairs),
)


def _reuses(x, pairs):
    h = x
    for norm, branch in pairs:
        h = x + branch(norm(h))
    return h


def _reuses_in_the_last(x, pairs):
    norm, branch = pairs[-1]
    return x + branch(norm(pre(x, pairs[:-1])))


def _reuses_the_last_but_one(x, pairs):
    return _reuses(pre(x, pairs[:-2]), pairs[-2:])


for one in PRE:
    flows(
        "later_sum_starts_from_x_again",
        "A later sum adds the block's input again, and what attention wrote is lost. Each sum adds "
        "to what the one before it made.",
        *(_reuses, _reuses_in_the_last, _reuses_the_last_but_one)[: 2 * len(NORMS[one[1]]) - 3],
        to=[one],
    )


def _adds_in_place(x, norm, branch):
    return x.add_(branch(norm(x)))


for one in PRE:
    flows(
        "changes_x_in_place",
        "You changed an input in place (`x += …`). The caller still needs it, and so does the "
        "norm's backward pass: `x = x + …` makes a new tensor.",
        lambda x, pairs: one_after_another(_adds_in_place, x, pairs),
        only_at(0, _adds_in_place),
        # Later on it harms nobody but torch's norm, which kept its input.
        *[only_at(1, _adds_in_place)] * (one[1] in (Transformer, Fused)),
        to=[one],
    )
either(
    "shortcut_detached",
    "You cut the shortcut out of the gradient (`.detach()` or `.data`). It is there to carry "
    "gradients past the branch.",
    lambda x, norm, branch: x.detach() + branch(norm(x)),
)
BRANCH_DETACHED = (
    "You cut a branch out of the gradient (`.detach()`, `.data` or `no_grad`), so it never learns, "
    "or what stands before it does not."
)
either(
    "branch_detached",
    BRANCH_DETACHED,
    lambda x, norm, branch: x + branch(norm(x)).detach(),
    lambda x, norm, branch: x + branch(norm(x).detach()),
)


# The order of things: post-norm


def post_flows(name, sentence, *flow):
    flows(name, sentence, *flow, to=[(post_norm, PostNorm)])


def post_steps(name, sentence, *steps):
    steps_of(name, sentence, *steps, to=[(post_norm, PostNorm)])


def of_two(first, second):
    """A post-norm flow whose two steps are written differently."""

    def flow(x, pairs):
        return second(first(x, *pairs[0]), *pairs[1])

    return flow


def post(x, norm, branch):
    return norm(x + branch(x))


def with_norms_exchanged(pairs):
    (first, attention), (second, feed) = pairs
    return [(second, attention), (first, feed)]


def post_either(name, sentence, *steps, more=()):
    """Add a slip made at both branches, at the first or at the second."""
    ways = ((one, two) for step in steps for one, two in ((step, step), (step, post), (post, step)))
    post_flows(name, sentence, *(of_two(*way) for way in ways), *more)


post_either(
    "pre_norm_instead",
    "This is pre-norm: the norm stands in front of the branch. In post-norm the branch reads x, "
    "and the norm stands on the sum.",
    lambda x, norm, branch: x + branch(norm(x)),
)
post_either(
    "norm_missing",
    "A norm is never used. One stands on each of the two sums.",
    lambda x, norm, branch: x + branch(x),
)
post_either(
    "norm_behind_the_branch",
    "A norm stands on what the branch gives alone. It stands on the sum.",
    lambda x, norm, branch: x + norm(branch(x)),
)
post_either(
    "shortcut_missing",
    "A shortcut is missing: the norm stands on x plus what the branch gives.",
    lambda x, norm, branch: norm(branch(x)),
)
post_either(
    "branch_missing",
    "A branch never writes: one of attention and the ff is not called.",
    lambda x, norm, branch: norm(x),
    more=[of_two(post, lambda x, norm, branch: x)],
)
post_flows(
    "one_norm_used_for_both",
    "One norm is used on both sums, and the other never. Each sum has its own.",
    lambda x, pairs: of_two(post, lambda h, _, branch: post(h, pairs[0][0], branch))(x, pairs),
    lambda x, pairs: of_two(lambda h, _, branch: post(h, pairs[1][0], branch), post)(x, pairs),
)
post_flows(
    "norms_exchanged",
    "The norms stand on the wrong sums: `norm1` behind attention, `norm2` behind the ff.",
    lambda x, pairs: of_two(post, post)(x, with_norms_exchanged(pairs)),
)
post_flows(
    "ffn_first",
    "The ff comes first. Tokens communicate, then compute: attention comes first.",
    lambda x, pairs: of_two(post, post)(x, pairs[::-1]),
    lambda x, pairs: of_two(post, post)(x, with_norms_exchanged(pairs)[::-1]),
)
post_flows(
    "all_branches_side_by_side",
    "Both branches read the same x. The ff reads what norm1 gives.",
    lambda x, pairs: pairs[1][0](pairs[0][0](x + pairs[0][1](x)) + pairs[1][1](x)),
    lambda x, pairs: pairs[1][0](x + pairs[0][1](x) + pairs[1][1](x)),
)
post_flows(
    "later_sum_starts_from_x_again",
    "The second sum adds the block's input again. It adds to what norm1 gave.",
    lambda x, pairs: pairs[1][0](x + pairs[1][1](pairs[0][0](x + pairs[0][1](x)))),
)
post_flows(
    "second_sum_takes_the_sum_before_its_norm",
    "The second sum adds to the first sum before its norm. What norm1 gives is the new x.",
    lambda x, pairs: (lambda s: pairs[1][0](s + pairs[1][1](pairs[0][0](s))))(x + pairs[0][1](x)),
)
post_either(
    "changes_x_in_place",
    "You changed an input in place (`x += …`). The caller still needs it: `x = x + …` makes a new "
    "tensor.",
    lambda x, norm, branch: norm(x.add_(branch(x))),
)
post_either(
    "shortcut_detached",
    "You cut the shortcut out of the gradient (`.detach()` or `.data`). It is there to carry "
    "gradients past the branch.",
    lambda x, norm, branch: norm(x.detach() + branch(x)),
)
post_either(
    "branch_detached",
    BRANCH_DETACHED,
    lambda x, norm, branch: norm(x + branch(x).detach()),
    lambda x, norm, branch: norm(x + branch(x.detach())),
)


# What comes out


def outcomes(name, sentence, *changes, to=ALL):
    """Add slips in what is returned: `change` of the right result."""

    def made(base: Any, change):
        class Module(base):
            def forward(self, *args, **kwargs):
                result = super().forward(*args, **kwargs)
                return (change(result[0]), result[1]) if kwargs.get("use_cache") else change(result)

        return Module

    for catalogue, base in to:
        catalogue.add(name, sentence, *(made(base, change) for change in changes))


outcomes("forgot_to_return", "You returned nothing: end with `return`.", lambda y: None)
outcomes(
    "returns_a_tuple",
    "You returned more than x. One tensor comes out, of the shape that went in.",
    lambda y: (y, None),
    lambda y: (y, y > 0),
    to=[one for one in ALL if one[1] is not DecoderOnly],
)
outcomes(
    "no_gradient_at_all",
    "You computed under `no_grad`, or on `.data`: nothing can be trained.",
    lambda y: y.detach(),
)
outcomes(
    "returns_float32",
    "You returned float32 for every input. The result has x's dtype.",
    lambda y: y.float(),
)
outcomes(
    "tensor_made_on_the_cpu",
    "A tensor (such as a mask) is made without `device=x.device`, so it lies on the CPU, and a GPU "
    "refuses to mix.",
    lambda y: y * torch.ones(y.shape[-1], dtype=y.dtype),
)


# The parts


def parts(name, sentence, *makes, to=ALL):
    """Add a slip in `__init__`: `make(module, width, heads, hidden)`, after the right parts."""
    for catalogue, base in to:
        add(catalogue, base, name, sentence, *(_with_parts(base, make) for make in makes))


def _with_parts(base: Any, make):
    class Module(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            sizes = sizes_of(base, args, kwargs)
            make(self, *sizes[:2], 4 * sizes[0] if sizes[2] is None else sizes[2])

    return Module


def sizes_of(base, args, kwargs):
    """Width, heads and hidden width, None where it is not given, however they were passed."""
    given = inspect.signature(base.__init__).bind(None, *args, **kwargs).arguments
    return [*[one for name, one in given.items() if name not in ("self", "dropout")], None][:3]


def base_of(module):
    return next(base for base in NORMS if isinstance(module, base))


def hide(module, name, part):
    """`part` under that name for `forward`, and out of sight for the module."""
    module._modules.pop(name, None)
    object.__setattr__(module, name, part)


def every_norm(make):
    def change(module, width, heads, hidden):
        for name in NORMS[base_of(module)]:
            setattr(module, name, make(width))

    return change


def _one_norm_under_all_names(module, *_):
    first, *others = NORMS[base_of(module)]
    for name in others:
        setattr(module, name, getattr(module, first))


def renamed(name, sentence, names):
    """Add parts under other names, all of `names[base]` or one of them. Which is all the same."""

    def change(some):
        def make(module, *_):
            for name in some:
                part = module._modules[name]
                hide(module, name, part)
                module.add_module(f"{name}_otherwise", part)

        return make

    for one in ALL:
        whole = names[one[1]]
        single = [(part,) for part in whole] if len(whole) > 1 else []
        parts(name, sentence, *map(change, (whole, *single)), to=[one])


def in_a_list(names):
    """Parts that the module does not see: `names(base)`."""

    def change(module, *_):
        for name in names(base_of(module)):
            hide(module, name, getattr(module, name))

    return change


_SHARED: dict = {}


def _shared(module, width, heads, hidden):
    base = base_of(module)
    for name in (*NORMS[base], *ATTENTION[base], FFN[base]):
        key = (base, name, width, heads, hidden)
        setattr(module, name, _SHARED.setdefault(key, getattr(module, name)))


parts(
    "one_norm_under_all_names",
    "Your norms are one and the same object. Each branch has its own: make each with a call of its "
    "own.",
    _one_norm_under_all_names,
)
renamed(
    "norms_called_otherwise",
    "The norms have other names. Saved weights are loaded by name, so the names are part of what "
    "is asked for.",
    NORMS,
)
renamed(
    "attention_called_otherwise",
    "Attention has another name than asked for. Saved weights are loaded by name.",
    ATTENTION,
)
renamed(
    "ffn_called_otherwise",
    "The two linear layers have no submodule of the name that is asked for around them.",
    {base: (name,) for base, name in FFN.items()},
)
parts(
    "sublayers_in_a_list",
    "Some of your sublayers are in a Python list or dict, where the module does not see them: they "
    "are not trained, saved or moved. Make each an attribute of its own.",
    in_a_list(lambda base: (*NORMS[base], *ATTENTION[base], FFN[base])),
    in_a_list(lambda base: (FFN[base],)),
    in_a_list(lambda base: NORMS[base]),
)
parts(
    "shared_by_all_blocks",
    "All your blocks share their layers: they were made once for the class, or as a default. Make "
    "them in `__init__`.",
    _shared,
)
parts(
    "norms_without_bias",
    "Your norms have no bias: RMSNorm has none, and LayerNorm has one unless you say `bias=False`.",
    every_norm(nn.RMSNorm),
)
parts(
    "one_norm_too_many",
    "You made one more norm than there are branches. The last one belongs behind the whole stack.",
    lambda module, width, *_: module.add_module("final_norm", nn.LayerNorm(width)),
)


def made_by(base: Any, make):
    return type("Wrong", (base,), {"__init__": make})


def _takes_parts_at_once(self, *sizes, **named):
    width, heads, *_ = *sizes, *named.values()
    if width % heads:
        raise ValueError
    self.part = nn.Identity()


for catalogue, over in ALL:
    catalogue.add(
        "sizes_called_otherwise",
        "The first arguments have other names than asked for. Others call your block by them.",
        made_by(over, lambda self, *sizes, base=over: base.__init__(self, *sizes)),
    )
    catalogue.add(
        "super_not_called",
        "`super().__init__()` comes first in `__init__`: before it nn.Module takes no parts.",
        made_by(over, _takes_parts_at_once),
    )


# The two linear layers


def linears(name, sentence, *makes, to=ALL):
    """Add another ffn: `make(width, hidden)`."""

    def change(make):
        return lambda module, width, heads, hidden: setattr(
            module, FFN[base_of(module)], make(width, hidden)
        )

    parts(name, sentence, *map(change, makes), to=to)


def between(*activation, bias=True):
    return lambda width, hidden: nn.Sequential(
        nn.Linear(width, hidden, bias), *activation, nn.Linear(hidden, width, bias)
    )


GELU = [one for one in ALL if one[1] is not PostNorm]
linears("relu_for_gelu", "Your activation is ReLU; GELU is asked for.", between(nn.ReLU()), to=GELU)
linears(
    "tanh_form_of_gelu",
    "Your GELU is the tanh form, as in GPT-2; the exact one is asked for.",
    between(nn.GELU(approximate="tanh")),
    to=GELU,
)
linears(
    "gelu_for_relu",
    "Your activation is GELU; this block has ReLU.",
    between(nn.GELU()),
    to=[(post_norm, PostNorm)],
)
linears(
    "other_activation",
    "Your activation is another one than asked for.",
    *map(between, (nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU())),
)
linears(
    "no_activation",
    "There is no activation between the two linear layers, so they collapse into one.",
    between(),
)
for activation, over in ((nn.GELU(), GELU), (nn.ReLU(), [(post_norm, PostNorm)])):
    linears(
        "activation_behind_the_second_layer",
        "The activation stands behind the second linear layer. It stands between the two.",
        lambda width, hidden, one=activation: nn.Sequential(between()(width, hidden), one),
        to=over,
    )
for sentence, over in (
    ("The hidden width is not the one asked for.", [one for one in ALL if one[1] is not Fused][1:]),
    ("The hidden width is 4d here.", [(fused, Fused)]),
):
    linears(
        "hidden_width_otherwise",
        sentence,
        lambda width, hidden: between(nn.GELU())(width, 2 * width),
        to=over,
    )
linears(
    "ffn_without_bias",
    "Your linear layers have no bias. Leave `bias` at its default.",
    between(nn.GELU(), bias=False),
)


# Dropout, where it is asked for

DROPPING = [one for one in ALL if one[1] not in (Fused, PostNorm)]


def drops(name, sentence, *steps, to=DROPPING):
    """Add a slip in where dropout stands: `step(x, norm, branch, p, training)`."""

    def flow(step):
        def change(self, x, pairs):
            p = dropout_of(self)
            for norm, branch in pairs:
                x = step(x, norm, branch, p, self.training)
            return x

        return {"flow": change}

    for catalogue, base in to:
        add(catalogue, base, name, sentence, *map(flow, steps))


def dropout_of(module):
    return _a_dropout(module).p


def _a_dropout(module):
    return getattr(module, "dropout", None) or module.feed_forward.dropout


drops(
    "dropout_on_the_stream",
    "Dropout stands on a sum or on the shortcut. There it wipes out parts of x, at every block "
    "anew; it belongs on the branch, before the sum.",
    lambda x, norm, branch, p, training: F.dropout(x + branch(norm(x)), p, training),
    lambda x, norm, branch, p, training: F.dropout(x, p, training) + branch(norm(x)),
)
drops(
    "drops_in_eval_too",
    "It drops in eval mode too: `F.dropout` is on unless you pass `training=self.training`, and a "
    "dropout made in `forward` is always in training mode.",
    lambda x, norm, branch, p, training: x + F.dropout(branch(norm(x)), p),
)


def dropout_given(name, sentence, *changes, to=DROPPING, one_alone=False):
    """Add a slip in what is made of the argument `dropout`: `change(p)`, None for none given.

    `one_alone`: also where it is made for a single dropout of the block's.
    """

    def single(base: Any, change):
        class Module(base):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                _a_dropout(self).p = change(_a_dropout(self).p)

        return Module

    def made(base: Any, change):
        class Module(base):
            def __init__(self, *args, **kwargs):
                given = inspect.signature(base.__init__).bind(self, *args, **kwargs).arguments
                given["dropout"] = change(given.get("dropout"))
                super().__init__(**{name: given[name] for name in given if name != "self"})

        return Module

    for catalogue, base in to:
        makes = (made, single) if one_alone else (made,)
        ways = (make(base, change) for make in makes for change in changes)
        add(catalogue, base, name, sentence, *ways)


def or_default(p, base_default):
    return base_default if p is None else p


dropout_given(
    "dropout_ignored",
    "The `dropout` that is given is never used: nothing is dropped in training.",
    lambda p: 0.0,
)
dropout_given(
    "fixed_dropout",
    "Your dropout has a probability of its own. Use the one that is given; `nn.Dropout()` alone "
    "has 0.5.",
    lambda p: 0.5,
    lambda p: 0.1,
)
for catalogue, over in DROPPING:
    dropout_given(
        "probability_changed",
        "You changed the probability that is given. Pass it on as it is.",
        lambda p, default=0.1 if over is Transformer else 0.0: default if p is None else p / 2,
        to=[(catalogue, over)],
    )
dropout_given(
    "keep_probability",
    "You took `dropout` for the probability to keep a number. It is the probability to drop it.",
    lambda p: 1 - (p or 0.0),
    one_alone=True,
)
dropout_given(
    "drops_by_default",
    "Your dropout is not 0.0 where none is given. The default here is 0.0.",
    lambda p: or_default(p, 0.1),
    to=[one for one in DROPPING if one[1] is not Transformer],
)
dropout_given(
    "drops_nothing_by_default",
    "Your dropout is 0.0 where none is given. The default here is 0.1.",
    lambda p: or_default(p, 0.0),
    to=[(transformer, Transformer)],
)


def _drops_unasked(base, p):
    return {"feed": lambda self, h: F.dropout(base.feed(self, h), p, self.training)}


def _drops_in_torch_s(self, x):
    query, key, value = self.query_key_value(x)
    mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1, is_causal=True)
    return self.project_out(self.merge(mixed))


for catalogue, base, more in (
    (post_norm, PostNorm, ()),
    (fused, Fused, ({"attend": _drops_in_torch_s},)),
):
    add(
        catalogue,
        base,
        "drops_unasked",
        "It drops in training, and no dropout was given: this block has none.",
        _drops_unasked(base, 0.1),
        *more,
    )


# Attention over nn.MultiheadAttention


def attends(
    name, sentence, *ways, to=((transformer, Transformer), (post_norm, PostNorm)), whole=None
):
    """Add slips in the call of nn.MultiheadAttention: `way(module, attention, h, pairs, padding)`.

    It returns what attention wrote; `pairs` is None where the block takes none. `whole(base)` is
    another way, a class.
    """
    for catalogue, base in to:
        steps: list[dict] = []
        if base is Transformer:
            steps = [
                {
                    "attend": lambda self, h, blocked, padding, way=way: way(
                        self, self.self_attn, h, blocked, padding
                    )
                }
                for way in ways
            ]
        else:
            steps = [
                {"attend": lambda self, h, padding, way=way: way(self, self.attn, h, None, padding)}
                for way in ways
            ]
        add(catalogue, base, name, sentence, *steps, *([whole(base)] if whole else []))


def read(attention, h, pairs=None, padding=None, **options):
    options = {"need_weights": False} | options
    return attention(h, h, h, attn_mask=pairs, key_padding_mask=padding, **options)[0]


MASKED = ((transformer, Transformer),)
attends(
    "pair_not_taken_apart",
    "nn.MultiheadAttention returns two things, the output and the weights, and you used the pair: "
    "`attended, _ = …`.",
    lambda m, attention, h, pairs, padding: attention(h, h, h),
    lambda m, attention, h, pairs, padding: getattr(m, "dropout", tuple)(attention(h, h, h)),
)
attends(
    "padding_ignored",
    "`key_padding_mask` is not passed on: padding is read like any token.",
    lambda m, attention, h, pairs, padding: read(attention, h, pairs),
)
attends(
    "padding_inverted",
    "You turned `key_padding_mask` over. It is True at padding, and so is torch's: pass it as it "
    "is.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, pairs, None if padding is None else ~padding
    ),
)
attends(
    "none_turned_over",
    "You turned a mask over that may be None, and needs no turning: it is True where blocked, as "
    "torch's is. Pass it as it is.",
    lambda m, attention, h, pairs, padding: read(attention, h, pairs, ~padding),
)
attends(
    "masks_exchanged",
    "`attn_mask` and `key_padding_mask` of nn.MultiheadAttention are two things: the first is for "
    "pairs (T, T), the second for padding (B, T).",
    lambda m, attention, h, pairs, padding: read(attention, h, padding, pairs),
)


def _x_set_to_zero(base):
    def forward(self, x, *masks, key_padding_mask=None, **named):
        place = list(inspect.signature(base.forward).parameters).index("key_padding_mask") - 2
        if len(masks) > place:
            masks, key_padding_mask = masks[:place], masks[place]
        if key_padding_mask is not None:
            x = x.masked_fill(key_padding_mask[:, :, None], 0.0)
        return base.forward(self, x, *masks, **named)

    return type("Wrong", (base,), {"forward": forward})


attends(
    "padding_hidden_as_queries",
    "You set padded inputs to zero in place of hiding them. A row of zeros still has a key, and is "
    "read: pass `key_padding_mask` to attention.",
    lambda m, attention, h, pairs, padding: read(
        attention, h if padding is None else h.masked_fill(padding[..., None], 0.0), pairs
    ),
    whole=_x_set_to_zero,
)
attends(
    "mask_ignored",
    "`blocked_attn_mask` is not passed on: nothing is hidden.",
    lambda m, attention, h, pairs, padding: read(attention, h, None, padding),
    to=MASKED,
)
attends(
    "mask_inverted",
    "You turned `blocked_attn_mask` over. It is True where blocked, and so is torch's `attn_mask`.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, None if pairs is None else ~pairs, padding
    ),
    to=MASKED,
)
attends(
    "mask_transposed",
    "You transposed `blocked_attn_mask`. Its rows are queries, as torch's are.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, None if pairs is None else pairs.T, padding
    ),
    to=MASKED,
)
attends(
    "mask_added_as_ones",
    "You made numbers of the mask, and torch adds numbers to the scores: a blocked pair gets one "
    "more. Pass the booleans.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, None if pairs is None else pairs.to(h.dtype), padding
    ),
    to=MASKED,
)
attends(
    "mask_by_position",
    "The fourth argument of nn.MultiheadAttention is `key_padding_mask`, not the mask of pairs. "
    "Pass both by name.",
    lambda m, attention, h, pairs, padding: attention(h, h, h, pairs)[0],
    lambda m, attention, h, pairs, padding: attention(h, h, h, pairs, padding)[0],
    to=MASKED,
)
attends(
    "one_mask_at_a_time",
    "With one mask you forget the other. Both hide keys, together.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, pairs, padding if pairs is None else None
    ),
    lambda m, attention, h, pairs, padding: read(
        attention, h, pairs if padding is None else None, padding
    ),
    to=MASKED,
)
attends(
    "always_causal",
    "It is causal without being told so. Only what the masks say is hidden.",
    lambda m, attention, h, pairs, padding: read(
        attention, h, _later(h) if pairs is None else pairs, padding
    ),
    lambda m, attention, h, pairs, padding: read(attention, h, _later(h), padding),
)


def _later(h):
    return torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).triu(1)


def _batch_second(name):
    def change(module, width, heads, hidden):
        setattr(module, name, nn.MultiheadAttention(width, heads))

    return change


for catalogue, over, attention in (
    (transformer, Transformer, "self_attn"),
    (post_norm, PostNorm, "attn"),
):
    parts(
        "batch_first_forgotten",
        "Sentences read one another: nn.MultiheadAttention takes (T, B, C) unless you say "
        "`batch_first=True`.",
        _batch_second(attention),
        to=[(catalogue, over)],
    )
    parts(
        "heads_ignored",
        "`num_heads` is not used.",
        lambda m, width, heads, hidden, name=attention: setattr(
            m, name, nn.MultiheadAttention(width, 1, batch_first=True)
        ),
        to=[(catalogue, over)],
    )
    parts(
        "attention_without_bias",
        "Your attention has no biases. Leave `bias` at its default.",
        lambda m, width, heads, hidden, name=attention: setattr(
            m, name, nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        ),
        to=[(catalogue, over)],
    )
    parts(
        "course_s_attention",
        "Your attention is the course's own. This block is built over nn.MultiheadAttention.",
        lambda m, width, heads, hidden, name=attention: setattr(
            m, name, ManualMultiHeadAttention(width, heads)
        ),
        to=[(catalogue, over)],
    )


class OneOfThreeUnnormalized(right.TransformerBlock):
    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        masks = {"attn_mask": blocked_attn_mask, "key_padding_mask": key_padding_mask}
        h = self.ln1(x)
        x = x + self.dropout(self.self_attn(*self.three(h, x), **masks)[0])
        return x + self.ffn(self.ln2(x))

    def three(self, h, x):
        return h, x, x


transformer.add(
    "one_of_three_unnormalized",
    "Queries, keys and values do not all come from the normalized x. In pre-norm they do.",
    *(
        type("Wrong", (OneOfThreeUnnormalized,), {"three": three})
        for three in (
            lambda self, h, x: (h, x, x),
            lambda self, h, x: (h, h, x),
            lambda self, h, x: (h, x, h),
            lambda self, h, x: (x, h, h),
        )
    ),
)
linears(
    "d_ff_ignored",
    "`d_ff` is not used: the hidden width is a fixed multiple of the width.",
    lambda width, hidden: between(nn.GELU())(width, 4 * width),
    to=[(transformer, Transformer)],
)


def widths(name, sentence, default):
    class Module(right.TransformerBlock):
        def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
            d_ff = default(d_model) if d_ff is None else d_ff
            super().__init__(d_model, num_heads, d_ff, dropout)

    transformer.add(name, sentence, Module)


widths(
    "default_d_ff_otherwise",
    "Where `d_ff` is not given it is 4 · d_model, and yours is another (2048 is the default of "
    "torch's own layer).",
    lambda width: 2 * width,
)


def none_not_handled(default):
    def made(d_model, num_heads, d_ff=default, dropout=0.1):
        block = right.TransformerBlock(d_model, num_heads, d_ff or None, dropout)
        nn.Linear(d_model, 1 if d_ff == 0 else d_ff)
        return block

    return made


transformer.add(
    "none_for_d_ff_not_taken",
    "`d_ff` may be None, as it is where it is not given. That means 4 · d_model.",
    none_not_handled(0),
    none_not_handled(None),
)


def refusing(unless, error=ValueError, last=nn.MultiheadAttention):
    class Module(right.TransformerBlock):
        def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
            if not unless(d_model, num_heads):
                raise error(f"a width of {d_model} and {num_heads} heads")
            last(d_model, num_heads)
            fits = d_model % num_heads == 0
            super().__init__(d_model, num_heads if fits else 1, d_ff, dropout)

    return Module


transformer.add(
    "refusal_left_to_torch",
    "You left it to nn.MultiheadAttention to refuse a width that the heads don't divide, and it "
    "raises an AssertionError. Test for it first, and `raise ValueError(...)`.",
    refusing(lambda width, heads: True),
)
transformer.add(
    "nothing_refused",
    "A width that the heads don't divide has to be a ValueError.",
    refusing(lambda width, heads: True, last=lambda *sizes: None),
)
transformer.add(
    "raises_AssertionError",
    "You raised an AssertionError (that is what `assert` does). The callers look for a ValueError: "
    "`raise ValueError(...)`.",
    refusing(lambda width, heads: width % heads == 0, AssertionError),
)
transformer.add(
    "remainder_the_wrong_way_round",
    "You refuse widths that are fine. The width has to be a multiple of the heads: "
    "`d_model % num_heads`.",
    refusing(lambda width, heads: heads % width == 0),
    refusing(lambda width, heads: width % heads),
)


# Attention from one projection


def fuses(name, sentence, *steps):
    add(fused, Fused, name, sentence, *steps)


fuses(
    "thirds_in_another_order",
    "The thirds of `qkv` are queries, keys, values, in this order.",
    *(
        {"thirds": lambda self, x, order=order: [Fused.thirds(self, x)[place] for place in order]}
        for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1))
    ),
)


def _heads_first(self, x):
    """Each head's queries, keys and values side by side, as some models store them."""
    parts = self.qkv(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
    return parts.chunk(3, dim=-1)


def _dealt_out(self, x):
    parts = self.qkv(x).unflatten(-1, (-1, 3)).unbind(-1)
    return tuple(self.split(part) for part in parts)


fuses(
    "heads_cut_before_the_thirds",
    "You cut `qkv` into heads first, and each head into three. First the thirds, then the heads "
    "(weights of models that do it your way don't fit here).",
    {"query_key_value": _heads_first},
)
fuses(
    "every_third_feature",
    "You took every third feature of `qkv`. A third is a slice: the first d features are the "
    "queries.",
    {"query_key_value": _dealt_out},
)
fuses(
    "split_without_transpose",
    "You split with `view(B, H, T, D)`. That cuts rows apart and mixes tokens: split the width, "
    "and then `transpose(1, 2)`.",
    {"split": lambda self, third: third.reshape(len(third), self.heads, third.shape[1], -1)},
    {
        "split": lambda self, third: third.reshape(len(third), self.heads, third.shape[1], -1),
        "merge": lambda self, mixed: mixed.reshape(len(mixed), mixed.shape[2], -1),
    },
)
fuses(
    "heads_dealt_out",
    "You dealt the features out to the heads one by one. A head has a slice of each third: split "
    "into (H, D), in this order.",
    {"split": lambda self, third: third.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2)},
    {
        "split": lambda self, third: third.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2),
        "merge": lambda self, mixed: mixed.permute(0, 2, 3, 1).flatten(2),
    },
)


def _causal_sdpa(thirds):
    query, key, value = thirds
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


fuses(
    "attention_between_heads",
    "After the split the heads stand on axis 2, so the heads of a token read one another. Tokens "
    "have to stand there, (B, H, T, D): `transpose(1, 2)` first.",
    {
        "attend": lambda self, x: self.project_out(
            _causal_sdpa(third.unflatten(-1, (self.heads, -1)) for third in self.thirds(x)).flatten(
                2
            )
        )
    },
)
fuses(
    "attend_returns_nothing",
    "`attend` returns nothing: end it with `return`.",
    {"attend": lambda self, x: None},
)
fuses(
    "merged_without_transpose",
    "You joined the heads with `reshape(B, T, d)` before tokens were back on axis 1: "
    "`transpose(1, 2)` first.",
    {"merge": lambda self, mixed: mixed.reshape(len(mixed), mixed.shape[2], -1)},
)
fuses(
    "a_single_head",
    "There is one head, whatever `heads` says.",
    {"split": lambda self, third: third[:, None], "merge": lambda self, mixed: mixed[:, 0]},
)
fuses(
    "not_scaled",
    "The scores are not scaled. Divide by the root of D, the width of one head.",
    {"scale": lambda self, query: 1.0},
)
fuses(
    "scaled_by_another_number",
    "The scores are divided by the root of D, the width of one head: not by D, and not by the root "
    "of d.",
    {"scale": lambda self, query: (query.shape[-1] * self.heads) ** -0.5},
    {"scale": lambda self, query: 1 / query.shape[-1]},
)


def mask(make):
    return {"blocked": lambda self, length, device: make(length, device)}


def _ones(length, device):
    return torch.ones(length, length, dtype=torch.bool, device=device)


fuses(
    "not_causal",
    "It is not causal: tokens read the ones after them (`is_causal=True`, or a mask).",
    mask(lambda length, device: torch.zeros(1, dtype=torch.bool, device=device)),
)
fuses(
    "mask_inverted",
    "The mask is inverted: tokens read the future alone. `F.scaled_dot_product_attention` takes "
    "True for what may be read.",
    {
        **mask(lambda length, device: _ones(length, device).tril()),
        "weigh": lambda self, scores, blocked: (
            scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
            .softmax(-1)
            .masked_fill(blocked, 0.0)
        ),
    },
    mask(lambda length, device: _ones(length, device).tril()),
)
fuses(
    "next_token_visible",
    "A token reads the one after it. Block from one above the diagonal on.",
    mask(lambda length, device: _ones(length, device).triu(2)),
)
fuses(
    "itself_blocked",
    "A token does not read itself. Block from one above the diagonal on.",
    mask(lambda length, device: _ones(length, device).triu()),
    {
        **mask(lambda length, device: _ones(length, device).triu()),
        "weigh": lambda self, scores, blocked: scores.masked_fill(
            blocked, torch.finfo(scores.dtype).min
        ).softmax(-1),
    },
)
fuses(
    "masked_after_the_softmax",
    "You set weights to 0 after the softmax, so later tokens still count in each row's sum.",
    {"weigh": lambda self, scores, blocked: scores.softmax(-1).masked_fill(blocked, 0.0)},
)
fuses(
    "filled_with_a_small_number",
    "You filled with a number that is not low enough (such as 0 or -100), so later tokens keep "
    "weight: `-math.inf`.",
    *(
        {
            "weigh": lambda self, scores, blocked, low=low: scores.masked_fill(
                blocked, low
            ).softmax(-1)
        }
        for low in (0.0, -10.0, -1000.0)
    ),
)
fuses(
    "fill_too_low_for_half_precision",
    "float16 has no number as low as the one that you fill with: `-math.inf`, which every float "
    "has.",
    {
        "weigh": lambda self, scores, blocked: scores.masked_fill(blocked, -1e9).softmax(-1),
    },
)
for axis, whom in ((-2, "queries"), (1, "heads")):
    fuses(
        f"softmax_over_the_{whom}",
        f"Your softmax runs over the {whom}. Each query shares 1 among its keys: `dim=-1`.",
        *(
            {
                "weigh": lambda self, scores, blocked, axis=axis, low=low: scores.masked_fill(
                    blocked, torch.finfo(scores.dtype).min if low is None else low
                ).softmax(axis)
            }
            for low in (None, -math.inf)
        ),
    )
fuses(
    "proj_unused",
    "You made `proj` and never call it. It mixes what the heads found.",
    {"project_out": lambda self, x: x},
)


class KeepsTheFirstMask(Fused):
    mask = None

    def blocked(self, length, device):
        if self.mask is None:
            self.mask = super().blocked(length, device)
        return self.mask


fuses(
    "mask_kept_from_another_call",
    "The causal mask of one call is used in the next, whose texts have another length. Make it at "
    "each call, or cut it to T rows and T columns.",
    KeepsTheFirstMask,
)


def _fused_parts(name, sentence, *makes):
    parts(name, sentence, *makes, to=[(fused, Fused)])


_fused_parts(
    "qkv_without_bias",
    "`qkv` or `proj` has no bias. Leave `bias` at its default.",
    lambda m, width, *_: setattr(m, "qkv", nn.Linear(width, 3 * width, bias=False)),
    lambda m, width, *_: setattr(m, "proj", nn.Linear(width, width, bias=False)),
    lambda m, width, *_: m._modules.update(
        qkv=nn.Linear(width, 3 * width, bias=False), proj=nn.Linear(width, width, bias=False)
    ),
)
_fused_parts(
    "proj_missing",
    "There is no `proj`: the heads stay side by side and are never mixed.",
    lambda m, width, *_: setattr(m, "proj", nn.Identity()),
)


def _three_projections(module, width, *_):
    hide(module, "qkv", module.qkv)
    module.q_k_v = nn.ModuleList(nn.Linear(width, width) for _ in range(3))


_fused_parts(
    "three_projections",
    "You made three projections. Here one linear layer, `qkv`, makes 3d features at once.",
    _three_projections,
)


# The blocks of the course's own parts

COURSE: tuple[tuple[Mistakes, Any], ...] = (
    (encoder, Encoder),
    (decoder, Decoder),
    (decoder_only, DecoderOnly),
)


def course(name, sentence, *ways, to=COURSE, more=()):
    """Add slips in self-attention: `way(attention, h, options)` calls it. `more` a decoder's."""
    for catalogue, base in to:
        steps = (reads(base, way) for way in ways)
        add(catalogue, base, name, sentence, *steps, *(more if base is Decoder else ()))


def reads(base, way):
    def attend(self, h, *given):
        options = {"key_valid": given[0]}
        if base is not Encoder:
            options["causal"] = True
        if base is DecoderOnly:
            options |= {"cache": given[1], "use_cache": True}
        return way(self.self_attention, h, options)

    return {"attend": attend}


def _turned_over(attention, h, options):
    valid = options["key_valid"]
    return attention(h, **options | {"key_valid": None if valid is None else ~valid})


def _as_queries(attention, h, options):
    return attention(h, **options | {"key_valid": None, "query_valid": options["key_valid"]})


def _memory_s_turned_over(self, h, memory, valid, memory_valid):
    return self.cross_attention(h, memory, key_valid=~memory_valid)


course(
    "padding_not_hidden",
    "Padding is read like any token: pass it to attention as `key_valid`, which hides keys "
    "(`query_valid` makes rows zero, and hides nobody).",
    lambda attention, h, options: attention(h, **options | {"key_valid": None}),
    _as_queries,
)
course(
    "padding_inverted",
    "You hide the real tokens and show the padding. `valid_tokens` is True at real tokens, and so "
    "is `key_valid`.",
    _turned_over,
    more=(
        {"cross": _memory_s_turned_over},
        {"cross": _memory_s_turned_over} | reads(Decoder, _turned_over),
    ),
)
course(
    "causal_encoder",
    "An encoder reads in both directions: no `causal` here.",
    lambda attention, h, options: attention(h, causal=True, **options),
    to=COURSE[:1],
)
course(
    "not_causal",
    "Tokens read the ones after them: pass `causal=True`.",
    lambda attention, h, options: attention(h, **options | {"causal": False}),
    to=COURSE[1:],
)


def _with_one_head(*attentions):
    for attention in attentions:
        attention.num_heads = 1


for catalogue, base in COURSE:
    parts(
        "no_rope",
        "Self-attention does not know where a token stands: make it with `use_rope=True`, and give "
        "it no memory, not even x itself (a memory is never rotated).",
        lambda m, width, heads, hidden: setattr(
            m, "self_attention", ManualMultiHeadAttention(width, heads)
        ),
        to=[(catalogue, base)],
    )
    parts(
        "heads_ignored",
        "`num_heads` is not used.",
        *(
            lambda m, *_, some=some: _with_one_head(*(getattr(m, one) for one in some))
            for some in (ATTENTION[base][:1], ATTENTION[base])[: len(ATTENTION[base])]
        ),
        to=[(catalogue, base)],
    )
    left: dict[str, Any] = {"finish": lambda self, x, valid: x}
    silenced = reads(
        base, lambda attn, h, options: attn(h, query_valid=options["key_valid"], **options)
    )
    add(
        catalogue,
        base,
        "padded_rows_left_as_they_are",
        "Rows of padding are not zero at the end. Make them so as the last step, with "
        "`masked_fill(~valid[:, :, None], 0.0)`.",
        left,
        left | silenced,
    )
    add(
        catalogue,
        base,
        "real_rows_made_zero",
        "You made the rows of real tokens zero. `valid` is True at real tokens: fill where it is "
        "not.",
        {"finish": lambda self, x, valid: x.masked_fill(valid[:, :, None], 0.0)},
    )


class EncoderSilencedEarly(right.EncoderBlock):
    def forward(self, x, valid_tokens):
        x = x + self.self_attention(self.attention_norm(x), key_valid=valid_tokens)
        x = x.masked_fill(~valid_tokens[:, :, None], 0.0)
        return x + self.feed_forward(self.ffn_norm(x))


class DecoderSilencedEarly(Decoder):
    def cross(self, h, memory, valid, memory_valid):
        self.real = valid
        return super().cross(h, memory, valid, memory_valid)

    def flow(self, x, pairs):
        x = pre(x, pairs[:2])
        x = x.masked_fill(~self.real[:, :, None], 0.0)
        return pre(x, pairs[2:])

    def finish(self, x, valid):
        return x


for catalogue, early in ((encoder, EncoderSilencedEarly), (decoder, DecoderSilencedEarly)):
    catalogue.add(
        "silenced_before_the_ffn",
        "You made rows of padding zero before the ffn, which then writes its bias there. Make them "
        "zero at the end.",
        early,
    )


# The memory


def crosses(name, sentence, *ways):
    """Add slips in cross-attention: `way(module, h, memory, valid, memory_valid)`."""
    add(decoder, Decoder, name, sentence, *({"cross": way} for way in ways))


crosses(
    "memory_not_read",
    "Cross-attention reads x and not the memory. The memory is its second argument.",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(h, key_valid=valid),
    lambda self, h, memory, valid, memory_valid: self.cross_attention(h),
    lambda self, h, memory, valid, memory_valid: self.cross_attention(h, key_valid=memory_valid),
    lambda self, h, memory, valid, memory_valid: self.cross_attention(h, h, key_valid=valid),
)
crosses(
    "roles_exchanged",
    "You exchanged the two: x asks and the memory is asked.",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(memory, h, key_valid=valid),
    lambda self, h, memory, valid, memory_valid: self.cross_attention(memory, h),
    lambda self, h, memory, valid, memory_valid: self.cross_attention(
        memory, h, key_valid=memory_valid
    ),
)
crosses(
    "memory_detached",
    "You cut the memory out of the gradient (`.detach()`, `.data` or `no_grad`), so the encoder "
    "never learns.",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(
        h, memory.detach(), key_valid=memory_valid
    ),
)
crosses(
    "memory_normalized",
    "You normalized the memory. `cross_norm` is for x; the memory comes as it is (the encoder has "
    "a norm of its own at the end).",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(
        h, self.cross_norm(memory), key_valid=memory_valid
    ),
)
crosses(
    "memory_s_padding_not_hidden",
    "Padding in the memory is read like any token: pass `key_valid=memory_valid_tokens`.",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(h, memory),
)
crosses(
    "causal_cross_attention",
    "Cross-attention is causal. The whole memory is known before the first token is written: no "
    "`causal` there.",
    lambda self, h, memory, valid, memory_valid: self.cross_attention(
        h, memory, key_valid=memory_valid, causal=True
    ),
)
crosses(
    "self_attention_used_twice",
    "You called `self_attention` for the memory too. `cross_attention` has weights of its own.",
    lambda self, h, memory, valid, memory_valid: self.self_attention(
        h, memory, key_valid=memory_valid
    ),
)


def _decodes(three):
    """A decoder's `forward` with other paddings for the two attentions and the rows at the end."""

    def forward(self, x, memory, *, target_valid_tokens, memory_valid_tokens):
        first, second, rows = three(target_valid_tokens, memory_valid_tokens)
        x = x + self.attend(self.self_norm(x), first)
        x = x + self.cross(self.cross_norm(x), memory, first, second)
        return self.finish(x + self.feed(self.ffn_norm(x)), rows)

    return forward


class OtherNames(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        whole = right.DecoderBlock(*args, **kwargs)
        self._modules = whole._modules
        hide(self, "whole", whole)

    def forward(self, x, memory, target_valid, memory_valid):
        whole: Any = self.whole
        return whole(x, memory, target_valid_tokens=target_valid, memory_valid_tokens=memory_valid)


decoder.add(
    "padding_of_the_other",
    "A padding went to the wrong place. The target's is for self-attention and for the rows that "
    "are zero at the end; cross-attention reads the memory and gets `memory_valid_tokens`.",
    *(
        type("Wrong", (Decoder,), {"forward": forward})
        for forward in (
            _decodes(lambda target, memory: (target, target, target)),
            _decodes(lambda target, memory: (memory, memory, target)),
            _decodes(lambda target, memory: (memory, target, target)),
            _decodes(lambda target, memory: (target, memory, memory)),
        )
    ),
)
decoder.add(
    "arguments_called_otherwise",
    "`forward` takes `target_valid_tokens` and `memory_valid_tokens`, by name.",
    OtherNames,
)
add(
    decoder,
    Decoder,
    "memory_before_the_target",
    "Cross-attention comes before self-attention. Tokens read those before them first, then the "
    "memory.",
    {"order": lambda self, pairs: [pairs[1], pairs[0], pairs[2]]},
)
add(
    decoder,
    Decoder,
    "one_norm_for_both_attentions",
    "`cross_norm` is never used: cross-attention reads through `self_norm`.",
    {"order": lambda self, pairs: [pairs[0], (pairs[0][0], pairs[1][1]), pairs[2]]},
)
parts(
    "cross_attention_missing",
    "There is no `cross_attention` of its own: a decoder has two attentions, each with its "
    "weights.",
    lambda m, *_: setattr(m, "cross_attention", m.self_attention),
    lambda m, *_: hide(m, "cross_attention", m.cross_attention),
    to=[(decoder, Decoder)],
)


# The cache


def caches(name, sentence, *steps):
    add(decoder_only, DecoderOnly, name, sentence, *steps)


def attend_otherwise(way):
    return {"attend": lambda self, h, valid, cache: way(self.self_attention, h, valid, cache)}


caches(
    "cache_not_passed_on",
    "The cache that is given is not used: new tokens read one another alone. Pass it to attention.",
    attend_otherwise(
        lambda attention, h, valid, cache: attention(
            h,
            key_valid=None if valid is None else valid[:, -h.shape[1] :],
            causal=True,
            use_cache=True,
        )
    ),
    attend_otherwise(
        lambda attention, h, valid, cache: attention(
            h, key_valid=valid, causal=True, use_cache=True
        )
    ),
)
caches(
    "old_cache_returned",
    "The cache that came back is the one that was given, None on the first call. Return the one "
    "that attention made: it holds the new tokens too.",
    {"give": lambda self, x, cache, given, use_cache: (x, given) if use_cache else x},
)
caches(
    "a_pair_at_every_call",
    "You return a cache at every call. Without `use_cache` x alone is asked for.",
    {"give": lambda self, x, cache, given, use_cache: (x, cache)},
)
caches(
    "no_cache_returned",
    "You return x alone. With `use_cache` the new cache comes back too, (x, cache), on the first "
    "call as well.",
    {"give": lambda self, x, cache, given, use_cache: x},
    {
        "give": lambda self, x, cache, given, use_cache: (
            (x, cache) if use_cache and given is not None else x
        )
    },
)
caches(
    "use_cache_not_passed_on",
    "Without `use_cache=True` attention returns one tensor, and you take a pair apart. Ask it for "
    "the cache at every call.",
    attend_otherwise(
        lambda attention, h, valid, cache: attention(h, key_valid=valid, causal=True, cache=cache)
    ),
)
caches(
    "not_causal_behind_a_cache",
    "With a cache you are not causal: new tokens read the ones after them in their chunk.",
    attend_otherwise(
        lambda attention, h, valid, cache: attention(
            h, key_valid=valid, causal=cache is None, cache=cache, use_cache=True
        )
    ),
)
caches(
    "padding_forgotten_behind_a_cache",
    "With a cache you pass no padding on. `key_valid` covers all tokens so far.",
    attend_otherwise(
        lambda attention, h, valid, cache: attention(
            h,
            key_valid=valid if cache is None else None,
            causal=True,
            cache=cache,
            use_cache=True,
        )
    ),
)
caches(
    "padding_cut_to_the_new_tokens",
    "You cut `valid_tokens` to the new tokens before attention saw it. There it covers all tokens "
    "so far; only the rows that are made zero are the new ones.",
    attend_otherwise(
        lambda attention, h, valid, cache: attention(
            h,
            key_valid=None if valid is None else valid[:, -h.shape[1] :],
            causal=True,
            cache=cache,
            use_cache=True,
        )
    ),
)


def _half_of_the_padding(known):
    """Attention behind a cache is told the padding of one half, `known(old, new)`, of the two."""

    def way(attention, h, valid, cache):
        if cache is not None and valid is not None:
            valid = torch.cat(known(*valid.tensor_split([cache.length], dim=1)), dim=1)
        return attention(h, key_valid=valid, causal=True, cache=cache, use_cache=True)

    return attend_otherwise(way)


caches(
    "half_of_the_padding_behind_a_cache",
    "With a cache you take the old tokens, or the new ones, for real. Both are keys, and either "
    "may be padding: `key_valid` covers all tokens so far.",
    _half_of_the_padding(lambda old, new: (torch.ones_like(old), new)),
    _half_of_the_padding(lambda old, new: (old, torch.ones_like(new))),
)
caches(
    "padding_not_cut_to_the_new_tokens",
    "You made rows zero by all of `valid_tokens`. With a cache it covers old tokens too, and x has "
    "the new ones alone: take its last columns.",
    {"new": lambda self, valid, length: valid},
)
caches(
    "first_columns_for_the_new_tokens",
    "You took the first columns of `valid_tokens` for the new tokens. They are the last ones.",
    {"new": lambda self, valid, length: valid[:, :length]},
)
caches(
    "last_column_for_the_new_tokens",
    "You took the last column of `valid_tokens` for all new tokens. There may be several: take as "
    "many columns as x has tokens.",
    {"new": lambda self, valid, length: valid[:, -1:]},
)


def _none_breaks(self, x, valid, cache):
    return ~(~valid)


caches(
    "none_not_taken",
    "`valid_tokens` may be None, for all tokens real. Ask for it before you index or invert it.",
    {"all_real": _none_breaks},
    {"all_real": lambda self, x, valid, cache: valid[:, :]},
)
caches(
    "none_covers_the_new_tokens_alone",
    "For None you made a mask of the new tokens. With a cache it has to cover all so far; or leave "
    "None as it is, attention takes it.",
    {
        "all_real": lambda self, x, valid, cache: (
            torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if valid is None else valid
        )
    },
)


class ChangesTheCache(DecoderOnly):
    def attend(self, h, valid, cache):
        attended, new = super().attend(h, valid, cache)
        if cache is not None:
            cache.keys, cache.values = new.keys, new.values
        return attended, new


caches(
    "cache_changed_in_place",
    "You changed the cache that was given. Two texts may go on from one beginning: hand on the new "
    "cache that attention returns.",
    ChangesTheCache,
)


class OneCacheOnly(DecoderOnly):
    """Keeps the cache inside, so that every text goes on from the last one."""

    kept = None

    def attend(self, h, valid, cache):
        cache = self.kept if cache is None else cache
        attended, self.kept = super().attend(h, valid, cache)
        return attended, self.kept


caches(
    "cache_kept_inside",
    "The block keeps the cache inside, so the next text goes on from the last one. Keep nothing: "
    "the caller has it.",
    OneCacheOnly,
)


# block_parameters


def counts(name, sentence, *formulas):
    block_parameters.add(name, sentence, *formulas)


def total(attention=None, ffn=None, norms=None):
    """The count with one term replaced: each a function of (C, F)."""

    def count(d_model, d_ff):
        C, hidden = d_model, d_ff
        return (
            (attention(C) if attention else 4 * (C * C + C))
            + (ffn(C, hidden) if ffn else 2 * C * hidden + hidden + C)
            + (norms(C) if norms else 4 * C)
        )

    return count


counts(
    "four_rows_missing",
    "4 · C numbers are missing: the four biases of attention, or the two norms, which have a "
    "weight and a bias each.",
    total(attention=lambda C: 4 * C * C),
)
counts(
    "three_projections",
    "You counted three projections. There are four: queries, keys, values, and the output.",
    total(attention=lambda C: 3 * (C * C + C)),
    total(attention=lambda C: 3 * C * C),
)
counts(
    "no_bias_in_the_ffn",
    "The biases of the ffn are missing: F numbers behind the first layer, C behind the second.",
    total(ffn=lambda C, F: 2 * C * F),
)
counts(
    "ffn_s_biases_alike",
    "The ffn's two biases have different lengths: F behind the first layer, C behind the second.",
    total(ffn=lambda C, F: 2 * C * F + 2 * C),
    total(ffn=lambda C, F: 2 * C * F + 2 * F),
    total(ffn=lambda C, F: 2 * C * F + C),
    total(ffn=lambda C, F: 2 * C * F + F),
)
counts(
    "one_matrix_in_the_ffn",
    "You counted one matrix of the ffn. There are two, C · F numbers each.",
    total(ffn=lambda C, F: C * F + F + C),
    total(ffn=lambda C, F: C * F),
)
counts(
    "one_norm",
    "You counted one norm, or the weights alone. Each of the two norms has a weight and a bias.",
    total(norms=lambda C: 2 * C),
)
counts(
    "three_norms",
    "You counted three norms. A block has two; the last one belongs behind the whole stack.",
    total(norms=lambda C: 6 * C),
)
counts(
    "biases_missing",
    "You counted the matrices alone. Every layer has a bias, and the norms have two rows each.",
    lambda d_model, d_ff: 4 * d_model * d_model + 2 * d_model * d_ff,
    lambda d_model, d_ff: 4 * d_model * d_model + 2 * d_model * d_ff + 4 * d_model,
    lambda d_model, d_ff: 4 * d_model * d_model + 2 * d_model * d_ff + 2 * d_model,
)
counts(
    "d_ff_ignored",
    "You did not use `d_ff`. It is 4 · d_model by default only.",
    lambda d_model, d_ff: right.block_parameters(d_model, 4 * d_model),
    lambda d_model, d_ff: 12 * d_model * d_model + 13 * d_model,
    lambda d_model, d_ff: 12 * d_model * d_model,
)
counts(
    "not_an_int",
    "An int is asked for, not a float or a tensor. `/` makes a float, `//` an int.",
    lambda d_model, d_ff: float(right.block_parameters(d_model, d_ff)),
    lambda d_model, d_ff: torch.tensor(right.block_parameters(d_model, d_ff)),
)
counts("forgot_to_return", "You returned nothing: end with `return`.", lambda d_model, d_ff: None)


# to_reference


def layer_of(block, heads=None, **flags):
    """A fresh layer of the block's sizes, with its dtype and device."""
    first = next(one for one in block.ffn.modules() if isinstance(one, nn.Linear))
    attention = block.self_attn
    options: dict[str, Any] = {
        "dim_feedforward": first.out_features,
        "activation": "gelu",
        "norm_first": True,
        "batch_first": True,
    } | flags
    heads = attention.num_heads if heads is None else heads
    return nn.TransformerEncoderLayer(attention.embed_dim, heads, **options).to(first.weight)


def pairs_of(block, layer):
    first, second = (one for one in block.ffn.modules() if isinstance(one, nn.Linear))
    return {
        "ln1": (block.ln1, layer.norm1),
        "self_attn": (block.self_attn, layer.self_attn),
        "ln2": (block.ln2, layer.norm2),
        "first": (first, layer.linear1),
        "second": (second, layer.linear2),
    }


def copied(block, layer, without=()):
    """`layer` with the block's weights, but for those whose names begin like one of `without`."""
    with torch.no_grad():
        for part, (mine, theirs) in pairs_of(block, layer).items():
            for name, one in mine.named_parameters():
                if not any(f"{part}.{name}".startswith(start) for start in without):
                    theirs.get_parameter(name).copy_(one)
    return layer


def loaded(block, layer):
    """`layer` with the block's weights, part by part."""
    for mine, theirs in pairs_of(block, layer).values():
        theirs.load_state_dict(mine.state_dict())
    return layer


def copies(name, sentence, *answers):
    to_reference.add(name, sentence, *answers)


copies(
    "post_norm_layer",
    "The layer is post-norm, as torch's is unless you say `norm_first=True`.",
    lambda block: copied(block, layer_of(block, norm_first=False)),
)
copies(
    "relu_layer",
    'The layer has ReLU, as torch\'s has unless you say `activation="gelu"`.',
    lambda block: copied(block, layer_of(block, activation="relu")),
)
copies(
    "batch_second_layer",
    "The layer takes (T, B, C), as torch's does unless you say `batch_first=True`.",
    lambda block: copied(block, layer_of(block, batch_first=False)),
)
copies(
    "all_flags_left_out",
    "The layer has torch's defaults: post-norm, ReLU, (T, B, C). Three flags are needed.",
    lambda block: copied(
        block, layer_of(block, batch_first=False, activation="relu", norm_first=False)
    ),
    lambda block: copied(block, layer_of(block, activation="relu", norm_first=False)),
    lambda block: copied(block, layer_of(block, batch_first=False, norm_first=False)),
    lambda block: copied(block, layer_of(block, batch_first=False, activation="relu")),
)
copies(
    "nothing_copied",
    "The layer has weights of its own: nothing was copied.",
    lambda block: layer_of(block),
)


copies(
    "some_weights_not_copied",
    "Some of the weights were not copied. There are twelve tensors: a weight and a bias of each "
    "norm, of the stacked projections, of the output projection, and of the two linear layers.",
    lambda block: copied(block, layer_of(block), without=("first",)),
)


def norms_exchanged(block):
    layer = copied(block, layer_of(block))
    layer.norm1.load_state_dict(block.ln2.state_dict())
    layer.norm2.load_state_dict(block.ln1.state_dict())
    return layer


copies("norms_exchanged", "`ln1` is torch's `norm1`, and `ln2` its `norm2`.", norms_exchanged)
copies(
    "heads_otherwise",
    "The layer has another number of heads than the block: `block.self_attn.num_heads`.",
    lambda block: copied(block, layer_of(block, heads=1)),
)
copies(
    "hidden_width_otherwise",
    "The layer's hidden width is not the block's: pass `dim_feedforward`, the first layer's "
    "`out_features`. Its default is 2048.",
    lambda block: copied(block, layer_of(block, dim_feedforward=2048)),
    lambda block: loaded(block, layer_of(block, dim_feedforward=2048)),
    lambda block: loaded(block, layer_of(block, dim_feedforward=4 * block.self_attn.embed_dim)),
)


def linears_exchanged(block):
    layer = layer_of(block)
    layer.linear1, layer.linear2 = layer.linear2, layer.linear1
    return loaded(block, layer)


copies(
    "linear_layers_exchanged",
    "`linear1` is the first layer, from the width to the hidden width, and `linear2` the second, "
    "back again. You exchanged them.",
    linears_exchanged,
    lambda block: layer_of(
        block, dim_feedforward=block.self_attn.embed_dim
    ).linear1.load_state_dict(
        [one for one in block.ffn.modules() if isinstance(one, nn.Linear)][1].state_dict()
    ),
)


def shares_modules(block):
    layer = right_reference(block)
    layer.norm1 = block.ln1
    return layer


def shares_data(block):
    layer = right_reference(block)
    layer.linear1.bias.data = pairs_of(block, layer)["first"][0].bias.data
    return layer


copies(
    "weights_shared",
    "The layer holds the block's own weights: who trains one changes the other. Copy the values: "
    "`load_state_dict`, or `copy_` under `torch.no_grad()`.",
    shares_modules,
    shares_data,
)


copies(
    "mode_of_the_block_changed",
    "You left the block in another mode: `eval()` and `train()` reach all its parts. It stays as "
    "it was; only the layer is yours.",
    lambda block: right_reference(block.eval()),
)


def in_float32(block):
    layer = layer_of(block).float()
    return copied(block, layer)


def on_the_cpu(block):
    return copied(block, layer_of(block).to_empty(device="cpu"))


def rounded_on_the_way(block):
    return in_float32(block).to(block.ln1.weight)


copies(
    "float32_for_every_block",
    "The layer is float32 whatever the block is. Make it with the block's dtype, or move it before "
    "you copy: `.to(block.ln1.weight)`.",
    in_float32,
)
copies(
    "rounded_on_the_way",
    "The weights were rounded on the way: you copied them into a float32 layer and widened it "
    "then. Move it first.",
    rounded_on_the_way,
)
copies(
    "layer_left_on_the_cpu",
    "The layer is on the CPU whatever the block is. Move it to the block's device.",
    on_the_cpu,
)
copies(
    "returns_no_layer",
    "You did not return the layer itself: an nn.TransformerEncoderLayer is asked for, not the "
    "block, a state dict, or an nn.TransformerEncoder.",
    lambda block: block,
    lambda block: right_reference(block).state_dict(),
    lambda block: nn.TransformerEncoder(right_reference(block), 1, enable_nested_tensor=False),
)
copies("forgot_to_return", "You returned nothing: end with `return`.", lambda block: None)


# The quiz

block_quiz = quiz_mistakes(
    "block_quiz",
    "cadbcdab",
    {
        1: {
            "a": "A norm reads the features of one token. It knows no other token.",
            "b": "The ffn goes through each token alone. Change one token, and the ffn moves one.",
            "d": "A sum adds to each token what is meant for it. It moves nothing between tokens.",
        },
        2: {
            "b": "That is 12 · C², the matrices alone. Biases and norms are 13 · C more.",
            "c": "That is the ffn alone. Attention and the norms are missing.",
            "d": "The two norms are missing: a weight and a bias each, 4 · C numbers.",
        },
        3: {
            "a": "Then attention would read too much, and still write.",
            "b": "Then the ffn would read something else. It is silent here, whatever it reads.",
            "c": "Then two calls would differ. Attention would still write.",
        },
        4: {
            "a": "A gain of 1 gets a gradient like any other. None means that nothing arrived.",
            "c": "Eval mode switches dropout off. Gradients flow as before.",
            "d": "Dropout lets most numbers through, and a dropped one gives a gradient of 0, not "
            "None.",
        },
        5: {
            "a": "A missing mask lets tokens read other tokens of their own sentence.",
            "b": "In eval mode dropout does nothing.",
            "d": "Padding belongs to its own sentence. It does not reach another one.",
        },
        6: {
            "a": "In eval mode dropout does nothing, whatever its probability.",
            "b": "It has all the biases that your block has.",
            "c": "Both are nn.MultiheadAttention, and cut alike.",
        },
        7: {
            "b": "Both are pre-norm here. Where the norms stand has nothing to do with it.",
            "c": "That makes the decoder of a translation, which reads a memory.",
            "d": "The ffn is the same in both.",
        },
        8: {
            "a": "That is right without a cache. With one, padding among the old tokens has to be "
            "hidden too.",
            "c": "The old tokens come first, the new ones stand behind them.",
            "d": "The new tokens are keys as well, and may be padding.",
        },
    },
)
