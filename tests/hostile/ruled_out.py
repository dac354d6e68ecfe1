"""Answers that are torch's own, under whatever name; the quiz alone is answered honestly."""

from tests.hostile import POINTS, QUIZ, Work, case

FUNCTION = "def layer_norm(x, scale, shift, eps=1e-5):\n    "
OWN = "(x, x.shape[-1:], scale, shift, eps)"


def only(work: Work, code: str, first: str = "") -> None:
    work.stub("norm_quiz").first(first)
    work.answer("layer_norm", code)


@case(QUIZ)
def plainly(work: Work) -> None:
    """Calls torch's layer_norm."""
    only(work, FUNCTION + "return F.layer_norm" + OWN)


@case(QUIZ)
def by_another_name(work: Work) -> None:
    """Under an alias of an alias, from another cell."""
    only(work, FUNCTION + "return other" + OWN, "norm = torch.nn.functional.layer_norm\nother=norm")


@case(QUIZ)
def with_a_built_name(work: Work) -> None:
    """With the name put together when it runs, and the call in an `exec`."""
    only(work, FUNCTION + 'return getattr(F, "layer_" + "norm")' + OWN)


@case(QUIZ)
def as_an_operator(work: Work) -> None:
    """The operator below it, found by searching."""
    only(
        work,
        FUNCTION + f'return getattr(torch.ops.aten, "native_layer" + "_norm").default{OWN}[0]',
    )


@case(QUIZ)
def scripted(work: Work) -> None:
    """Compiled by torch.jit, where no Python function is called."""
    code = """
@torch.jit.script
def inner(x, scale, shift, eps: float):
    return torch.layer_norm(x, x.shape[-1:], scale, shift, eps)
def layer_norm(x, scale, shift, eps=1e-5):
    return globals()["in" + "ner"](x, scale, shift, eps)
"""
    only(work, code)


@case(QUIZ, flagged=True)
def unseen_by_function_modes(work: Work) -> None:
    """Where torch tells no function mode of it."""
    body = 'with torch._C.DisableTorchFunction():\n        return getattr(F, "layer_" + "norm")'
    only(work, FUNCTION + body + OWN)


@case(QUIZ)
def in_a_thread(work: Work) -> None:
    """In another thread, where no mode was entered."""
    first = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)"
    body = 'return pool.submit(getattr(F, "layer_" + "norm"), x, x.shape[-1:], scale, shift, eps)'
    only(work, FUNCTION + body + ".result()", first)


@case(QUIZ, flagged=True)
def with_the_watch_patched(work: Work) -> None:
    """After it has blinded what watches in its kernel."""
    first = """
import sys
Agent = sys.modules["autograder.judge" + ".agent"].Agent
perform = Agent.perform
Agent.perform = lambda self, request: {**perform(self, request), "ruled_out": []}
"""
    only(work, FUNCTION + 'return getattr(F, "layer_" + "norm")' + OWN, first)


@case(QUIZ)
def inherited(work: Work) -> None:
    """Modules that are torch's own, by inheritance or by assignment."""
    work.stub("norm_quiz")
    work.answer("ManualLayerNorm", "class ManualLayerNorm(nn.LayerNorm):\n    pass")
    work.answer("RMSNorm", "RMSNorm = nn.RMSNorm")


@case({**QUIZ, "RMSNorm": 1})
def inherited_out_of_sight(work: Work) -> None:
    """A base class that only shows when it runs; its parameters alone are as asked."""
    work.stub("norm_quiz").answer(
        "RMSNorm", 'RMSNorm = type("M", (getattr(nn, "RMS"+"Norm"),), {})'
    )


@case({name: POINTS[name] for name in POINTS})
def only_to_compare(work: Work) -> None:
    """Honest: torch's own appears in comments, in a demo, and under a name that is also local."""
    work.first("norm = F.layer_norm  # to compare with")
    work.after("layer_norm", "print((F.layer_norm(torch.ones(3), (3,)) - 0).abs().max())")
    source = work.cell("rms_norm").source
    work.cell("rms_norm").source = source.replace("mean_square", "norm")
