#!/usr/bin/env python3
"""bench/gpu-check, its checks, --speed and --quick, rehearsed on the emulated programs: rows run, the JSON is complete,
PyTorch's sides are asked for what their names say (a stand-in answers), clocks are read (a stand-in for nvidia-smi), failures
give FAIL and the rows after them run, rows end in time, a run that is ended prints what it has, what was carried is unpacked and
used, an existing program is used as it is, the table's predictions are those of doc/cuda.md, usage is checked.

Times and rates of a rehearsal mean nothing; rows that need a card are SKIP with a reason.
"""
import glob
import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

from checks import BUILD, LONG, SOURCE, check, ran, read, read_json, skip, wait_for, write
from cuda_common import FOLDER, end_emulated

PROGRAM, GPT_CHECK = (os.path.join(SOURCE, "bench", name) for name in ("gpu-check", "gpt-check"))
EMULATED = "--emulated=" + BUILD
ONLY = "devices,graphs,memcheck,racecheck,initcheck,synccheck,story,offload,two ranks,MFU 124M"


def gpu_check(*arguments, work=".", program=PROGRAM, **environment):
    done = ran(sys.executable, program, *arguments, environment=environment, timeout=900, cwd=work)
    kind = next((word[2:] for word in arguments if word in ("--speed", "--quick")), "check")
    path, found = os.path.join(work, f"gpu-{kind}.json"), None
    if os.path.exists(path):
        found = read_json(path)
        os.remove(path)
    return done, found


def whole():
    done, found = gpu_check(EMULATED, "--only=" + ONLY)
    check(done.returncode == 0, done.stdout[-800:] + done.stderr[-400:])
    rows = {row["name"]: row["result"] for row in found["rows"]}
    wanted = {"devices": "PASS", "graphs": "PASS", "story 11.4GiB": "PASS", "story 9.7GiB": "PASS", "offload": "PASS",
              "two ranks": "PASS", "MFU 124M": "PASS",
              "memcheck": "SKIP", "racecheck": "SKIP", "racecheck of both": "SKIP", "initcheck": "SKIP", "synccheck": "SKIP"}
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
    os.chmod(write("tools/nvidia-smi", """#!/bin/sh
case "$*" in
*--id=0*) echo 'WARNING: infoROM is corrupted at gpu 0000:01:00.0'; echo 'NVIDIA GeForce RTX 3060, 8.6, 12288 MiB, 580.82.07' ;;
*--id=3*) echo 'NVIDIA H200, 9.0, [N/A], 580.82.07' ;;
*) echo 'No devices were found'; exit 6 ;;
esac
"""), 0o700)
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
    done, found = gpu_check("--only=machine", "--build=" + folder, PATH=tools + ":/bin", CUDA_VISIBLE_DEVICES="3,0")
    check(found["rows"][0]["detail"] == "NVIDIA H200, sm_90, [N/A], driver 580.82.07", f"the first visible card: {found['rows']}")
    done, found = gpu_check("--only=machine", "--build=" + folder, "--json=/nonexistent/figures", PATH=tools + ":/bin")
    check(done.returncode == 0 and "not stored" in done.stdout and done.stdout.count("```") == 2, f"no place for figures: {done.stdout}")
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
    own = [one for one in facts["rates"]["products"] if one["own"]]
    check({(one["half_sums"], one["end"]) for one in own} == {(True, ""), (False, ""), *((False, end) for end in (
        "gelu", "gelu slope", "residual"))} and all(one["tflops"] <= one["tuned_tflops"] for one in own), f"own products: {own[:2]}")
    check("own before cuBLASLt's" in facts["product gains"] and facts["ends"].keys() == {"gelu", "residual"}, f"{facts['product gains']}")
    check(facts["rates"]["fp8_fp32_sums_flops"] == facts["rates"]["fp8_fp16_sums_flops"] == 0 < facts["rates"]["fp16_sums_flops"],
          "rates of instructions that the emulator has not")
    check(rows["link"][1].endswith("the profile has no such card"), rows["link"][1])
    check(any(one["op"] == "gemm" and one["seconds"] > 0 and "of_roof" in one for one in facts["ops"]), f"{facts['ops']}")
    check(facts["gaps"]["whole_seconds"] > 0 or not facts["gaps"]["ops_seconds"], f"{facts['gaps']}")
    check(facts["next"] == sorted(facts["next"], key=lambda one: -one[1]) and facts["next"], f"{facts['next']}")
    done, found = gpu_check("--speed", EMULATED, "--only=PyTorch flash,next", "--python=false")
    check([row["result"] for row in found["rows"]] == ["SKIP", "SKIP"] and done.returncode == 0, done.stdout[-600:])


def quick():
    """--quick without a card is one line; with the emulated one its rows run, and the table comes last."""
    os.makedirs("empty", exist_ok=True)
    done, found = gpu_check("--quick", PATH=os.path.abspath("empty"))
    check(done.returncode == 77 and found is None, f"without a card: {done.returncode}, {found}")
    check(done.stdout == "gpt-check: no nvidia-smi, so no NVIDIA driver; nothing is checked or measured\n" and not done.stderr,
          f"without a card: {done.stdout}{done.stderr[-300:]}")
    only = "parity float32,at once,opcheck at once,half_sums,racecheck,story,steady gpt-train,ops,LoRA,OpenCL,large"
    done, found = gpu_check("--quick", EMULATED, "--only=" + only, "--seconds=1", "--minutes=60")
    rows = {row["name"]: (row["result"], row["detail"]) for row in found["rows"]}
    skipped = {name for name, (result, _) in rows.items() if result == "SKIP"}
    check(done.returncode == 0 and skipped == {"racecheck", "OpenCL"} and len(rows) == 12, f"rows are {rows}")
    check("the bits of two passes" in rows["at once"][1], rows["at once"][1])
    before, table = done.stdout.rsplit("\n\n", 1)
    lines = table.strip().split("\n")
    check("```" in before and lines.pop() == "```" and lines[0].split() == ["predicted", "measured", "ratio"], f"the end is {table}")
    known = {re.split("  +", line)[0]: line.split()[-3:] for line in lines[1:]}
    check(known["tokens/s"][0] == "-" and float(known["tokens/s"][1]) > 0, f"{known['tokens/s']}")
    check(known["LoRA 8B in 12GiB, MiB"][2] == known["story in 11.4GiB, MiB"][2] == "1.000", f"{known}")
    update = float(known["update, ms"][1])
    parts = sum(float(words[1]) for name, words in known.items() if name.endswith(", ms")) - update
    check(abs(parts - update) < 0.01 * update, f"the parts of an update add up to {parts} of {update} ms")


def carry_stand_in(folder):
    """Makes what packaging/carry makes, from this build: the programs in a wheel, which load the emulated module."""
    for name in ("bench", "emulated"):
        os.makedirs(os.path.join(folder, name))
    for name in os.listdir(os.path.join(SOURCE, "bench")):
        if os.path.isfile(os.path.join(SOURCE, "bench", name)):
            shutil.copy(os.path.join(SOURCE, "bench", name), os.path.join(folder, "bench"))
    with zipfile.ZipFile(os.path.join(folder, "gpt_train-0-py3-none-any.whl"), "w") as wheel:
        for name, program in (("scripts/gpt-train", "gpt-train-module"), ("data/libexec/gpt-train/opcheck", "opcheck-module")):
            wheel.write(os.path.join(FOLDER, program), "gpt_train-0.data/" + name)
        wheel.writestr("gpt_train-0.dist-info/METADATA", "not a program")
    module = os.path.join(FOLDER, "module", "gpt-train-cuda.so")
    shutil.copy(module, os.path.join(folder, "emulated"))
    with zipfile.ZipFile(os.path.join(folder, "variants.zip"), "w") as variants:
        variants.write(module, "same/gpt-train-cuda.so")
        variants.writestr("broken/gpt-train-cuda.so", "not a module")
    write(os.path.join(folder, "commit"), "v1-2-g3\n")
    os.chmod(write(os.path.join(folder, "emulated/smoke"), "#!/bin/sh\necho 'checks: 16 passed, 0 failed, 0 skipped'\n"), 0o700)


def carried():
    """What packaging/carry made is unpacked and used; a module that cannot be loaded fails by name, and the rest goes on."""
    folder = os.path.abspath("carried")
    carry_stand_in(folder)
    program = os.path.join(folder, "bench", "gpu-check")
    only = "--only=smoke,devices,steady gpt-train,ops,variant"
    before = os.umask(0)  # with which folders are made that anyone may write to
    done, found = gpu_check("--quick", f"--emulated={folder}/emulated", only, "--minutes=60", program=program)
    os.umask(before)
    rows = {row["name"]: (row["result"], row["detail"]) for row in found["rows"]}
    check(done.returncode == 1 and rows["build"] == ("PASS", "unpacked from gpt_train-0-py3-none-any.whl"), f"{rows} {done.stderr[-400:]}")
    check(rows.pop("variant broken", ("", ""))[0] == "FAIL" and "gpt-train ended with 1" in done.stdout, f"rows are {rows}")
    check(len(rows) == 6 and all(result == "PASS" for result, _ in rows.values()), f"rows are {rows}")
    check("commit v1-2-g3" in found["facts"]["release"], found["facts"]["release"])
    check(found["facts"]["forecasts"]["module same, tokens/s"][1] > 0, f"{found['facts']['forecasts']}")
    done, found = gpu_check("--quick", f"--emulated={folder}/emulated", "--only=devices", program=program, GT_CUDA_ON_CPU_DRIVER="0")
    check([row["result"] for row in found["rows"]] == ["FAIL"] and "no NVIDIA driver is loaded" in done.stdout
          and done.returncode == 1, f"without a driver: {done.stdout}")
    done, found = gpu_check("--quick", f"--emulated={folder}/emulated", "--only=devices", program=program,
                            GT_CUDA_ON_CPU_FAIL="cublasLtCreate:1")
    check("no card: cuBLASLt: opening the library: CUBLAS_STATUS_ALLOC_FAILED" in found["rows"][0]["detail"], f"no library: {found['rows']}")


def gpu_check_module():
    """Returns bench/card_check.py as a module."""
    sys.path.insert(0, os.path.dirname(PROGRAM))
    loader = importlib.machinery.SourceFileLoader("gpu_check_program", os.path.join(SOURCE, "bench", "card_check.py"))
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(program)
    return program


def libraries():
    """The libraries of NVIDIA's wheels are found where the Python is that has them."""
    found = [os.path.abspath(f"site/nvidia/{place}/lib") for place in ("cu13", "nccl")]
    for folder, name in zip((*found, os.path.abspath("site/nvidia/other/lib")), ("libcublasLt.so.13", "libnccl.so.2", "libother.so.1")):
        os.makedirs(folder)
        write(os.path.join(folder, name), "")
    os.environ["PYTHONPATH"] = os.path.abspath("site")
    program = gpu_check_module()
    rows = program.Check({"build": BUILD})
    folders = rows.library_folders()
    rows.remove()
    del os.environ["PYTHONPATH"]
    check([folder for folder in folders if "/site/" in folder] == found, f"folders are {folders}")


def limits():
    """A row that exceeds its own limit fails by name, with what was running, and the next one runs."""
    program = gpu_check_module()
    rows = program.Check({"build": BUILD})
    rows.row("slow", lambda: rows.run(["sh", "-c", "echo begun; exec sleep 600"]), limit_s=1)
    rows.row("next", lambda: rows.run(["echo", "done"]).strip(), limit_s=500)
    rows.row("unlimited", lambda: str(rows.row_ends))
    rows.row("odd", lambda: str(int("[N/A]")))
    program.ROW_SECONDS_LEAST = 1
    rows.limit_s = rows.limit_s - rows.left_s() + 2  # two seconds are left
    rows.row("many", lambda: "".join(rows.run(["sleep", "0.7"]) for _ in range(10)))
    rows.row("late", lambda: "begun")
    rows.remove()
    found = [(row["name"], row["result"], row["detail"]) for row in rows.rows]
    check(found[:3] == [("slow", "FAIL", "sh is not done within the 1 s of this row"), ("next", "PASS", "done"), ("unlimited", "PASS", "None")],
          f"rows are {found}")
    check(found[3][:2] == ("odd", "FAIL") and re.match("ValueError in line [0-9]+ of gpu_check.py: invalid literal", found[3][2]), found[3])
    check([row[:2] for row in found[4:]] == [("many", "SKIP"), ("late", "SKIP")] and rows.rows[4]["seconds"] < 5, f"rows are {found[4:]}")


def predictions():
    """The predictions in doc/cuda.md are those of the table; a card's name counts as a whole."""
    predicted = gpu_check_module().predicted
    text = read(os.path.join(SOURCE, "doc", "cuda.md")).decode().split("## Predictions")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("| ")]
    doc = {row[0]: dict(zip(rows[0], row)) for row in rows[1:]}
    names = [name for name in rows[0] if name in predicted.NAMES]
    check(set(doc) == set(predicted.CARDS) and len(names) >= 3, f"{set(doc)}, {names} in doc/cuda.md")
    for card, values in predicted.CARDS.items():
        known = dict(zip(predicted.NAMES, values))
        for name in names:
            said, value = doc[card][name].replace(",", ""), known[name]
            check(said == "-" if value is None else float(said) == value, f"{card}, {name}: {value} here, {said} in doc/cuda.md")
    for device, card in (("NVIDIA GeForce RTX 4070", "RTX 4070"), ("NVIDIA H100 80GB HBM3", "H100"), ("NVIDIA GeForce RTX 4070 Ti", None),
                         ("NVIDIA A10", None)):
        found = predicted.predictions(device)
        check(found["tokens/s"] == (predicted.CARDS[card][0] if card else None), f"{device}: {found['tokens/s']}")
    facts = {"device": "NVIDIA H100 80GB HBM3", "steady gpt-train": {"tokens_per_s": 280e3, "seconds": 0.234}}
    line = next(line for line in predicted.table(facts) if line.startswith("tokens/s "))
    check(line.split() == ["tokens/s", "560000", "280000", "0.500"], line)
    facts = {"device": "NVIDIA GeForce RTX 4070", "product gains": {"own before cuBLASLt's": 0.9},
             "ends": {"gelu": 0.0104 / 12 / 65536, "residual": 0.01 / 12 / 65536}}
    lines = {line[:34].strip(): line.split()[-3:] for line in predicted.table(facts)}
    check(lines["own products, of cuBLASLt's rate"] == ["1", "0.9", "0.900"], f"{lines}")
    check(lines["ends of gelu (ms)"] == ["20.8", "10.4", "0.500"] and lines["ends of the residual (ms)"][1] == "10", f"{lines}")


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
        wait_for(lambda: reader.mark() >= 3)
        text = reader.since(0)
    os.environ["PATH"] = before
    check(text == "clocks.sm 1510 to 1530, median 1520; clocks.mem 9501 to 9501, median 9501; temperature.gpu 61 to 63, "
          "median 62; reasons 0x4 (3 of 3)", text)
    with Clocks(absent=True) as reader:
        check(reader.since(reader.mark()) == "", "clocks of no card")


def ended():
    """A command that takes too long is ended with all processes that it started."""
    program = gpu_check_module()
    path = os.path.abspath("still-there")
    text, status = program.finished(["sh", "-c", f"echo begun; (sleep 3; touch '{path}') & sleep 600"], 1)
    check(status is None and text == "begun\n", f"{status}: {text}")
    time.sleep(3)
    check(not os.path.exists(path), "what a command had started went on")
    check(program.finished(["sh", "-c", "echo done; exit 3"], 60) == ("done\n", 3), "a command's output and status")
    begin = time.monotonic()
    text, status = program.finished(["sh", "-c", "echo begun; setsid sleep 60 & sleep 600"], 1)
    check(status is None and text == "begun\n" and time.monotonic() - begin < 30, "a child of its own session delays the end")


def terminated():
    """A run that a signal ends prints the block, stores its figures, and leaves neither processes nor files."""
    folder, log = os.path.abspath("temporary"), os.path.abspath("log")
    os.makedirs(folder)
    with open(log, "w", encoding="utf-8") as file:
        with subprocess.Popen([sys.executable, PROGRAM, "--quick", EMULATED, "--only=machine,smoke,story"], stdout=file, stderr=file,
                              env={**os.environ, "TMPDIR": folder}) as process:
            wait_for(lambda: glob.glob(folder + "/*/measured"))
            for _ in range(100):  # timeout sends two
                process.send_signal(signal.SIGTERM)
                time.sleep(0.0001)
            status = process.wait(60)
    text, found = read(log).decode(), read_json("gpu-quick.json")
    rows = {row["name"]: (row["result"], row["detail"]) for row in found["rows"]}
    check(status == 1 and rows["machine"][0] == "PASS" and rows["story 11.4GiB"] == ("FAIL", "it was ended"), f"{status}: {rows}: {text}")
    check(text.rstrip().endswith("```") and "story 11.4GiB      FAIL" in text and "predicted" in text, f"the end is {text[-600:]}")
    check(not os.listdir(folder) and "Traceback" not in text, f"left behind: {os.listdir(folder)}: {text}")
    os.remove("gpu-quick.json")


def bad():
    done, found = gpu_check(EMULATED, "--only=MFU 124M", GT_CUDA_ON_CPU_FAIL="cudaGraphLaunch:1")
    debug = "graphs" not in done.stdout and found["rows"][0]["result"] == "PASS"  # a debug build replays nothing
    check(debug or (done.returncode == 1 and found["rows"][0]["result"] == "FAIL"), done.stdout[-600:])
    done, found = gpu_check(EMULATED, "--only=MFU", "--minutes=0")
    check(done.returncode == 0 and all("no time left" in row["detail"] for row in found["rows"]), done.stdout[-600:])
    for arguments in (("--minutes=x",), ("--quickly",), ("--only",), ("--seconds=x",)):
        done, found = gpu_check(*arguments)
        check(done.returncode == 2 and "Usage:" in done.stderr and found is None, f"{arguments}: {done.returncode}")


end_emulated("gpu_check", whole, built, *([speed] if LONG else ()), quick, carried, libraries, limits, predictions, clocks, ended, terminated, bad)
