"""Oddities of honest people: every one of these keeps its marks."""

import re

from nbformat import NotebookNode

from tests.hostile import POINTS, Work, case


def replaced(work: Work, name: str, old: str, new: str) -> None:
    cell = work.cell(name)
    assert old in cell.source, cell.source
    cell.source = cell.source.replace(old, new)


@case()
def warnings(work: Work) -> None:
    """Words on stderr, warnings and log messages, in cells and in answers."""
    work.first("import sys, warnings, logging\nwarnings.warn('old')\nprint('!', file=sys.stderr)")
    replaced(
        work,
        "layer_norm",
        "    centred =",
        "    warnings.warn('deprecated')\n"
        "    print('here', file=sys.stderr)\n    logging.error('x')\n    centred =",
    )


@case()
def asks_for_input(work: Work) -> None:
    """input() in a cell of its own, and behind an answer."""
    work.insert("layer_norm", "name = input('Your name? ')\nprint(name)")
    work.after("layer_norm", "width = int(input('Width? '))")


@case()
def magics(work: Work) -> None:
    """Of lines, of cells, and of the shell."""
    work.first(
        "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n!ls\n%pwd\nhere = !pwd\n"
        "%config InlineBackend.figure_format = 'svg'\n%no_such_magic"
    )
    work.cell("layer_norm").source = "%%time\n" + work.cell("layer_norm").source
    work.insert("layer_norm", "def center(x):\n    return x - x.mean(dim=-1, keepdim=True)")
    replaced(work, "layer_norm", "x - x.mean(dim=-1, keepdim=True)", "center(x)")
    work.cell("rms_norm").source = "%%capture output\n" + work.cell("rms_norm").source
    work.cell("RMSNorm").source += "\n%timeit -n1 -r1 RMSNorm(4)(torch.ones(4))\nRMSNorm?\n??nn"


@case()
def comments_that_look_like_magics(work: Work) -> None:
    """A percent sign in a comment and in a string, and a question mark at the end of a line."""
    work.cell("layer_norm").source = (
        "# %%time\n#!python\n"
        + work.cell("layer_norm").source
        + ("\nhow = '''\n%time\n!rm\n'''\n# is this right?")
    )


@case()
def missing_package(work: Work) -> None:
    """A package that is not here, in a demo cell and in the answer's own."""
    work.insert("layer_norm", "import einops_that_nobody_has\neinops_that_nobody_has.x()")
    work.after("layer_norm", "import seaborn_that_nobody_has as sns")


@case()
def installs_a_package(work: Work) -> None:
    """pip, which finds no network, in the way people write it."""
    work.insert("layer_norm", "%pip install -q einops")


@case()
def takes_its_time(work: Work) -> None:
    """A cell that takes three seconds, and an answer that takes a moment."""
    work.after("layer_norm", "import time; time.sleep(3)")
    replaced(
        work,
        "rms_norm",
        "    mean_square =",
        "    import time; time.sleep(0.02)\n    mean_square =",
    )


@case()
def plots(work: Work) -> None:
    """Figures, animations of sorts, and widgets, in the cells of the answers."""
    work.first(
        "import matplotlib.pyplot as plt, numpy as np\nimport ipywidgets as widgets\n"
        "from IPython.display import display, HTML, clear_output"
    )
    work.after(
        "layer_norm",
        "plt.plot(np.arange(100)); plt.show(); clear_output(wait=True)\n"
        "plt.imshow(np.random.rand(500, 500))",
    )
    work.after(
        "rms_norm",
        "slider = widgets.IntSlider()\ndisplay(slider)\n"
        "widgets.interact(lambda n: print(n), n=(0, 9))\nHTML('<b>bold</b>')",
    )


@case()
def other_languages(work: Work) -> None:
    """Names, comments and words of people who do not write English."""
    replaced(work, "layer_norm", "centred", "отклонение")
    replaced(work, "layer_norm", "variance", "分散")
    replaced(work, "rms_norm", "mean_square", "größe_ﬁ")
    work.after("rms_norm", "# ثابت 🙂 \u202eright to left\nprint('مرحبا', '日本', '\\ud83d')")


@case()
def prints_strange_characters(work: Work) -> None:
    """Half an emoji, a null byte and colours from within an answer."""
    replaced(
        work,
        "layer_norm",
        "    centred =",
        "    print('\\ud83d \\x00 \\x1b[31mred')\n    centred =",
    )


@case()
def from_colab(work: Work) -> None:
    """Restored from Colab: no metadata, no ids, and its own marks in their place."""
    for number, one in enumerate(work.cells):
        one.metadata = NotebookNode(id=f"Xy{number}", colab={"base_uri": "https://localhost/"})
    work.notebook.metadata = NotebookNode(
        colab={"provenance": []},
        accelerator="GPU",
        kernelspec={"name": "python3", "display_name": "P"},
    )
    work.first(
        "try:\n    from google.colab import drive\n    drive.mount('/content/drive')\n"
        "except ImportError: pass"
    )


@case()
def moved_answers(work: Work) -> None:
    """Answers in cells of their own, below what was meant for them, which stays a stub."""
    for name in ("layer_norm", "norm_quiz"):
        solved = work.cell(name).source
        work.stub(*(other for other in POINTS if other != name))
        work.insert(f"check_{name}", solved)


@case()
def all_in_one_cell(work: Work) -> None:
    """All answers in the first answer's cell, the others left empty."""
    names = [name for name in POINTS if name != "layer_norm"]
    for name in names:
        work.after("layer_norm", work.cell(name).source)
        work.answer(name, "")


@case()
def helpers(work: Work) -> None:
    """Functions, constants and tables in cells of their own, far above and one upon the other."""
    work.insert("layer_norm", "AXIS = -1\nhalf = {}")
    work.insert("layer_norm", "def mean(x):\n    return x.mean(dim=AXIS, keepdim=True)")
    work.insert("layer_norm", "def center(x):\n    return x - mean(x)")
    replaced(work, "layer_norm", "x - x.mean(dim=-1, keepdim=True)", "center(x)")


@case()
def a_table_filled_elsewhere(work: Work) -> None:
    """Something made in one cell and filled in another, without being assigned there."""
    work.insert("layer_norm", "axes = []\nsettings = dict()")
    work.insert("layer_norm", "axes.append(-1)")
    work.insert("layer_norm", "settings.update(keepdim=True)")
    replaced(work, "layer_norm", "x.mean(dim=-1, keepdim=True)", "x.mean(dim=axes[0], **settings)")


@case()
def registered(work: Work) -> None:
    """Functions that a decorator enters into a table."""
    work.insert(
        "layer_norm", "table = {}\ndef register(f):\n    table[f.__name__] = f\n    return f"
    )
    work.insert(
        "layer_norm", "@register\ndef center(x):\n    return x - x.mean(dim=-1, keepdim=True)"
    )
    replaced(work, "layer_norm", "x - x.mean(dim=-1, keepdim=True)", 'table["center"](x)')


@case()
def set_through_globals(work: Work) -> None:
    """Names set by globals(), exec and setattr."""
    work.insert("layer_norm", 'globals()["AXIS"] = -1')
    work.insert("layer_norm", 'exec("KEEP = True")')
    replaced(work, "layer_norm", "x.mean(dim=-1, keepdim=True)", "x.mean(dim=AXIS, keepdim=KEEP)")


@case()
def completed_in_another_cell(work: Work) -> None:
    """A class whose method comes later, with setattr or by a decorator."""
    forward = "def forward(self, x):"
    source = work.cell("ManualLayerNorm").source
    work.answer("ManualLayerNorm", source.replace(forward, "def later(self, x):"))
    work.insert(
        "check_ManualLayerNorm", 'setattr(ManualLayerNorm, "forward", ManualLayerNorm.later)'
    )


@case()
def twice(work: Work) -> None:
    """A first try that stayed above, and globals that a later cell changes."""
    work.cell("layer_norm").source = (
        "def layer_norm(x, scale, shift):\n    return x\n\nEPS = 1\n"
        + work.cell("layer_norm").source
    )
    work.insert("rms_norm", "def rms_norm(x, scale):\n    pass\nrms_norm(1, 2)")
    work.insert("rms_norm", "if True:\n    EPS = 2\nfor EPS in range(3): pass\nEPS += 1")


@case()
def imports_in_the_answer(work: Work) -> None:
    """Each answer brings what it needs, and the first cell is gone."""
    work.cells = [one for one in work.cells if not one.source.startswith("import torch")]
    for name in ("layer_norm", "ManualLayerNorm", "rms_norm", "RMSNorm"):
        source = work.cell(name).source
        work.answer(name, "import torch\nimport torch.nn as nn\nimport math\n" + source)


@case()
def star_imports(work: Work) -> None:
    """All of torch.nn.functional, whose layer_norm the answer then replaces."""
    work.first(
        "from torch.nn.functional import *\nfrom torch.nn import *\nfrom torch import *\n"
        "from math import pi, e\nimport torch\nfrom torch import nn"
    )


@case()
def raises_behind_its_answer(work: Work) -> None:
    """A trial call that fails, an assertion that does not hold, and a syntax error elsewhere."""
    work.after("layer_norm", "layer_norm(torch.ones(2), torch.ones(3), 0)")
    work.after("rms_norm", "assert rms_norm(torch.ones(2), 1)[0] == 7, 'why?'")
    work.insert("rms_norm", "def unfinished(:\n    return")
    work.insert("RMSNorm", "notes for myself: read the chapter again")


@case()
def other_ways_to_write_it(work: Work) -> None:
    """A lambda, a partial function, a decorator, type hints, a dataclass, a class with __call__."""
    work.first("import functools, dataclasses, typing\nfrom functools import partial, wraps")
    work.cell("layer_norm").source = (
        "def loud(f):\n    @wraps(f)\n    def inner(*args, **kwargs):\n"
        "        return f(*args, **kwargs)\n    return inner\n\n"
        + "@loud\n"
        + re.sub(
            r"\(x, scale, shift, eps=1e-5\)",
            "(x: torch.Tensor, scale: 'torch.Tensor', shift: typing.Any, eps: float = 1e-5) -> 'T'",
            work.cell("layer_norm").source,
        )
    )
    work.answer(
        "rms_norm",
        """
def root(x, power, eps):
    return torch.sqrt((x ** power).mean(-1, keepdim=True) + eps)
rms: typing.Callable = partial(root, power=2)
rms_norm = lambda x, scale, eps=1e-6: x / rms(x, eps=eps) * scale
""",
    )
    work.answer(
        "RMSNorm",
        """
@dataclasses.dataclass
class Settings:
    width: int
    eps: float = 1e-6
class Base(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.settings = Settings(width, eps)
        self.weight = nn.Parameter(torch.ones(width))
class RMSNorm(Base):
    @typing.override if hasattr(typing, "override") else (lambda f: f)
    def forward(self, x): return self._norm(x.to(torch.promote_types(x.dtype, torch.float32)), x)
    def _norm(self, wide, x): return rms_norm(wide, self.weight, self.settings.eps).to(x.dtype)
""".replace(
            '@typing.override if hasattr(typing, "override") else (lambda f: f)',
            '@getattr(typing, "override", lambda f: f)',
        ),
    )
    work.answer("norm_quiz", 'norm_quiz = dict(zip(range(1, 7), " BDACBD ".split()[0].lower()))')


@case()
def changes_settings(work: Work) -> None:
    """Seeds, print options, threads, a style and a default type, all for the whole notebook."""
    work.first(
        "torch.manual_seed(0)\ntorch.set_printoptions(precision=2)\n"
        "torch.set_num_threads(2)\ntorch.set_grad_enabled(True)\nimport sys, os\n"
        "sys.setrecursionlimit(5000)\nos.environ['COURSE'] = 'x'\n"
        "torch.set_default_dtype(torch.float32)\ntorch.use_deterministic_algorithms(True)"
    )


@case()
def works_in_parallel(work: Work) -> None:
    """A thread pool, an event loop, `await` in a cell, and a child process."""
    work.insert("layer_norm", "import asyncio\nawait asyncio.sleep(0.01)\nAXIS = -1")
    work.first(
        "from concurrent.futures import ThreadPoolExecutor\nimport subprocess, tempfile\n"
        "with ThreadPoolExecutor(4) as pool: list(pool.map(abs, range(10)))\n"
        "subprocess.run(['ls', '/'], check=True)\n"
        "open(tempfile.mktemp(), 'w').write('notes')\nopen('notes.txt', 'w').write('x')"
    )
    replaced(work, "layer_norm", "dim=-1", "dim=AXIS")
