"""Right answers of lesson 06 in other styles than the reference's. All must get full marks."""

import copy
import math
from collections import OrderedDict
from types import FunctionType

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from solutions.ffn import FeedForward
from solutions.masks import KVCache, ManualMultiHeadAttention
from solutions.norm import ManualLayerNorm

# block_parameters


def by_terms(d_model, d_ff):
    qkv = 3 * d_model * d_model + 3 * d_model
    out = d_model * (d_model + 1)
    up, down = (d_model + 1) * d_ff, (d_ff + 1) * d_model
    return qkv + out + up + down + 2 * 2 * d_model


def by_polynomial(d_model, d_ff):
    return 4 * d_model**2 + 9 * d_model + d_ff * (2 * d_model + 1)


def by_counting_torch_s(d_model, d_ff):
    layer = nn.TransformerEncoderLayer(d_model, 1, d_ff)
    return sum(math.prod(one.shape) for one in layer.parameters())


def by_shapes(d_model, d_ff):
    shapes = [(d_model, d_model), (d_model,)] * 4 + [(d_model,)] * 4
    shapes += [(d_ff, d_model), (d_ff,), (d_model, d_ff), (d_model,)]
    return sum(torch.Size(shape).numel() for shape in shapes)


# TransformerBlock


class InSequence(nn.Module):
    """The ffn in a row with its dropouts, a dropout module for each branch."""

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        super().__init__()
        if d_model % num_heads != 0:
            raise ValueError("d_model must be divisible by num_heads")
        d_ff = d_ff or 4 * d_model
        self.ln1 = nn.LayerNorm(d_model)
        self.ln2 = nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(
            embed_dim=d_model, num_heads=num_heads, dropout=dropout, batch_first=True
        )
        self.ffn = nn.Sequential(
            nn.Linear(d_model, d_ff),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(d_ff, d_model),
            nn.Dropout(dropout),
        )
        self.drop1, self.drop2 = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        h = self.ln1(x)
        attn_out, _ = self.self_attn(
            h, h, h, key_padding_mask=key_padding_mask, attn_mask=blocked_attn_mask
        )
        x = x + self.drop1(attn_out)
        x = x + self.drop2(self.ffn(self.ln2(x)))
        return x


class TokensFirst(nn.Module):
    """(T, B, C) inside, the second layer made before the first, dropout inside attention alone."""

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        super().__init__()
        if d_model // num_heads * num_heads != d_model:
            raise ValueError((d_model, num_heads))
        hidden = d_model * 4 if d_ff is None else d_ff
        self.ffn = nn.ModuleDict({"down": nn.Linear(hidden, d_model)})
        self.ffn["up"] = nn.Linear(d_model, hidden)
        self.ln2 = nn.LayerNorm((d_model,))
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, dropout=dropout)
        self.ln1 = nn.LayerNorm((d_model,))

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        h = self.ln1(x).transpose(0, 1)
        out = self.self_attn(h, h, h, key_padding_mask, True, blocked_attn_mask)[0]
        x = x + out.transpose(0, 1)
        return x + self.ffn["down"](F.gelu(self.ffn["up"](self.ln2(x))))


class Mlp(nn.Module):
    """Its layers under two names each, and its own GELU."""

    def __init__(self, width, hidden, p):
        super().__init__()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)
        self.both = nn.ModuleList([self.c_fc, self.c_proj])
        self.p = p

    def forward(self, x):
        x = self.both[0](x)
        x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return F.dropout(self.c_proj(x), p=self.p, training=self.training)


class ByAddition(nn.Module):
    """Both masks as one mask of numbers that is added to the scores; own dropout on attention."""

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        if d_model % num_heads:
            raise WidthError(d_model, num_heads)
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.ffn = Mlp(d_model, d_ff if d_ff is not None else d_model * 4, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        B, T, _ = x.shape
        mask = torch.zeros(B, 1, T, T, dtype=x.dtype, device=x.device)
        if blocked_attn_mask is not None:
            mask = mask.masked_fill(blocked_attn_mask, float("-inf"))
        if key_padding_mask is not None:
            mask = mask.masked_fill(key_padding_mask[:, None, None], float("-inf"))
        mask = mask.expand(B, self.self_attn.num_heads, T, T).flatten(0, 1)
        h = self.ln1(x)
        out, _ = self.self_attn(h, h, h, attn_mask=mask, need_weights=False)
        h = self.dropout(out) + x
        return torch.add(h, self.ffn(self.ln2(h)))


class WidthError(ValueError):
    pass


class ByHandFromItsWeights(nn.Module):
    """nn.MultiheadAttention holds the weights, the arithmetic is written out."""

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"{d_model} % {num_heads} != 0")
        self.H, self.p = num_heads, dropout
        self.ln1, self.ln2 = ManualLayerNorm(d_model), ManualLayerNorm(d_model)
        self.self_attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.ffn = FeedForward(d_model, 4 * d_model if d_ff is None else d_ff)

    def attention(self, h, blocked, padding):
        own = self.self_attn
        q, k, v = F.linear(h, own.in_proj_weight, own.in_proj_bias).chunk(3, -1)
        q, k, v = (one.unflatten(-1, (self.H, -1)).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        low = torch.finfo(scores.dtype).min
        if blocked is not None:
            scores = scores.masked_fill(blocked, low)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], low)
        return own.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        update = self.attention(self.ln1(x), blocked_attn_mask, key_padding_mask)
        h = x + F.dropout(update, self.p, self.training)
        return h + F.dropout(self.ffn(self.ln2(h)), self.p, self.training)


class FromTorchsLayer(nn.TransformerEncoderLayer):
    """torch's own layer, its parts under the names that are asked for."""

    def __init__(self, d_model, num_heads, d_ff=None, dropout=0.1):
        if d_model % num_heads:
            raise ValueError("not divisible")
        hidden = 4 * d_model if d_ff is None else d_ff
        super().__init__(
            d_model, num_heads, hidden, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.ln1, self.ln2 = self.norm1, self.norm2
        self.ffn = nn.ModuleList([self.linear1, self.linear2])

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        return super().forward(x, src_mask=blocked_attn_mask, src_key_padding_mask=key_padding_mask)


def a_function_that_makes_it(d_model, num_heads, d_ff=None, dropout=0.1):
    return InSequence(d_model, num_heads, d_ff, dropout)


class MaskForEveryHead(InSequence):
    """One bool mask (B · H, T, T); dropout on what a branch reads."""

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        B, T, _ = x.shape
        blocked = torch.zeros(B, T, T, dtype=torch.bool, device=x.device)
        if blocked_attn_mask is not None:
            blocked = blocked | blocked_attn_mask
        if key_padding_mask is not None:
            blocked = blocked | key_padding_mask[:, None, :]
        h = self.drop1(self.ln1(x))
        blocked = blocked.repeat_interleave(self.self_attn.num_heads, dim=0)
        x = x + self.self_attn(h, h, h, attn_mask=blocked, average_attn_weights=False)[0]
        return x + self.ffn(self.drop2(self.ln2(x)))


class Checkpointed(InSequence):
    """Computes everything a second time in the backward pass, to save memory."""

    def forward(self, x, blocked_attn_mask=None, key_padding_mask=None):
        run = super().forward
        return checkpoint(run, x, blocked_attn_mask, key_padding_mask, use_reentrant=False)


# PostNormBlock


class PostInSequence(nn.Module):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.ff = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(embed_dim, ff_dim), act=nn.ReLU(), fc2=nn.Linear(ff_dim, embed_dim)
            )
        )
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x, key_padding_mask=None):
        h, _ = self.attn(x, x, x, key_padding_mask=key_padding_mask)
        h = self.norm1(x + h)
        return self.norm2(h + self.ff(h))


class PostTokensFirst(nn.Module):
    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)
        self.ff = nn.ModuleList([nn.Linear(ff_dim, embed_dim), nn.Linear(embed_dim, ff_dim)])
        self.norm1 = nn.LayerNorm(embed_dim, elementwise_affine=True)
        self.norm2 = nn.LayerNorm(embed_dim, elementwise_affine=True)

    def forward(self, x, key_padding_mask=None):
        t = x.transpose(0, 1)
        update = self.attn(t, t, t, key_padding_mask, need_weights=False)[0].transpose(0, 1)
        x = self.norm1(torch.add(update, x))
        down, up = self.ff
        return self.norm2(down(up(x).clamp(min=0)) + x)


class PostByStatistics(PostInSequence):
    def norm(self, x, layer):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return (x - mean) / torch.sqrt(variance + layer.eps) * layer.weight + layer.bias

    def forward(self, x, key_padding_mask=None):
        mask = None
        if key_padding_mask is not None:
            mask = torch.zeros(key_padding_mask.shape, dtype=x.dtype, device=x.device)
            mask = mask.masked_fill(key_padding_mask, float("-inf"))
        total = x.clone()
        total += self.attn(x, x, x, key_padding_mask=mask)[0]
        x = self.norm(total, self.norm1)
        return self.norm(x + self.ff(x), self.norm2)


class PostFromTorchsLayer(nn.Module):
    """Weights under the names asked for, run by torch's own layer."""

    def __init__(self, embed_dim, num_heads, ff_dim):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            embed_dim, num_heads, ff_dim, dropout=0.0, activation="relu", batch_first=True
        )
        self.attn, self.norm1, self.norm2 = layer.self_attn, layer.norm1, layer.norm2
        self.ff = nn.Sequential(layer.linear1, nn.ReLU(), layer.linear2)

    def forward(self, x, key_padding_mask=None):
        attended = self.attn(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)[0]
        x = F.layer_norm(x + attended, x.shape[-1:], self.norm1.weight, self.norm1.bias)
        return F.layer_norm(x + self.ff(x), x.shape[-1:], self.norm2.weight, self.norm2.bias)


# FusedBlock


class FusedParts(nn.Module):
    """The parts; each style below writes its own attention, (B, T, d) to (B, T, d)."""

    def __init__(self, d, heads):
        super().__init__()
        self.n_head, self.d = heads, d
        self.ln1 = nn.LayerNorm(d)
        self.ln2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.qkv = nn.Linear(d, d * 3)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        x = x + self.mlp(self.ln2(x))
        return x


class FusedByHand(FusedParts):
    def attention(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        mask = torch.tril(torch.ones(T, T, device=x.device)).view(1, 1, T, T)
        att = F.softmax(att.masked_fill(mask == 0, float("-inf")), dim=-1)
        return self.proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))


class FusedByPermute(FusedParts):
    def __init__(self, d, heads):
        super().__init__(d, heads)
        ones = torch.ones(64, 64, dtype=torch.bool)
        self.register_buffer("later", ones.triu(1), persistent=False)

    def attention(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).reshape(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=~self.later[:T, :T])
        return self.proj(mixed.permute(0, 2, 1, 3).reshape(B, T, C))


class FusedByEinsum(FusedParts):
    def attention(self, x):
        weight, bias = (one.chunk(3) for one in (self.qkv.weight, self.qkv.bias))
        q, k, v = (
            (torch.einsum("btc,dc->btd", x, w) + b).unflatten(2, (self.n_head, -1))
            for w, b in zip(weight, bias, strict=True)
        )
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        place = torch.arange(x.shape[1], device=x.device)
        blocked = place[None] > place[:, None]
        weights = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(-1)
        return self.proj(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class FusedHeadByHead(FusedParts):
    def attention(self, x):
        D, outputs = self.d // self.n_head, []
        fused = self.qkv(x)
        for head in range(self.n_head):
            q, k, v = (
                fused[..., third * self.d + head * D : third * self.d + (head + 1) * D]
                for third in range(3)
            )
            rows = []
            for t in range(x.shape[1]):
                scores = (q[:, t : t + 1] @ k[:, : t + 1].mT) / math.sqrt(D)
                rows.append(scores.softmax(-1) @ v[:, : t + 1])
            outputs.append(torch.cat(rows, 1))
        return self.proj(torch.cat(outputs, -1))


class FusedByTorchs(FusedParts):
    def attention(self, x):
        T = x.shape[1]
        blocked = torch.full((T, T), True, device=x.device).triu(1)
        out, _ = F.multi_head_attention_forward(
            *3 * (x.transpose(0, 1),),
            self.d,
            self.n_head,
            self.qkv.weight,
            self.qkv.bias,
            None,
            None,
            False,
            0.0,
            self.proj.weight,
            self.proj.bias,
            attn_mask=blocked,
            need_weights=False,
        )
        return out.transpose(0, 1)


class FusedInDouble(FusedParts):
    """Scores and softmax in float64, the future blocked by an addition."""

    def attention(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).double().view(B, T, 3, self.n_head, -1).unbind(2)
        place = torch.arange(T, device=x.device)
        low = torch.where(place[None] > place[:, None], -math.inf, 0.0)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(C // self.n_head) + low
        mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)
        return self.proj(mixed.reshape(B, T, C).to(x.dtype))


# to_reference


def by_parts(block):
    up, down = (one for one in block.ffn.modules() if type(one) is nn.Linear)
    d_model, nhead = block.self_attn.embed_dim, block.self_attn.num_heads
    layer = nn.TransformerEncoderLayer(
        d_model,
        nhead,
        up.out_features,
        dropout=0.0,
        activation=F.gelu,
        batch_first=True,
        norm_first=True,
        device=up.weight.device,
        dtype=up.weight.dtype,
    )
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(block.self_attn.in_proj_weight)
        layer.self_attn.in_proj_bias.copy_(block.self_attn.in_proj_bias)
        layer.self_attn.out_proj.weight.copy_(block.self_attn.out_proj.weight)
        layer.self_attn.out_proj.bias.copy_(block.self_attn.out_proj.bias)
        for theirs, mine in ((layer.norm1, block.ln1), (layer.norm2, block.ln2)):
            theirs.weight.copy_(mine.weight)
            theirs.bias.copy_(mine.bias)
        for theirs, mine in ((layer.linear1, up), (layer.linear2, down)):
            theirs.weight.data.copy_(mine.weight.data)
            theirs.bias.data.copy_(mine.bias.data)
    return layer


def by_deep_copies(block):
    linears = [one for one in block.ffn.modules() if isinstance(one, nn.Linear)]
    attention = block.self_attn
    layer = nn.TransformerEncoderLayer(
        attention.embed_dim,
        attention.num_heads,
        linears[0].out_features,
        norm_first=True,
        batch_first=True,
        activation="gelu",
    )
    layer.norm1, layer.norm2 = copy.deepcopy(block.ln1), copy.deepcopy(block.ln2)
    layer.self_attn = copy.deepcopy(attention)
    layer.linear1, layer.linear2 = copy.deepcopy(linears[0]), copy.deepcopy(linears[1])
    return layer


def by_one_state_dict(block):
    """The two linear layers found by their shapes."""
    state, width = {}, block.ln1.weight.numel()
    for name, tensor in block.state_dict().items():
        part, _, rest = name.partition(".")
        if part in ("ln1", "ln2", "self_attn"):
            state[f"{part.replace('ln', 'norm')}.{rest}"] = tensor
    weights = {one.shape: one for one in block.ffn.parameters()}
    hidden = next(shape[0] for shape in weights if shape[-1] == width and len(shape) == 2)
    state["linear1.weight"] = weights[torch.Size([hidden, width])]
    state["linear1.bias"] = weights[torch.Size([hidden])]
    state["linear2.weight"] = weights[torch.Size([width, hidden])]
    state["linear2.bias"] = weights[torch.Size([width])]
    layer = nn.TransformerEncoderLayer(
        width, block.self_attn.num_heads, hidden, norm_first=True, batch_first=True
    )
    layer.activation = nn.GELU()
    layer.activation_relu_or_gelu = 2
    layer = layer.to(device=block.ln1.weight.device, dtype=block.ln1.weight.dtype)
    layer.load_state_dict({name: one.detach().clone() for name, one in state.items()})
    return layer.eval()


def by_index(block):
    """The ffn by the places of an nn.Sequential."""
    first, last = block.ffn[0], block.ffn[2]
    layer = nn.TransformerEncoderLayer(
        d_model=first.in_features,
        nhead=block.self_attn.num_heads,
        dim_feedforward=first.out_features,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    ).to(first.weight)
    pairs = zip(
        [block.ln1, block.self_attn, block.ln2, first, last],
        [layer.norm1, layer.self_attn, layer.norm2, layer.linear1, layer.linear2],
        strict=True,
    )
    for mine, theirs in pairs:
        theirs.load_state_dict(mine.state_dict())
    return layer


def by_index_behind_a_dropout(block):
    wrapped = copy.copy(block)
    wrapped._modules = {**block._modules, "ffn": [block.ffn[0], None, block.ffn[3]]}
    return by_index(wrapped)


def _by_its_own_names(block):
    up, down = block.ffn["up"], block.ffn["down"]
    layer = nn.TransformerEncoderLayer(
        up.in_features,
        block.self_attn.num_heads,
        up.out_features,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    ).to(up.weight)
    layer.linear1.load_state_dict(up.state_dict())
    layer.linear2.load_state_dict(down.state_dict())
    layer.self_attn.load_state_dict(block.self_attn.state_dict())
    layer.norm1.load_state_dict(block.ln1.state_dict())
    layer.norm2.load_state_dict(block.ln2.state_dict())
    return layer


def in_a_notebook(function, **names):
    """The function as a notebook has it in which these names stand beside it."""
    return FunctionType(function.__code__, {**globals(), **names}, function.__name__)


# The blocks of the course's own parts


class CourseParts(nn.Module):
    """The encoder's and the decoder-only block's parts, the attention as a subclass has it."""

    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        self.feed_forward = FeedForward(d_model, hidden_dim, dropout=dropout)
        self.ffn_norm = ManualLayerNorm(d_model)
        self.self_attention = ManualMultiHeadAttention(
            d_model, num_heads, dropout=dropout, use_rope=True
        )
        self.attention_norm = ManualLayerNorm(d_model)


class EncoderInSteps(CourseParts):
    def forward(self, x, valid_tokens):
        shortcut = x
        h = self.attention_norm(x)
        h = self.self_attention(h, key_valid=valid_tokens, query_valid=valid_tokens)
        h = shortcut + h
        out = h + self.feed_forward(self.ffn_norm(h))
        return out * valid_tokens.unsqueeze(-1)


class EncoderByWhere(CourseParts):
    """Zeros in and out, so that padding never holds anything."""

    def silence(self, x, valid):
        return torch.where(valid[..., None], x, torch.zeros((), dtype=x.dtype, device=x.device))

    def forward(self, x, valid_tokens):
        x = self.silence(x, valid_tokens)
        x = x + self.self_attention(self.attention_norm(x), key_valid=valid_tokens)
        x = self.silence(x, valid_tokens)
        x = x + self.feed_forward(self.ffn_norm(x))
        return self.silence(x, valid_tokens)


class EncoderWithTorchsNorms(nn.Module):
    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.self_attention = ManualMultiHeadAttention(d_model, num_heads, use_rope=True)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, hidden_dim), nn.GELU(), nn.Linear(hidden_dim, d_model)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, x, valid_tokens):
        x = x + self.drop(self.self_attention(self.attention_norm(x), key_valid=valid_tokens))
        x = x + self.drop(self.feed_forward(self.ffn_norm(x)))
        return torch.einsum("btc,bt->btc", x, valid_tokens.to(x.dtype))


class EncoderAsRows(CourseParts):
    def forward(self, x, valid_tokens):
        out = torch.zeros_like(x)
        h = x + self.self_attention(self.attention_norm(x), key_valid=valid_tokens)
        h = h + self.feed_forward(self.ffn_norm(h))
        out[valid_tokens] = h[valid_tokens]
        return out


class EncoderSentenceBySentence(CourseParts):
    def forward(self, x, valid_tokens):
        rows = []
        for one, valid in zip(x.split(1), valid_tokens.split(1), strict=True):
            h = one + self.self_attention(self.attention_norm(one), key_valid=valid)
            h = h + self.feed_forward(self.ffn_norm(h))
            rows.append(h * valid[..., None].to(h.dtype))
        return torch.cat(rows)


class DecoderParts(nn.Module):
    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__()
        for name in ("self", "cross"):
            self.add_module(f"{name}_norm", ManualLayerNorm(d_model))
            attention = ManualMultiHeadAttention(d_model, num_heads, dropout, name == "self")
            self.add_module(f"{name}_attention", attention)
        self.ffn_norm = ManualLayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, hidden_dim, dropout)


class DecoderInSteps(DecoderParts):
    def forward(self, x, memory, *, target_valid_tokens, memory_valid_tokens):
        h = self.self_norm(x)
        x = x + self.self_attention(
            h, key_valid=target_valid_tokens, query_valid=target_valid_tokens, causal=True
        )
        x = x + self.cross_attention(
            self.cross_norm(x),
            memory=memory,
            key_valid=memory_valid_tokens,
            query_valid=target_valid_tokens,
        )
        x = x + self.feed_forward(self.ffn_norm(x))
        return x * target_valid_tokens[..., None].type_as(x)


class DecoderByALoop(DecoderParts):
    def forward(self, x, memory, target_valid_tokens, memory_valid_tokens):
        branches = (
            (self.self_norm, lambda h: self.self_attention(h, None, causal=True, **target)),
            (self.cross_norm, lambda h: self.cross_attention(h, memory, **source)),
            (self.ffn_norm, self.feed_forward),
        )
        target, source = {"key_valid": target_valid_tokens}, {"key_valid": memory_valid_tokens}
        for norm, branch in branches:
            x = x + branch(norm(x))
        return x.masked_fill(target_valid_tokens.logical_not().unsqueeze(2), 0)


class DecoderWithRopeInBoth(DecoderParts):
    """A memory is never turned, so what the second attention says of RoPE does not matter."""

    def __init__(self, d_model, num_heads, hidden_dim, dropout=0.0):
        super().__init__(d_model, num_heads, hidden_dim, dropout)
        self.cross_attention = ManualMultiHeadAttention(
            d_model, num_heads, dropout=dropout, use_rope=True
        )
        self.self_norm, self.cross_norm, self.ffn_norm = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, *, target_valid_tokens, memory_valid_tokens):
        x = (
            x
            + self.self_attention(
                self.self_norm(x), causal=True, key_valid=target_valid_tokens, use_cache=True
            )[0]
        )
        x = x + self.cross_attention(self.cross_norm(x), memory, key_valid=memory_valid_tokens)
        x = x + self.feed_forward(self.ffn_norm(x))
        return torch.where(target_valid_tokens[:, :, None], x, 0.0 * x)


class DecoderFromAFunction(DecoderInSteps):
    def forward(self, x, memory, **valid):
        first = {name: valid[name] for name in ("target_valid_tokens", "memory_valid_tokens")}
        return super().forward(x, memory, **first)


class OnlyInSteps(CourseParts):
    def forward(self, x, valid_tokens, *, cache=None, use_cache=False):
        h = self.attention_norm(x)
        result = self.self_attention(
            h, key_valid=valid_tokens, causal=True, cache=cache, use_cache=use_cache
        )
        attn, new_cache = result if use_cache else (result, None)
        x = x + attn
        x = x + self.feed_forward(self.ffn_norm(x))
        if valid_tokens is not None:
            x = x * valid_tokens[:, -x.size(1) :].unsqueeze(-1)
        if use_cache:
            return x, new_cache
        return x


class OnlyWithAMaskForNone(CourseParts):
    def forward(self, x, valid_tokens=None, *, cache=None, use_cache=False):
        past = 0 if cache is None else cache.length
        B, T = x.shape[:2]
        if valid_tokens is None:
            valid_tokens = torch.ones(B, past + T, dtype=torch.bool, device=x.device)
        y, cache = self.self_attention(
            self.attention_norm(x),
            key_valid=valid_tokens,
            query_valid=valid_tokens[:, past:],
            causal=True,
            cache=cache,
            use_cache=True,
        )
        x = x + y
        x = x + self.feed_forward(self.ffn_norm(x))
        x = torch.where(valid_tokens[:, past : past + T, None], x, torch.zeros_like(x))
        return [x, cache] if use_cache else x


class OnlyWithAnEmptyCache(CourseParts):
    def forward(self, x, valid_tokens, *, cache=None, use_cache=False):
        start = KVCache() if cache is None else cache
        y, after = self.self_attention(
            self.attention_norm(x),
            None,
            key_valid=valid_tokens,
            causal=True,
            cache=start,
            use_cache=True,
        )
        x = x + y
        x = x + self.feed_forward(self.ffn_norm(x))
        if valid_tokens is not None:
            x = x.masked_fill(~valid_tokens[:, start.length :, None], 0.0)
        return (x, after) if use_cache else x


class OnlyWithoutAKeyword(OnlyInSteps):
    def forward(self, x, valid_tokens, cache=None, use_cache=False):
        return super().forward(x, valid_tokens, cache=cache, use_cache=use_cache)


STYLES = {
    "block_parameters": [by_terms, by_polynomial, by_counting_torch_s, by_shapes],
    "TransformerBlock": [
        InSequence,
        TokensFirst,
        ByAddition,
        ByHandFromItsWeights,
        FromTorchsLayer,
        a_function_that_makes_it,
        MaskForEveryHead,
        Checkpointed,
    ],
    "PostNormBlock": [PostInSequence, PostTokensFirst, PostByStatistics, PostFromTorchsLayer],
    "FusedBlock": [
        FusedByHand,
        FusedByPermute,
        FusedByEinsum,
        FusedHeadByHead,
        FusedByTorchs,
        FusedInDouble,
    ],
    "to_reference": [
        by_parts,
        by_deep_copies,
        by_one_state_dict,
        by_index,
        by_index_behind_a_dropout,
        in_a_notebook(_by_its_own_names, TransformerBlock=TokensFirst),
        in_a_notebook(by_parts, TransformerBlock=PostInSequence),
        in_a_notebook(by_one_state_dict, TransformerBlock=ByAddition),
    ],
    "EncoderBlock": [
        EncoderInSteps,
        EncoderByWhere,
        EncoderWithTorchsNorms,
        EncoderAsRows,
        EncoderSentenceBySentence,
    ],
    "DecoderBlock": [DecoderInSteps, DecoderByALoop, DecoderWithRopeInBoth, DecoderFromAFunction],
    "DecoderOnlyBlock": [
        OnlyInSteps,
        OnlyWithAMaskForNone,
        OnlyWithAnEmptyCache,
        OnlyWithoutAKeyword,
    ],
    "block_quiz": [
        {1: "C", 2: " a ", 3: "d", 4: "B", 5: "c", 6: "d", 7: "a", 8: "b", "note": "mine"}
    ],
}
