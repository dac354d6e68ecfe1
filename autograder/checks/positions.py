"""What the answers of lesson 04 must do.

Expected values come from Python's own sine and cosine, from multiplication by complex numbers, from
slopes written out by hand, or from a property. A table in float32 is off by 2e-5 at position 512
and by 1.5e-4 at 4096 when its arithmetic goes in another order, so the tolerances here grow with
the position.
"""

import math

import torch

from autograder.judge import Drawn, Exercise, Failure, close, same, shape_of, short_name
from autograder.judge.properties import (
    agrees_in_gradients,
    in_dtype,
    keeps_dtypes,
    leaves_untouched,
    on_the_cpu,
    owns_its_parameters,
    refuses,
    same_at_every_call,
)
from autograder.judge.quiz import quiz

sinusoidal_table = Exercise("sinusoidal_table")
sinusoidal = Exercise("SinusoidalPositionalEncoding")
learned = Exercise("LearnedPositionalEncoding")
apply_rope = Exercise("apply_rope")
alibi_bias = Exercise("alibi_bias")
positions_quiz = quiz("positions_quiz", "cadbca")

HALF = (torch.bfloat16, torch.float16)
# Half precision comes first: two right float32 tables differ in a float64 result, so that a mistake
# would not be recognised there.
DTYPES = (*HALF, torch.float64, torch.float32)


def wave(position, column, width):
    """One entry of the sinusoidal table, by the formula of the paper and in float64."""
    angle = position / 10000 ** (2 * (column // 2) / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


def waves(positions, width):
    """The rows of the table for `positions`, (len(positions), width), float64."""
    rows = [[wave(position, column, width) for column in range(width)] for position in positions]
    return torch.tensor(rows, dtype=torch.float64).reshape(len(positions), width)


# What tells one mistake from another


def dtype_of(value):
    """A tensor's dtype, and which half precision it is does not matter."""
    dtype = getattr(value, "dtype", None)
    return "half precision" if dtype in HALF else dtype


def as_at_rounded(got, right_at, positions, dtypes):
    """`got`, or a dtype if the first pair is right for positions that were rounded to that dtype.

    How the other pairs come out depends on what else was in that dtype.
    """

    def is_right(positions):
        first = right_at(positions)[..., :2]
        return torch.allclose(got[..., :2].double(), first.to(got.device), rtol=0.05, atol=0.06)

    if not is_right(positions.double()):
        for dtype in dtypes:
            if is_right(positions.to(dtype).double()):
                return ["as at positions in", dtype]
    return got


# sinusoidal_table


@sinusoidal_table.check(points=1)
def begins_with_zeros_and_ones(answer, reference, draw):
    """The table is (T, C), and its first row is 0, 1, 0, 1, …: sines and cosines take turns."""
    for length, width in ((5, 8), (7, 4), (3, 2), (1, 6)):
        table = answer(length, width)
        shape_of(table, (length, width), f"sinusoidal_table({length}, {width})")
        first = torch.tensor([0.0, 1.0] * (width // 2))
        close(table[0].cpu(), first, f"Row 0 of sinusoidal_table({length}, {width})", atol=1e-6)


@sinusoidal_table.check(points=1, needs=["begins_with_zeros_and_ones"])
def turns_one_radian_a_position(answer, reference, draw):
    """The first two columns are the sine and the cosine of the position: 0, 1, 2, …"""
    for length, width in ((9, 2), (7, 6), (1, 4)):
        table = answer(length, width)
        shape_of(table, (length, width), f"sinusoidal_table({length}, {width})")
        expected = torch.tensor([[math.sin(t), math.cos(t)] for t in range(length)])
        close(table[:, :2].cpu(), expected, f"The first two columns at C = {width}", atol=1e-5)


@sinusoidal_table.check(points=1, needs=["begins_with_zeros_and_ones"])
def pairs_share_a_frequency(answer, reference, draw):
    """A sine and the cosine beside it have the same angle: their squares sum to 1."""
    table = answer(23, 10)
    shape_of(table, (23, 10))
    squares = table.double().cpu().reshape(23, 5, 2).square().sum(dim=-1)
    close(squares, torch.ones_like(squares), "Sine squared plus cosine squared", atol=1e-4)


@sinusoidal_table.check(points=2, needs=["begins_with_zeros_and_ones"])
def slows_down_from_pair_to_pair(answer, reference, draw):
    """Pair i turns by 10000^(-2i/C) radians a position, as in the paper's formula."""
    for length, width in ((11, 4), (31, 10), (40, 64), (4, 2)):
        close(
            answer(length, width),
            waves(range(length), width),
            f"sinusoidal_table({length}, {width})",
            atol=1e-4,
        )


@sinusoidal_table.check(points=1, needs=["begins_with_zeros_and_ones"])
def ends_on_a_sine_at_odd_widths(answer, reference, draw):
    """An odd C works too, C = 1 among them: the last column is a sine that has no cosine."""
    for length, width in ((5, 7), (6, 3), (4, 1), (1, 5)):
        close(
            answer(length, width),
            waves(range(length), width),
            f"sinusoidal_table({length}, {width})",
            atol=1e-4,
        )


@sinusoidal_table.check(points=1, needs=["begins_with_zeros_and_ones"])
def is_right_far_out(answer, reference, draw):
    """Position 4000 is as right as position 4: the angles are in float32 or wider."""
    far = [511, 2049, 3999, 4001, 5002]

    def trait(table):
        if not (isinstance(table, torch.Tensor) and table.shape == (5003, 6)):
            return table
        return as_at_rounded(
            table[far], lambda positions: waves(positions.tolist(), 6), torch.tensor(far), HALF
        )

    with answer.known_by(trait):
        table = answer(5003, 6)
    shape_of(table, (5003, 6), "sinusoidal_table(5003, 6)")
    close(table[far], waves(far, 6), f"Rows {far} of sinusoidal_table(5003, 6)", rtol=0, atol=2e-3)


@sinusoidal_table.check(points=1, needs=["begins_with_zeros_and_ones"])
def is_float32(answer, reference, draw):
    """The table is float32."""
    for length, width in ((3, 4), (2, 6)):
        with answer.known_by(dtype_of):
            table = answer(length, width)
        if table.dtype != torch.float32:
            raise Failure(f"The table is {short_name(table.dtype)}; float32 was asked for.")


# The two modules


def refused_in_both_modes(module, x, when):
    """Fail unless `module` refuses x, in training and in eval mode, in which it stays."""
    outcomes = {
        mode: module.train(mode == "training").attempt((x,)) for mode in ("training", "eval")
    }
    for mode, outcome in outcomes.items():
        refuses(outcome, f"{when} ({mode} mode)")


def drops_the_sum(module, x, total, p):
    """Fail unless dropout with probability `p` falls on `total`, entry by entry, in training."""

    def drawn(result):
        """By how much is dropped and how it is scaled, whatever the order of the draws."""
        if not (isinstance(result, torch.Tensor) and result.shape == x.shape):
            return result
        kept = result != 0
        factor = (result[kept] / total[kept]).median()
        if not torch.allclose(result[kept], factor * total[kept], rtol=1e-4, atol=2e-3):
            return result
        whole = [
            (kept.any(dim=axis) & ~kept.all(dim=axis)).double().mean().item() < 0.1
            for axis in range(3)
        ]
        return [factor.item(), whole, None if any(whole) else Drawn((~kept).long())]

    with module.known_by(drawn):
        one, other = module(x), module(x)
    shape_of(one, x.shape)
    kept = one != 0
    close(
        torch.where(kept, one, 0.0),
        torch.where(kept, total / (1 - p), 0.0),
        f"In training with dropout {p:.2f}, what is not zero",
        rtol=1e-4,
        atol=2e-3,
        note=f"Each entry of x plus position is either 0 or divided by 1 - {p:.2f}.",
    )
    share = 1 - kept.double().mean().item()
    if abs(share - p) > 0.06:
        raise Failure(
            f"In training with dropout {p:.2f}, {share:.0%} of the entries are 0; "
            f"{p:.0%} were asked for."
        )
    for axis in range(3):
        mixed = kept.any(dim=axis) & ~kept.all(dim=axis)
        if mixed.double().mean() < 0.6:
            raise Failure("Dropout drops single entries (nn.Dropout), not a whole row at once.")
    if torch.equal(one, other):
        raise Failure("Two calls in training dropped the same entries: dropout is drawn each time.")


def add_module_checks(exercise, rows_of, tables):
    """Add what both modules promise.

    `rows_of(module, draw, length, most, width)` is the part of the module's table that is added.
    """
    gate = ["adds_a_row_to_each_token"]

    def adds_a_row_to_each_token(answer, reference, draw):
        cases = ((5, 3, 4, 11), (2, 7, 6, 8), (3, 1, 2, 5), (1, 4, 8, 9))
        tried = []
        for batch, length, width, most in cases:
            module, x = answer(width, most).eval(), draw.normal(batch, length, width)
            right = x + rows_of(module, draw, length, most, width)

            def trait(result, right=right):
                """What is off by no more than half precision is, is alike."""
                if not (isinstance(result, torch.Tensor) and result.shape == right.shape):
                    return result
                off = (result - right).abs().max()
                return "about right" if 2e-4 < off < 5e-3 else result

            with module.known_by(trait):
                tried.append((x, right, module(x)))
        for x, expected, result in tried:
            what = f"x is {tuple(x.shape)}, and the result"
            close(result, expected, what, rtol=1e-4, atol=2e-4)

    def drops_out_of_the_sum(answer, reference, draw):
        x, p = draw.normal(5, 40, 12), draw.number(0.25, 0.45)
        for module, most in (
            (answer(12, 50, p), 50),
            (answer(12, max_len=50, dropout=p), 50),
        ):
            total = x + rows_of(module, draw, 40, most, 12)
            drops_the_sum(module, x, total, p)
            quiet = module.eval()(x)
            close(quiet, total, "In eval mode the result", rtol=1e-4, atol=2e-4)
        module = answer(12, 50)
        total = x + rows_of(module, draw, 40, 50, 12)
        plain = module(x)
        close(plain, total, "With no dropout given the result", rtol=1e-4, atol=2e-4)

    def refuses_what_is_too_long(answer, reference, draw):
        for width, most, length in ((2, 5, 20), (4, 6, 7), (6, 1, 4)):
            module = on_the_cpu(answer(width, max_len=most), draw)
            rows = rows_of(module, draw, most, most, width).cpu()
            x, all_of_it = draw.normal(2, length, width).cpu(), draw.normal(2, most, width).cpu()
            refused_in_both_modes(module, x, f"x has {length} tokens and `max_len` is {most}")
            fits, what = module.attempt((all_of_it,)), f"x has {most} tokens, `max_len` is {most}"
            if fits.error:
                raise Failure(
                    f"{what}: that fits, and it stopped with {fits.error['type']} "
                    f"({fits.error['message'][:120]})."
                )
            close(fits.value, all_of_it + rows, f"{what}. The result", rtol=1e-4, atol=2e-4)

    def leaves_no_trace(answer, reference, draw):
        module = answer(6, 9, dropout=0.0)
        rows_of(module, draw, 9, 9, 6)
        same_at_every_call(module, draw.normal(3, 4, 6), 3 * draw.normal(2, 8, 6) + 2)

    def leaves_x_untouched(answer, reference, draw):
        module = answer(6, 9).eval()
        rows_of(module, draw, 9, 9, 6)
        leaves_untouched(module, x=draw.normal(3, 4, 6))

    def stays_on_the_device(answer, reference, draw):
        answer(6, 11).eval().to(device="meta").on_meta(draw.normal(3, 5, 6))

    for run, sentence, points, needs in (
        (adds_a_row_to_each_token, f"Row t of {tables} is added to token t.", 2, ()),
        (drops_out_of_the_sum, "In training, dropout falls on the sum; in eval, nowhere.", 2, gate),
        (
            refuses_what_is_too_long,
            "More tokens than `max_len` are a ValueError; just as many fit.",
            1,
            gate,
        ),
        (leaves_no_trace, "A call leaves no trace in the next, in eval mode too.", 1, gate),
        (leaves_x_untouched, "`x` is the same after the call.", 1, gate),
        (stays_on_the_device, "Moved to another device, all of it moves.", 1, gate),
    ):
        exercise.add(run.__name__, sentence, run, points, needs)


def sinusoidal_rows(module, draw, length, most, width):
    return waves(range(length), width).float().to(draw.device)


def learned_rows(module, draw, length, most, width):
    """Rows drawn afresh, loaded into the module's embedding."""
    weight = draw.gain(most, width)
    try:
        with module.aside():
            module.load(position_embedding__weight=weight)
        module.note("loaded")
    except Failure as failure:
        # Mistakes are told apart by what is missing, not by the names of what is there.
        with module.aside():
            found = module.describe(values=False).parameters
        info = found.get("position_embedding.weight")
        shape = (most, width) if info is None else info.shape
        bare = "position_embedding" in found
        turned = shape == (width, most)
        module.note([info is None, bare, bool(found), turned, 0 < shape[0] - most < 4])
        raise Failure(
            "`position_embedding` has to be an nn.Embedding of max_len rows, made in `__init__`, "
            f"and here (max_len, C) = {(most, width)} rows could not be put into it. {failure}"
        ) from failure
    return weight[:length]


add_module_checks(sinusoidal, sinusoidal_rows, "the table")


@sinusoidal.check(points=2, needs=["adds_a_row_to_each_token"])
def keeps_the_table_in_a_buffer(answer, reference, draw):
    """The table is a buffer called `pe`, of shape (1, max_len, C), 4096 rows if none are named."""
    for arguments, shape in (((6, 11), (1, 11, 6)), ((5, 4), (1, 4, 5)), ((4,), (1, 4096, 4))):
        module = answer(*arguments)
        with module.aside():
            found = module.describe()
        module.note([bool(found.buffers), [one.requires_grad for one in found.parameters.values()]])
        module.note(found.state["pe"] if "pe" in found.buffers else None)
        if "pe" not in found.buffers:
            others = ", ".join(f"`{name}`" for name in found.buffers)
            where = f" The buffers: {others}." if others else ""
            where += " `pe` is a parameter." if "pe" in found.parameters else ""
            raise Failure(
                "There is no buffer `pe` once `__init__` has run: "
                f'`self.register_buffer("pe", ...)`.{where}'
            )
        shape_of(found.state["pe"], shape, "The buffer `pe`")
        for rows, atol in ((range(min(shape[1], 40)), 1e-4), (range(2041, shape[1], 89), 2e-3)):
            close(
                found.state["pe"][0, list(rows)],
                waves(rows, shape[2]),
                f"The buffer `pe`[0, {rows.start}:{rows.stop}:{rows.step}]",
                atol=atol,
            )


@sinusoidal.check(points=1, needs=["adds_a_row_to_each_token"])
def trains_nothing(answer, reference, draw):
    """There is no parameter: nothing in it is trained."""
    module = answer(6, 11)
    with module.aside():
        found = module.describe()
    module.note([one.requires_grad for one in found.parameters.values()])
    if found.parameters:
        names = ", ".join(f"`{name}`" for name in found.parameters)
        raise Failure(f"It has {names} among its parameters, which an optimizer would move.")


@sinusoidal.check(points=1, needs=["adds_a_row_to_each_token"])
def refuses_another_width(answer, reference, draw):
    """An x of another width than `d_model` is a ValueError, a width of 1 as well."""
    for width, other in ((6, 1), (6, 4), (4, 8), (2, 5)):
        when = f"x has width {other} and `d_model` is {width}"
        refused_in_both_modes(answer(width, 9), draw.normal(2, 3, other), when)


@sinusoidal.check(points=1, needs=["adds_a_row_to_each_token"])
def keeps_the_dtype_of_x(answer, reference, draw):
    """The result has the dtype of `x`, whether or not the module was moved to it."""
    x = draw.normal(3, 5, 6)
    keeps_dtypes(answer(6, 11).eval(), x, dtypes=DTYPES)
    keeps_dtypes(lambda x: answer(6, 11).eval().to(dtype=x.dtype)(x), x, dtypes=DTYPES)
    module = answer(6, 11).eval()
    before = module(x)
    module(x.bfloat16())
    same(module(x), before, "After a bfloat16 call, the result for a float32 x")


@sinusoidal.check(points=1, needs=["adds_a_row_to_each_token"])
def passes_the_gradient_on(answer, reference, draw):
    """The gradient reaches `x` unchanged."""
    x, back, rows = draw.normal(3, 2, 6), draw.normal(3, 2, 6), sinusoidal_rows(None, draw, 2, 0, 6)
    got = answer(6, 11).eval().backward(back, x).gradients
    agrees_in_gradients(got, lambda x: x + rows, {"x": x}, back)


add_module_checks(learned, learned_rows, "`position_embedding`")


@learned.check(points=1, needs=["adds_a_row_to_each_token"])
def has_an_embedding_of_max_len_rows(answer, reference, draw):
    """`position_embedding` is an nn.Embedding of `max_len` rows, 4096 if none are named."""
    for arguments, shape in (((6, 11), (11, 6)), ((5, 4), (4, 5)), ((4,), (4096, 4))):
        found = answer(*arguments).describe()
        info = found.parameters.get("position_embedding.weight")
        if info is None or "position_embedding" not in found.modules:
            raise Failure("`position_embedding` has to be an nn.Embedding.")
        if info.shape != shape:
            raise Failure(
                f"`position_embedding.weight` has shape {info.shape}; (max_len, C) = {shape} was "
                "asked for."
            )
        if not info.requires_grad:
            raise Failure("`position_embedding` is frozen (requires_grad=False): it is trained.")


@learned.check(points=1, needs=["adds_a_row_to_each_token"])
def owns_its_embedding(answer, reference, draw):
    """Two modules do not share their embedding."""
    owns_its_parameters(lambda: answer(6, 11), draw)


@learned.check(points=1, needs=["adds_a_row_to_each_token"])
def keeps_the_dtype(answer, reference, draw):
    """Moved to another dtype, it returns that dtype."""
    weight = draw.gain(11, 6)

    def moved(x):
        module = answer(6, 11).eval().load(position_embedding__weight=weight)
        with module.known_by(in_dtype(x.dtype)):
            return module.to(dtype=x.dtype)(x)

    keeps_dtypes(moved, draw.normal(3, 5, 6), dtypes=DTYPES)


@learned.check(points=2, needs=["adds_a_row_to_each_token"])
def trains_each_row(answer, reference, draw):
    """Gradients reach `x` and each row that was added, row 0 too; other rows get none."""
    x, back, weight = draw.normal(3, 4, 6), draw.normal(3, 4, 6), draw.gain(9, 6)
    module = answer(6, 9).eval().load(position_embedding__weight=weight)
    got = module.backward(back, x)
    agrees_in_gradients(
        [got.gradients[0], got.parameters["position_embedding.weight"]],
        lambda x, position_embedding: x + position_embedding[:4],
        {"x": x, "position_embedding": weight},
        back,
    )


# apply_rope


def turned(x, positions, base=10000.0):
    """RoPE as multiplication by complex numbers, in float64 or with x's own history."""
    wide = x.double()
    width = x.shape[-1]
    frequencies = torch.tensor(
        [base ** (-2 * i / width) for i in range(width // 2)], dtype=torch.float64
    ).to(x.device)
    angles = positions.double()[:, None] * frequencies
    pairs = torch.view_as_complex(wide.reshape(*x.shape[:-1], width // 2, 2).contiguous())
    result = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(result).flatten(-2)


def first_positions(draw, length):
    return torch.arange(length, device=draw.device)


def given_positions(draw, length, most=60):
    """Positions that are neither 0…T-1, nor sorted, nor all different."""
    positions = draw.integers(1, most, length)
    positions[length - 1] = positions[0]
    positions[1] = 0
    return positions


@apply_rope.check(points=2)
def turns_a_pair(answer, reference, draw):
    """At D = 2 the pair of token t turns by t radians, to the left: (1, 0) becomes (cos, sin)."""
    unit = torch.tensor([1.0, 0.0], device=draw.device).expand(2, 3, 5, 2).clone()
    shapes = ((2, 3, 5), (3, 4, 4), (5, 1, 3), (1, 2, 7))
    inputs = [unit, *(draw.normal(*shape, 2) for shape in shapes)]
    # All calls first: a report then rests on more than the simplest of them. Another one has no
    # position 0, at which nothing turns.
    answer.attempt((inputs[0], first_positions(draw, 5) + 2))
    results = [answer(x, first_positions(draw, x.shape[2])) for x in inputs]
    hand = torch.tensor([[math.cos(t), math.sin(t)] for t in range(5)])
    hand = hand.to(draw.device).expand(2, 3, 5, 2)
    close(results[0], hand, "Each pair is (1, 0), and the result", atol=1e-4)
    for x, result in zip(inputs, results, strict=True):
        close(
            result,
            turned(x, first_positions(draw, x.shape[2])),
            f"x has shape {tuple(x.shape)}, and the result",
            atol=1e-4,
        )


@apply_rope.check(points=1, needs=["turns_a_pair"])
def takes_the_positions_it_is_given(answer, reference, draw):
    """The angle is that of `positions`, which need not be 0…T-1, sorted or different."""
    # Pair 0 turns by whole numbers, which float32 holds however far out.
    far = torch.tensor([100_003, 5, 40_001], device=draw.device)
    for positions in (
        given_positions(draw, 5),
        given_positions(draw, 4),
        draw.integers(5, 20, 1),
        far,
    ):
        x = draw.normal(2, 3, len(positions), 2)
        close(
            answer(x, positions),
            turned(x, positions),
            f"The positions are {positions.tolist()}, and the result",
            atol=1e-4,
        )


@apply_rope.check(points=2, needs=["turns_a_pair"])
def pairs_neighbours(answer, reference, draw):
    """Features 2i and 2i + 1 turn together: a change of one moves these two and no others."""
    positions = torch.tensor([1, 2, 5], device=draw.device)
    for width in (4, 6, 10):
        x = draw.normal(2, 3, 3, width)
        before = answer(x, positions)
        shape_of(before, x.shape)
        for feature in range(width):
            changed = x.clone()
            changed[..., feature] += 3.0
            after = answer(changed, positions)
            shape_of(after, x.shape)
            reached = (after - before).abs().amax(dim=(0, 1, 2)) > 1e-3
            moved = set(reached.nonzero()[:, 0].tolist())
            pair = feature - feature % 2
            # A slow pair's partner may move by too little to see.
            if not {feature} <= moved <= {pair, pair + 1}:
                raise Failure(
                    f"At D = {width}, a change of feature {feature} moved the outputs "
                    f"{sorted(moved)}; its pair is ({pair}, {pair + 1})."
                )


@apply_rope.check(points=2, needs=["turns_a_pair", "pairs_neighbours"])
def slows_down_along_the_pairs(answer, reference, draw):
    """Pair i turns by 10000^(-2i/D) radians a position, each pair to the left."""
    for width in (4, 6, 10, 16):
        x, positions = draw.normal(2, 3, 5, width), given_positions(draw, 5)
        close(
            answer(x, positions),
            turned(x, positions),
            f"At D = {width} and positions {positions.tolist()} the result",
            rtol=1e-4,
            atol=1e-4,
        )


@apply_rope.check(points=1, needs=["turns_a_pair", "pairs_neighbours"])
def uses_its_base(answer, reference, draw):
    """The `base` that is passed is the base of the frequencies."""
    x, positions = draw.normal(2, 3, 5, 6), given_positions(draw, 5)
    for base in (draw.number(20.0, 90.0), draw.number(1e5, 1e6)):
        expected = turned(x, positions, base)
        for result in (answer(x, positions, base), answer(x, positions, base=base)):
            close(result, expected, f"With `base = {base:.6g}` the result", rtol=1e-4, atol=1e-4)


@apply_rope.check(points=1, needs=["turns_a_pair", "pairs_neighbours"])
def takes_angles_in_float32(answer, reference, draw):
    """Half-precision inputs at positions near 4000 come out right: the angles are in float32."""
    positions = torch.tensor([4001, 1, 4007, 2051, 3995], device=draw.device)
    for dtype in HALF:
        x = draw.normal(2, 3, 5, 6).to(dtype)

        def trait(result, x=x, dtype=dtype):
            if not (isinstance(result, torch.Tensor) and result.shape == x.shape):
                return result
            return as_at_rounded(result, lambda at: turned(x, at), positions, [dtype])

        with answer.known_by(trait):
            result = answer(x, positions)
        close(
            result,
            turned(x, positions),
            f"x is {short_name(dtype)}, the positions {positions.tolist()}, and the result",
            rtol=5e-2,
            atol=6e-2,
            note=f"In {short_name(dtype)} the position 4001 is "
            f"{positions[:1].to(dtype).item():.0f}.",
        )


@apply_rope.check(points=1, needs=["turns_a_pair"])
def refuses_an_odd_width(answer, reference, draw):
    """An odd D is a ValueError: one feature has no partner."""
    for width in (3, 5, 1):
        refuses(
            answer.attempt((draw.normal(2, 3, 4, width), first_positions(draw, 4))),
            f"x has D = {width}",
        )


@apply_rope.check(points=1, needs=["turns_a_pair"])
def leaves_its_inputs_untouched(answer, reference, draw):
    """`x` and `positions` are the same after the call."""
    leaves_untouched(answer, x=draw.normal(2, 3, 4, 6), positions=given_positions(draw, 4))


@apply_rope.check(points=1, needs=["turns_a_pair"])
def lets_gradients_flow(answer, reference, draw):
    """The gradient reaches `x`, turned back by the same angle."""
    x, back, positions = draw.normal(2, 3, 4, 2), draw.normal(2, 3, 4, 2), given_positions(draw, 4)
    agrees_in_gradients(
        answer.backward(back, x, positions).gradients[:1],
        lambda x: turned(x, positions).to(x.dtype),
        {"x": x},
        back,
    )
    # Whatever the frequencies are: a turn is linear, so its gradient fits its own values.
    x, back, other = (draw.normal(2, 3, 4, 6) for _ in range(3))
    gradient = answer.backward(back, x, positions).gradients[0]
    shape_of(gradient, x.shape, "At D = 6 the gradient of `x`")
    close(
        (gradient * other).sum(dim=-1),
        (back * answer(other, positions)).sum(dim=-1),
        "At D = 6 the gradient of `x`, as a change of the result,",
        rtol=1e-4,
        atol=1e-4,
    )


@apply_rope.check(points=1, needs=["turns_a_pair"])
def rope_keeps_the_dtype(answer, reference, draw):
    """The result has the dtype of `x`: float64, float32, float16 or bfloat16."""
    positions = given_positions(draw, 4)

    def turned_in_its_dtype(x):
        with answer.known_by(in_dtype(x.dtype)):
            return answer(x, positions)

    keeps_dtypes(turned_in_its_dtype, draw.normal(2, 3, 4, 6), dtypes=DTYPES)


@apply_rope.check(points=1, needs=["turns_a_pair"])
def rope_stays_on_the_device(answer, reference, draw):
    """Everything happens on the device of `x`, so that it runs on a GPU."""
    answer.on_meta(draw.normal(2, 3, 4, 6), given_positions(draw, 4))


# alibi_bias

# Minus the logarithm (to base 2) of each head's slope.
EXPONENTS: dict[int, list[float]] = {
    1: [8],
    2: [4, 8],
    3: [4, 8, 2],
    4: [2, 4, 6, 8],
    5: [2, 4, 6, 8, 1],
    6: [2, 4, 6, 8, 1, 3],
    7: [2, 4, 6, 8, 1, 3, 5],
    8: [1, 2, 3, 4, 5, 6, 7, 8],
    9: [1, 2, 3, 4, 5, 6, 7, 8, 0.5],
    10: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5],
    11: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5],
    12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    16: [0.5 * h for h in range(1, 17)],
    32: [0.25 * h for h in range(1, 33)],  # MPT's
    112: [h / 8 for h in range(1, 65)] + [h / 16 for h in range(1, 96, 2)],  # BLOOM's
}


def slopes_are(answer, head_counts):
    """Fail unless the slopes, read off at distance 1, are those written out above."""
    sizes = [(heads, 40 if heads == 2 else 3) for heads in head_counts]
    for heads, length, bias in [(*size, answer(*size)) for size in sizes]:
        shape_of(bias, (heads, length, length), f"alibi_bias({heads}, {length})")
        close(
            -bias[:, 1, 0].double().cpu(),
            torch.tensor([2.0**-one for one in EXPONENTS[heads]], dtype=torch.float64),
            f"With {heads} head{'s' if heads > 1 else ''}, the slopes",
            rtol=1e-4,
            atol=1e-7,
        )


@alibi_bias.check(points=2)
def falls_with_the_distance(answer, reference, draw):
    """Each head has a matrix (T, T) that falls in equal steps with the distance, from 0."""
    for heads, length in ((4, 7), (2, 5), (8, 3), (1, 260)):
        bias = answer(heads, length)
        shape_of(bias, (heads, length, length), f"alibi_bias({heads}, {length})")
        bias = bias.double().cpu()
        step = bias[:, 1, 0]
        if not (step < 0).all():
            raise Failure(
                f"alibi_bias({heads}, {length}): at distance 1 the values are "
                f"{[round(one, 4) for one in step.tolist()]}. A token that is farther away gets "
                "less: they are below 0."
            )
        below = torch.tensor([[max(i - j, 0) for j in range(length)] for i in range(length)])
        close(
            bias.tril(),
            step[:, None, None] * below,
            f"alibi_bias({heads}, {length}), up to the diagonal,",
            rtol=1e-4,
            atol=1e-6,
        )


@alibi_bias.check(points=1, needs=["falls_with_the_distance"])
def is_the_same_on_both_sides(answer, reference, draw):
    """A later token counts as far as an earlier one: each matrix is symmetric."""
    for heads, length in ((4, 7), (3, 5)):
        # A number that only blocks is as good as another.
        with answer.known_by(
            lambda bias: bias.clamp(min=-1e3) if isinstance(bias, torch.Tensor) else bias
        ):
            bias = answer(heads, length)
        shape_of(bias, (heads, length, length), f"alibi_bias({heads}, {length})")
        close(bias.mT, bias, "Rows and columns exchanged, the bias", rtol=1e-4, atol=1e-6)


@alibi_bias.check(points=2, needs=["falls_with_the_distance"])
def has_the_slopes_of_powers_of_two(answer, reference, draw):
    """Where H is a power of two, head h of 1…H has the slope 2^(-8h/H)."""
    slopes_are(answer, (8, 4, 2, 16, 1, 32))


@alibi_bias.check(points=2, needs=["falls_with_the_distance"])
def has_the_slopes_of_other_head_counts(answer, reference, draw):
    """Other head counts take the lower power's slopes, then every other one of its double's."""
    slopes_are(answer, (3, 6, 12, 5, 7, 9, 10, 11, 112))


@alibi_bias.check(points=1, needs=["falls_with_the_distance"])
def bias_is_float32(answer, reference, draw):
    """The bias is float32."""
    for heads, length in ((4, 3), (3, 2)):
        with answer.known_by(dtype_of):
            bias = answer(heads, length)
        if bias.dtype != torch.float32:
            raise Failure(f"The bias is {short_name(bias.dtype)}; float32 was asked for.")


@alibi_bias.check(points=1, needs=["falls_with_the_distance"])
def fits_one_token(answer, reference, draw):
    """A single token has no distance to anything: one 0 for each head."""
    for heads in (4, 3):
        close(answer(heads, 1), torch.zeros(heads, 1, 1), f"alibi_bias({heads}, 1)", atol=1e-7)
