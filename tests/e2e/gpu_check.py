#!/usr/bin/env python3
"""bench/gpu-check, its checks and --speed, rehearsed on the emulated programs: rows run, the JSON is complete, PyTorch's
sides are asked for what their names say (a stand-in answers), clocks are read (a stand-in for nvidia-smi), failures give
FAIL, an existing program is used as it is, usage is checked.

Times and rates of a rehearsal mean nothing; rows that need a card are SKIP with a reason.  Prints "checks: P passed, F
failed, S skipped".
"""
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time

from checks import BUILD, SOURCE, check, read, read_json, skip, write
from cuda_common import end_emulated

PROGRAM, GPT_CHECK = (os.path.join(SOURCE, "bench", name) for name in ("gpu-check", "gpt-check"))
EMULATED = "--emulated=" + BUILD
ONLY = "devices,parity float32,graphs,half_sums,memcheck,racecheck,initcheck,synccheck,story,offload,two ranks,MFU 124M"


def gpu_check(*arguments, work=".", program=PROGRAM, **environment):
    done = subprocess.run([sys.executable, program, *arguments], cwd=work, check=False, capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=900)
    path, found = os.path.join(work, "gpu-speed.json" if "--speed" in arguments else "gpu-check.json"), None
    if os.path.exists(path):
        found = read_json(path)
        os.remove(path)
    return done, found


def whole():
    done, found = gpu_check(EMULATED, "--only=" + ONLY)
    check(done.returncode == 0, done.stdout[-800:] + done.stderr[-400:])
    rows = {row["name"]: row["result"] for row in found["rows"]}
    wanted = {"devices": "PASS", "parity float32": "PASS", "graphs": "PASS", "half_sums": "PASS", "story 11.4GiB": "PASS", "story 9.7GiB": "PASS", "offload": "PASS",
              "two ranks": "PASS", "MFU 124M": "PASS",
              "memcheck": "SKIP", "racecheck": "SKIP", "initcheck": "SKIP", "synccheck": "SKIP"}
    check(rows == wanted, f"rows are {rows}")
    story = found["facts"]["story 11.4GiB"]
    check(story["micro_batch"] > 0, "the log does not say how many samples were computed at once")
    check(story["planned"] == story["asked"] == story["used"] > 0, f"planned, asked for and in use differ: {story}")
    before, block, after = done.stdout.split("```")
    check("to paste" in before.splitlines()[-2] and after.strip() == "", f"the end is not the block to paste: {done.stdout[-400:]}")
    check(all(name in block for name in wanted), "the block to paste lacks rows")
    rate = re.search(r"^tokens/s: (\d+) with all of its memory, \d+ in 11.4GiB, \d+ in 9.7GiB \(GPT-2 124M, ", block, re.M)
    check(rate and int(rate.group(1)) > 0 and "\nrelease: " in block, f"no rates or release: {block}")


def built():
    """An existing program, on a machine with neither nvcc nor PyTorch: the rows that need them are skipped by name, and
    the others run.  nvidia-smi is a stand-in; the card is the emulated one."""
    folder, tools = os.path.abspath("built"), os.path.abspath("tools")
    os.makedirs(os.path.join(folder, "tests", "opcheck"))
    os.makedirs(tools)
    for name, program in (("gpt-train", "gpt-train-cuda"), ("tests/opcheck/opcheck", "opcheck-cuda")):
        os.symlink(os.path.join(BUILD, "tests", "cuda_on_cpu", program), os.path.join(folder, name))
    if shutil.which("nvcc", path="/bin"):
        skip("gpu_check_nvcc", "nvcc is in /bin, so that it cannot be taken away")
        return
    os.chmod(write("tools/nvidia-smi", "#!/bin/sh\necho 'NVIDIA GeForce RTX 3060, 8.6, 12288 MiB, 580.82.07'\n"), 0o700)
    only = "--only=machine,build,smoke,devices,memcheck"
    places = [(".", [only, "--build=" + folder])]
    if not any(os.path.exists(os.path.join(SOURCE, place, "gpt-train")) for place in ("", "build")):
        places.append((folder, [only]))  # else the programs of the source folder come first
    for where, arguments in places:
        done, found = gpu_check(*arguments, work=where, PATH=tools + ":/bin", CUDA_HOME="/nonexistent")
        rows = {row["name"]: (row["result"], row["detail"]) for row in found["rows"]}
        for name, result, detail in (("machine", "PASS", "RTX 3060"), ("build", "PASS", "built already, in built"),
                                     ("smoke", "SKIP", "no nvcc"), ("devices", "PASS", "RTX 3060"),
                                     ("memcheck", "SKIP", "no compute-sanitizer")):
            check(name in rows and rows[name][0] == result and detail in rows[name][1], f"{name}: {rows.get(name)}")
        check(done.returncode == 0 and "driver: 580.82.07" in done.stdout, f"{done.returncode}: {done.stdout[-600:]}")
    done, found = gpu_check(only, "--build=" + folder, program=GPT_CHECK, PATH=tools + ":/bin", CUDA_HOME="/nonexistent")
    check(done.returncode == 0 and found and len(found["rows"]) == 5, f"gpt-check with a card: {done.stdout[-600:]} {done.stderr[-300:]}")


# A stand-in for a Python with PyTorch: two samples fit.  The driver's figure of its memory is larger than ours.
OTHER_SIDE = """#!%s
import json, os, sys
if sys.argv[1] == "-c":
    sys.exit(0)
task = json.loads(sys.argv[2])
if task["attention"] == os.environ["BROKEN"]:
    sys.exit("error: no such kernel")
fits = [micro for micro in task["micro_batches"] if micro <= 2]
with open(os.environ["ASKED"], "a") as file:
    file.write(json.dumps([task["attention"], task["micro_batches"], task["most_bytes"] > 0]) + "\\n")
print(json.dumps({"times": [0.5, 0.25], "micro_batch": fits[0], "card_bytes": 1 << 40} if fits else {"out_of_memory": True}))
""" % sys.executable


def speed():
    """Rates, ops with their roofs and gaps, and PyTorch's sides; what lacks something is skipped, and the rest runs."""
    python = write(os.path.abspath("python-of-another-side"), OTHER_SIDE)
    os.chmod(python, 0o700)
    asked = os.path.abspath("asked")
    done, found = gpu_check("--speed", EMULATED, "--python=" + python, BROKEN="cudnn", ASKED=asked)
    rows = {row["name"]: (row["result"], row["detail"]) for row in found["rows"]}
    wanted = {"machine": "PASS", "build": "SKIP", "rates": "PASS", "products": "PASS", "link": "PASS", "steady gpt-train": "PASS", "ops": "PASS",
              "PyTorch flash": "PASS", "PyTorch cuDNN": "SKIP", "PyTorch at our micro-batch": None, "PyTorch within our bytes": "PASS",
              "steady tuned": "PASS", "steady half_sums": "PASS", "MFU 350M": "PASS", "offload speed": "PASS", "roofs": "SKIP", "next": "PASS"}
    check(done.returncode == 0 and rows.keys() == wanted.keys(), f"{done.returncode}: {list(rows)}: {done.stderr[-400:]}")
    check(all(result in (None, rows[name][0]) for name, result in wanted.items()), f"rows are {rows}")
    facts = found["facts"]
    check("no such kernel" in rows["PyTorch cuDNN"][1], rows["PyTorch cuDNN"][1])
    tried = [json.loads(line) for line in read(asked).splitlines()]
    check(tried[0] == ["flash", [4, 2, 1], False] and tried[-1] == ["flash", [4, 2, 1], True], f"asked for {tried}")
    check({one["product"] for one in facts["rates"]["products"]} >= {"head dw", "mlp in", "attention out dx"}, "products lack some")
    check({one["workspace_mib"] for one in facts["rates"]["products"]} == {8, 32, 64}, "not three workspaces")
    check(rows["link"][1].endswith("the profile has no such card"), rows["link"][1])
    check(any(one["op"] == "gemm" and one["seconds"] > 0 and "of_roof" in one for one in facts["ops"]), f"{facts['ops']}")
    check(facts["gaps"]["whole_seconds"] > 0 or not facts["gaps"]["ops_seconds"], f"{facts['gaps']}")
    check(facts["next"] == sorted(facts["next"], key=lambda one: -one[1]) and facts["next"], f"{facts['next']}")
    done, found = gpu_check("--speed", EMULATED, "--only=PyTorch flash,next", "--python=false")
    check([row["result"] for row in found["rows"]] == ["SKIP", "SKIP"] and done.returncode == 0, done.stdout[-600:])


def clocks():
    """nvidia-smi's lines become spans and counts of reasons; an older driver has another name for the reasons."""
    sys.path.insert(0, os.path.dirname(PROGRAM))
    from common import Clocks  # pylint: disable=import-outside-toplevel,import-error
    os.makedirs("smi", exist_ok=True)
    os.chmod(write("smi/nvidia-smi", """#!/bin/sh
case "$*" in
*clocks_event*) exit 2 ;;
*loop-ms=200*) for i in 1 2 3; do echo "$((1500 + i * 10)), 9501, [N/A], 6$i, 0x0000000000000004"; done; exec sleep 60 ;;
*) echo 0x0000000000000000 ;;
esac
"""), 0o700)
    before = os.environ["PATH"]
    os.environ["PATH"] = os.path.abspath("smi") + ":" + before
    with Clocks() as reader:
        end_s = time.monotonic() + 30
        while reader.mark() < 3 and time.monotonic() < end_s:
            time.sleep(0.05)
        text = reader.since(0)
    os.environ["PATH"] = before
    check(text == "clocks.sm 1510 to 1530, median 1520; clocks.mem 9501 to 9501, median 9501; temperature.gpu 61 to 63, "
          "median 62; reasons 0x4 (3 of 3)", text)
    with Clocks(absent=True) as reader:
        check(reader.since(reader.mark()) == "", "clocks of no card")


def ended():
    """A command that takes too long is ended with all processes that it started."""
    sys.path.insert(0, os.path.dirname(PROGRAM))
    loader = importlib.machinery.SourceFileLoader("gpu_check_program", PROGRAM)
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(program)
    path = os.path.abspath("still-there")
    text, status = program.finished(["sh", "-c", f"echo begun; (sleep 3; touch '{path}') & sleep 600"], 1)
    check(status is None and text == "begun\n", f"{status}: {text}")
    time.sleep(3)
    check(not os.path.exists(path), "what a command had started went on")
    check(program.finished(["sh", "-c", "echo done; exit 3"], 60) == ("done\n", 3), "a command's output and status")


def bad():
    done, found = gpu_check(EMULATED, "--only=MFU 124M", GT_CUDA_ON_CPU_FAIL="cudaGraphLaunch:1")
    debug = "graphs" not in done.stdout and found["rows"][0]["result"] == "PASS"  # a debug build replays nothing
    check(debug or (done.returncode == 1 and found["rows"][0]["result"] == "FAIL"), done.stdout[-600:])
    done, found = gpu_check(EMULATED, "--only=MFU", "--minutes=0")
    check(done.returncode == 0 and all("no time left" in row["detail"] for row in found["rows"]), done.stdout[-600:])
    for arguments in (("--minutes=x",), ("--quickly",), ("--only",)):
        done, found = gpu_check(*arguments)
        check(done.returncode == 2 and "Usage:" in done.stderr and found is None, f"{arguments}: {done.returncode}")


end_emulated("gpu_check", whole, built, speed, clocks, ended, bad)
