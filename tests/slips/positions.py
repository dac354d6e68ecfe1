"""Slips in lesson 04's reference."""

EVEN = "even = torch.arange(0, d_model, 2, dtype=torch.float64)"
POSITION = "position = torch.arange(length, dtype=torch.float64)"
ANGLES = "angles = position[:, None] * 10000.0 ** (-even / d_model)  # (T, number of sines)"
TABLE = "table = torch.zeros(length, d_model, dtype=torch.float32)"
SINES = "table[:, 0::2] = torch.sin(angles)"
COSINES = "table[:, 1::2] = torch.cos(angles[:, : d_model // 2])"
END = "return table\n"
FILL = f"{SINES}\n    {COSINES}"


def exponent(text):
    return {"10000.0 ** (-even / d_model)": text}


def both(*edits):
    return {text: instead for one in edits for text, instead in one.items()}


# Those that are seen in the module too.
SHAPE_OF_WAVES = [
    ("exponent_i_over_C", exponent("10000.0 ** (-even / 2 / d_model)")),
    (
        "exponent_i_over_C",
        {EVEN: "even = torch.arange((d_model + 1) // 2, dtype=torch.float64)"},
    ),
    ("exponent_doubled_twice", exponent("10000.0 ** (-2 * even / d_model)")),
    ("exponent_doubled_twice", exponent("torch.exp(-even * 9.210340371976184 / (d_model / 2))")),
    (
        "sines_and_cosines_in_two_halves",
        {FILL: "table = torch.cat([angles.sin(), angles[:, : d_model // 2].cos()], 1).float()"},
    ),
    (
        "sines_and_cosines_in_two_halves",
        {
            "table[:, 0::2]": "table[:, : (d_model + 1) // 2]",
            "table[:, 1::2]": "table[:, (d_model + 1) // 2 :]",
        },
    ),
    (
        "cosine_with_the_next_frequency",
        {
            EVEN: "even = torch.arange(d_model, dtype=torch.float64)",
            SINES: "table[:, 0::2] = torch.sin(angles[:, 0::2])",
            COSINES: "table[:, 1::2] = torch.cos(angles[:, 1::2])",
        },
    ),
    (
        "cosine_with_the_next_frequency",
        {COSINES: f"angles = position[:, None] / 10000.0 ** ((even + 1) / d_model)\n    {COSINES}"},
    ),
    (
        "sine_and_cosine_swapped",
        {
            FILL: "table[:, 0::2] = torch.cos(angles)\n"
            "    table[:, 1::2] = torch.sin(angles[:, : d_model // 2])"
        },
    ),
    ("frequencies_grow", exponent("10000.0 ** (even / d_model)")),
    ("base_1000", exponent("1000.0 ** (-even / d_model)")),
    ("base_e", exponent("torch.exp(-even / d_model)")),
    ("wrong_logarithm", exponent("torch.exp(-even / d_model * 4.0)")),
    (
        "wrong_logarithm",
        exponent("torch.exp(-even / d_model * torch.log2(torch.tensor(10000.0)))"),
    ),
    ("one_frequency_for_all_pairs", {ANGLES: "angles = position[:, None] * torch.ones_like(even)"}),
    ("last_frequency_at_the_end", exponent("10000.0 ** (-even / (d_model - 2))")),
    (
        "last_frequency_at_the_end",
        exponent("10000.0 ** -torch.linspace(0, 1, len(even), dtype=torch.float64)"),
    ),
    ("frequencies_counted_from_1", {EVEN: EVEN.replace("0, d_model,", "2, d_model + 2,")}),
    ("frequencies_counted_from_1", exponent("10000.0 ** (-(even + 2) / d_model)")),
    ("whole_turns", {"position[:, None] *": "2 * torch.pi * position[:, None] *"}),
    ("degrees", {"position[:, None] *": "position[:, None] * torch.pi / 180 *"}),
    ("degrees", {SINES: f"angles = torch.deg2rad(angles)\n    {SINES}"}),
    ("position_over_length", {POSITION: f"{POSITION} / length"}),
    (
        "position_over_length",
        {POSITION: "position = torch.linspace(0, 1, length, dtype=torch.float64)"},
    ),
    ("sine_only", {"torch.cos(": "torch.sin("}),
    ("angles_without_waves", {"torch.sin(": "(", "torch.cos(": "("}),
    ("one_frequency_for_all_pairs", exponent("10000.0 ** -(even // d_model)")),
    ("integer_division", exponent("10000.0 ** (-even // d_model)")),
    ("divided_by_C_outside_the_exponent", exponent("10000.0 ** -even / d_model")),
    (
        "divided_by_C_outside_the_exponent",
        {ANGLES: "angles = position[:, None] / (10000.0**even / d_model)"},
    ),
    (
        "angles_in_half_precision",
        {
            EVEN: EVEN.replace("float64", "float16"),
            POSITION: POSITION.replace("float64", "float16"),
        },
    ),
    ("angles_in_half_precision", {POSITION: POSITION.replace("float64", "bfloat16")}),
    ("angles_in_half_precision", {SINES: f"angles = angles.half()\n    {SINES}"}),
    ("odd_width_fails", {COSINES: "table[:, 1::2] = torch.cos(angles)"}),
    (
        "odd_width_refused",
        {EVEN: f'if d_model % 2:\n        raise ValueError("d_model is odd")\n    {EVEN}'},
    ),
    ("odd_width_refused", {EVEN: f"assert d_model % 2 == 0\n    {EVEN}"}),
    (
        "odd_width_a_column_short",
        {
            FILL: "table = torch.stack([angles.sin(), angles.cos()], "
            "-1).flatten(1)[:, : d_model // 2 * 2].float()"
        },
    ),
    (
        "odd_width_a_column_short",
        {
            EVEN: EVEN.replace("d_model,", "d_model - 1,"),
            "table[:, 0::2]": "table[:, 0 : d_model - 1 : 2]",
        },
    ),
    ("odd_width_rounded_up", exponent("10000.0 ** (-even / (d_model + d_model % 2))")),
    ("odd_width_rounded_up", exponent("10000.0 ** (-even / (2 * (d_model // 2)))")),
    (
        "odd_width_a_column_too_many",
        {FILL: "table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()"},
    ),
    (
        "odd_width_a_column_too_many",
        {
            TABLE: "table = torch.zeros(length, d_model + d_model % 2)",
            COSINES: "table[:, 1::2] = torch.cos(angles)",
        },
    ),
    (
        "odd_width_ends_on_a_cosine",
        {
            COSINES: f"{COSINES}\n    "
            "if d_model % 2:\n        "
            "table[:, -1] = torch.cos(angles[:, -1])"
        },
    ),
]

SINUSOIDAL_TABLE = [
    *SHAPE_OF_WAVES,
    ("counted_from_1", {"torch.arange(length,": "torch.arange(1, length + 1,"}),
    ("transposed", {END: "return table.T\n"}),
    ("axis_for_the_batch", {END: "return table[None]\n"}),
    ("axis_for_the_batch", {END: "return table.unsqueeze(0)\n"}),
    ("float64", {"dtype=torch.float32": "dtype=torch.float64"}),
    ("float64", {END: "return table.double()\n"}),
    ("half_table", {"dtype=torch.float32": "dtype=torch.float16"}),
    ("half_table", {END: "return table.bfloat16()\n"}),
    ("forgot_to_return", {END: "table\n"}),
    ("zeros", {f"    {FILL}\n": ""}),
    ("cosines_missing", {f"    {COSINES}\n": ""}),
]

# The two modules

DROPOUT = "self.dropout = nn.Dropout(dropout)"


def module(result, rows, length, most, row_at):
    """What both share: `result` is the line that returns, `rows` are added, `most` is max_len.

    `length` is how `forward` knows T, `row_at(positions)` are the rows of other positions.
    """

    def back(text):
        return {result: f"return {text}"}

    total = f"x + {rows}"
    update = f"nn.functional.dropout({total}, self.dropout.p"

    def masked(shape, share="mask / (1 - self.dropout.p)"):
        return {
            result: f"total = {total}\n        if not self.training:\n            return total\n"
            f"        mask = torch.rand({shape}, device=x.device) >= self.dropout.p\n"
            f"        return total * {share}"
        }

    def positions(change):
        return back(f"self.dropout(x + {row_at(change)})")

    count = "torch.arange(length, device=x.device)"
    return [
        ("one_row_for_all_tokens", positions("length - 1")),
        ("one_row_for_all_tokens", positions("0")),
        ("off_by_one", positions(f"{count} + 1")),
        ("counted_backwards", positions(f"{count}.flip(0)")),
        ("not_cut_to_T", positions(f"torch.arange({most}, device=x.device)")),
        (
            "counted_along_the_batch",
            {
                length: length.replace("x.shape[1]", "x.shape[0]").replace(
                    "x.shape[-2:]", "x.shape[0], x.shape[-1]"
                )
            },
        ),
        (
            "concatenated",
            back(f"self.dropout(torch.cat([x, ({rows}).expand(len(x), -1, -1)], -1))"),
        ),
        ("multiplied", back(f"self.dropout(x * {rows})")),
        ("subtracted", back(f"self.dropout(x - {rows})")),
        ("positions_alone", back(f"self.dropout({rows})")),
        ("positions_alone", back(f"self.dropout(({rows}).expand_as(x))")),
        ("position_left_out", back("self.dropout(x)")),
        ("position_left_out", {result: f"x + {rows}\n        return self.dropout(x)"}),
        ("scaled_by_the_root_of_C", back(f"self.dropout(x * x.shape[-1] ** 0.5 + {rows})")),
        ("dropout_on_x_alone", back(f"self.dropout(x) + {rows}")),
        ("dropout_on_the_positions_alone", back(f"x + self.dropout({rows})")),
        ("dropout_on_each_part", back(f"self.dropout(x) + self.dropout({rows})")),
        ("dropout_twice", back(f"self.dropout(self.dropout({total}))")),
        ("dropout_twice", back(f"self.dropout(self.dropout(x) + {rows})")),
        ("no_dropout", back(total)),
        ("no_dropout", {DROPOUT: "self.dropout = nn.Dropout(0.0)"}),
        ("no_dropout", {DROPOUT: "self.dropout = nn.Identity()"}),
        ("dropout_in_eval_mode", back(f"{update})")),
        ("dropout_in_eval_mode", back(f"nn.Dropout(self.dropout.p)({total})")),
        (
            "dropout_keeps_the_share_it_should_drop",
            {DROPOUT: "self.dropout = nn.Dropout(1 - dropout)"},
        ),
        ("dropout_without_rescaling", masked("x.shape", "mask")),
        ("whole_tokens_dropped", {DROPOUT: "self.dropout = nn.Dropout1d(dropout)"}),
        ("whole_tokens_dropped", {DROPOUT: "self.dropout = nn.Dropout2d(dropout)"}),
        ("whole_tokens_dropped", masked("(*x.shape[:-1], 1)")),
        ("dropout_fixed_at_0.1", {DROPOUT: "self.dropout = nn.Dropout(0.1)"}),
        ("dropout_fixed_at_0.1", back(f"nn.functional.dropout({total}, 0.1, self.training)")),
        ("dropout_0.1_by_default", {"dropout=0.0": "dropout=0.1"}),
        ("dropout_0.1_by_default", {"dropout=0.0": "dropout=0.5"}),
        ("other_length_by_default", {"max_len=4096": "max_len=5000"}),
        ("other_length_by_default", {"max_len=4096": "max_len=512"}),
        ("changes_x_in_place", {result: f"x += {rows}\n        return self.dropout(x)"}),
        ("changes_x_in_place", back(f"self.dropout(x.add_({rows}))")),
        ("refuses_max_len_itself", {"length > ": "length >= "}),
        ("x_detached", back(f"self.dropout(x.detach() + {rows})")),
        ("x_detached", back(f"self.dropout({total.replace('x +', 'x.data +')})")),
        ("x_detached", {result: f"with torch.no_grad():\n            {result}"}),
        (
            "counts_on_from_call_to_call",
            {
                DROPOUT: f"{DROPOUT}\n        self.start = 0",
                result: f"positions = (self.start + {count}) % {most}\n        "
                "self.start += length\n"
                f"        return self.dropout(x + {row_at('positions')})",
            },
        ),
    ]


WIDE = "if length > self.pe.shape[1] or width != self.pe.shape[2]:"
RESULT = "return self.dropout(x + self.pe[:, :length].to(x.dtype))"
BUFFER = 'self.register_buffer("pe", sinusoidal_table(max_len, d_model)[None])'
MADE = "sinusoidal_table(max_len, d_model)"
LONG_ERROR = 'raise ValueError(f"x is {tuple(x.shape)}, the table is {tuple(self.pe.shape)}")'
GUARD = f"{WIDE}\n            {LONG_ERROR}"
WIDTH_ALONE = f"if width != self.pe.shape[2]:\n            {LONG_ERROR}"
LENGTH_ALONE = f"if length > self.pe.shape[1]:\n            {LONG_ERROR}"

SINUSOIDAL = [
    *SHAPE_OF_WAVES,
    *module(
        RESULT,
        "self.pe[:, :length].to(x.dtype)",
        "x.shape[-2:]",
        "self.pe.shape[1]",
        lambda positions: f"self.pe[:, {positions}].to(x.dtype)",
    ),
    ("one_row_for_all_tokens", {"self.pe[:, :length]": "self.pe[:, length]"}),
    ("off_by_one", {"self.pe[:, :length]": "self.pe[:, 1 : length + 1]"}),
    ("not_cut_to_T", {"self.pe[:, :length]": "self.pe"}),
    ("counted_along_the_batch", {"self.pe[:, :length]": "self.pe[:, : x.shape[0]]"}),
    ("length_not_looked_at", {GUARD: WIDTH_ALONE}),
    ("length_asserted", {GUARD: f"assert length <= self.pe.shape[1]\n        {WIDTH_ALONE}"}),
    (
        "length_asserted",
        {GUARD: f'assert length <= self.pe.shape[1], f"{{length}} tokens"\n        {WIDTH_ALONE}'},
    ),
    (
        "another_error_for_the_length",
        {
            GUARD: "if length > self.pe.shape[1]:\n            "
            'raise IndexError(f"{length} tokens")\n'
            f"        {WIDTH_ALONE}"
        },
    ),
    (
        "another_error_for_the_length",
        {
            GUARD: 'if length > self.pe.shape[1]:\n            raise RuntimeError("too long")\n'
            f"        {WIDTH_ALONE}"
        },
    ),
    (
        "cuts_x_to_max_len",
        {
            GUARD: f"{WIDTH_ALONE}\n        x = x[:, : self.pe.shape[1]]",
            "self.pe[:, :length]": "self.pe[:, : x.shape[1]]",
        },
    ),
    (
        "begins_again_past_max_len",
        {
            GUARD: WIDTH_ALONE,
            "self.pe[:, :length]": "self.pe[:, torch.arange(length, device=x.device) % "
            "self.pe.shape[1]]",
        },
    ),
    (
        "repeats_the_last_row_past_max_len",
        {
            GUARD: WIDTH_ALONE,
            "self.pe[:, :length]": "self.pe[:, torch.arange(length, "
            "device=x.device).clamp(max=self.pe.shape[1] - 1)]",
        },
    ),
    ("plain_attribute", {BUFFER: f"self.pe = {MADE}[None]"}),
    ("table_trained", {BUFFER: f"self.pe = nn.Parameter({MADE}[None])"}),
    ("frozen_parameter", {BUFFER: f"self.pe = nn.Parameter({MADE}[None], requires_grad=False)"}),
    ("frozen_parameter", {BUFFER: f"self.pe = nn.Parameter({MADE}[None]).requires_grad_(False)"}),
    (
        "buffer_without_the_batch_axis",
        {
            f"{MADE}[None]": MADE,
            WIDE: "if length > self.pe.shape[0] or width != self.pe.shape[1]:",
            "self.pe[:, :length]": "self.pe[:length]",
        },
    ),
    (
        "buffer_with_the_sequence_first",
        {
            f"{MADE}[None]": f"{MADE}[:, None]",
            WIDE: "if length > self.pe.shape[0] or width != self.pe.shape[2]:",
            "self.pe[:, :length]": "self.pe[:length, 0]",
        },
    ),
    (
        "buffer_of_another_name",
        {
            "self.pe: torch.Tensor\n": "\n",
            '"pe"': '"table"',
            GUARD: GUARD.replace("self.pe", "self.table"),
            RESULT: RESULT.replace("self.pe", "self.table"),
        },
    ),
    (
        "table_made_in_forward",
        {
            BUFFER: "self.most, self.width = max_len, d_model",
            GUARD: "if length > self.most or width != self.width:\n            "
            "raise ValueError(x.shape)",
            "self.pe[:, :length].to(x.dtype)": "sinusoidal_table(length, width).to(x)",
        },
    ),
    ("returns_float32", {".to(x.dtype)": ""}),
    ("returns_float32", {RESULT: "return self.dropout(x.float() + self.pe[:, :length])"}),
    (
        "table_converted_for_good",
        {
            RESULT: "self.pe = self.pe.to(x.dtype)\n        "
            "return self.dropout(x + self.pe[:, :length])"
        },
    ),
    ("width_not_looked_at", {GUARD: LENGTH_ALONE}),
    ("width_asserted", {GUARD: f"{LENGTH_ALONE}\n        assert width == self.pe.shape[2]"}),
    (
        "table_cut_to_the_width_of_x",
        {GUARD: LENGTH_ALONE, "self.pe[:, :length]": "self.pe[:, :length, :width]"},
    ),
    ("neither_length_nor_width_looked_at", {f"        {GUARD}\n": ""}),
    (
        "neither_length_nor_width_looked_at",
        {"self.pe.shape[1] or width": "self.pe.shape[1] and width"},
    ),
    (
        "both_sizes_asserted",
        {GUARD: "assert length <= self.pe.shape[1] and width == self.pe.shape[2]"},
    ),
    (
        "both_sizes_asserted",
        {GUARD: "assert length <= self.pe.shape[1]\n        assert width == self.pe.shape[2]"},
    ),
]

LEARNED_RESULT = "return self.dropout(x + self.position_embedding(positions))"
LEARNED_TEST = "if length > self.position_embedding.num_embeddings:"
LEARNED_ERROR = (
    'raise ValueError(f"{length} tokens, {self.position_embedding.num_embeddings} positions")'
)
LEARNED_GUARD = f"{LEARNED_TEST}\n            {LEARNED_ERROR}"
EMBEDDING = "self.position_embedding = nn.Embedding(max_len, d_model)"
COUNT = "positions = torch.arange(length, device=x.device)"
LOOKED_UP = "self.position_embedding(positions)"


def embedding(text):
    return {EMBEDDING: f"self.position_embedding = {text}"}


def renamed(name):
    return {
        EMBEDDING: EMBEDDING.replace("position_embedding", name),
        LEARNED_GUARD: LEARNED_GUARD.replace("position_embedding", name),
        LEARNED_RESULT: LEARNED_RESULT.replace("position_embedding", name),
    }


LEARNED = [
    *module(
        LEARNED_RESULT,
        LOOKED_UP,
        "length = x.shape[1]",
        "self.position_embedding.num_embeddings",
        lambda positions: (
            f"self.position_embedding.weight[{positions}]"
            if positions in ("0", "length - 1")
            else f"self.position_embedding({positions})"
        ),
    ),
    ("one_row_for_all_tokens", {COUNT: "positions = torch.tensor(length - 1, device=x.device)"}),
    ("one_row_for_all_tokens", {LOOKED_UP: "self.position_embedding.weight[length]"}),
    ("off_by_one", {COUNT: "positions = torch.arange(1, length + 1, device=x.device)"}),
    ("length_not_looked_at", {f"        {LEARNED_GUARD}\n": ""}),
    (
        "length_not_looked_at",
        {f"        {LEARNED_GUARD}\n": "", LOOKED_UP: "self.position_embedding.weight[:length]"},
    ),
    ("length_asserted", {LEARNED_GUARD: "assert length <= self.position_embedding.num_embeddings"}),
    (
        "length_asserted",
        {LEARNED_GUARD: 'assert length <= self.position_embedding.num_embeddings, "too long"'},
    ),
    ("another_error_for_the_length", {"raise ValueError": "raise IndexError"}),
    ("another_error_for_the_length", {LEARNED_ERROR: 'raise RuntimeError("too long")'}),
    (
        "cuts_x_to_max_len",
        {
            LEARNED_GUARD: "x = x[:, : self.position_embedding.num_embeddings]",
            COUNT: "positions = torch.arange(x.shape[1], device=x.device)",
        },
    ),
    (
        "cuts_x_to_max_len",
        {
            LEARNED_ERROR: "length = self.position_embedding.num_embeddings\n            "
            "x = x[:, :length]"
        },
    ),
    (
        "begins_again_past_max_len",
        {
            f"        {LEARNED_GUARD}\n": "",
            COUNT: f"{COUNT} % self.position_embedding.num_embeddings",
        },
    ),
    (
        "repeats_the_last_row_past_max_len",
        {
            f"        {LEARNED_GUARD}\n": "",
            COUNT: f"{COUNT}.clamp(max=self.position_embedding.num_embeddings - 1)",
        },
    ),
    (
        "parameter_in_place_of_an_embedding",
        {
            EMBEDDING: "self.position_embedding = nn.Parameter(torch.randn(max_len, d_model))",
            LEARNED_GUARD: "if length > len(self.position_embedding):\n            "
            "raise ValueError(length)",
            LOOKED_UP: "self.position_embedding[:length]",
        },
    ),
    (
        "parameter_in_place_of_an_embedding",
        {
            EMBEDDING: "self.position_embedding = nn.Parameter(torch.zeros(1, max_len, d_model))",
            LEARNED_GUARD: "if length > self.position_embedding.shape[1]:\n            "
            "raise ValueError(length)",
            LOOKED_UP: "self.position_embedding[:, :length]",
        },
    ),
    ("embedding_of_another_name", renamed("embedding")),
    ("embedding_of_another_name", renamed("pos_emb")),
    ("embedding_of_another_name", renamed("pe")),
    (
        "nothing_to_train",
        {
            EMBEDDING: "self.position_embedding = torch.randn(max_len, d_model)",
            LEARNED_GUARD: "if length > len(self.position_embedding):\n            "
            "raise ValueError(length)",
            LOOKED_UP: "self.position_embedding[:length]",
        },
    ),
    (
        "nothing_to_train",
        {
            EMBEDDING: 'self.register_buffer("position_embedding", torch.randn(max_len, d_model))',
            LEARNED_GUARD: "if length > len(self.position_embedding):\n            "
            "raise ValueError(length)",
            LOOKED_UP: "self.position_embedding[:length]",
        },
    ),
    (
        "nothing_to_train",
        {
            EMBEDDING: "self.most, self.width = max_len, d_model",
            LEARNED_GUARD: "if length > self.most:\n            raise ValueError(length)",
            LOOKED_UP: "nn.Embedding(self.most, self.width, device=x.device)(positions)",
        },
    ),
    ("embedding_frozen", embedding("nn.Embedding(max_len, d_model).requires_grad_(False)")),
    (
        "embedding_frozen",
        {EMBEDDING: f"{EMBEDDING}\n        self.position_embedding.weight.requires_grad = False"},
    ),
    ("embedding_detached", {LOOKED_UP: f"{LOOKED_UP}.detach()"}),
    (
        "embedding_detached",
        {
            COUNT: f"{COUNT}\n        with torch.no_grad():\n            rows = {LOOKED_UP}",
            f"x + {LOOKED_UP}": "x + rows",
        },
    ),
    ("position_0_taken_for_padding", embedding("nn.Embedding(max_len, d_model, padding_idx=0)")),
    ("a_row_too_many", embedding("nn.Embedding(max_len + 1, d_model)")),
    ("rows_and_width_exchanged", embedding("nn.Embedding(d_model, max_len)")),
    ("max_len_ignored", embedding("nn.Embedding(4096, d_model)")),
    ("max_len_ignored", embedding("nn.Embedding(512, d_model)")),
    (
        "embedding_shared",
        {
            "dropout=0.0):": "dropout=0.0, kept={}):",
            EMBEDDING: "self.position_embedding = kept.setdefault((max_len, d_model), "
            "nn.Embedding(max_len, d_model))",
        },
    ),
    ("positions_on_the_CPU", {", device=x.device)": ")"}),
    ("positions_on_the_CPU", {COUNT: "positions = torch.LongTensor(range(length))"}),
    (
        "sinusoids_again",
        {
            COUNT: "weight = self.position_embedding.weight\n"
            f"        weight.data.copy_(sinusoidal_table(*weight.shape))\n        {COUNT}"
        },
    ),
    ("returns_float32", {LEARNED_RESULT: f"{LEARNED_RESULT}.float()"}),
    ("returns_float32", {LEARNED_RESULT: f"return self.dropout(x.float() + {LOOKED_UP}.float())"}),
]

# apply_rope

REFUSED = 'raise ValueError(f"the features are turned in pairs, and there are {width}")'
ODD = f"if width % 2:\n        {REFUSED}"
WIDER = "wide = torch.promote_types(x.dtype, torch.float32)"
PAIRS = "even = torch.arange(0, width, 2, device=x.device, dtype=wide)"
TURNS = "angles = positions[:, None].to(wide) * base ** (-even / width)  # (T, D/2)"
AB = "a, b = x[..., 0::2], x[..., 1::2]"
TURNED = "turned = (a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos())"
JOINED = "return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)"


def turns(positions="positions[:, None].to(wide)", frequency="base ** (-even / width)"):
    return {TURNS: f"angles = {positions} * {frequency}"}


def turned(first, second):
    return {TURNED: f"turned = ({first}, {second})"}


COS, SIN = "angles.cos()", "angles.sin()"
HALVES = "a, b = x[..., : width // 2], x[..., width // 2 :]"
ROTATED = "torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)"
WHOLE = f"{AB}\n    {TURNED}\n    {JOINED}"

APPLY_ROPE = [
    ("pairs_from_two_halves", {AB: HALVES, JOINED: "return torch.cat(turned, dim=-1).to(x.dtype)"}),
    (
        "halves_turned_by_neighbours_angles",
        {
            WHOLE: "angles = angles.repeat_interleave(2, -1)\n    "
            "half = torch.cat([-x[..., width // 2 :], x[..., : width // 2]], "
            "-1)\n    "
            "return (x * angles.cos() + half * angles.sin()).to(x.dtype)"
        },
    ),
    (
        "neighbours_turned_by_halves_angles",
        {
            WHOLE: "angles = torch.cat([angles, angles], -1)\n    "
            f"return (x * angles.cos() + {ROTATED} * angles.sin()).to(x.dtype)"
        },
    ),
    ("joined_in_two_halves", {JOINED: "return torch.cat(turned, dim=-1).to(x.dtype)"}),
    ("split_in_halves,_joined_as_neighbours", {AB: HALVES}),
    ("turned_to_the_right", turned(f"a * {COS} + b * {SIN}", f"b * {COS} - a * {SIN}")),
    ("turned_to_the_right", turns(positions="-positions[:, None].to(wide)")),
    ("one_sign_wrong", turned(f"a * {COS} + b * {SIN}", f"a * {SIN} + b * {COS}")),
    ("one_sign_wrong", turned(f"a * {COS} - b * {SIN}", f"a * {SIN} - b * {COS}")),
    ("one_sign_wrong", turned(f"a * {COS} - b * {SIN}", f"b * {COS} - a * {SIN}")),
    ("sine_and_cosine_swapped", turned(f"a * {SIN} - b * {COS}", f"a * {COS} + b * {SIN}")),
    (
        "second_line_uses_the_new_a",
        {TURNED: f"a = a * {COS} - b * {SIN}\n    b = a * {SIN} + b * {COS}\n    turned = (a, b)"},
    ),
    ("a_and_b_exchanged", {AB: "b, a = x[..., 0::2], x[..., 1::2]"}),
    ("a_and_b_exchanged", {JOINED: JOINED.replace("turned,", "turned[::-1],")}),
    ("positions_ignored", turns(positions="torch.arange(x.shape[-2], device=x.device)[:, None]")),
    ("counted_from_1", turns(positions="(positions[:, None] + 1).to(wide)")),
    ("counted_from_the_first", turns(positions="(positions - positions[0])[:, None].to(wide)")),
    ("counted_from_the_first", turns(positions="(positions - positions.min())[:, None].to(wide)")),
    (
        "counted_on_from_the_first",
        turns(positions="(positions[0] + torch.arange(x.shape[-2], device=x.device))[:, None]"),
    ),
    ("positions_sorted", turns(positions="positions.sort().values[:, None].to(wide)")),
    ("one_position_for_all", turns(positions="positions[0].to(wide)")),
    ("one_position_for_all", turns(positions="positions[-1].to(wide)")),
    ("base_fixed", turns(frequency="10000.0 ** (-even / width)")),
    ("another_base_by_default", {"base=10000.0": "base=1000.0"}),
    ("another_base_by_default", {"base=10000.0": "base=500000.0"}),
    ("exponent_i_over_D", {PAIRS: PAIRS.replace("0, width, 2,", "width // 2,")}),
    ("exponent_i_over_D", turns(frequency="base ** (-even / (2 * width))")),
    ("exponent_doubled_twice", turns(frequency="base ** (-2 * even / width)")),
    ("exponent_doubled_twice", turns(frequency="base ** (-even / (width // 2))")),
    ("frequencies_grow", turns(frequency="base ** (even / width)")),
    ("frequencies_counted_from_1", turns(frequency="base ** (-(even + 2) / width)")),
    ("last_frequency_at_the_end", turns(frequency="base ** (-even / (width - 2))")),
    (
        "last_frequency_at_the_end",
        turns(frequency="base ** -torch.linspace(0, 1, width // 2, device=x.device)"),
    ),
    ("slowest_pair_first", turns(frequency="(base ** (-even / width)).flip(0)")),
    ("one_frequency_for_all_pairs", turns(frequency="torch.ones_like(even)")),
    (
        "a_frequency_for_each_feature",
        {
            PAIRS: PAIRS.replace("0, width, 2,", "width,"),
            WHOLE: f"return (x * angles.cos() + {ROTATED} * angles.sin()).to(x.dtype)",
        },
    ),
    ("half_of_the_features", turns(frequency="base ** (-even / width) * (even < width / 2)")),
    ("degrees", turns(positions="torch.deg2rad(positions[:, None].to(wide))")),
    ("turned_twice", turns(positions="2 * positions[:, None].to(wide)")),
    ("cosine_alone", turned(f"a * {COS}", f"b * {COS}")),
    ("added_in_place_of_turned", turned(f"a + {SIN}", f"b + {COS}")),
    ("angles_in_half_precision", {WIDER: "wide = x.dtype"}),
    ("angles_in_half_precision", {"positions[:, None].to(wide)": "positions[:, None].to(x.dtype)"}),
    ("frequencies_in_half_precision", turns(frequency="(base ** (-even / width)).to(x.dtype)")),
    (
        "odd_width_not_refused",
        {
            f"    {ODD}\n": "",
            AB: "x = nn.functional.pad(x, (0, width % 2))\n    " + AB,
            JOINED: "return torch.stack(turned, dim=-1).flatten(-2)[..., :width].to(x.dtype)",
        },
    ),
    ("odd_width_left_to_torch", {f"    {ODD}\n": ""}),
    ("odd_width_asserted", {ODD: "assert width % 2 == 0"}),
    ("odd_width_asserted", {ODD: 'assert width % 2 == 0, f"{width} is odd"'}),
    ("positions_along_another_axis", {AB: f"angles = angles[:, None]\n    {AB}"}),
    ("positions_along_another_axis", {AB: f"angles = angles[None, :, None]\n    {AB}"}),
    (
        "sequence_taken_for_axis_1",
        {AB: f"x = x.transpose(1, 2)\n    {AB}", JOINED: f"{JOINED}.transpose(1, 2)"},
    ),
    (
        "turned_before_the_heads_were_split",
        {
            "width = x.shape[-1]": "shape = x.shape\n    "
            "x = x.transpose(1, 2).flatten(2)\n    "
            "width = x.shape[-1]",
            JOINED: "whole = torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)\n    "
            "return whole.unflatten(-1, (shape[1], shape[3])).transpose(1, 2)",
        },
    ),
    (
        "changes_x_in_place",
        {JOINED: "x[..., 0::2], x[..., 1::2] = turned\n    return x"},
    ),
    ("x_detached", {AB: "a, b = x.detach()[..., 0::2], x.detach()[..., 1::2]"}),
    ("x_detached", {AB: f"x = x.detach()\n    {AB}"}),
    (
        "x_detached",
        {WHOLE: f"with torch.no_grad():\n        {AB}\n        {TURNED}\n        {JOINED}"},
    ),
    ("half_of_the_gradient", {AB: "a, b = x[..., 0::2], x[..., 1::2].detach()"}),
    ("half_of_the_gradient", {AB: "a, b = x[..., 0::2].detach(), x[..., 1::2]"}),
    ("returns_float64", {JOINED: JOINED.replace("x.dtype", "torch.float64")}),
    ("returns_float32", {JOINED: JOINED.replace("x.dtype", "torch.float32")}),
    ("returns_float32", {JOINED: JOINED.replace(".to(x.dtype)", "")}),
    ("frequencies_on_the_CPU", {", device=x.device": ""}),
    ("nothing_turns", {JOINED: "return x"}),
    (
        "nothing_turns",
        turns(
            positions="2 * torch.pi * positions[:, None].to(wide)",
            frequency="torch.ones_like(even)",
        ),
    ),
    ("forgot_to_return", {JOINED: JOINED.replace("return ", "")}),
    ("pairs_not_joined", {JOINED: "return turned"}),
    ("pairs_not_joined", {JOINED: JOINED.replace(".flatten(-2)", "")}),
]

# alibi_bias

POWER = "power = 2 ** (num_heads.bit_length() - 1)"
FIRST = "exponents = [8 * h / power for h in range(1, power + 1)]"
MORE = "exponents += [4 * h / power for h in range(1, 2 * power + 1, 2)][: num_heads - power]"
ALL = f"{POWER}\n    {FIRST}\n    {MORE}"
SLOPES = "slopes = 0.5 ** torch.tensor(exponents, dtype=torch.float32)"
PLACE = "position = torch.arange(length, dtype=torch.float32)"
DISTANCE = "distance = (position[:, None] - position).abs()"
BIAS = "return -slopes[:, None, None] * distance"


def further(text):
    return {MORE: f"exponents += {text}"}


def slopes(text):
    return {SLOPES: f"slopes = {text}"}


ALIBI_BIAS = [
    ("farther_counts_more", {BIAS: BIAS.replace("-", "")}),
    ("one_slope_for_all_heads", slopes("torch.full((num_heads,), 0.5)")),
    ("one_slope_for_all_heads", slopes("0.5 ** torch.full((num_heads,), 8 / num_heads)")),
    ("slopes_counted_from_0", {ALL: "exponents = [8 * h / num_heads for h in range(num_heads)]"}),
    ("slopes_counted_from_0", {FIRST: "exponents = [8 * h / power for h in range(power)]"}),
    (
        "formula_for_every_head_count",
        {ALL: "exponents = [8 * h / num_heads for h in range(1, num_heads + 1)]"},
    ),
    (
        "first_of_the_next_power",
        {
            ALL: "power = 2 ** (num_heads - 1).bit_length()\n    "
            "exponents = [8 * h / power for h in range(1, num_heads + 1)]"
        },
    ),
    (
        "even_taken_for_a_power",
        {
            POWER: f"{POWER}\n    power = power if num_heads % 2 else num_heads",
        },
    ),
    ("power_above_H", {POWER: "power = 2 ** num_heads.bit_length()"}),
    (
        "power_above_H",
        {POWER: "power = 2 ** (num_heads - 1).bit_length()"},
    ),
    ("the_same_slopes_again", further("exponents[: num_heads - power]")),
    (
        "the_same_slopes_again",
        further("[4 * h / power for h in range(2, 2 * power + 1, 2)][: num_heads - power]"),
    ),
    (
        "not_every_other_slope",
        further("[4 * h / power for h in range(1, 2 * power + 1)][: num_heads - power]"),
    ),
    (
        "last_slopes_of_the_double",
        {MORE: MORE.replace("[: num_heads - power]", "[::-1][: num_heads - power]")},
    ),
    (
        "last_slopes_of_the_double",
        {MORE: MORE.replace("[: num_heads - power]", "[power - num_heads or power :]")},
    ),
    ("slopes_sorted", {MORE: f"{MORE}\n    exponents.sort()"}),
    ("slopes_sorted", {MORE: f"{MORE}\n    exponents = sorted(exponents)"}),
    ("further_slopes_first", {MORE: MORE.replace("exponents +=", "exponents =") + " + exponents"}),
    ("steepest_head_last", {BIAS: BIAS.replace("slopes", "slopes.flip(0)")}),
    ("slopes_without_H", {ALL: "exponents = list(range(1, num_heads + 1))"}),
    ("slopes_of_e", slopes("torch.exp(-torch.tensor(exponents, dtype=torch.float32))")),
    ("slopes_in_equal_steps", slopes("torch.tensor([1 / h for h in range(1, num_heads + 1)])")),
    ("slopes_in_equal_steps", slopes("torch.tensor(exponents, dtype=torch.float32)")),
    (
        "slopes_in_equal_steps",
        slopes("torch.tensor([8 * h / num_heads for h in range(1, num_heads + 1)])"),
    ),
    ("zero_for_later_tokens", {".abs()": ".clamp(min=0)"}),
    ("zero_for_later_tokens", {BIAS: "return (-slopes[:, None, None] * distance).tril()"}),
    (
        "later_tokens_blocked",
        {
            BIAS: "return (-slopes[:, None, None] * distance).masked_fill(position > "
            'position[:, None], float("-inf"))'
        },
    ),
    (
        "later_tokens_blocked",
        {
            BIAS: "return (-slopes[:, None, None] * distance).masked_fill(position > "
            "position[:, None], -1e9)"
        },
    ),
    ("no_absolute_value", {".abs()": ""}),
    ("no_absolute_value", {DISTANCE: "distance = position - position[:, None]"}),
    (
        "no_absolute_value",
        {DISTANCE: "distance = position - position[:, None]", BIAS: BIAS.replace("-", "")},
    ),
    ("key_position_alone", {DISTANCE: "distance = position.expand(length, length)"}),
    (
        "key_position_alone",
        {DISTANCE: "distance = position.expand(length, length)", BIAS: BIAS.replace("-", "")},
    ),
    ("distance_squared", {".abs()": ".square()"}),
    ("distance_squared", {".abs()": " ** 2"}),
    ("distance_bent", {".abs()": ".abs().sqrt()"}),
    ("distance_bent", {".abs()": ".abs().log1p()"}),
    ("distance_over_length", {".abs()": ".abs() / length"}),
    ("distance_over_length", {".abs()": ".abs() / max(length - 1, 1)"}),
    ("a_token_one_step_from_itself", {".abs()": ".abs() + 1"}),
    ("heads_last", {BIAS: "return -slopes * distance[:, :, None]"}),
    ("axis_for_the_batch", {BIAS: f"{BIAS[:7]}({BIAS[7:]})[None]"}),
    (
        "one_row_of_a_matrix",
        {DISTANCE: "distance = position", BIAS: "return -slopes[:, None] * distance"},
    ),
    ("one_row_of_a_matrix", {DISTANCE: "distance = position"}),
    ("slopes_alone", {BIAS: "return slopes"}),
    ("slopes_alone", {BIAS: "return -slopes"}),
    ("slopes_along_a_wrong_axis", {BIAS: "return -slopes[:, None] * distance"}),
    ("slopes_along_a_wrong_axis", {BIAS: "return -slopes * distance"}),
    ("through_a_softmax", {BIAS: f"return torch.softmax({BIAS[7:]}, dim=-1)"}),
    ("through_a_softmax", {BIAS: f"return torch.exp({BIAS[7:]})"}),
    (
        "float64",
        {SLOPES: SLOPES.replace("float32", "float64"), PLACE: PLACE.replace("float32", "float64")},
    ),
    ("float64", {PLACE: PLACE.replace("float32", "float64")}),
    ("half_precision", {BIAS: f"return ({BIAS[7:]}).half()"}),
    ("half_precision", {BIAS: f"return ({BIAS[7:]}).bfloat16()"}),
    (
        "half_precision",
        {SLOPES: SLOPES.replace("float32", "float16"), PLACE: PLACE.replace("float32", "float16")},
    ),
    ("integers", {BIAS: f"return ({BIAS[7:]}).long()"}),
    (
        "exponents_cut_to_whole_numbers",
        {FIRST: FIRST.replace("/", "//"), MORE: MORE.replace("/", "//")},
    ),
    ("exponents_cut_to_whole_numbers", {SLOPES: SLOPES.replace("float32", "long")}),
    ("forgot_to_return", {BIAS: BIAS.replace("return", "bias =")}),
    ("zeros", {DISTANCE: "distance = (position - position).abs().expand(length, length)"}),
    ("zeros", {BIAS: "return torch.zeros(num_heads, length, length)"}),
    (
        "other_head_counts_refused",
        {
            POWER: "if num_heads & (num_heads - 1):\n        "
            'raise ValueError("no power of two")\n    '
            f"{POWER}"
        },
    ),
    ("other_head_counts_refused", {POWER: f"assert num_heads & (num_heads - 1) == 0\n    {POWER}"}),
    (
        "one_head_left_out",
        {BIAS: f"if num_heads == 1:\n        return torch.zeros(1, length, length)\n    {BIAS}"},
    ),
    (
        "one_head_left_out",
        {POWER: f"{POWER}\n    if num_heads < 2:\n        raise ValueError(num_heads)"},
    ),
]

SLIPS = {
    "sinusoidal_table": SINUSOIDAL_TABLE,
    "SinusoidalPositionalEncoding": SINUSOIDAL,
    "LearnedPositionalEncoding": LEARNED,
    "apply_rope": APPLY_ROPE,
    "alibi_bias": ALIBI_BIAS,
}
