"""A link to an agent in another process: the stand-in for the sandboxed kernel to come.

Frames on the pipes are 8 bytes of length and a message (autograder.judge.messages). A request
{"open": [exercise, mistake's place or None]} says which answer the next requests are about.
"""

import struct
import subprocess
import sys

from autograder.judge.messages import decode, encode


class ProcessLink:
    def __init__(self):
        self._child = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def open(self, exercise, place=None):
        self.perform({"open": [exercise, place]})
        return self

    def perform(self, request):
        write(self._child.stdin, encode(request))
        return decode(read(self._child.stdout))

    def close(self):
        self._child.stdin.close()
        self._child.wait(timeout=30)
        self._child.stdout.close()


def write(pipe, message):
    pipe.write(struct.pack(">Q", len(message)) + message)
    pipe.flush()


def read(pipe):
    (length,) = struct.unpack(">Q", pipe.read(8))
    return pipe.read(length)


def main():
    import torch

    from autograder import course
    from autograder.judge.diagnose import agent_for

    torch.set_num_threads(1)  # as in conftest.py
    agent = None
    while header := sys.stdin.buffer.read(8):
        request = decode(sys.stdin.buffer.read(struct.unpack(">Q", header)[0]))
        if "open" in request:
            name, place = request["open"]
            exercise = course.exercise(name)
            answer = exercise.reference if place is None else exercise.mistakes[place].answer
            agent, reply = agent_for(exercise, answer), None
        else:
            reply = agent.perform(request)
        write(sys.stdout.buffer, encode(reply))


if __name__ == "__main__":
    main()
