"""Slips in lesson 08's reference."""

SHIFT = "logits[:, :-1], token_ids[:, 1:]"
CROSS_ENTROPY = "F.cross_entropy(guesses.transpose(1, 2), targets, ignore_index=pad_id)"
RETURN = f"return {CROSS_ENTROPY}"
EACH = f'losses = {CROSS_ENTROPY[:-1]}, reduction="none")\n'
SHARES = "shares = guesses.softmax(-1).gather(-1, targets[..., None])[..., 0]\n"
LENGTH = "torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))"
CLEAR = "    optimizer.zero_grad()\n"
LOSS = "next_token_loss(model(token_ids), token_ids)"
BACKWARD = "    loss.backward()\n"
CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "    optimizer.step()\n"
BY_HAND = (
    f"    norm = {LENGTH}\n"
    "    if norm > max_norm:\n"
    "        for p in model.parameters():\n"
    "            p.grad *= max_norm / norm\n"
)
COUNTED = "(token_ids[:, 1:] != 0).sum().item()"
TOTAL = f"total += {LOSS}.item() * counted"
COUNT = "                count += counted\n"
MODES = "modes = [(module, module.training) for module in model.modules()]"
RESTORE = "    for module, mode in modes:\n        module.training = mode\n"
HEATED = "torch.softmax(logits / temperature, dim=-1)"
CUT = "shares.cumsum(dim=-1) - shares >= top_p"
RENORMALIZED = "shares[:, :top_k] / shares[:, :top_k].sum(dim=-1, keepdim=True)"
DRAWN = "torch.multinomial(shares, 1, generator=generator)"
CACHED = "logits, caches = model(new, caches=caches, use_cache=True)"
SAMPLE = "new = sample_next(logits[:, -1], temperature, generator=generator)[:, None]"
INLINE = (
    "last = logits[:, -1]\n"
    "        if temperature == 0:\n"
    "            new = last.argmax(-1, keepdim=True)\n"
    "        else:\n"
    "            shares = torch.softmax(last / temperature, -1)\n"
    "            new = torch.multinomial(shares, 1, generator=generator)"
)

SLIPS = {
    "next_token_loss": [
        ("not_shifted", {SHIFT: "logits, token_ids"}),
        ("not_shifted", {SHIFT: "logits[:, 1:], token_ids[:, 1:]"}),
        ("not_shifted", {SHIFT: "logits[:, :-1], token_ids[:, :-1]"}),
        ("shifted_twice", {SHIFT: "logits[:, :-2], token_ids[:, 2:]"}),
        ("shifted_backwards", {SHIFT: "logits[:, 1:], token_ids[:, :-1]"}),
        ("rolled_round", {SHIFT: "logits, token_ids.roll(-1, dims=1)"}),
        (
            "rows_run_together",
            {
                SHIFT: "logits.flatten(0, 1)[:-1], token_ids.flatten()[1:]",
                "guesses.transpose(1, 2)": "guesses",
            },
        ),
        ("vocabulary_last", {"guesses.transpose(1, 2)": "guesses"}),
        (
            "reshaped_for_transposed",
            {
                "guesses.transpose(1, 2)": "guesses.reshape(len(guesses), -1, guesses.shape[1])",
            },
        ),
        ("padding_counted", {", ignore_index=pad_id": ""}),
        ("padding_counted", {"ignore_index=pad_id": "ignore_index=-100"}),
        ("summed", {"ignore_index=pad_id": 'ignore_index=pad_id, reduction="sum"'}),
        (
            "summed",
            {
                CROSS_ENTROPY: "F.cross_entropy(guesses.transpose(1, 2), targets, "
                'reduction="none")[targets != pad_id].sum()'
            },
        ),
        ("a_loss_for_each", {"ignore_index=pad_id": 'ignore_index=pad_id, reduction="none"'}),
        (
            "a_loss_for_each",
            {"ignore_index=pad_id)": 'reduction="none")[targets != pad_id]'},
        ),
        ("labels_smoothed", {"ignore_index=pad_id": "ignore_index=pad_id, label_smoothing=0.1"}),
        (
            "inputs_left_out",
            {
                RETURN: "keep = token_ids[:, :-1] != pad_id\n"
                "    return F.cross_entropy(guesses[keep], targets[keep])"
            },
        ),
        (
            "inputs_left_out",
            {
                RETURN: EACH.replace(", ignore_index=pad_id", "")
                + "    keep = (token_ids[:, :-1] != pad_id).to(losses.dtype)\n"
                "    return (losses * keep).sum() / keep.sum()"
            },
        ),
        ("pad_fixed_at_zero", {"ignore_index=pad_id": "ignore_index=0"}),
        (
            "divided_by_all",
            {"ignore_index=pad_id)": 'ignore_index=pad_id, reduction="none").mean()'},
        ),
        (
            "divided_by_all",
            {"ignore_index=pad_id)": 'ignore_index=pad_id, reduction="sum") / targets.numel()'},
        ),
        (
            "first_column_counted",
            {"ignore_index=pad_id)": 'ignore_index=pad_id, reduction="sum") / token_ids.numel()'},
        ),
        (
            "first_column_counted",
            {
                "ignore_index=pad_id)": 'ignore_index=pad_id, reduction="sum")'
                " / (token_ids != pad_id).sum()"
            },
        ),
        (
            "mean_of_row_means",
            {RETURN: EACH + "    return (losses.sum(1) / (targets != pad_id).sum(1)).mean()"},
        ),
        (
            "mean_of_row_means",
            {
                RETURN: EACH
                + "    return (losses.sum(1) / (targets != pad_id).sum(1).clamp(min=1)).mean()"
            },
        ),
        (
            "mean_of_row_means",
            {
                RETURN: "rows = [F.cross_entropy(one, other, ignore_index=pad_id)\n"
                "            for one, other in zip(guesses, targets)]\n"
                "    return torch.stack(rows).mean()"
            },
        ),
        ("softmax_first", {"guesses.transpose(1, 2)": "guesses.softmax(-1).transpose(1, 2)"}),
        (
            "logarithm_of_a_softmax",
            {
                "F.cross_entropy(guesses.transpose(1, 2)": "F.nll_loss("
                "guesses.softmax(-1).log().transpose(1, 2)"
            },
        ),
        (
            "logarithm_of_a_softmax",
            {RETURN: SHARES + "    return -shares.log()[targets != pad_id].mean()"},
        ),
        (
            "logarithm_of_a_softmax",
            {RETURN: SHARES + "    return -(shares + 1e-9).log()[targets != pad_id].mean()"},
        ),
        ("gradient_cut", {"logits[:, :-1]": "logits.detach()[:, :-1]"}),
        ("gradient_cut", {RETURN: f"return torch.tensor({CROSS_ENTROPY}.item())"}),
        (
            "gradient_cut",
            {RETURN: f"with torch.no_grad():\n        return {CROSS_ENTROPY}"},
        ),
        ("always_float32", {"logits[:, :-1]": "logits[:, :-1].float()"}),
        ("a_float_returned", {RETURN: f"{RETURN}.item()"}),
        ("perplexity", {RETURN: f"{RETURN}.exp()"}),
        ("in_bits", {RETURN: f"{RETURN} / torch.log(torch.tensor(2.0))"}),
        ("in_bits", {RETURN: f"{RETURN} / 0.6931"}),
        ("sign_missing", {RETURN: f"return -{CROSS_ENTROPY}"}),
        (
            "sign_missing",
            {
                RETURN: "costs = guesses.log_softmax(-1).gather(-1, targets[..., None])[..., 0]\n"
                "    return costs[targets != pad_id].mean()"
            },
        ),
        (
            "padding_overwritten",
            {
                RETURN: "targets[targets == pad_id] = -100\n"
                "    return F.cross_entropy(guesses.transpose(1, 2), targets)"
            },
        ),
        (
            "padding_overwritten",
            {
                "    guesses, targets": "    token_ids[token_ids == pad_id] = -100\n"
                "    guesses, targets",
                ", ignore_index=pad_id": "",
            },
        ),
        (
            "weights_on_the_cpu",
            {
                RETURN: "weight = torch.ones(logits.shape[-1], dtype=logits.dtype)\n"
                "    weight[pad_id] = 0\n"
                "    return F.cross_entropy(guesses.transpose(1, 2), targets, weight=weight)"
            },
        ),
        (
            "weights_on_the_cpu",
            {
                RETURN: "weight = torch.ones(logits.shape[-1])\n"
                "    weight[pad_id] = 0\n"
                "    return F.cross_entropy(guesses.transpose(1, 2), targets, weight=weight)"
            },
        ),
        (
            "softmax_over_the_places",
            {
                CROSS_ENTROPY: "F.nll_loss(F.log_softmax(guesses, dim=1).transpose(1, 2), targets, "
                "ignore_index=pad_id)"
            },
        ),
    ],
    "train_step": [
        ("gradients_never_cleared", {CLEAR: ""}),
        ("cleared_after_the_step", {CLEAR: "", STEP: STEP + CLEAR}),
        ("nothing_moves", {BACKWARD: ""}),
        ("nothing_moves", {STEP: ""}),
        ("nothing_moves", {CLEAR: "", BACKWARD: BACKWARD + CLEAR}),
        ("nothing_moves", {CLEAR: "", STEP: CLEAR + STEP}),
        ("nothing_moves", {STEP: "", BACKWARD: STEP + BACKWARD}),
        ("two_steps", {STEP: STEP + STEP}),
        (
            "stepped_by_hand",
            {
                STEP: "    with torch.no_grad():\n"
                "        for p in model.parameters():\n"
                '            p -= optimizer.param_groups[0]["lr"] * p.grad\n'
            },
        ),
        ("dropout_switched_off", {CLEAR: f"    model.eval()\n{CLEAR}"}),
        ("not_clipped", {CLIP: ""}),
        ("not_clipped", {CLIP: "", BACKWARD: CLIP + BACKWARD}),
        ("not_clipped", {CLIP: "", STEP: STEP + CLIP}),
        (
            "each_tensor_clipped",
            {
                CLIP: "    for p in model.parameters():\n"
                "        nn.utils.clip_grad_norm_(p, max_norm)\n"
            },
        ),
        ("values_clipped", {"clip_grad_norm_": "clip_grad_value_"}),
        (
            "always_scaled",
            {CLIP: BY_HAND.replace("    if norm > max_norm:\n", "    if norm > 0:\n")},
        ),
        (
            "always_scaled",
            {
                CLIP: "    gradients = [p.grad for p in model.parameters() if p.grad is not None]\n"
                "    norm = nn.utils.get_total_norm(gradients)\n"
                "    for gradient in gradients:\n"
                "        gradient.mul_(max_norm / (norm + 1e-6))\n"
            },
        ),
        ("limit_fixed", {"model.parameters(), max_norm": "model.parameters(), 1.0"}),
        (
            "optimizer_s_part_measured",
            {"model.parameters()": 'optimizer.param_groups[0]["params"]'},
        ),
        ("frozen_parameters_forgotten", {CLIP: BY_HAND}),
        (
            "frozen_parameters_forgotten",
            {
                CLIP: BY_HAND.replace(
                    LENGTH,
                    "torch.stack([p.grad.norm() for p in model.parameters()]).norm()",
                )
            },
        ),
        (
            "frozen_parameters_forgotten",
            {
                CLIP: BY_HAND.replace(
                    LENGTH,
                    "sum(p.grad.data.norm(2) ** 2 for p in model.parameters()) ** 0.5",
                )
            },
        ),
        (
            "frozen_parameters_forgotten",
            {
                CLIP: BY_HAND.replace(
                    LENGTH,
                    "sum((p.grad**2).sum() for p in model.parameters()).sqrt()",
                )
            },
        ),
        (
            "largest_number_measured",
            {"model.parameters(), max_norm": 'model.parameters(), max_norm, float("inf")'},
        ),
        ("limit_of_another_size", {"max_norm=1.0": "max_norm=0.5"}),
        ("limit_of_another_size", {"max_norm=1.0": "max_norm=5.0"}),
        ("limit_of_another_size", {"max_norm=1.0": "max_norm=0.1"}),
        ("a_tensor_returned", {"loss.item()": "loss"}),
        ("a_tensor_returned", {"loss.item()": "loss.detach()"}),
        ("nothing_returned", {"    return loss.item()\n": ""}),
        ("loss_after_the_step", {"loss.item()": f"{LOSS}.item()"}),
        ("loss_after_the_step", {STEP: f"{STEP}    loss = {LOSS}\n"}),
        (
            "padding_counted",
            {LOSS: "F.cross_entropy(model(token_ids)[:, :-1].transpose(1, 2), token_ids[:, 1:])"},
        ),
        ("padding_counted", {LOSS: "next_token_loss(model(token_ids), token_ids, pad_id=-100)"}),
        (
            "not_shifted",
            {LOSS: "F.cross_entropy(model(token_ids).transpose(1, 2), token_ids, ignore_index=0)"},
        ),
        ("not_shifted", {LOSS: "F.cross_entropy(model(token_ids).transpose(1, 2), token_ids)"}),
        ("shifted_twice", {LOSS: "next_token_loss(model(token_ids)[:, :-1], token_ids[:, 1:])"}),
        ("shifted_twice", {LOSS: "next_token_loss(model(token_ids[:, :-1]), token_ids[:, 1:])"}),
        ("shifted_twice", {LOSS: "next_token_loss(model(token_ids[:, :-1]), token_ids)"}),
        (
            "ids_overwritten",
            {
                f"    loss = {LOSS}\n": "    logits, targets = model(token_ids), token_ids[:, 1:]\n"
                "    targets[targets == 0] = -100\n"
                "    loss = F.cross_entropy(logits[:, :-1].transpose(1, 2), targets)\n"
            },
        ),
    ],
    "evaluate_loss": [
        ("mean_of_means", {" * counted": "", "count += counted": "count += 1"}),
        (
            "mean_of_means",
            {" * counted": "", "count += counted": "count += 1", "if counted": "if 1"},
        ),
        (
            "mean_of_means",
            {" * counted": "", "return total / count": "return total / len(batches)"},
        ),
        ("weight_forgotten", {" * counted": ""}),
        ("weighed_by_rows", {COUNTED: "len(token_ids)"}),
        ("weighed_by_rows", {" * counted": " * len(token_ids)", "+= counted": "+= len(token_ids)"}),
        ("weighed_by_ids", {COUNTED: "token_ids.numel()"}),
        ("weighed_by_ids", {COUNTED: "token_ids[:, 1:].numel()"}),
        ("weighed_by_ids", {"count += counted": "count += token_ids.numel()"}),
        ("padding_counted", {f"{LOSS}.item": f"{LOSS[:-1]}, -1).item"}),
        (
            "shifted_twice",
            {LOSS: "next_token_loss(model(token_ids)[:, :-1], token_ids[:, 1:])"},
        ),
        ("first_column_counted", {COUNTED: "(token_ids != 0).sum().item()"}),
        ("first_column_counted", {COUNTED: "(token_ids[:, :-1] != 0).sum().item()"}),
        ("nan_from_padding", {"if counted": "if True"}),
        (
            "batches_indexed",
            {
                "        for token_ids in batches:\n": "        for place in range(len(batches)):\n"
                "            token_ids = batches[place]\n"
            },
        ),
        ("batches_indexed", {MODES: f"{MODES}\n    number = len(batches)"}),
        ("last_batch_alone", {"total +=": "total =", "count +=": "count ="}),
        ("last_batch_alone", {"total +=": "total ="}),
        ("first_batch_alone", {COUNT: COUNT + "            break\n"}),
        ("first_batch_alone", {COUNT: COUNT + "            return total / count\n"}),
        ("summed", {"return total / count": "return total"}),
        ("a_tensor_returned", {".item() * counted": " * counted"}),
        ("a_tensor_returned", {"total / count": "torch.tensor(total / count)"}),
        (
            "walked_twice",
            {
                "    total, count = 0.0, 0\n": "    total = 0.0\n"
                "    count = sum((one[:, 1:] != 0).sum().item() for one in batches)\n",
                COUNT: "",
            },
        ),
        (
            "walked_twice",
            {
                COUNT: "",
                "    return total": "    count = sum((one[:, 1:] != 0).sum().item() for one in "
                "batches)\n    return total",
            },
        ),
        (
            "walked_twice",
            {
                COUNT: "",
                "    return total": "    for token_ids in batches:\n"
                "        count += (token_ids[:, 1:] != 0).sum().item()\n    return total",
            },
        ),
        ("mode_left_alone", {"    model.eval()\n": ""}),
        ("mode_left_alone", {"model.eval()": "model.training = False"}),
        ("mode_left_alone", {f"    {MODES}\n    model.eval()\n": "", RESTORE: ""}),
        ("left_in_eval", {RESTORE: ""}),
        ("always_back_to_train", {RESTORE: "    model.train()\n"}),
        ("always_back_to_train", {MODES: "", RESTORE: "    model.train(True)\n"}),
        (
            "one_mode_for_all",
            {MODES: "mode = model.training", RESTORE: "    model.train(mode)\n"},
        ),
        (
            "one_flag_restored",
            {MODES: "mode = model.training", RESTORE: "    model.training = mode\n"},
        ),
        ("one_flag_restored", {"model.modules()": "model.children()"}),
        ("gradients_computed", {"with torch.no_grad()": "if True"}),
        ("gradients_computed", {"with torch.no_grad():": "torch.no_grad()\n    if True:"}),
        (
            "gradients_off_for_good",
            {"with torch.no_grad():": "torch.set_grad_enabled(False)\n    if True:"},
        ),
        (
            "parameters_frozen",
            {
                "with torch.no_grad():": "for p in model.parameters():\n"
                "        p.requires_grad = False\n    if True:"
            },
        ),
        (
            "parameters_frozen",
            {
                "with torch.no_grad():": "model.requires_grad_(False)\n    if True:",
                RESTORE: RESTORE + "    model.requires_grad_(True)\n",
            },
        ),
        ("gradients_cleared", {"    model.eval()\n": "    model.eval()\n    model.zero_grad()\n"}),
        (
            "ran_backward",
            {
                "with torch.no_grad()": "if True",
                TOTAL: f"loss = {LOSS}\n                loss.backward()\n"
                "                total += loss.item() * counted",
            },
        ),
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
    "generate": [
        ("whole_text_into_the_cache", {"model(new": "model(ids"}),
        ("cache_not_used", {CACHED: "logits, _ = model(ids, use_cache=True)"}),
        ("cache_not_used", {CACHED: "logits = model(ids)"}),
        ("cache_not_used", {CACHED: "logits, caches = model(ids, caches=None, use_cache=True)"}),
        (
            "fed_both_ways",
            {
                "        if use_cache:\n": "        logits = model(ids)\n        if use_cache:\n",
                "        else:\n            logits = model(ids)\n": "",
            },
        ),
        ("caches_dropped", {"model(new, caches=caches": "model(new"}),
        ("caches_dropped", {"logits, caches = model(new": "logits, _ = model(new"}),
        (
            "caches_of_the_prompt_kept",
            {
                CACHED: CACHED.replace("caches = ", "newer = ")
                + "\n            caches = caches or newer"
            },
        ),
        (
            "caches_of_the_prompt_kept",
            {
                CACHED: "if caches is None:\n"
                "                logits, caches = model(new, use_cache=True)\n"
                "            else:\n"
                "                logits, _ = model(new, caches=caches, use_cache=True)"
            },
        ),
        (
            "all_new_tokens_fed",
            {
                CACHED: "if caches is None:\n"
                "                logits, caches = model(ids, use_cache=True)\n"
                "            else:\n"
                "                new = ids[:, prompt_ids.shape[1] :]\n"
                "                logits, _ = model(new, caches=caches, use_cache=True)"
            },
        ),
        ("use_cache_ignored", {"if use_cache:": "if True:"}),
        (
            "two_values_expected",
            {
                f"        if use_cache:\n            {CACHED}\n"
                "        else:\n            logits = model(ids)\n": "        logits, caches = "
                "model(new, caches=caches, use_cache=use_cache)\n"
            },
        ),
        (
            "two_values_expected",
            {"logits = model(ids)": "logits, _ = model(ids)"},
        ),
        ("first_place_read", {"logits[:, -1]": "logits[:, 0]"}),
        (
            "first_row_for_all",
            {SAMPLE: SAMPLE.replace("logits[:", "logits[:1") + ".expand(len(ids), 1)"},
        ),
        (
            "first_row_for_all",
            {SAMPLE: SAMPLE + "\n        new = torch.full_like(new, new[0].item())"},
        ),
        ("temperature_ignored", {"temperature, generator=generator": "0.0"}),
        ("temperature_ignored", {SAMPLE: "new = logits[:, -1].argmax(-1, keepdim=True)"}),
        ("always_drawn", {"temperature, generator=generator": "generator=generator"}),
        (
            "always_drawn",
            {
                SAMPLE: "shares = torch.softmax(logits[:, -1], -1)\n"
                "        new = torch.multinomial(shares, 1, generator=generator)"
            },
        ),
        (
            "divided_by_zero",
            {
                SAMPLE: "shares = torch.softmax(logits[:, -1] / temperature, -1)\n"
                "        new = torch.multinomial(shares, 1, generator=generator)"
            },
        ),
        ("temperature_of_one", {"temperature=0.0": "temperature=1.0"}),
        ("temperature_of_one", {"temperature=0.0": "temperature=1.0", SAMPLE: INLINE}),
        ("generator_ignored", {", generator=generator": ""}),
        ("generator_ignored", {SAMPLE: INLINE.replace(", generator=generator", "")}),
        (
            "generator_reseeded",
            {
                "        new = sample": "        if generator is not None:\n"
                "            generator.manual_seed(generator.initial_seed())\n        new = sample"
            },
        ),
        (
            "generator_reseeded",
            {
                "        new = sample": "        if generator:\n"
                "            generator.manual_seed(0)\n        new = sample"
            },
        ),
        (
            "generator_reseeded",
            {
                SAMPLE: "if generator is not None:\n            generator.manual_seed(0)\n        "
                + INLINE
            },
        ),
        ("mode_left_alone", {"    model.eval()\n": ""}),
        ("mode_left_alone", {"model.eval()": "model.training = False"}),
        (
            "mode_left_alone",
            {
                "    training = model.training\n    model.eval()\n": "",
                "    model.train(training)\n": "",
            },
        ),
        ("left_in_eval", {"    model.train(training)\n": ""}),
        ("always_back_to_train", {"model.train(training)": "model.train()"}),
        ("one_flag_restored", {"model.train(training)": "model.training = training"}),
        ("prompt_left_out", {"return ids": "return ids[:, prompt_ids.shape[1] :]"}),
        (
            "prompt_left_out",
            {
                "ids, new, caches": "written, ids, new, caches",
                "= prompt_ids, prompt_ids, None": "= [], prompt_ids, prompt_ids, None",
                "        ids = torch.cat": "        written.append(new)\n        ids = torch.cat",
                "return ids": "return torch.cat(written, dim=1)",
            },
        ),
        ("one_too_few", {"range(max_new_tokens)": "range(max_new_tokens - 1)"}),
        ("one_too_few", {"range(max_new_tokens)": "range(1, max_new_tokens)"}),
        ("one_too_many", {"range(max_new_tokens)": "range(max_new_tokens + 1)"}),
        ("a_list_returned", {"return ids": "return ids.tolist()"}),
        (
            "made_on_the_cpu",
            {
                "ids, new, caches = prompt_ids": "ids = torch.zeros(len(prompt_ids), 0).long()\n"
                "    ids = torch.cat([ids, prompt_ids], dim=1)\n    _, new, caches = prompt_ids",
            },
        ),
        ("made_on_the_cpu", {"ids, new]": "ids, new.cpu()]"}),
        (
            "made_on_the_cpu",
            {"ids, new]": "ids, torch.tensor(new.tolist())]"},
        ),
    ],
}
