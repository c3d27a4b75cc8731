"""Counts instructions in machine code as nvdisasm prints it: the shortest way round a loop.

A kernel's fast path (whole groups at aligned addresses, no tail, no mask) is the shortest way from an instruction that
only it has, such as a store of 128 bits, back to the same.  Branches count as taken or not, whichever is shorter; a
predicated instruction counts as one.
"""
import collections
import glob
import os
import re
import shutil
import subprocess

JUMPS, ENDS = ("BRA", "JMP"), ("EXIT", "RET", "BRX")


def disassembler(nvcc, python_torch):
    """Returns the path of nvdisasm: from $NVDISASM, PATH, the toolkit, or the copy in PyTorch's triton; or None."""
    beside = [os.path.join(os.path.dirname(os.path.realpath(nvcc)), "nvdisasm")]
    environment = os.path.join(os.path.dirname(os.path.dirname(python_torch)), "lib", "python3*", "site-packages")
    triton = glob.glob(os.path.join(environment, "triton", "backends", "nvidia", "bin", "nvdisasm"))
    found = [os.environ.get("NVDISASM"), shutil.which("nvdisasm"), *beside, *triton]
    return next((path for path in found if path and os.access(path, os.X_OK)), None)


class Code:
    """The instructions of a function, their operations, and which may follow each."""

    def __init__(self, lines):
        labels, self.ops, places = {}, [], []
        for line in lines:
            label = re.match(r"(\.L_\w+):", line)
            code = re.match(r"\s+(?:/\*[0-9a-f]+\*/)?\s*(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(.*?);", line)
            if label:
                labels[label.group(1)] = len(self.ops)
            elif code:
                self.ops.append(code.group(2))
                places.append((code.group(1), code.group(3)))
        self.next = []
        for at, (predicate, operands) in enumerate(places):
            kind, to = self.ops[at].split(".")[0], re.search(r"\.L_\w+", operands)
            follows = [labels[to.group(0)]] if kind in JUMPS and to and to.group(0) in labels else []
            conditional = predicate or ".DIV" in self.ops[at] or re.match(r"\s*[!~]?U?[PR]\d", operands)
            if (kind not in JUMPS or conditional) and (kind not in ENDS or predicate):
                follows.append(at + 1)
            self.next.append([one for one in follows if one < len(places)])

    def round(self, start, without):
        """Returns the instructions of the shortest way from `start` back to it, or an empty list."""
        before, queue = {}, collections.deque([start])
        while queue:
            at = queue.popleft()
            for one in self.next[at]:
                if one in before or (without and re.match(without, self.ops[one])):
                    continue
                before[one] = at
                if one == start:
                    way = [at]
                    while way[-1] != start:
                        way.append(before[way[-1]])
                    return way
                queue.append(one)
        return []

    def shortest(self, through, also, without=None):
        """Returns the number of instructions of the shortest loop through one operation that has another one too."""
        ways = [self.round(at, without) for at, op in enumerate(self.ops) if re.match(through, op)]
        return min((len(way) for way in ways if any(re.match(also, self.ops[at]) for at in way)), default=0)


def functions(nvdisasm, cubin):
    """Returns {mangled name: Code}."""
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^\.text\.(\S+):$", text, flags=re.M)
    return {name: Code(lines.splitlines()) for name, lines in zip(parts[1::2], parts[2::2])}
