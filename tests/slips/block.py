"""Slips in lesson 06's reference."""

POST = "return x + self.ffn(self.ln2(x))"
T_FFN = "self.ffn = FeedForward(d_model, 4 * d_model if d_ff is None else d_ff, dropout)"
T_ATTENTION = (
    "self.self_attn = nn.MultiheadAttention(d_model, num_heads, dropout, batch_first=True)"
)
T_SUM = "x = x + self.dropout(attended)"
T_READS = "            normed,\n            normed,\n            normed,\n"
T_MASK = "attn_mask=blocked_attn_mask"
T_PADDING = "key_padding_mask=key_padding_mask"
T_REFUSES = "        if d_model % num_heads:\n"
T_RAISES = (
    "            raise ValueError(f\"a width of {d_model} can't be split into "
    '{num_heads} equal heads")\n'
)
T_UP, T_DOWN = "nn.Linear(d_model, width)", "nn.Linear(width, d_model)"


def t_ffn(*layers):
    return {
        T_FFN: "width = 4 * d_model if d_ff is None else d_ff\n"
        f"        self.ffn = nn.Sequential({', '.join(layers)}, nn.Dropout(dropout))"
    }


def with_torch(name, edits):
    return {f"class {name}(": f"import torch\n\n\nclass {name}("} | edits


def first(edit):
    """Done before anything else in a TransformerBlock's forward."""
    return {"        normed = self.ln1(x)": f"        {edit}\n        normed = self.ln1(x)"}


TRANSFORMER = [
    ("super_not_called", {"        super().__init__()\n": ""}),
    (
        "masks_exchanged",
        {T_MASK: "attn_mask=key_padding_mask", T_PADDING: "key_padding_mask=blocked_attn_mask"},
    ),
    (
        "post_norm_instead",
        {
            "self.ln1(x)": "x",
            T_SUM: "x = self.ln1(x + self.dropout(attended))",
            POST: "return self.ln2(x + self.ffn(x))",
        },
    ),
    ("normalized_input_added", {"normed = self.ln1(x)": "normed = x = self.ln1(x)"}),
    ("normalized_input_added", {POST: "x = self.ln2(x)\n        return x + self.ffn(x)"}),
    (
        "normalized_input_added",
        {"normed = ": "normed = x = ", POST: "x = self.ln2(x)\n        return x + self.ffn(x)"},
    ),
    ("branch_reads_x_itself", {"self.ln1(x)": "x"}),
    ("branch_reads_x_itself", {"self.ln2(x)": "x"}),
    ("shortcut_missing", {T_SUM: "x = self.dropout(attended)"}),
    ("shortcut_missing", {"return x + ": "return "}),
    ("shortcut_missing", {T_SUM: "x = self.dropout(attended)", "return x + ": "return "}),
    (
        "norm_behind_the_branch",
        {
            "self.ln1(x)": "x",
            T_SUM: "x = x + self.dropout(self.ln1(attended))",
            "self.ffn(self.ln2(x))": "self.ln2(self.ffn(x))",
        },
    ),
    ("norm_behind_the_branch", {"self.ffn(self.ln2(x))": "self.ln2(self.ffn(x))"}),
    ("branch_missing", {POST: "return x"}),
    ("branch_missing", {f"        {T_SUM}\n": ""}),
    ("one_norm_used_for_all", {"self.ln2(x)": "self.ln1(x)"}),
    ("one_norm_used_for_all", {"self.ln1(x)": "self.ln2(x)"}),
    ("norms_exchanged", {"self.ln1(x)": "self.ln2(x)", "self.ln2(x))\n": "self.ln1(x))\n"}),
    (
        "ffn_first",
        {"normed = ": "x = x + self.ffn(self.ln2(x))\n        normed = ", POST: "return x"},
    ),
    (
        "all_branches_side_by_side",
        {f"        {T_SUM}\n": "", POST: "return x + attended + self.ffn(self.ln2(x))"},
    ),
    ("later_sum_starts_from_x_again", {"x = x + ": "h = x + ", "self.ln2(x)": "self.ln2(h)"}),
    ("changes_x_in_place", {"x = x + ": "x += "}),
    ("changes_x_in_place", {POST: "x += self.ffn(self.ln2(x))\n        return x"}),
    ("shortcut_detached", {"x = x + ": "x = x.detach() + "}),
    ("shortcut_detached", {"return x + ": "return x.detach() + "}),
    ("branch_detached", {"self.dropout(attended)": "self.dropout(attended.detach())"}),
    ("branch_detached", {"self.ffn(self.ln2(x))": "self.ffn(self.ln2(x)).detach()"}),
    ("branch_detached", {"self.ffn(self.ln2(x))": "self.ffn(self.ln2(x).detach())"}),
    ("branch_detached", {"self.ln1(x)": "self.ln1(x).detach()"}),
    ("forgot_to_return", {"return x + ": "x = x + "}),
    (
        "returns_a_tuple",
        {"attended, _": "attended, weights", POST: POST + ", weights"},
    ),
    (
        "no_gradient_at_all",
        with_torch(
            "TransformerBlock", {"    def forward": "    @torch.no_grad()\n    def forward"}
        ),
    ),
    ("returns_float32", {POST: "return (x + self.ffn(self.ln2(x))).float()"}),
    (
        "tensor_made_on_the_cpu",
        with_torch(
            "TransformerBlock",
            first(
                "if blocked_attn_mask is None:\n"
                "            blocked_attn_mask = torch.zeros(x.shape[1], x.shape[1]).bool()"
            ),
        ),
    ),
    ("one_norm_under_all_names", {"self.ln2 = nn.LayerNorm(d_model)": "self.ln2 = self.ln1"}),
    (
        "norms_called_otherwise",
        {
            "self.ln1 =": "self.norm1 =",
            "self.ln2 =": "self.norm2 =",
            "self.ln1(": "self.norm1(",
            "self.ln2(": "self.norm2(",
        },
    ),
    (
        "attention_called_otherwise",
        {"self.self_attn =": "self.attention =", "self.self_attn(": "self.attention("},
    ),
    ("ffn_called_otherwise", {"self.ffn =": "self.mlp =", "self.ffn(": "self.mlp("}),
    (
        "ffn_called_otherwise",
        {
            T_FFN: "d_ff = d_ff or 4 * d_model\n        self.fc1 = nn.Linear(d_model, d_ff)\n"
            "        self.fc2 = nn.Linear(d_ff, d_model)",
            "self.ffn(self.ln2(x))": "self.dropout(self.fc2(F.gelu(self.fc1(self.ln2(x)))))",
        },
    ),
    (
        "sublayers_in_a_list",
        {
            "self.ln1 = nn.LayerNorm(d_model)": "self.norms = [nn.LayerNorm(d_model)]",
            "self.ln2 = nn.LayerNorm(d_model)": "self.norms.append(nn.LayerNorm(d_model))",
            "self.ln1(x)": "self.norms[0](x)",
            "self.ln2(x)": "self.norms[1](x)",
        },
    ),
    (
        "sublayers_in_a_list",
        {
            T_FFN: "d_ff = d_ff or 4 * d_model\n        self.ffn = "
            "[nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model)]",
            "return x + self.ffn(self.ln2(x))": "h = self.ln2(x)\n        for layer in self.ffn:\n"
            "            h = layer(h)\n        return x + h",
        },
    ),
    (
        "norms_without_bias",
        {
            "self.ln1 = nn.LayerNorm(d_model)": "self.ln1 = nn.RMSNorm(d_model)",
            "self.ln2 = nn.LayerNorm(d_model)": "self.ln2 = nn.RMSNorm(d_model)",
        },
    ),
    (
        "norms_without_bias",
        {
            "self.ln1 = nn.LayerNorm(d_model)": "self.ln1 = nn.LayerNorm(d_model, bias=False)",
            "self.ln2 = nn.LayerNorm(d_model)": "self.ln2 = nn.LayerNorm(d_model, bias=False)",
        },
    ),
    (
        "one_norm_too_many",
        {
            "self.ln2 =": "self.ln3 = nn.LayerNorm(d_model)\n        self.ln2 =",
            POST: "return self.ln3(x + self.ffn(self.ln2(x)))",
        },
    ),
    ("one_norm_too_many", {"self.ln2 =": "self.ln3 = nn.LayerNorm(d_model)\n        self.ln2 ="}),
    (
        "sizes_called_otherwise",
        {
            "(self, d_model,": "(self, embed_dim,",
            "super().__init__()\n": "super().__init__()\n        d_model = embed_dim\n",
        },
    ),
    (
        "sizes_called_otherwise",
        {
            "num_heads, d_ff=None": "heads, d_ff=None",
            T_REFUSES: f"        num_heads = heads\n{T_REFUSES}",
        },
    ),
    ("relu_for_gelu", t_ffn(T_UP, "nn.ReLU()", T_DOWN)),
    ("tanh_form_of_gelu", t_ffn(T_UP, 'nn.GELU(approximate="tanh")', T_DOWN)),
    ("other_activation", t_ffn(T_UP, "nn.SiLU()", T_DOWN)),
    ("other_activation", t_ffn(T_UP, "nn.Tanh()", T_DOWN)),
    ("other_activation", t_ffn(T_UP, "nn.LeakyReLU()", T_DOWN)),
    ("no_activation", t_ffn(T_UP, T_DOWN)),
    ("activation_behind_the_second_layer", t_ffn(T_UP, T_DOWN, "nn.GELU()")),
    (
        "ffn_without_bias",
        t_ffn(
            "nn.Linear(d_model, width, bias=False)",
            "nn.GELU()",
            "nn.Linear(width, d_model, bias=False)",
        ),
    ),
    ("dropout_on_the_stream", {T_SUM: "x = self.dropout(x + attended)"}),
    ("dropout_on_the_stream", {POST: "return self.dropout(x + self.ffn(self.ln2(x)))"}),
    (
        "dropout_on_the_stream",
        {
            T_SUM: "x = self.dropout(x + attended)",
            POST: "return self.dropout(x + self.ffn(self.ln2(x)))",
        },
    ),
    ("dropout_on_the_stream", first("x = self.dropout(x)")),
    (
        "drops_in_eval_too",
        {
            "self.dropout = nn.Dropout(dropout)": "self.dropout = dropout",
            "self.dropout(attended)": "F.dropout(attended, self.dropout)",
        },
    ),
    (
        "drops_in_eval_too",
        {
            "self.dropout = nn.Dropout(dropout)": "self.p = dropout",
            "self.dropout(attended)": "nn.Dropout(self.p)(attended)",
        },
    ),
    (
        "dropout_ignored",
        {
            "num_heads, dropout, batch": "num_heads, batch",
            "else d_ff, dropout)": "else d_ff)",
            "        self.dropout = nn.Dropout(dropout)\n": "",
            "self.dropout(attended)": "attended",
        },
    ),
    ("fixed_dropout", {"self.dropout = nn.Dropout(dropout)": "self.dropout = nn.Dropout(0.1)"}),
    ("fixed_dropout", {"self.dropout = nn.Dropout(dropout)": "self.dropout = nn.Dropout()"}),
    ("keep_probability", {"nn.Dropout(dropout)": "nn.Dropout(1 - dropout)"}),
    ("drops_nothing_by_default", {"dropout=0.1": "dropout=0.0"}),
    ("pair_not_taken_apart", {"attended, _ =": "attended ="}),
    ("padding_ignored", {f"            {T_PADDING},\n": ""}),
    ("padding_ignored", {T_PADDING: "key_padding_mask=None"}),
    (
        "padding_inverted",
        first("if key_padding_mask is not None:\n            key_padding_mask = ~key_padding_mask"),
    ),
    ("none_turned_over", {T_PADDING: "key_padding_mask=~key_padding_mask"}),
    (
        "padding_hidden_as_queries",
        {
            f"            {T_PADDING},\n": "",
            "self.ln1(x)\n": "self.ln1(x)\n        if key_padding_mask is not None:\n"
            "            normed = normed.masked_fill(key_padding_mask[:, :, None], 0.0)\n",
        },
    ),
    ("mask_ignored", {f"            {T_MASK},\n": ""}),
    (
        "mask_inverted",
        first(
            "if blocked_attn_mask is not None:\n            blocked_attn_mask = ~blocked_attn_mask"
        ),
    ),
    ("none_turned_over", {T_MASK: "attn_mask=~blocked_attn_mask"}),
    (
        "mask_transposed",
        {T_MASK: "attn_mask=None if blocked_attn_mask is None else blocked_attn_mask.T"},
    ),
    (
        "mask_added_as_ones",
        {T_MASK: "attn_mask=None if blocked_attn_mask is None else blocked_attn_mask.float()"},
    ),
    (
        "mask_added_as_ones",
        {T_MASK: "attn_mask=None if blocked_attn_mask is None else blocked_attn_mask.to(x.dtype)"},
    ),
    ("mask_by_position", {T_MASK: "blocked_attn_mask", f"            {T_PADDING},\n": ""}),
    (
        "one_mask_at_a_time",
        first("if blocked_attn_mask is not None:\n            key_padding_mask = None"),
    ),
    (
        "one_mask_at_a_time",
        first("if key_padding_mask is not None:\n            blocked_attn_mask = None"),
    ),
    (
        "always_causal",
        first(
            "if blocked_attn_mask is None:\n            length = x.shape[1]\n            "
            "blocked_attn_mask = x.new_ones(length, length).triu(1).bool()"
        ),
    ),
    ("batch_first_forgotten", {", batch_first=True": ""}),
    ("heads_ignored", {"Attention(d_model, num_heads,": "Attention(d_model, 1,"}),
    ("attention_without_bias", {"batch_first=True": "bias=False, batch_first=True"}),
    (
        "course_s_attention",
        {
            T_ATTENTION: "self.self_attn = ManualMultiHeadAttention(d_model, num_heads, dropout)",
            "attended, _ =": "attended =",
            T_READS: "            normed,\n",
            f"            {T_MASK},\n": "",
            T_PADDING: "key_valid=None if key_padding_mask is None else ~key_padding_mask",
            "            need_weights=False,\n": "",
        },
    ),
    (
        "one_of_three_unnormalized",
        {T_READS: "            normed,\n            x,\n            x,\n"},
    ),
    (
        "one_of_three_unnormalized",
        {T_READS: "            x,\n            normed,\n            normed,\n"},
    ),
    (
        "one_of_three_unnormalized",
        {T_READS: "            normed,\n            normed,\n            x,\n"},
    ),
    ("d_ff_ignored", {"4 * d_model if d_ff is None else d_ff": "4 * d_model"}),
    ("default_d_ff_otherwise", {"4 * d_model if": "2 * d_model if"}),
    ("default_d_ff_otherwise", {"4 * d_model if": "d_model if"}),
    (
        "default_d_ff_otherwise",
        {"d_ff=None": "d_ff=2048", "4 * d_model if d_ff is None else d_ff": "d_ff"},
    ),
    ("none_for_d_ff_not_taken", {"4 * d_model if d_ff is None else d_ff": "d_ff"}),
    ("refusal_left_to_torch", {T_REFUSES + T_RAISES: ""}),
    (
        "raises_AssertionError",
        {T_REFUSES + T_RAISES: "        assert d_model % num_heads == 0\n"},
    ),
    (
        "raises_AssertionError",
        {T_REFUSES + T_RAISES: '        assert d_model % num_heads == 0, "no equal heads"\n'},
    ),
    ("remainder_the_wrong_way_round", {T_REFUSES: "        if num_heads % d_model:\n"}),
    ("remainder_the_wrong_way_round", {T_REFUSES: "        if d_model % num_heads == 0:\n"}),
]

P_SUM, P_POST = "x = self.norm1(x + attended)", "return self.norm2(x + self.ff(x))"
P_READS, P_PADDING = "self.attn(x, x, x, ", "key_padding_mask=key_padding_mask"
P_FF = """nn.Sequential(
            nn.Linear(embed_dim, ff_dim), nn.ReLU(), nn.Linear(ff_dim, embed_dim)
        )"""
P_UP, P_DOWN = "nn.Linear(embed_dim, ff_dim)", "nn.Linear(ff_dim, embed_dim)"
P_TURNED = "None if key_padding_mask is None else "


def p_first(edit):
    return {"        attended, _ =": f"        {edit}\n        attended, _ ="}


POST_NORM = [
    ("super_not_called", {"        super().__init__()\n": ""}),
    (
        "pre_norm_instead",
        {
            "        attended, _ =": "        h = self.norm1(x)\n        attended, _ =",
            P_READS: "self.attn(h, h, h, ",
            P_SUM: "x = x + attended",
            P_POST: "return x + self.ff(self.norm2(x))",
        },
    ),
    ("pre_norm_instead", {P_POST: "return x + self.ff(self.norm2(x))"}),
    ("norm_missing", {P_SUM: "x = x + attended"}),
    ("norm_missing", {P_POST: "return x + self.ff(x)"}),
    ("norm_missing", {P_SUM: "x = x + attended", P_POST: "return x + self.ff(x)"}),
    ("shortcut_missing", {P_SUM: "x = self.norm1(attended)"}),
    ("shortcut_missing", {P_POST: "return self.norm2(self.ff(x))"}),
    ("shortcut_missing", {P_SUM: "x = self.norm1(attended)", "x + self.ff(x))": "self.ff(x))"}),
    ("norm_behind_the_branch", {P_SUM: "x = x + self.norm1(attended)"}),
    (
        "norm_behind_the_branch",
        {P_SUM: "x = x + self.norm1(attended)", P_POST: "return x + self.norm2(self.ff(x))"},
    ),
    ("branch_missing", {P_POST: "return self.norm2(x)"}),
    ("branch_missing", {P_POST: "return x"}),
    ("branch_missing", {P_SUM: "x = self.norm1(x)"}),
    ("one_norm_used_for_both", {"self.norm2(x +": "self.norm1(x +"}),
    ("one_norm_used_for_both", {"self.norm1(x +": "self.norm2(x +"}),
    ("norms_exchanged", {P_SUM: P_SUM.replace("1", "2"), P_POST: P_POST.replace("2", "1")}),
    (
        "ffn_first",
        p_first("x = self.norm2(x + self.ff(x))")
        | {P_SUM: "return self.norm1(x + attended)", f"        {P_POST}\n": ""},
    ),
    (
        "ffn_first",
        p_first("x = self.norm1(x + self.ff(x))")
        | {P_SUM: "return self.norm2(x + attended)", f"        {P_POST}\n": ""},
    ),
    (
        "all_branches_side_by_side",
        {f"        {P_SUM}\n": "", P_POST: "return self.norm2(x + attended + self.ff(x))"},
    ),
    (
        "all_branches_side_by_side",
        {
            f"        {P_SUM}\n": "",
            P_POST: "return self.norm2(self.norm1(x + attended) + self.ff(x))",
        },
    ),
    (
        "later_sum_starts_from_x_again",
        {P_SUM: "h = self.norm1(x + attended)", "self.ff(x))": "self.ff(h))"},
    ),
    (
        "second_sum_takes_the_sum_before_its_norm",
        {P_SUM: "x = x + attended", "self.ff(x))": "self.ff(self.norm1(x)))"},
    ),
    ("changes_x_in_place", {P_SUM: "x += attended\n        x = self.norm1(x)"}),
    ("changes_x_in_place", {P_POST: "x += self.ff(x)\n        return self.norm2(x)"}),
    ("branch_detached", {"x + attended": "x + attended.detach()"}),
    ("branch_detached", {"+ self.ff(x)": "+ self.ff(x).detach()"}),
    ("branch_detached", {"+ self.ff(x)": "+ self.ff(x.detach())"}),
    ("shortcut_detached", {"x + attended": "x.detach() + attended"}),
    ("shortcut_detached", {"x + self.ff": "x.detach() + self.ff"}),
    ("forgot_to_return", {"return self": "x = self"}),
    ("returns_a_tuple", {"attended, _ =": "attended, weights =", P_POST: f"{P_POST}, weights"}),
    (
        "no_gradient_at_all",
        with_torch("PostNormBlock", {"    def forward": "    @torch.no_grad()\n    def forward"}),
    ),
    ("returns_float32", {"self.ff(x))\n": "self.ff(x)).float()\n"}),
    (
        "tensor_made_on_the_cpu",
        with_torch(
            "PostNormBlock",
            p_first(
                "if key_padding_mask is None:\n            "
                "key_padding_mask = torch.zeros(x.shape[:2], dtype=torch.bool)"
            ),
        ),
    ),
    (
        "one_norm_under_all_names",
        {"self.norm2 = nn.LayerNorm(embed_dim)": "self.norm2 = self.norm1"},
    ),
    (
        "norms_called_otherwise",
        {
            "self.norm1 =": "self.ln1 =",
            "self.norm2 =": "self.ln2 =",
            "self.norm1(": "self.ln1(",
            "self.norm2(": "self.ln2(",
        },
    ),
    (
        "attention_called_otherwise",
        {"self.attn =": "self.self_attn =", "self.attn(": "self.self_attn("},
    ),
    ("ffn_called_otherwise", {"self.ff =": "self.mlp =", "self.ff(": "self.mlp("}),
    (
        "ffn_called_otherwise",
        {
            f"self.ff = {P_FF}": f"self.linear1 = {P_UP}\n        self.linear2 = {P_DOWN}",
            "self.ff(x)": "self.linear2(F.relu(self.linear1(x)))",
        },
    ),
    (
        "sublayers_in_a_list",
        {
            "self.norm1 = nn.LayerNorm(embed_dim)": "self.norms = []",
            "self.norm2 = nn": "self.norms = [nn.LayerNorm(embed_dim), nn",
            "LayerNorm(embed_dim)\n        ### END": "LayerNorm(embed_dim)]\n        ### END",
            "self.norm1(": "self.norms[0](",
            "self.norm2(": "self.norms[1](",
        },
    ),
    (
        "sublayers_in_a_list",
        {
            f"self.ff = {P_FF}": f"self.ff = [{P_UP}, {P_DOWN}]",
            "self.ff(x)": "self.ff[1](self.ff[0](x).relu())",
        },
    ),
    (
        "norms_without_bias",
        {
            "self.norm1 = nn.LayerNorm": "self.norm1 = nn.RMSNorm",
            "self.norm2 = nn.LayerNorm": "self.norm2 = nn.RMSNorm",
        },
    ),
    (
        "one_norm_too_many",
        {
            "self.norm1 =": "self.norm3 = nn.LayerNorm(embed_dim)\n        self.norm1 =",
            P_POST: "return self.norm3(self.norm2(x + self.ff(x)))",
        },
    ),
    (
        "sizes_called_otherwise",
        {
            "(self, embed_dim,": "(self, d_model,",
            "super().__init__()\n": "super().__init__()\n        embed_dim = d_model\n",
        },
    ),
    (
        "sizes_called_otherwise",
        {
            "num_heads, ff_dim)": "num_heads, d_ff)",
            "super().__init__()\n": "super().__init__()\n        ff_dim = d_ff\n",
        },
    ),
    ("gelu_for_relu", {"nn.ReLU()": "nn.GELU()"}),
    ("other_activation", {"nn.ReLU()": "nn.SiLU()"}),
    ("other_activation", {"nn.ReLU()": "nn.LeakyReLU()"}),
    ("other_activation", {"nn.ReLU()": "nn.Tanh()"}),
    ("no_activation", {"nn.ReLU(), ": ""}),
    (
        "activation_behind_the_second_layer",
        {
            "nn.ReLU(), ": "",
            "nn.Linear(ff_dim, embed_dim)\n": "nn.Linear(ff_dim, embed_dim), nn.ReLU()\n",
        },
    ),
    (
        "hidden_width_otherwise",
        {
            P_UP: "nn.Linear(embed_dim, 4 * embed_dim)",
            P_DOWN: "nn.Linear(4 * embed_dim, embed_dim)",
        },
    ),
    (
        "hidden_width_otherwise",
        {P_UP: "nn.Linear(embed_dim, embed_dim)", P_DOWN: "nn.Linear(embed_dim, embed_dim)"},
    ),
    (
        "ffn_without_bias",
        {P_UP: P_UP.replace(")", ", bias=False)"), P_DOWN: P_DOWN.replace(")", ", bias=False)")},
    ),
    ("drops_unasked", {"num_heads, batch": "num_heads, 0.1, batch"}),
    ("drops_unasked", {P_SUM: "x = self.norm1(x + F.dropout(attended, 0.1, self.training))"}),
    ("pair_not_taken_apart", {"attended, _ =": "attended ="}),
    ("padding_ignored", {f"{P_PADDING}, ": ""}),
    ("padding_inverted", {P_PADDING: f"key_padding_mask={P_TURNED}~key_padding_mask"}),
    ("none_turned_over", {P_PADDING: "key_padding_mask=~key_padding_mask"}),
    (
        "padding_hidden_as_queries",
        {
            f"{P_PADDING}, ": "",
            "        attended, _ =": "        if key_padding_mask is not None:\n            "
            "x = x.masked_fill(key_padding_mask[:, :, None], 0.0)\n        attended, _ =",
        },
    ),
    ("masks_exchanged", {P_PADDING: "attn_mask=key_padding_mask"}),
    (
        "always_causal",
        p_first("blocked = x.new_ones(x.shape[1], x.shape[1]).triu(1).bool()")
        | {P_PADDING: f"{P_PADDING}, attn_mask=blocked"},
    ),
    ("batch_first_forgotten", {", batch_first=True": ""}),
    ("heads_ignored", {"(embed_dim, num_heads, batch": "(embed_dim, 1, batch"}),
    ("attention_without_bias", {"batch_first=True": "bias=False, batch_first=True"}),
    (
        "course_s_attention",
        {
            "nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)": (
                "ManualMultiHeadAttention(embed_dim, num_heads)"
            ),
            "attended, _ =": "attended =",
            P_READS: "self.attn(x, ",
            P_PADDING: f"key_valid={P_TURNED}~key_padding_mask",
            ", need_weights=False": "",
        },
    ),
]

F_SUM, F_POST = "x = x + self.attend(self.ln1(x))", "return x + self.mlp(self.ln2(x))"
F_NORMS = "self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)"
F_MLP = "nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))"
F_THIRDS, F_NAMES = "self.qkv(x).chunk(3, dim=-1)", "query, key, value = ("
F_SPLIT = "third.unflatten(-1, (self.heads, -1)).transpose(1, 2)"
F_MERGE = "mixed.transpose(1, 2).flatten(2)"
F_SDPA = "mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)"
LATER = "x.new_ones(x.shape[1], x.shape[1]).triu(1).bool()"


def by_hand(mask=LATER, scale="query.shape[-1] ** 0.5", fill='float("-inf")', last="softmax(-1)"):
    """The attention of a FusedBlock without torch's own."""
    return {
        F_SDPA: f"scores = query @ key.transpose(-2, -1) / ({scale})\n"
        f"        blocked = {mask}\n"
        f"        mixed = scores.masked_fill(blocked, {fill}).{last} @ value"
    }


FUSED = [
    ("super_not_called", {"        super().__init__()\n": ""}),
    (
        "post_norm_instead",
        {F_SUM: "x = self.ln1(x + self.attend(x))", F_POST: "return self.ln2(x + self.mlp(x))"},
    ),
    ("normalized_input_added", {F_SUM: "x = self.ln1(x)\n        x = x + self.attend(x)"}),
    (
        "normalized_input_added",
        {
            F_SUM: "x = self.ln1(x)\n        x = x + self.attend(x)",
            F_POST: "x = self.ln2(x)\n        return x + self.mlp(x)",
        },
    ),
    ("branch_reads_x_itself", {"self.ln1(x)": "x"}),
    ("branch_reads_x_itself", {"self.ln2(x)": "x"}),
    ("shortcut_missing", {"x = x + self": "x = self"}),
    ("shortcut_missing", {"return x + self": "return self"}),
    ("shortcut_missing", {"x = x + self": "x = self", "return x + self": "return self"}),
    (
        "norm_behind_the_branch",
        {
            "self.attend(self.ln1(x))": "self.ln1(self.attend(x))",
            "self.mlp(self.ln2(x))": "self.ln2(self.mlp(x))",
        },
    ),
    ("norm_behind_the_branch", {"self.attend(self.ln1(x))": "self.ln1(self.attend(x))"}),
    ("branch_missing", {F_POST: "return x"}),
    ("branch_missing", {f"        {F_SUM}\n": ""}),
    ("one_norm_used_for_all", {"self.ln2(x)": "self.ln1(x)"}),
    ("norms_exchanged", {F_SUM: F_SUM.replace("ln1", "ln2"), F_POST: F_POST.replace("ln2", "ln1")}),
    (
        "ffn_first",
        {F_SUM: "x = x + self.mlp(self.ln2(x))", F_POST: "return x + self.attend(self.ln1(x))"},
    ),
    (
        "ffn_first",
        {F_SUM: "x = x + self.mlp(self.ln1(x))", F_POST: "return x + self.attend(self.ln2(x))"},
    ),
    (
        "all_branches_side_by_side",
        {f"        {F_SUM}\n": "", "return x +": "return x + self.attend(self.ln1(x)) +"},
    ),
    ("later_sum_starts_from_x_again", {"x = x +": "h = x +", "self.ln2(x)": "self.ln2(h)"}),
    ("changes_x_in_place", {"x = x +": "x +="}),
    ("changes_x_in_place", {F_POST: "x += self.mlp(self.ln2(x))\n        return x"}),
    ("shortcut_detached", {"x = x +": "x = x.detach() +"}),
    ("branch_detached", {"self.attend(self.ln1(x))": "self.attend(self.ln1(x)).detach()"}),
    ("branch_detached", {"self.mlp(self.ln2(x))": "self.mlp(self.ln2(x).detach())"}),
    ("forgot_to_return", {"return x +": "x = x +"}),
    ("attend_returns_nothing", {"return self.proj": "x = self.proj"}),
    (
        "no_gradient_at_all",
        with_torch("FusedBlock", {"    def forward": "    @torch.no_grad()\n    def forward"}),
    ),
    ("returns_float32", {F_POST: "return (x + self.mlp(self.ln2(x))).float()"}),
    ("one_norm_under_all_names", {F_NORMS: "self.ln1 = self.ln2 = nn.LayerNorm(d)"}),
    (
        "norms_called_otherwise",
        {
            F_NORMS: F_NORMS.replace("ln", "norm"),
            "self.ln1(": "self.norm1(",
            "self.ln2(": "self.norm2(",
        },
    ),
    (
        "attention_called_otherwise",
        {"self.qkv =": "self.c_attn =", "self.qkv(": "self.c_attn("},
    ),
    (
        "attention_called_otherwise",
        {"self.proj =": "self.out_proj =", "self.proj(": "self.out_proj("},
    ),
    ("ffn_called_otherwise", {"self.mlp =": "self.ffn =", "self.mlp(": "self.ffn("}),
    (
        "sublayers_in_a_list",
        {
            F_NORMS: "self.norms = [nn.LayerNorm(d) for _ in range(2)]",
            "self.ln1(": "self.norms[0](",
            "self.ln2(": "self.norms[1](",
        },
    ),
    ("norms_without_bias", {F_NORMS: "self.ln1, self.ln2 = nn.RMSNorm(d), nn.RMSNorm(d)"}),
    (
        "norms_without_bias",
        {
            F_NORMS: "self.ln1, self.ln2 = (nn.LayerNorm(d, bias=False) for _ in range(2))",
        },
    ),
    (
        "one_norm_too_many",
        {
            F_NORMS: f"{F_NORMS}\n        self.ln_f = nn.LayerNorm(d)",
            F_POST: "return self.ln_f(x + self.mlp(self.ln2(x)))",
        },
    ),
    (
        "sizes_called_otherwise",
        {
            "(self, d, heads)": "(self, d, num_heads)",
            "self.heads = heads": "self.heads = num_heads",
        },
    ),
    (
        "sizes_called_otherwise",
        {
            "(self, d, heads)": "(self, d_model, heads)",
            "self.heads =": "d = d_model\n        self.heads =",
        },
    ),
    ("relu_for_gelu", {"nn.GELU()": "nn.ReLU()"}),
    ("tanh_form_of_gelu", {"nn.GELU()": 'nn.GELU(approximate="tanh")'}),
    ("other_activation", {"nn.GELU()": "nn.SiLU()"}),
    ("no_activation", {"nn.GELU(), ": ""}),
    (
        "activation_behind_the_second_layer",
        {"nn.GELU(), ": "", "(4 * d, d))": "(4 * d, d), nn.GELU())"},
    ),
    ("hidden_width_otherwise", {"(d, 4 * d)": "(d, 2 * d)", "(4 * d, d)": "(2 * d, d)"}),
    ("hidden_width_otherwise", {"(d, 4 * d)": "(d, d)", "(4 * d, d)": "(d, d)"}),
    (
        "ffn_without_bias",
        {"(d, 4 * d)": "(d, 4 * d, bias=False)", "(4 * d, d)": "(4 * d, d, bias=False)"},
    ),
    ("drops_unasked", {"(4 * d, d))": "(4 * d, d), nn.Dropout(0.1))"}),
    ("drops_unasked", {F_SDPA: F_SDPA.replace(", is", ", dropout_p=0.1, is")}),
    ("thirds_in_another_order", {F_NAMES: "key, query, value = ("}),
    ("thirds_in_another_order", {F_NAMES: "value, key, query = ("}),
    ("thirds_in_another_order", {F_NAMES: "key, value, query = ("}),
    (
        "heads_cut_before_the_thirds",
        {
            F_THIRDS: "self.qkv(x).unflatten(-1, (self.heads, -1)).chunk(3, dim=-1)",
            F_SPLIT: "third.transpose(1, 2)",
        },
    ),
    (
        "every_third_feature",
        {F_THIRDS: "self.qkv(x).unflatten(-1, (-1, 3)).unbind(-1)"},
    ),
    ("every_third_feature", {F_THIRDS: "[self.qkv(x)[..., i::3] for i in range(3)]"}),
    (
        "split_without_transpose",
        {F_SPLIT: "third.reshape(len(x), self.heads, x.shape[1], -1)"},
    ),
    (
        "attention_between_heads",
        {F_SPLIT: F_SPLIT.replace(".transpose(1, 2)", ""), F_MERGE: "mixed.flatten(2)"},
    ),
    (
        "heads_dealt_out",
        {F_SPLIT: "third.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2)"},
    ),
    (
        "merged_without_transpose",
        {F_MERGE: "mixed.reshape(x.shape)"},
    ),
    ("a_single_head", {F_SPLIT: "third[:, None]"}),
    ("a_single_head", {"self.heads = heads": "self.heads = 1"}),
    ("not_scaled", {"is_causal=True)": "is_causal=True, scale=1.0)"}),
    ("not_scaled", by_hand(scale="1.0")),
    ("scaled_by_another_number", by_hand(scale="query.shape[-1]")),
    ("scaled_by_another_number", by_hand(scale="x.shape[-1] ** 0.5")),
    ("not_causal", {", is_causal=True": ""}),
    ("mask_inverted", {"is_causal=True": f"attn_mask={LATER}"}),
    ("mask_inverted", by_hand(mask=f"~{LATER}")),
    ("mask_inverted", by_hand(mask=LATER.replace("triu(1)", "tril()"))),
    ("next_token_visible", by_hand(mask=LATER.replace("triu(1)", "triu(2)"))),
    ("itself_blocked", by_hand(mask=LATER.replace("triu(1)", "triu()"))),
    (
        "masked_after_the_softmax",
        {
            F_SDPA: "weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)\n"
            f"        mixed = weights.masked_fill({LATER}, 0.0) @ value"
        },
    ),
    ("filled_with_a_small_number", by_hand(fill="0.0")),
    ("filled_with_a_small_number", by_hand(fill="-100.0")),
    ("filled_with_a_small_number", by_hand(fill="-1e4")),
    ("fill_too_low_for_half_precision", by_hand(fill="-1e9")),
    ("softmax_over_the_queries", by_hand(last="softmax(-2)")),
    ("softmax_over_the_heads", by_hand(last="softmax(1)")),
    (
        "proj_unused",
        {"self.proj(mixed.transpose(1, 2).flatten(2))": "mixed.transpose(1, 2).flatten(2)"},
    ),
    (
        "tensor_made_on_the_cpu",
        with_torch("FusedBlock", by_hand(mask="torch.ones(x.shape[1], x.shape[1]).triu(1).bool()")),
    ),
    (
        "tensor_made_on_the_cpu",
        with_torch(
            "FusedBlock",
            {
                "heads = heads": "heads = heads\n        self.mask = torch.ones(99, 99).tril() > 0",
                "is_causal=True": "attn_mask=self.mask[: x.shape[1], : x.shape[1]]",
            },
        ),
    ),
    ("qkv_without_bias", {"nn.Linear(d, 3 * d)": "nn.Linear(d, 3 * d, bias=False)"}),
    ("qkv_without_bias", {"nn.Linear(d, d)": "nn.Linear(d, d, bias=False)"}),
    (
        "qkv_without_bias",
        {
            "nn.Linear(d, 3 * d)": "nn.Linear(d, 3 * d, bias=False)",
            "nn.Linear(d, d)": "nn.Linear(d, d, bias=False)",
        },
    ),
    ("proj_missing", {"        self.proj = nn.Linear(d, d)\n": "", "self.proj(": "("}),
    (
        "three_projections",
        {
            "self.qkv = nn.Linear(d, 3 * d)": (
                "self.query, self.key, self.value = (nn.Linear(d, d) for _ in range(3))"
            ),
            F_THIRDS: "self.query(x), self.key(x), self.value(x)",
        },
    ),
    (
        "three_projections",
        {
            "self.qkv = nn.Linear(d, 3 * d)": "self.q_proj = nn.Linear(d, d)\n"
            "        self.k_proj = nn.Linear(d, d)\n        self.v_proj = nn.Linear(d, d)",
            F_THIRDS: "self.q_proj(x), self.k_proj(x), self.v_proj(x)",
        },
    ),
]

R_MAKES = ".to(first.weight)  # the block's dtype and device, before anything is rounded"
R_COPIES = {
    f"{mine}": f"        reference.{theirs}.load_state_dict({mine}.state_dict())\n"
    for mine, theirs in (
        ("block.ln1", "norm1"),
        ("block.self_attn", "self_attn"),
        ("block.ln2", "norm2"),
        ("first", "linear1"),
        ("second", "linear2"),
    )
}


def r_line(mine):
    return R_COPIES[mine].replace("        ", "    ", 1)


TO_REFERENCE = [
    ("post_norm_layer", {"        norm_first=True,\n": ""}),
    ("relu_layer", {'        activation="gelu",\n': ""}),
    ("batch_second_layer", {"        batch_first=True,\n": ""}),
    (
        "all_flags_left_out",
        {
            '        activation="gelu",\n        norm_first=True,\n        batch_first=True,\n': "",
        },
    ),
    ("all_flags_left_out", {'        activation="gelu",\n        norm_first=True,\n': ""}),
    ("all_flags_left_out", {"        norm_first=True,\n        batch_first=True,\n": ""}),
    ("nothing_copied", {r_line(one): "" for one in R_COPIES}),
    *(("some_weights_not_copied", {r_line(one): ""}) for one in R_COPIES),
    ("some_weights_not_copied", {r_line("block.ln1"): "", r_line("block.ln2"): ""}),
    (
        "some_weights_not_copied",
        {r_line("block.ln1"): "    reference.norm1.weight.data.copy_(block.ln1.weight)\n"},
    ),
    (
        "some_weights_not_copied",
        {
            r_line("first"): "    reference.linear1.weight.data.copy_(first.weight)\n",
            r_line("second"): "    reference.linear2.weight.data.copy_(second.weight)\n",
        },
    ),
    (
        "norms_exchanged",
        {"reference.norm1": "reference.norm2", "reference.norm2": "reference.norm1"},
    ),
    ("heads_otherwise", {"nhead=block.self_attn.num_heads": "nhead=1"}),
    ("heads_otherwise", {"nhead=block.self_attn.num_heads": "nhead=4"}),
    ("hidden_width_otherwise", {"        dim_feedforward=first.out_features,\n": ""}),
    (
        "hidden_width_otherwise",
        {"dim_feedforward=first.out_features": "dim_feedforward=4 * block.self_attn.embed_dim"},
    ),
    *(
        ("weights_shared", {r_line(mine): f"    reference.{instead}\n"})
        for mine, instead in (
            ("block.self_attn", "self_attn = block.self_attn"),
            ("block.ln1", "norm1 = block.ln1"),
            ("first", "linear1.weight, reference.linear1.bias = first.weight, first.bias"),
            (
                "block.ln2",
                "norm2.weight.data = block.ln2.weight.data\n"
                "    reference.norm2.bias.data = block.ln2.bias.data",
            ),
        )
    ),
    ("mode_of_the_block_changed", {"    first, second =": "    block.eval()\n    first, second ="}),
    (
        "mode_of_the_block_changed",
        {"    return reference": "    block.train()\n    return reference"},
    ),
    ("float32_for_every_block", {R_MAKES: ""}),
    ("rounded_on_the_way", {R_MAKES: "", "return reference": "return reference.to(first.weight)"}),
    ("layer_left_on_the_cpu", {R_MAKES: ".to(first.weight.dtype)"}),
    ("returns_no_layer", {"return reference": "return reference.state_dict()"}),
    ("returns_no_layer", {"return reference": "return block"}),
    ("returns_no_layer", {"return reference": "return reference, block"}),
    ("forgot_to_return", {"    return reference\n": ""}),
    ("linear_layers_exchanged", {"first, second = (": "second, first = ("}),
    (
        "linear_layers_exchanged",
        {"reference.linear1": "reference.linear2", "reference.linear2": "reference.linear1"},
    ),
]

PARAMETERS = [
    ("four_rows_missing", {"(d_model * d_model + d_model)": "(d_model * d_model)"}),
    ("four_rows_missing", {"    norms = 2 * (d_model + d_model)\n": "", " + norms": ""}),
    ("three_projections", {"4 * (": "3 * ("}),
    ("three_projections", {"4 * (d_model * d_model + d_model)": "3 * d_model * d_model"}),
    ("no_bias_in_the_ffn", {" + d_ff + d_model": ""}),
    ("ffn_s_biases_alike", {" + d_ff + d_model": " + 2 * d_model"}),
    ("ffn_s_biases_alike", {" + d_ff + d_model": " + 2 * d_ff"}),
    ("ffn_s_biases_alike", {" + d_ff + d_model": " + d_model"}),
    ("one_matrix_in_the_ffn", {"2 * d_model * d_ff": "d_model * d_ff"}),
    ("one_norm", {"2 * (d_model + d_model)": "d_model + d_model"}),
    ("one_norm", {"2 * (d_model + d_model)": "2 * d_model"}),
    ("three_norms", {"2 * (d_model + d_model)": "3 * (d_model + d_model)"}),
    (
        "biases_missing",
        {"(d_model * d_model + d_model)": "d_model * d_model", " + d_ff + d_model": ""},
    ),
    (
        "biases_missing",
        {
            "(d_model * d_model + d_model)": "d_model * d_model",
            " + d_ff + d_model": "",
            "2 * (d_model + d_model)": "2 * d_model",
        },
    ),
    ("d_ff_ignored", {"    ### BEGIN": "    d_ff = 4 * d_model\n    ### BEGIN"}),
    ("not_an_int", {"return attention": "return 1.0 * attention"}),
    ("not_an_int", {"attention + ffn + norms": "(attention + ffn + norms) / 1"}),
    ("forgot_to_return", {"return attention": "total = attention"}),
    ("forgot_to_return", {"return attention": "print(attention", " + norms\n": " + norms)\n"}),
]

# The blocks of the course's parts: what all three have, by the block's own text of attention.
C_FFN = "self.feed_forward = FeedForward(d_model, hidden_dim, dropout)"
C_SUM = "x = x + self.feed_forward(self.ffn_norm(x))"
MADE = "ManualLayerNorm(d_model)"
C_NORM = f"self.ffn_norm = {MADE}"
C_UP, C_DOWN = "nn.Linear(d_model, hidden_dim)", "nn.Linear(hidden_dim, d_model)"
C_MADE = (
    "self.self_attention = ManualMultiHeadAttention(d_model, num_heads, dropout, use_rope=True)"
)


def c_ffn(*layers):
    return {C_FFN: f"self.feed_forward = nn.Sequential({', '.join(layers)}, nn.Dropout(dropout))"}


def course(name, norms, adds, fill):
    """Slips that are made alike in each: `adds` is attention's sum, `fill` the last step."""
    branch, norm = adds.removeprefix("x = x + "), norms[0]
    reads = f"self.{norm}(x)"
    made = {one: f"self.{one} = ManualLayerNorm(d_model)" for one in norms}
    in_a_list = {made[one]: f"self.norms.append({MADE})" for one in norms}
    in_a_list[made[norm]] = f"self.norms = [{MADE}]"
    in_a_list |= {f"self.{one}(x)": f"self.norms[{place}](x)" for place, one in enumerate(norms)}
    return [
        (
            "normalized_input_added",
            {C_SUM: "x = self.ffn_norm(x)\n        x = x + self.feed_forward(x)"},
        ),
        ("branch_reads_x_itself", {reads: "x"}),
        ("branch_reads_x_itself", {"self.ffn_norm(x)": "x"}),
        ("shortcut_missing", {adds: f"x = {branch}"}),
        ("shortcut_missing", {C_SUM: "x = self.feed_forward(self.ffn_norm(x))"}),
        ("norm_behind_the_branch", {C_SUM: "x = x + self.ffn_norm(self.feed_forward(x))"}),
        ("branch_missing", {f"        {C_SUM}\n": ""}),
        ("one_norm_used_for_all", {f"self.{one}(x)": reads for one in norms[1:]}),
        ("norms_exchanged", {reads: "self.ffn_norm(x)", C_SUM: C_SUM.replace("ffn_norm", norm)}),
        ("changes_x_in_place", {adds: f"x += {branch}"}),
        ("shortcut_detached", {adds: f"x = x.detach() + {branch}"}),
        ("shortcut_detached", {C_SUM: C_SUM.replace("x +", "x.detach() +")}),
        ("branch_detached", {C_SUM: f"{C_SUM}.detach()"}),
        ("branch_detached", {reads: f"{reads}.detach()"}),
        (
            "no_gradient_at_all",
            with_torch(name, {"    def forward": "    @torch.no_grad()\n    def forward"}),
        ),
        (
            "one_norm_under_all_names",
            {made[one]: f"self.{one} = self.{norm}" for one in norms[1:]},
        ),
        (
            "norms_called_otherwise",
            {
                C_NORM: "self.ff_norm = ManualLayerNorm(d_model)",
                "self.ffn_norm(x)": "self.ff_norm(x)",
            },
        ),
        (
            "attention_called_otherwise",
            {
                "self.self_attention =": "self.attention =",
                "self.self_attention(": "self.attention(",
            },
        ),
        (
            "ffn_called_otherwise",
            {"self.feed_forward =": "self.ffn =", "self.feed_forward(": "self.ffn("},
        ),
        (
            "ffn_called_otherwise",
            {
                C_FFN: f"self.fc1, self.fc2 = {C_UP}, {C_DOWN}",
                "feed_forward(self.ffn_norm(x))": "fc2(F.gelu(self.fc1(self.ffn_norm(x))))",
            },
        ),
        ("sublayers_in_a_list", in_a_list),
        ("norms_without_bias", {made[one]: f"self.{one} = nn.RMSNorm(d_model)" for one in norms}),
        (
            "one_norm_too_many",
            {
                C_NORM: f"{C_NORM}\n        self.final_norm = ManualLayerNorm(d_model)",
                C_SUM: f"{C_SUM}\n        x = self.final_norm(x)",
            },
        ),
        (
            "sizes_called_otherwise",
            {
                "hidden_dim, dropout=": "d_ff, dropout=",
                "super().__init__()\n": "super().__init__()\n        hidden_dim = d_ff\n",
            },
        ),
        ("relu_for_gelu", c_ffn(C_UP, "nn.ReLU()", C_DOWN)),
        ("tanh_form_of_gelu", c_ffn(C_UP, 'nn.GELU(approximate="tanh")', C_DOWN)),
        ("other_activation", c_ffn(C_UP, "nn.SiLU()", C_DOWN)),
        ("no_activation", c_ffn(C_UP, C_DOWN)),
        ("activation_behind_the_second_layer", c_ffn(C_UP, C_DOWN, "nn.GELU()")),
        (
            "hidden_width_otherwise",
            {"(d_model, hidden_dim, dropout)": "(d_model, 4 * d_model, dropout)"},
        ),
        (
            "hidden_width_otherwise",
            {"(d_model, hidden_dim, dropout)": "(d_model, d_model, dropout)"},
        ),
        (
            "ffn_without_bias",
            c_ffn(
                C_UP.replace(")", ", bias=False)"),
                "nn.GELU()",
                C_DOWN.replace(")", ", bias=False)"),
            ),
        ),
        (
            "dropout_on_the_stream",
            {
                C_FFN: f"{C_FFN}\n        self.dropout = nn.Dropout(dropout)",
                C_SUM: "x = self.dropout(x + self.feed_forward(self.ffn_norm(x)))",
            },
        ),
        (
            "dropout_on_the_stream",
            {
                C_FFN: f"{C_FFN}\n        self.dropout = nn.Dropout(dropout)",
                adds: f"x = self.dropout({adds.removeprefix('x = ')})",
                C_SUM: "x = self.dropout(x + self.feed_forward(self.ffn_norm(x)))",
            },
        ),
        (
            "drops_in_eval_too",
            {
                C_FFN: f"{C_FFN}\n        self.p = dropout",
                C_SUM: "x = x + F.dropout(self.feed_forward(self.ffn_norm(x)), self.p)",
            },
        ),
        ("fixed_dropout", {"hidden_dim, dropout)": "hidden_dim, 0.1)"}),
        ("keep_probability", {"hidden_dim, dropout)": "hidden_dim, 1 - dropout)"}),
        ("drops_by_default", {"dropout=0.0": "dropout=0.1"}),
        ("no_rope", {", use_rope=True": ""}),
        ("heads_ignored", {C_MADE: C_MADE.replace("num_heads", "1")}),
        ("real_rows_made_zero", {fill: fill.replace("~", "")}),
        ("super_not_called", {"        super().__init__()\n": ""}),
    ]


def dropped_nowhere(*names):
    return {f"(d_model, {name}, dropout": f"(d_model, {name}" for name in names}


E_SUM = "x = x + self.self_attention(self.attention_norm(x), key_valid=valid_tokens)"
E_FILL = "x.masked_fill(~valid_tokens[:, :, None], 0.0)"
ENCODER = [
    *course("EncoderBlock", ("attention_norm", "ffn_norm"), E_SUM, E_FILL),
    (
        "post_norm_instead",
        {
            E_SUM: "x = self.attention_norm(x + self.self_attention(x, key_valid=valid_tokens))",
            C_SUM: "x = self.ffn_norm(x + self.feed_forward(x))",
        },
    ),
    (
        "normalized_input_added",
        {
            E_SUM: "x = self.attention_norm(x)\n        "
            + E_SUM.replace("self.attention_norm(x)", "x")
        },
    ),
    (
        "norm_behind_the_branch",
        {E_SUM: "x = x + self.attention_norm(self.self_attention(x, key_valid=valid_tokens))"},
    ),
    ("branch_missing", {f"        {E_SUM}\n": ""}),
    ("ffn_first", {E_SUM: C_SUM, C_SUM: E_SUM}),
    (
        "all_branches_side_by_side",
        {f"        {E_SUM}\n": "", C_SUM: f"{C_SUM} + {E_SUM.removeprefix('x = x + ')}"},
    ),
    (
        "later_sum_starts_from_x_again",
        {E_SUM: f"h{E_SUM[1:]}", "self.ffn_norm(x)": "self.ffn_norm(h)"},
    ),
    ("forgot_to_return", {"return x": "x = x"}),
    ("returns_a_tuple", {f"return {E_FILL}": f"return {E_FILL}, valid_tokens"}),
    ("returns_float32", {E_FILL: f"{E_FILL}.float()"}),
    ("dropout_ignored", dropped_nowhere("num_heads", "hidden_dim")),
    ("padding_not_hidden", {", key_valid=valid_tokens": ""}),
    ("padding_inverted", {"key_valid=": "key_valid=~"}),
    ("padding_not_hidden", {"key_valid=": "query_valid="}),
    ("causal_encoder", {"key_valid=valid_tokens": "key_valid=valid_tokens, causal=True"}),
    (
        "no_rope",
        {
            "(self.attention_norm(x), ": "(self.attention_norm(x), self.attention_norm(x), ",
        },
    ),
    ("padded_rows_left_as_they_are", {f"return {E_FILL}": "return x"}),
    ("padded_rows_left_as_they_are", {f"return {E_FILL}": f"{E_FILL}\n        return x"}),
    (
        "padded_rows_left_as_they_are",
        {
            "return x.masked_fill(~valid_tokens[:, :, None], 0.0)": "return x",
            "key_valid=": "query_valid=valid_tokens, key_valid=",
        },
    ),
    (
        "silenced_before_the_ffn",
        {C_SUM: f"x = {E_FILL}\n        {C_SUM}", f"        return {E_FILL}": "        return x"},
    ),
]

D_SELF = (
    "x = x + self.self_attention(self.self_norm(x), key_valid=target_valid_tokens, causal=True)"
)
D_CROSS = "x = x + self.cross_attention(self.cross_norm(x), memory, key_valid=memory_valid_tokens)"
D_FILL = "x.masked_fill(~target_valid_tokens[:, :, None], 0.0)"
D_ASKS = "self.cross_attention(self.cross_norm(x), memory, "
DECODER = [
    *course("DecoderBlock", ("self_norm", "cross_norm", "ffn_norm"), D_SELF, D_FILL),
    (
        "post_norm_instead",
        {
            "self.self_norm(x)": "x",
            D_CROSS: "x = self.self_norm(x)\n        "
            f"{D_CROSS.replace('self.cross_norm(x)', 'x')}\n        x = self.cross_norm(x)",
            C_SUM: "x = self.ffn_norm(x + self.feed_forward(x))",
        },
    ),
    ("branch_reads_x_itself", {"self.cross_norm(x)": "x"}),
    ("shortcut_missing", {D_CROSS: D_CROSS.replace("x + ", "")}),
    ("branch_missing", {f"        {D_SELF}\n": ""}),
    ("branch_missing", {f"        {D_CROSS}\n": ""}),
    ("ffn_first", {D_SELF: f"{C_SUM}\n        {D_SELF}", f"        {C_SUM}\n": ""}),
    (
        "all_branches_side_by_side",
        {
            D_SELF: f"first{D_SELF[1:].replace('x + ', '')}",
            D_CROSS: f"second{D_CROSS[1:].replace('x + ', '')}",
            C_SUM: f"{C_SUM} + first + second",
        },
    ),
    (
        "later_sum_starts_from_x_again",
        {D_CROSS: f"h{D_CROSS[1:]}", "self.ffn_norm(x)": "self.ffn_norm(h)"},
    ),
    (
        "later_sum_starts_from_x_again",
        {
            D_SELF: f"h{D_SELF[1:]}",
            D_CROSS: f"h{D_CROSS[1:]}".replace("norm(x)", "norm(h)"),
            "self.ffn_norm(x)": "self.ffn_norm(h)",
        },
    ),
    ("branch_detached", {D_CROSS: f"{D_CROSS}.detach()"}),
    ("memory_detached", {D_ASKS: D_ASKS.replace("memory", "memory.detach()")}),
    ("forgot_to_return", {"return x": "x = x"}),
    ("returns_a_tuple", {f"return {D_FILL}": f"return {D_FILL}, memory"}),
    ("returns_float32", {D_FILL: f"{D_FILL}.float()"}),
    (
        "norms_called_otherwise",
        {"self.cross_norm =": "self.memory_norm =", "self.cross_norm(": "self.memory_norm("},
    ),
    (
        "attention_called_otherwise",
        {
            "self.cross_attention =": "self.cross_attn =",
            "self.cross_attention(": "self.cross_attn(",
        },
    ),
    (
        "dropout_ignored",
        dropped_nowhere("hidden_dim")
        | {"num_heads, dropout, use": "num_heads, use", "num_heads, dropout)": "num_heads)"},
    ),
    (
        "heads_ignored",
        {
            C_MADE: C_MADE.replace("num_heads", "1"),
            "(d_model, num_heads, dropout)": "(d_model, 1, dropout)",
        },
    ),
    ("padding_not_hidden", {" key_valid=target_valid_tokens,": ""}),
    ("padding_not_hidden", {"key_valid=target_valid": "query_valid=target_valid"}),
    ("padding_inverted", {"key_valid=memory": "key_valid=~memory"}),
    ("padding_inverted", {"key_valid=target": "key_valid=~target"}),
    (
        "padding_inverted",
        {"key_valid=memory": "key_valid=~memory", "key_valid=target": "key_valid=~target"},
    ),
    ("not_causal", {", causal=True": ""}),
    ("padded_rows_left_as_they_are", {f"return {D_FILL}": "return x"}),
    (
        "silenced_before_the_ffn",
        {C_SUM: f"x = {D_FILL}\n        {C_SUM}", f"        return {D_FILL}": "        return x"},
    ),
    (
        "memory_not_read",
        {D_ASKS: D_ASKS.replace(" memory,", ""), "key_valid=memory": "key_valid=target"},
    ),
    ("memory_not_read", {D_ASKS: D_ASKS.replace(" memory,", "")}),
    (
        "memory_not_read",
        {
            D_ASKS: "h = self.cross_norm(x)\n        self.cross_attention(h, h, ".replace(
                "h = self.cross_norm(x)\n        ", ""
            ).replace("h, h", "self.cross_norm(x), self.cross_norm(x)"),
            "key_valid=memory": "key_valid=target",
        },
    ),
    ("roles_exchanged", {D_ASKS: "self.cross_attention(memory, self.cross_norm(x), "}),
    ("memory_normalized", {D_ASKS: D_ASKS.replace("memory", "self.cross_norm(memory)")}),
    ("memory_s_padding_not_hidden", {", key_valid=memory_valid_tokens": ""}),
    (
        "causal_cross_attention",
        {"key_valid=memory_valid_tokens": "key_valid=memory_valid_tokens, causal=True"},
    ),
    ("self_attention_used_twice", {"self.cross_attention(": "self.self_attention("}),
    ("padding_of_the_other", {"key_valid=memory_valid_tokens": "key_valid=target_valid_tokens"}),
    ("padding_of_the_other", {"key_valid=target_valid_tokens": "key_valid=memory_valid_tokens"}),
    (
        "padding_of_the_other",
        {
            "key_valid=target_valid": "key_valid=memory_valid",
            "key_valid=memory_valid": "key_valid=target_valid",
        },
    ),
    ("padding_of_the_other", {"~target_valid_tokens[": "~memory_valid_tokens["}),
    ("memory_before_the_target", {D_SELF: D_CROSS, D_CROSS: D_SELF}),
    ("one_norm_for_both_attentions", {"self.cross_norm(x)": "self.self_norm(x)"}),
    (
        "cross_attention_missing",
        {
            "ManualMultiHeadAttention(d_model, num_heads, dropout)": "self.self_attention",
        },
    ),
    (
        "arguments_called_otherwise",
        {
            "*, target_valid_tokens, memory_valid_tokens": "*, target_valid, memory_valid",
            "key_valid=target_valid_tokens": "key_valid=target_valid",
            "key_valid=memory_valid_tokens": "key_valid=memory_valid",
            "~target_valid_tokens": "~target_valid",
        },
    ),
]

O_READS = "self.attention_norm(x), key_valid=valid_tokens, causal=True, cache=cache, use_cache=True"
O_NEW = "new = valid_tokens[:, -x.shape[1] :]  # with a cache its last columns"
O_FILL = "x.masked_fill(~new[:, :, None], 0.0)"
O_RETURN = "return (x, cache) if use_cache else x"
O_KEYS, O_ATTENDED = "key_valid=valid_tokens", "        attended, cache ="


def o_first(edit):
    return {O_ATTENDED: f"        {edit}\n{O_ATTENDED}"}


DECODER_ONLY = [
    *course("DecoderOnlyBlock", ("attention_norm", "ffn_norm"), "x = x + attended", O_FILL),
    (
        "post_norm_instead",
        {
            "self.attention_norm(x)": "x",
            "x = x + attended": "x = self.attention_norm(x + attended)",
            C_SUM: "x = self.ffn_norm(x + self.feed_forward(x))",
        },
    ),
    (
        "normalized_input_added",
        o_first("x = self.attention_norm(x)") | {"self.attention_norm(x), ": "x, "},
    ),
    ("branch_missing", {"        x = x + attended\n": ""}),
    (
        "ffn_first",
        {
            O_ATTENDED: f"        {C_SUM}\n{O_ATTENDED}",
            f"        {C_SUM}\n        if": "        if",
        },
    ),
    ("all_branches_side_by_side", {"        x = x + attended\n": "", C_SUM: f"{C_SUM} + attended"}),
    (
        "later_sum_starts_from_x_again",
        {"x = x + attended": "h = x + attended", "self.ffn_norm(x)": "self.ffn_norm(h)"},
    ),
    ("forgot_to_return", {O_RETURN: ""}),
    ("returns_float32", {O_RETURN: f"x = x.float()\n        {O_RETURN}"}),
    ("dropout_ignored", dropped_nowhere("num_heads", "hidden_dim")),
    ("padding_not_hidden", {f" {O_KEYS},": ""}),
    ("padding_not_hidden", {"key_valid=valid": "query_valid=valid"}),
    ("padding_inverted", {O_KEYS: "key_valid=None if valid_tokens is None else ~valid_tokens"}),
    ("padding_inverted", {O_KEYS: "key_valid=~valid_tokens"}),
    ("not_causal", {" causal=True,": ""}),
    ("padded_rows_left_as_they_are", {f"            x = {O_FILL}\n": ""}),
    ("padded_rows_left_as_they_are", {f"x = {O_FILL}": O_FILL}),
    ("cache_not_passed_on", {" cache=cache,": ""}),
    ("cache_not_passed_on", {"cache=cache, use": "cache=None, use"}),
    ("old_cache_returned", {O_ATTENDED: "        attended, _ ="}),
    ("a_pair_at_every_call", {O_RETURN: "return x, cache"}),
    ("no_cache_returned", {O_RETURN: "return x"}),
    (
        "no_cache_returned",
        {
            "if use_cache": "if use_cache and cache is not None",
            "attended, cache =": "attended, new_cache =",
        },
    ),
    ("no_cache_returned", {"(x, cache) if use_cache": "(x, cache) if cache is None"}),
    ("use_cache_not_passed_on", {"use_cache=True": "use_cache=use_cache"}),
    ("use_cache_not_passed_on", {", use_cache=True": ""}),
    ("not_causal_behind_a_cache", {"causal=True": "causal=cache is None"}),
    (
        "padding_forgotten_behind_a_cache",
        {O_KEYS: "key_valid=valid_tokens if cache is None else None"},
    ),
    (
        "padding_cut_to_the_new_tokens",
        o_first(
            "if valid_tokens is not None:\n"
            "            valid_tokens = valid_tokens[:, -x.shape[1] :]"
        ),
    ),
    ("padding_not_cut_to_the_new_tokens", {O_NEW: "new = valid_tokens"}),
    ("first_columns_for_the_new_tokens", {"[:, -x.shape[1] :]": "[:, : x.shape[1]]"}),
    ("last_column_for_the_new_tokens", {"[:, -x.shape[1] :]": "[:, -1:]"}),
    ("none_not_taken", {"if valid_tokens is not None": "if True"}),
    (
        "none_covers_the_new_tokens_alone",
        o_first(
            "if valid_tokens is None:\n            valid_tokens = x.new_ones(x.shape[:2]).bool()"
        ),
    ),
    (
        "cache_changed_in_place",
        {
            O_ATTENDED: f"        past = cache\n{O_ATTENDED}",
            "        x = x + attended": "        if past is not None:\n            past.keys = "
            "cache.keys\n            past.values = cache.values\n        x = x + attended",
        },
    ),
    (
        "half_of_the_padding_behind_a_cache",
        with_torch(
            "DecoderOnlyBlock",
            {
                O_ATTENDED: "        keys = valid_tokens\n"
                "        if cache is not None and valid_tokens is not None:\n"
                "            new = valid_tokens[:, cache.length :]\n"
                "            old = torch.ones_like(valid_tokens[:, : cache.length])\n"
                f"            keys = torch.cat([old, new], dim=1)\n{O_ATTENDED}",
                O_KEYS: "key_valid=keys",
            },
        ),
    ),
    (
        "cache_kept_inside",
        {
            C_FFN: f"{C_FFN}\n        self.cache = None",
            "attended, cache =": "attended, self.cache =",
            "cache=cache,": "cache=self.cache,",
            "(x, cache)": "(x, self.cache)",
        },
    ),
    (
        "cache_kept_inside",
        {
            C_FFN: f"{C_FFN}\n        self.cache = None",
            O_ATTENDED: f"        cache = cache or self.cache\n{O_ATTENDED}",
            "        x = x + attended": "        self.cache = cache\n        x = x + attended",
        },
    ),
]

SLIPS = {
    "block_parameters": PARAMETERS,
    "TransformerBlock": TRANSFORMER,
    "PostNormBlock": POST_NORM,
    "FusedBlock": FUSED,
    "to_reference": TO_REFERENCE,
    "EncoderBlock": ENCODER,
    "DecoderBlock": DECODER,
    "DecoderOnlyBlock": DECODER_ONLY,
}
