"""Shared code of the Python scripts: counting checks, the closing line that the summary reads, files, a small text."""
import array
import json
import os
import random
import shlex
import struct
import subprocess
import sys
import tempfile
import time

os.environ["GPT_TRAIN_NCCL_LIBRARY"] = "" # one for real cards does not know emulated ones
LONG = os.environ.get("CHECK_LONG", "") not in ("", "0")
SOURCE, BUILD = (os.path.abspath(os.environ.get(name, ".")) for name in ("top_srcdir", "top_builddir"))
GPT_TRAIN, GPT_PREPARE, GPT_SAMPLE, GPT_EXPORT, GPT_REPORT = (
    os.path.abspath(os.environ.get(name.upper().replace("-", "_"), os.path.join(BUILD, name)))
    for name in ("gpt-train", "gpt-prepare", "gpt-sample", "gpt-export", "gpt-report"))
counts = {"passed": 0, "failed": 0, "skipped": 0}


# ---- checks ----

def check(good, text):
    """Write `good` so that a NaN makes it false; `text` describes the failure."""
    counts["passed" if good else "failed"] += 1
    if not good:
        print("FAIL", text, file=sys.stderr)


def check_named(name, good, what=""):
    check(good, f"{name}: {what}" if what else name)


def skip(name, reason):
    counts["skipped"] += 1
    print(f"SKIP {name}: {reason}")


def some(cases, count=1):
    """Returns the first cases in `make check`; all of them with CHECK_LONG=1."""
    return cases if LONG else cases[:count]


def finish():
    """Prints "checks: P passed, F failed, S skipped".  Returns the exit status: 1 if a check failed or nothing was
    done, 77 if everything was skipped."""
    print("checks: {passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    if counts["failed"] == 0 and counts["passed"] == 0 and counts["skipped"] > 0:
        return 77
    return 0 if counts["failed"] == 0 and counts["passed"] > 0 else 1


def end(*parts, begin=lambda: None):
    """Ends the script: calls begin() and these functions, or those of them that the command line names, in a temporary
    folder; then finish().  Prints the seconds that processors were busy with each."""
    with tempfile.TemporaryDirectory(prefix="gpt-train-") as work:
        os.chdir(work)
        os.environ.setdefault("XDG_CACHE_HOME", os.path.join(work, "cache"))
        begin()
        for function in [function for function in parts if function.__name__ in sys.argv[1:]] or parts:
            before = sum(os.times()[:4])
            function()
            print(f"{function.__name__}: {sum(os.times()[:4]) - before:.1f} s of processors", flush=True)
        os.chdir("/")
    sys.exit(finish())


# ---- builds ----

def patience(seconds):
    """Returns a timeout: `seconds` in an ordinary build, longer in one with a sanitizer (BUDGET_FACTOR) and where more programs
    run than there are processors."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * max(1.0, float(os.environ.get("BUDGET_FACTOR") or 1)) * max(1.0, waiting)


def has_backend(name):
    """Returns true when this build has the backend: cuda, opencl."""
    return f"#define HAVE_{name.upper()} 1".encode() in read(os.path.join(BUILD, "config.h"))


def is_instrumented(program, marks=(b"__asan_init", b"__tsan_init")):
    """Returns true when the program contains a mark: by default, of a sanitizer whose runtime must be loaded first."""
    image = read(program)
    return any(mark in image for mark in marks)


def library_of(source, *words):
    """Compiles `source`, a path below the source folder, into a library in the working folder; returns (library or
    None, the compiler's messages)."""
    library = os.path.abspath(os.path.basename(source).replace(".c", ".so"))
    done = subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-O0", "-shared", "-fPIC", "-Wl,--no-as-needed", "-I" + SOURCE,
                           "-o", library, os.path.join(SOURCE, source), *words], check=False, capture_output=True, text=True)
    return library if done.returncode == 0 else None, done.stderr


def preloadable(name, program, source):
    """Returns a library of `source` to be preloaded into `program`; None after a skip when that is impossible."""
    library = None if is_instrumented(program) else library_of(source)[0]
    if library is None:
        skip(name, "no compiler, or a build with a sanitizer, which does not like to be preloaded")
    return library


def opencl_library(source):
    """Returns a library of `source` between a program and OpenCL's loader; None after a skip when that is impossible."""
    library, said = library_of(source, "-l:libOpenCL.so.1")
    if library is None:
        first = [line for line in said.splitlines() if "error" in line or "cannot find" in line] or ["?"]
        skip("opencl_fake", f"no compiler that links with libOpenCL.so.1: {first[0]}")
    return library


def opencl_device():
    """Returns the line of --list_devices for OpenCL's first device; None after a skip when there is none."""
    listed = subprocess.run([GPT_TRAIN, "--list_devices"], check=False, capture_output=True, text=True).stdout
    line = next((line for line in listed.splitlines() if line.startswith("opencl:0 ")), None)
    if line is None and "opencl" in listed:
        skip("opencl_device", "no OpenCL device here (Debian: pocl-opencl-icd)")
    elif line is None:
        skip("opencl", "this build has no opencl backend")
    return line


# ---- programs ----

def ran(*words, environment=None, **options):
    """Runs a program, with these additions to the environment; returns the finished process, with its output as text."""
    return subprocess.run(words, **{"check": False, "capture_output": True, "text": True, "timeout": 7200 if LONG else patience(300),
                                    "env": {**os.environ, **(environment or {})}, **options})


def run(*words, status=0, **options):
    """The same; the program must end with this status."""
    done = ran(*words, **options)
    check(done.returncode == status, f"exit status {done.returncode}, not {status}: {words} {done.stderr[-600:]}")
    return done


def wait_for(condition, seconds=30):
    """Waits until the condition holds, or for so long."""
    until = time.monotonic() + patience(seconds)
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)


# ---- files ----

def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    """Writes bytes, or a text in UTF-8, and makes missing folders; returns the path."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return path


def read_json(path):
    return json.loads(read(path))


def write_json(path, value):
    return write(path, json.dumps(value))


def files(folder, endings=""):
    """Returns the bytes of the folder's files whose names have one of these endings, by name."""
    return {name: read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
            if name.endswith(endings) and os.path.isfile(os.path.join(folder, name))}


def tensors_read(path):
    """Returns a safetensors file as {name: (dtype, shape, bytes)}."""
    data = read(path)
    body = 8 + struct.unpack_from("<Q", data)[0]
    return {name: (entry["dtype"], entry["shape"], data[body + entry["data_offsets"][0]:body + entry["data_offsets"][1]])
            for name, entry in json.loads(data[8:body]).items() if name != "__metadata__"}


def tensors_write(path, tensors):
    header, end_of_last = {}, 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end_of_last, end_of_last + len(raw)]}
        end_of_last += len(raw)
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def drawn_tensor(rows, columns, scale):
    """Returns a tensor of random numbers around 0, or, without columns, of gains around 1."""
    values = array.array("f", [random.gauss(0 if columns else 1, scale) for _ in range(rows * max(columns, 1))])
    return "F32", (rows, columns) if columns else (rows,), memoryview(values).tobytes()


def small_llama(vocabulary, layers, positions, scale):
    """Returns config.json and the tensors of a Llama with 32 channels; the matrices are drawn with this scale."""
    width, inner = 32, 56
    tensors = {"model.embed_tokens.weight": drawn_tensor(vocabulary, width, scale), "model.norm.weight": drawn_tensor(width, 0, 0.1)}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for name, rows, columns in (("self_attn.q_proj", 32, 32), ("self_attn.k_proj", 16, 32), ("self_attn.v_proj", 16, 32),
                                    ("self_attn.o_proj", 32, 32), ("mlp.gate_proj", inner, 32), ("mlp.up_proj", inner, 32),
                                    ("mlp.down_proj", 32, inner)):
            tensors[f"{at}{name}.weight"] = drawn_tensor(rows, columns, scale)
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = drawn_tensor(width, 0, 0.1)
    config = {"model_type": "llama", "vocab_size": vocabulary, "max_position_embeddings": positions, "hidden_size": width,
              "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
              "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True}
    return config, tensors


def metrics(out, field="loss"):
    """Returns the lines of the folder's metrics that have the field."""
    whole = read(os.path.join(out, "metrics.jsonl")).rpartition(b"\n")[0]  # a run may be writing the last line
    return [line for line in map(json.loads, whole.splitlines()) if field in line]


def error_lines(done):
    """Returns the error lines of a finished process."""
    return [line for line in done.stderr.splitlines() if " error: " in line or " error[" in line]


# ---- models of today, with windows: one of two blocks in Gemma's, both in Phi's, whose matrices are fused; with a gated delta net ----

GEMMA = ["--arch=gemma3", "--n_kv_head=1", "--head_dim=8", "--sliding_window=9", "--sliding_window_pattern=2"]
GRANITE = ["--arch=granite", "--n_kv_head=1", "--head_dim=8"]
SMOLLM3 = ["--arch=smollm3", "--n_kv_head=1", "--head_dim=8", "--no_rope_layer_interval=2"]
QWEN3_5 = ["--arch=qwen3_5", "--n_kv_head=1", "--head_dim=8", "--full_attention_interval=2", "--linear_num_key_heads=1",
           "--linear_num_value_heads=2", "--linear_value_head_dim=6"]
PHI = ["--arch=phi3", "--n_kv_head=1", "--head_dim=8", "--sliding_window=9", "--rope_scaling=longrope:8,1.25,1,1.5,2,3,4.5,6"]


# ---- tokenizers and checksums ----

def byte_letters():
    """Returns the characters that stand for the bytes in the files of GPT-2's tokenizer."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) if byte in plain else chr(256 + others.index(byte)) for byte in range(256)]


def merged(parts, ranks):
    """Merges pairs of parts one by one: the lowest rank first, the leftmost among equals."""
    parts = list(parts)
    while len(parts) > 1:
        rank, at = min((ranks.get(pair, 1 << 30), at) for at, pair in enumerate(zip(parts, parts[1:])))
        if rank == 1 << 30:
            break
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def crc32c(data):
    """Returns the checksum by Castagnoli's polynomial, bit by bit."""
    state = 0xffffffff
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82f63b78 if state & 1 else 0)
    return state ^ 0xffffffff


# ---- a small text ----

def make_text(path, size=24000):
    """Writes a text of that many bytes that depends on nothing; returns the path."""
    words = ["awk", "-v", f"bytes={size}", "-f", os.path.join(SOURCE, "tests", "tools", "text.awk")]
    return write(path, subprocess.run(words, check=True, capture_output=True).stdout)


def make_tokens(folder, size=24000):
    """Makes a data set of 96 ids without a tokenizer, from which a few hundred steps learn something."""
    ids = [max(0, byte - 32) for byte in read(make_text(os.path.join(folder, "text.txt"), size))]
    for name, split in (("train.bin", ids[: size * 9 // 10]), ("val.bin", ids[size * 9 // 10:])):
        write(os.path.join(folder, name), struct.pack(f"<{len(split)}H", *split))
