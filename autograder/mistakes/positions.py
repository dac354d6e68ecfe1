"""Known wrong answers of lesson 04, each with the sentence its author should hear.

A table, a rotation and a bias are each written once with their parts as arguments, and both modules
once with their steps as methods, so that a mistake is one part or one step gone wrong.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from autograder.judge import Mistakes
from autograder.judge.quiz import quiz_mistakes
from solutions.positions import LearnedPositionalEncoding as RightLearned
from solutions.positions import SinusoidalPositionalEncoding as RightSinusoidal
from solutions.positions import alibi_bias as right_alibi_bias
from solutions.positions import apply_rope as right_apply_rope
from solutions.positions import sinusoidal_table as right_table

sinusoidal_table = Mistakes("sinusoidal_table")
sinusoidal = Mistakes("SinusoidalPositionalEncoding")
learned = Mistakes("LearnedPositionalEncoding")
apply_rope = Mistakes("apply_rope")
alibi_bias = Mistakes("alibi_bias")


# The two modules, a step at a time


class Sinusoidal(RightSinusoidal):
    def too_long(self, x):
        if x.shape[1] > self.pe.shape[1]:
            raise ValueError("too long")

    def other_width(self, x):
        if x.shape[2] != self.pe.shape[2]:
            raise ValueError("another width")

    def rows(self, x):
        return self.pe[:, : x.shape[1]]

    def combine(self, x, rows):
        return self.dropout(x + rows)

    def forward(self, x):
        self.too_long(x)
        self.other_width(x)
        return self.combine(x, self.rows(x).to(x.dtype))


class Learned(RightLearned):
    def too_long(self, x):
        if x.shape[1] > self.position_embedding.num_embeddings:
            raise ValueError("too long")

    def positions(self, x):
        return torch.arange(x.shape[1], device=x.device)

    def rows(self, x):
        return self.position_embedding(self.positions(x))

    def combine(self, x, rows):
        return self.dropout(x + rows)

    def forward(self, x):
        self.too_long(x)
        return self.combine(x, self.rows(x))


def both(name, sentence, *steps):
    """Add to both catalogues a module for each of `steps`, methods by name that go wrong."""
    for mistakes, right in ((sinusoidal, Sinusoidal), (learned, Learned)):
        mistakes.add(name, sentence, *(type(right.__name__, (right,), one) for one in steps))


def with_table(table):
    """The sinusoidal module around another table."""

    class Module(Sinusoidal):
        def __init__(self, d_model, max_len=4096, dropout=0.0):
            super().__init__(d_model, max_len, dropout)
            self.register_buffer("pe", table(max_len, d_model)[None])

    return Module


# sinusoidal_table, and the module around it


def power(exponent, base=10000.0):
    """Frequencies base^-exponent(i, C), for pair i."""
    return lambda width: torch.tensor(
        [base ** -exponent(i, width) for i in range((width + 1) // 2)], dtype=torch.float64
    )


usual = power(lambda i, width: 2 * i / width)


def interleaved(sines, cosines, width):
    return torch.stack([sines, cosines], -1).flatten(1)[:, :width]


def table_by(
    frequencies=usual,
    of_cosines=None,
    position=lambda length: torch.arange(length, dtype=torch.float64),
    waves=(torch.sin, torch.cos),
    arrange=interleaved,
):
    def table(length, d_model):
        places = position(length)[:, None]
        sines = waves[0](places * frequencies(d_model))
        cosines = waves[1](places * (of_cosines or frequencies)(d_model))
        return arrange(sines, cosines, d_model).float()

    return table


def both_tables(name, sentence, *tables):
    """Add wrong tables, and the modules around them."""
    sinusoidal_table.add(name, sentence, *tables)
    sinusoidal.add(name, sentence, *map(with_table, tables))


both_tables(
    "exponent_i_over_C",
    "Your exponent is i/C, with i counting the pairs. It is 2i/C: pair 1 stands in columns 2 and "
    "3. `torch.arange(0, d_model, 2)` is 2i already.",
    table_by(power(lambda i, width: i / width)),
)
both_tables(
    "exponent_doubled_twice",
    "Your exponent is 4i/C: `torch.arange(0, d_model, 2)` is 2i already, and you doubled it again.",
    table_by(power(lambda i, width: 4 * i / width)),
)
both_tables(
    "sines_and_cosines_in_two_halves",
    "You put all sines first and all cosines after them. Here they take turns: sines in the even "
    "columns, cosines in the odd ones.",
    table_by(arrange=lambda sines, cosines, width: torch.cat([sines, cosines], 1)[:, :width]),
    table_by(arrange=lambda sines, cosines, width: torch.cat([sines, cosines[:, : width // 2]], 1)),
)
both_tables(
    "cosine_with_the_next_frequency",
    "Your cosines have a frequency of their own: their exponent uses the odd column, 2i + 1. A "
    "cosine has the frequency of the sine on its left, 2i.",
    table_by(of_cosines=power(lambda i, width: (2 * i + 1) / width)),
    table_by(of_cosines=power(lambda i, width: (2 * i + 2) / width)),
    table_by(
        power(lambda i, width: 4 * i / width),
        of_cosines=power(lambda i, width: (4 * i + 2) / width),
    ),
)
both_tables(
    "sine_and_cosine_swapped",
    "Your even columns are cosines. Sines stand in the even columns, cosines in the odd ones.",
    table_by(waves=(torch.cos, torch.sin)),
)
from_one = table_by(position=lambda length: torch.arange(1, length + 1, dtype=torch.float64))
sinusoidal_table.add(
    "counted_from_1",
    "Your first row is position 1. Positions are counted from 0: 0, 1, 0, 1, … comes first.",
    from_one,
)
both_tables(
    "frequencies_grow",
    "The sign of your exponent is lost: pair i turns by 10000^(+2i/C). Each pair is slower than "
    "the one before, 10000^(-2i/C).",
    table_by(power(lambda i, width: -2 * i / width)),
)
both_tables(
    "base_1000",
    "Your base is 1000; it is 10000, with four zeros.",
    table_by(power(lambda i, width: 2 * i / width, 1000.0)),
)
both_tables(
    "base_e",
    "The logarithm of 10000 is missing. In the form with `exp` the exponent is "
    "-2i/C · log(10000), with the natural logarithm.",
    table_by(power(lambda i, width: 2 * i / width, math.e)),
)
both_tables(
    "wrong_logarithm",
    "You used the logarithm to base 10 or 2. `exp` undoes the natural one, `math.log`.",
    table_by(power(lambda i, width: 2 * i / width, math.exp(4))),
    table_by(power(lambda i, width: 2 * i / width, math.exp(math.log2(10000)))),
)
both_tables(
    "one_frequency_for_all_pairs",
    "All your pairs turn at the same rate, one radian a position. Divide by 10000^(2i/C).",
    table_by(power(lambda i, width: 0.0)),
)
both_tables(
    "last_frequency_at_the_end",
    "You spread the frequencies so that the last one is 1/10000 exactly (dividing by C/2 - 1, as "
    "one library does). The exponent is 2i/C.",
    table_by(power(lambda i, width: i / max((width + 1) // 2 - 1, 1))),
    table_by(power(lambda i, width: 2 * i / (width - 2) if width != 2 else math.nan)),
)
both_tables(
    "frequencies_counted_from_1",
    "Your pairs are counted from 1, so the first one turns by less than a radian a position. "
    "Count them from 0: the first exponent is 0.",
    table_by(power(lambda i, width: 2 * (i + 1) / width)),
)
both_tables(
    "whole_turns",
    "You multiplied the angles by 2π. The formula has none: pair 0 turns by 1 radian a position.",
    table_by(position=lambda length: 2 * math.pi * torch.arange(length, dtype=torch.float64)),
)
both_tables(
    "degrees",
    "You turned the angles from degrees into radians. They are radians as they are.",
    table_by(position=lambda length: torch.arange(length, dtype=torch.float64).deg2rad()),
)
both_tables(
    "position_over_length",
    "You divided the position by the length, so a token's row depends on how long the table is. "
    "Use the position itself.",
    table_by(position=lambda length: torch.arange(length, dtype=torch.float64) / length),
    table_by(position=lambda length: torch.linspace(0, 1, length, dtype=torch.float64)),
)
both_tables(
    "sine_only",
    "There are only sines. The odd columns are cosines of the same angles.",
    table_by(waves=(torch.sin, torch.sin)),
)
both_tables(
    "angles_without_waves",
    "You returned the angles. Take the sine of each on even columns, the cosine on odd ones.",
    table_by(waves=(lambda angle: angle, lambda angle: angle)),
)
both_tables(
    "integer_division",
    "Your exponent is made of whole numbers: divided with `//`, or integers only. Divide with `/`, "
    "and begin from floats.",
    table_by(power(lambda i, width: -(-2 * i // width))),
    table_by(power(lambda i, width: math.inf if i else 0.0)),
)
both_tables(
    "divided_by_C_outside_the_exponent",
    "You divided by C outside the exponent: `10000 ** even / C` is `(10000 ** even) / C`. Put the "
    "fraction in brackets, `10000 ** (even / C)`.",
    table_by(lambda width: power(lambda i, _: 2 * i)(width) / width),
    table_by(lambda width: power(lambda i, _: 2 * i)(width) * width),
)


def in_dtype(dtype):
    """Tables whose angles are in `dtype`: positions and frequencies, positions alone, all of it."""

    def narrow(length):
        return torch.arange(length).to(dtype)

    def rounded(width):
        return usual(width).to(dtype)

    return (
        table_by(lambda width: rounded(width).double(), position=lambda n: narrow(n).double()),
        table_by(position=lambda length: narrow(length).double()),
        table_by(rounded, position=narrow),
    )


both_tables(
    "angles_in_half_precision",
    "You computed in float16 or bfloat16, which can't hold a position near 4000. Compute the table "
    "in float32 or wider.",
    *in_dtype(torch.float16),
    *in_dtype(torch.bfloat16),
)


@sinusoidal_table("The table is transposed: rows are positions, columns are features, (T, C).")
def transposed(length, d_model):
    return right_table(length, d_model).T


@sinusoidal_table(
    "You added an axis for the batch. The table is (T, C); the module adds that axis."
)
def axis_for_the_batch(length, d_model):
    return right_table(length, d_model)[None]


@sinusoidal_table("The table is float64; float32 was asked for: end with `.float()`.")
def float64(length, d_model):
    return table_by()(length, d_model).double()


@sinusoidal_table("The table is float16 or bfloat16; float32 was asked for.")
def half_table(length, d_model):
    return right_table(length, d_model).half()


ODD = (
    "An odd C has one sine more than cosines. Make that many angles, and give the cosines all of "
    "them but the last: `[:, : d_model // 2]`."
)


def odd_table(name, sentence, *tables):
    """Tables that are wrong at odd widths alone; `tables` are called for these."""

    def at_odd(wrong):
        return lambda length, d_model: (
            wrong(length, d_model) if d_model % 2 else right_table(length, d_model)
        )

    both_tables(name, sentence, *map(at_odd, tables))


def slots_do_not_fit(length, d_model):
    even = torch.arange(0, d_model, 2)
    angles = torch.arange(length)[:, None] / 10000 ** (even / d_model)
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return table


def slots_do_not_fit_three_axes(length, d_model):
    angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    table = torch.zeros(1, length, d_model)
    table[0, :, 0::2] = torch.sin(angles)
    table[0, :, 1::2] = torch.cos(angles)
    return table[0]


def refuses_odd(length, d_model):
    raise ValueError("d_model has to be even")


def asserts_even(length, d_model):
    raise AssertionError


odd_table("odd_width_fails", ODD, slots_do_not_fit, slots_do_not_fit_three_axes)
odd_table(
    "odd_width_refused",
    "An odd C is allowed here: " + ODD[0].lower() + ODD[1:],
    refuses_odd,
    asserts_even,
)
odd_table(
    "odd_width_a_column_short",
    "At odd C your last column is missing or zero. It is a sine: there are (C + 1) // 2 of them.",
    lambda length, d_model: right_table(length, d_model)[:, :-1],
    lambda length, d_model: F.pad(right_table(length, d_model)[:, :-1], (0, 1)),
)
odd_table(
    "odd_width_rounded_up",
    "At odd C you divided by C + 1 (or C - 1) in the exponent. The exponent is 2i/C, whatever C.",
    lambda length, d_model: right_table(length, d_model + 1)[:, :-1],
    table_by(power(lambda i, width: 2 * i / max(width - 1, 1))),
)
odd_table(
    "odd_width_a_column_too_many",
    "At odd C your table has C + 1 columns. The last sine has no cosine beside it.",
    lambda length, d_model: right_table(length, d_model + 1),
    table_by(arrange=lambda sines, cosines, width: torch.stack([sines, cosines], -1).flatten(1)),
)
odd_table(
    "odd_width_ends_on_a_cosine",
    "At odd C your last column is a cosine. Column C - 1 is even then, and even columns are sines.",
    lambda length, d_model: torch.cat(
        [right_table(length, d_model)[:, :-1], right_table(length, d_model + 1)[:, -1:]], 1
    ),
)


@sinusoidal_table("You returned nothing: end the function with `return table`.")
def forgot_to_return(length, d_model):
    right_table(length, d_model)


@sinusoidal_table("You returned the table as you made it, all zeros: fill both kinds of column.")
def zeros(length, d_model):
    return torch.zeros(length, d_model)


@sinusoidal_table("The odd columns are still zeros: fill them with the cosines, `table[:, 1::2]`.")
def cosines_missing(length, d_model):
    table = right_table(length, d_model)
    table[:, 1::2] = 0
    return table


# What both modules can get wrong


both(
    "one_row_for_all_tokens",
    "You read a single row of the table, as `pe[:, T]` does, and every token got it. A colon is "
    "missing: `[:, :T]` reads the rows 0 to T - 1.",
    {"rows": lambda self, x: row_of(self, x, x.shape[1])},
    {"rows": lambda self, x: row_of(self, x, x.shape[1] - 1)},
    {"rows": lambda self, x: row_of(self, x, 0)},
)


def all_rows(module):
    """The table of either module, (max_len, C)."""
    return module.pe[0] if isinstance(module, Sinusoidal) else module.position_embedding.weight


def row_of(module, x, place):
    table = all_rows(module)
    if place >= len(table):
        raise IndexError(
            f"index {place} is out of bounds for dimension 1 with size {len(table)}"
            if isinstance(module, Sinusoidal)
            else "index out of range in self"
        )
    return table[place]


def rows_at(places):
    """Rows of the table at `places(x)`."""
    return {"rows": lambda self, x: all_rows(self)[places(x)].to(x.dtype)}


both(
    "counted_along_the_batch",
    "You counted along axis 0, the batch. Tokens stand along axis 1: count to `x.shape[1]`.",
    {"rows": lambda self, x: all_rows(self)[: x.shape[0]][:, None]},
    {"rows": lambda self, x: all_rows(self)[None, : x.shape[0]]},
)
OFF_BY_ONE = "Token 0 got row 1. Positions are counted from 0: the first token gets row 0."
for mistakes, right, others in (
    (sinusoidal, Sinusoidal, [with_table(from_one)]),
    (learned, Learned, []),
):
    mistakes.add(
        "off_by_one",
        OFF_BY_ONE,
        type("Module", (right,), {"rows": lambda self, x: all_rows(self)[1 : x.shape[1] + 1]}),
        *others,
    )
both(
    "counted_backwards",
    "You counted from the end: the last token got row 0. The first token gets it.",
    rows_at(lambda x: torch.arange(x.shape[1] - 1, -1, -1, device=x.device)),
)
both(
    "not_cut_to_T",
    "You added all `max_len` rows, whatever the length of x. Take as many as there are tokens, "
    "`[:, :T]`.",
    {"rows": lambda self, x: all_rows(self)[None]},
)
both(
    "concatenated",
    "You put the position beside the features, so the width doubled. It is added to them.",
    {"combine": lambda self, x, rows: self.dropout(torch.cat([x, rows.expand_as(x)], -1))},
)
both(
    "multiplied",
    "You multiplied x by the row. It is added.",
    {"combine": lambda self, x, rows: self.dropout(x * rows)},
)
both(
    "subtracted",
    "You subtracted the row. It is added.",
    {"combine": lambda self, x, rows: self.dropout(x - rows)},
)
both(
    "positions_alone",
    "You returned the rows without x. Token and position are added.",
    {"combine": lambda self, x, rows: self.dropout(0 * x + rows)},
    {"combine": lambda self, x, rows: self.dropout(rows)},
    {"combine": lambda self, x, rows: self.dropout(rows.reshape(1, *rows.shape[-2:]))},
)
both(
    "position_left_out",
    "x came back without its positions: the row is never added.",
    {"combine": lambda self, x, rows: self.dropout(x + 0 * rows)},
    {"combine": lambda self, x, rows: x + 0 * rows},
)
both(
    "scaled_by_the_root_of_C",
    "You multiplied x by the root of C first. The paper does so, and in this course it is the "
    "job of the whole model in lesson 7: add the row to x as it comes.",
    {"combine": lambda self, x, rows: self.dropout(x * x.shape[-1] ** 0.5 + rows)},
)
both(
    "dropout_on_x_alone",
    "Dropout falls on x before the row is added. It falls on the sum.",
    {"combine": lambda self, x, rows: self.dropout(x) + rows},
)
both(
    "dropout_on_the_positions_alone",
    "Dropout falls on the positions before they are added. It falls on the sum.",
    {"combine": lambda self, x, rows: x + self.dropout(rows)},
    {"combine": lambda self, x, rows: x + self.dropout(rows.expand_as(x))},
)
both(
    "dropout_on_each_part",
    "Dropout falls on x and on the positions, each for itself. It falls once, on the sum.",
    {"combine": lambda self, x, rows: self.dropout(x) + self.dropout(rows)},
)
both(
    "dropout_twice",
    "Dropout falls on x, and on the sum again. Once is enough, on the sum.",
    {"combine": lambda self, x, rows: self.dropout(self.dropout(x) + rows)},
    {"combine": lambda self, x, rows: self.dropout(self.dropout(x + rows))},
)
both(
    "no_dropout",
    "Nothing is ever dropped: `forward` does not use the dropout, or its probability is lost.",
    {"combine": lambda self, x, rows: x + rows},
)
both(
    "dropout_in_eval_mode",
    "Dropout goes on in eval mode. `F.dropout(...)` needs `training=self.training`; nn.Dropout, "
    "made once in `__init__`, knows by itself.",
    {"combine": lambda self, x, rows: F.dropout(x + rows, self.dropout.p)},
    {"combine": lambda self, x, rows: nn.Dropout(self.dropout.p)(x + rows)},
)
both(
    "dropout_keeps_the_share_it_should_drop",
    "You gave nn.Dropout the share to keep, 1 - p. It wants the share to drop.",
    {
        "combine": lambda self, x, rows: F.dropout(
            x + rows, 1 - self.dropout.p if self.dropout.p else 0.0, self.training
        )
    },
)
both(
    "dropout_without_rescaling",
    "You dropped entries, and left the others as they are. nn.Dropout divides them by 1 - p, so "
    "that the mean stays.",
    {
        "combine": lambda self, x, rows: (
            self.dropout(x + rows) * (1 - self.dropout.p if self.training else 1)
        )
    },
)
both(
    "whole_tokens_dropped",
    "Whole tokens or whole features are dropped at once. nn.Dropout drops single entries.",
    {"combine": lambda self, x, rows: (x + rows) * self.dropout(torch.ones_like(x[..., :1]))},
    {"combine": lambda self, x, rows: (x + rows) * self.dropout(torch.ones_like(x[:, :1]))},
    {"combine": lambda self, x, rows: (x + rows) * self.dropout(torch.ones_like(x[:1]))},
)


def with_dropout(right, p):
    def make(self, d_model, max_len=4096, dropout=0.0):
        right.__init__(self, d_model, max_len)
        self.dropout = nn.Dropout(p)

    return type("Module", (right,), {"__init__": make})


def with_defaults(right, default_len=4096, default_dropout=0.0):
    def make(self, d_model, max_len=default_len, dropout=default_dropout):
        right.__init__(self, d_model, max_len, dropout)

    return type("Module", (right,), {"__init__": make})


for mistakes, right in ((sinusoidal, Sinusoidal), (learned, Learned)):
    mistakes.add(
        "dropout_fixed_at_0.1",
        "The `dropout` you are given is not used: yours is always 0.1.",
        with_dropout(right, 0.1),
    )
    mistakes.add(
        "dropout_0.1_by_default",
        "Where no `dropout` is given yours is 0.1 (or another). It is 0.0 in this course.",
        *(with_defaults(right, default_dropout=p) for p in (0.1, 0.2, 0.5)),
    )
    mistakes.add(
        "other_length_by_default",
        "Where no `max_len` is given there are 4096 rows.",
        *(with_defaults(right, default_len=most) for most in (512, 1024, 1000, 5000, 2048)),
    )

both(
    "changes_x_in_place",
    "You added into x (`x += …`, `x.add_(…)`), which is your caller's tensor. Make a new one: "
    "`x + …`.",
    {"combine": lambda self, x, rows: self.dropout(x.add_(rows))},
)


def no_error(self, x):
    pass


def refuse(wrong):
    if wrong:
        raise ValueError("too long")


def asserts_length(self, x):
    assert x.shape[1] <= len(all_rows(self))


def raises(error):
    def too_long(self, x):
        if x.shape[1] > len(all_rows(self)):
            raise error("too long")

    return {"too_long": too_long}


LONG = (
    "More tokens than `max_len` have to end in a ValueError that you raise: compare "
    "`x.shape[1]` with the number of rows first. "
)
both(
    "length_not_looked_at",
    LONG + "torch's own complaint comes late, is another error, and with one row there is none.",
    {"too_long": no_error},
    {"too_long": no_error, "rows": lambda self, x: all_rows(self)[: x.shape[1]]},
)
both("length_asserted", LONG + "An `assert` raises AssertionError.", {"too_long": asserts_length})
both(
    "another_error_for_the_length",
    LONG + "Yours is another error.",
    *map(raises, (IndexError, RuntimeError, TypeError, Exception)),
)
both(
    "refuses_max_len_itself",
    "Exactly `max_len` tokens fit, and you refuse them: test with `>`, not with `>=`.",
    {"too_long": lambda self, x: refuse(x.shape[1] >= len(all_rows(self)))},
)


def recycled(self, x):
    table = all_rows(self)
    return table[torch.arange(x.shape[1], device=x.device) % len(table)]


def last_row_again(self, x):
    table = all_rows(self)
    return table[torch.arange(x.shape[1], device=x.device).clamp(max=len(table) - 1)]


both(
    "cuts_x_to_max_len",
    LONG + "You cut x short, and the caller loses tokens without a word.",
    {
        "too_long": no_error,
        "forward": lambda self, x: (
            Sinusoidal if isinstance(self, Sinusoidal) else Learned
        ).forward(self, x[:, : len(all_rows(self))]),
    },
)
both(
    "begins_again_past_max_len",
    LONG + "You begin again at row 0, so two tokens have one position.",
    {"too_long": no_error, "rows": recycled},
)

both(
    "repeats_the_last_row_past_max_len",
    LONG + "You give the last row to all that follow, so they have one position.",
    {"too_long": no_error, "rows": last_row_again},
)
both(
    "x_detached",
    "No gradient gets through. You cut x off (`.detach()`, `.data`, `torch.tensor(x)` or numpy) or "
    "computed under `no_grad`, so nothing before this layer could learn.",
    {"combine": lambda self, x, rows: self.dropout(x.detach() + rows)},
    {"forward": lambda self, x: without_gradient(self, x)},
)


def without_gradient(self, x):
    with torch.no_grad():
        return self.combine(x, self.rows(x).to(x.dtype)) if fits(self, x) else None


def fits(self, x):
    self.too_long(x)
    if isinstance(self, Sinusoidal):
        self.other_width(x)
    return True


both(
    "counts_on_from_call_to_call",
    "You count on from call to call, so the same x gets other rows the second time. Each call "
    "begins at position 0.",
    {"rows": lambda self, x: counting_on(self, x)},
)


def counting_on(self, x):
    start = getattr(self, "seen", 0)
    self.seen = start + x.shape[1]
    table = all_rows(self)
    return table[torch.arange(start, self.seen, device=x.device) % len(table)]


# SinusoidalPositionalEncoding alone


@sinusoidal(
    "The table is a plain attribute. `.to(device)` leaves it behind, so a GPU run fails: "
    '`self.register_buffer("pe", ...)`.',
    "plain_attribute",
)
class PlainAttribute(Sinusoidal):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        table = self.pe
        del self.pe
        self.pe = table


def kept_as(make):
    """The module with its table kept by `make(module, table)`, table (1, max_len, C)."""

    class Module(Sinusoidal):
        def __init__(self, d_model, max_len=4096, dropout=0.0):
            super().__init__(d_model, max_len, dropout)
            table = self.pe
            del self.pe
            make(self, table)

    return Module


def as_parameter(requires_grad):
    def make(module, table):
        module.pe = nn.Parameter(table, requires_grad=requires_grad)

    return make


sinusoidal.add(
    "table_trained",
    "The table is an nn.Parameter, so an optimizer would move it. It is a fixed table: "
    '`self.register_buffer("pe", ...)`.',
    kept_as(as_parameter(True)),
)
sinusoidal.add(
    "frozen_parameter",
    "The table is a parameter with requires_grad=False. It is still in `parameters()`: what moves "
    "with the module and is not trained is a buffer.",
    kept_as(as_parameter(False)),
)


class OtherShape(Sinusoidal):
    """Keeps its table in a shape of its own; `all_rows` and `rows` read (max_len, C) from it."""

    def reshaped(self, pe):
        raise NotImplementedError

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        self.register_buffer("pe", self.reshaped(self.pe))

    def forward(self, x):
        table = self.pe.reshape(-1, self.pe.shape[-1])
        if x.shape[1] > len(table) or x.shape[2] != table.shape[1]:
            raise ValueError("another shape")
        return self.combine(x, table[: x.shape[1]].to(x.dtype))


sinusoidal.add(
    "buffer_without_the_batch_axis",
    "`pe` is (max_len, C). It has a first axis of 1 for the batch: (1, max_len, C).",
    type("Module", (OtherShape,), {"reshaped": lambda self, pe: pe[0]}),
)
sinusoidal.add(
    "buffer_with_the_sequence_first",
    "`pe` is (max_len, 1, C), made for inputs with the sequence first. Here the batch is first: "
    "(1, max_len, C).",
    type("Module", (OtherShape,), {"reshaped": lambda self, pe: pe.transpose(0, 1)}),
)


@sinusoidal(
    "The buffer has another name. It is called `pe`: saved models are loaded by name.",
    "buffer_of_another_name",
)
class OtherName(Sinusoidal):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        table = self.pe
        del self.pe
        self.table: torch.Tensor
        self.register_buffer("table", table)

    def forward(self, x):
        if x.shape[1] > self.table.shape[1] or x.shape[2] != self.table.shape[2]:
            raise ValueError("another shape")
        return self.combine(x, self.table[:, : x.shape[1]].to(x.dtype))


@sinusoidal(
    "You make the table anew at every call. Make it once, in `__init__`, and keep it as the "
    "buffer `pe`.",
    "table_made_in_forward",
)
class MadeInForward(nn.Module):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        self.width, self.max_len, self.dropout = d_model, max_len, nn.Dropout(dropout)

    def forward(self, x):
        if x.shape[1] > self.max_len or x.shape[2] != self.width:
            raise ValueError("another shape")
        rows = right_table(x.shape[1], self.width).to(x.device, x.dtype)
        return self.dropout(x + rows)


def keeps_the_float32_table(self, x):
    self.too_long(x)
    self.other_width(x)
    return self.combine(x, self.rows(x))


sinusoidal.add(
    "returns_float32",
    "For a float16 or bfloat16 x you returned float32: x plus a float32 table is float32. Convert "
    "the rows, or the sum, with `.to(x.dtype)`.",
    type("Module", (Sinusoidal,), {"forward": keeps_the_float32_table}),
    type(
        "Module",
        (Sinusoidal,),
        {"forward": lambda self, x: keeps_the_float32_table(self, x.float())},
    ),
)


@sinusoidal(
    "You converted the table itself, `self.pe = self.pe.to(...)`. After one bfloat16 input it has "
    "lost its digits for good. Convert the rows that you add.",
    "table_converted_for_good",
)
class ConvertsTheTable(Sinusoidal):
    def rows(self, x):
        self.pe = self.pe.to(x.dtype)
        return super().rows(x)


def asserts_width(self, x):
    assert x.shape[2] == self.pe.shape[2]


WIDTH = (
    "An x of another width has to end in a ValueError that you raise: compare `x.shape[-1]` with "
    "the table's. "
)
for name, sentence, steps in (
    (
        "width_not_looked_at",
        WIDTH + "torch's own complaint is another error, and for a width of 1 it broadcasts.",
        {"other_width": no_error},
    ),
    (
        "width_asserted",
        WIDTH + "An `assert` raises AssertionError.",
        {"other_width": asserts_width},
    ),
    (
        "table_cut_to_the_width_of_x",
        WIDTH + "You cut the table to fit, `[..., :x.shape[-1]]`.",
        {
            "other_width": no_error,
            "rows": lambda self, x: self.pe[:, : x.shape[1], : x.shape[2]],
        },
    ),
    (
        "neither_length_nor_width_looked_at",
        "Look at both sizes of x before you add. Each by itself is a ValueError (`or`, not `and`): "
        "more tokens than `max_len`, another width than `d_model`.",
        {"other_width": no_error, "too_long": no_error},
    ),
    (
        "both_sizes_asserted",
        "An `assert` raises AssertionError, for the length and for the width. ValueError was asked "
        "for.",
        {"other_width": asserts_width, "too_long": asserts_length},
    ),
):
    sinusoidal.add(name, sentence, type("Module", (Sinusoidal,), steps))


# LearnedPositionalEncoding alone


class WithoutEmbedding(nn.Module):
    """Adds the first rows of what `table` makes in `__init__`, kept as an attribute `name`."""

    name = "position_embedding"

    def made(self, rows, width):
        raise NotImplementedError

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__()
        setattr(self, self.name, self.made(max_len, d_model))
        self.max_len, self.dropout = max_len, nn.Dropout(dropout)

    def forward(self, x):
        if x.shape[1] > self.max_len:
            raise ValueError("too long")
        table = getattr(self, self.name)
        table = table.weight if isinstance(table, nn.Embedding) else table
        return self.dropout(x + table[: x.shape[1]])


learned.add(
    "parameter_in_place_of_an_embedding",
    "`position_embedding` is a bare nn.Parameter. An nn.Embedding was asked for: its table is "
    "called `position_embedding.weight`, and saved models are loaded by name.",
    type(
        "Module",
        (WithoutEmbedding,),
        {"made": lambda self, rows, width: nn.Parameter(torch.zeros(rows, width))},
    ),
)
learned.add(
    "embedding_of_another_name",
    "Your embedding has another name. It is called `position_embedding`: saved models are loaded "
    "by name.",
    type(
        "Module",
        (WithoutEmbedding,),
        {"name": "pos_emb", "made": lambda self, rows, width: nn.Embedding(rows, width)},
    ),
)
learned.add(
    "nothing_to_train",
    "There is no parameter once `__init__` has run. The table is an nn.Embedding, made once in "
    "`__init__`; a plain tensor, a buffer or a layer made in `forward` is never trained.",
    type(
        "Module", (WithoutEmbedding,), {"made": lambda self, rows, width: torch.zeros(rows, width)}
    ),
)


@learned(
    "You froze the embedding or looked it up under `no_grad`, so it is never trained. That is "
    "the difference from the sinusoidal table.",
    "embedding_frozen",
)
class Frozen(Learned):
    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        self.position_embedding.weight.requires_grad_(False)


learned.add(
    "embedding_detached",
    "You cut the embedding out of the gradient (`.detach()`, `.data` or `no_grad`), so it is never "
    "trained.",
    type("Module", (Learned,), {"rows": lambda self, x: Learned.rows(self, x).detach()}),
)


def with_embedding(make):
    class Module(Learned):
        def __init__(self, d_model, max_len=4096, dropout=0.0):
            nn.Module.__init__(self)
            self.position_embedding = make(max_len, d_model)
            self.dropout = nn.Dropout(dropout)

    return Module


learned.add(
    "position_0_taken_for_padding",
    "You passed `padding_idx=0`, so row 0 is never trained. Position 0 is a position like the "
    "others; padding is a matter of token ids.",
    with_embedding(lambda rows, width: nn.Embedding(rows, width, padding_idx=0)),
)
learned.add(
    "a_row_too_many",
    "Your embedding has max_len + 1 rows or more. The positions 0 to max_len - 1 need max_len.",
    with_embedding(lambda rows, width: nn.Embedding(rows + 1, width)),
)
learned.add(
    "rows_and_width_exchanged",
    "nn.Embedding wants the number of rows first, `nn.Embedding(max_len, d_model)`.",
    with_embedding(lambda rows, width: nn.Embedding(width, rows)),
)
learned.add(
    "max_len_ignored",
    "The `max_len` you are given is not used: the number of rows is always the same.",
    with_embedding(lambda rows, width: nn.Embedding(4096, width)),
)


@learned(
    "All your modules share one embedding (a class attribute or a default argument). Make it in "
    "`__init__`, for each module anew.",
    "embedding_shared",
)
class Shared(Learned):
    made: dict[tuple[int, int], nn.Embedding] = {}

    def __init__(self, d_model, max_len=4096, dropout=0.0):
        super().__init__(d_model, max_len, dropout)
        self.position_embedding = self.made.setdefault((max_len, d_model), self.position_embedding)


learned.add(
    "positions_on_the_CPU",
    "You made the positions without `device=x.device`. They are on the CPU, and on a GPU the "
    "embedding refuses them.",
    type("Module", (Learned,), {"positions": lambda self, x: torch.arange(x.shape[1])}),
)


@learned(
    "You fill the embedding with the sinusoidal table at each call. A learned table holds what "
    "training has put there.",
    "sinusoids_again",
)
class SinusoidsAgain(Learned):
    def rows(self, x):
        weight = self.position_embedding.weight
        return right_table(x.shape[1], weight.shape[1]).to(x) + 0 * weight[: x.shape[1]]


@learned("You returned float32 whatever came in. The result has x's dtype.", "returns_float32")
class LearnedFloat32(Learned):
    def combine(self, x, rows):
        return self.dropout(x.float() + rows.float())


# apply_rope

# A rotation in its parts: `pairs` gives (a, b), `join` puts them back, `angles` makes the angles.


def neighbours(x):
    return x[..., 0::2], x[..., 1::2]


def halves(x):
    return x.chunk(2, -1)


def interleave(a, b):
    return torch.stack([a, b], -1).flatten(-2)


def concatenate(a, b):
    return torch.cat([a, b], -1)


def turn(a, b, angle):
    cos, sin = angle.cos(), angle.sin()
    return a * cos - b * sin, a * sin + b * cos


def overwrites_x(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    angle = angles(x, positions, base)
    a, b = neighbours(x)
    x[..., 0::2] = (a * angle.cos() - b * angle.sin()).to(x.dtype)
    x[..., 1::2] = (a * angle.sin() + b * angle.cos()).to(x.dtype)
    return x


def wide(x):
    return torch.promote_types(x.dtype, torch.float32)


def angles(x, positions, base, exponent=lambda i, width: 2 * i / width, dtype=None):
    """position · base^-exponent(i, D), (T, D/2)."""
    width, dtype = x.shape[-1], dtype or wide(x)
    frequencies = [float(base) ** -exponent(i, width) for i in range(width // 2)]
    return positions.to(dtype)[:, None] * torch.tensor(frequencies, dtype=dtype, device=x.device)


def rope_by(pairs=neighbours, join=interleave, turn=turn, angles=angles, default=10000.0):
    def rope(x, positions, base=default):
        if x.shape[-1] % 2:
            raise ValueError("odd width")
        return join(*turn(*pairs(x), angles(x, positions, base))).to(x.dtype)

    return rope


def with_exponent(exponent):
    return rope_by(angles=lambda x, positions, base: angles(x, positions, base, exponent))


def with_angles(change):
    return rope_by(angles=lambda x, positions, base: change(angles(x, positions, base)))


def with_positions(change):
    return rope_by(angles=lambda x, positions, base: angles(x, change(x, positions), base))


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def rotate_neighbours(x):
    return torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)


def rope_in_full(rotate, widen, of_features=None):
    """x · cos + rotate(x) · sin, the angles widened from D/2 to D.

    Or with angles by `of_features(j, D)`, an exponent for each feature j.
    """

    def rope(x, positions, base=10000.0):
        if x.shape[-1] % 2:
            raise ValueError("odd width")
        if of_features:
            exponents = [of_features(j, x.shape[-1]) for j in range(x.shape[-1])]
            angle = torch.tensor([float(base) ** -one for one in exponents], device=x.device)
            angle = positions.to(wide(x))[:, None] * angle
        else:
            angle = widen(angles(x, positions, base))
        return (x * angle.cos() + rotate(x) * angle.sin()).to(x.dtype)

    return rope


def twice(angle):
    return torch.cat([angle, angle], -1)


def each_twice(angle):
    return angle.repeat_interleave(2, -1)


for name, sentence, answers in (
    (
        "pairs_from_two_halves",
        "Your pairs are (i, i + D/2), the half-split convention. Here they are neighbours, "
        "(2i, 2i + 1). Both are RoPE, and weights trained for one are useless under the other.",
        [rope_by(halves, concatenate)],
    ),
    (
        "halves_turned_by_neighbours_angles",
        "You mixed the two conventions: the rotation pairs (i, i + D/2), while the angles come in "
        "neighbouring pairs. Both have to be neighbours.",
        [rope_in_full(rotate_half, each_twice)],
    ),
    (
        "neighbours_turned_by_halves_angles",
        "You mixed the two conventions: the rotation pairs neighbours, while the angles are "
        "repeated in two halves (`cat([angles, angles])`). Use `repeat_interleave(2, -1)`.",
        [rope_in_full(rotate_neighbours, twice)],
    ),
    (
        "joined_in_two_halves",
        "You turned neighbours, and put the results back as two halves. Each feature goes back to "
        "its own place: `stack([a, b], dim=-1)`, then `flatten(-2)`.",
        [rope_by(neighbours, concatenate)],
    ),
    (
        "split_in_halves,_joined_as_neighbours",
        "You took the pairs from two halves and put them back as neighbours. Take the even "
        "features, `[..., 0::2]`, and the odd ones.",
        [rope_by(halves, interleave)],
    ),
    (
        "turned_to_the_right",
        "You turn the wrong way: the signs of the two sines are exchanged (or the angle is "
        "negative). The pair (a, b) becomes (a cos - b sin, a sin + b cos).",
        [with_angles(torch.neg)],
    ),
    (
        "one_sign_wrong",
        "One sign is wrong, so this is no rotation. The pair (a, b) becomes "
        "(a cos - b sin, a sin + b cos).",
        [
            rope_by(turn=lambda a, b, t: (a * t.cos() + b * t.sin(), a * t.sin() + b * t.cos())),
            rope_by(turn=lambda a, b, t: (a * t.cos() - b * t.sin(), a * t.sin() - b * t.cos())),
            rope_by(turn=lambda a, b, t: (a * t.cos() - b * t.sin(), b * t.cos() - a * t.sin())),
        ],
    ),
    (
        "sine_and_cosine_swapped",
        "Sine and cosine are exchanged: at position 0 the cosine is 1 and nothing turns.",
        [
            rope_by(turn=lambda a, b, t: (a * t.sin() - b * t.cos(), a * t.cos() + b * t.sin())),
            with_angles(lambda angle: math.pi / 2 - angle),
        ],
    ),
    (
        "second_line_uses_the_new_a",
        "You overwrote a before computing b, so the second line used the turned a. Keep both old "
        "values until both new ones are there.",
        [
            rope_by(
                turn=lambda a, b, t: (
                    a * t.cos() - b * t.sin(),
                    (a * t.cos() - b * t.sin()) * t.sin() + b * t.cos(),
                )
            ),
            overwrites_x,
        ],
    ),
    (
        "a_and_b_exchanged",
        "The two features of each pair are exchanged. The even one is a and the odd one is b, "
        "before and after.",
        [
            rope_by(turn=lambda a, b, t: turn(a, b, t)[::-1]),
            rope_by(turn=lambda a, b, t: turn(b, a, t)),
        ],
    ),
    (
        "positions_ignored",
        "You counted 0, 1, 2, … yourself and ignored `positions`. When a model writes, the one "
        "token you get may stand at position 17.",
        [
            with_positions(
                lambda x, positions: torch.arange(len(positions), device=positions.device)
            )
        ],
    ),
    (
        "counted_from_1",
        "You added 1 to the positions. They are used as they come.",
        [with_positions(lambda x, positions: positions + 1)],
    ),
    (
        "counted_from_the_first",
        "You subtracted the first position, or the smallest. They are used as they come.",
        [
            with_positions(lambda x, positions: positions - positions[0]),
            with_positions(lambda x, positions: positions - positions.min()),
        ],
    ),
    (
        "counted_on_from_the_first",
        "You took the first position and counted on from it. Each token has its own: token t "
        "stands at positions[t].",
        [
            with_positions(
                lambda x, positions: (
                    positions[0] + torch.arange(len(positions), device=positions.device)
                )
            )
        ],
    ),
    (
        "positions_sorted",
        "You brought the positions into another order. Token t stands at positions[t].",
        [with_positions(lambda x, positions: positions.sort().values)],
    ),
    (
        "one_position_for_all",
        "Every token is turned by the same angle. Token t has the angle of positions[t].",
        [
            with_positions(lambda x, positions: positions[-1:].expand_as(positions)),
            with_positions(lambda x, positions: positions[:1].expand_as(positions)),
            with_positions(lambda x, positions: torch.full_like(positions, len(positions))),
        ],
    ),
    (
        "base_fixed",
        "The `base` you are given is not used: yours is always 10000.",
        [rope_by(angles=lambda x, positions, base: angles(x, positions, 10000.0))],
    ),
    (
        "another_base_by_default",
        "Where no `base` is given it is 10000.",
        [rope_by(default=base) for base in (1000.0, 100000.0, 500000.0, 1000000.0)],
    ),
    (
        "exponent_i_over_D",
        "Your exponent is i/D, with i counting the pairs. It is 2i/D; `torch.arange(0, D, 2)` is "
        "2i already.",
        [with_exponent(lambda i, width: i / width)],
    ),
    (
        "exponent_doubled_twice",
        "Your exponent is 4i/D: `torch.arange(0, D, 2)` is 2i already, and you doubled it again "
        "(or divided by D/2).",
        [with_exponent(lambda i, width: 4 * i / width)],
    ),
    (
        "frequencies_grow",
        "The sign of your exponent is lost. Each pair turns slower than the one before: "
        "base^(-2i/D).",
        [with_exponent(lambda i, width: -2 * i / width)],
    ),
    (
        "frequencies_counted_from_1",
        "Your pairs are counted from 1. The first pair has exponent 0: one radian a position.",
        [with_exponent(lambda i, width: 2 * (i + 1) / width)],
    ),
    (
        "last_frequency_at_the_end",
        "You spread the frequencies so that the last one is 1/base exactly. The exponent is 2i/D.",
        [
            with_exponent(lambda i, width: i / max(width // 2 - 1, 1)),
            with_exponent(lambda i, width: 2 * i / (width - 2) if width > 2 else math.nan),
        ],
    ),
    (
        "slowest_pair_first",
        "The slowest pair comes first. Pair 0 is the fastest, at one radian a position.",
        [rope_by(angles=lambda x, positions, base: angles(x, positions, base).flip(-1))],
    ),
    (
        "one_frequency_for_all_pairs",
        "All pairs turn by the same angle. Pair i turns by position · base^(-2i/D).",
        [with_exponent(lambda i, width: 0.0)],
    ),
    (
        "a_frequency_for_each_feature",
        "Each feature has a frequency of its own. The two of a pair share theirs: there are D/2 "
        "angles.",
        [
            rope_in_full(
                rotate_neighbours, lambda angle: angle, lambda j, width, step=step: step * j / width
            )
            for step in (1, 2)
        ],
    ),
    (
        "half_of_the_features",
        "You turned only half of the pairs. Some models do; here every pair turns.",
        [
            lambda x, positions, base=10000.0: torch.cat(
                [
                    right_apply_rope(x[..., : 2 * ((x.shape[-1] + 2) // 4)], positions, base),
                    x[..., 2 * ((x.shape[-1] + 2) // 4) :],
                ],
                -1,
            ),
            with_angles(
                lambda angle: torch.cat(
                    [
                        angle[:, : (angle.shape[1] + 1) // 2],
                        0 * angle[:, (angle.shape[1] + 1) // 2 :],
                    ],
                    1,
                )
            ),
        ],
    ),
    (
        "degrees",
        "You turned the angles from degrees into radians. They are radians as they are.",
        [with_angles(torch.deg2rad)],
    ),
    (
        "turned_twice",
        "Every pair turns by twice its angle: you applied the rotation two times.",
        [with_angles(lambda angle: 2 * angle)],
    ),
    (
        "cosine_alone",
        "You multiplied by the cosine and left out the second terms: the other feature of the "
        "pair, times the sine.",
        [rope_by(turn=lambda a, b, t: (a * t.cos(), b * t.cos()))],
    ),
    (
        "added_in_place_of_turned",
        "You added sines and cosines. RoPE turns the pairs: it multiplies.",
        [rope_by(turn=lambda a, b, t: (a + t.sin(), b + t.cos()))],
    ),
    (
        "angles_in_half_precision",
        "Your angles are in x's own dtype. In bfloat16 the position 4001 is 4000, which is an "
        "angle off by a radian: compute angles in float32, and convert last.",
        [
            rope_by(angles=lambda x, positions, base: angles(x, positions, base, dtype=x.dtype)),
            rope_by(angles=lambda x, positions, base: angles(x, positions.to(x.dtype), base)),
        ],
    ),
    (
        "frequencies_in_half_precision",
        "Your frequencies are in x's own dtype, and their error grows with the position. Compute "
        "them in float32 too.",
        [
            rope_by(
                angles=lambda x, positions, base: (
                    positions.to(wide(x))[:, None]
                    * angles(x, torch.ones_like(positions[:1]), base).to(x.dtype)
                )
            )
        ],
    ),
    (
        "odd_width_not_refused",
        "An odd D has to end in a ValueError that you raise yourself: test `x.shape[-1] % 2` "
        "first.",
        [
            lambda x, positions, base=10000.0: rope_by()(
                x if x.shape[-1] % 2 == 0 else x[..., :-1], positions, base
            ),
            lambda x, positions, base=10000.0: torch.cat(
                [
                    right_apply_rope(x[..., : x.shape[-1] // 2 * 2], positions, base),
                    x[..., x.shape[-1] // 2 * 2 :],
                ],
                -1,
            ),
        ],
    ),
):
    apply_rope.add(name, sentence, *answers)


def does_not_look(frequencies):
    """The usual code without a test of D; which error it ends in depends on the arithmetic."""

    def rope(x, positions, base=10000.0):
        angle = positions[:, None].to(wide(x)) * base ** -(frequencies(x) / x.shape[-1])
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)

    return rope


apply_rope.add(
    "odd_width_left_to_torch",
    "An odd D has to end in a ValueError. torch's own complaint is another error, and it comes by "
    "luck: test `x.shape[-1] % 2` first.",
    does_not_look(lambda x: torch.arange(0, x.shape[-1], 2, device=x.device, dtype=wide(x))),
    does_not_look(lambda x: 2 * torch.arange(x.shape[-1] // 2, device=x.device, dtype=wide(x))),
)


@apply_rope("An `assert` raises AssertionError; a ValueError was asked for.", "odd_width_asserted")
def odd_width_asserted(x, positions, base=10000.0):
    assert x.shape[-1] % 2 == 0
    return right_apply_rope(x, positions, base)


@apply_rope(
    "The positions were lined up with the heads, or with the batch. They belong to axis -2 of x: "
    "angles of shape (T, D/2) line up by themselves.",
    "positions_along_another_axis",
)
def along_the_heads(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    a, b = neighbours(x)
    return interleave(*turn(a, b, angles(x, positions, base)[:, None])).to(x.dtype)


def along_the_batch(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    a, b = neighbours(x)
    return interleave(*turn(a, b, angles(x, positions, base)[:, None, None])).to(x.dtype)


def along_axis_one(x, positions, base=10000.0):
    return right_apply_rope(x.transpose(1, 2), positions, base).transpose(1, 2)


apply_rope.add(
    "sequence_taken_for_axis_1",
    "You took axis 1 of x for the sequence, or axis 0. x is (B, H, T, D): the sequence is axis -2, "
    "and angles of shape (T, D/2) line up by themselves.",
    along_axis_one,
    along_the_batch,
)


@apply_rope(
    "You turned the heads as one long vector, so their frequencies run on from head to head. "
    "Each head is turned for itself, with the frequencies of D features.",
    "turned_before_the_heads_were_split",
)
def heads_as_one(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    merged = x.transpose(1, 2).flatten(2)
    return right_apply_rope(merged, positions, base).unflatten(2, (x.shape[1], -1)).transpose(1, 2)


@apply_rope(
    "You wrote the result into x (`x[..., 0::2] = …`). Make a new tensor.", "changes_x_in_place"
)
def changes_x_in_place(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    a, b = neighbours(x.clone())
    a, b = turn(a, b, angles(x, positions, base))
    x[..., 0::2] = a.to(x.dtype)
    x[..., 1::2] = b.to(x.dtype)
    return x


def rope_without_gradient(x, positions, base=10000.0):
    with torch.no_grad():
        return right_apply_rope(x, positions, base)


apply_rope.add(
    "x_detached",
    "You cut x out of the gradient (`.detach()`, `.data`, numpy, or `no_grad`), so queries and "
    "keys would learn nothing.",
    rope_without_gradient,
    lambda x, positions, base=10000.0: rope_without_gradient(x, positions, base).requires_grad_(),
)
apply_rope.add(
    "half_of_the_gradient",
    "You cut one half of the pair out of the gradient.",
    rope_by(turn=lambda a, b, angle: turn(a, b.detach(), angle)),
    rope_by(turn=lambda a, b, angle: turn(a.detach(), b, angle)),
)


def rope_promotes(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd width")
    a, b = neighbours(x)
    return interleave(*turn(a, b, angles(x, positions, base, dtype=torch.float32)))


apply_rope.add(
    "returns_float64",
    "The result is float64. It has x's dtype: end with `.to(x.dtype)`.",
    lambda x, positions, base=10000.0: right_apply_rope(x.double(), positions, base),
)
apply_rope.add(
    "returns_float32",
    "For a float16 or bfloat16 x the result is float32, since the cosines are. It has x's dtype: "
    "end with `.to(x.dtype)`.",
    rope_promotes,
    lambda x, positions, base=10000.0: right_apply_rope(x.float(), positions, base),
)


@apply_rope(
    "You made the frequencies without `device=x.device`. They are on the CPU, and a GPU refuses to "
    "mix.",
    "frequencies_on_the_CPU",
)
def frequencies_on_the_cpu(x, positions, base=10000.0):
    width = x.shape[-1]
    if width % 2:
        raise ValueError("odd width")
    frequencies = base ** (-torch.arange(0, width, 2).to(wide(x)) / width)
    a, b = neighbours(x)
    return interleave(*turn(a, b, positions[:, None].to(wide(x)) * frequencies)).to(x.dtype)


apply_rope.add(
    "nothing_turns",
    "Nothing turned: you returned x as it came, or your angles are whole turns (times 2π). Pair 0 "
    "turns by 1 radian a position.",
    lambda x, positions, base=10000.0: x,
    with_angles(lambda angle: 2 * math.pi * angle),
    with_angles(lambda angle: 0 * angle),
)


@apply_rope("You returned nothing: end the function with `return`.", "forgot_to_return")
def rope_forgot_to_return(x, positions, base=10000.0):
    right_apply_rope(x, positions, base)


apply_rope.add(
    "pairs_not_joined",
    "You returned the two halves of the pairs. Put each feature back in its place: stack them on a "
    "new last axis, then flatten the last two.",
    rope_by(join=lambda a, b: torch.stack([a, b], -1)),
    lambda x, positions, base=10000.0: turn(x[..., ::2], x[..., 1::2], angles(x, positions, base)),
)


# alibi_bias


def usual_slopes(heads):
    return [-right_alibi_bias(heads, 2)[h, 0, 1].item() for h in range(heads)]


def geometric(heads):
    return [2 ** (-8 * h / heads) for h in range(1, heads + 1)]


def lower_power(heads):
    return 2 ** (heads.bit_length() - 1)


def rounded_power(heads, to_whole):
    """The rule with `to_whole` in place of math.floor."""
    power = 2 ** to_whole(math.log2(heads))
    return geometric(power) + geometric(2 * power)[0::2][: heads - power]


def places(length):
    return torch.arange(length, dtype=torch.float32)


def distances(length):
    return (places(length)[:, None] - places(length)).abs()


def alibi_by(slopes=usual_slopes, distance=distances):
    def alibi(num_heads, length):
        return -torch.tensor(slopes(num_heads))[:, None, None] * distance(length)

    return alibi


def other_counts(extra):
    """Slopes of the lower power P, then what `extra(P)` begins with."""
    return alibi_by(
        lambda heads: (geometric(lower_power(heads)) + extra(lower_power(heads)))[:heads]
    )


def above(value):
    """The usual distance up to the diagonal, `value` after it."""
    return lambda length: torch.where(
        places(length)[:, None] >= places(length), distances(length), torch.tensor(value)
    )


for name, sentence, answers in (
    (
        "farther_counts_more",
        "The sign is missing: farther tokens get a larger score. The bias is minus slope times "
        "distance.",
        [alibi_by(lambda heads: [-slope for slope in usual_slopes(heads)])],
    ),
    (
        "one_slope_for_all_heads",
        "All heads have the same slope. Head h, counted from 1, has 2^(-8h/H).",
        [
            alibi_by(lambda heads, place=place: [usual_slopes(heads)[place]] * heads)
            for place in (0, -1)
        ]
        + [alibi_by(lambda heads: [1.0] * heads), alibi_by(lambda heads: [0.5] * heads)],
    ),
    (
        "slopes_counted_from_0",
        "Your heads are counted from 0, so the first slope is 1. They are counted from 1: the "
        "first exponent is -8/H.",
        [
            alibi_by(lambda heads: [2 ** (-8 * h / heads) for h in range(heads)]),
            alibi_by(
                lambda heads: [
                    slope * 2 ** (8 / lower_power(heads)) for slope in usual_slopes(heads)
                ]
            ),
        ],
    ),
    (
        "formula_for_every_head_count",
        "You used 2^(-8h/H) for every H. That is for powers of two; other counts take the slopes "
        "of the next lower power, then every other one of its double's.",
        [alibi_by(geometric)],
    ),
    (
        "first_of_the_next_power",
        "For other head counts you took the first H slopes of the next higher power. Take those of "
        "the next lower power, then every other one of its double's.",
        [alibi_by(lambda heads: geometric(2 ** (heads - 1).bit_length())[:heads])],
    ),
    (
        "even_taken_for_a_power",
        "You asked whether H is even (`H % 2`). 6 is even and no power of two: ask "
        "`math.log2(H).is_integer()`.",
        [alibi_by(lambda heads: usual_slopes(heads) if heads % 2 else geometric(heads))],
    ),
    (
        "power_above_H",
        "Your P is above H: log2(H) is rounded up (`round`, `math.ceil`, `bit_length`). Take the "
        "next lower power, `2 ** math.floor(math.log2(H))`.",
        [
            alibi_by(lambda heads: rounded_power(heads, lambda log: math.floor(log) + 1)),
            alibi_by(lambda heads: rounded_power(heads, math.ceil)),
            alibi_by(lambda heads: rounded_power(heads, round)),
            alibi_by(lambda heads: rounded_power(heads, round)[:heads]),
        ],
    ),
    (
        "the_same_slopes_again",
        "Your further slopes are the lower power's once more (`[1::2]` of 2P's is the same). Take "
        "every other one of 2P's, from its first: `[0::2]`.",
        [other_counts(lambda power: geometric(2 * power)[1::2])],
    ),
    (
        "not_every_other_slope",
        "The further slopes are the first ones of 2P, one after the other. Take every other one.",
        [other_counts(lambda power: geometric(2 * power))],
    ),
    (
        "last_slopes_of_the_double",
        "You took every other slope of 2P from its end. Begin with its first.",
        [
            other_counts(lambda power: geometric(2 * power)[0::2][::-1]),
            alibi_by(
                lambda heads: (
                    geometric(lower_power(heads))
                    + geometric(2 * lower_power(heads))[0::2][2 * lower_power(heads) - heads :]
                )
            ),
        ],
    ),
    (
        "slopes_sorted",
        "You sorted the slopes. The further ones stand at the end, as in the paper's code.",
        [alibi_by(lambda heads: sorted(usual_slopes(heads), reverse=True))],
    ),
    (
        "further_slopes_first",
        "The further slopes stand before those of the lower power. They come after them.",
        [
            alibi_by(
                lambda heads: (
                    usual_slopes(heads)[lower_power(heads) :]
                    + usual_slopes(heads)[: lower_power(heads)]
                )
            )
        ],
    ),
    (
        "steepest_head_last",
        "Your slopes run the other way. The first head is the steepest.",
        [alibi_by(lambda heads: usual_slopes(heads)[::-1])],
    ),
    (
        "slopes_without_H",
        "Your slopes are 1/2, 1/4, 1/8, … for every H. The exponent is -8h/H: with four heads the "
        "first slope is 1/4.",
        [alibi_by(lambda heads: [2.0**-h for h in range(1, heads + 1)])],
    ),
    (
        "exponents_cut_to_whole_numbers",
        "Your exponents are whole numbers, cut by `//`, `int` or an integer dtype. With 16 heads "
        "the first is -1/2: divide with `/`.",
        [alibi_by(lambda heads: [2.0 ** math.ceil(math.log2(one)) for one in usual_slopes(heads)])],
    ),
    (
        "slopes_of_e",
        "Your slopes are powers of e. They are powers of 2.",
        [alibi_by(lambda heads: [math.exp(math.log2(one)) for one in usual_slopes(heads)])],
    ),
    (
        "slopes_in_equal_steps",
        "Your slopes are 1/h or -8h/H, without the power of 2. They are 2^(-8h/H).",
        [
            alibi_by(lambda heads: [1 / h for h in range(1, heads + 1)]),
            alibi_by(lambda heads: [-math.log2(one) for one in usual_slopes(heads)]),
            alibi_by(lambda heads: [h / heads for h in range(1, heads + 1)]),
        ],
    ),
    (
        "zero_for_later_tokens",
        "Later tokens get 0. The distance is abs(i - j), on both sides of the diagonal.",
        [alibi_by(distance=above(0.0))],
    ),
    (
        "later_tokens_blocked",
        "You blocked later tokens with -infinity or a huge number. That is a mask's job, in lesson "
        "5; here the distance is abs(i - j) on both sides.",
        [alibi_by(distance=above(math.inf))],
    ),
    (
        "no_absolute_value",
        "`abs` is missing: on one side of the diagonal the bias is above 0. The distance is "
        "abs(i - j).",
        [
            alibi_by(distance=lambda length: places(length)[:, None] - places(length)),
            alibi_by(distance=lambda length: places(length) - places(length)[:, None]),
        ],
    ),
    (
        "key_position_alone",
        "Your bias depends on the key's position j alone. It is minus slope times abs(i - j).",
        [
            alibi_by(distance=lambda length: places(length).expand(length, length)),
            alibi_by(distance=lambda length: -places(length).expand(length, length)),
            alibi_by(distance=lambda length: (length - 1 - places(length)).expand(length, length)),
        ],
    ),
    (
        "distance_squared",
        "You squared the distance. The bias falls in equal steps.",
        [alibi_by(distance=lambda length: distances(length).square())],
    ),
    (
        "distance_bent",
        "You took a root or a logarithm of the distance. The bias falls in equal steps.",
        [
            alibi_by(distance=lambda length: distances(length).sqrt()),
            alibi_by(distance=lambda length: distances(length).log1p()),
        ],
    ),
    (
        "distance_over_length",
        "You divided the distance by the length. A step costs the same, however long the sequence.",
        [
            alibi_by(distance=lambda length: distances(length) / length),
            alibi_by(distance=lambda length: distances(length) / max(length - 1, 1)),
        ],
    ),
    (
        "a_token_one_step_from_itself",
        "Your distances begin at 1. A token's distance to itself is 0.",
        [alibi_by(distance=lambda length: distances(length) + 1)],
    ),
    (
        "heads_last",
        "Your heads are the last axis. They are the first: (H, T, T).",
        [lambda num_heads, length: right_alibi_bias(num_heads, length).permute(1, 2, 0)],
    ),
    (
        "axis_for_the_batch",
        "You added an axis for the batch. The bias is (H, T, T).",
        [lambda num_heads, length: right_alibi_bias(num_heads, length)[None]],
    ),
    (
        "one_row_of_a_matrix",
        "There is one row for each head. The bias is a matrix for each, (H, T, T).",
        [
            lambda num_heads, length: right_alibi_bias(num_heads, length)[:, :1],
            lambda num_heads, length: right_alibi_bias(num_heads, length)[:, -1:],
            lambda num_heads, length: right_alibi_bias(num_heads, length)[:, 0],
        ],
    ),
    (
        "slopes_alone",
        "You returned the slopes. Multiply each by minus the distances, a (T, T) matrix.",
        [
            lambda num_heads, length: -right_alibi_bias(num_heads, 2)[:, 0, 1],
            lambda num_heads, length: right_alibi_bias(num_heads, 2)[:, 0, 1],
        ],
    ),
    (
        "slopes_along_a_wrong_axis",
        "The slopes lined up with a token axis. Give them two axes more, (H, 1, 1).",
        [
            lambda num_heads, length: -torch.tensor(usual_slopes(num_heads)) * distances(length),
            lambda num_heads, length: (
                -torch.tensor(usual_slopes(num_heads))[:, None] * distances(length)
            ),
        ],
    ),
    (
        "through_a_softmax",
        "You returned weights. The bias is added to the scores, and the softmax comes later.",
        [
            lambda num_heads, length: torch.softmax(right_alibi_bias(num_heads, length), -1),
            lambda num_heads, length: torch.exp(right_alibi_bias(num_heads, length)),
        ],
    ),
    (
        "float64",
        "The bias is float64 (numpy, or `dtype=torch.float64`); float32 was asked for.",
        [lambda num_heads, length: right_alibi_bias(num_heads, length).double()],
    ),
    (
        "half_precision",
        "The bias is float16 or bfloat16; float32 was asked for.",
        [
            lambda num_heads, length: right_alibi_bias(num_heads, length).half(),
            lambda num_heads, length: right_alibi_bias(num_heads, length).bfloat16(),
        ],
    ),
    (
        "integers",
        "The bias is made of integers, which cut the slopes to 0 or 1. Make the slopes float32.",
        [lambda num_heads, length: right_alibi_bias(num_heads, length).long()],
    ),
    (
        "forgot_to_return",
        "You returned nothing: end the function with `return`.",
        [lambda num_heads, length: None],
    ),
    (
        "zeros",
        "Everything is 0. The bias is minus slope times distance.",
        [lambda num_heads, length: torch.zeros(num_heads, length, length)],
    ),
):
    alibi_bias.add(name, sentence, *answers)


def refuses_other_counts(error):
    def alibi(num_heads, length):
        if num_heads & (num_heads - 1):
            raise error
        return right_alibi_bias(num_heads, length)

    return alibi


def refuses_one_head(num_heads, length):
    if num_heads == 1:
        raise ValueError("one head")
    return right_alibi_bias(num_heads, length)


alibi_bias.add(
    "other_head_counts_refused",
    "Every head count is allowed. One that is no power of two takes the slopes of the next lower "
    "power, then every other one of its double's.",
    refuses_other_counts(ValueError("num_heads has to be a power of two")),
    refuses_other_counts(AssertionError()),
)
alibi_bias.add(
    "one_head_left_out",
    "A single head is a power of two as well: 2⁰. Its slope is 2^-8.",
    *(
        alibi_by(lambda heads, one=one: usual_slopes(heads) if heads > 1 else [one])
        for one in (1.0, 0.5, 0.0)
    ),
    refuses_one_head,
)


# The quiz

positions_quiz = quiz_mistakes(
    "positions_quiz",
    "cadbca",
    {
        1: {
            "a": "Output 0 belongs to the token that is first now, so they moved.",
            "b": "Each token still reads the same tokens, with the same weights; only their order "
            "differs.",
            "d": "Each token has weights of its own, so the outputs do not become one mean.",
        },
        2: {
            "b": "Pairs do not overlap: pair 0 has columns 0 and 1.",
            "c": "That is the table in two halves. Here a sine and its cosine are neighbours.",
            "d": "A pair has two columns, and column 1 is the cosine of pair 0.",
        },
        3: {
            "a": "An optimizer trains parameters only, and a plain tensor is none.",
            "b": "`state_dict()` lists parameters and buffers. A plain tensor is neither.",
            "c": "On the CPU you see no difference. Think of `.to(device)`.",
        },
        4: {
            "a": "nn.Embedding makes nothing up: it holds 512 rows, and asking for row 512 is an "
            "error.",
            "c": "Nothing wraps around by itself, and two tokens with one position would be wrong.",
            "d": "What would be added to token 512? Count the rows.",
        },
        5: {
            "a": "Turn both by 1 radian more: the angle between them stays.",
            "b": "The key is turned as well, by its own position.",
            "d": "That holds when both turn by the same angle. These two turn by different ones.",
        },
        6: {
            "b": "All shapes fit: both conventions turn D features into D features.",
            "c": "Every pairing turns pairs, and turning keeps lengths. So that test says nothing.",
            "d": "At position 0 they agree. At any other, different features are mixed.",
        },
    },
)
