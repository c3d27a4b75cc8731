#!/usr/bin/env python3
"""Makes the pictures of the documentation with the programs of a build.

Usage: doc/pictures.py BUILD [memory] [session] [report]

  memory   memory-124m.svg: the plan of config/gpt2_124m.py at 64 x 1024 on a 12 GB card, of which the first training
           program is shown, with words for what its colours are
  session  session.svg: a session in a terminal, as it went, replayed by the style sheet: PyTorch's message, the answer
           of --explain_oom, the model of ./quickstart, which is trained and writes
  report   report.svg: two curves of gpt-report
session and report train for a minute each.
"""
import html
import os
import pty
import re
import subprocess
import sys
import tempfile
import time

DOC = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(DOC)
PLAN = [os.path.join(SOURCE, "config", "gpt2_124m.py"), "--batch_size=64", "--gradient_accumulation_steps=8",
        "--device_profile=rtx3060-12g", "--plan=svg"]
# Of the picture in pixels: where the map is; what the plan's categories are in words.
MAP_X, MAP_Y, MAP_WIDTH, MAP_HEIGHT = 62, 64, 440, 352
WORDS = {"parameters": "weights", "master": "32-bit copies of them", "moments": "AdamW's moments", "gradients": "gradients",
         "activations": "activations, until backward", "logits": "logits, a chunk at a time"}
MESSAGE = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.14 GiB. GPU 0 has a total capacity of 11.63 GiB of "
           "which 1.71 GiB is free. Including non-PyTorch memory, this process has 9.66 GiB memory in use. Of the allocated "
           "memory 9.38 GiB is allocated by PyTorch, and 81.04 MiB is reserved by PyTorch but unallocated.\n")
SMALL = ("--n_layer=2 --n_head=2 --n_embd=64 --block_size=64 --batch_size=12 --gradient_accumulation_steps=1 "
         "--min_lr=1e-4 --warmup_iters=50 --eval_iters=10")
CODE = "gpt-prepare --tokenizer=chars --out-dir=data/code src"
SESSION = ["cat oom.txt",
           "gpt-train gpt2_124m.py --batch_size=64 --gradient_accumulation_steps=1 --explain_oom=oom.txt",
           "gpt-prepare --tokenizer=train --vocab-size=1024 --documents=blank-line --document-separator=newline \\\n"
           "    --out-dir=data/stories stories.txt | head -3",
           "gpt-train quickstart.py --dataset=stories --out_dir=out --hours=0.03",
           "gpt-sample --out_dir=out --num_samples=1 --temperature=0.6 --max_new_tokens=85 --start='When I was young' 2>&1 | fold -s -w 100"]
ROWS, COLUMNS, WIDTH, HEIGHT, READING_S = 30, 108, 8.4, 18, 3.0


def small(picture):
    """Returns an SVG without tooltips, which no reader of a document sees, and with fewer digits."""
    text = re.sub(r"<title>[^<]*</title>", "", picture)
    text = re.sub(r' (?:class|id)="[^"]*"', "", text).replace("></rect>", "/>")
    text = re.sub(r'="(-?\d+\.\d\d)"', lambda number: f'="{float(number[1]):.1f}"'.replace('.0"', '"'), text)
    return text.replace(">\n<", "><") + "\n"


def words(x, y, text, size=15, anchor="start", colour="#222222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'


def memory(build):
    """Crops the plan's picture to its first program, stretched, and writes its words again in a size that can be read."""
    picture = small(subprocess.run([os.path.join(build, "gpt-train"), *PLAN], check=True, capture_output=True, text=True).stdout)
    texts = [(float(x), float(y), text) for x, y, text in re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]*)</text>', picture)]
    ticks = {int(text): y - 4 for x, y, text in texts if x == 74 and text.isdigit()}
    centre = next(x for x, _, text in texts if text == "train_first")
    left, top, bottom = 84, ticks[max(ticks)], ticks[0]
    right, scale = 2 * centre - left, MAP_HEIGHT / (bottom - top)
    shapes = "".join(re.findall(r"<(?:rect|path)[^>]*/>", picture.split("</svg>")[0])[1:])
    total = next(re.search(r"[\d.]+ GiB", text)[0] for _, y, text in texts if y == 58)
    out = ['<?xml version="1.0" encoding="UTF-8"?><svg xmlns="http://www.w3.org/2000/svg" width="830" height="470" '
           'viewBox="0 0 830 470" font-family="sans-serif"><rect width="830" height="470" rx="8" fill="#ffffff"/>',
           words(20, 32, f"One step of GPT-2 124M on a 12 GB card: {total}, every byte planned before it starts", 17),
           f'<svg x="{MAP_X}" y="{MAP_Y}" width="{MAP_WIDTH}" height="{MAP_HEIGHT}" preserveAspectRatio="none" '
           f'viewBox="{left} {top:.1f} {right - left:.1f} {bottom - top:.1f}">{shapes}</svg>']
    for gib, y in ticks.items():
        at = MAP_Y + (y - top) * scale
        out += [words(MAP_X - 8, at + 5, str(gib), 14, "end"),
                f'<line x1="{MAP_X - 4}" y1="{at:.1f}" x2="{MAP_X}" y2="{at:.1f}" stroke="#222222"/>']
    out.append(words(20, MAP_Y - 12, "GiB", 14))
    available = next(text for _, _, text in texts if text.startswith("available"))
    at = MAP_Y + MAP_HEIGHT * (1 - float(available.split()[1]) / max(ticks))
    out += [f'<line x1="{MAP_X}" y1="{at:.1f}" x2="{MAP_X + MAP_WIDTH}" y2="{at:.1f}" stroke="#d62728" stroke-width="2" stroke-dasharray="6 4"/>',
            words(MAP_X + MAP_WIDTH + 12, at + 5, available.replace("available", "the card has"), 15, "start", "#d62728")]
    for name in ("forward", "backward"):
        x = next(x for x, _, text in texts if text == name)
        out.append(words(MAP_X + (x - left) * MAP_WIDTH / (right - left), MAP_Y + MAP_HEIGHT + 24, name + " pass", 15, "middle"))
    out.append(words(MAP_X + MAP_WIDTH, MAP_Y + MAP_HEIGHT + 44, "time: the operations of a step, in their order", 14, "end", "#666666"))
    row = 0
    for name, text in WORDS.items():
        x, y, _ = next(entry for entry in texts if entry[0] == 1208 and entry[2] == name)
        size = next(found for x, at, found in texts if at == y and "iB" in found)
        colour = next(fill for at, fill in re.findall(r'<rect x="1182" y="([\d.]+)"[^>]*fill="(#\w+)"', picture) if abs(float(at) - y) < 16)
        at, row = 150 + 44 * row, row + 1
        out += [f'<rect x="{MAP_X + MAP_WIDTH + 14}" y="{at - 14}" width="16" height="16" fill="{colour}"/>',
                words(MAP_X + MAP_WIDTH + 40, at, text), words(MAP_X + MAP_WIDTH + 40, at + 18, size, 14, "start", "#666666")]
    return "".join(out) + "</svg>\n"


def record(command, folder, build):
    """Runs a command in a terminal; returns its lines as (seconds, text).  A line that is drawn again counts once."""
    begin, lines, rest = time.monotonic(), [], b""
    master, slave = pty.openpty()
    environment = {**os.environ, "PATH": build + os.pathsep + os.environ["PATH"], "COLUMNS": str(COLUMNS), "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        *whole, rest = (rest + piece).split(b"\n")
        lines += [(time.monotonic() - begin, line.decode(errors="replace").rstrip("\r").split("\r")[-1]) for line in whole]
    process.wait()
    os.close(master)
    return lines


def terminal(lines):
    """Returns an SVG that shows each line at its time and scrolls.  Without animation it shows the last screen."""
    lines = [(seconds, text[at:at + COLUMNS]) for seconds, text in lines for at in range(0, max(1, len(text)), COLUMNS)]
    end = lines[-1][0] + READING_S
    scrolls = "".join(f"{100 * seconds / end:.3f}%{{transform:translateY({-HEIGHT * max(0, at - ROWS + 1)}px)}}"
                      for at, (seconds, _) in enumerate(lines) if at >= ROWS)
    last = -HEIGHT * max(0, len(lines) - ROWS)
    body = "".join(f'<text y="{HEIGHT * (at + 1)}" style="animation-delay:{seconds:.2f}s"{" class=p" if text.startswith("$") else ""}>'
                   f"{html.escape(text, quote=False)}</text>" for at, (seconds, text) in enumerate(lines) if text)
    body = body.replace(" class=p", ' class="p"')
    size = f"{COLUMNS * WIDTH + 24:.0f} {ROWS * HEIGHT + 24}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>'
            "text{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:#ddd}.p{fill:#8fd18f}"
            "@media(prefers-reduced-motion:no-preference){text{animation:show 1ms backwards}@keyframes show{from{visibility:hidden}}"
            f"g g{{animation:scroll {end:.2f}s step-end}}@keyframes scroll{{0%{{transform:none}}{scrolls}}}}}"
            f"g g{{transform:translateY({last}px)}}</style>"
            f'<rect width="100%" height="100%" rx="8" fill="#1b1d21"/><svg x="12" y="12" width="{COLUMNS * WIDTH:.0f}" height="{ROWS * HEIGHT}">'
            f"<g><g>{body}</g></g></svg></svg>\n")


def prepare(folder):
    os.symlink(os.path.join(SOURCE, "src"), os.path.join(folder, "src"))
    os.symlink(PLAN[0], os.path.join(folder, "gpt2_124m.py"))
    os.symlink(os.path.join(SOURCE, "config", "quickstart.py"), os.path.join(folder, "quickstart.py"))
    with open(os.path.join(folder, "oom.txt"), "w", encoding="ascii") as file:
        file.write(MESSAGE)
    with open(os.path.join(folder, "stories.txt"), "w", encoding="utf-8") as file:  # the stories that ./quickstart trains on
        subprocess.run(["sh", "-c", "eval \"$(sed -n '/^text_write()/,/^}/p' quickstart)\"; top=. text_write"], cwd=SOURCE, stdout=file, check=True)


def session(build, folder):
    lines, at = [], 0.0
    for command in SESSION:
        lines += [(at, text) for text in ("$ " + command).split("\n")]
        said = record(command, folder, build)
        lines += [(at + 0.5 + seconds, text) for seconds, text in said]
        lines.append((lines[-1][0], ""))
        at = lines[-1][0] + READING_S
    return terminal(lines)


def report(build, folder):
    """Returns two curves of the page side by side, with its style."""
    for rate in ("3e-3", "1e-3"):
        record(f"gpt-train --dataset=code {SMALL} --learning_rate={rate} --max_iters=800 --lr_decay_iters=800 --eval_interval=100 --out_dir=lr-{rate}",
               folder, build)
    record("gpt-report lr-3e-3 lr-1e-3", folder, build)
    with open(os.path.join(folder, "report.html"), encoding="utf-8") as file:
        page = file.read()
    charts = re.findall(r"<figcaption>(.*?)</figcaption>\s*<svg[^>]*>(.*?)</svg>", page, re.S)
    style = "".join(f".r{at}{{color:{colour}}}" for at, colour in re.findall(r"\.r(\d){color:(#\w+)}", page))
    parts = "".join(f'<svg x="{500 * at}" y="20" width="480" height="264">{chart}</svg><text x="{500 * at + 62}" y="16">{title}</text>'
                    for at, (title, chart) in enumerate((charts[0], charts[3])))
    return report_picture(style, re.sub("<title>[^<]*</title>", "", parts))


def report_picture(style, parts):
    """Without the page's variables, which many programs that draw SVG do not know; light on every page."""
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 290" font-family="sans-serif"><style>'
            "text{fill:#222;stroke:none}line{stroke:#ddd}g path{fill:none;stroke:currentColor}circle{fill:currentColor}"
            f'{style}</style><rect width="980" height="290" rx="8" fill="#fff"/>{parts}</svg>\n')


def main():
    build, names = os.path.abspath(sys.argv[1]), sys.argv[2:] or ["memory", "session", "report"]
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        record(CODE, folder, build)
        made = {"memory": ("memory-124m.svg", lambda: memory(build)), "session": ("session.svg", lambda: session(build, folder)),
                "report": ("report.svg", lambda: report(build, folder))}
        for name in names:
            path, make = made[name]
            picture = make()
            with open(os.path.join(DOC, path), "w", encoding="utf-8") as file:
                file.write(picture)
            print(f"doc/{path}: {len(picture)} bytes")


if __name__ == "__main__":
    main()
