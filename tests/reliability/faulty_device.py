"""Runs on a device of which one call fails, and checks of what they leave, for cuda_faults.py.

A fault is "CALL:N:KIND": the N-th call finds no memory, is refused (`launch`), loses the device, or hangs.  Checked
after it: the exit status is neither a signal's nor 0; there is one error line; there is no hang (the watchdog ends it,
and names the call and, during an op, the op); nothing is leaked; a run without faults continues from the folder to the
bytes of an uninterrupted run.  Success is accepted when nothing depends on the call, or when a lost device is not used
any more.  Subjects are training runs unless stated otherwise.

The number of calls depends on the available time: rates of products and ops are measured by repeating calls, and other
work on the machine makes these fewer.  A fault whose call a run does not reach moves to the middle of the calls of that
run.
"""
import os
import shutil
import subprocess

import tiny

from checks import check, error_lines, ran

KINDS = ("memory", "launch", "lost")
WATCHDOG_SECONDS = (1, 10, 60)  # a starved process is slow too: the next one if no op was named
COMPILE_SECONDS = 1200  # when kernels have to be compiled first
MOVES = 8  # of a fault to an earlier call


class Subject:
    """A program, a backend, and the way to request a fault; wanted() is the variable's value for one, reported() what
    the process wrote at its end: calls by name, those refused after "refused:", objects that are "left"; {} when it died."""

    begin = None      # initial folder of a run with a fault; None: a new run
    closing = ()      # calls besides `gives_back` that closing makes; a lost device may refuse them once
    gives_back = ()   # prefixes or suffixes of the names of calls that release something

    def __init__(self, name, program, backend, variable, report, **environment):
        self.name, self.program, self.variable, self.report = name, program, variable, report
        self.missed = 0  # faults at calls that no run reached
        self.options = [f"--backend={backend}"]
        self.environment = environment

    def words(self, out):
        """Returns the arguments of a run in a folder."""
        resume = ["--init_from=resume"] if os.path.exists(os.path.join(out, "trainer_state.json")) else []
        return [*tiny.RUN, "--verbose=True", *self.options, f"--out_dir={out}", *resume]

    def outcome(self, out, done):
        """Returns the result of the finished process, for comparison."""
        return tiny.contents(out)

    def run(self, out, *arguments, fault=None, limit=tiny.LIMIT_SECONDS):
        """Returns the finished process; None when it hangs."""
        environment = {**tiny.ENVIRONMENT, **self.environment}
        if fault:
            environment[self.variable] = self.wanted(fault)
        if os.path.exists(self.report):
            os.remove(self.report)
        try:
            return ran(self.program, *self.words(out), *arguments, env=environment, timeout=limit)
        except subprocess.TimeoutExpired:
            return None

    def prepare(self, out):
        """Resets the folder to its initial state."""
        tiny.clear(out)
        if self.begin:
            shutil.copytree(self.begin, out)

    def counts(self):
        """Returns how often each call was made."""
        return {name: count for name, count in self.reported().items() if name != "left" and ":" not in name}

    def left(self):
        """Returns how many objects the run leaked; 0 where they are not counted."""
        return self.reported().get("left", 0)

    def refused(self):
        """Returns how often a lost device refused each call."""
        return {name.split(":")[1]: count for name, count in self.reported().items() if name.startswith("refused:") and count > 0}

    def is_giving_back(self, call):
        return any(word in call for word in self.gives_back)

    def names_op(self, fault, said):
        """Returns true when the line names an op, or when no op was running: ops run in run, and in a sync that waits
        for a kernel."""
        is_kernel = fault.startswith("launch:")
        return " of op " in said or not ("waiting for run" in said or (is_kernel and "waiting for sync" in said))

    def made(self, fault):
        """Returns how many calls the last run made of the function that the fault names."""
        return self.counts().get(fault.split(":")[0], 0)

    def misses(self, fault):
        return self.made(fault) < int(fault.split(":")[1])

    def is_used_lost(self):
        """Returns true when a lost device was used for anything except closing it."""
        refused = self.refused()
        return any(not self.is_giving_back(call) and refused[call] > (call in self.closing) for call in refused)

    def look(self, what, done):
        """Further checks of a failing call that was noticed."""


def but_libraries(contents):
    """Returns the checkpoint without the versions in its record, which are empty when a query for them failed."""
    return {**contents, "plan": {**contents.get("plan", {}), "kernels": ""}}


def judge_success(subject, fault, done, expected, forgiven):
    what, found = f"{subject.name}: {fault}", subject.outcome("faulty", done)
    check(found == expected or (forgiven and but_libraries(found) == but_libraries(expected)), f"{what}: other bytes")
    if subject.misses(fault):
        subject.missed += 1
        return
    check(forgiven, f"{what}: nobody noticed, and that is not right")
    if fault.endswith(":lost"):
        check(not subject.is_used_lost(), f"{what}: nobody noticed, although later calls were refused: {subject.refused()}")
    check(subject.left() == 0, f"{what}: {subject.left()} objects were not given back")


def judge_hang(subject, fault, done):
    what, said = f"{subject.name}: {fault}", done.stderr[-300:]
    check("has not answered" in said, f"{what}: no watchdog: {said}")
    check("waiting for" in said, f"{what}: no call is named: {said}")
    check(subject.names_op(fault, said), f"{what}: no op is named: {said}")


def judge(subject, fault, done, expected, forgiven):
    """Checks the result of a fault, and that a run continues from it.  Returns true when the fault was noticed."""
    what = f"{subject.name}: {fault}"
    if done is None:
        check(False, f"{what}: hangs")
        return
    if done.returncode == 0:
        judge_success(subject, fault, done, expected, forgiven)
        return
    check(1 <= done.returncode <= 3, f"{what}: ended with {done.returncode}: {done.stderr[-300:]}")
    check(len(error_lines(done)) == 1, f"{what}: {len(error_lines(done))} error lines: {done.stderr[-500:]}")
    if fault.endswith(":hang"):
        judge_hang(subject, fault, done)
    else:
        check(subject.left() == 0, f"{what}: {subject.left()} objects were not given back")
        subject.look(what, done)
    again = subject.run("faulty")
    check(again is not None and again.returncode == 0, f"{what}: does not go on: {again and again.stderr[-300:]}")
    check(subject.outcome("faulty", again) == expected, f"{what}: then other bytes than in one go")
    check(tiny.leftovers("faulty") == [], f"{what}: left behind: {tiny.leftovers('faulty')}")


def hung(subject, fault):
    """Runs with a call that never returns, until the watchdog ends the run at that call."""
    done = None
    for seconds in WATCHDOG_SECONDS:
        subject.prepare("faulty")
        done = subject.run("faulty", f"--watchdog={seconds}", fault=fault, limit=max(tiny.LIMIT_SECONDS, 2 * seconds))
        if done is None or "has not answered" not in done.stderr:
            break
        if "waiting for" in done.stderr and subject.names_op(fault, done.stderr):
            break
    return done


def faulted(subject, fault):
    """Runs with the fault, which moves while the run does not reach it.  Returns the fault and the finished process."""
    for _ in range(MOVES):
        subject.prepare("faulty")
        done = hung(subject, fault) if fault.endswith(":hang") else subject.run("faulty", fault=fault)
        if done is None or done.returncode != 0 or not subject.misses(fault) or subject.made(fault) == 0:
            break
        name, _, kind = fault.split(":")
        fault = f"{name}:{(subject.made(fault) + 1) // 2}:{kind}"
    return fault, done


def try_faults(subject, faults, expected, forgiven=lambda fault, done: False):
    """Tries all faults; at most a quarter of the calls may be missed."""
    before = subject.missed
    for wanted in faults:
        fault, done = faulted(subject, wanted)
        judge(subject, fault, done, expected, done is not None and forgiven(fault, done))
    missed = subject.missed - before
    check(missed <= len(faults) / 4, f"{subject.name}: {missed} of {len(faults)} calls were not made")


def chosen(failing, hanging):
    """Returns the faults to try in this run."""
    kinds = tiny.arguments()
    return (failing if "hanging" not in kinds else []) + (hanging if "failing" not in kinds else [])


def in_one_go(subject):
    """Returns the result of an uninterrupted run."""
    subject.prepare("one")
    done = subject.run("one", limit=COMPILE_SECONDS)
    check(done is not None and done.returncode == 0, f"{subject.name} in one go: {done and done.stderr[-500:]}")
    return subject.outcome("one", done)


def counted(subject, expected, *arguments):
    """Returns the calls of a run without faults."""
    subject.prepare("counted")
    done = subject.run("counted", *arguments)
    check(done is not None and done.returncode == 0, f"{subject.name} {arguments}: {done and done.stderr[-500:]}")
    check(subject.outcome("counted", done) == expected, f"{subject.name} {arguments}: other bytes than in one go")
    check(subject.left() == 0, f"{subject.name} {arguments}: {subject.left()} objects were not given back")
    return subject.counts()


def before_watch(subject):
    """Returns the calls of a run that ends where the watchdog starts, when the plan is made; includes closing the
    device."""
    subject.prepare("counted")
    done = subject.run("counted", "--memory_budget=none")
    check(done is not None and done.returncode == 2 and "memory_budget" in done.stderr, f"{subject.name}: {done and done.stderr}")
    return subject.counts()


def watched_calls(subject, watched, before):
    """Returns the numbers of the calls that the watchdog watches.  For a call that releases something, or belongs to
    closing the device, at least the last one."""
    calls = {}
    for call, count in watched.items():
        first = before.get(call, 0) + 1
        last_too = count > 0 and (subject.is_giving_back(call) or call in subject.closing)
        calls[call] = list(range(first, count + 1)) or ([count] if last_too else [])
    return calls


def spread(numbers, most):
    """Returns at most `most` of the numbers: a middle one, or the first, the last and evenly spaced ones between."""
    if most == 1:
        return list(numbers[len(numbers) // 2:][:1])
    if len(numbers) <= most:
        return list(numbers)
    return sorted({numbers[i * (len(numbers) - 1) // (most - 1)] for i in range(most)})
