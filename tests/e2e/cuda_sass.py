"""Counts instructions in machine code as nvdisasm prints it: the shortest way round a loop.

A kernel's fast path (whole groups at aligned addresses, no tail, no mask) is the shortest way from an instruction that
only it has, such as a store of 128 bits, back to the same.  Branches count as taken or not, whichever is shorter; a
predicated instruction counts as one.

Instructions that are .aligned in PTX need all lanes of a warp at once.  Branches at which lanes may part stand between
BSSY and the BSYNC that joins them, so no .aligned instruction may.
"""
import collections
import glob
import os
import re
import shutil
import subprocess

JUMPS, ENDS = ("BRA", "JMP", "BRX"), ("EXIT", "RET")
ALIGNED = ("LDSM", "HMMA", "BAR")


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
        labels, self.ops, self.operands, places = {}, [], [], []
        for line in lines:
            label = re.match(r"(\.L_\w+):", line)
            code = re.match(r"\s+(?:/\*[0-9a-f]+\*/)?\s*(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)(.*?);", line)
            if label:
                labels[label.group(1)] = len(self.ops)
            elif code:
                self.ops.append(code.group(2))
                self.operands.append(code.group(3))
                places.append((code.group(1), code.group(3)))
        self.next = []
        for at, (predicate, operands) in enumerate(places):
            # A comment lists the targets of BRX.  A CALL of a label is a jump, too far for BRA's predicate.
            kind, to = self.ops[at].split(".")[0], re.findall(r"\.L_\w+", operands)
            follows = [labels[one] for one in to if kind in (*JUMPS, "CALL") and one in labels]
            conditional = predicate or ".DIV" in self.ops[at] or kind != "BRX" and re.match(r"\s*[!~]?U?[PR]\d", operands)
            if (kind not in JUMPS or conditional) and (kind not in ENDS or predicate):
                follows.append(at + 1)
            self.next.append([one for one in follows if one < len(places)])

    def aligned(self):
        """Returns how many .aligned instructions there are, how many of them a way from the start leads to, and how many a
        way leads to from a branch whose region, the last that was begun, has not ended."""
        def ended(regions, barrier):
            return tuple(one for one in regions if one[0] != barrier.group(0))
        count = sum(op.split(".")[0] in ALIGNED for op in self.ops)
        seen, reached, apart, queue = set(), set(), set(), [(0, ())]
        while queue:
            at, regions = queue.pop()  # [(barrier, whether it has a branch)]
            if (at, regions) in seen:
                continue
            seen.add((at, regions))
            kind, barrier = self.ops[at].split(".")[0], re.search(r"\bB\d+", self.operands[at])
            if kind in ALIGNED:
                reached.add(at)
                apart |= {at} if any(branched for _, branched in regions) else set()
            elif kind == "BSSY":
                regions = ended(regions, barrier) + ((barrier.group(0), False),)
            elif kind == "BSYNC":
                regions = ended(regions, barrier)
            elif kind == "WARPSYNC":
                regions = tuple((one, False) for one, _ in regions)
            elif len(self.next[at]) > 1 and regions:
                regions = regions[:-1] + ((regions[-1][0], True),)
            queue += [(one, regions) for one in self.next[at]]
        return count, len(reached), len(apart)

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
