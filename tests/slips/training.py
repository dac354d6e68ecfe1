"""Slips in lesson 08's reference."""

HEATED = "torch.softmax(logits / temperature, dim=-1)"
CUT = "shares.cumsum(dim=-1) - shares >= top_p"
RENORMALIZED = "shares[:, :top_k] / shares[:, :top_k].sum(dim=-1, keepdim=True)"
DRAWN = "torch.multinomial(shares, 1, generator=generator)"

SLIPS = {
    "train_step": [
        ("gradients_never_cleared", {"    optimizer.zero_grad()\n": ""}),
    ],
    "sample_next": [
        ("temperature_multiplied", {"logits / temperature": "logits * temperature"}),
        ("temperature_ignored", {"logits / temperature": "logits"}),
        ("temperature_ignored", {HEATED: "(torch.softmax(logits, dim=-1) / temperature)"}),
        ("temperature_in_place", {"logits / temperature": "logits.div_(temperature)"}),
        ("temperature_held_up", {"logits / temperature": "logits / max(temperature, 0.1)"}),
        ("one_too_many", {RENORMALIZED: RENORMALIZED.replace(":top_k", ": top_k + 1")}),
        ("one_too_many", {RENORMALIZED: "shares[:, : top_k + 1]"}),
        (
            "least_likely_kept",
            {RENORMALIZED: "shares[:, -top_k:]\n        ids = ids[:, -top_k:]"},
        ),
        ("top_k_ignored", {RENORMALIZED: "shares / shares.sum(dim=-1, keepdim=True)"}),
        (
            "top_p_ignored",
            {"masked_fill(left_out, 0.0)": "masked_fill(left_out, 1.0).minimum(shares)"},
        ),
        ("top_p_ignored", {"if top_p is not None": "if False"}),
        ("crossing_token_dropped_but_the_first", {CUT: "shares.cumsum(dim=-1) > top_p"}),
        (
            "crossing_token_dropped_but_the_first",
            {CUT: "(shares.cumsum(dim=-1) >= top_p) & (top_p < 1)"},
        ),
        (
            "crossing_token_dropped",
            {
                CUT: "(shares.cumsum(dim=-1) > top_p) & (top_p < 1)",
                "        left_out[:, 0] = False\n": "",
            },
        ),
        ("share_compared_with_p", {CUT: "shares < 1 - top_p"}),
        ("sorted_upwards", {"descending=True": "descending=False"}),
        ("place_for_id", {"ids.gather(1, places)[:, 0]": "places[:, 0]"}),
        ("top_p_of_all_shares", {RENORMALIZED: "shares[:, :top_k]"}),
        ("one_filter_of_two", {"    if top_p is": "    elif top_p is"}),
        ("always_the_largest", {DRAWN: "shares.argmax(dim=-1, keepdim=True)"}),
        (
            "drawn_evenly",
            {DRAWN: "torch.multinomial((shares > 0).float(), 1, generator=generator)"},
        ),
        ("generator_ignored", {", generator=generator)": ")"}),
        (
            "seeded_from_the_generator",
            {
                "    places =": "    if generator is not None:\n"
                "        torch.manual_seed(generator.initial_seed())\n"
                "    places =",
                ", generator=generator)": ")",
            },
        ),
        ("squeezed_too_far", {"ids.gather(1, places)[:, 0]": "ids.gather(1, places).squeeze()"}),
        ("a_column_returned", {"ids.gather(1, places)[:, 0]": "ids.gather(1, places)"}),
        (
            "one_draw_for_all_rows",
            {
                DRAWN: "(shares.cumsum(dim=-1) / shares.sum(dim=-1, keepdim=True)"
                " < torch.rand(1, generator=generator, device=shares.device))"
                ".sum(dim=-1, keepdim=True).clamp(max=shares.shape[1] - 1)"
            },
        ),
        (
            "top_p_before_the_temperature",
            {
                "logits / temperature": "logits",
                "    places =": "    shares = shares ** (1 / temperature)\n    places =",
            },
        ),
        (
            "divided_by_zero",
            {"    if temperature == 0:\n        return logits.argmax(dim=-1)\n": ""},
        ),
    ],
}
