"""What a check sees of an answer: something to call, build, load and read, never the object itself.

A Subject speaks to an Agent over a link. A link has one method, `perform(request) -> reply`, both
of them plain data and tensors. The local link calls an agent in this process; a link to a sandboxed
kernel carries the same requests as messages.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch

from autograder.judge.agent import NOT_THE_STUDENTS, Agent, TooLong
from autograder.judge.values import Handle, Recipe, walk

if TYPE_CHECKING:  # this file goes into the sandbox, and the exercises' vocabulary does not
    from autograder.judge.exercise import RuledOut

SECONDS = 10.0


class Failure(Exception):
    """What the student hears when a check does not hold."""


class LinkLost(Exception):
    """The answer can be asked no more: its process is gone. Ends the judging of an exercise."""


class Link(Protocol):
    """Carries requests to an agent and brings back its replies."""

    def perform(self, request: dict[str, Any]) -> dict[str, Any]: ...


class LocalLink:
    """An agent in this process; a request may take SECONDS."""

    def __init__(self, agent: Agent):
        self._agent = agent

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        with _time_limit(SECONDS):
            return self._agent.perform(request)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TooLong in this thread when time is up, and again each second if that is swallowed."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield  # no alarm here (Windows, threads): the student can still interrupt the kernel
        return

    late = f"it ran for more than {seconds:g} seconds and was stopped"
    rings = 0

    def stop(frame: Any, event: str, _: Any) -> Any:
        # Raised at the "exception" event it would only replace the exception being handled.
        if event == "line" and frame.f_code.co_filename != __file__:
            raise TooLong(late)
        return stop

    def ring(signum: int, frame: Any) -> None:
        nonlocal rings
        if not _in_the_answer(frame):
            return  # raised here it would leave the agent's watches on; it rings again in a second
        rings += 1
        if rings > 1:
            # A bare `except:` swallowed the first one. Now every line raises, the handlers' too.
            sys.settrace(stop)
            while frame is not None and frame.f_code.co_filename != __file__:
                frame.f_trace = stop
                frame = frame.f_back
        raise TooLong(late)

    tracing = sys.gettrace()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.settrace(tracing)


def _in_the_answer(frame: Any) -> bool:
    """Whether code that is neither the judge's nor a library's runs between this frame and ours."""
    while frame is not None and frame.f_code.co_filename != __file__:
        if not frame.f_code.co_filename.startswith(NOT_THE_STUDENTS):
            return True
        frame = frame.f_back
    return False


class Recorder:
    """A link that keeps every reply, so that two answers can be compared by all that they did.

    Each call without a seed gets one of its own: an answer that draws numbers draws the same ones
    in every run of a check, and others at its next call. The first request undoes what was left by
    another recorder's. `follow` hears of each reply.
    """

    def __init__(self, link: Link, follow: Callable[[dict[str, Any]], None] | None = None):
        self._link, self._follow = link, follow
        self.replies: list[dict[str, Any]] = []
        self.keeps = True
        self.trait: Callable[[Any], Any] | None = None
        self._requests = itertools.count()  # those aside too, or two of them would draw the same

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        place = next(self._requests)
        if request["do"] == "call" and request.get("seed") is None:
            request = {**request, "seed": place}
        if place == 0:
            request = {**request, "afresh": True}
        reply = self._link.perform(request)
        if request["do"] == "call":  # what replies are compared by besides
            given = (request["args"], request["kwargs"])
            reply = {**reply, "given": given, "meta": request.get("meta", False)}
        self.keep({**reply, "value": self.trait(reply["value"])} if self.trait else reply)
        return reply

    def keep(self, reply: dict[str, Any]) -> None:
        if self.keeps:
            self.replies.append(reply)
            if self._follow:
                self._follow(reply)


@dataclass
class Outcome:
    """What one call did: its `value`, and the arguments and gradients if they were asked for."""

    value: Any
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    gradients: tuple[Any, ...] = ()
    keyword_gradients: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None


@dataclass(frozen=True)
class TensorInfo:
    """A parameter or a buffer: two with the same `storage` share their memory."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    storage: int


@dataclass(frozen=True)
class Description:
    """A module's parameters, buffers, submodules (type name, training) and present values."""

    parameters: dict[str, TensorInfo]
    buffers: dict[str, TensorInfo]
    modules: dict[str, tuple[str, bool]]
    state: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Kind:
    """What sort of thing an answer is: `name` "class", "function", "module" or "value"."""

    name: str
    bases: list[str]


class Subject:
    """An answer, or something it returned (`handle`), called by `name` in messages.

    Every method raises Failure, with a sentence for the student, where the answer raised, used a
    function that is `ruled_out`, or returned what can't be read.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        handle: int = 0,
        ruled_out: RuledOut | None = None,
        type_name: str = "",
    ):
        self._link, self._name, self._handle, self._ruled_out = link, name, handle, ruled_out
        self.type_name = type_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of a call; what is not plain data comes back as a Subject."""
        return self.call(args, kwargs).value

    def backward(self, gradient: Any, *args: Any, **kwargs: Any) -> Outcome:
        """A call and, from its one tensor, `gradient` run back to every argument and parameter.

        A tuple of gradients is for a tuple that comes back, a dict for attributes by name.
        """
        return self.call(args, kwargs, backward=gradient)

    def call(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Outcome:
        """A call with the options of the agent: method, seed, backward, meta, grad, after.

        And those that get a module ready which comes back: rename, load, train (Agent._prepare).
        """
        outcome = self.attempt(args, kwargs, **options)
        if outcome.error:
            raise Failure(explain(outcome.error, self._name))
        return outcome

    def attempt(
        self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Outcome:
        """Like `call`, but an exception of the answer is in the outcome, not a Failure."""
        sent = walk((args, kwargs or {}), _hand_over)
        reply = self._perform(do="call", args=sent[0], kwargs=sent[1], **options)
        positional, keywords = walk(reply.get("arguments") or ((), {}), self._take_over)
        gradients, keyword_gradients = reply.get("gradients") or ((), {})
        value = walk(reply["value"], self._take_over)
        return Outcome(
            value=value,
            arguments=positional,
            keywords=keywords,
            gradients=gradients,
            keyword_gradients=keyword_gradients,
            parameters=reply.get("parameters") or {},
            error=reply["error"],
        )

    def on_meta(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the `meta` device, where tensors left on the CPU fail as they would on a GPU.

        A run that fails for any other reason proves nothing and passes. Returns what came back, or
        None, so that a handle in it can take part in another run.
        """
        outcome = self.attempt(args, kwargs, meta=True)
        if outcome.error:
            if is_device_mismatch(outcome.error):
                raise Failure(
                    "On a GPU this fails: a tensor was left on the CPU. "
                    + explain(outcome.error, self._name)
                )
            return None

        def leaf(one: Any) -> None:
            if isinstance(one, torch.Tensor) and one.device.type != "meta":
                raise Failure(
                    f"The input was on another device, and {self._name} returned a tensor on "
                    f"`{one.device}`. Make new tensors on the input's device (`device=x.device`)."
                )

        walk(outcome.value, leaf)
        return outcome.value

    def kind(self) -> Kind:
        """Whether this is a class, a function, a module or another value, and its type's bases."""
        found = self._perform(do="describe")["value"]
        match found:
            case {"kind": str(kind), "bases": [str(), *_] as bases}:
                return Kind(kind, [str(base) for base in bases])
        return Kind("value", ["object"])  # what it says of itself makes no sense

    def describe(self, values: bool = True) -> Description:
        """Parameters, buffers and submodules; Failure if this is no nn.Module.

        Without `values` the `state` is empty: so a check of names and shapes recognises a mistake
        whatever its layers were drawn as.
        """
        reply = self._perform(do="describe", values=values)
        if reply["error"]:
            raise Failure(explain(reply["error"], self._name))
        found = reply["value"]
        if not found["module"]:
            raise Failure(f"{self._name} has to be an nn.Module; this is a {found['bases'][0]}.")

        def infos(rows: list[Any]) -> dict[str, TensorInfo]:
            return {row[0]: TensorInfo(tuple(row[1]), *row[2:]) for row in rows}

        return Description(
            infos(found["parameters"]),
            infos(found["buffers"]),
            {name: (kind, training) for name, kind, training in found["modules"]},
            found["state"],
        )

    def load(self, **tensors: torch.Tensor) -> Subject:
        """Copy values into parameters and buffers; a dot in a name is written as two underscores.

        Returns the subject, so that `answer(5).load(weight=w)` reads in one line.
        """
        named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
        return self._act(do="load", tensors=named)

    def train(self, train: bool = True) -> Subject:
        return self.modes({"": train})

    def modes(self, modes: dict[str, bool]) -> Subject:
        """Put submodules, "" for the whole, into train mode (True) or eval mode, in this order."""
        return self._act(do="mode", modes=modes)

    def eval(self) -> Subject:
        return self.train(False)

    def to(self, dtype: torch.dtype | None = None, device: str | None = None) -> Subject:
        return self._act(do="move", dtype=dtype, device=device)

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """What is done in here prepares a check: no mistake is recognised by it, or missed."""
        return self._recording(keeps=False)

    def known_by(self, trait: Callable[[Any], Any]) -> contextlib.AbstractContextManager[None]:
        """What comes back in here tells one mistake from another by `trait(value)` alone.

        For what is drawn: by how often each value came, and not by which came when.
        """
        return self._recording(trait=trait)

    @contextlib.contextmanager
    def _recording(self, **settings: Any) -> Iterator[None]:
        """Set these attributes of the recorder, if there is one, and then what they were before."""
        if not isinstance(self._link, Recorder):
            yield
            return
        before = {name: getattr(self._link, name) for name in settings}
        vars(self._link).update(settings)
        try:
            yield
        finally:
            vars(self._link).update(before)

    def note(self, found: Any, error: dict[str, Any] | None = None) -> None:
        """Keep plain data that a check made of what it saw aside: two answers are told apart by it.

        So a check leaves out what it does not look at: a free name, which number was drawn. Of the
        `error` that it saw, only that the exercise is not answered yet is kept besides.
        """
        if isinstance(self._link, Recorder):
            left = error if error and is_unanswered(error) else None
            self._link.keep({"value": found, "error": left, "printed": "", "ruled_out": []})

    def rename(self, *parts: str) -> Subject:
        """Call the parameters inside each of `parts` by shape: "ffn.0", "ffn.1", largest first.

        For parts whose insides are free. It holds for this object, in all that follows.
        """
        return self._act(do="rename", parts=list(parts))

    def beside(self, name: str) -> Subject | None:
        """What the module or notebook of this function calls `name`: an earlier answer, or None."""
        path = [["attribute", "__globals__"], ["item", name]]
        reply = self._perform(do="read", paths=[path])
        found = [] if reply["error"] else walk(reply["value"], self._take_over)
        return next((one for one in found if isinstance(one, Subject)), None)

    def item(self, key: Any) -> Any:
        """`answer[key]`."""
        return self._read([[["item", key]]], f"item {key!r}")[0]

    def attribute(self, name: str) -> Any:
        """`answer.name`; the name may have dots, as in "norm.weight.grad"."""
        return self.attributes([name])[0]

    def attributes(self, names: Sequence[str]) -> list[Any]:
        """Several of them, of this moment."""
        paths = [[["attribute", one] for one in name.split(".")] for name in names]
        return self._read(paths, f"attribute {' or '.join(map(repr, names))}")

    def at(self, *steps: int | str) -> Any:
        """`answer.calls[0].name` for the steps "calls", 0, "name"."""
        path = [["attribute" if isinstance(one, str) else "item", one] for one in steps]
        return self._read([path], f"part {steps!r}")[0]

    def make(self, recipe: Recipe, **prepared: Any) -> Subject:
        """A module made where the answer runs, to be prepared before the answer is given it.

        The options rename, load, train are those of `call`.
        """
        return self._new(do="make", recipe=recipe, **prepared)

    def find(self, name: str) -> Subject:
        """What is imported as `name` where the answer runs: an optimizer, a model of the course.

        For what an exercise is given and no recipe makes; called like any other subject.
        """
        return self._new(do="find", name=name)

    def assign(self, values: dict[str, Any]) -> Subject:
        """Set attributes by dotted names, to plain data or a recipe's module; never undone."""
        return self._act(do="assign", values=values)

    def _read(self, paths: list[list[list[Any]]], said: str) -> list[Any]:
        reply = self._perform(do="read", paths=paths)
        if reply["error"]:
            if {"LookupError", "AttributeError", "TypeError"} & set(reply["error"]["bases"]):
                raise Failure(f"{self._name} has no {said}.")
            raise Failure(explain(reply["error"], self._name))
        found = walk(reply["value"], self._take_over)
        if not (isinstance(found, list) and len(found) == len(paths)):
            raise Failure(f"{self._name} gave a reply that makes no sense.")
        return found

    def _new(self, **request: Any) -> Subject:
        reply = self._perform(**request)
        if reply["error"]:
            raise Failure(explain(reply["error"], self._name))
        made: Subject = walk(reply["value"], self._take_over)
        return made

    def _act(self, **request: Any) -> Subject:
        reply = self._perform(**request)
        if reply["error"]:
            raise Failure(explain(reply["error"], self._name))
        return self

    def _perform(self, **request: Any) -> dict[str, Any]:
        reply = self._link.perform({"target": self._handle, **request})
        if reply["ruled_out"]:
            if self._ruled_out is None:  # only a forged reply says so
                raise Failure(f"{self._name} gave a reply that makes no sense.")
            name, line = reply["ruled_out"][0]
            raise Failure(
                self._ruled_out.refuse(name, f" (line {line} of your code)" if line else "")
            )
        return reply

    def _take_over(self, leaf: Any) -> Any:
        if isinstance(leaf, Handle):
            return Subject(self._link, self._name, leaf.number, self._ruled_out, leaf.type)
        return leaf


def _hand_over(leaf: Any) -> Any:
    if isinstance(leaf, Subject):
        return Handle(leaf._handle, "")
    return leaf


def explain(error: dict[str, Any], name: str) -> str:
    """An exception of the answer as a sentence with the student's own line."""
    where = f" in line {error['line']}: `{error['code']}`" if error["line"] else ""
    if is_unanswered(error):
        # The function that raised may be an earlier answer that this one calls.
        raised = error["function"].split(".")[0]
        who = f"It calls `{raised}`, which" if raised not in ("", name) else name
        return f"{who} is not answered yet: the line `raise NotImplementedError()` still runs."
    match error["type"]:
        case "Unfit":
            return f"{name} returned {error['message']}."
        case "TooLong":
            return f"{name} did not end{where}: {error['message']}."
        case "SystemExit":
            return f"{name} called `exit`{where}. An answer has to return its result."
    message = f" ({error['message']})" if error["message"] else ""
    return f"{name} stopped with {error['type']}{where}{message}."


def is_unanswered(error: dict[str, Any]) -> bool:
    """Whether it comes from the line with which an exercise is handed out."""
    return error["type"] == "NotImplementedError" and not error["message"]


def is_its_own(error: dict[str, Any]) -> bool:
    """Whether a line of the answer raises it, and not a call in that line."""
    return bool(re.search(r"(?:^|:\s*)(?:raise|assert)\b", error["code"]))


def is_device_mismatch(error: dict[str, Any]) -> bool:
    """Whether an error says that tensors on two devices met."""
    message = error["message"].lower()
    return error["type"] == "MixedDevices" or any(
        words in message
        for words in ("on the expected device", "same device", "on the same device")
    )
