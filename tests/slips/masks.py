"""Slips in lesson 05's reference."""

PADDING = "return token_ids == pad_id"

KEYS = "allowed = allowed & ~blocked_keys[:, None, None, :]  # (B, 1, 1, Tk)"
IF_PAIRS = "if blocked_pairs is not None:\n        "
IF_KEYS = "if blocked_keys is not None:\n        "

FILLED = "scores.masked_fill(~allowed, lowest)"
LOWEST = "torch.finfo(scores.dtype).min"
ZEROED = "weights.masked_fill(~allowed, 0.0)"
WEIGHTS = "weights = torch.softmax(scores.masked_fill(~allowed, lowest), dim=-1)"
RETURN = "return weights.masked_fill(~allowed, 0.0)"

MASKED = "weights = scores.softmax(dim=-1) if allowed is None else masked_softmax(scores, allowed)"
WEIGHED = "scores.softmax(dim=-1) if allowed is None else masked_softmax(scores, allowed)"

IF_EMPTY = "        if self.keys is None:\n            return KVCache(key, value)\n"
JOINED = (
    "return KVCache(torch.cat([self.keys, key], dim=2), torch.cat([self.values, value], dim=2))"
)

SOFTMAXED = "masked_softmax(scores, allowed)"
DROPPED = "self.dropout(masked_softmax(scores, allowed))"
PROJECTED = "self.output_projection(heads.transpose(1, 2).flatten(2))"
MERGED = "heads.transpose(1, 2).flatten(2)"
TURNED = "query, key = apply_rope(query, positions), apply_rope(key, positions)"
POSITIONS = "past.length + torch.arange"
APPENDED = "cache = past.append(key, value)"
CAUSAL = "causal_blocked_mask(cache.length, query.device)"
HIDDEN = "None if key_valid is None else ~key_valid"
SILENCED = (
    "        if query_valid is not None:\n"
    "            output = output.masked_fill(~query_valid[:, :, None], 0.0)\n"
)
GIVEN = "(output, cache) if"
SOURCE = "query_input if memory is None else memory"
REFUSED = (
    "        if d_model % num_heads:\n"
    "            raise ValueError(f\"a width of {d_model} can't "
    'be split into {num_heads} equal heads")\n'
)
ON_THE_DEVICE = (
    "        allowed = allowed.to(query.device)  # where nothing "
    "is blocked it did not know the device\n"
)
SPLIT = "(self.num_heads, -1)).transpose(1, 2)"


def at(text, *slips):
    """Slips that each have something else where `text` stands."""
    return [(name, {text: instead}) for name, instead in slips]


SLIPS = {
    "causal_blocked_mask": [
        ("polarity_inverted", {".triu(diagonal=1)": ".tril()"}),
        ("next_token_visible", {"diagonal=1": "diagonal=2"}),
        ("numbers_in_place_of_bool", {"dtype=torch.bool, ": ""}),
        ("numbers_in_place_of_bool", {"torch.bool": "torch.int"}),
        (
            "minus_infinity_in_place_of_bool",
            {"ones(length, length, dtype=torch.bool": "full((length, length), float('-inf')"},
        ),
        ("device_ignored", {", device=device": ""}),
        ("no_device", {", device=None": "", ", device=device": ""}),
        (
            "minus_infinity_in_place_of_bool",
            {
                (
                    "return torch.ones(length, length, dtype=torch.bool, "
                    "device=device).triu(diagonal=1)"
                ): (
                    "mask = torch.ones(length, length, dtype=torch.bool, "
                    "device=device).triu(diagonal=1)\n    return torch.zeros(length, length, "
                    "device=device).masked_fill(mask, -1e9)"
                )
            },
        ),
        (
            "device_ignored",
            {
                "ones(length, length, dtype=torch.bool, device=device).triu(diagonal=1)": (
                    "tensor([[j > i for j in range(length)] for i in range(length)])"
                )
            },
        ),
        *at(
            "return torch",
            ("polarity_inverted", "return ~torch"),
            ("forgot_to_return", "mask = torch"),
        ),
        *at(
            "triu(diagonal=1)",
            ("diagonal_blocked", "triu()"),
            ("past_blocked", "tril(diagonal=-1)"),
            ("past_blocked", "triu(diagonal=1).T"),
            ("axes_added", "triu(diagonal=1)[None, None]"),
            ("axes_added", "triu(diagonal=1).unsqueeze(0)"),
        ),
    ],
    "padding_blocked_mask": [
        ("pad_id_ignored", {"== pad_id": "== 0"}),
        ("forgot_to_return", {"return token": "mask = token"}),
        (
            "changes_token_ids",
            {"return token": "token_ids[token_ids != pad_id] = pad_id + 1\n    return token"},
        ),
        *at(
            "==",
            ("polarity_inverted", "!="),
            ("smaller_ids_blocked", "<="),
        ),
        *at(
            "token_ids == pad_id",
            ("pad_id_ignored", "~token_ids.bool()"),
            ("right_side_alone", "(token_ids != pad_id).flip(1).cumsum(1).flip(1) == 0"),
            ("numbers_in_place_of_bool", "(token_ids == pad_id).int()"),
            ("numbers_in_place_of_bool", "(token_ids == pad_id).float()"),
            ("axes_added", "(token_ids == pad_id)[:, None, None, :]"),
            ("axes_added", "(token_ids == pad_id).unsqueeze(1)"),
            ("mask_on_the_cpu", "torch.isin(token_ids, torch.tensor([pad_id]))"),
            ("numbers_in_place_of_bool", "(token_ids == pad_id).to(torch.uint8)"),
            (
                "mask_on_the_cpu",
                ("torch.tensor([[one == pad_id for one in row] for row in token_ids.tolist()])"),
            ),
            ("axes_added", "(token_ids == pad_id)[:, :, None]"),
            (
                "minus_infinity_in_place_of_bool",
                (
                    "torch.zeros(token_ids.shape, "
                    "device=token_ids.device).masked_fill(token_ids == pad_id, -torch.inf)"
                ),
            ),
        ),
        *at(
            PADDING,
            (
                "counted_from_the_left",
                (
                    "lengths = (token_ids != pad_id).sum(1, keepdim=True)\n"
                    "    return torch.arange(token_ids.shape[1], "
                    "device=token_ids.device) >= lengths"
                ),
            ),
            ("changes_token_ids", "token_ids -= pad_id\n    return token_ids == 0"),
            (
                "mask_on_the_cpu",
                (
                    "mask = torch.zeros(token_ids.shape, dtype=torch.bool)\n"
                    "    mask[token_ids == pad_id] = True\n    return mask"
                ),
            ),
        ),
    ],
    "allowed_mask": [
        ("polarity_kept", {"~blocked_pairs": "blocked_pairs", "~blocked_keys": "blocked_keys"}),
        (
            "polarity_kept",
            {
                "(True)": "(False)",
                "& ~blocked_pairs": "| blocked_pairs",
                "& ~blocked_keys": "| blocked_keys",
            },
        ),
        (
            "either_is_enough",
            {
                KEYS: (
                    "keys = ~blocked_keys[:, None, None, :]\n"
                    "        allowed = keys if blocked_pairs is None else allowed | keys"
                )
            },
        ),
        ("keys_dropped_beside_pairs", {"if blocked_keys": "elif blocked_keys"}),
        ("pairs_dropped_beside_keys", {"allowed & ~blocked_keys": "~blocked_keys"}),
        (
            "none_for_nothing_blocked",
            {
                "allowed = torch": (
                    "if blocked_pairs is None and blocked_keys is None:\n"
                    "        return None\n    allowed = torch"
                )
            },
        ),
        ("none_is_not_looked_at", {IF_PAIRS: "", IF_KEYS: ""}),
        ("none_is_not_looked_at", {IF_PAIRS: ""}),
        ("none_is_not_looked_at", {IF_KEYS: ""}),
        (
            "both_none_forgotten",
            {
                "    allowed = torch.tensor(True)\n": "",
                "allowed & ~blocked_pairs": "~blocked_pairs",
                "allowed &": "(True if blocked_pairs is None else allowed) &",
            },
        ),
        ("forgot_to_return", {"    return allowed\n": ""}),
        ("truth_of_a_tensor", {"if blocked_pairs is not None": "if blocked_pairs"}),
        *at(
            "~blocked_pairs",
            ("pairs_not_turned", "blocked_pairs"),
            ("changes_a_mask_in_place", "blocked_pairs.logical_not_()"),
            ("truth_of_a_tensor", "(not blocked_pairs)"),
        ),
        *at(
            "~blocked_keys",
            ("keys_not_turned", "blocked_keys"),
            ("changes_a_mask_in_place", "blocked_keys.logical_not_()"),
        ),
        *at(
            "& ~blocked_keys",
            ("either_is_enough", "| ~blocked_keys"),
            ("truth_of_a_tensor", "and ~blocked_keys"),
        ),
        *at(
            "[:, None, None, :]",
            ("padding_put_on_queries", "[:, None, :, None]"),
            ("axis_of_the_heads_missing", "[:, None, :]"),
            ("axis_of_the_heads_missing", ""),
            ("padding_put_on_queries", "[:, :, None]"),
        ),
        *at(
            "torch.tensor(True)",
            ("true_without_a_tensor", "True"),
            ("new_mask_on_the_cpu", "torch.tensor([True])"),
        ),
        *at(
            "return allowed",
            ("numbers_in_place_of_bool", "return allowed.float()"),
            ("numbers_in_place_of_bool", "return allowed.int()"),
            ("minus_infinity_in_place_of_bool", "return torch.where(allowed, 0.0, -math.inf)"),
            ("numbers_in_place_of_bool", "return allowed.to(torch.uint8)"),
            (
                "minus_infinity_in_place_of_bool",
                (
                    "return torch.zeros_like(allowed, "
                    "dtype=torch.float32).masked_fill(~allowed, -1e9)"
                ),
            ),
        ),
        *at(
            "tensor(True)",
            ("new_mask_on_the_cpu", "ones(1, 1, 1, 1, dtype=torch.bool)"),
            (
                "none_is_not_looked_at",
                "ones(blocked_pairs.shape, dtype=torch.bool, device=blocked_pairs.device)",
            ),
        ),
    ],
    "masked_softmax": [
        ("polarity_inverted", {"~allowed, lowest": "allowed, lowest", "~allowed,": "allowed,"}),
        ("polarity_inverted", {"~allowed, lowest": "allowed, lowest"}),
        ("polarity_inverted", {"~allowed, lowest": "allowed, lowest", ZEROED: "weights"}),
        ("polarity_inverted", {"~allowed, 0": "allowed, 0"}),
        (
            "mask_has_no_effect",
            {
                WEIGHTS: (
                    "scores.masked_fill(~allowed, lowest)\n"
                    "    weights = torch.softmax(scores, dim=-1)"
                ),
                ".masked_fill(~allowed, 0.0)": "",
            },
        ),
        (
            "mask_has_no_effect",
            {
                WEIGHTS: (
                    "scores.masked_fill(~allowed, lowest)\n"
                    "    weights = torch.softmax(scores, dim=-1)"
                ),
                RETURN: "weights.masked_fill(~allowed, 0.0)\n    return weights",
            },
        ),
        ("filled_with_zero", {LOWEST: "0.0", ZEROED: "weights"}),
        ("filled_with_zero", {FILLED: "(scores * allowed)", ZEROED: "weights"}),
        (
            "filled_with_zero_and_zeroed",
            {FILLED: "(scores * allowed)", ".masked_fill(~allowed, 0.0)": " * allowed"},
        ),
        (
            "masked_after_the_softmax",
            {FILLED: "scores", ".masked_fill(~allowed, 0.0)": " * allowed"},
        ),
        (
            "renormalized_after_the_softmax",
            {
                FILLED: "scores",
                RETURN: (
                    "weights = weights.masked_fill(~allowed, 0.0)\n"
                    "    return weights / weights.sum(dim=-1, keepdim=True)"
                ),
            },
        ),
        (
            "renormalized_after_the_softmax",
            {
                FILLED: "scores",
                RETURN: (
                    "weights = weights * allowed\n"
                    "    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)"
                ),
            },
        ),
        ("filled_with_a_small_number", {LOWEST: "-10000.0", ZEROED: "weights"}),
        ("empty_rows_uniform", {FILLED: "(scores + (~allowed) * -1e9)", ZEROED: "weights"}),
        ("empty_rows_nan", {LOWEST: "-torch.inf", ZEROED: "weights"}),
        ("empty_rows_uniform", {ZEROED: "weights"}),
        ("empty_rows_uniform", {LOWEST: "-1e9", ZEROED: "weights"}),
        (
            "nan_comes_back",
            {
                FILLED: "(scores + torch.where(allowed, 0.0, -torch.inf).to(scores.dtype))",
                "masked_fill(~allowed, 0.0)": "nan_to_num()",
            },
        ),
        (
            "largest_score_not_taken_off",
            {
                WEIGHTS: "parts = scores.exp() * allowed",
                ZEROED: "parts / parts.sum(dim=-1, keepdim=True).clamp(min=1e-9)",
            },
        ),
        ("mask_added_as_numbers", {FILLED: "(scores + allowed)", ZEROED: "weights"}),
        (
            "returns_float32",
            {"(~allowed, lowest), dim=-1": "(~allowed, lowest), dim=-1, dtype=torch.float32"},
        ),
        (
            "changes_the_mask",
            {
                WEIGHTS: (
                    "blocked = allowed.logical_not_()\n"
                    "    weights = torch.softmax(scores.masked_fill(blocked, lowest), dim=-1)"
                ),
                "~allowed,": "blocked,",
            },
        ),
        ("changes_scores_in_place", {"(~allowed, lowest)": "_(~allowed, lowest)"}),
        ("changes_weights_in_place", {RETURN: "weights[~allowed] = 0.0\n    return weights"}),
        ("changes_weights_in_place", {"(~allowed, 0.0)": "_(~allowed, 0.0)"}),
        (
            "infinity_times_zero",
            {FILLED: "(scores + (~allowed) * float('-inf'))", ZEROED: "weights"},
        ),
        *at(
            LOWEST,
            ("filled_with_zero_and_zeroed", "0.0"),
            ("filled_with_a_small_number", "-1e4"),
            ("filled_with_a_small_number", "-1000"),
            ("filled_with_a_small_number", "-100.0"),
            ("filled_with_a_small_number", "-1e5"),
            ("filled_with_a_small_number", "-1e6"),
            ("number_does_not_fit_float16", "-1e9"),
            ("number_does_not_fit_float16", "-1e20"),
            ("filled_with_a_small_number", "-10.0"),
        ),
        *at(
            FILLED,
            ("masked_after_the_softmax", "scores"),
            (
                "filled_with_a_small_number",
                "(scores + (1.0 - allowed.to(scores.dtype)) * -10000.0)",
            ),
            (
                "nan_comes_back",
                "(scores + torch.zeros_like(scores).masked_fill(~allowed, -torch.inf))",
            ),
            ("mask_added_as_numbers", "(scores + allowed)"),
            (
                "new_tensor_on_the_cpu",
                (
                    "torch.where(allowed, scores, torch.full(scores.shape, "
                    "lowest, dtype=scores.dtype))"
                ),
            ),
            (
                "new_tensor_on_the_cpu",
                (
                    "(scores + torch.zeros(scores.shape, "
                    "dtype=scores.dtype).masked_fill(~allowed, lowest))"
                ),
            ),
            ("infinity_times_zero", "(scores + (~allowed) * -torch.inf)"),
        ),
        *at(
            "scores.dtype",
            ("filled_with_a_small_number", "torch.float16"),
            ("number_does_not_fit_float16", "torch.float32"),
        ),
        *at(
            "dim=-1",
            ("softmax_over_the_queries", "dim=-2"),
            ("softmax_over_the_batch", "dim=0"),
            ("axis_counted_from_the_left", "dim=1"),
            ("axis_counted_from_the_left", "dim=3"),
            ("axis_counted_from_the_left", "dim=2"),
        ),
        *at(
            WEIGHTS,
            (
                "largest_score_not_taken_off",
                (
                    "parts = scores.masked_fill(~allowed, lowest).exp()\n"
                    "    weights = parts / parts.sum(dim=-1, keepdim=True)"
                ),
            ),
            (
                "changes_scores_in_place",
                "scores[~allowed] = lowest\n    weights = torch.softmax(scores, dim=-1)",
            ),
            (
                "mask_does_not_broadcast",
                (
                    "scores = scores.clone()\n    scores[~allowed] = lowest\n"
                    "    weights = torch.softmax(scores, dim=-1)"
                ),
            ),
        ),
        *at(
            "scores.masked_fill",
            ("scores_detached", "scores.detach().masked_fill"),
            ("returns_float32", "scores.float().masked_fill"),
        ),
        *at(
            "return weights",
            ("forgot_to_return", "weights = weights"),
            ("returns_float32", "return weights.float()"),
        ),
    ],
    "attention": [
        (
            "masked_after_the_softmax",
            {
                "1) if allowed is None else masked_softmax(scores, allowed": (
                    "1)\n    if allowed is not None:\n"
                    "        weights = weights.masked_fill(~allowed, 0.0"
                )
            },
        ),
        (
            "returns_float32",
            {
                "query @ key": "query.float() @ key.float()",
                "weights @ value,": "weights @ value.float(),",
            },
        ),
        (
            "new_tensor_on_the_cpu",
            {
                "weights = scores.softmax(dim=-1) if allowed is None else": (
                    "if allowed is None:\n"
                    "        allowed = torch.ones(scores.shape, dtype=torch.bool)\n"
                    "    weights ="
                )
            },
        ),
        ("not_scaled", {" / math.sqrt(query.shape[-1])": ""}),
        ("multiplied_by_the_root", {"/ math": "* math"}),
        ("output_alone", {"weights @ value, weights": "weights @ value"}),
        ("weights_first", {" @ value, weights": ", weights @ value"}),
        ("values_detached", {"@ value": "@ value.detach()"}),
        (
            "changes_the_query_in_place",
            {
                "scores = query": "query /= math.sqrt(query.shape[-1])\n    scores = query",
                " / math.sqrt(query.shape[-1])": "",
            },
        ),
        ("none_is_not_looked_at", {"scores.softmax(dim=-1) if allowed is None else ": ""}),
        ("forgot_to_return", {"return weights @ value": "result = weights @ value"}),
        (
            "truth_of_a_tensor",
            {WEIGHED: "masked_softmax(scores, allowed) if allowed else scores.softmax(dim=-1)"},
        ),
        (
            "scaled_after_the_softmax",
            {
                " / math.sqrt(query.shape[-1])": "",
                WEIGHED: (
                    "(scores.softmax(dim=-1) if allowed is None else "
                    "masked_softmax(scores, allowed)) / math.sqrt(query.shape[-1])"
                ),
            },
        ),
        *at(
            "scores, allowed",
            ("polarity_inverted", "scores, ~allowed"),
            ("changes_allowed_in_place", "scores, allowed.logical_not_().logical_not()"),
        ),
        *at(
            MASKED,
            (
                "polarity_inverted",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(allowed, -math.inf)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "mask_has_no_effect",
                (
                    "if allowed is not None:\n"
                    "        scores.masked_fill(~allowed, -math.inf)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "filled_with_zero",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(~allowed, 0.0)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "filled_with_zero",
                (
                    "if allowed is not None:\n        scores = scores * allowed\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "empty_rows_nan",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(~allowed, -math.inf)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "empty_rows_nan",
                (
                    "if allowed is not None:\n"
                    "        scores = torch.where(allowed, scores, -math.inf)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "empty_rows_uniform",
                (
                    "if allowed is not None:\n        scores = scores.masked_fill(~allowed, "
                    "torch.finfo(scores.dtype).min)\n    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "empty_rows_uniform",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(~allowed, -1e9)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "filled_with_a_small_number",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(~allowed, -1e4)\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "nan_comes_back",
                (
                    "if allowed is not None:\n        scores = scores + "
                    "torch.zeros_like(scores).masked_fill(~allowed, -math.inf)\n"
                    "    weights = scores.softmax(dim=-1).nan_to_num()"
                ),
            ),
            (
                "mask_added_as_numbers",
                (
                    "if allowed is not None:\n        scores = scores + allowed\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "new_tensor_on_the_cpu",
                (
                    "mask = torch.zeros(scores.shape, dtype=torch.bool)\n"
                    "    if allowed is not None:\n        mask = mask | ~allowed\n"
                    "    weights = masked_softmax(scores, ~mask)"
                ),
            ),
            (
                "infinity_times_zero",
                (
                    "if allowed is not None:\n"
                    "        scores = scores + ~allowed * -math.inf\n"
                    "    weights = scores.softmax(dim=-1)"
                ),
            ),
            (
                "filled_with_a_small_number",
                (
                    "if allowed is not None:\n"
                    "        scores = scores.masked_fill(~allowed, -100.0)\n"
                    "    weights = scores.softmax(dim=-1)\n    if allowed is not None:\n"
                    "        weights = weights * allowed"
                ),
            ),
        ),
        *at(
            "masked_softmax(scores, allowed)",
            ("filled_with_zero_and_zeroed", "(scores * allowed).softmax(dim=-1) * allowed"),
            ("masked_after_the_softmax", "scores.softmax(dim=-1) * allowed"),
            (
                "changes_allowed_in_place",
                (
                    "scores.masked_fill(allowed.logical_not_(), "
                    "-torch.inf).softmax(dim=-1).nan_to_num()"
                ),
            ),
        ),
        *at(
            "dim=-1",
            ("softmax_over_the_queries", "dim=-2"),
            ("softmax_over_the_batch", "dim=0"),
            ("axis_counted_from_the_left", "dim=1"),
            ("axis_counted_from_the_left", "dim=3"),
        ),
        *at(
            "softmax(dim=-1) if allowed is None else masked_softmax(scores, allowed)",
            (
                "scores_detached",
                (
                    "detach().softmax(dim=-1) if allowed is None else "
                    "masked_softmax(scores.detach(), allowed)"
                ),
            ),
            (
                "none_is_not_looked_at",
                "masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1)",
            ),
        ),
        *at(
            "query @ key",
            ("scores_detached", "query.detach() @ key.detach()"),
            ("query_and_key_exchanged", "key @ query"),
        ),
        *at(
            "math.sqrt(query.shape[-1])",
            ("scaled_by_the_width", "query.shape[-1]"),
            ("root_taken_twice", "query.shape[-1] ** 0.25"),
        ),
        *at(
            "query.shape[-1]",
            ("scaled_by_the_number_of_keys", "key.shape[-2]"),
            ("scaled_by_the_number_of_keys", "query.shape[-2]"),
        ),
        *at(
            "key.transpose(-2, -1)",
            ("key_not_transposed", "key"),
            ("all_axes_transposed", "key.T"),
            ("axis_counted_from_the_left", "key.permute(0, 1, 3, 2)"),
            ("axis_counted_from_the_left", "key.permute(0, 2, 1)"),
        ),
        *at(
            "transpose(-2, -1)",
            ("axis_counted_from_the_left", "transpose(1, 2)"),
            ("axis_counted_from_the_left", "transpose(2, 3)"),
        ),
        *at(
            "weights @ value",
            ("values_exchanged_for_keys", "weights @ key"),
            (
                "torch_attention",
                (
                    "torch.nn.functional.scaled_dot_product_attention(query, "
                    "key, value, attn_mask=allowed)"
                ),
            ),
        ),
        *at(
            "value, weights",
            ("weights_detached", "value, weights.detach()"),
            ("weights_before_the_mask", "value, scores.softmax(dim=-1)"),
            ("scores_in_place_of_weights", "value, scores"),
        ),
    ],
    "KVCache": [
        (
            "overwritten",
            {
                (
                    "torch.cat([self.keys, key], dim=2), torch.cat([self.values, value], dim=2)"
                ): "key, value"
            },
        ),
        (
            "new_tokens_first",
            {
                "self.keys, key], dim=2), torch.cat([self.values, value": (
                    "key, self.keys], dim=2), torch.cat([value, self.values"
                )
            },
        ),
        (
            "joined_along_the_batch",
            {
                ", dim=2), torch.cat([self.values, value], dim=2": (
                    "), torch.cat([self.values, value]"
                )
            },
        ),
        ("empty_cache_not_looked_at", {IF_EMPTY: ""}),
        (
            "keys_and_values_exchanged",
            {
                "keys, key], dim=2), torch.cat([self.values, value": (
                    "values, value], dim=2), torch.cat([self.keys, key"
                )
            },
        ),
        (
            "changes_itself",
            {
                JOINED: (
                    "self.keys = torch.cat([self.keys, key], dim=2)\n"
                    "        self.values = torch.cat([self.values, value], dim=2)\n"
                    "        return self"
                )
            },
        ),
        (
            "returns_nothing",
            {
                "return KVCache(key, value)": (
                    "self.keys, self.values = key, value\n            return"
                ),
                JOINED: (
                    "self.keys = torch.cat([self.keys, key], dim=2)\n"
                    "        self.values = torch.cat([self.values, value], dim=2)"
                ),
            },
        ),
        (
            "returns_the_tensors",
            {"return KVCache(key": "return (key", "return KVCache(torch": "return (torch"},
        ),
        ("length_of_an_empty_cache", {"0 if self.keys is None else ": ""}),
        ("length_is_a_method", {"    @property\n": ""}),
        (
            "empty_tensors_for_none",
            {
                ", self.values = keys,": (
                    " = torch.empty(0) if keys is None else keys\n"
                    "        self.values = torch.empty(0) if values is None else"
                ),
                ".keys is None ": ".keys.numel() == 0 ",
            },
        ),
        (
            "detached",
            {
                "key], dim=2), torch.cat([self.values, value": (
                    "key.detach()], dim=2), torch.cat([self.values, value.detach()"
                )
            },
        ),
        (
            "detached",
            {"  if self.keys": "  key, value = key.detach(), value.detach()\n        if self.keys"},
        ),
        ("joined_to_the_other", {"self.values, value]": "self.keys, value]"}),
        (
            "stacked",
            {
                "cat([self.keys, key], dim=2), torch.cat": (
                    "stack([self.keys, key], dim=2), torch.stack"
                )
            },
        ),
        ("truth_of_a_tensor", {"if self.keys is None:": "if not self.keys:"}),
        ("joined_to_the_other", {"keys, key": "values, key"}),
        (
            "empty_tensors_for_none",
            {
                ", self.values = keys,": (
                    " = [] if keys is None else keys\n"
                    "        self.values = [] if values is None else"
                ),
                "self.keys is None ": "len(self.keys) == 0 ",
                "self.keys is None": "len(self.keys) == 0",
            },
        ),
        ("keys_and_values_exchanged", {"(key, value)": "(value, key)"}),
        (
            "keys_and_values_exchanged",
            {
                "(key, value)": "(value, key)",
                "keys, key], dim=2), torch.cat([self.values, value": (
                    "values, value], dim=2), torch.cat([self.keys, key"
                ),
            },
        ),
        *at(
            "2), torch.cat([self.values, value], dim=2",
            ("joined_along_the_heads", "1), torch.cat([self.values, value], dim=1"),
            ("joined_along_the_features", "-1), torch.cat([self.values, value], dim=-1"),
        ),
        *at(
            "keys, values",
            ("keys_and_values_exchanged", "values, keys"),
            ("arguments_ignored", "None, None"),
        ),
        *at(
            "return KVCache(torch",
            ("returns_nothing", "KVCache(torch"),
            ("returns_the_tensors", "return (torch"),
        ),
        *at(
            "shape[2]",
            ("length_counts_another_axis", "shape[1]"),
            ("length_counts_another_axis", "shape[-1]"),
        ),
        *at(
            "0 if self.keys is None else self.keys.shape[2]",
            ("length_of_an_empty_cache", "self.keys.size(2)"),
            ("length_is_a_tensor", "torch.tensor(0 if self.keys is None else self.keys.shape[2])"),
            ("truth_of_a_tensor", "self.keys.shape[2] if self.keys else 0"),
        ),
        *at(
            "self.keys.shape[2]",
            ("length_is_a_tensor", "torch.tensor(self.keys.shape[2])"),
            ("length_counts_another_axis", "len(self.keys)"),
        ),
        *at(
            ", self.values = keys, values",
            (
                "detached",
                (
                    " = None if keys is None else keys.detach()\n"
                    "        self.values = None if values is None else values.detach()"
                ),
            ),
            (
                "float32_always",
                (
                    " = None if keys is None else keys.float()\n"
                    "        self.values = None if values is None else values.float()"
                ),
            ),
        ),
        *at(
            "torch.cat([self.values, value], dim=2)",
            ("one_of_two_joined", "value"),
            ("one_of_two_joined", "self.values"),
        ),
    ],
    "ManualMultiHeadAttention": [
        (
            "one_projection_for_all_three",
            {
                "key_projection(source)": "query_projection(source)",
                "value_projection(source)": "query_projection(source)",
            },
        ),
        (
            "one_projection_for_all_three",
            {
                "key_projection = nn.Linear(d_model, d_model)": (
                    "key_projection = self.query_projection"
                ),
                "value_projection = nn.Linear(d_model, d_model)": (
                    "value_projection = self.query_projection"
                ),
            },
        ),
        (
            "keys_and_values_exchanged",
            {
                "key_projection(source)": "value_projection(source)",
                "value = self.split_heads(self.value_projection(source))": (
                    "value = self.split_heads(self.key_projection(source))"
                ),
            },
        ),
        (
            "no_output_projection",
            {
                "        self.output_projection = nn.Linear(d_model, d_model)\n": "",
                PROJECTED: MERGED,
            },
        ),
        (
            "no_output_projection",
            {"        self.output_projection = nn.Linear(d_model, d_model)\n": ""},
        ),
        ("output_projection_unused", {PROJECTED: MERGED}),
        (
            "split_without_transpose",
            {
                "unflatten(-1, (self.num_heads, -1)).transpose(1, 2)": (
                    "view(x.shape[0], self.num_heads, x.shape[1], -1)"
                )
            },
        ),
        (
            "heads_on_the_token_axis",
            {
                SPLIT: "(self.num_heads, -1))",
                "transpose(1, 2).": "",
                "query.shape[2]": "query.shape[1]",
            },
        ),
        (
            "features_dealt_out",
            {"(self.num_heads, -1)).transpose(": "(-1, self.num_heads)).permute(0, 3, "},
        ),
        (
            "features_dealt_out",
            {
                "(self.num_heads, -1)).transpose(": "(-1, self.num_heads)).permute(0, 3, ",
                "heads.transpose(1, 2)": "heads.permute(0, 2, 3, 1)",
            },
        ),
        ("not_scaled", {" / math.sqrt(query.shape[-1])": ""}),
        ("scaled_by_the_head_s_width", {"math.sqrt(query.shape[-1])": "query.shape[-1]"}),
        ("returns_the_weights_too", {"else output": "else (output, weights)"}),
        ("forgot_to_return", {"        return (output, cache) if use_cache else output\n": ""}),
        ("memory_ignored", {" if memory is None else memory": ""}),
        ("queries_from_the_memory", {"(query_input)": "(source)"}),
        ("memory_turned", {" and memory is None": ""}),
        (
            "memory_turned",
            {
                " and memory is None": "",
                TURNED: (
                    "key_positions = past.length + torch.arange(key.shape[2], "
                    "device=key.device)\n"
                    "            query, key = apply_rope(query, positions), "
                    "apply_rope(key, key_positions)"
                ),
            },
        ),
        ("key_valid_ignored", {HIDDEN: "None"}),
        (
            "key_valid_silences_queries",
            {
                "return (output": (
                    "if key_valid is not None:\n"
                    "            output = output.masked_fill(~key_valid[:, "
                    "-output.shape[1] :, None], 0.0)\n        return (output"
                )
            },
        ),
        (
            "key_valid_silences_queries",
            {
                "if query_valid": (
                    "query_valid = key_valid if query_valid is None else query_valid\n"
                    "        if query_valid"
                )
            },
        ),
        ("query_valid_ignored", {SILENCED: ""}),
        ("query_valid_ignored", {"output = output.masked_fill": "output.masked_fill"}),
        ("query_valid_inverted", {"~query_valid": "query_valid"}),
        (
            "silenced_before_the_projection",
            {
                "cache.values": (
                    "cache.values\n        if query_valid is not None:\n"
                    "            heads = heads.masked_fill(~query_valid[:, None, "
                    ":, None], 0.0)"
                ),
                SILENCED: "",
            },
        ),
        (
            "input_silenced",
            {
                "source = query_input": (
                    "if query_valid is not None:\n"
                    "            query_input = query_input * query_valid[:, :, None]\n"
                    "        source = query_input"
                ),
                SILENCED: "",
            },
        ),
        ("causal_always", {"if causal": "if memory is None"}),
        ("causal_inverted", {"blocked = ": "blocked = ~"}),
        (
            "itself_blocked",
            {
                CAUSAL: (
                    "torch.ones(cache.length, cache.length, dtype=torch.bool, "
                    "device=query.device).triu()"
                )
            },
        ),
        (
            "rows_that_see_nothing_are_zero",
            {
                SOFTMAXED: "scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)",
                ".flatten(2))": ".flatten(2)).nan_to_num()",
            },
        ),
        (
            "dropout_on_the_output",
            {
                DROPPED: SOFTMAXED,
                "output_projection(heads.transpose(1, 2).flatten(2))": (
                    "dropout(self.output_projection(heads.transpose(1, 2).flatten(2)))"
                ),
            },
        ),
        (
            "dropout_twice",
            {
                "output_projection(heads.transpose(1, 2).flatten(2))": (
                    "dropout(self.output_projection(heads.transpose(1, 2).flatten(2)))"
                )
            },
        ),
        (
            "dropout_on_the_mixture",
            {DROPPED: SOFTMAXED, "weights @ cache.values": "self.dropout(weights @ cache.values)"},
        ),
        (
            "dropout_on_the_mixture",
            {DROPPED: SOFTMAXED, MERGED: "self.dropout(heads.transpose(1, 2).flatten(2))"},
        ),
        (
            "dropout_in_eval_mode",
            {
                "nn.Dropout(dropout)": "dropout",
                DROPPED: "nn.functional.dropout(masked_softmax(scores, allowed), self.dropout)",
            },
        ),
        ("dropout_by_default", {"dropout=0.0": "dropout=0.1"}),
        (
            "renormalized_after_the_dropout",
            {
                "heads = weights": (
                    "weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)\n"
                    "        heads = weights"
                )
            },
        ),
        ("rope_ignored", {"if self.use_rope and memory is None": "if False"}),
        ("rope_always", {"self.use_rope and ": ""}),
        (
            "values_turned",
            {
                " = apply_rope(query, positions), apply_rope(key, positions)": (
                    ", value = (apply_rope(one, positions) for one in (query, key, value))"
                )
            },
        ),
        (
            "query_alone_turned",
            {
                ", key = apply_rope(query, positions), apply_rope(key, positions)": (
                    " = apply_rope(query, positions)"
                )
            },
        ),
        (
            "turned_before_the_split",
            {
                "split_heads(self.query_projection(query_input))": "query_projection(query_input)",
                "split_heads(self.key_projection(source))": "key_projection(source)",
                "query.shape[2]": "query.shape[1]",
                "(key, positions)": (
                    "(key, positions)\n"
                    "        query, key = self.split_heads(query), self.split_heads(key)"
                ),
            },
        ),
        ("positions_begin_again", {POSITIONS: "torch.arange"}),
        ("positions_one_off", {"torch.arange": "1 + torch.arange"}),
        ("positions_one_off", {"past.length +": "max(past.length - 1, 0) +"}),
        ("positions_one_off", {".length +": ".length - 1 +"}),
        (
            "one_position_for_all_new_tokens",
            {
                "past.length + torch.arange(query.shape[2], device=query.device)": (
                    "torch.full((query.shape[2],), past.length, device=query.device)"
                )
            },
        ),
        ("use_cache_ignored", {"(output, cache) if use_cache else ": ""}),
        (
            "no_cache_on_the_first_call",
            {
                " = KVCache() if cache is None else cache": (
                    ", first = (KVCache(), True) if cache is None else (cache, False)"
                ),
                "output, cache": "output, None if first else cache",
            },
        ),
        ("cache_ignored", {"() if cache is None else cache": "()"}),
        (
            "cache_ignored",
            {
                "KVCache() if cache is None else cache": (
                    "cache if use_cache and cache is not None else KVCache()"
                )
            },
        ),
        ("pair_for_a_cache", {"if use_cache": "if use_cache or past.length"}),
        (
            "cache_kept_in_the_module",
            {
                "KVCache()": "getattr(self, 'past', KVCache())",
                "(key, value)": "(key, value)\n        self.past = cache if use_cache else None",
            },
        ),
        ("cached_without_gradient", {"key, value": "key.detach(), value.detach()"}),
        (
            "given_cache_changed",
            {
                "(key, value)": "(key, value)\n        past.__dict__.update(vars(cache))",
                "[past.length :] if": "[-query.shape[2] :] if",
            },
        ),
        (
            "given_cache_changed",
            {
                APPENDED: (
                    "start = past.length\n        cache = past.append(key, value)\n"
                    "        past.keys, past.values = cache.keys, cache.values\n"
                    "        cache = past"
                ),
                "[past.length :] if": "[start:] if",
            },
        ),
        (
            "mask_of_the_new_tokens_alone",
            {"(cache.length, query.device)[past.length :]": "(query.shape[2], query.device)"},
        ),
        ("mask_from_the_first_row", {"[past.length :]": "[: query.shape[2]]"}),
        ("no_error_for_a_width_that_does_not_divide", {REFUSED: ""}),
        (
            "another_error",
            {
                (
                    "if d_model % num_heads:\n"
                    "            raise ValueError(f\"a width of {d_model} can't "
                    'be split into {num_heads} equal heads")'
                ): "assert d_model % num_heads == 0"
            },
        ),
        (
            "returns_float32",
            {"return (output, cache)": "output = output.float()\n        return (output, cache)"},
        ),
        ("mask_on_the_cpu", {", query.device": ""}),
        ("positions_on_the_cpu", {", device=query.device": ""}),
        ("nothing_blocked_on_the_cpu", {ON_THE_DEVICE: ""}),
        (
            "cut_out_of_the_gradient",
            {"(self.key_projection(source))": "(self.key_projection(source)).detach()"},
        ),
        ("cut_out_of_the_gradient", {"(scores, allowed)": "(scores, allowed).detach()"}),
        (
            "cut_out_of_the_gradient",
            {"(self.value_projection(source))": "(self.value_projection(source)).detach()"},
        ),
        (
            "cut_out_of_the_gradient",
            {"weights @ cache.values": "(weights @ cache.values).detach()"},
        ),
        ("cut_out_of_the_gradient", {"else memory": "else memory.detach()"}),
        (
            "mask_kept_from_the_first_call",
            {
                CAUSAL + "[past.length :]": "self.mask[past.length : cache.length, : cache.length]",
                "blocked =": (
                    "if not hasattr(self, 'mask'):\n"
                    "            self.mask = causal_blocked_mask(cache.length, "
                    "query.device)\n        blocked ="
                ),
            },
        ),
        ("merged_without_transpose", {"transpose(1, 2).": ""}),
        ("keys_not_transposed", {".transpose(-2, -1)": ""}),
        (
            "mask_without_axes",
            {
                DROPPED: "None",
                "weights @ cache.values": (
                    "nn.functional.scaled_dot_product_attention(query, "
                    "cache.keys, cache.values, attn_mask=allowed, "
                    "dropout_p=self.dropout.p if self.training else 0.0)"
                ),
            },
        ),
        (
            "dropout_in_eval_mode",
            {
                DROPPED: "None",
                "weights @ cache.values": (
                    "nn.functional.scaled_dot_product_attention(query, "
                    "cache.keys, cache.values, attn_mask=allowed if "
                    "allowed.dim() else None, dropout_p=self.dropout.p)"
                ),
            },
        ),
        ("truth_of_a_tensor", {SOURCE: "memory or query_input"}),
        ("truth_of_a_tensor", {" is not None": ""}),
        (
            "positions_begin_again",
            {
                ", key = apply_rope(query, positions),": (
                    " = apply_rope(query, torch.arange(query.shape[2], "
                    "device=query.device))\n            key ="
                )
            },
        ),
        ("appended_cache_dropped", {APPENDED: "past.append(key, value)\n        cache = past"}),
        (
            "itself_blocked",
            {
                CAUSAL + "[past.length :]": (
                    "torch.ones(query.shape[2], cache.length, dtype=torch.bool, "
                    "device=query.device).triu(past.length)"
                )
            },
        ),
        (
            "projections_without_bias",
            {
                "self.output_projection = nn.Linear(d_model, d_model": (
                    "self.output_projection = nn.Linear(d_model, d_model, bias=False"
                )
            },
        ),
        (
            "split_without_transpose",
            {
                "unflatten(-1, (self.num_heads, -1)).transpose(1, 2)": (
                    "reshape(x.shape[0], self.num_heads, x.shape[1], x.shape[2] // self.num_heads)"
                ),
                "transpose(1, 2).flatten(2)": "reshape(query_input.shape)",
            },
        ),
        *at(
            ".flatten(2))",
            ("shortcut_inside", ".flatten(2)) + query_input"),
            ("view_of_what_is_transposed", ".view(query_input.shape))"),
        ),
        *at(
            "transpose(1, 2).flatten(2)",
            ("merged_without_transpose", "reshape(query_input.shape)"),
            ("heads_averaged", "mean(dim=1).repeat(1, 1, self.num_heads)"),
            ("heads_averaged", "mean(dim=1)"),
            ("heads_averaged", "sum(dim=1)"),
        ),
        *at(
            "query.shape[-1]",
            ("scaled_by_the_whole_width", "query_input.shape[-1]"),
            ("scaled_by_the_number_of_heads", "self.num_heads"),
        ),
        *at(
            SOFTMAXED,
            (
                "softmax_over_the_queries",
                ("scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-2)"),
            ),
            ("masked_after_the_softmax", "scores.softmax(dim=-1) * allowed"),
            ("masked_after_the_softmax", "scores.softmax(dim=-1).masked_fill(~allowed, 0.0)"),
            (
                "filled_with_a_small_number",
                ("scores.masked_fill(~allowed, -1e4).softmax(dim=-1).masked_fill(~allowed, 0.0)"),
            ),
            (
                "filled_with_a_small_number",
                "(scores.masked_fill(~allowed, -100.0).softmax(dim=-1) * allowed)",
            ),
            ("rows_that_see_nothing_see_all", "scores.masked_fill(~allowed, -1e4).softmax(dim=-1)"),
            (
                "rows_that_see_nothing_are_nan",
                "scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)",
            ),
            (
                "rows_that_see_nothing_are_nan",
                "torch.where(allowed, scores, -math.inf).softmax(dim=-1)",
            ),
            (
                "rows_that_see_nothing_see_all",
                ("scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=-1)"),
            ),
            ("rows_that_see_nothing_see_all", "scores.masked_fill(~allowed, -1e9).softmax(dim=-1)"),
            (
                "nan_comes_back",
                (
                    "torch.nan_to_num((scores + "
                    "torch.zeros_like(scores).masked_fill(~allowed, "
                    "-math.inf)).softmax(dim=-1))"
                ),
            ),
            (
                "softmax_over_the_heads",
                ("scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(dim=1)"),
            ),
        ),
        *at(
            "(output, cache) if use_cache else output",
            (
                "returns_the_weights_too",
                "(output, weights, cache) if use_cache else (output, weights)",
            ),
            ("pair_at_every_call", "output, cache"),
        ),
        *at(
            "key_projection(source)",
            ("keys_from_the_query_side", "key_projection(query_input)"),
            ("one_projection_for_two", "query_projection(source)"),
        ),
        *at(
            "value_projection(source)",
            ("values_from_the_query_side", "value_projection(query_input)"),
            ("one_projection_for_two", "key_projection(source)"),
        ),
        *at(
            "~key_valid",
            ("key_valid_inverted", "key_valid"),
            (
                "cached_padding_seen",
                (
                    "(~key_valid[:, -query.shape[2] :] if not past.length else "
                    "torch.cat([torch.zeros_like(key_valid[:, : past.length]), "
                    "~key_valid[:, past.length :]], dim=1))"
                ),
            ),
        ),
        *at(
            "(blocked, None if key_valid is None else ~key_valid)",
            (
                "padding_hidden_as_queries",
                (
                    "(blocked)\n        if key_valid is not None:\n"
                    "            allowed = allowed.to(query.device) & "
                    "key_valid[:, None, :, None]"
                ),
            ),
            (
                "either_mask_is_enough",
                (
                    "(blocked)\n        if key_valid is not None:\n"
                    "            seen = key_valid[:, None, None, :]\n"
                    "            allowed = allowed | seen if causal else seen"
                ),
            ),
        ),
        *at(
            "source = query_input",
            (
                "input_silenced",
                (
                    "if query_valid is not None:\n            query_input = "
                    "query_input.masked_fill(~query_valid[:, :, None], 0.0)\n"
                    "        source = query_input"
                ),
            ),
            (
                "input_silenced",
                (
                    "if query_valid is not None:\n"
                    "            query_input *= query_valid[:, :, None]\n"
                    "        source = query_input"
                ),
            ),
        ),
        *at(
            " if causal else None",
            ("causal_ignored", " if False else None"),
            ("causal_always", ""),
        ),
        *at(
            "else None",
            ("causal_always", "or cache is not None else None"),
            ("causal_dropped_beside_padding", "and key_valid is None else None"),
            ("new_tokens_see_all_new_ones", "and not past.length else None"),
        ),
        *at(
            "(cache.length, query.device)",
            ("past_blocked", "(cache.length, query.device).T"),
            ("next_token_visible", "(cache.length, query.device).triu(2)"),
        ),
        *at(
            "None else ~",
            ("padding_dropped_beside_causal", "None or causal else ~"),
            ("cached_padding_seen", "None or past.length else ~"),
        ),
        *at(
            DROPPED,
            ("dropout_unused", SOFTMAXED),
            ("dropout_on_the_scores", "masked_softmax(self.dropout(scores), allowed)"),
        ),
        *at(
            "nn.Dropout(dropout)",
            ("dropout_by_default", "nn.Dropout()"),
            ("dropout_by_default", "nn.Dropout(0.1)"),
        ),
        *at(
            GIVEN,
            ("cache_first", "(cache, output) if"),
            ("old_cache_returned", "(output, past) if"),
        ),
        *at(
            "output, cache",
            ("keys_and_values_in_place_of_a_cache", "output, (cache.keys, cache.values)"),
            ("keys_and_values_in_place_of_a_cache", "output, cache.keys, cache.values"),
            ("cache_overwritten", "output, KVCache(key, value)"),
            (
                "cached_without_gradient",
                "output, KVCache(cache.keys.detach(), cache.values.detach())",
            ),
        ),
        *at(
            "raise ValueError",
            ("another_error", "raise RuntimeError"),
            ("another_error", "raise TypeError"),
            ("another_error", "raise Exception"),
            ("another_error", "raise AssertionError"),
        ),
        *at(
            ", allowed",
            ("weights_stay_float32", ".float(), allowed"),
            ("cut_out_of_the_gradient", ".detach(), allowed"),
            ("masks_inverted", ", ~allowed"),
        ),
    ],
}
