"""Slips in lesson 02's reference."""

# gelu and gelu_tanh

SIZE = "0.5 * x * (1 + {})"


def activation(share, inner, head):
    """What can slip in both forms: `share` stands in 1 + share, `inner` in its brackets.

    `head` is the text that a statement can be put before.
    """
    size = SIZE.format(share)
    function = share[: -len(f"({inner})")]

    def result(text):
        return {f"return {size}": f"return {text}"}

    def before(statement):
        return {head: f"    {statement}\n{head}"}

    return [
        ("relu", result("torch.relu(x)")),
        ("relu", result("torch.clamp(x, min=0)")),
        ("silu", result("x * torch.sigmoid(x)")),
        ("silu", result("F.silu(x)")),
        ("sigmoid_form", result("x * torch.sigmoid(1.702 * x)")),
        ("leaky_relu", result("F.leaky_relu(x)")),
        ("elu", result("F.elu(x)")),
        ("softplus", result("F.softplus(x)")),
        ("mish", result("F.mish(x)")),
        ("hard_swish", result("F.hardswish(x)")),
        ("tanh_alone", result("torch.tanh(x)")),
        ("sigmoid_alone", result("torch.sigmoid(x)")),
        ("share_of_the_absolute_value", {inner: inner.replace("x", "x.abs()", 1)}),
        ("share_of_the_absolute_value", before("x = x.abs()")),
        ("negative_half_cut", result(f"torch.relu({size})")),
        ("negative_half_cut", result(f"({size}).clamp(min=0)")),
        ("softmax", result("x * torch.softmax(x, dim=-1)")),
        ("softmax", result("torch.softmax(x, dim=-1)")),
        ("standardized_first", before("x = (x - x.mean()) / x.std()")),
        (
            "standardized_first",
            before("x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)"),
        ),
        ("share_alone", result(f"0.5 * (1 + {share})")),
        ("no_half", result(f"x * (1 + {share})")),
        ("no_one", result(f"0.5 * x * {share}")),
        ("sign_turned", result(f"0.5 * x * (1 - {share})")),
        ("half_of_one_part", result(f"x * (0.5 + {share})")),
        ("half_of_one_part", result(f"x * (1 + 0.5 * {share})")),
        ("parentheses_missing", result(f"0.5 * x * 1 + {share}")),
        ("parentheses_missing", result(f"0.5 * x + {share}")),
        ("x_twice", result(f"0.5 * x * x * (1 + {share})")),
        ("rounded_result", result(f"torch.round({size}, decimals=2)")),
        ("changes_x_in_place", result(f"x.mul_(0.5 * (1 + {share}))")),
        ("changes_x_in_place", {f"return {size}": f"x *= 0.5 * (1 + {share})\n    return x"}),
        ("share_detached", result(f"0.5 * x * (1 + {share}.detach())")),
        ("share_detached", result(f"0.5 * x * (1 + {share}.data)")),
        ("x_detached", before("x = x.detach()")),
        ("x_detached", before("x = torch.tensor(x)")),
        ("x_detached", result(f"({size}).detach()")),
        ("factor_detached", result(f"0.5 * x.detach() * (1 + {share})")),
        ("returns_float32", before("x = x.float()")),
        ("returns_float32", result(f"({size}).float()")),
        ("returns_float64", before("x = x.double()")),
        ("returns_float64", result(f"({size}).double()")),
        (
            "new_float32_tensor",
            result(f"0.5 * x * (torch.ones(x.shape, device=x.device) + {share})"),
        ),
        (
            "new_tensor_on_the_cpu",
            result(f"0.5 * x * (torch.ones(x.shape, dtype=x.dtype) + {share})"),
        ),
        ("summed", result(f"({size}).sum(dim=-1)")),
        ("summed", result(f"({size}).sum()")),
        ("forgot_to_return", {f"return {size}": f"result = {size}"}),
        ("forgot_to_return", {f"return {size}": f"print({size})"}),
        ("returns_x", result("x")),
        (
            "derivative",
            result(f"0.5 * (1 + {share}) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)"),
        ),
        ("math_on_a_tensor", {function: function.replace("torch", "math")}),
    ]


ERF = "torch.erf(x / math.sqrt(2))"
GELU_HEAD = "    return 0.5"


def erf(inside):
    return {"x / math.sqrt(2)": inside}


def gelu_result(text):
    return {f"return {SIZE.format(ERF)}": f"return {text}"}


GELU_SLIPS = [
    *activation(ERF, "x / math.sqrt(2)", GELU_HEAD),
    ("torch_sqrt_of_a_number", erf("x / torch.sqrt(2)")),
    ("torch_sqrt_of_a_number", erf("x / torch.sqrt(2.0)")),
    (
        "tanh_form",
        gelu_result("0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))"),
    ),
    ("no_root_of_two", erf("x")),
    ("erf_alone", gelu_result(f"x * {ERF}")),
    ("divided_by_two", erf("x / 2")),
    ("multiplied_by_the_root", erf("x * math.sqrt(2)")),
    ("root_outside_erf", {ERF: "torch.erf(x) / math.sqrt(2)"}),
    ("root_of_pi", erf("x / math.sqrt(2 * math.pi)")),
    ("root_of_pi", erf("x / math.sqrt(math.pi)")),
    ("tanh_in_place_of_erf", {"torch.erf": "torch.tanh"}),
    ("tanh_in_place_of_erf", {ERF: "torch.tanh(x)"}),
    (
        "density_in_place_of_the_cdf",
        gelu_result("x * torch.exp(-x**2 / 2) / math.sqrt(2 * math.pi)"),
    ),
    (
        "density_in_place_of_the_cdf",
        gelu_result("x * torch.distributions.Normal(0, 1).log_prob(x).exp()"),
    ),
    ("log_of_the_cdf", gelu_result(f"x * torch.log(0.5 * (1 + {ERF}))")),
    ("inverse_erf", {"torch.erf": "torch.erfinv"}),
    ("other_spread", gelu_result("x * torch.distributions.Normal(0, 2).cdf(x)")),
    ("mean_of_one", gelu_result("x * torch.distributions.Normal(1, 1).cdf(x)")),
    ("torch_gelu", gelu_result("F.gelu(x)")),
    ("torch_gelu", gelu_result("nn.GELU()(x)")),
    (
        "python_numbers",
        gelu_result(
            "torch.tensor([0.5 * v * (1 + math.erf(v / 2**0.5)) for v in x.flatten().tolist()],"
            " dtype=x.dtype).reshape(x.shape)"
        ),
    ),
    (
        "shares_from_python",
        {ERF: "torch.tensor([math.erf(v / 2**0.5) for v in x.flatten()]).reshape(x.shape)"},
    ),
    (
        "share_detached",
        {ERF: "x.detach().clone().apply_(lambda v: math.erf(v / math.sqrt(2)))"},
    ),
]

INNER = "math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)"
TANH = "torch.tanh(inner)"
FACTOR = "math.sqrt(2 / math.pi)"


def tanh_result(text):
    return {f"return {SIZE.format(TANH)}": f"return {text}"}


def cube(text):
    return {"0.044715 * x**3)\n": f"{text})\n"}


def factor(text):
    return {FACTOR: text}


GELU_TANH_SLIPS = [
    *(
        (name, edits)
        for name, edits in activation(TANH, "inner)\n", "    inner = ")
        if name not in ("share_of_the_absolute_value",)
    ),
    ("share_of_the_absolute_value", {TANH: "torch.tanh(inner.abs())"}),
    ("share_of_the_absolute_value", {TANH: "torch.abs(torch.tanh(inner))"}),
    ("torch_sqrt_of_a_number", factor("torch.sqrt(2 / math.pi)")),
    ("torch_sqrt_of_a_number", factor("torch.sqrt(2 / torch.pi)")),
    ("xor_for_a_power", cube("0.044715 * x^3")),
    ("exact_form", tanh_result(SIZE.format(ERF))),
    ("no_cubic_term", {" + 0.044715 * x**3)\n": ")\n"}),
    ("square_in_place_of_the_cube", cube("0.044715 * x**2")),
    ("square_in_place_of_the_cube", cube("0.044715 * x * x")),
    ("other_power", cube("0.044715 * x**4")),
    ("other_power", cube("0.044715 * x")),
    ("cube_of_the_product", cube("(0.044715 * x) ** 3")),
    ("cube_of_the_sum", {"(x + 0.044715 * x**3)\n": "(x + 0.044715 * x) ** 3\n"}),
    ("cubic_term_subtracted", {"x + 0.044715 * x**3)\n": "x - 0.044715 * x**3)\n"}),
    ("only_the_cubic_term", {"(x + 0.044715 * x**3)\n": "0.044715 * x**3\n"}),
    *(
        (f"{number}_for_0.044715", cube(f"{number} * x**3"))
        for number in ("0.44715", "0.0044715", "0.04715", "0.047715", "0.44", "0.041715")
    ),
    *(
        ("constant_slightly_off", cube(f"{number} * x**3"))
        for number in ("0.0447", "0.045", "0.04471", "0.044175", "0.04475", "0.04")
    ),
    ("constant_slightly_off", factor("0.798")),
    ("constant_slightly_off", factor("0.7979")),
    ("constant_slightly_off", factor("math.sqrt(2 / 3.14)")),
    ("no_factor_inside", {f"{FACTOR} * ": ""}),
    ("no_root_of_the_factor", factor("(2 / math.pi)")),
    ("root_of_two_over_pi", factor("math.sqrt(2) / math.pi")),
    ("factor_upside_down", factor("math.sqrt(math.pi / 2)")),
    ("root_of_two_pi", factor("math.sqrt(2 * math.pi)")),
    ("factor_on_x_alone", {"(x + 0.044715 * x**3)\n": "x + 0.044715 * x**3\n"}),
    ("factor_outside_tanh", {f"{FACTOR} * ": "", TANH: f"{FACTOR} * {TANH}"}),
    ("factor_rounded_to_0.8", factor("0.8")),
    ("sigmoid_for_tanh", tanh_result("x * torch.sigmoid(inner)")),
    ("sigmoid_for_tanh", {"torch.tanh": "torch.sigmoid"}),
    ("erf_of_the_tanh_s_inside", {"torch.tanh": "torch.erf"}),
    ("tanh_of_the_cdf_s_inside", {f"{INNER}\n": "x / math.sqrt(2)\n"}),
    ("cubes_x_in_place", cube("0.044715 * x.pow_(3)")),
    ("cubic_term_detached", cube("0.044715 * x.detach() ** 3")),
    ("cubic_term_detached", cube("0.044715 * x.data**3")),
]


# The two modules

INIT_END = "        ### END SOLUTION\n\n    def forward"


def network(names, output, bias=""):
    """What can slip in both modules, whose projections have these `names`."""
    *inner, last = names
    hidden, done = "        hidden = ", f"return {output}"
    first_line = f"self.{names[0]} = "
    shapes = {name: "d_model, hidden_dim" for name in inner} | {last: "hidden_dim, d_model"}
    made = {name: f"self.{name} = nn.Linear({shape}" for name, shape in shapes.items()}

    def before(statement):
        return {hidden: f"        {statement}\n{hidden}"}

    def result(text):
        return {done: f"return {text}"}

    def widths(text):
        return {
            f"self.{name} = nn.Linear({shape}": f"self.{name} = nn.Linear("
            + shape.replace("hidden_dim", text)
            for name, shape in shapes.items()
        }

    def sizes(other):
        return {
            made[name]: f"self.{name} = nn.Linear({other(shape)}" for name, shape in shapes.items()
        }

    remade = "\n        ".join(
        f"self.{name} = nn.Linear({shape}{bias}).to(x)"
        for name, shape in [
            *((name, "x.shape[-1], 4 * x.shape[-1]") for name in inner),
            (last, "4 * x.shape[-1], x.shape[-1]"),
        ]
    )

    width = f"self.{last}.in_features"
    reset = "\n        ".join(f"self.{name}.reset_parameters()" for name in names)

    def before_the_end(statement):
        return {INIT_END: f"        {statement}\n{INIT_END}"}

    def one_more(line, text=""):
        return {first_line: f"{line}\n        {first_line}", **(result(text) if text else {})}

    return [
        ("averages_the_tokens", before("x = x + x.mean(dim=1, keepdim=True)")),
        (
            "average_in_place_of_the_token",
            before("x = x.mean(dim=1, keepdim=True).expand(x.shape)"),
        ),
        ("one_output_for_the_sentence", before("x = x.mean(dim=1, keepdim=True)")),
        ("one_output_for_the_sentence", before("x = x.mean(dim=1)")),
        ("average_of_the_outputs", result(f"{output}.mean(dim=1, keepdim=True).expand(x.shape)")),
        ("attends", before("x = torch.softmax(x @ x.transpose(1, 2), dim=-1) @ x")),
        (
            "attends",
            before("x = torch.softmax(x @ x.mT / math.sqrt(x.shape[-1]), dim=-1) @ x"),
        ),
        ("looks_to_the_left", before("x = x + x.roll(1, dims=1)")),
        ("sums_up_the_past", before("x = x.cumsum(dim=1)")),
        (
            "averages_the_past",
            before("x = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).to(x).view(-1, 1)"),
        ),
        ("reads_backwards", before("x = x.flip(1)")),
        (
            "normalizes_over_the_sequence",
            before("x = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)"),
        ),
        ("mixes_the_batch", before("x = x - x.mean(dim=0, keepdim=True)")),
        ("mixes_the_batch", before("x = x.mean(dim=0, keepdim=True).expand_as(x)")),
        (
            "view_in_place_of_transpose",
            before("x = x.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)"),
        ),
        ("works_along_the_sequence", before("x = x.transpose(1, 2)")),
        (
            "works_along_the_sequence",
            {**before("x = x.transpose(1, 2)"), **result(f"{output}.transpose(1, 2)")},
        ),
        ("flattens_the_sentence", before("x = x.flatten(1)")),
        ("flattens_the_sentence", before("x = x.view(x.shape[0], -1)")),
        ("knows_its_place", before("x = x + torch.arange(x.shape[1]).to(x).view(-1, 1)")),
        ("one_output_for_the_sentence", result(f"{output}.mean(dim=1)")),
        ("one_output_for_the_sentence", result(f"{output}.mean(dim=1, keepdim=True)")),
        ("last_token_only", result(f"{output}[:, -1]")),
        ("last_token_only", result(f"{output}[:, -1:]")),
        ("residual_added", result(f"x + {output}")),
        ("normalizes_first", before("x = F.layer_norm(x, x.shape[-1:])")),
        ("normalizes_last", result(f"F.layer_norm({output}, x.shape[-1:])")),
        ("scaled_by_the_width", before("x = x * math.sqrt(x.shape[-1])")),
        ("scaled_by_the_width", result(f"{output} / math.sqrt(x.shape[-1])")),
        ("scaled_by_the_width", result(f"{output} / math.sqrt(hidden.shape[-1])")),
        ("scaled_by_the_width", result(f"{output} * math.sqrt(x.shape[-1])")),
        ("softmax_at_the_end", result(f"torch.softmax({output}, dim=-1)")),
        ("activation_at_the_end", result(f"torch.relu({output})")),
        ("activation_at_the_end", result(f"torch.sigmoid({output})")),
        ("activation_at_the_end", result(f"torch.tanh({output})")),
        ("activation_at_the_start", before("x = F.gelu(x)")),
        ("activation_at_the_start", before("x = F.silu(x)")),
        ("activation_at_the_start", before("x = F.relu(x)")),
        ("returns_a_tuple", result(f"{output}, x")),
        ("returns_a_tuple", result(f"({output},)")),
        ("forgot_to_return", {done: f"out = {output}"}),
        ("returns_x", result("x")),
        ("changes_x_in_place", before("x -= x.mean(dim=-1, keepdim=True)")),
        ("writes_the_result_into_x", {done: f"x[:] = {output}\n        return x"}),
        ("writes_the_result_into_x", {done: f"x.copy_({output})\n        return x"}),
        ("adds_the_result_into_x", {done: f"x += {output}\n        return x"}),
        ("x_detached", before("x = x.detach()")),
        ("x_detached", before("x = torch.tensor(x)")),
        ("returns_float32", result(f"{output}.float()")),
        ("returns_float64", result(f"{output}.double()")),
        ("new_tensor_on_the_cpu", result(f"{output} + torch.zeros(x.shape, dtype=x.dtype)")),
        ("new_tensor_on_the_cpu", before("x = x * torch.ones(x.shape[-1], dtype=x.dtype)")),
        ("no_gradient_at_all", result(f"{output}.detach()")),
        ("no_gradient_at_all", result(f"{output}.data")),
        ("no_layers", {f"self.{name} = nn": f"{name} = nn" for name in names} | before(remade)),
        ("frozen", before_the_end("self.requires_grad_(False)")),
        ("output_frozen", before_the_end(f"self.{last}.requires_grad_(False)")),
        ("hidden_width_ignored", widths("4 * d_model")),
        ("hidden_width_ignored", one_more("hidden_dim = 4 * d_model")),
        ("hidden_width_of_the_model", widths("d_model")),
        ("hidden_width_times_four", widths("4 * hidden_dim")),
        ("hidden_width_two_thirds", one_more("hidden_dim = int(2 * hidden_dim / 3)")),
        ("sizes_swapped", sizes(lambda shape: ", ".join(reversed(shape.split(", "))))),
        ("sizes_swapped", one_more("d_model, hidden_dim = hidden_dim, d_model")),
        ("no_super_init", {"        super().__init__()\n": ""}),
        (
            "one_more_layer",
            one_more("self.last = nn.Linear(d_model, d_model)", f"self.last({output})"),
        ),
        ("one_more_layer", one_more("self.middle = nn.Linear(hidden_dim, hidden_dim)")),
        ("own_norm", one_more("self.norm = nn.LayerNorm(d_model)", f"self.norm({output})")),
        (
            "own_norm",
            {**one_more("self.norm = nn.LayerNorm(d_model)"), **before("x = self.norm(x)")},
        ),
        (
            "trained_scale",
            one_more("self.scale = nn.Parameter(torch.ones(d_model))", f"{output} * self.scale"),
        ),
        (
            "trained_scale",
            one_more("self.scale = nn.Parameter(torch.ones(1))", f"{output} * self.scale"),
        ),
        ("layers_made_in_forward", before(remade.replace("4 * x.shape[-1]", width))),
        ("layers_made_in_forward", before(reset)),
        ("only_in_training", before("if not self.training:\n            return x")),
        (
            "keeps_the_first_result",
            {
                first_line: f"self.kept = None\n        {first_line}",
                done: f"self.kept = {output} if self.kept is None else self.kept\n"
                "        return self.kept",
            },
        ),
    ]


# FeedForward

IN, OUT = "self.input_projection", "self.output_projection"
HIDDEN = "hidden = self.dropout(F.gelu(self.input_projection(x)))"
DONE = "return self.dropout(self.output_projection(hidden))"
DROPOUT = "nn.Dropout(dropout)"


def hidden(text):
    return {HIDDEN: f"hidden = {text}"}


def done(text):
    return {DONE: f"return {text}"}


def activated(text):
    return hidden(f"self.dropout({text})")


def named(first, second):
    """The layers under other names."""
    return {
        f"{IN} = ": f"self.{first} = ",
        f"{OUT} = ": f"self.{second} = ",
        f"{IN}(x)": f"self.{first}(x)",
        f"{OUT}(hidden)": f"self.{second}(hidden)",
    }


FEED_FORWARD_SLIPS = [
    *network(
        ("input_projection", "output_projection"),
        "self.dropout(self.output_projection(hidden))",
    ),
    ("no_activation", activated(f"{IN}(x)")),
    ("relu_for_gelu", activated(f"F.relu({IN}(x))")),
    ("tanh_form_for_the_exact", activated(f"F.gelu({IN}(x), approximate='tanh')")),
    ("silu_for_gelu", activated(f"F.silu({IN}(x))")),
    ("sigmoid_form_for_gelu", activated(f"{IN}(x) * torch.sigmoid(1.702 * {IN}(x))")),
    ("tanh_for_gelu", activated(f"torch.tanh({IN}(x))")),
    ("sigmoid_for_gelu", activated(f"torch.sigmoid({IN}(x))")),
    ("leaky_relu_for_gelu", activated(f"F.leaky_relu({IN}(x))")),
    ("elu_for_gelu", activated(f"F.elu({IN}(x))")),
    ("squared_relu_for_gelu", activated(f"F.relu({IN}(x)) ** 2")),
    ("softmax_for_gelu", activated(f"torch.softmax({IN}(x), dim=-1)")),
    (
        "activation_after_the_output",
        activated(f"{IN}(x)") | done(f"self.dropout(F.gelu({OUT}(hidden)))"),
    ),
    (
        "activation_after_the_output",
        activated(f"{IN}(x)") | done(f"F.gelu(self.dropout({OUT}(hidden)))"),
    ),
    (
        "activation_after_the_output",
        hidden(f"{IN}(x)") | done(f"self.dropout(F.gelu({OUT}(hidden)))"),
    ),
    ("activation_after_the_output_too", done(f"self.dropout(F.gelu({OUT}(hidden)))")),
    ("activation_at_the_end", done(f"F.gelu(self.dropout({OUT}(hidden)))")),
    ("gelu_twice", activated(f"F.gelu(F.gelu({IN}(x)))")),
    ("gated_by_itself", activated(f"F.gelu({IN}(x)) * {IN}(x)")),
    ("returns_the_hidden_features", done("hidden")),
    ("returns_the_hidden_features", done("self.dropout(hidden)")),
    ("second_projection_of_x", done(f"self.dropout({OUT}(x))")),
    ("hidden_detached", done(f"self.dropout({OUT}(hidden.detach()))")),
    ("hidden_detached", activated(f"F.gelu({IN}(x).detach())")),
    ("no_bias", {"(d_model, hidden_dim)": "(d_model, hidden_dim, bias=False)"}),
    ("no_bias", {"(hidden_dim, d_model)": "(hidden_dim, d_model, bias=False)"}),
    (
        "no_bias",
        {
            "(d_model, hidden_dim)": "(d_model, hidden_dim, bias=False)",
            "(hidden_dim, d_model)": "(hidden_dim, d_model, bias=False)",
        },
    ),
    ("bias_not_used", activated(f"F.gelu(x @ {IN}.weight.T)")),
    ("bias_not_used", done(f"self.dropout(hidden @ {OUT}.weight.T)")),
    (
        "tied_projections",
        {"self.dropout = ": f"{OUT}.weight = nn.Parameter({IN}.weight.T)\n        self.dropout = "},
    ),
    (
        "tied_projections",
        {"self.dropout = ": f"{OUT}.weight.data = {IN}.weight.data.T\n        self.dropout = "},
    ),
    ("second_projection_not_used", done(f"self.dropout(hidden @ {IN}.weight + {OUT}.bias)")),
    *(
        ("other_names", named(first, second))
        for first, second in (
            ("fc1", "fc2"),
            ("linear1", "linear2"),
            ("w1", "w2"),
            ("up", "down"),
            ("in_proj", "out_proj"),
            ("c_fc", "c_proj"),
            ("up_projection", "down_projection"),
            ("input_layer", "output_layer"),
            ("first", "second"),
            ("l1", "l2"),
            ("input_proj", "output_proj"),
            ("expand", "contract"),
        )
    ),
    ("no_dropout", hidden(f"F.gelu({IN}(x))") | done(f"{OUT}(hidden)")),
    (
        "no_dropout",
        hidden(f"F.gelu({IN}(x))")
        | done(f"{OUT}(hidden)")
        | {f"        self.dropout = {DROPOUT}\n": ""},
    ),
    ("no_dropout_after_the_output", done(f"{OUT}(hidden)")),
    ("no_dropout_after_the_activation", hidden(f"F.gelu({IN}(x))")),
    ("dropout_before_the_activation", hidden(f"F.gelu(self.dropout({IN}(x)))")),
    ("dropout_on_the_input", hidden(f"F.gelu({IN}(self.dropout(x)))")),
    ("dropout_on_the_input_too", activated(f"F.gelu({IN}(self.dropout(x)))")),
    ("dropout_on_both_sides_of_the_activation", activated(f"F.gelu(self.dropout({IN}(x)))")),
    (
        "dropout_twice_after_the_output",
        hidden(f"F.gelu({IN}(x))") | done(f"self.dropout(self.dropout({OUT}(hidden)))"),
    ),
    ("dropout_doubled", done(f"self.dropout(self.dropout({OUT}(hidden)))")),
    ("dropout_doubled", activated(f"self.dropout(F.gelu({IN}(x)))")),
    (
        "dropout_doubled",
        activated(f"self.dropout(F.gelu({IN}(x)))")
        | done(f"self.dropout(self.dropout({OUT}(hidden)))"),
    ),
    (
        "dropout_in_eval_too",
        {DROPOUT: "dropout"}
        | hidden(f"F.dropout(F.gelu({IN}(x)), self.dropout)")
        | done(f"F.dropout({OUT}(hidden), self.dropout)"),
    ),
    (
        "dropout_in_eval_too",
        {DROPOUT: "dropout"}
        | hidden(f"nn.Dropout(self.dropout)(F.gelu({IN}(x)))")
        | done(f"nn.Dropout(self.dropout)({OUT}(hidden))"),
    ),
    (
        "dropout_in_eval_alone",
        {DROPOUT: "dropout"}
        | hidden(f"F.dropout(F.gelu({IN}(x)), self.dropout, not self.training)")
        | done(f"F.dropout({OUT}(hidden), self.dropout, not self.training)"),
    ),
    ("probability_of_keeping", {DROPOUT: "nn.Dropout(1 - dropout)"}),
    (
        "not_scaled_up",
        {DROPOUT: "dropout"}
        | hidden(
            f"F.gelu({IN}(x))\n        keep = self.dropout if self.training else 0\n"
            "        hidden = hidden * (torch.rand_like(hidden) >= keep)"
        )
        | {DONE: f"out = {OUT}(hidden)\n        return out * (torch.rand_like(out) >= keep)"},
    ),
    ("dropout_fixed", {DROPOUT: "nn.Dropout(0.1)"}),
    ("dropout_fixed", {DROPOUT: "nn.Dropout()"}),
    ("no_dropout", {DROPOUT: "nn.Dropout(0.0)"}),
    ("drops_whole_tokens", {DROPOUT: "nn.Dropout1d(dropout)"}),
    ("default_dropout", {"dropout=0.0": "dropout=0.1"}),
    ("default_dropout", {"dropout=0.0": "dropout=0.5"}),
    ("no_dropout_argument", {", dropout=0.0": "", DROPOUT: "nn.Dropout(0.0)"}),
]


# SwiGLU

GATE, UP = "self.gate_projection", "self.up_projection"
PRODUCT = f"F.silu({GATE}(x)) * {UP}(x)"


def product(text):
    return {PRODUCT: text}


def last(text):
    return {f"return {OUT}(hidden)": f"return {text}"}


def biased(*names):
    sizes = {GATE: "d_model, hidden_dim", UP: "d_model, hidden_dim", OUT: "hidden_dim, d_model"}
    return {
        f"{name} = nn.Linear({sizes[name]}, bias=False)": f"{name} = nn.Linear({sizes[name]})"
        for name in names
    }


def called(gate, up, out):
    new = {GATE: f"self.{gate}", UP: f"self.{up}", OUT: f"self.{out}"}
    return {f"{old} = ": f"{name} = " for old, name in new.items() if name != old} | {
        PRODUCT: f"F.silu({new[GATE]}(x)) * {new[UP]}(x)",
        f"return {OUT}(hidden)": f"return {new[OUT]}(hidden) ",
    }


UP_LINE = f"        {UP} = nn.Linear(d_model, hidden_dim, bias=False)\n"


def in_one(layer):
    """Gate and up made by one layer of twice the width."""
    return {
        f"{GATE} = nn.Linear(d_model, hidden_dim,": f"{layer} = nn.Linear(d_model, 2 * hidden_dim,",
        UP_LINE: "",
        f"hidden = {PRODUCT}": f"gate, up = {layer}(x).chunk(2, dim=-1)\n"
        "        hidden = F.silu(gate) * up",
    }


SWIGLU_SLIPS = [
    *network(
        ("gate_projection", "up_projection", "output_projection"),
        "self.output_projection(hidden)",
        ", bias=False",
    ),
    ("gate_and_up_swapped", product(f"{GATE}(x) * F.silu({UP}(x))")),
    ("silu_of_the_product", product(f"F.silu({GATE}(x) * {UP}(x))")),
    ("silu_on_both", product(f"F.silu({GATE}(x)) * F.silu({UP}(x))")),
    ("no_activation", product(f"{GATE}(x) * {UP}(x)")),
    ("sigmoid_gate", product(f"torch.sigmoid({GATE}(x)) * {UP}(x)")),
    ("gelu_gate", product(f"F.gelu({GATE}(x)) * {UP}(x)")),
    ("gelu_gate", product(f"F.gelu({GATE}(x), approximate='tanh') * {UP}(x)")),
    ("relu_gate", product(f"F.relu({GATE}(x)) * {UP}(x)")),
    ("tanh_gate", product(f"torch.tanh({GATE}(x)) * {UP}(x)")),
    ("softmax_gate", product(f"torch.softmax({GATE}(x), dim=-1) * {UP}(x)")),
    ("sharper_silu", product(f"{GATE}(x) * torch.sigmoid(1.702 * {GATE}(x)) * {UP}(x)")),
    ("softplus_gate", product(f"F.softplus({GATE}(x)) * {UP}(x)")),
    ("sigmoid_of_the_up_projection", product(f"{GATE}(x) * torch.sigmoid({UP}(x))")),
    ("sum_for_product", product(f"F.silu({GATE}(x)) + {UP}(x)")),
    ("sum_for_product", product(f"{GATE}(x) + F.silu({UP}(x))")),
    ("up_not_used", product(f"F.silu({GATE}(x))")),
    ("gate_not_used", product(f"{UP}(x)")),
    ("gate_not_used", product(f"F.silu({UP}(x))")),
    ("gated_by_itself", product(f"F.silu({GATE}(x)) * {GATE}(x)")),
    ("gated_by_itself", product(f"F.silu({UP}(x)) * {UP}(x)")),
    ("one_minus_the_gate", product(f"(1 - torch.sigmoid({GATE}(x))) * {UP}(x)")),
    ("one_minus_the_gate", product(f"{GATE}(x) * (1 - torch.sigmoid({GATE}(x))) * {UP}(x)")),
    ("gate_detached", product(f"F.silu({GATE}(x)).detach() * {UP}(x)")),
    ("gate_detached", product(f"F.silu({GATE}(x).detach()) * {UP}(x)")),
    ("up_detached", product(f"F.silu({GATE}(x)) * {UP}(x).detach()")),
    ("matrix_product_for_the_gate", product(f"F.silu({GATE}(x)) @ {UP}(x)")),
    ("matrix_product_for_the_gate", product(f"F.silu({GATE}(x)) @ {UP}(x).mT")),
    (
        "activation_after_the_output",
        product(f"{GATE}(x) * {UP}(x)") | last(f"F.silu({OUT}(hidden))"),
    ),
    ("activation_before_the_gate", product(f"{GATE}(F.silu(x)) * {UP}(x)")),
    ("up_projection_of_the_gate", product(f"{UP}(F.silu({GATE}(x)))")),
    ("gate_times_x", product(f"F.silu({GATE}(x)) * x")),
    ("returns_the_hidden_features", last("hidden")),
    ("dropout_in_training", last(f"F.dropout({OUT}(hidden), 0.1, self.training)")),
    ("dropout_in_training", last(f"{OUT}(F.dropout(hidden, 0.1, self.training))")),
    ("has_biases", biased(GATE, UP, OUT)),
    ("has_biases", biased(GATE, UP)),
    ("has_biases", biased(OUT)),
    ("has_biases", biased(GATE)),
    ("has_biases", biased(UP)),
    ("no_up_projection", {UP_LINE: "", PRODUCT: f"F.silu({GATE}(x))"}),
    ("no_up_projection", {UP_LINE: "", PRODUCT: f"F.silu({GATE}(x)) * {GATE}(x)"}),
    (
        "no_output_projection",
        {f"        {OUT} = nn.Linear(hidden_dim, d_model, bias=False)\n": ""} | last("hidden"),
    ),
    *(
        ("other_names", called(*names))
        for names in (
            ("w1", "w2", "w3"),
            ("w1", "w3", "w2"),
            ("gate", "up", "down"),
            ("gate_proj", "up_proj", "down_proj"),
            ("gate_projection", "up_projection", "down_projection"),
            ("gate_proj", "up_proj", "out_proj"),
            ("gate_proj", "up_proj", "output_proj"),
            ("gate", "value", "out"),
            ("W", "V", "W2"),
            ("linear1", "linear2", "linear3"),
            ("gate", "up", "output"),
        )
    ),
    ("one_layer_for_both", {UP_LINE: f"        {UP} = {GATE}\n"}),
    ("fused_projection", in_one(GATE)),
    ("fused_projection", in_one("self.in_proj")),
]


# Counting

WEIGHTS = "weights = 2 * d_model * hidden_dim"
COUNT = "return weights + hidden_dim + d_model if bias else weights"


def counted(biases):
    return {COUNT: f"return weights + {biases} if bias else weights"}


def matrices(text):
    return {WEIGHTS: f"weights = {text}"}


def returned(text):
    return {COUNT: f"return {text}"}


FEED_FORWARD_PARAMETERS_SLIPS = [
    ("biases_always_counted", returned("weights + hidden_dim + d_model")),
    ("bias_turned_round", returned("weights if bias else weights + hidden_dim + d_model")),
    ("bias_turned_round", returned("weights + hidden_dim + d_model if not bias else weights")),
    ("nothing_without_bias", returned("weights + hidden_dim + d_model if bias else 0")),
    ("a_float", matrices("2.0 * d_model * hidden_dim")),
    ("a_float", matrices("4 * d_model * hidden_dim / 2")),
    ("a_tensor", matrices("torch.tensor(2 * d_model * hidden_dim)")),
    ("a_tensor", matrices("2 * torch.tensor(d_model) * hidden_dim")),
    ("a_text", returned('f"{weights + hidden_dim + d_model if bias else weights:,}"')),
    ("a_text", returned("str(weights + hidden_dim + d_model if bias else weights)")),
    ("printed", {COUNT: COUNT.replace("return ", "print(") + ")"}),
    ("biases_never_counted", returned("weights")),
    ("hidden_bias_alone", counted("hidden_dim")),
    ("output_bias_alone", counted("d_model")),
    ("biases_of_one_size", counted("2 * d_model")),
    ("biases_of_one_size", counted("2 * hidden_dim")),
    ("one_number_per_bias", counted("2")),
    ("one_number_per_bias", returned("weights + 2 * bias")),
    ("one_number_per_bias", counted("1")),
    ("tensors_counted", returned("4 if bias else 2")),
    ("one_matrix", matrices("d_model * hidden_dim")),
    ("three_matrices", matrices("3 * d_model * hidden_dim")),
    ("hidden_width_assumed", matrices("2 * d_model * 4 * d_model")),
    ("hidden_width_assumed", {WEIGHTS: f"hidden_dim = 4 * d_model\n    {WEIGHTS}"}),
    ("sum_for_product", matrices("2 * (d_model + hidden_dim)")),
    ("square_matrices", matrices("2 * d_model**2")),
    ("square_matrices", matrices("2 * d_model * d_model")),
    ("square_matrices", matrices("2 * hidden_dim**2")),
    ("square_matrices", matrices("d_model**2 + hidden_dim**2")),
    ("biases_counted_twice", counted("2 * (hidden_dim + d_model)")),
    ("bias_multiplied", returned("weights * (hidden_dim + d_model) if bias else weights")),
    ("norm_counted_too", counted("hidden_dim + d_model + 2 * d_model")),
    ("attention_counted_too", matrices("2 * d_model * hidden_dim + 4 * d_model * d_model")),
    ("a_tuple", returned("weights, (hidden_dim + d_model if bias else 0)")),
    ("a_tuple", returned("(weights, hidden_dim + d_model) if bias else weights")),
    ("no_bias_by_default", {"bias=True": "bias=False"}),
]

SQUARES = "weights = 4 * d_model * d_model"
FOUR = "return weights + 4 * d_model if bias else weights"


def four(biases):
    return {FOUR: f"return weights + {biases} if bias else weights"}


def squares(text):
    return {SQUARES: f"weights = {text}"}


def gives(text):
    return {FOUR: f"return {text}"}


ATTENTION_PARAMETERS_SLIPS = [
    ("biases_always_counted", gives("weights + 4 * d_model")),
    ("bias_turned_round", gives("weights if bias else weights + 4 * d_model")),
    ("nothing_without_bias", gives("weights + 4 * d_model if bias else 0")),
    ("a_float", squares("4.0 * d_model * d_model")),
    ("a_float", squares("4 * math.pow(d_model, 2)")),
    ("a_tensor", squares("4 * torch.tensor(d_model) * d_model")),
    ("a_tensor", squares("torch.tensor(4 * d_model * d_model)")),
    ("a_text", gives('f"{weights + 4 * d_model if bias else weights:,}"')),
    ("a_text", gives("str(weights + 4 * d_model if bias else weights)")),
    ("printed", {FOUR: FOUR.replace("return ", "print(") + ")"}),
    ("biases_never_counted", gives("weights")),
    ("output_projection_forgotten", squares("3 * d_model * d_model")),
    ("output_projection_forgotten", {**squares("3 * d_model * d_model"), **four("3 * d_model")}),
    ("one_projection", squares("d_model * d_model")),
    ("one_projection", {**squares("d_model * d_model"), **four("d_model")}),
    ("two_projections", {**squares("2 * d_model * d_model"), **four("2 * d_model")}),
    ("two_projections", squares("2 * d_model * d_model")),
    ("one_bias", four("d_model")),
    ("three_biases", four("3 * d_model")),
    ("one_number_per_bias", four("4")),
    ("one_number_per_bias", gives("weights + 4 * bias")),
    ("one_number_per_bias", four("1")),
    ("xor_for_a_power", squares("4 * d_model ^ 2")),
    ("xor_for_a_power", squares("4 * (d_model ^ 2)")),
    ("not_squared", squares("4 * d_model")),
    ("four_inside_the_square", squares("(4 * d_model) ** 2")),
    ("width_to_the_fourth", squares("d_model**4")),
    ("feed_forward_counted", squares("8 * d_model * d_model")),
    ("feed_forward_counted", {**squares("8 * d_model * d_model"), **four("5 * d_model")}),
    ("feed_forward_counted", squares("12 * d_model * d_model")),
    ("norm_counted_too", four("4 * d_model + 2 * d_model")),
    ("a_tuple", gives("weights, (4 * d_model if bias else 0)")),
    ("a_tuple", gives("(weights, 4 * d_model) if bias else weights")),
    ("no_bias_by_default", {"bias=True": "bias=False"}),
]

SLIPS = {
    "gelu": GELU_SLIPS,
    "gelu_tanh": GELU_TANH_SLIPS,
    "FeedForward": FEED_FORWARD_SLIPS,
    "SwiGLU": SWIGLU_SLIPS,
    "feed_forward_parameters": FEED_FORWARD_PARAMETERS_SLIPS,
    "attention_parameters": ATTENTION_PARAMETERS_SLIPS,
}
