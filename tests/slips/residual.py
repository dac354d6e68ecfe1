"""Slips in lesson 03's reference."""

GUARD = "if x.shape != update.shape:"
RAISE = 'raise ValueError(f"x has shape {tuple(x.shape)}, its update {tuple(update.shape)}")'
TESTED = f"    {GUARD}\n        {RAISE}\n"


def sum_is(result):
    return {"return x + update": result}


def guard_is(test):
    return {GUARD: f"if {test}:"}


def raised(what):
    return {RAISE: what}


RESIDUAL = [
    ("update_returned_alone", sum_is("return update")),
    ("x_returned_alone", sum_is("return x")),
    ("shortcut_doubled", sum_is("return 2 * x + update")),
    ("shortcut_doubled", sum_is("update = x + update\n    return x + update")),
    ("update_doubled", sum_is("return x + 2 * update")),
    ("update_doubled", sum_is("x = x + update\n    return x + update")),
    ("update_subtracted", sum_is("return x - update")),
    ("x_subtracted", sum_is("return update - x")),
    ("averaged", sum_is("return (x + update) / 2")),
    ("averaged", sum_is("return torch.stack([x, update]).mean(0)")),
    ("divided_by_the_root_of_two", sum_is("return (x + update) / 2**0.5")),
    ("multiplied", sum_is("return x * update")),
    ("joined_end_to_end", sum_is("return torch.cat([x, update], dim=-1)")),
    ("joined_end_to_end", sum_is("return torch.cat((x, update))")),
    ("joined_end_to_end", sum_is("return torch.stack([x, update])")),
    ("maximum_taken", sum_is("return torch.max(x, update)")),
    ("relu_after_the_sum", sum_is("return torch.relu(x + update)")),
    ("relu_after_the_sum", sum_is("return (x + update).clamp(min=0)")),
    ("sum_normalized", sum_is("return nn.functional.layer_norm(x + update, x.shape[-1:])")),
    ("sum_normalized", sum_is("return nn.LayerNorm(x.shape[-1])(x + update)")),
    ("normalized_x_added", sum_is("return nn.functional.layer_norm(x, x.shape[-1:]) + update")),
    ("changes_x_in_place", sum_is("x += update\n    return x")),
    ("changes_x_in_place", sum_is("return x.add_(update)")),
    ("changes_the_update_in_place", sum_is("update += x\n    return update")),
    ("x_detached", sum_is("return x.detach() + update")),
    ("x_detached", sum_is("return torch.tensor(x) + update")),
    ("update_detached", sum_is("return x + update.detach()")),
    ("no_gradient_at_all", sum_is("with torch.no_grad():\n        return x + update")),
    ("no_gradient_at_all", sum_is("return (x + update).detach()")),
    ("returns_float32", sum_is("return (x + update).float()")),
    ("returns_float32", sum_is("return x.float() + update.float()")),
    ("returns_float64", sum_is("return x.double() + update.double()")),
    ("new_tensor_on_the_cpu", sum_is("return torch.zeros(x.shape, dtype=x.dtype) + x + update")),
    (
        "new_tensor_on_the_cpu",
        sum_is(
            "total = torch.zeros(x.shape, dtype=x.dtype)\n    "
            "total += x\n    "
            "total += update\n    "
            "return total"
        ),
    ),
    ("numbers_laid_out_by_view", sum_is("return (x.view(-1) + update.view(-1)).view(x.shape)")),
    ("returns_both", sum_is("return x, x + update")),
    ("returns_both", sum_is("return x + update, update")),
    ("forgot_to_return", sum_is("x + update")),
    ("broadcasts", {TESTED: ""}),
    ("broadcasts", raised('print(f"{x.shape} and {update.shape} differ")')),
    ("broadcasts", raised('ValueError(f"{x.shape} and {update.shape} differ")')),
    (
        "torch_s_error_passed_on",
        {
            TESTED: "",
            **sum_is(
                "try:\n        return x + update\n    except RuntimeError:\n"
                '        raise ValueError(f"x {tuple(x.shape)}, update {tuple(update.shape)}")'
            ),
        },
    ),
    ("last_axis_compared", guard_is("x.shape[-1] != update.shape[-1]")),
    ("last_axis_compared", guard_is("x.size(-1) != update.size(-1)")),
    ("first_axis_compared", guard_is("x.shape[0] != update.shape[0]")),
    ("first_axis_compared", guard_is("len(x) != len(update)")),
    ("first_axis_compared", guard_is("x.size(0) != update.size(0)")),
    ("axes_zipped", guard_is("any(a != b for a, b in zip(x.shape, update.shape))")),
    ("axes_zipped", guard_is("not all(a == b for a, b in zip(x.shape, update.shape))")),
    (
        "first_and_last_axis_compared",
        guard_is("x.shape[0] != update.shape[0] or x.shape[-1] != update.shape[-1]"),
    ),
    ("number_of_axes_compared", guard_is("x.dim() != update.dim()")),
    ("number_of_axes_compared", guard_is("len(x.shape) != len(update.shape)")),
    ("number_of_elements_compared", guard_is("x.numel() != update.numel()")),
    ("only_the_result_compared", guard_is("(x + update).shape != x.shape")),
    ("only_the_update_compared", guard_is("(x + update).shape != update.shape")),
    ("only_axes_of_length_one_refused", guard_is("1 in update.shape")),
    (
        "only_what_broadcasts_refused",
        {
            GUARD: f"total = x + update\n    {GUARD}",
            "return x + update": "return total",
        },
    ),
    ("shapes_compared_as_sets", guard_is("sorted(x.shape) != sorted(update.shape)")),
    ("shapes_compared_as_sets", guard_is("set(x.shape) != set(update.shape)")),
    ("always_raises", guard_is("x.size != update.size")),
    ("always_raises", guard_is("x.shape == update.shape")),
    (
        "raises_AssertionError",
        {TESTED: '    assert x.shape == update.shape, f"{x.shape} and {update.shape}"\n'},
    ),
    ("raises_AssertionError", {TESTED: "    assert x.shape == update.shape\n"}),
    ("raises_RuntimeError", {"raise ValueError": "raise RuntimeError"}),
    ("raises_TypeError", {"raise ValueError": "raise TypeError"}),
    ("raises_Exception", {"raise ValueError": "raise Exception"}),
    ("update_stretched", {TESTED: "    update = update.expand_as(x)\n"}),
    ("broadcasts", {TESTED: "    x, update = torch.broadcast_tensors(x, update)\n"}),
    ("reshaped", {TESTED: "    update = update.reshape(x.shape)\n"}),
    ("reshaped", raised("update = update.reshape(x.shape)")),
    ("x_returned_where_shapes_differ", raised("return x")),
    ("nothing_returned_where_shapes_differ", raised("return None")),
    ("nothing_returned_where_shapes_differ", raised('return "the shapes differ"')),
    ("nothing_returned_where_shapes_differ", raised('return ValueError("the shapes differ")')),
    ("message_without_shapes", raised('raise ValueError("the shapes differ")')),
    ("message_without_shapes", {'raise ValueError(f"': 'raise ValueError("'}),
    ("message_without_shapes", raised("raise ValueError")),
    ("message_with_x_s_shape_alone", raised('raise ValueError(f"x has shape {x.shape}")')),
    (
        "message_with_the_update_s_shape_alone",
        raised('raise ValueError(f"the update has shape {update.shape}")'),
    ),
    (
        "message_with_other_numbers",
        raised('raise ValueError(f"{x.dim()} and {update.dim()} axes")'),
    ),
    ("message_with_other_numbers", raised('raise ValueError(f"{x.numel()}, {update.numel()}")')),
]

# The two modules

LAYERS = {
    "norm": "self.norm = nn.LayerNorm(width)",
    "branch": "self.branch = branch",
    "dropout": "self.dropout = nn.Dropout(dropout)",
}
DROPPED = "mask = (torch.rand({}, device=x.device) >= self.dropout.p).to(x.dtype)\n"


def module(forward, inside, around):
    """What both modules share: `inside` is what the branch reads, `around` the sum put in place.

    `forward` is the line that is replaced.
    """

    def back(result, **layers):
        return {forward: f"return {result}", **made(**layers)}

    def made(**layers):
        return {LAYERS[name]: text for name, text in layers.items()}

    def first(lines, result):
        return {forward: f"{lines}\n        return {result}"}

    def call(name="branch", args=", *args, **kwargs"):
        return f"self.{name}({inside}{args})"

    branch = call()
    scaled = "update * mask / (1 - self.dropout.p)"
    whole = around(f"x + self.dropout({branch})")

    def masked(shape, scaled=scaled):
        test = f"\n        if not self.training:\n            return {around('x + update')}"
        mask = DROPPED.format(shape).strip()
        return first(f"update = {branch}{test}\n        {mask}", around(f"x + {scaled}"))

    return [
        ("norm_missing", back(f"x + self.dropout({branch})".replace("self.norm(x)", "x"))),
        (
            "norm_s_weights_ignored",
            back(f"nn.functional.layer_norm(x + self.dropout({branch}), x.shape[-1:])")
            if inside == "x"
            else back(whole.replace("self.norm(x)", "nn.functional.layer_norm(x, x.shape[-1:])")),
        ),
        (
            "norm_s_weights_ignored",
            back(whole.replace("self.norm(", "nn.LayerNorm(x.shape[-1], dtype=x.dtype)(")),
        ),
        ("shortcut_missing", back(around(f"self.dropout({branch})"))),
        ("shortcut_doubled", back(around(f"2 * x + self.dropout({branch})"))),
        (
            "shortcut_doubled",
            first(f"update = x + self.dropout({branch})", around("x + update")),
        ),
        ("update_subtracted", back(around(f"x - self.dropout({branch})"))),
        ("averaged", back(around(f"(x + self.dropout({branch})) / 2"))),
        ("averaged", back(around(f"0.5 * x + 0.5 * self.dropout({branch})"))),
        (
            "branch_applied_twice",
            back(around(f"x + self.dropout(self.branch({branch}, *args, **kwargs))")),
        ),
        ("activation_on_the_sum", back(around(f"torch.relu(x + self.dropout({branch}))"))),
        ("activation_on_the_branch", back(around(f"x + self.dropout(torch.relu({branch}))"))),
        (
            "activation_on_the_branch",
            back(around(f"x + self.dropout(nn.functional.gelu({branch}))")),
        ),
        ("dropout_on_the_sum", back(around(f"self.dropout(x + {branch})"))),
        ("dropout_on_the_shortcut", back(around(f"self.dropout(x) + {branch}"))),
        (
            "dropout_before_the_branch",
            back(around(f"x + self.branch(self.dropout({inside}), *args, **kwargs)")),
        ),
        ("dropout_missing", back(around(f"x + {branch}"))),
        ("dropout_twice", back(around(f"x + self.dropout(self.dropout({branch}))"))),
        (
            "dropout_twice",
            back(around(f"x + self.dropout(self.branch(self.dropout({inside}), *args, **kwargs))")),
        ),
        (
            "drops_in_eval_too",
            back(around(f"x + nn.functional.dropout({branch}, self.dropout.p)")),
        ),
        (
            "drops_in_eval_only",
            back(around(f"x + nn.functional.dropout({branch}, self.dropout.p, not self.training)")),
        ),
        (
            "fixed_probability",
            back(around(f"x + nn.functional.dropout({branch}, 0.1, self.training)")),
        ),
        (
            "fixed_probability",
            back(around(f"x + nn.functional.dropout({branch}, training=self.training)")),
        ),
        (
            "keep_probability",
            back(around(f"x + nn.functional.dropout({branch}, 1 - self.dropout.p, self.training)")),
        ),
        ("not_scaled", masked("update.shape", "update * mask")),
        (
            "scaled_in_eval",
            first(
                f"update = self.dropout({branch})\n        if not self.training:\n"
                "            update = update * (1 - self.dropout.p)",
                around("x + update"),
            ),
        ),
        ("whole_tokens_dropped", masked("(*update.shape[:-1], 1)")),
        ("whole_tokens_dropped", masked("()")),
        ("one_mask_for_all_tokens", masked("update.shape[-1]")),
        ("drops_by_default", {"dropout=0.0": "dropout=0.1"}),
        (
            "norm_named_otherwise",
            back(whole.replace("self.norm", "self.ln"), norm="self.ln = nn.LayerNorm(width)"),
        ),
        (
            "norm_named_otherwise",
            back(
                whole.replace("self.norm", "self.layer_norm"),
                norm="self.layer_norm = nn.LayerNorm(width)",
            ),
        ),
        (
            "branch_named_otherwise",
            back(whole.replace("self.branch", "self.sublayer"), branch="self.sublayer = branch"),
        ),
        (
            "branch_named_otherwise",
            back(whole.replace("self.branch", "self.fn"), branch="self.fn = branch"),
        ),
        (
            "no_layer_called_dropout",
            back(
                whole.replace("self.dropout", "self.drop"),
                dropout="self.drop = nn.Dropout(dropout)",
            ),
        ),
        (
            "no_layer_called_dropout",
            back(
                around(f"x + nn.functional.dropout({branch}, self.dropout, self.training)"),
                dropout="self.dropout = dropout",
            ),
        ),
        (
            "no_layer_called_dropout",
            back(
                around(f"x + nn.functional.dropout({branch}, self.p, self.training)"),
                dropout="self.p = dropout",
            ),
        ),
        (
            "branch_in_a_list",
            back(whole.replace("self.branch", "self.branch[0]"), branch="self.branch = [branch]"),
        ),
        ("branch_in_a_list", made(branch="self.branch = lambda *a, **k: branch(*a, **k)")),
        ("branch_frozen", made(branch="self.branch = branch.requires_grad_(False)")),
        (
            "branch_frozen",
            made(
                branch="self.branch = branch\n        for one in branch.parameters():\n"
                "            one.requires_grad = False"
            ),
        ),
        ("norm_frozen", made(norm="self.norm = nn.LayerNorm(width).requires_grad_(False)")),
        (
            "norm_without_weight",
            made(norm="self.norm = nn.LayerNorm(width, elementwise_affine=False)"),
        ),
        ("norm_without_bias", made(norm="self.norm = nn.LayerNorm(width, bias=False)")),
        ("RMSNorm_for_LayerNorm", made(norm="self.norm = nn.RMSNorm(width)")),
        ("BatchNorm_for_LayerNorm", made(norm="self.norm = nn.BatchNorm1d(width)")),
        ("whole_channels_dropped", made(dropout="self.dropout = nn.Dropout1d(dropout)")),
        ("whole_channels_dropped", made(dropout="self.dropout = nn.Dropout2d(dropout)")),
        ("dropout_probability_ignored", made(dropout="self.dropout = nn.Dropout()")),
        ("another_probability", made(dropout="self.dropout = nn.Dropout(0.1)")),
        ("another_probability", made(dropout="self.dropout = nn.Dropout(1 - dropout)")),
        ("another_branch", made(branch="self.branch = __import__('copy').deepcopy(branch)")),
        ("another_branch", made(branch="self.branch = nn.Linear(width, width)")),
        (
            "branch_s_weights_set",
            made(
                branch="self.branch = branch\n        for one in branch.parameters():\n"
                "            nn.init.zeros_(one)"
            ),
        ),
        ("norm_of_another_kind", made(norm="self.norm = nn.GroupNorm(1, width)")),
        (
            "norm_made_twice",
            made(norm=f"{LAYERS['norm']}\n        self.norm2 = nn.LayerNorm(width)"),
        ),
        (
            "trained_factor",
            back(
                around(f"x + self.scale * self.dropout({branch})"),
                norm=f"{LAYERS['norm']}\n        self.scale = nn.Parameter(torch.ones(1))",
            ),
        ),
        (
            "trained_factor",
            back(
                around(f"x + self.gamma * self.dropout({branch})"),
                norm=f"{LAYERS['norm']}\n        self.gamma = nn.Parameter(torch.ones(width))",
            ),
        ),
        (
            "takes_no_further_arguments",
            {"self, x, *args, **kwargs": "self, x", **back(whole.replace(", *args, **kwargs", ""))},
        ),
        (
            "takes_no_keywords",
            {"self, x, *args, **kwargs": "self, x, *args", **back(whole.replace(", **kwargs", ""))},
        ),
        (
            "takes_no_positions",
            {"self, x, *args, **kwargs": "self, x, **kwargs", **back(whole.replace(", *args", ""))},
        ),
        (
            "takes_one_more_argument",
            {
                "self, x, *args, **kwargs": "self, x, mask=None",
                **first(
                    "extra = () if mask is None else (mask,)",
                    whole.replace("*args, **kwargs", "*extra"),
                ),
            },
        ),
        ("arguments_swallowed", back(whole.replace(", *args, **kwargs", ""))),
        ("keywords_swallowed", back(whole.replace(", **kwargs", ""))),
        ("positions_swallowed", back(whole.replace(", *args", ""))),
        ("stars_forgotten", back(whole.replace("*args, **kwargs", "args, kwargs"))),
        ("stars_forgotten", back(whole.replace("*args, **kwargs", "*args, *kwargs"))),
        ("stars_forgotten", back(whole.replace("*args, **kwargs", "args, **kwargs"))),
        (
            "branch_s_weights_called_by_hand",
            back(
                around(
                    f"x + self.dropout(nn.functional.linear({inside}, self.branch.weight, "
                    "self.branch.bias))"
                )
            ),
        ),
        ("changes_x_in_place", first(f"x += self.dropout({branch})", around("x"))),
        ("changes_x_in_place", back(around(f"x.add_(self.dropout({branch}))"))),
        ("dropout_in_place", made(dropout="self.dropout = nn.Dropout(dropout, inplace=True)")),
        (
            "adds_x_to_the_update_in_place",
            first(f"update = self.dropout({branch})\n        update += x", around("update")),
        ),
        ("shortcut_detached", back(around(f"x.detach() + self.dropout({branch})"))),
        ("branch_detached", back(around(f"x + self.dropout({branch}.detach())"))),
        (
            "branch_detached",
            first(
                f"with torch.no_grad():\n            update = {branch}",
                around("x + self.dropout(update)"),
            ),
        ),
        ("no_gradient_at_all", {forward: f"with torch.no_grad():\n            return {whole}"}),
        ("returns_float32", back(f"({whole}).float()")),
        ("returns_float32", first("x = x.float()", whole)),
        (
            "new_tensor_on_the_cpu",
            back(around(f"torch.zeros(x.shape, dtype=x.dtype) + x + self.dropout({branch})")),
        ),
        (
            "only_in_training",
            {forward: f"if not self.training:\n            return x\n        return {whole}"},
        ),
        ("returns_a_tuple", back(f"{whole}, x")),
        (
            "returns_a_tuple",
            first(f"update = self.dropout({branch})", f"{around('x + update')}, update"),
        ),
        ("forgot_to_return", {forward: whole}),
    ]


PRE = "return residual(x, self.dropout(self.branch(self.norm(x), *args, **kwargs)))"
POST = "return self.norm(residual(x, self.dropout(self.branch(x, *args, **kwargs))))"
ON_X = "self.branch(x, *args, **kwargs)"
ON_NORM = "self.branch(self.norm(x), *args, **kwargs)"

PRE_NORM = [
    ("post_norm_instead", {PRE: POST}),
    (
        "post_norm_instead",
        {PRE: f"x = residual(x, self.dropout({ON_X}))\n        return self.norm(x)"},
    ),
    (
        "normalized_input_added",
        {PRE: f"x = self.norm(x)\n        return residual(x, self.dropout({ON_X}))"},
    ),
    ("normalized_input_added", {PRE: f"return residual(self.norm(x), self.dropout({ON_NORM}))"}),
    ("norm_on_the_branch_s_output", {PRE: f"return residual(x, self.dropout(self.norm({ON_X})))"}),
    ("norm_on_the_branch_s_output", {PRE: f"return residual(x, self.norm(self.dropout({ON_X})))"}),
    ("norm_used_twice", {PRE: f"return self.norm(residual(x, self.dropout({ON_NORM})))"}),
    ("norm_used_twice", {PRE: f"return residual(x, self.dropout(self.norm({ON_NORM})))"}),
    ("branch_missing", {PRE: "return residual(x, self.dropout(self.norm(x)))"}),
    ("branch_missing", {PRE: "return self.dropout(self.norm(x))"}),
    ("branch_reads_x", {PRE: f"return residual(self.norm(x), self.dropout({ON_X}))"}),
    ("branch_s_input_detached", {"self.branch(self.norm(x)": "self.branch(self.norm(x).detach()"}),
    ("norm_s_input_detached", {"self.norm(x)": "self.norm(x.detach())"}),
    (
        "dropout_before_the_branch",
        {PRE: "return residual(x, self.branch(self.norm(self.dropout(x)), *args, **kwargs))"},
    ),
    *module(PRE, "self.norm(x)", lambda total: total),
]

POST_NORM = [
    ("pre_norm_instead", {POST: PRE}),
    ("pre_norm_instead", {POST: f"update = {ON_NORM}\n        return x + self.dropout(update)"}),
    (
        "normalized_input_added",
        {POST: f"x = self.norm(x)\n        return residual(x, self.dropout({ON_X}))"},
    ),
    ("normalized_input_added", {POST: f"return residual(self.norm(x), self.dropout({ON_X}))"}),
    ("norm_on_the_branch_alone", {POST: f"return residual(x, self.dropout(self.norm({ON_X})))"}),
    ("norm_on_the_branch_alone", {POST: f"return residual(x, self.norm(self.dropout({ON_X})))"}),
    ("norm_used_twice", {POST: f"return self.norm(residual(x, self.dropout({ON_NORM})))"}),
    ("norm_used_twice", {POST: f"return self.norm(residual(x, self.dropout(self.norm({ON_X}))))"}),
    ("norm_used_twice", {POST: f"x = self.norm(x)\n        {POST}"}),
    ("shortcut_missing", {POST: f"return self.dropout(self.norm({ON_X}))"}),
    ("branch_missing", {POST: "return self.norm(residual(x, self.dropout(x)))"}),
    ("branch_missing", {POST: "return self.norm(self.dropout(x))"}),
    ("dropout_on_the_sum", {POST: f"return self.dropout(self.norm(residual(x, {ON_X})))"}),
    (
        "activation_on_the_sum",
        {POST: f"return torch.relu(self.norm(residual(x, self.dropout({ON_X}))))"},
    ),
    ("branch_s_input_detached", {"self.branch(x,": "self.branch(x.detach(),"}),
    *module(POST, "x", lambda total: f"self.norm({total})"),
]

# gradient_report

LOSS = "loss = model(x).square().mean()"
CALL = "torch.autograd.grad(loss, list(trained.values()), allow_unused=True)"
TWO = f"gradients = {CALL}\n        found = dict(zip(trained, gradients, strict=True))"
RUN_BACK = "loss.backward()\n        found = {name: one.grad for name, one in trained.items()}"
EVERY = "for name, _ in model.named_parameters():"
BAD = "if gradient is not None and not gradient.isfinite().all():"
STOP = 'raise ValueError(f"the gradient of {name} is not finite")'
NORM = "gradient.double().norm().item()"
ENTRY = f"report[name] = None if gradient is None else {NORM}"
END = "    return report\n"
# As most people write it: clear, run back, read, clear.
BACKWARD = {
    LOSS: f"model.zero_grad()\n    {LOSS}",
    TWO: RUN_BACK,
    END: f"    model.zero_grad()\n{END}",
}


def start(line):
    return {LOSS: f"{line}\n    {LOSS}"}


def both(*edits):
    return {text: instead for one in edits for text, instead in one.items()}


MODES = "modes = {one: one.training for one in model.modules()}\n    "
MODES_BACK = "    for one, mode in modes.items():\n        one.training = mode\n"


def in_mode(name):
    """In another mode, with the mode brought back: the whole model's or each submodule's."""
    return (
        {
            LOSS: f"mode = model.training\n    model.{name}()\n    {LOSS}",
            END: f"    model.train(mode)\n{END}",
        },
        {LOSS: f"{MODES}model.{name}()\n    {LOSS}", END: MODES_BACK + END},
    )


GRADIENT_REPORT = [
    ("sum_for_mean", {LOSS: "loss = model(x).square().sum()"}),
    ("no_square", {LOSS: "loss = model(x).mean()"}),
    ("summed_output", {LOSS: "loss = model(x).sum()"}),
    ("absolute_values", {LOSS: "loss = model(x).abs().mean()"}),
    ("square_of_the_mean", {LOSS: "loss = model(x).mean().square()"}),
    ("square_of_the_mean", {LOSS: "loss = model(x).mean() ** 2"}),
    ("root_of_the_loss", {LOSS: "loss = model(x).square().mean().sqrt()"}),
    ("root_of_the_loss", {LOSS: "loss = model(x).norm()"}),
    ("half_the_loss", {LOSS: "loss = 0.5 * model(x).square().mean()"}),
    ("first_row_alone", {LOSS: "loss = model(x[0]).square().mean()"}),
    ("first_row_alone", {LOSS: "loss = model(x[:1]).square().mean()"}),
    ("random_input", {LOSS: "loss = model(torch.randn_like(x)).square().mean()"}),
    ("squared_norm", {NORM: "gradient.double().square().sum().item()"}),
    ("squared_norm", {NORM: "(gradient**2).sum().item()"}),
    ("sum_of_absolute_values", {NORM: "gradient.abs().sum().item()"}),
    ("sum_of_absolute_values", {NORM: "gradient.double().norm(p=1).item()"}),
    ("largest_value", {NORM: "gradient.abs().max().item()"}),
    ("largest_value", {NORM: "gradient.max().item()"}),
    ("mean_of_the_gradient", {NORM: "gradient.abs().mean().item()"}),
    ("mean_of_the_gradient", {NORM: "gradient.mean().item()"}),
    ("sum_of_the_gradient", {NORM: "gradient.sum().item()"}),
    ("root_mean_square", {NORM: "gradient.square().mean().sqrt().item()"}),
    ("standard_deviation", {NORM: "gradient.std().item()"}),
    ("spectral_norm", {NORM: "torch.linalg.norm(gradient, 2).item()"}),
    ("rounded", {NORM: "round(gradient.norm().item(), 4)"}),
    ("rounded", {NORM: "round(gradient.norm().item(), 3)"}),
    ("tensors_for_floats", {NORM: "gradient.norm()"}),
    ("tensors_for_floats", {NORM: "gradient.double().norm()"}),
    ("strings_for_floats", {NORM: 'f"{gradient.norm().item():.4f}"'}),
    ("strings_for_floats", {NORM: "str(gradient.norm().item())"}),
    ("clipped", {NORM: "min(gradient.norm().item(), 1.0)"}),
    ("zero_taken_for_none", {NORM: f"{NORM} or None"}),
    (
        "zero_taken_for_none",
        {ENTRY: f"report[name] = {NORM} if gradient is not None and gradient.any() else None"},
    ),
    ("zero_for_none", {"None if gradient is None": "0.0 if gradient is None"}),
    ("zero_for_none", {"allow_unused=True": "materialize_grads=True"}),
    ("nan_for_none", {"None if gradient is None": 'float("nan") if gradient is None'}),
    ("word_for_none", {"None if gradient is None": '"none" if gradient is None'}),
    (
        "left_out_without_gradient",
        {ENTRY: f"if gradient is not None:\n            report[name] = {NORM}"},
    ),
    ("frozen_left_out", {EVERY: "for name in trained:"}),
    ("frozen_left_out", {EVERY: f"{EVERY}\n        if not _.requires_grad:\n            continue"}),
    ("weights_alone", {EVERY: f'{EVERY}\n        if "weight" not in name:\n            continue'}),
    ("own_parameters_alone", {EVERY: "for name, _ in model.named_parameters(recurse=False):"}),
    ("short_names", {"report[name]": 'report[name.split(".")[-1]]'}),
    ("names_without_dots", {"report[name]": 'report[name.replace(".", "_")]'}),
    (
        "numbers_for_names",
        {
            EVERY: "for number, (name, _) in enumerate(model.named_parameters()):",
            "report[name]": "report[number]",
        },
    ),
    ("layers_for_parameters", {"report[name]": 'report[name.rpartition(".")[0]]'}),
    ("parameters_for_names", {"report[name]": "report[_]"}),
    (
        "one_number_for_all",
        {END: "    return sum(one**2 for one in report.values() if one) ** 0.5\n"},
    ),
    ("list_for_dict", {END: "    return list(report.values())\n"}),
    ("list_for_dict", {END: "    return list(report.items())\n"}),
    (
        "total_added",
        {END: f'    report["total"] = sum(one or 0.0 for one in report.values())\n{END}'},
    ),
    ("buffers_too", {EVERY: "for name in model.state_dict():"}),
    ("forgot_to_return", {END: "    report\n"}),
    ("forgot_to_return", {END: "    print(report)\n"}),
    ("norms_of_the_weights", {NORM: "_.double().norm().item()"}),
    ("norms_of_the_weights", {"gradient = found.get(name)": "gradient = _.data"}),
    *(("runs_in_training_mode", one) for one in in_mode("train")),
    *(("runs_in_eval_mode", one) for one in in_mode("eval")),
    ("runs_in_training_mode", start("model.train()")),
    ("runs_in_eval_mode", start("model.eval()")),
    ("one_mode_for_all", start("model.train(model.training)")),
    ("left_in_training_mode", {END: f"    model.train()\n{END}"}),
    ("left_in_eval_mode", {END: f"    model.eval()\n{END}"}),
    ("gradients_left_behind", {TWO: RUN_BACK, LOSS: f"model.zero_grad()\n    {LOSS}"}),
    ("added_to_earlier_gradients", {TWO: RUN_BACK, END: f"    model.zero_grad()\n{END}"}),
    ("added_up_and_left", {TWO: RUN_BACK}),
    ("zeros_left_behind", both(BACKWARD, {END: f"    model.zero_grad(set_to_none=False)\n{END}"})),
    ("not_cleaned_up_when_it_raises", BACKWARD),
    (
        "kept_without_clearing",
        {
            TWO: f"kept = {{name: one.grad for name, one in trained.items()}}\n        {RUN_BACK}",
            END: f"    for name, one in trained.items():\n        one.grad = kept[name]\n{END}",
        },
    ),
    ("zeros_left_behind", start("model.zero_grad(set_to_none=False)")),
    (
        "earlier_gradients_changed",
        {END: f"    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{END}"},
    ),
    (
        "earlier_gradient_of_a_frozen_parameter",
        {
            "gradient = found.get(name)": "gradient = found.get(name, _.grad)",
        },
    ),
    (
        "a_pass_for_each_parameter",
        {
            CALL: "[torch.autograd.grad(model(x).square().mean(), one, "
            "allow_unused=True)[0] for one in trained.values()]",
        },
    ),
    ("two_passes", both(BACKWARD, {TWO: f"loss.backward(retain_graph=True)\n        {RUN_BACK}"})),
    ("lets_anything_pass", {f"{BAD}\n            {STOP}\n        ": ""}),
    ("looks_for_nan_alone", {BAD: "if gradient is not None and gradient.isnan().any():"}),
    ("looks_for_infinity_alone", {BAD: "if gradient is not None and gradient.isinf().any():"}),
    (
        "refuses_where_all_are_bad",
        {BAD: "if gradient is not None and not gradient.isfinite().any():"},
    ),
    (
        "names_the_last",
        {
            EVERY: f"bad = None\n    {EVERY}",
            STOP: "bad = name",
            END: f'    if bad:\n        raise ValueError(f"{{bad}} is not finite")\n{END}',
        },
    ),
    ("names_none", {STOP: 'raise ValueError("a gradient is not finite")'}),
    ("names_none", {'raise ValueError(f"': 'raise ValueError("'}),
    (
        "names_the_layer",
        {STOP: "raise ValueError(f\"the gradient of {name.split('.')[0]} is not finite\")"},
    ),
    (
        "names_the_first_of_all",
        {STOP: 'raise ValueError(f"the gradient of {next(iter(trained))} is not finite")'},
    ),
    ("raises_RuntimeError", {"raise ValueError": "raise RuntimeError"}),
    (
        "raises_AssertionError",
        {f"{BAD}\n            {STOP}": "assert None is gradient or gradient.isfinite().all()"},
    ),
    ("raises_FloatingPointError", {"raise ValueError": "raise FloatingPointError"}),
    ("raises_Exception", {"raise ValueError": "raise Exception"}),
    (
        "looks_at_the_loss",
        {
            f"{BAD}\n            {STOP}\n        ": "",
            LOSS: f"{LOSS}\n    "
            "if not loss.isfinite():\n        "
            'raise ValueError("the loss is not finite")',
        },
    ),
    ("looks_at_the_loss", {BAD: "if not loss.isfinite():"}),
    ("bad_values_replaced", {STOP: "gradient = torch.nan_to_num(gradient)"}),
    ("bad_values_replaced", {STOP: "gradient = torch.zeros_like(gradient)"}),
    ("bad_values_skipped", {STOP: "continue"}),
    ("bad_values_skipped", {STOP: "report[name] = None\n            continue"}),
    (
        "errors_swallowed",
        {
            LOSS: "try:\n        "
            f"{LOSS}\n    "
            "except Exception:\n        "
            f"return {{name: None for name in trained}}",
        },
    ),
    (
        "takes_a_step",
        {
            TWO: f"{TWO}\n        with torch.no_grad():\n"
            "            for one, gradient in zip(trained.values(), gradients, strict=True):\n"
            "                if gradient is not None:\n                    one -= 0.1 * gradient"
        },
    ),
    ("thaws_the_model", {END: f"    model.requires_grad_(True)\n{END}"}),
    ("freezes_the_model", {END: f"    model.requires_grad_(False)\n{END}"}),
    ("changes_x", {END: f"    x.zero_()\n{END}"}),
    (
        "frozen_measured_too",
        {" if one.requires_grad}": "}", LOSS: f"model.requires_grad_()\n    {LOSS}"},
    ),
    ("stopped_by_a_frozen_parameter", {" if one.requires_grad}": "}"}),
    ("stopped_by_none", {ENTRY: f"report[name] = {NORM}"}),
    ("stopped_by_an_unused_parameter", {", allow_unused=True": ""}),
    (
        "no_graph",
        {"if loss.requires_grad:": "if True:", LOSS: f"with torch.no_grad():\n        {LOSS}"},
    ),
    ("no_graph", {LOSS: f"with torch.no_grad():\n        {LOSS}"}),
    ("x_converted", {LOSS: "loss = model(x.float()).square().mean()"}),
    ("x_moved_to_the_cpu", {LOSS: "loss = model(x.cpu()).square().mean()"}),
    ("gradients_switched_on_for_x", start("x.requires_grad_()")),
    ("model_moved_to_the_cpu", start("model.cpu()")),
    ("model_converted", start("model = model.float()")),
    ("model_converted", start("model = model.double()\n    x = x.double()")),
    (
        "gradient_of_x",
        start("x.requires_grad_()") | {CALL: "torch.autograd.grad(loss, x) * len(trained)"},
    ),
]

SLIPS = {
    "residual": RESIDUAL,
    "PreNormResidual": PRE_NORM,
    "PostNormResidual": POST_NORM,
    "gradient_report": GRADIENT_REPORT,
}
