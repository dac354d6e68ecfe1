"""Slips in lesson 01's reference. Those of a function are made in its module too, written out."""

import re


def slip(text, **parts):
    """The edits that put `parts` in the place of the parts of `text` which have those keys."""
    return {text[key]: instead for key, instead in parts.items()}


# layer_norm

LAYER_NORM = {
    "mean": "x.mean(dim=-1, keepdim=True)",
    "centred": "centred = x - x.mean(dim=-1, keepdim=True)",
    "variance": "centred.square().mean(dim=-1, keepdim=True)",
    "root": "torch.sqrt(variance + eps)",
    "divided": "return centred / torch.sqrt(variance + eps)",
    "result": "return centred / torch.sqrt(variance + eps) * scale + shift\n",
    "head": "    centred = x",
}


def both_statistics(options, spread=""):
    """The mean and the variance taken with these options, the spread from `spread` if given."""
    spread = spread or "centred.square().mean"
    return slip(LAYER_NORM, mean=f"x.mean({options})", variance=f"{spread}({options})")


def layer(**parts):
    return slip(LAYER_NORM, **parts)


def result(text):
    return layer(result=f"return {text}\n")


AXES = [
    ("whole_tensor", ""),
    ("first_axis", "dim=0, keepdim=True"),
    ("first_axis", "0"),
    ("second_axis", "dim=1, keepdim=True"),
    ("sequence_axis", "dim=-2, keepdim=True"),
    ("last_two_axes", "dim=(-2, -1), keepdim=True"),
    ("all_axes_but_the_last", "dim=tuple(range(x.dim() - 1)), keepdim=True"),
    ("all_axes_but_the_first", "dim=tuple(range(1, x.dim())), keepdim=True"),
]
KEPT = "dim=-1, keepdim=True"
NORMED = "centred / torch.sqrt(variance + eps)"

LAYER_NORM_SLIPS = [
    *((name, both_statistics(options)) for name, options in AXES),
    *((name, both_statistics(options, "x.var")) for name, options in AXES),
    ("unbiased_variance", layer(variance=f"x.var({KEPT})")),
    ("unbiased_variance", layer(variance=f"centred.square().sum({KEPT}) / (x.shape[-1] - 1)")),
    ("eps_outside_the_root", layer(root="(torch.sqrt(variance) + eps)")),
    ("eps_outside_the_root", layer(root=f"(x.std({KEPT}, unbiased=False) + eps)")),
    ("unbiased_and_eps_outside", layer(root=f"(x.std({KEPT}) + eps)")),
    ("eps_added_to_the_quotient", layer(root="torch.sqrt(variance) + eps")),
    ("no_eps", layer(root="torch.sqrt(variance)")),
    ("no_eps", layer(root=f"x.std({KEPT}, unbiased=False)")),
    ("unbiased_and_no_eps", layer(root=f"x.std({KEPT})")),
    ("eps_as_a_floor", layer(root="torch.sqrt(variance.clamp(min=eps))")),
    ("eps_as_a_floor", layer(root="torch.sqrt(variance).clamp(min=eps)")),
    ("eps_squared", layer(root="torch.sqrt(variance + eps**2)")),
    ("fixed_eps", layer(root="torch.sqrt(variance + 1e-5)")),
    ("no_keepdim", both_statistics("dim=-1")),
    ("no_keepdim", both_statistics("-1", "x.var")),
    ("no_keepdim", layer(mean="x.mean(dim=-1)")),
    ("no_keepdim", layer(variance="centred.square().mean(dim=-1)")),
    ("scale_dropped", result(f"{NORMED} + shift")),
    ("shift_dropped", result(f"{NORMED} * scale")),
    ("scale_and_shift_dropped", result(NORMED)),
    ("scale_and_shift_swapped", result(f"{NORMED} * shift + scale")),
    ("shift_before_scale", result(f"({NORMED} + shift) * scale")),
    ("shift_before_scale", result(f"scale * ({NORMED} + shift)")),
    ("shift_subtracted", result(f"{NORMED} * scale - shift")),
    ("one_plus_scale", result(f"{NORMED} * (1 + scale) + shift")),
    ("mean_not_subtracted", layer(centred="centred = x")),
    ("numerator_not_centred", layer(divided="return x / torch.sqrt(variance + eps)")),
    ("squares_not_centred", layer(variance=f"x.square().mean({KEPT})")),
    ("squares_not_centred", layer(variance=f"(x**2).mean({KEPT})")),
    ("spread_of_the_whole_tensor", layer(variance="centred.square().mean()")),
    ("spread_of_the_whole_tensor", layer(variance="x.var()")),
    ("spread_of_the_whole_tensor", layer(variance="x.var(unbiased=False)")),
    ("root_taken_twice", layer(root="torch.sqrt(torch.sqrt(variance) + eps)")),
    ("root_taken_twice", layer(root="torch.sqrt(torch.sqrt(variance + eps))")),
    ("root_taken_twice", layer(variance=f"x.std({KEPT})")),
    ("root_taken_twice", layer(variance=f"x.std({KEPT}, unbiased=False)")),
    (
        "missing_parentheses",
        result(f"x - x.mean({KEPT}) / torch.sqrt(variance + eps) * scale + shift"),
    ),
    ("scale_divided", result(f"{NORMED} / scale + shift")),
    ("scale_divided", result("centred / (torch.sqrt(variance + eps) * scale) + shift")),
    (
        "scaled_before",
        layer(head="    x = x * scale\n    centred = x", result=f"return {NORMED} + shift\n"),
    ),
    (
        "scaled_before",
        layer(head="    x = x * scale + shift\n    centred = x", result=f"return {NORMED}\n"),
    ),
    ("no_root", layer(root="(variance + eps)")),
    ("multiplied_by_the_root", layer(divided="return centred * torch.sqrt(variance + eps)")),
    ("only_centred", layer(divided="return centred")),
    ("sum_of_squares", layer(variance=f"centred.square().sum({KEPT})")),
    ("sum_of_squares", layer(root=f"(centred.norm({KEPT}) + eps)")),
    (
        "mean_absolute_deviation",
        layer(variance=f"centred.abs().mean({KEPT})", root="(variance + eps)"),
    ),
    ("mean_absolute_deviation", layer(variance=f"centred.abs().mean({KEPT})")),
    ("not_squared", layer(variance=f"centred.mean({KEPT})")),
    (
        "minimum_and_maximum",
        result(f"(x - x.amin({KEPT})) / (x.amax({KEPT}) - x.amin({KEPT}) + eps) * scale + shift"),
    ),
    (
        "changes_x_in_place",
        layer(
            centred=f"x -= x.mean({KEPT})\n    centred = x",
            divided="x /= torch.sqrt(variance + eps)\n    return x",
        ),
    ),
    ("centres_x_in_place", layer(centred=f"x -= x.mean({KEPT})\n    centred = x")),
    ("centres_x_in_place", layer(centred=f"centred = x.sub_(x.mean({KEPT}))")),
    (
        "writes_the_result_into_x",
        layer(result=f"x.copy_({NORMED} * scale + shift)\n    return x\n"),
    ),
    ("writes_the_result_into_x", layer(result=f"x[:] = {NORMED} * scale + shift\n    return x\n")),
    (
        "statistics_detached",
        layer(mean=f"x.mean({KEPT}).detach()", root="torch.sqrt(variance.detach() + eps)"),
    ),
    (
        "statistics_detached",
        layer(mean=f"x.data.mean({KEPT})", variance=f"x.data.var({KEPT}, unbiased=False)"),
    ),
    ("variance_detached", layer(root="torch.sqrt(variance.detach() + eps)")),
    ("variance_detached", layer(variance=f"x.data.var({KEPT}, unbiased=False)")),
    ("mean_detached", layer(mean=f"x.mean({KEPT}).detach()")),
    ("scale_or_shift_detached", result(f"{NORMED} * scale.detach() + shift.detach()")),
    ("scale_or_shift_detached", result(f"{NORMED} * scale.data + shift")),
    ("scale_or_shift_detached", result(f"{NORMED} * scale + shift.data")),
    ("eps_twice", layer(variance=f"centred.square().mean({KEPT}) + eps")),
    ("eps_inside_and_outside", layer(root="(torch.sqrt(variance + eps) + eps)")),
    ("softmax", result("torch.softmax(x, dim=-1) * scale + shift")),
    ("x_detached", layer(head="    x = x.detach()\n    centred = x")),
    ("x_detached", layer(head="    x = x.data.clone()\n    centred = x")),
    ("no_gradient_at_all", result(f"({NORMED} * scale + shift).detach()")),
    ("no_gradient_at_all", result(f"({NORMED} * scale + shift).data")),
    ("returns_float32", layer(head="    x = x.float()\n    centred = x")),
    ("returns_float32", result(f"({NORMED} * scale + shift).float()")),
    ("returns_float64", layer(head="    x = x.double()\n    centred = x")),
    ("returns_float64", result(f"({NORMED} * scale + shift).double()")),
    (
        "new_tensor_on_the_cpu",
        layer(root="torch.sqrt(variance + torch.full(variance.shape, eps, dtype=x.dtype))"),
    ),
    (
        "new_tensor_on_the_cpu",
        result(f"{NORMED} * torch.ones_like(x, device='cpu') * scale + shift"),
    ),
    ("torch_layer_norm", result("nn.functional.layer_norm(x, x.shape[-1:], scale, shift, eps)")),
    ("forgot_to_return", layer(divided=f"normed = {NORMED}")),
    ("returns_x", result("x")),
    *((f"default_eps_1e-{power}", {"eps=1e-5": f"eps=1e-{power}"}) for power in (3, 6, 8, 12)),
]


# Their modules

LAYER_NORM_CALL = "return layer_norm(x, self.weight, self.bias, self.eps)"
LAYER_NORM_BODY = (
    "    centred = x - x.mean(dim=-1, keepdim=True)\n"
    "    variance = centred.square().mean(dim=-1, keepdim=True)\n"
    "    return centred / torch.sqrt(variance + eps) * scale + shift\n"
)
RMS_NORM_CALL = "return rms_norm(wide, self.weight, self.eps).to(x.dtype)"
RMS_NORM_BODY = (
    "    mean_square = x.square().mean(dim=-1, keepdim=True)\n"
    "    return x / torch.sqrt(mean_square + eps) * scale\n"
)


def written_out(slips, call, body, names):
    """The slips of a function made in a module which has its `body` in the place of the `call`."""
    for name, edits in slips:
        if any(text.startswith("eps=") for text in edits):
            yield name, edits
            continue
        wrong = body
        for text, instead in edits.items():
            assert wrong.count(text) == 1, text
            wrong = wrong.replace(text, instead)
        for word, own in names.items():
            wrong = re.sub(rf"(?<![\w.]){word}\b", own, wrong)
        yield name, {call: wrong.strip().replace("\n", "\n    ")}


MODULE_NAMES = {"scale": "self.weight", "shift": "self.bias", "eps": "self.eps"}
ONES, ZEROS = "nn.Parameter(torch.ones(width))", "nn.Parameter(torch.zeros(width))"
WEIGHT, BIAS = f"self.weight = {ONES}", f"self.bias = {ZEROS}"

MANUAL_LAYER_NORM_SLIPS = [
    *written_out(
        (
            one
            for one in LAYER_NORM_SLIPS
            if one[0] not in ("scale_and_shift_dropped", "writes_the_result_into_x")
        ),
        LAYER_NORM_CALL,
        LAYER_NORM_BODY,
        MODULE_NAMES,
    ),
    ("fixed_eps", {LAYER_NORM_CALL: "return layer_norm(x, self.weight, self.bias)"}),
    ("fixed_eps", {"self.eps = eps": "self.eps = 1e-5"}),
    (
        "scale_and_shift_swapped",
        {LAYER_NORM_CALL: "return layer_norm(x, self.bias, self.weight, self.eps)"},
    ),
    (
        "weights_made_in_forward",
        {
            LAYER_NORM_CALL: "width = x.shape[-1]\n        return layer_norm("
            "x, torch.ones(width).to(x), torch.zeros(width).to(x), self.eps)"
        },
    ),
    (
        "weights_made_in_forward",
        {
            LAYER_NORM_CALL: "self.weight = nn.Parameter(torch.ones_like(x[0]))\n"
            f"        self.bias = nn.Parameter(torch.zeros_like(x[0]))\n        {LAYER_NORM_CALL}"
        },
    ),
    ("plain_tensors", {ONES: "torch.ones(width)", ZEROS: "torch.zeros(width)"}),
    (
        "plain_tensors",
        {
            ONES: "torch.ones(width, requires_grad=True)",
            ZEROS: "torch.zeros(width, requires_grad=True)",
        },
    ),
    (
        "buffers",
        {
            WEIGHT: 'self.register_buffer("weight", torch.ones(width))',
            BIAS: 'self.register_buffer("bias", torch.zeros(width))',
        },
    ),
    (
        "no_bias",
        {
            f"        {BIAS}\n": "",
            LAYER_NORM_CALL: "return layer_norm(x, self.weight, 0, self.eps)",
        },
    ),
    ("starts_as_zeros", {ONES: "nn.Parameter(torch.zeros(width)) "}),
    ("bias_starts_as_ones", {ZEROS: "nn.Parameter(torch.ones(width)) "}),
    ("starts_swapped", {WEIGHT: f"self.weight  = {ZEROS} ", BIAS: f"self.bias  = {ONES}"}),
    (
        "other_names",
        {
            WEIGHT: f"self.gamma = {ONES}",
            BIAS: f"self.beta = {ZEROS}",
            LAYER_NORM_CALL: "return layer_norm(x, self.gamma, self.beta, self.eps)",
        },
    ),
    (
        "other_names",
        {
            WEIGHT: f"self.scale = {ONES}",
            BIAS: f"self.shift = {ZEROS}",
            LAYER_NORM_CALL: "return layer_norm(x, self.scale, self.shift, self.eps)",
        },
    ),
    ("no_bias", {ZEROS: "torch.zeros(width)"}),
    (
        "only_in_training",
        {LAYER_NORM_CALL: f"if not self.training: return x\n        {LAYER_NORM_CALL}"},
    ),
    (
        "torch_module_inside",
        {
            WEIGHT: "self.norm = nn.LayerNorm(width, eps=eps)",
            f"        {BIAS}\n": "",
            LAYER_NORM_CALL: "return self.norm(x)",
        },
    ),
]


# rms_norm

RMS_NORM = {
    "square": "x.square().mean(dim=-1, keepdim=True)",
    "root": "torch.sqrt(mean_square + eps)",
    "divided": "return x / torch.sqrt(mean_square + eps)",
    "result": "return x / torch.sqrt(mean_square + eps) * scale\n",
    "head": "    mean_square = x",
}
RMS_NORMED = "x / torch.sqrt(mean_square + eps)"


def rms(**parts):
    return slip(RMS_NORM, **parts)


def rms_result(text):
    return rms(result=f"return {text}\n")


def first(statement):
    return f"    {statement}\n    mean_square = x"


RMS_NORM_SLIPS = [
    *((name, rms(square=f"x.square().mean({options})")) for name, options in AXES),
    *((name, rms(square=f"(x**2).mean({options})")) for name, options in AXES),
    ("mean_subtracted", rms(head=first(f"x = x - x.mean({KEPT})"))),
    ("standard_deviation", rms(square=f"x.var({KEPT}, unbiased=False)")),
    ("unbiased_standard_deviation", rms(square=f"x.var({KEPT})")),
    ("unbiased_standard_deviation", rms(root=f"(x.std({KEPT}) + eps)")),
    (
        "numerator_centred",
        rms(divided=f"return (x - x.mean({KEPT})) / torch.sqrt(mean_square + eps)"),
    ),
    ("divided_by_width_less_one", rms(square=f"x.square().sum({KEPT}) / (x.shape[-1] - 1)")),
    ("eps_outside_the_root", rms(root="(torch.sqrt(mean_square) + eps)")),
    ("eps_added_to_the_quotient", rms(root="torch.sqrt(mean_square) + eps")),
    ("no_eps", rms(root="torch.sqrt(mean_square)")),
    ("no_eps", rms(divided="return x * torch.rsqrt(mean_square)")),
    ("eps_as_a_floor", rms(root="torch.sqrt(mean_square.clamp(min=eps))")),
    ("eps_as_a_floor", rms(root="torch.sqrt(mean_square).clamp(min=eps)")),
    ("eps_squared", rms(root="torch.sqrt(mean_square + eps**2)")),
    ("fixed_eps", rms(root="torch.sqrt(mean_square + 1e-6)")),
    ("length_of_the_row", rms(square=f"x.square().sum({KEPT})")),
    ("length_of_the_row", rms(root=f"(x.norm({KEPT}) + eps)")),
    ("no_root", rms(root="(mean_square + eps)")),
    ("multiplied_by_the_root", rms(divided="return x * torch.sqrt(mean_square + eps)")),
    ("square_of_the_mean", rms(square=f"x.mean({KEPT}).square()")),
    ("mean_absolute_value", rms(square=f"x.abs().mean({KEPT})", root="(mean_square + eps)")),
    ("mean_absolute_value", rms(square=f"x.abs().mean({KEPT})")),
    ("not_squared", rms(square=f"x.mean({KEPT})")),
    ("no_keepdim", rms(square="x.square().mean(dim=-1)")),
    ("scale_dropped", rms_result(RMS_NORMED)),
    ("one_plus_scale", rms_result(f"{RMS_NORMED} * (1 + scale)")),
    ("scaled_before", rms(head=first("x = x * scale"), result=f"return {RMS_NORMED}\n")),
    ("scale_detached", rms_result(f"{RMS_NORMED} * scale.detach()")),
    ("eps_twice", rms(square=f"x.square().mean({KEPT}) + eps")),
    ("eps_inside_and_outside", rms(root="(torch.sqrt(mean_square + eps) + eps)")),
    ("softmax", rms_result("torch.softmax(x, dim=-1) * scale")),
    ("divided_by_scale", rms_result(f"{RMS_NORMED} / scale")),
    ("divided_by_scale", rms_result("x / (torch.sqrt(mean_square + eps) * scale)")),
    (
        "changes_x_in_place",
        rms(result="x /= torch.sqrt(mean_square + eps)\n    return x * scale\n"),
    ),
    ("rms_writes_the_result_into_x", rms(result=f"x[:] = {RMS_NORMED} * scale\n    return x\n")),
    (
        "rms_writes_the_result_into_x",
        rms(result="x /= torch.sqrt(mean_square + eps)\n    x *= scale\n    return x\n"),
    ),
    ("statistics_detached", rms(root="torch.sqrt(mean_square.detach() + eps)")),
    ("statistics_detached", rms(square=f"x.data.square().mean({KEPT})")),
    ("x_detached", rms(head=first("x = x.detach()"))),
    ("x_detached", rms(head=first("x = x.data.clone()"))),
    ("no_gradient_at_all", rms_result(f"({RMS_NORMED} * scale).detach()")),
    ("returns_float32", rms(head=first("x = x.float()"))),
    ("returns_float32", rms_result(f"({RMS_NORMED} * scale).float()")),
    ("returns_float64", rms(head=first("x = x.double()"))),
    ("returns_float64", rms_result(f"({RMS_NORMED} * scale).double()")),
    (
        "new_tensor_on_the_cpu",
        rms(root="torch.sqrt(mean_square + torch.full(mean_square.shape, eps, dtype=x.dtype))"),
    ),
    ("torch_rms_norm", rms_result("nn.functional.rms_norm(x, x.shape[-1:], scale, eps)")),
    ("forgot_to_return", rms(divided=f"normed = {RMS_NORMED}")),
    ("returns_x", rms_result("x")),
    *((f"default_eps_1e-{power}", {"eps=1e-6": f"eps=1e-{power}"}) for power in (3, 5, 8, 12)),
]

WIDE = "x.to(torch.promote_types(x.dtype, torch.float32))"
RMS_MODULE_NAMES = {"x": "wide", "scale": "self.weight", "eps": "self.eps"}
CAST = re.compile(r"return (.*)")


def cast_back(slips):
    for name, edits in slips:
        changed = {
            text: CAST.sub(r"return (\1).to(x.dtype)", instead)
            if text == RMS_NORM_CALL
            else instead
            for text, instead in edits.items()
        }
        yield name, changed


RMS_NORM_MODULE_SLIPS = [
    *cast_back(
        written_out(
            (
                one
                for one in RMS_NORM_SLIPS
                if one[0]
                not in (
                    "rms_writes_the_result_into_x",
                    "changes_x_in_place",
                    "returns_float32",
                    "returns_float64",
                )
            ),
            RMS_NORM_CALL,
            RMS_NORM_BODY,
            RMS_MODULE_NAMES,
        )
    ),
    ("fixed_eps", {RMS_NORM_CALL: "return rms_norm(wide, self.weight).to(x.dtype)"}),
    ("fixed_eps", {"self.eps = eps": "self.eps = 1e-6"}),
    (
        "scale_dropped",
        {
            RMS_NORM_CALL: "ones = torch.ones_like(self.weight)\n"
            "        return rms_norm(wide, ones, self.eps).to(x.dtype)"
        },
    ),
    (
        "changes_x_in_place",  # .to() of a float32 tensor is that tensor
        {
            RMS_NORM_CALL: f"wide /= torch.sqrt(wide.square().mean({KEPT}) + self.eps)\n"
            "        return (wide * self.weight).to(x.dtype)"
        },
    ),
    ("returns_float32", {RMS_NORM_CALL: "return rms_norm(wide, self.weight, self.eps)"}),
    ("returns_float32", {RMS_NORM_CALL: "return rms_norm(x.float(), self.weight, self.eps)"}),
    ("returns_float32", {"wide = x.to": "x = wide = x.to"}),
    ("returns_float64", {RMS_NORM_CALL: "return rms_norm(x.double(), self.weight, self.eps)"}),
    ("returns_float64", {WIDE: "x.double()", ".to(x.dtype)": ""}),
    ("statistics_in_half_precision", {WIDE: "x"}),
    ("no_conversion", {WIDE: "x", RMS_NORM_CALL: "return rms_norm(x, self.weight, self.eps)"}),
    (
        "squares_in_half_precision",
        {
            RMS_NORM_CALL: f"mean_square = x.square().float().mean({KEPT})\n"
            "        return (wide / torch.sqrt(mean_square + self.eps) * self.weight).to(x.dtype)"
        },
    ),
    (
        "squares_in_half_precision",
        {
            RMS_NORM_CALL: f"mean_square = (x**2).to(wide.dtype).mean({KEPT})\n"
            "        return (x / torch.sqrt(mean_square + self.eps) * self.weight).to(x.dtype)"
        },
    ),
    (
        "factor_in_half_precision",
        {
            RMS_NORM_CALL: f"factor = torch.rsqrt(wide.square().mean({KEPT}) + self.eps)\n"
            "        return (x * factor.to(x.dtype) * self.weight).to(x.dtype)"
        },
    ),
    (
        "factor_in_half_precision",
        {
            RMS_NORM_CALL: f"root = torch.sqrt(wide.square().mean({KEPT}) + self.eps).to(x.dtype)\n"
            "        return (x / root * self.weight).to(x.dtype)"
        },
    ),
    (
        "casts_before_the_weight",
        {
            RMS_NORM_CALL: f"root = torch.sqrt(wide.square().mean({KEPT}) + self.eps)\n"
            "        return (wide / root).to(x.dtype) * self.weight"
        },
    ),
    ("plain_tensor", {ONES: "torch.ones(width)"}),
    ("buffer", {WEIGHT: 'self.register_buffer("weight", torch.ones(width))'}),
    ("has_a_bias", {WEIGHT: f"{WEIGHT}\n        {BIAS}"}),
    (
        "has_a_bias",
        {
            WEIGHT: f"{WEIGHT}\n        {BIAS}",
            RMS_NORM_CALL: "return (rms_norm(wide, self.weight, self.eps) + self.bias).to(x.dtype)",
        },
    ),
    ("weight_starts_as_zeros", {ONES: ZEROS}),
    (
        "other_name",
        {
            WEIGHT: f"self.scale = {ONES}",
            RMS_NORM_CALL: "return rms_norm(wide, self.scale, self.eps).to(x.dtype)",
        },
    ),
    (
        "other_name",
        {
            WEIGHT: f"self.gamma = {ONES}",
            RMS_NORM_CALL: "return rms_norm(wide, self.gamma, self.eps).to(x.dtype)",
        },
    ),
    (
        "only_in_training",
        {RMS_NORM_CALL: f"if not self.training:\n            return x\n        {RMS_NORM_CALL}"},
    ),
]

SLIPS = {
    "layer_norm": LAYER_NORM_SLIPS,
    "ManualLayerNorm": MANUAL_LAYER_NORM_SLIPS,
    "rms_norm": RMS_NORM_SLIPS,
    "RMSNorm": RMS_NORM_MODULE_SLIPS,
}
