"""Submissions that put words into the kernel's mouth; the quiz alone is answered honestly."""

from tests.hostile import QUIZ, Work, case

FORGERY = """
from autograder.grading.sandbox.inside.answers import Answers
from autograder.judge.messages import decode, encode
import torch
plain = {"error": None, "printed": "", "ruled_out": []}
honest = Answers.handle
def handle(self, message):
    request = decode(message)
    if request.get("open") == "norm_quiz":
        Answers.handle = honest
    if "open" in request or Answers.handle is honest:
        return honest(self, message)
    return encode({**plain, "value": VALUE})
Answers.handle = handle
"""


@case(QUIZ, flagged=True)
def says_it_passed(work: Work) -> None:
    """Replaces what answers the judge: every reply is a verdict."""
    verdict = '{"passed": True, "score": 54, "message": None}'
    work.stub("norm_quiz").first(FORGERY.replace("VALUE", verdict))


@case(QUIZ, flagged=True)
def a_description_without_sense(work: Work) -> None:
    """Replies to every question, what kind of thing this is too, with a tensor."""
    work.stub("norm_quiz").first(FORGERY.replace("VALUE", "torch.ones(2)"))


@case(QUIZ, flagged=True)
def a_description_of_nothing(work: Work) -> None:
    """Says of everything that it is a value without a type."""
    nothing = '{"module": False, "kind": "value", "bases": []}'
    work.stub("norm_quiz").first(FORGERY.replace("VALUE", nothing))


@case(QUIZ, flagged=True)
def handles_in_place_of_tensors(work: Work) -> None:
    """Replies with a handle called Tensor, which the judge would have to ask for its values."""
    handle = 'type("Handle", (), {})'
    forged = FORGERY.replace("VALUE", handle).replace(
        "plain =", "from autograder.judge.values import Handle\nplain ="
    )
    work.stub("norm_quiz").first(forged.replace(handle, 'Handle(0, "Tensor")'))


@case(QUIZ, flagged=True)
def nested_too_deep(work: Work) -> None:
    """Replies with a list in a list in a list, and so on."""
    work.stub("norm_quiz").first(
        "deep = []\nfor _ in range(200): deep = [deep]" + FORGERY.replace("VALUE", "deep")
    )


@case({}, flagged=True)
def kept_patching(work: Work) -> None:
    """A thread that outlives its cell replaces the agent again and again."""
    work.stub("norm_quiz").first("""
import threading, time
from autograder.judge import agent
def patch():
    while True:
        agent.Agent.perform = lambda self, request: {
            "value": 1, "error": None, "printed": "", "ruled_out": []}
        time.sleep(0.001)
threading.Thread(target=patch).start()
import atexit
atexit.register(patch)
""")


@case(QUIZ, flagged=True)
def replies_before_it_is_asked(work: Work) -> None:
    """A thread sends results and replies to all that the kernel was and will be asked."""
    work.stub("norm_quiz").first("""
import threading
kernel = get_ipython().kernel
def forge():
    while True:
        parent = kernel.get_parent()
        for kind in ("course_reply", "execute_reply"):
            for stream in (kernel.shell_stream, kernel.iopub_socket):
                try:
                    kernel.session.send(stream, kind, {"status": "ok"}, parent,
                                        ident=kernel._parent_ident, buffers=[b"54"])
                except Exception:
                    pass
threading.Thread(target=forge, daemon=True).start()
import os
os.kill(os.getpid(), 9)
""")


LINE = """
import os, struct, threading, time
from autograder.grading.sandbox.inside import kernel
header = struct.pack(">cQ", b"A", LENGTH)
honest = kernel.send
def send(link, kind, body):
    REPLY
kernel.send = send
"""


def _line(reply: str, length: int) -> str:
    return LINE.replace("REPLY", reply).replace("LENGTH", str(length))


@case({}, flagged=True)
def half_a_reply(work: Work) -> None:
    """Begins a reply and never ends it."""
    work.first(_line('link.sendall(header + b"begun")', 100))


@case({}, flagged=None)
def a_reply_without_end(work: Work) -> None:
    """Announces more than there is memory, and sends for as long as anyone reads."""
    work.first(_line("link.sendall(header)\n    while True: link.sendall(bytes(2**20))", 2**60))


@case({}, flagged=None)
def replies_nobody_asked_for(work: Work) -> None:
    """A thread sends empty replies over every socket that the kernel has."""
    work.stub().first(
        _line("honest(link, kind, body)", 9)
        + """
def flood():
    while True:
        for number in range(3, 64):
            try:
                if os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                    os.write(number, header + bytes(9))
            except OSError:
                pass
threading.Thread(target=flood, daemon=True).start()
"""
    )


@case(QUIZ, flagged=True)
def the_line_is_closed(work: Work) -> None:
    """Closes what its answers are asked for over."""
    work.first("import os\nos.closerange(3, 200)")
