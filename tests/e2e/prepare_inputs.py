#!/usr/bin/env python3
"""gpt-prepare's inputs: JSONL, archives in archives, standard input, documents and their separators, the split by
document, deduplication, shards; and every bad input, each of which must give one line that names the place.

Needs GPT_PREPARE, the path of the program.  Prints "checks: P passed, F failed, S skipped".
"""

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import struct
import subprocess
import tarfile
import time

from checks import GPT_PREPARE, byte_letters, check_named as check, end, patience, read, read_json, skip, write


def prepare(*arguments, stdin=b"", out="out", clean=True):
    if clean:
        shutil.rmtree(out, ignore_errors=True)
    return subprocess.run([GPT_PREPARE, f"--out-dir={out}", *arguments], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=patience(120), check=False)


def stored(path):
    """Returns the tokens of a file of either format as bytes, and how many one takes."""
    data = read(path)
    magic = struct.unpack("<i", data[:4])[0] if len(data) >= 4 else 0
    if magic not in (20240520, 20240801):
        return data, 2
    count, width = struct.unpack("<i", data[8:12])[0], 2 if magic == 20240520 else 4
    assert len(data) == 1024 + width * count, path
    return data[1024:], width


def ids(path):
    data, width = stored(path)
    return list(struct.unpack("<%d%s" % (len(data) // width, "H" if width == 2 else "I"), data))


def text(split="train", out="out"):
    """Returns a split as bytes; for the byte tokenizer only, whose ids have 16 bits."""
    names = sorted(name for name in os.listdir(out) if name.startswith(split) and name.endswith(".bin"))
    data = b"".join(stored(os.path.join(out, name))[0] for name in names)
    assert not any(data[1::2]), f"{split}: an id above 255"
    return data[::2]


def both(out="out"):
    return text("train", out) + text("val", out)


def good(name, expected, *arguments, stdin=b""):
    """With the byte tokenizer, split by position, the output must be `expected`."""
    result = prepare("--val-split=position", *arguments, stdin=stdin)
    found = both() if result.returncode == 0 else None
    check(name, found == expected, f"status {result.returncode}, {found!r:.200}, {result.stderr.decode()!r:.300}")
    return result


def refused(name, status, words, *arguments, stdin=b""):
    """Expects one line on standard error with all the words; no data set, and no temporary file."""
    result = prepare(*arguments, stdin=stdin)
    lines = result.stderr.decode(errors="replace").splitlines()
    check(name, result.returncode == status and len(lines) == 1 and all(word in lines[0] for word in words)
          and not result.stdout and not os.path.exists("out"),
          f"status {result.returncode}, {lines}, {os.path.exists('out')}")


def tar_of(members, name=None, mode="w", **kinds):
    """Makes a tar archive of (name, content); kinds gives tar's type for some names."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode=mode) as archive:
        for member, content in members:
            info = tarfile.TarInfo(member)
            content = content if isinstance(content, bytes) else content.encode()
            info.size = len(content)
            info.type = kinds.get(member, tarfile.REGTYPE)
            if info.type != tarfile.REGTYPE:
                info.size, info.linkname = 0, "../../etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    data = memory.getvalue()
    return write(name, data) if name else data


def jsonl(*texts):
    return "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))


def test_jsonl():
    write("a.jsonl", jsonl("first", "second\n", "", "thïrd \U0001f600", "a\u0000b"))
    expected = "first\nsecond\nthïrd \U0001f600\na\0b".encode()
    result = good("jsonl", expected, "a.jsonl")
    check("jsonl_counts", b"4 documents, 1 empty one left out" in result.stdout, result.stdout)
    check("jsonl_zero_is_said", b"zero bytes in 1 document, kept" in result.stderr, result.stderr)
    good("jsonl_crlf_and_blank_lines", b"a\nb", "b.jsonl" if write(
        "b.jsonl", b'{"text":"a"}\r\n\n  \n{"text":"b"}') else "")
    write("c.ndjson", '{"content": {"x": [1, 2]}, "body": "yes"}\n')
    good("jsonl_field", b"yes", "--field=body", "c.ndjson")
    good("jsonl_on_stdin", b"x\ny", "--format=jsonl", "-", stdin=jsonl("x", "y").encode())
    good("jsonl_as_text", b'{"text": 1}\n', "--format=text", write("d.jsonl", '{"text": 1}\n'))
    for name, line, words in [
            ("syntax", "{\"text\": \"a\"", ["not valid JSON"]), ("missing", '{"txt": "a"}', ["\"text\" is missing"]),
            ("number", '{"text": 3}', ["expected a string, found a number"]),
            ("null", '{"text": null}', ["found null"]), ("list", '["text"]', ["expected an object, found a list"]),
            ("twice", '{"text": "a", "text": "b"}', ["duplicate"]), ("after", '{"text": "a"} x', ["not valid JSON"]),
            ("deep", "[" * 100000, ["not valid JSON"]), ("latin1", b'{"text": "caf\xe9"}', ["not valid JSON"])]:
        line = line if isinstance(line, bytes) else line.encode()
        write("bad.jsonl", jsonl("good").encode() + b"\n" + line + b"\n" + jsonl("more").encode())
        refused(f"jsonl_{name}", 2, ["bad.jsonl: line 3: "] + words, "bad.jsonl")
        result = good(f"jsonl_{name}_skipped", b"good\nmore", "--bad-lines=skip", "bad.jsonl")
        check(f"jsonl_{name}_counted", b"1 bad line left out" in result.stderr and b"line 3: skipped" in result.stderr,
              result.stderr)
    write("long.jsonl", jsonl("good", "x" * (17 << 20), "more"))
    refused("jsonl_too_long", 2, ["long.jsonl: line 2: longer than 16777216 bytes"], "long.jsonl")
    good("jsonl_too_long_skipped", b"good\nmore", "--bad-lines=skip", "long.jsonl")


def test_archives():
    body = [("b.txt", "second\n"), ("a/c.txt", "third")]
    plain = tar_of(body)
    expected = b"second\nthird"
    write("one.txt.gz", gzip.compress(b"one text"))
    good("gz", b"one text", "one.txt.gz")
    good("gz_of_two_parts", b"one text", write("two.gz", gzip.compress(b"one ") + gzip.compress(b"text")))
    good("bz2", b"one text", write("one.txt.bz2", bz2.compress(b"one text")))
    good("xz", b"one text", write("one.txt.xz", lzma.compress(b"one text")))
    good("gz_jsonl", b"a\nb", write("j.jsonl.gz", gzip.compress(jsonl("a", "b").encode())))
    good("tar", expected, write("x.tar", plain))
    for ending, pack in [("tar.gz", gzip.compress), ("tgz", gzip.compress), ("tar.bz2", bz2.compress),
                         ("tar.xz", lzma.compress), ("txz", lzma.compress)]:
        good(f"archive_{ending}", expected, write("x." + ending, pack(plain)))
    if shutil.which("zstd"):
        zstd = lambda data: subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
        good("archive_tar.zst", expected, write("x.tar.zst", zstd(plain)))
        good("zst", b"one text", write("one.txt.zst", zstd(b"one text")))
    else:
        skip("prepare_zstd", "no zstd program to make one with")
    # OpenWebText's layout: a tar.xz of folders with .xz files that are tars of texts.
    inner = [lzma.compress(tar_of([(f"{i}-{k}.txt", f"document {i} {k}\n") for k in range(3)])) for i in range(2)]
    tar_of([("openwebtext/urlsf_subset%02d-1_data.xz" % i, data) for i, data in enumerate(inner)], "owt.tar",
           "w")
    write("owt.tar.xz", lzma.compress(read("owt.tar")))
    documents = [f"document {i} {k}\n" for i in range(2) for k in range(3)]
    good("openwebtext", "".join(documents).encode(), "owt.tar.xz")
    result = prepare("--val-fraction=0.5", "--seed=5", "owt.tar.xz")
    check("openwebtext_by_document", result.returncode == 0 and sorted(both().decode().splitlines()) ==
          sorted("".join(documents).splitlines()) and text("val") not in "".join(documents).encode()[-40:],
          result.stderr)
    tar_of([("a.txt", "text"), ("link", ""), ("dir", ""), (".hidden", "no"), ("x/.git/y", "no"), ("bin", b"\0\1"),
            ("fifo", ""), ("./b.jsonl", jsonl("from json"))], "mixed.tar", link=tarfile.SYMTYPE, dir=tarfile.DIRTYPE,
           fifo=tarfile.FIFOTYPE)
    result = good("tar_of_all_sorts", b"text\nfrom json", "mixed.tar")
    check("tar_binary_member_is_said", b"1 file left out, not text: 1 no extension" in result.stderr, result.stderr)
    write("tree/a.txt", "one\n")
    write("tree/b.txt.gz", gzip.compress(b"two\n"))
    write("tree/c.jsonl", jsonl("three"))
    good("folder_of_all_sorts", b"one\ntwo\nthree", "tree")
    good("several_inputs_keep_their_order", b"one text\nzz\none\ntwo\nthree", "one.txt.gz", "-", "tree", stdin=b"zz")


def test_bad_archives():
    plain = tar_of([("a.txt", "some text " * 200), ("b.txt", "more")])
    refused("gz_that_is_none", 2, ["fake.gz", "neither compressed nor a tar"], write("fake.gz", "plain text"))
    refused("gz_empty", 2, ["e.gz", "empty"], write("text.txt", "some text"), write("e.gz", b""))
    refused("tar_that_is_none", 2, ["fake.tar", "neither"], write("fake.tar", "x" * 2000))
    for name in ("../x", "a/../../x", "/etc/x", "a/.."):
        tar_of([("good.txt", "text"), (name, "evil")], "evil.tar")
        refused(f"member_{name}", 2, ["evil.tar: member " + name, ".."], "evil.tar")
    tar_of([("inner.tar", tar_of([("../x", "evil")]))], "evil2.tar")
    refused("member_of_member", 2, ["evil2.tar: member inner.tar: member ../x"], "evil2.tar")
    deep = b"text"
    for i in range(6):
        deep = tar_of([(f"level{i}.tar" if i else "text.txt", deep)])
    refused("too_deep", 2, ["deep.tar", "depth"], write("deep.tar", deep))
    damaged = bytearray(gzip.compress(bytes(range(1, 256)) * 400))
    damaged[len(damaged) // 2] ^= 0x55
    refused("damaged_gz", 2, ["damaged.gz", "broken"], write("damaged.gz", bytes(damaged)))
    inner = gzip.compress(" ".join(str(i * i) for i in range(1000)).encode())
    tar_of([("in.txt.gz", inner[:len(inner) // 2])], "cut_inside.tar")
    refused("cut_inside_a_tar", 2, ["cut_inside.tar: member in.txt.gz", "broken"], "cut_inside.tar")
    # A damaged header never hides a member silently.
    three = tar_of([(f"{i}.txt", "text") for i in range(3)])
    for number in range(3):
        damaged = bytearray(three)
        damaged[1024 * number] ^= 1
        refused(f"damaged_header_{number}_tar", 2, ["damaged.tar: "], write("damaged.tar", bytes(damaged)))
        refused(f"damaged_header_{number}_tgz", 2, ["damaged.tgz: "], write("damaged.tgz", gzip.compress(damaged)))
    # A compressed archive that is truncated anywhere is never taken for a complete one.
    silent = []
    for ending, pack in [("tar.gz", gzip.compress), ("tar.xz", lzma.compress), ("tar.bz2", bz2.compress)]:
        data = pack(plain)
        for length in sorted({1, 5, 10, 13, len(data) - 1, len(data) - 9} |
                             set(range(20, len(data), max(1, len(data) // 5)))):
            write("cut." + ending, data[:length])
            result = prepare("cut." + ending)
            if result.returncode != 2 or len(result.stderr.splitlines()) != 1 or os.path.exists("out"):
                silent.append((ending, length, len(data), result.returncode, result.stderr))
    check("cut_archives", not silent, silent[:3])
    data = tar_of([("a.txt", "x" * 3000)])
    for length in (700, 1000, 3000):
        refused(f"cut_tar_{length}", 2, ["cut.tar", "broken"], write("cut.tar", data[:length]))


PARQUET = b"PAR1\x15\x04\x15\x10PAR1"


def test_not_text():
    """Files that are not text: refused with a hint if they were named, skipped and counted in folders."""
    kinds = {"z.zip": (b"PK\3\4\x14\0", "a zip", "unzip"),
             "d.pdf": (b"%PDF-1.4\n", "a PDF", "pdftotext kinds/d.pdf"), "i.png": (b"\x89PNG\r\n\x1a\n\0", "a PNG", ""),
             "m.gguf": (b"GGUF\3\0\0\0", "GGUF", ""), "t.txt": (gzip.compress(b"text"), "gzip", "end in .gz"),
             "s.arrow": (b"\xff\xff\xff\xff\xf8\0\0\0", "a stream of Arrow", "open_stream(sys.argv[1])"),
             "l.json": (b'[{"text": "one"},\n {"text": "two"}]\n', "one JSON list", "gpt-prepare --format=jsonl kinds/l.json")}
    for name, (data, what, way) in kinds.items():
        result = prepare(write("kinds/" + name, data), stdin=b"")
        lines = result.stderr.decode().splitlines()
        check(f"named_{name}", result.returncode == 2 and what in lines[0] and way in result.stderr.decode() and
              not os.path.exists("out") and not result.stdout, lines)
        good(f"as_it_is_{name}", data, "--format=text", "kinds/" + name)
    good("as_it_is_parquet", PARQUET, "--format=text", write("kinds/p.parquet", PARQUET))
    refused("folder_without_text", 2, ["kinds: no text in 8 files", "1 .parquet", "1 .zip"], "kinds")
    write("kinds/a.txt", "text")
    result = good("folder_with_some", b"text", "kinds")
    check("folder_with_some_is_said", b"8 files left out, not text: 1 .pdf" in result.stderr, result.stderr)
    result = prepare("--format=text", "-", stdin=PARQUET)
    check("parquet_in_a_pipe", prepare("-", stdin=PARQUET).returncode == 2 and result.returncode == 0)
    good("json_list_read", b"one\ntwo", "--format=jsonl", "kinds/l.json")
    # Records of JSON in a file that is named as if it was text; a table; a data set of the library datasets.
    refused("lines_named_json", 2, ["lines.json: this file is JSON", "--format=jsonl", "--format=text"], write("lines.json", b'{"text": "one"}\n'))
    good("lines_named_json_read", b"one", "--format=jsonl", "lines.json")
    check("table", b"t.csv: this table is read as it stands" in good("table", b"text\none", write("t.csv", b"text\none")).stderr)
    refused("table_with_a_field", 2, ["t.csv: add --format=jsonl", '"text"'], "--field=text", "t.csv")
    for name, table in (("t.csv", b'id,text\n1,"one, 1"\n2,"t\nwo"\n'), ("t.tsv", b'id\ttext\n1\tone, 1\n2\t"t\nwo"\n')):
        good(f"column_of_{name}", b"one, 1\nt\nwo", "--format=jsonl", write(name, table))
    refused("column_that_is_not_there", 2, ['t.csv: line 2: field "body" is missing; the line has id, text'], "--format=jsonl", "--field=body", "t.csv")
    # Records and end-of-text marks that are read as they stand.
    for name, data, said in (("r.txt", b'{"text": "one"}\n{"text": "two"}\n', b"--format=jsonl reads its field"), ("e.txt", b"a\n<|endoftext|>\nb", b"--documents=end-of-text")):
        check(f"said_of_{name}", said in good(f"as_it_stands_{name}", data, write(name, data)).stderr)
    check("not_said", b"warning" not in good("braces", b"{a}\n<|end|>\n", write("b.txt", b"{a}\n<|end|>\n")).stderr)
    write("saved/state.json", "{}")
    refused("saved_to_disk", 2, ["saved: this folder is a data set", "load_from_disk"], os.path.dirname(write("saved/dataset_info.json", "{}")))
    refused("too_few_to_divide", 2, ["--val-fraction=0 trains on all of it"], "--format=jsonl", "lines.json")
    refused("not_utf8", 2, ["--encoding=latin1"], write("latin.jsonl", b'{"text": "caf\xe9"}\n'))
    # JSON lines that are not documents, found in a folder: the message names the file, its fields and the flags.
    write("metrics/run.jsonl", '{"iter": 1, "val_loss": 2.5}\n')
    write("metrics/notes.txt", "some text")
    refused("jsonl_in_a_folder", 2, ["metrics/run.jsonl: line 1", "has iter, val_loss", "--field=NAME", "--format=text",
                                     "--bad-lines=skip"], "metrics")
    good("jsonl_in_a_folder_skipped", b"some text", "--bad-lines=skip", "metrics")


def test_encodings():
    if b"without iconv" in prepare("--encoding=latin1", write("probe.txt", "x")).stderr:
        skip("prepare_encodings", "a build without iconv")
        return
    texts = {"latin1": "Größe und Maß, über Nacht.\n", "windows-1252": "L’église coûte 3 €… « déjà »\n",
             "SHIFT_JIS": "朝の市場では、魚屋の声が響く。カタカナ\n", "EUC-JP": "朝の市場では、魚屋の声が響く。\n"}
    for encoding, line in texts.items():
        data = write("enc.txt", (line * 50).encode({"windows-1252": "cp1252"}.get(encoding, encoding)))
        good(f"encoding_{encoding}", (line * 50).encode(), f"--encoding={encoding}", data)
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        text_now = "\ufeff" + texts["EUC-JP"] * 30000
        write("in/wide.txt", text_now.encode(encoding))
        good(f"mark_{encoding}", text_now[1:].encode(), "in")
        good(f"mark_{encoding}_over_the_flag", text_now[1:].encode(), "--encoding=latin1", "in/wide.txt")
    good("utf16_without_a_mark", "größe".encode(), "--encoding=UTF-16LE", write("in/wide.txt", "größe".encode("utf-16-le")))
    good("utf16_jsonl", "日本".encode(), write("w.jsonl", jsonl("日本").encode("utf-16")))
    refused("encoding_unknown", 2, ["--encoding=klingon", "iconv -l"], "--encoding=klingon", "enc.txt")
    refused("encoding_invalid", 2, ["bad.txt: byte 3 is not valid in SHIFT_JIS"], "--encoding=SHIFT_JIS",
            write("bad.txt", b"abc\xff"))
    refused("utf16_with_chars", 2, ["--encoding=UTF-16LE or UTF-16BE"], "--tokenizer=chars", "in/wide.txt")
    refused("no_such_tokenizer", 2, ["--tokenizer=char: ", "bytes, chars, train, gpt2"], "--tokenizer=char", "in/wide.txt")
    refused("encoding_cut", 2, ["bad.txt: byte 4 is not valid in UTF-16LE"], write("bad.txt", b"\xff\xfea\0b"))
    result = prepare(write("old.txt", texts["latin1"].encode("latin1")))
    check("latin1_is_named", result.returncode == 0 and b"old.txt: this text looks like Latin-1, not UTF-8; "
          b"--encoding=latin1 converts it" in result.stderr, result.stderr)
    refused("latin1_is_named_chars", 2, ["looks like Latin-1", "--encoding=latin1"], "--tokenizer=chars", "old.txt")


def test_windows():
    """Ends of lines and byte-order marks of Windows, as Python's open() reads them."""
    lines = [f"Zeile {i} mit Text" for i in range(400)]
    plain = "\n".join(lines).encode()
    windows = b"\xef\xbb\xbf" + "\r\n".join(lines).encode()
    write("plain.txt", plain)
    write("windows.txt", windows)
    result = good("windows", plain, "windows.txt")
    check("windows_note", b"windows.txt: 399 line ends (\\r\\n or \\r) read as \\n, 1 byte-order mark left out" in result.stderr, result.stderr)
    result = good("old_mac", plain, write("mac.txt", plain.replace(b"\n", b"\r")))
    check("old_mac_note", b"mac.txt: 399 line ends (\\r\\n or \\r) read as \\n\n" in result.stderr, result.stderr)
    good("windows_on_stdin", plain, "-", stdin=windows)
    good("windows_as_they_are", windows, "--format=text", "windows.txt")
    good("utf16_windows", plain, write("wide.txt", windows.decode("utf-8").encode("utf-16-le")))
    good("latin1_windows", plain, "--encoding=latin1", write("old.txt", plain.replace(b"\n", b"\r\n")))
    for kind in ("chars", "train"):
        words = [f"--tokenizer={kind}"] + (["--vocab-size=300"] if kind == "train" else [])
        prepare(*words, "plain.txt")
        expected = {name: read("out/" + name) for name in ("train.bin", "val.bin", "gpt_tokenizer.json")}
        prepare(*words, "windows.txt")
        for name, content in expected.items():
            check(f"windows_{kind}_{name}", read("out/" + name) == content)
    with open("windows.txt", encoding="utf-8") as file:
        text_now = file.read()[1:]
    prepare("--tokenizer=chars", "windows.txt")
    letters = sorted(set(text_now))
    expected = [letters.index(letter) for letter in text_now]
    cut = int(len(text_now) * 0.9)
    check("windows_as_nanogpt", ids("out/train.bin") == expected[:cut] and ids("out/val.bin") == expected[cut:])
    result = good("dedup_windows", plain, "--dedup", "plain.txt", "windows.txt")
    check("dedup_windows_note", b"1 exact duplicate left out" in result.stdout, result.stdout)
    result = good("jsonl_mark", b"a\r\nb\nc", write("mark.jsonl", b"\xef\xbb\xbf" + jsonl("a\r\nb", "c").encode()))
    check("jsonl_mark_note", b"mark.jsonl: 1 byte-order mark left out" in result.stderr, result.stderr)
    chat = json.dumps({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "abc"}]}).encode()
    words = ["--chat=chatml", "--tokenizer=train", "--vocab-size=300", "--block-size=16", "--val-fraction=0"]
    seen = []
    for content in (chat, b"\xef\xbb\xbf" + chat + b"\r\n"):
        result = prepare(*words, write("chat.jsonl", content))
        seen.append(read("out/train.bin") if result.returncode == 0 else result.stderr)
    check("chat_mark", seen[0] == seen[1], seen)
    if b"without libarchive" in prepare(write("windows.txt.gz", gzip.compress(windows))).stderr:
        skip("prepare_archives", "a build without libarchive")
        return
    good("windows_gz", plain, "windows.txt.gz")
    check("one_gz_divides_as_its_text", prepare("windows.txt.gz").returncode == 0 and text() == plain[:int(len(plain) * 0.9)])
    tar_of([("a/windows.txt", windows), ("b.txt.gz", gzip.compress(windows)), ("c.txt", plain)], "windows.tar")
    result = good("windows_tar", plain + b"\n" + plain + b"\n" + plain, "windows.tar")
    check("windows_tar_note", b"windows.tar: member a/windows.txt and 1 other text: 798 " in result.stderr, result.stderr)


def test_documents():
    write("t.txt", "one\n\ntwo\nlines\n\n\n\nfour")
    expected = b"one\n\ntwo\nlines\n\n\n\nfour"
    result = good("blank_line", expected, "--documents=blank-line", "--document-separator=none", "t.txt")
    check("blank_line_count", b"4 documents" in result.stdout, result.stdout)
    good("end_of_text", b"one\ntwo\n", "--documents=end-of-text",
         write("m.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\n"))
    refused("no_eot", 2, ["--document-separator=after", "no end-of-text"], "--document-separator=after", "t.txt")
    arguments = ["--tokenizer=train", "--vocab-size=257", "--val-split=position", "--val-fraction=0.000001"]
    bytes_of = {}
    for separator in ("none", "before", "between", "after"):
        result = prepare(*arguments, "--documents=blank-line", f"--document-separator={separator}", "t.txt")
        bytes_of[separator] = ids("out/train.bin") + ids("out/val.bin")
    one, eot = bytes_of["none"], 256
    parts = [one[:5], one[5:5 + 11], one[16:18], one[18:]]
    joined = {"before": sum(([eot] + part for part in parts), []),
              "after": sum((part + [eot] for part in parts), []),
              "between": sum(([eot] + part for part in parts), [])[1:]}
    for separator, expected in joined.items():
        check(f"separator_{separator}", bytes_of[separator] == expected, bytes_of[separator])
    prepare(*arguments, "t.txt")
    check("single_text_has_no_separator", ids("out/train.bin") + ids("out/val.bin") == one)
    prepare(*arguments, "--val-split=document", "--val-fraction=0.5", "--documents=blank-line", "t.txt")
    check("separator_auto_is_after", ids("out/train.bin")[-1] == eot and ids("out/val.bin")[-1] == eot)


def test_split_and_copies():
    texts = [f"document number {i} {i * i}\n" for i in range(400)]
    write("s.jsonl", jsonl(*texts))
    for seed in (1, 2):
        prepare(f"--seed={seed}", "--val-fraction=0.25", "s.jsonl", out=f"seed{seed}")
    first = [text(split, "seed1").decode().splitlines(True) for split in ("train", "val")]
    check("split_holds_all", sorted(first[0] + first[1]) == sorted(texts))
    check("split_fraction", 60 <= len(first[1]) <= 140, len(first[1]))
    check("split_keeps_order", first[0] == [t for t in texts if t in set(first[0])])
    check("split_by_seed", text("val", "seed1") != text("val", "seed2"))
    # The split of a document does not depend on the documents around it.
    write("s2.jsonl", jsonl(*(texts[200:] + ["another\n"] + texts[:200])))
    prepare("--seed=1", "--val-fraction=0.25", "s2.jsonl", out="moved")
    check("split_by_content", set(text("val", "moved").decode().splitlines(True)) - {"another\n"} == set(first[1]))
    write("copies.jsonl", jsonl("a", "b", "a", "c", "b", "a "))
    result = good("dedup", b"a\nb\nc\na ", "--dedup", "copies.jsonl")
    check("dedup_is_said", b"2 exact duplicates left out" in result.stdout, result.stdout)
    good("dedup_across_files", b"a\nb\nc\na ", "--dedup", "copies.jsonl", "copies.jsonl")
    uneven = prepare(write("uneven.jsonl", jsonl("a" * 4000, "b", "c" * 60, "d" * 3000)))
    shares = len(text("val")), len(both())
    check("uneven", (b"--val-split=position" in uneven.stderr) == (not 0.05 <= shares[0] / shares[1] <= 0.2), (shares, uneven.stderr))
    check("uneven_share", b"validation has %.3g %%" % (100 * shares[0] / shares[1]) in uneven.stderr, uneven.stderr)
    uneven = prepare("--val-split=position", "uneven.jsonl")
    check("uneven_position", b"validation has" not in uneven.stderr, uneven.stderr)
    refused("no_val", 2, ["copies.jsonl", "6 documents", "0 for validation"], "--val-fraction=0.0000001", "copies.jsonl")


def test_split_by_position():
    """The last characters are for validation, whether a character has several tokens or a token several characters."""
    hindi, english = "नमस्ते 你好🙂\n" * 60, "the cat and the dog and the cat\n" * 60
    write("a.txt", hindi)
    write("b.txt", english)
    for name, size, inputs, whole in (("bytes", 257, ["a.txt"], hindi), ("both", 257, ["a.txt", "b.txt"], hindi + english),
                                      ("merged", 300, ["b.txt"], english), ("mixed", 300, ["b.txt", "a.txt"], english + hindi)):
        for fraction in (0, 0.003, 0.97):
            result = prepare("--tokenizer=train", f"--vocab-size={size}", f"--val-fraction={fraction}",
                             "--document-separator=none", *inputs)
            check(f"position_{name}_{fraction}", result.returncode == 0, result.stderr)
            vocabulary = read_json("out/vocab.json")
            letter = {character: byte for byte, character in enumerate(byte_letters())}
            bytes_of = {token: bytes(letter[c] for c in word) for word, token in vocabulary.items() if word != "<|endoftext|>"}
            train, val = (b"".join(map(bytes_of.get, ids(f"out/{split}.bin"))) if os.path.exists(f"out/{split}.bin") else b""
                          for split in ("train", "val"))
            wanted = len(whole) - int(len(whole) * (1 - fraction))
            found = len(val.decode(errors="replace"))
            check(f"position_{name}_{fraction}_whole", train + val == whole.encode())
            check(f"position_{name}_{fraction}_val", os.path.exists("out/val.bin") == (fraction > 0) and
                  (found == wanted if size == 257 else wanted - 12 < found <= wanted), (found, wanted))


def test_shards():
    data = bytes(range(256)) * 40
    write("data.bin", data)
    for shard, fraction in [(1000, 0.1), (10240, 0.5), (1, 0.9), (3333, 0.3)]:
        if shard == 1:
            data = data[:300]
            write("data.bin", data)
        result = prepare(f"--shard-tokens={shard}", f"--val-fraction={fraction}", "data.bin")
        manifest = read_json("out/manifest.json")
        train = int(len(data) * (1 - fraction))
        check(f"shards_{shard}", result.returncode == 0 and both() == data and len(text("train")) == train and
              manifest["train"]["tokens"] == train, (result.stderr, len(text("train")), train))
        check(f"shards_{shard}_sizes", all(entry["size_bytes"] == os.path.getsize("out/" + entry["file"]) and
                                            entry["tokens"] <= shard for split in ("train", "val")
                                            for entry in manifest[split]["files"]))
    # A data set that replaces another leaves none of its files.
    prepare("data.bin", clean=False)
    check("shards_replaced", sorted(os.listdir("out")) ==
          ["gpt_tokenizer.json", "manifest.json", "train.bin", "val.bin"], os.listdir("out"))
    prepare("--tokenizer=train", "--vocab-size=300", write("words.txt", "some words and some more\n" * 50), clean=False)
    check("exports_there", os.path.exists("out/tokenizer.json") and os.path.exists("out/merges.txt"))
    prepare("--shard-tokens=50", "data.bin", clean=False)
    check("files_replaced", "train.bin" not in os.listdir("out") and "tokenizer.json" not in os.listdir("out"),
          os.listdir("out"))


def test_stdin_and_bytes():
    good("stdin", b"from a pipe", "-", stdin=b"from a pipe")
    result = prepare("--tokenizer=chars", "--val-fraction=0.5", "-", stdin="zweimal gelesen ä".encode())
    check("stdin_chars", result.returncode == 0 and b"vocab size: 12" in result.stdout, result.stdout)
    check("stdin_copy_is_gone", sorted(os.listdir("out")) ==
          ["gpt_tokenizer.json", "manifest.json", "train.bin", "val.bin"], os.listdir("out"))
    result = subprocess.run([GPT_PREPARE, "-"], input=b"x", stderr=subprocess.PIPE, check=False)
    check("stdin_needs_out_dir", result.returncode == 2 and b"--out-dir" in result.stderr, result.stderr)
    refused("stdin_empty", 2, ["no text"], "-")
    refused("stdin_twice", 2, ["once"], "-", "-", stdin=b"text")
    bad = b"ok \xff\xfe \xe4\xb8 caf\xc3\xa9"
    result = good("not_utf8_is_kept", bad, write("bad.txt", bad))
    check("not_utf8_is_said", b"not UTF-8: 4 bytes in 1 document, kept" in result.stderr, result.stderr)
    refused("not_utf8_chars", 2, ["bad.txt: byte 3 is not UTF-8"], "--tokenizer=chars", "bad.txt")
    write("z.jsonl", jsonl("fine", "a\u0000b"))
    refused("zero_chars", 2, ["z.jsonl: line 2: byte 1 of the text is zero"], "--tokenizer=chars", "z.jsonl")
    # Longer than a part and than a piece: decodes to the same bytes, with and without places to cut at.
    for name, unit in [("words", b"word and word\n"), ("no_space", "ä".encode()), ("binary", b"\x80")]:
        data = unit * ((18 << 20) // len(unit))
        write("big.txt", data)
        result = good(f"long_{name}", data, "--threads=3", "big.txt")
        os.remove("big.txt")
    refused("flag_seed", 2, ["--seed=-1"], "--seed=-1", "bad.txt")
    refused("flag_shard", 2, ["--shard-tokens=0"], "--shard-tokens=0", "bad.txt")
    refused("flag_vocab_size", 2, ["--vocab-size"], "--vocab-size=300", "bad.txt")
    refused("flag_format", 2, ["auto, text or jsonl"], "--format=xml", "bad.txt")
    refused("flag_dedup", 2, ["takes no value"], "--dedup=yes", "bad.txt")


def test_changing_inputs():
    """Files that change after they are listed: while standard input is awaited, or while they are read, like a log."""
    for name, data, expected in [("same", None, 0), ("longer", b"line 1\nline 2\n", 2), ("other", b"LINE 1\n", 2)]:
        shutil.rmtree("out", ignore_errors=True)
        write("log.txt", "line 1\n")
        os.utime("log.txt", (1000000000, 1000000000))
        with subprocess.Popen([GPT_PREPARE, "--out-dir=out", "--val-split=position", "-", "log.txt"], stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            for _ in range(int(patience(600))):
                if os.path.exists("out/.gpt-prepare.lock"):  # made after all files are listed
                    break
                time.sleep(0.05)
            if data is not None:
                write("log.txt", data)
            _, stderr = process.communicate(b"from the pipe\n")
        check(f"input_{name}", process.returncode == expected and os.path.exists("out") == (expected == 0) and
              (expected == 0 or b"log.txt: the file changed while it was read" in stderr), (process.returncode, stderr))


def test_lost_output():
    """When standard output is closed: the status of SIGPIPE, no line, and the data are complete."""
    read, closed = os.pipe()
    os.close(read)
    shutil.rmtree("out", ignore_errors=True)
    result = subprocess.run([GPT_PREPARE, "--out-dir=out", write("lost.txt", "some text")], stdin=subprocess.DEVNULL, stdout=closed,
                            stderr=subprocess.PIPE, check=False)
    os.close(closed)
    check("closed_pipe", result.returncode == 128 + signal.SIGPIPE and b"error" not in result.stderr and
          os.path.exists("out/manifest.json"), result)


def archives():
    result = prepare(write("probe.gz", gzip.compress(b"text of a probe")))
    if b"without libarchive" in result.stderr:
        check("refused_without_libarchive", result.returncode == 2 and len(result.stderr.splitlines()) == 1)
        skip("prepare_archives", "a build without libarchive")
    else:
        test_archives()
        test_bad_archives()


end(test_jsonl, archives, test_not_text, test_encodings, test_windows, test_documents, test_split_and_copies, test_split_by_position, test_shards, test_stdin_and_bytes,
    test_changing_inputs, test_lost_output)
