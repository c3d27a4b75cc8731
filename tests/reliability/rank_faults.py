#!/usr/bin/env python3
"""Kills or stops each rank wherever it moves bytes, and makes the calls that move them fail or hang; then resumes with
another number of ranks, and compares bytes.

  kills   kill -9 of each of two and four forked ranks at each copy through their shared memory, and at each fsync and rename
          of a save: one line names the rank, the checkpoint is the last that was reported, or the next, and a resume with
          another number of ranks ends with the files of one rank in one go; each rank asks for the bytes that were planned
  stops   SIGSTOP at the same places: all ranks have ended within rank_timeout and two seconds, with one line that names the
          rank and what it did
  starts  fork and mmap fail: one line, and nothing stays behind
  mpi     each function of MPI that the program calls fails or hangs, early and late, and moves are killed and stopped: all
          ranks have ended in time, and a resume without MPI has the bytes of one rank

`make check` tries a few of the places; CHECK_LONG=1 more.  Names of the list on the command line select some.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import tiny
from checks import BUILD, SOURCE, check, end, patience, preloadable, skip, some
from kills import judge
from tiny import LONG

KEYS = ["--backend=cpu", "--parts=4", "--micro_batch=1", "--rank_timeout=1"]
KINDS = {"float32": ["--batch_size=4"], "lean": ["--dtype=bfloat16", "--state_format=sr_bf16", "--optimizer=muon"]}
# In the first, a part is two micro-steps and is exchanged after them; elsewhere it is one, which exchanges.
RESUMED = {2: (4, 1), 4: (1, 2)}  # numbers of ranks that go on
SAMPLE = {"kills": 4, "stops": 1, "mpi": 1}
NAMES = "Init_thread Comm_split_type Isend Irecv Test Iprobe Recv Finalize".split()
MPI_ENV = {"GPT_TRAIN_MODULE_DIR": BUILD, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
OPENING = 60  # seconds after which a rank gives up to start or end MPI; and rank_timeout until ranks have read their keys


def some_of(name, cases):
    most = 20 if LONG else SAMPLE[name]
    return cases if len(cases) <= most else random.Random(tiny.SEED).sample(cases, most)


def faulty(out, library, ranks, fault, *arguments):
    """Runs ranks, one with a fault "RANK:CALL:NUMBER:WHAT"; returns the process, and the seconds that it took."""
    begin = time.monotonic()
    done = subprocess.run(tiny.command(out, *KEYS, f"--ranks={ranks}", *arguments), capture_output=True, text=True, check=False,
                          timeout=tiny.LIMIT_SECONDS, env={**tiny.ENVIRONMENT, "LD_PRELOAD": library, "RANK_FAULT": fault})
    return done, time.monotonic() - begin


def calls_of(library, ranks, arguments):
    """Returns (rank, call, number) of each call at which a rank of a run can be killed.  Checks that the ranks ask for the bytes
    that --plan names."""
    counts = os.path.abspath("counts")
    tiny.clear("counted")
    os.environ["RANK_COUNTS"] = tiny.ENVIRONMENT["RANK_COUNTS"] = counts
    check(faulty("counted", library, ranks, "", *arguments)[0].returncode == 0, "the counted run")
    del os.environ["RANK_COUNTS"], tiny.ENVIRONMENT["RANK_COUNTS"]
    calls, arenas = [], []
    for line in tiny.read(counts).decode().splitlines():
        rank, name, number = line.split()
        if name in ("copy", "fsync", "rename"):
            calls += [(int(rank), name, i + 1) for i in range(int(number))]
        if name == "arena":
            arenas.append(int(number))
    os.remove(counts)
    planned = json.loads(tiny.run("planned", *KEYS, f"--ranks={ranks}", *arguments, "--plan=json").stdout)["ranks"]
    check([min(arenas), max(arenas), len(arenas)] == [planned["smallest_bytes"], planned["largest_bytes"], ranks],
          f"{ranks} ranks: planned {planned}, asked for {arenas}")
    check({rank for rank, *_ in calls} == set(range(ranks)), f"each of {ranks} ranks moves bytes")
    return calls


def one_line(what, done, text):
    lines = [line for line in done.stderr.splitlines() if " error: " in line]
    check(done.returncode == 1 and len(lines) == 1 and re.search(text, lines[0]), f"{what}: {done.returncode}, {lines}")


def kills(library):
    cases = [(kind, ranks, *call) for kind, keys in some([*KINDS.items()]) for ranks in some([*RESUMED])
             for call in calls_of(library, ranks, keys)]
    expected = {}
    for kind, keys in some([*KINDS.items()]):
        check(tiny.run("one-" + kind, *KEYS, *keys).returncode == 0, f"{kind} in one go")
        expected[kind] = tiny.contents("one-" + kind)
    reached = 0
    picked = some_of("kills", cases)
    for i, (kind, ranks, rank, name, number) in enumerate(picked):
        what = f"{kind}, rank {rank} of {ranks} killed at {name} {number}"
        tiny.clear("killed")
        done, _ = faulty("killed", library, ranks, f"{rank}:{name}:{number}:kill", *KINDS[kind])
        reached += done.returncode != 0
        if done.returncode != 0:
            one_line(what, done, f"rank {rank} was ended by signal 9, last seen at iter ")
        resume = [*KEYS, *KINDS[kind], f"--ranks={RESUMED[ranks][i % 2]}"]
        judge("killed", expected[kind], what, done, None, one="one-" + kind, arguments=resume)
    check(reached >= 0.95 * len(picked), f"{reached} of {len(picked)} places were reached")
    print(f"killed at {reached} of {len(picked)} places of {len(cases)}")


def stops(library):
    cases = [(ranks, *call) for ranks in some([*RESUMED]) for call in calls_of(library, ranks, [])]
    for ranks, rank, name, number in some_of("stops", cases[::1 if not LONG else 7]):
        what = f"rank {rank} of {ranks} stopped at {name} {number}"
        tiny.clear("stopped")
        done, seconds = faulty("stopped", library, ranks, f"{rank}:{name}:{number}:stop")
        one_line(what, done, rf"rank {rank} has given no sign of life for 1 s, last seen at iter \d+ in \w+")
        check(seconds < patience(3), f"{what}: ended after {seconds:.1f} s")
        check(not (why := tiny.lost("stopped", done)), f"{what}: {why}")


def starts(library):
    for call, number, text in (("mmap", 1, "out of memory for what 2 ranks share"), ("fork", 1, "rank 0 could not be started"),
                               ("fork", 2, "rank 1 could not be started")):
        tiny.clear("started")
        done, _ = faulty("started", library, 2, f"-1:{call}:{number}:fail")
        one_line(f"{call} {number} fails", done, text)
        check(not os.path.exists("started/trainer_state.json"), f"{call} {number} fails: nothing is saved")


def mpi_faulty(library, fault, limit):
    """Returns mpirun's process, and whether all ranks have ended in time."""
    words = ["mpirun", "-n", "2", "env", f"LD_PRELOAD={library}", f"RANK_FAULT={fault}", *tiny.command("mpi", *KEYS)]
    tiny.clear("mpi")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**tiny.ENVIRONMENT, **MPI_ENV},
                          start_new_session=True) as run:
        try:
            out, said = run.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            return None
    until = time.monotonic() + patience(5) # on a busy machine mpirun may end before the kernel has ended rank 0
    while os.path.exists("mpi/lock") and os.path.exists(f"/proc/{tiny.read('mpi/lock').decode().strip()}") and time.monotonic() < until:
        time.sleep(0.05)
    return subprocess.CompletedProcess(words, run.returncode, out, said)


def mpi(_):
    module = os.path.join(BUILD, "gpt-train-mpi.so")
    if not os.path.exists(module) or not shutil.which("mpirun") or not shutil.which("mpicc"):
        return skip("rank_faults_mpi", "a build without --with-mpi, no mpirun or no mpicc")
    library = os.path.abspath("faulty_mpi.so")
    source = os.path.join(SOURCE, "tests", "reliability", "faulty_ranks.c")
    built = subprocess.run(["mpicc", "-DWITH_MPI", "-O0", "-shared", "-fPIC", "-o", library, source], check=False)
    check(built.returncode == 0, "mpicc builds the library")
    check(tiny.run("one-mpi", *KEYS).returncode == 0, "one rank in one go")
    expected = tiny.contents("one-mpi")
    cases = [(rank, "Isend", number, what) for what in ("kill", "stop") for number in range(5, 120, 6) for rank in (1, 0)]
    for name in NAMES:
        once = name in ("Init_thread", "Comm_split_type", "Finalize", "Recv")
        cases += [(rank, name, number, what) for number in ((1,) if once else (1, 40, 100)) for rank in (0, 1)
                  for what in ("fail", "hang")]
    for rank, name, number, what in some_of("mpi", cases if LONG else cases[:40]):
        fault, at_end = f"{rank}:MPI_{name}:{number}:{what}", name in ("Init_thread", "Comm_split_type", "Finalize")
        done = mpi_faulty(library, fault, OPENING + 60)
        check(done is not None, f"{fault}: no end")
        if done is None or done.returncode == 0 and name == "Recv": # a run may be over before the first sign of life
            continue
        check(done.returncode != 0, f"{fault}: exit status 0")
        if what in ("stop", "hang") and not at_end:
            check(re.search(rf"rank {rank}( on \S+)? has given no sign of life for 6?[10] s, last seen at", done.stderr),
                  f"{fault}: {done.stderr[-600:]}")
        judge("mpi", expected, fault, done, None, one="one-mpi", arguments=[*KEYS, "--ranks=4"])
    return None


def main():
    library = preloadable("rank_faults", tiny.GPT_TRAIN, "tests/reliability/faulty_ranks.c")
    if library is None:
        return
    tiny.make_data()
    functions = {"kills": kills, "stops": stops, "starts": starts, "mpi": mpi}
    for name in tiny.arguments() or functions:
        functions[name](library)


end(main)
