#!/usr/bin/env python3
"""Ranks that MPI's launcher starts: the same command, the bytes of one process.

  bytes     2 tasks (4 in make check-long) write the files and losses of one process with as many parts; answers are given
            once
  full      a disk that is full on rank 0 leaves nothing half written, and all ranks go on; (in make check-long) the same
            command as another user than root
  unequal   ranks with less memory than rank 0 make all of them plan smaller micro-batches; with other keys they are refused
  failing   a rank that is stopped or killed is named, and all end in time; a signal to one saves; forked ranks resume
  built     a program finds the module of its build folder by itself, and none beside a copy of it or in the current folder
  refused   bad keys and data, once, with the exit status of one process; a launcher that MPI does not know; no module
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time

from checks import BUILD, GPT_TRAIN, LONG, check, end, make_tokens, patience, ran, read, skip, some, wait_for, write
from ranks import TINY, results, resumed, train

MODULE = os.path.join(BUILD, "gpt-train-mpi.so")
ENV = {**os.environ, "GPT_TRAIN_MODULE_DIR": BUILD, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
       "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def mpirun(tasks, out, *arguments, last=None, program=GPT_TRAIN):
    """Starts tasks; the last one with more arguments, if `last` has them, and another program.  The task chooses, because
    mpirun of Open MPI 5.0.7 crashes where a colon separates two programs."""
    command = [GPT_TRAIN, *TINY, "--backend=cpu", "--threads=1", f"--out_dir={out}", *arguments]
    if last is not None:
        others = shlex.join([program, *command[1:], *last])
        command = ["sh", "-c", f"[ $OMPI_COMM_WORLD_RANK -lt {tasks - 1} ] || exec {others}; exec {shlex.join(command)}"]
    return subprocess.Popen(["mpirun", "-n", str(tasks), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)


def ended(run, status, text=""):
    """Waits for a run; returns what it said on standard output."""
    out, said = run.communicate(timeout=patience(60))
    check(run.returncode == status and text in said, f"exit status {run.returncode}, not {status}, '{text}': {said[-900:]}")
    check(said.count(": error") == (0 < status < 128), f"at most one error line: {said[-900:]}")
    return out


def bytes_of_one():
    train("one", "--max_iters=5")
    for tasks in some((2, 4)):
        said = ended(mpirun(tasks, f"mpi{tasks}", "--max_iters=5"), 0)
        check(results(f"mpi{tasks}") == results("one"), f"{tasks} tasks: the bytes and losses of one process")
        check(f"ranks: {tasks}" in said and "MPI" in said, f"the start names MPI: {said[:900]}")
    for arguments in some((["--plan"], ["--help"])):
        check(ended(mpirun(2, "none", *arguments), 0).count("Plan " if "--plan" in arguments else "Usage") == 1,
              f"answered once: {arguments}")


def full():
    command = [GPT_TRAIN, *TINY, "--backend=cpu", "--threads=1", "--max_iters=5"]
    words = ["mpirun", "-n", "2", "sh", "-c", "ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\"", *command, "--out_dir=full"]
    # Open MPI's own memory would be files, too.
    said = ran(*words, env={**ENV, "OMPI_MCA_shmem": "sysv"}, timeout=patience(60))
    check(said.returncode == 1 and "iter 3 could not be saved; this run has saved no checkpoint; training continues" in said.stderr, f"{said.returncode} {said.stderr[-900:]}")
    check(not os.path.exists("full/trainer_state.json"), "nothing is half saved")
    if not LONG or os.geteuid() != 0:
        return
    shutil.copytree("data", "user/data")
    for path in (os.getcwd(), "user", "user/data"):
        os.chmod(path, 0o777)
    words = ["runuser", "-u", "nobody", "--", "env", "HOME=" + os.path.abspath("user"), "mpirun", "-n", "2", *command, "--out_dir=run"]
    said = ran(*words, env=ENV, timeout=patience(60), cwd="user")
    check(said.returncode == 0 and results("user/run") == results("one"), f"another user: {said.returncode} {said.stderr[-900:]}")


def unequal():
    """Ranks that could take different micro-batches take the smallest; other differences are refused."""
    wide = ["--n_embd=64", "--block_size=256", "--batch_size=16", "--gradient_accumulation_steps=1", "--micro_batch=0",
            "--parts=2", "--max_iters=0"]
    said = ended(mpirun(2, "unequal", *wide, last=["--memory_budget=150MiB"]), 0)
    steps = re.search(r"plan: .* (\d+) steps of (?:up to )?(\d+) sequences", said)
    check(steps and int(steps.group(1)) > 2 and int(steps.group(2)) < 8, f"the micro-batch that fits both: {said[:900]}")
    other = os.path.abspath("other") # the same program, but for a digit of its version
    write(other, re.sub(rb"\d(?=jansson )", b"x", read(GPT_TRAIN)))
    os.chmod(other, 0o755)
    for status, text, last, program in some((
            (2, "has another batch_size than rank 0", ["--batch_size=8"], GPT_TRAIN),
            (3, ": not enough memory: this run needs at least ", ["--memory_budget=1MiB"], GPT_TRAIN),
            (2, ": ./nothing/: cannot open this dataset folder", ["--dataset=./nothing"], GPT_TRAIN),
            (2, "has another build of gpt-train than rank 0", [], other),
            (2, ": unlike: holds no checkpoint", ["--init_from=resume"], GPT_TRAIN),
            (2, ": --n_layr=3: unknown key", ["--n_layr=3"], GPT_TRAIN)), 4):
        ended(mpirun(2, "unlike", last=last, program=program), status, text)
        check(not os.path.exists("unlike/trainer_state.json"), f"nothing is saved: {text}")


def tasks_of(run):
    with open(f"/proc/{run.pid}/task/{run.pid}/children", encoding="ascii") as file:
        return sorted(map(int, file.read().split()))


def failing():
    for number, victim, status, text in some((
            (signal.SIGSTOP, 1, 1, "rank 1 on "), (signal.SIGTERM, 1, 143, "stopped by signal 15; saving"),
            (signal.SIGSTOP, 0, 1, "rank 0 on "), (signal.SIGKILL, 0, 137, ""), (signal.SIGKILL, 1, 137, "")), 2):
        out = f"end{number}{victim}"
        run = mpirun(2, out, "--max_iters=1000000", "--rank_timeout=1")
        wait_for(lambda: os.path.exists(f"{out}/trainer_state.json"))
        pids = tasks_of(run)
        check(len(pids) == 2, f"two tasks: {pids}")
        os.kill(pids[victim], number)
        begin = time.monotonic()
        if status == 137: # mpirun may be the first to notice
            run.communicate(timeout=patience(60))
            check(run.returncode in (1, 137), f"killed: exit status {run.returncode}")
        else:
            ended(run, status, text)
        check(time.monotonic() - begin < patience(3) or status == 143, f"ended in {time.monotonic() - begin:.1f} s")
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < begin + patience(5):
            time.sleep(0.02)
        check(not any(os.path.exists(f"/proc/{pid}") for pid in pids), "no process stays")
        resumed(out, 2)


def refused():
    for status, text, arguments in some((
            (3, "not enough memory", ["--memory_budget=100MiB"]),
            (2, "cannot open this dataset folder", ["--dataset=./nothing"]),
            (2, "unknown key n_layr", ["--n_layr=3"]),
            (2, "ranks=4, but a launcher started 2 tasks", ["--ranks=4"]))):
        ended(mpirun(2, "refused", *arguments), status, text)
        check(not os.path.exists("refused"), f"nothing stays behind: {arguments}")
    for text, settings in (("knows of 1; use that MPI's own mpirun, or srun --mpi=pmix", {}),
                           ("MPI cannot be used", {"GPT_TRAIN_MODULE_DIR": os.getcwd() + "/nothing"})):
        for task in (0, 1):
            done = subprocess.run([GPT_TRAIN, *TINY, "--out_dir=refused"], check=False, capture_output=True, text=True,
                                  env={**ENV, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": str(task), **settings})
            check(done.returncode == 2 and (text in done.stderr) == (task == 0),
                  f"2 tasks that are none of MPI's: {done.returncode} {done.stderr}")


def built():
    """Without GPT_TRAIN_MODULE_DIR.  A file that is no object would be named if it were loaded."""
    alone = {name: value for name, value in ENV.items() if name != "GPT_TRAIN_MODULE_DIR"}
    command = [*TINY, "--backend=cpu", "--threads=1", "--max_iters=5"]
    done = ran("mpirun", "-n", "2", GPT_TRAIN, *command, "--out_dir=built", env=alone, timeout=patience(60))
    check(done.returncode == 0 and results("built") == results("one"), f"from the build folder: {done.returncode} {done.stderr[-900:]}")
    for folder in (".", "copied"):
        write(f"{folder}/gpt-train-mpi.so", b"no shared object")
    write("config.status", b"")
    copy = shutil.copy(GPT_TRAIN, "copied")
    done = ran(copy, *command, "--out_dir=copied/run", env={**alone, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"})
    check("too short" not in done.stderr, f"a module that is beside a copy of the program, or here, is loaded: {done.stderr}")
    os.chmod(write("copied/config.status", b""), 0o755)
    done = ran(copy, *command, "--out_dir=copied/run", env={**alone, "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"})
    check(done.returncode == 2 and "too short" in done.stderr, f"a build folder's module: {done.stderr}")


def module_there():
    if os.path.exists(MODULE) and shutil.which("mpirun"):
        return True
    skip("ranks_mpi", "a build without --with-mpi, or no mpirun")
    return False


if __name__ == "__main__":
    end(*((bytes_of_one, full, unequal, failing, built, refused) if module_there() else ()), begin=lambda: make_tokens("data"))
