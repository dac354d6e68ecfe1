"""Slips in lesson 07's reference."""

ROW = "TransformerBlock(d_model, num_heads, d_ff, dropout)"
LM_BLOCK = "DecoderOnlyBlock(d_model, num_heads, hidden_dim, dropout)"
POST_BLOCK = "PostNormBlock(d_model, num_heads, hidden_dim)"
EACH = " for _ in range(num_layers)"
CALL = "x = block(x, blocked, key_padding_mask)"
LM_CALL = "x, cache = block(x, valid_tokens, cache=cache, use_cache=True)"
DECODER_CALL = (
    "x = block(x, memory, target_valid_tokens=target_valid, memory_valid_tokens=source_valid)"
)
LOOP = f"        for block in self.blocks:\n            {CALL}\n"
LM_LOOP = "for block, cache in zip(self.blocks, caches, strict=True):"
LM_RETURN = "return (logits, new_caches) if use_cache else logits"
BLOCKED = "blocked = causal_blocked_mask(token_ids.shape[1], token_ids.device) if causal else None"
EMBED = "x = self.token_embedding(token_ids)"
SOURCE = "x = self.source_embedding(source_ids)"
TARGET = "x = self.target_embedding(target_ids)"
LESSONS = "self.lesson_embedding(history)"
PLACED = f"self.position({LESSONS})"
SCALED = "x * math.sqrt(x.shape[-1])"
NORM = "        self.final_norm = nn.LayerNorm(d_model)\n"
NORMED = "self.final_norm(x)"
POSITION = "        self.position = SinusoidalPositionalEncoding(d_model, max_len, dropout)\n"
TIE = "self.output_head.weight = self.token_embedding.weight"
TINY_HEAD = "nn.Linear(d_model, vocab_size)"


def ahead(line, *lines):
    """These lines in front of one that stands in the body of a method."""
    return {line: "\n        ".join([*lines, line])}


def behind(line, *lines):
    return {line: "\n        ".join([line, *lines])}


SLIPS = {
    "TinyTransformerEncoder": [
        ("one_block_repeated", {ROW + EACH: f"[{ROW}] * num_layers"}),
        (
            "one_block_repeated",
            {"self.blocks =": f"block = {ROW}\n        self.blocks =", ROW + EACH: "block" + EACH},
        ),
        ("blocks_in_a_python_list", {"nn.ModuleList(": "list("}),
        ("probabilities_returned", {"(self.final_norm(x))": "(self.final_norm(x)).softmax(-1)"}),
        ("forgot_to_return", {"return self.output_head": "self.output_head"}),
        ("no_final_norm", {"self.final_norm(x)": "x"}),
        ("no_final_norm", {NORM: "", "self.final_norm(x)": "x"}),
        (
            "final_norm_in_front_of_the_blocks",
            {
                LOOP: "        x = self.final_norm(x)\n" + LOOP,
                "head(self.final_norm(x))": "head(x)",
            },
        ),
        (
            "final_norm_in_front_of_the_blocks",
            {SCALED: f"self.final_norm({SCALED})", "head(self.final_norm(x))": "head(x)"},
        ),
        (
            "blocks_read_the_embedding",
            {CALL: "out = block(x, blocked, key_padding_mask)", "norm(x)": "norm(out)"},
        ),
        (
            "ids_written_into",
            ahead(EMBED, "if key_padding_mask is not None:", "    token_ids[key_padding_mask] = 0"),
        ),
        ("embedding_detached", {EMBED: f"{EMBED}.detach()"}),
        ("embedding_detached", {EMBED: "x = self.token_embedding.weight.data[token_ids]"}),
        ("float32_inside", {EMBED: f"{EMBED}.float()"}),
        ("float32_inside", {"self.final_norm(x)": "self.final_norm(x.float())"}),
        ("last_block_missing", {"range(num_layers)": "range(num_layers - 1)"}),
        ("last_block_missing", {"range(num_layers)": "range(1, num_layers)"}),
        ("embedding_not_scaled", {SCALED: "x"}),
        ("scaled_by_another_number", {SCALED: "x * x.shape[-1]"}),
        ("scaled_by_another_number", {SCALED: "x / math.sqrt(x.shape[-1])"}),
        ("scaled_by_another_number", {"x.shape[-1]": "x.shape[1]"}),
        ("scaled_by_another_number", {"x.shape[-1]": "self.token_embedding.num_embeddings"}),
        (
            "positions_scaled_too",
            {f"self.position({SCALED})": "self.position(x) * math.sqrt(x.shape[-1])"},
        ),
        ("no_positions", {f"self.position({SCALED})": SCALED}),
        ("no_positions", {POSITION: "", f"self.position({SCALED})": SCALED}),
        (
            "mask_for_the_first_layer_only",
            {LOOP: LOOP + "            blocked = key_padding_mask = None\n"},
        ),
        ("mask_for_the_first_layer_only", {LOOP: LOOP + "            key_padding_mask = None\n"}),
        ("mask_for_the_first_layer_only", {LOOP: LOOP + "            blocked = None\n"}),
        ("padding_not_passed_on", {CALL: "x = block(x, blocked)"}),
        ("causal_without_effect", {CALL: "x = block(x, key_padding_mask=key_padding_mask)"}),
        ("always_causal", {" if causal else None": ""}),
        ("always_causal", {"causal=False": "causal=True"}),
        (
            "one_mask_at_a_time",
            {CALL: "x = block(x, blocked, None if causal else key_padding_mask)"},
        ),
        (
            "one_mask_at_a_time",
            {CALL: "x = block(x, blocked if key_padding_mask is None else None, key_padding_mask)"},
        ),
        ("causal_mask_turned_round", {"blocked = causal": "blocked = ~causal"}),
        ("causal_mask_turned_round", {"token_ids.device)": "token_ids.device).T"}),
        (
            "causal_mask_turned_round",
            {"token_ids.device)": "token_ids.device).logical_not().tril()"},
        ),
        (
            "padding_turned_round",
            behind(
                BLOCKED,
                "if key_padding_mask is not None:",
                "    key_padding_mask = ~key_padding_mask",
            ),
        ),
        ("mask_on_the_cpu", {", token_ids.device": ""}),
        ("one_row_for_each_text", {"self.final_norm(x)": "self.final_norm(x.mean(dim=1))"}),
        ("one_row_for_each_text", {"self.final_norm(x)": "self.final_norm(x).mean(dim=1)"}),
        ("one_row_for_each_text", {"self.final_norm(x)": "self.final_norm(x[:, 0])"}),
        ("one_row_for_each_text", {"self.final_norm(x)": "self.final_norm(x)[:, -1]"}),
        (
            "hidden_width_not_passed_on",
            {ROW: "TransformerBlock(d_model, num_heads, dropout=dropout)"},
        ),
        ("heads_not_passed_on", {ROW: "TransformerBlock(d_model, 4, d_ff, dropout)"}),
        ("heads_not_passed_on", {ROW: "TransformerBlock(d_model, 1, d_ff, dropout)"}),
        ("dropout_not_passed_on", {ROW: "TransformerBlock(d_model, num_heads, d_ff)"}),
        ("dropout_not_passed_on", {ROW: "TransformerBlock(d_model, num_heads, d_ff, 0.0)"}),
        ("longest_not_passed_on", {"(d_model, max_len, dropout)": "(d_model, dropout=dropout)"}),
        ("positions_are_trained", {"SinusoidalPos": "LearnedPos"}),
        (
            "head_without_bias",
            {"nn.Linear(d_model, vocab_size)": "nn.Linear(d_model, vocab_size, bias=False)"},
        ),
        (
            "head_tied",
            {"nn.Linear(d_model, vocab_size)": f"nn.Linear(d_model, vocab_size)\n        {TIE}"},
        ),
        ("other_defaults", {"d_model=64": "d_model=128"}),
        ("other_defaults", {"num_heads=4": "num_heads=8"}),
        ("other_defaults", {"num_layers=2": "num_layers=6"}),
        ("other_defaults", {"dropout=0.1": "dropout=0.0"}),
        ("other_defaults", {"max_len=256": "max_len=512"}),
        ("hidden_width_fixed", {"d_ff=None": "d_ff=256"}),
        ("hidden_width_fixed", {ROW: "TransformerBlock(d_model, num_heads, d_ff or 256, dropout)"}),
        (
            "mask_kept_in_the_model",
            {
                "super().__init__()": "super().__init__()\n        self.blocked = None",
                BLOCKED: BLOCKED.replace("blocked =", "self.blocked =").replace(
                    "None", "self.blocked"
                ),
                CALL: "x = block(x, self.blocked, key_padding_mask)",
            },
        ),
        ("masks_exchanged", {CALL: "x = block(x, key_padding_mask, blocked)"}),
    ],
    "stack_parameters": [
        ("head_not_counted", {" + head": ""}),
        (
            "head_tied_in_the_count",
            {"head = d_model * vocab_size + vocab_size": "head = vocab_size"},
        ),
        ("head_tied_in_the_count", {"embedding + ": ""}),
        ("head_bias_missing", {" + vocab_size": ""}),
        ("final_norm_missing", {" + final_norm": ""}),
        ("final_norm_counted_half", {"2 * d_model": "d_model"}),
        ("a_norm_in_every_layer", {"final_norm = 2": "final_norm = num_layers * 2"}),
        ("one_layer_counted", {"num_layers * ": ""}),
        ("positions_counted", {"vocab_size * d_model": "(vocab_size + 256) * d_model"}),
        ("hidden_width_fixed", {"(d_model, d_ff)": "(d_model, 4 * d_model)"}),
        ("a_float", {"return embedding + blocks": "return float(embedding + blocks)"}),
        ("a_float", {"2 * d_model": "2.0 * d_model"}),
        ("forgot_to_return", {"return ": ""}),
        ("widths_exchanged", {"(d_model, d_ff)": "(d_ff, d_model)"}),
    ],
    "DecoderOnlyLM": [
        ("one_block_repeated", {LM_BLOCK + EACH: f"[{LM_BLOCK}] * num_layers"}),
        (
            "one_block_repeated",
            {
                "self.blocks =": f"block = {LM_BLOCK}\n        self.blocks =",
                LM_BLOCK + EACH: "block" + EACH,
            },
        ),
        ("blocks_in_a_python_list", {"nn.ModuleList(": "list("}),
        ("probabilities_returned", {"norm(x))": "norm(x)).softmax(dim=-1)"}),
        ("forgot_to_return", {LM_RETURN: "(logits, new_caches) if use_cache else logits"}),
        ("forgot_to_return", {LM_RETURN: "if use_cache:\n            return logits, new_caches"}),
        ("no_final_norm", {"self.final_norm(x)": "x"}),
        (
            "no_final_norm",
            {"        self.final_norm = ManualLayerNorm(d_model)\n": "", "self.final_norm(x)": "x"},
        ),
        (
            "final_norm_in_front_of_the_blocks",
            {
                EMBED: "x = self.final_norm(self.token_embedding(token_ids))",
                "head(self.final_norm(x))": "head(x)",
            },
        ),
        (
            "blocks_read_the_embedding",
            {
                "x, cache = block": "out, cache = block",
                "self.final_norm(x)": "self.final_norm(out)",
            },
        ),
        (
            "ids_written_into",
            ahead(
                EMBED,
                "if valid_tokens is not None:",
                "    token_ids[~valid_tokens[:, -token_ids.shape[1] :]] = 0",
            ),
        ),
        ("embedding_detached", {EMBED: f"{EMBED}.detach()"}),
        ("embedding_detached", {EMBED: "x = self.token_embedding.weight.data[token_ids]"}),
        ("float32_inside", {EMBED: f"{EMBED}.float()"}),
        ("float32_inside", {"self.final_norm(x)": "self.final_norm(x.float())"}),
        ("last_block_missing", {"range(num_layers)": "range(num_layers - 1)"}),
        (
            "tied_by_copying",
            {TIE: "self.output_head.weight.data.copy_(self.token_embedding.weight)"},
        ),
        (
            "tied_by_copying",
            {TIE: "self.output_head.weight = nn.Parameter(self.token_embedding.weight.clone())"},
        ),
        ("tied_by_copying", {f"        {TIE}\n": ""}),
        (
            "tied_by_the_values_alone",
            {TIE: "self.output_head.weight.data = self.token_embedding.weight.data"},
        ),
        (
            "tied_by_the_values_alone",
            {TIE: "self.output_head.weight = nn.Parameter(self.token_embedding.weight)"},
        ),
        ("embedding_too_large_at_first", {"std=0.02": "std=1.0"}),
        (
            "embedding_too_large_at_first",
            {"        nn.init.normal_(self.token_embedding.weight, std=0.02)": ""},
        ),
        ("head_with_a_bias", {", bias=False": ""}),
        ("heads_not_passed_on", {LM_BLOCK: "DecoderOnlyBlock(d_model, 1, hidden_dim, dropout)"}),
        ("heads_not_passed_on", {LM_BLOCK: "DecoderOnlyBlock(d_model, 4, hidden_dim, dropout)"}),
        ("dropout_not_passed_on", {LM_BLOCK: "DecoderOnlyBlock(d_model, num_heads, hidden_dim)"}),
        ("embedding_scaled", {EMBED: f"{EMBED} * self.final_norm.weight.numel() ** 0.5"}),
        (
            "positions_added",
            {
                **ahead(
                    "self.final_norm = M", "self.position = SinusoidalPositionalEncoding(d_model)"
                ),
                EMBED: "x = self.position(self.token_embedding(token_ids))",
            },
        ),
        ("valid_not_passed_on", {"block(x, valid_tokens,": "block(x, None,"}),
        (
            "valid_turned_round",
            ahead(EMBED, "if valid_tokens is not None:", "    valid_tokens = ~valid_tokens"),
        ),
        (
            "valid_for_the_first_layer_only",
            behind("new_caches.append(cache)", "    valid_tokens = None"),
        ),
        (
            "new_columns_of_valid_alone",
            ahead(
                EMBED,
                "if valid_tokens is not None:",
                "    valid_tokens = valid_tokens[:, -token_ids.shape[1] :]",
            ),
        ),
        (
            "none_made_to_ones_of_the_new_tokens",
            ahead(EMBED, "if valid_tokens is None:", "    valid_tokens = token_ids == token_ids"),
        ),
        ("one_cache_for_all_layers", {"cache=cache": "cache=caches[0]"}),
        (
            "one_cache_for_all_layers",
            {LM_LOOP: "cache = caches[-1]\n        for block in self.blocks:"},
        ),
        ("caches_in_the_wrong_order", {"new_caches.append(cache)": "new_caches.insert(0, cache)"}),
        ("caches_in_the_wrong_order", {"self.blocks, caches,": "self.blocks, reversed(caches),"}),
        ("caches_not_used", {"cache=cache": "cache=None"}),
        ("caches_not_used", {" if caches is None else caches": ""}),
        (
            "caches_used_with_use_cache_alone",
            {"if caches is None": "if not use_cache or caches is None"},
        ),
        ("caches_used_with_use_cache_alone", {"cache=cache": "cache=cache if use_cache else None"}),
        ("last_cache_alone_comes_back", {"(logits, new_caches)": "(logits, cache)"}),
        (
            "caches_come_back_on_going_on_alone",
            behind("new_caches = []", "use_cache = use_cache and caches[0] is not None"),
        ),
        ("always_a_pair", {LM_RETURN: "return logits, new_caches"}),
        (
            "given_caches_changed",
            {
                LM_LOOP: "for at, block in enumerate(self.blocks):",
                LM_CALL: LM_CALL.replace("cache =", "caches[at] =").replace(
                    "=cache,", "=caches[at],"
                ),
                "            new_caches.append(cache)\n": "",
                "(logits, new_caches)": "(logits, caches)",
            },
        ),
        ("last_token_alone", {"self.final_norm(x)": "self.final_norm(x[:, -1])"}),
        ("last_token_alone", {"self.final_norm(x)": "self.final_norm(x)[:, -1:]"}),
        ("shifted_inside", {LM_RETURN: "logits = logits[:, :-1]\n        " + LM_RETURN}),
        ("shifted_inside", {"embedding(token_ids)": "embedding(token_ids[:, :-1])"}),
        ("shifted_inside", {EMBED: "x = self.token_embedding(token_ids.roll(1, 1))"}),
        (
            "head_s_side_detached",
            {f"self.output_head({NORMED})": f"{NORMED} @ self.output_head.weight.detach().T"},
        ),
        ("a_pair_unpacked_without_use_cache", {"use_cache=True": "use_cache=use_cache"}),
    ],
    "Seq2SeqTransformer": [
        (
            "one_block_repeated",
            {"EncoderBlock(*sizes)" + EACH: "[EncoderBlock(*sizes)] * num_layers"},
        ),
        (
            "one_block_repeated",
            {"DecoderBlock(*sizes)" + EACH: "[DecoderBlock(*sizes)] * num_layers"},
        ),
        (
            "one_block_repeated",
            {
                "EncoderBlock(*sizes)" + EACH: "[EncoderBlock(*sizes)] * num_layers",
                "DecoderBlock(*sizes)" + EACH: "[DecoderBlock(*sizes)] * num_layers",
            },
        ),
        ("blocks_in_a_python_list", {"self.encoder = nn.ModuleList(": "self.encoder = list("}),
        ("blocks_in_a_python_list", {"self.decoder = nn.ModuleList(": "self.decoder = list("}),
        (
            "blocks_in_a_python_list",
            {
                "self.encoder = nn.ModuleList(": "self.encoder = list(",
                "self.decoder = nn.ModuleList(": "self.decoder = list(",
            },
        ),
        ("probabilities_returned", {"decoder_norm(x))": "decoder_norm(x)).softmax(dim=-1)"}),
        ("forgot_to_return", {"return self.output_head": "self.output_head"}),
        ("forgot_to_return", {"return self.encoder_norm": "self.encoder_norm"}),
        ("forgot_to_return", {"return self.decode": "self.decode"}),
        (
            "source_mask_not_passed_on",
            {"x = block(x, source_valid)": "x = block(x, source_ids >= 0)"},
        ),
        (
            "source_mask_for_the_first_layer_only",
            behind("x = block(x, source_valid)", "    source_valid = source_ids >= 0"),
        ),
        (
            "memory_mask_not_passed_on",
            {"memory_valid_tokens=source_valid": "memory_valid_tokens=None"},
        ),
        (
            "target_mask_not_passed_on",
            {"target_valid_tokens=target_valid": "target_valid_tokens=target_ids >= 0"},
        ),
        (
            "masks_exchanged",
            {"memory, target_valid, source_valid)\n ": "memory, source_valid, target_valid)\n "},
        ),
        (
            "masks_exchanged",
            ahead(TARGET, "target_valid, source_valid = source_valid, target_valid"),
        ),
        (
            "masks_exchanged",
            {"memory_valid_tokens=source_valid": "memory_valid_tokens=target_valid"},
        ),
        ("encoder_causal", {"EncoderBlock(*sizes)": "DecoderOnlyBlock(*sizes)"}),
        (
            "shifted_inside",
            behind(
                "memory = self.encode(source_ids, source_valid)",
                "target_ids, target_valid = target_ids[:, :-1], target_valid[:, :-1]",
            ),
        ),
        (
            "shifted_inside",
            {"self.target_embedding(target_ids)": "self.target_embedding(target_ids.roll(1, 1))"},
        ),
        (
            "memory_for_the_first_layer_only",
            {DECODER_CALL: DECODER_CALL + "\n            memory = memory * 0"},
        ),
        (
            "memory_for_the_first_layer_only",
            {DECODER_CALL: DECODER_CALL + "\n            memory, source_valid = x, target_valid"},
        ),
        (
            "memory_not_read",
            {DECODER_CALL: DECODER_CALL.replace("memory,", "x,").replace("=source", "=target")},
        ),
        (
            "reads_one_row_of_the_memory",
            ahead(TARGET, "memory, source_valid = memory.mean(1, keepdim=True), None"),
        ),
        (
            "reads_one_row_of_the_memory",
            ahead(TARGET, "memory, source_valid = memory[:, -1:], None"),
        ),
        (
            "reads_one_row_of_the_memory",
            ahead(TARGET, "memory, source_valid = memory[:, :1], source_valid[:, :1]"),
        ),
        (
            "memory_kept_in_the_model",
            {
                **ahead("return self.encoder_norm(x)", "self.memory = self.encoder_norm(x)"),
                "block(x, memory,": "block(x, self.memory,",
            },
        ),
        (
            "memory_detached",
            {"encode(source_ids, source_valid)\n": "encode(source_ids, source_valid).detach()\n"},
        ),
        ("memory_detached", {"block(x, memory,": "block(x, memory.detach(),"}),
        ("source_written_into", ahead(SOURCE, "source_ids[~source_valid] = 0")),
        ("source_written_into", ahead(TARGET, "target_ids[~target_valid] = 0")),
        (
            "forward_encodes_alone",
            {
                "return self.encoder_norm(x)": "return x",
                **behind(
                    "= self.encode(source_ids, source_valid)", "memory = self.encoder_norm(memory)"
                ),
            },
        ),
        ("float32_inside", {SOURCE: f"{SOURCE}.float()"}),
        ("float32_inside", {TARGET: f"{TARGET}.float()"}),
        (
            "hidden_width_not_passed_on",
            {"sizes = d_model, num_heads, hidden_dim,": "sizes = d_model, num_heads, 4 * d_model,"},
        ),
        (
            "hidden_width_not_passed_on",
            {"DecoderBlock(*sizes)": "DecoderBlock(d_model, num_heads, 4 * d_model, dropout)"},
        ),
        ("heads_not_passed_on", {"sizes = d_model, num_heads,": "sizes = d_model, 1,"}),
        (
            "heads_not_passed_on",
            {"EncoderBlock(*sizes)": "EncoderBlock(d_model, 2, hidden_dim, dropout)"},
        ),
        (
            "heads_not_passed_on",
            {"DecoderBlock(*sizes)": "DecoderBlock(d_model, 1, hidden_dim, dropout)"},
        ),
        ("dropout_not_passed_on", {"num_heads, hidden_dim, dropout\n": "num_heads, hidden_dim\n"}),
        (
            "dropout_not_passed_on",
            {"DecoderBlock(*sizes)": "DecoderBlock(d_model, num_heads, hidden_dim)"},
        ),
        (
            "dropout_not_passed_on",
            {"EncoderBlock(*sizes)": "EncoderBlock(d_model, num_heads, hidden_dim)"},
        ),
        ("dropout_by_default", {"dropout=0.0": "dropout=0.1"}),
        ("one_block_on_a_side", {"DecoderBlock(*sizes)" + EACH: "[DecoderBlock(*sizes)]"}),
        ("one_block_on_a_side", {"EncoderBlock(*sizes)" + EACH: "[EncoderBlock(*sizes)]"}),
        ("vocabularies_exchanged", {"nn.Embedding(source_vocab": "nn.Embedding(target_vocab"}),
        ("vocabularies_exchanged", {"nn.Embedding(target_vocab": "nn.Embedding(source_vocab"}),
        (
            "vocabularies_exchanged",
            {"nn.Linear(d_model, target_vocab)": "nn.Linear(d_model, source_vocab)"},
        ),
        (
            "vocabularies_exchanged",
            {"self.target_embedding(target_ids)": "self.source_embedding(target_ids)"},
        ),
    ],
    "LessonRecommender": [
        ("one_block_repeated", {POST_BLOCK + EACH: f"[{POST_BLOCK}] * num_layers"}),
        (
            "one_block_repeated",
            {
                "self.blocks =": f"block = {POST_BLOCK}\n        self.blocks =",
                POST_BLOCK + EACH: "block" + EACH,
            },
        ),
        ("blocks_in_a_python_list", {"nn.ModuleList(": "list("}),
        ("probabilities_returned", {"total / count)": "total / count).softmax(dim=-1)"}),
        ("probabilities_returned", {"total / count)": "total / count).sigmoid()"}),
        ("forgot_to_return", {"return self.output_head": "self.output_head"}),
        ("mean_over_padding_too", {"total / count": "x.mean(dim=1)"}),
        ("mean_over_padding_too", {"total / count": "total / history.shape[1]"}),
        ("padding_in_the_sum", {"x.masked_fill(~real[:, :, None], 0.0)": "x"}),
        ("summed", {"total / count": "total"}),
        ("one_position_read", {"total / count": "x[:, 0]"}),
        ("one_position_read", {"total / count": "x[range(len(x)), count[:, 0] - 1]"}),
        ("last_column_read", {"total / count": "x[:, -1]"}),
        (
            "largest_taken",
            {"total / count": "x.masked_fill(~real[:, :, None], -1e9).max(dim=1).values"},
        ),
        ("largest_taken", {"total / count": "x.masked_fill(~real[:, :, None], 0.0).amax(dim=1)"}),
        ("divided_by_nothing", {".clamp(min=1)": ""}),
        ("padding_not_hidden_in_attention", {"block(x, ~(real | empty))": "block(x)"}),
        (
            "mask_for_the_first_layer_only",
            {"  # with every": "\n            empty = real | ~real  #"},
        ),
        ("mask_turned_round", {"~(real | empty)": "real"}),
        ("mask_turned_round", {"~(real | empty)": "real | empty"}),
        (
            "mask_turned_round",
            {"~(real | empty)": "real & ~empty", "real = history != 0": "real = history > 0"},
        ),
        (
            "no_positions",
            {"self.position(self.lesson_embedding(history))": "self.lesson_embedding(history)"},
        ),
        (
            "no_positions",
            {
                "        self.position = LearnedPositionalEncoding(d_model, max_len)\n": "",
                "self.position(self.lesson_embedding(history))": "self.lesson_embedding(history)",
            },
        ),
        (
            "history_written_into",
            {"x = self.position": "history[empty[:, 0], 0] = 1\n        x = self.position"},
        ),
        (
            "embedding_detached",
            {"self.lesson_embedding(history)": "self.lesson_embedding(history).detach()"},
        ),
        (
            "embedding_detached",
            {"self.lesson_embedding(history)": "self.lesson_embedding.weight.data[history]"},
        ),
        (
            "float32_inside",
            {"x.masked_fill(~real[:, :, None], 0.0)": "(x * real[:, :, None].float())"},
        ),
        ("float32_inside", {"total / count": "total.float() / count"}),
        ("last_lesson_unknown", {"num_lessons + 1": "num_lessons"}),
        ("padding_idx_of_a_lesson", {"padding_idx=0": "padding_idx=-1"}),
        ("padding_idx_of_a_lesson", {"padding_idx=0": "padding_idx=1"}),
        (
            "a_score_for_padding",
            {"nn.Linear(d_model, num_lessons)": "nn.Linear(d_model, num_lessons + 1)"},
        ),
        ("longest_not_passed_on", {"Encoding(d_model, max_len)": "Encoding(d_model)"}),
        (
            "no_value_error",
            {
                "LearnedPositionalEncoding(d_model, max_len)": "nn.Embedding(max_len, d_model)",
                PLACED: f"{LESSONS} + self.position(real.long()[:1].fill_(1).cumsum(1) - 1)",
            },
        ),
        (
            "pre_norm_blocks",
            {
                POST_BLOCK: "TransformerBlock(d_model, num_heads, hidden_dim, 0.0)",
                "block(x, ~": "block(x, key_padding_mask=~",
            },
        ),
        (
            "pre_norm_blocks",
            {
                POST_BLOCK: "EncoderBlock(d_model, num_heads, hidden_dim)",
                "~(real | empty)": "real | empty",
            },
        ),
        (
            "hidden_width_not_passed_on",
            {POST_BLOCK: "PostNormBlock(d_model, num_heads, 4 * d_model)"},
        ),
        ("heads_not_passed_on", {POST_BLOCK: "PostNormBlock(d_model, 1, hidden_dim)"}),
        ("heads_not_passed_on", {POST_BLOCK: "PostNormBlock(d_model, 4, hidden_dim)"}),
        ("last_block_missing", {"range(num_layers)": "range(num_layers - 1)"}),
    ],
}
