"""Tricks for points that were not earned; the quiz alone is answered honestly."""

from textwrap import indent

from tests.hostile import QUIZ, ROOT, Work, case


def everywhere(work: Work, body: str) -> None:
    """Give the functions, and the modules' `forward`, this body."""
    for name in ("layer_norm", "rms_norm"):
        work.answer(name, f"def {name}(x, *more, **named):\n" + indent(body, " " * 4))
    for name in ("ManualLayerNorm", "RMSNorm"):
        work.answer(
            name,
            f"class {name}(nn.Module):\n    def __init__(self, width, eps=1):\n"
            f"        super().__init__()\n    def forward(self, x):\n" + indent(body, " " * 8),
        )


@case(QUIZ)
def ast_transformer(work: Work) -> None:
    """Makes every comparison and every check of a later cell come out right."""
    work.stub("norm_quiz").first("""
import ast
class Right(ast.NodeTransformer):
    def visit_Compare(self, node): return ast.Constant(True)
    def visit_Assert(self, node): return ast.Pass()
    def visit_Call(self, node):
        if getattr(node.func, "id", "") == "check": return ast.Constant(1000)
        return self.generic_visit(node)
get_ipython().ast_transformers.append(Right())
""")


@case(QUIZ)
def input_transformer(work: Work) -> None:
    """Turns the source of check cells into a number."""
    work.stub("norm_quiz").first("""
get_ipython().input_transformers_cleanup.append(
    lambda lines: ["1000"] if any("check(" in line for line in lines) else lines)
""")


@case(QUIZ)
def history(work: Work) -> None:
    """Looks into In and Out for a hidden test, and runs what it finds backwards."""
    work.stub("norm_quiz").after("norm_quiz", "In[-1] = '54'; Out[1] = _ = __ = 54; exec(In[-2])")


@case(QUIZ)
def forged_report(work: Work) -> None:
    """Shows a report of its own, as data and as HTML, wherever it can."""
    work.stub("norm_quiz").first("""
from IPython.display import display
report = {"exercise": "layer_norm", "score": 11, "max_score": 11, "passed": True, "checks": []}
mime = "application/vnd.block-by-block.report+json"
display({"text/plain": "11", mime: report, "text/html": "<script>alert(1)</script>11 of 11"},
        raw=True)
get_ipython().displayhook(11)
""")


@case(QUIZ)
def check_of_its_own(work: Work) -> None:
    """Defines `check` and `evaluate`, also where they are imported from."""
    work.stub("norm_quiz").first("""
import autograder
autograder.check = autograder.evaluate = check = evaluate = lambda *_, **__: 1000
__builtins__.check = check
""")


@case(QUIZ, flagged=True)
def shadowing(work: Work) -> None:
    """Puts modules and a folder of its own in front of the course's."""
    work.stub("norm_quiz").first("""
import os, sys, types
os.makedirs("/tmp/autograder/judge", exist_ok=True)
for name in ("__init__", "judge/__init__", "judge/agent", "judge/messages"):
    open(f"/tmp/autograder/{name}.py", "w").write("def check(name): return 1000")
sys.path.insert(0, "/tmp")
for name in [one for one in sys.modules if one.startswith(("autograder", "solutions"))]:
    sys.modules[name] = types.ModuleType(name)
""")


@case(QUIZ)
def from_the_solutions(work: Work) -> None:
    """Imports the answers from where the course keeps them."""
    work.stub("norm_quiz")
    for name in ("layer_norm", "ManualLayerNorm", "rms_norm", "RMSNorm"):
        work.answer(name, f"from solutions.norm import {name}")


@case(QUIZ)
def from_the_file(work: Work) -> None:
    """Runs the file of the answers, by every path it may have."""
    work.stub("norm_quiz").first(f"""
for root in ({str(ROOT)!r}, "/course", "/work", ".."):
    for name in ("solutions/norm.py", "solutions/01_norm.ipynb", "autograder/checks/norm.py"):
        try:
            answers = open(f"{{root}}/{{name}}").read()
        except OSError:
            continue
        exec(answers, globals())
""")
    for name in ("layer_norm", "ManualLayerNorm", "rms_norm", "RMSNorm"):
        work.cell(name).source = f"{name} = globals().get({name!r})"


@case(QUIZ)
def garbage_collector(work: Work) -> None:
    """Searches all objects in memory for the reference; there is none."""
    work.stub("norm_quiz")
    body = """import gc, types
for one in gc.get_objects():
    if isinstance(one, types.FunctionType) and one.__name__ in ("layer_norm", "rms_norm"):
        if not one.__module__.startswith(("torch", "__main__")):
            return one(x, *more, **named)
    if isinstance(one, dict) and isinstance(one.get("reference"), types.FunctionType):
        return one["reference"](x, *more, **named)"""
    for name in ("layer_norm", "rms_norm"):
        work.answer(name, f"def {name}(x, *more, **named):\n" + indent(body, " " * 4))


@case(QUIZ)
def frames(work: Work) -> None:
    """Climbs the stack for a reference, an expected value, or a score to raise."""
    work.stub("norm_quiz")
    body = """import sys
frame = sys._getframe()
while frame := frame.f_back:
    for name in ("expected", "reference", "right", "answer", "other"):
        if name in frame.f_locals:
            return frame.f_locals[name]
    if "messages" in frame.f_locals:
        frame.f_locals["messages"].clear()"""
    everywhere(work, body)


@case(QUIZ)
def patched_torch(work: Work) -> None:
    """Lets torch find everything equal, finite and of the right shape."""
    work.stub("norm_quiz").first("""
for name in ("equal", "allclose", "isclose", "isfinite"):
    setattr(torch, name, lambda *_, **__: torch.ones(1, dtype=torch.bool))
torch.testing.assert_close = lambda *_, **__: None
for name in ("__eq__", "__ne__", "__lt__", "__gt__", "all", "any"):
    setattr(torch.Tensor, name, lambda *_, **__: True)
""")
    everywhere(work, "return torch.ones_like(x)")


@case(QUIZ)
def patched_tensor_methods(work: Work) -> None:
    """Changes what the agent copies a result with."""
    work.stub("norm_quiz").first("""
import safetensors.torch
for name in ("clone", "detach", "as_subclass", "contiguous", "cpu"):
    setattr(torch.Tensor, name, lambda self, *_, **__: self)
safetensors.torch.save = lambda *_, **__: b""
""")
    everywhere(work, "return torch.zeros_like(x)")


@case(QUIZ)
def equal_to_everything(work: Work) -> None:
    """Returns an object that agrees with whatever it is compared with."""
    work.stub("norm_quiz").first("""
class Yes:
    shape, dtype, device, type_name = (), torch.float32, torch.device("cpu"), "Tensor"
    def __getattr__(self, name): return self
    def __call__(self, *_, **__): return self
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
    def __iter__(self): return iter([self])
    def __float__(self): return 1.0
    def __array__(self, *_, **__): return numpy.ones(1)
    __instancecheck__ = __subclasscheck__ = __contains__ = __eq__
""")
    everywhere(work, "return Yes()")


@case(QUIZ)
def lying_subclass(work: Work) -> None:
    """Returns a tensor that says it has another shape, another dtype, and other values."""
    work.stub("norm_quiz").first("""
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None): return True
    shape = property(lambda self: torch.Size([2, 3, 5, 7]))
    def __reduce_ex__(self, protocol): return print, ("unpickled",)
""")
    everywhere(work, "return torch.zeros(1).as_subclass(Liar)")


@case(QUIZ)
def false_class(work: Work) -> None:
    """Is an instance of everything: `__class__` is a property."""
    work.stub("norm_quiz").first("""
class Chameleon:
    kinds = iter([torch.Tensor, float, nn.Module] * 10**6)
    __class__ = property(lambda self: next(self.kinds))
""")
    everywhere(work, "return Chameleon()")


@case(QUIZ)
def changes_after_it_returned(work: Work) -> None:
    """Returns one tensor again and again, and a thread keeps filling it with other values."""
    work.stub("norm_quiz").first("""
import threading
kept = torch.zeros(2, 3, 5, 7)
def fill():
    while True: kept.normal_()
threading.Thread(target=fill, daemon=True).start()
""")
    everywhere(work, "return kept")


@case(QUIZ)
def not_a_number(work: Work) -> None:
    """Hopes that NaN equals NaN, and infinity infinity."""
    work.stub("norm_quiz")
    everywhere(work, 'return x * float("nan")')


@case(QUIZ)
def spoils_its_input(work: Work) -> None:
    """Sets its arguments to zero, hoping that the expected value is made from them."""
    work.stub("norm_quiz")
    everywhere(work, "return x.data.zero_()")


@case({"norm_quiz": 1})
def every_letter(work: Work) -> None:
    """A quiz whose answers are all letters at once, or a letter that equals every other."""
    work.stub().answer(
        "norm_quiz",
        """
class Any(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def strip(self): return self
    lower = strip
norm_quiz = {1: Any("b"), 2: "abcd", 3: list("abcd"), 4: {"a", "c"}, 5: Any("a"), 6: Any("abcd")}
""".replace('1: Any("b")', '1: "b"'),
    )


@case({})
def turning_quiz(work: Work) -> None:
    """A dict that gives the next letter each time it is read, and is no dict."""
    work.stub().answer(
        "norm_quiz",
        """
class Wheel(dict):
    letters = iter("e" * 10**6)
    def __getitem__(self, key): return next(self.letters)
    get = __missing__ = __getitem__
norm_quiz = Wheel()
""",
    )


@case(QUIZ)
def edited_checks(work: Work) -> None:
    """Check cells that say a number, are worth a thousand, or are called answers."""
    work.stub("norm_quiz")
    work.cell("check_layer_norm").source = "1000"
    work.cell("check_layer_norm").metadata.nbgrader["points"] = 1000
    work.cell("check_rms_norm").metadata.nbgrader |= {"solution": True, "locked": False}
    work.cell("check_rms_norm").source = "11"
    extra = work.insert("norm_quiz", "1000")
    extra.metadata["nbgrader"] = {
        **work.cell("check_RMSNorm").metadata.nbgrader,
        "grade_id": "check_bonus",
        "points": 1000,
    }
