#!/usr/bin/env python3
"""For published figures, not in CI: what two ranks do to 498 MB of gradients beside MPI's own collectives, in one run.

    bench/record_ranks.py --build=BUILD [--rounds=15] [--floats=124475904] [--piece=1048576] [--work=FOLDER]

Compiles bench/ranks.c with mpicc and runs it under mpirun.  Prints a table: seconds of each row, minimum and median of the
rounds, in which the rows take turns.  MPI_Allreduce gives each rank all sums; the rows above it, a half.
"""
import os
import re
import subprocess

from common import TOP, options_of


def main():
    options = options_of(__doc__, build=".", rounds=15, floats=124475904, piece=1 << 20, work="record-ranks")
    os.makedirs(options.work, exist_ok=True)
    program = os.path.join(os.path.abspath(options.work), "ranks")
    subprocess.run(["mpicc", "-std=gnu11", "-O2", "-pthread", "-I" + options.build, "-I" + os.path.join(TOP, "src"), "-o", program,
                    os.path.join(TOP, "bench", "ranks.c"), os.path.join(TOP, "src", "dist", "comm_mpi.c"),
                    os.path.join(options.build, "libgpttrain.a"), "-lm"], check=True)
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(["mpirun", "-n", "2", program, str(options.rounds), str(options.floats), str(options.piece)], check=True,
                          stdout=subprocess.PIPE, text=True, env=environment)
    print(f"| {options.floats * 4 / 1e6:.0f} MB, pieces of {options.piece * 4 / 2**20:g} MiB | minimum, s | median of {options.rounds}, s |")
    print("|-|-|-|")
    for name, least, median in re.findall(r"^(.+) ([\d.]+) ([\d.]+)$", done.stdout, re.M):
        print(f"| {name} | {least} | {median} |")


if __name__ == "__main__":
    main()
