#!/usr/bin/env python3
"""What train_resnet50 makes of hostile or unlucky surroundings: special files, patterns, limits, signals.

    tests/models/hygiene.py BUILD/models/resnet50/train_resnet50 [ROW]
"""
import contextlib
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from rows import Skip, run_rows  # noqa: E402
from trainer import (ERROR, INTERRUPTED, NOISE, OK, PROGRAM, SMALL, USAGE, checkpoint, fails, folders, has_step,
                     write_image, run, steps_of)  # noqa: E402

AT_ONCE = 20  # seconds, on a busy machine; what waits for a pipe waits for ever
BUILD = os.path.dirname(os.path.dirname(os.path.dirname(PROGRAM)))
TRAIN = [*NOISE, *SMALL, "--optim", "sgd", "--no-tensorboard"]


def loads(*command, cwd):
    """Names of the libraries that the dynamic linker initialised."""
    env = {**os.environ, "LD_DEBUG": "libs"}
    p = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", timeout=240)
    return [line.rsplit("/", 1)[-1] for line in p.stderr.splitlines() if "calling init:" in line]


def not_sanitized(cwd):
    if any("asan" in name for name in loads(PROGRAM, "--help", cwd=cwd)):
        raise Skip("ASan reserves terabytes of addresses")


def refused(command, says, cwd):
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=AT_ONCE)
    assert p.returncode in (ERROR, USAGE), f"{command}: exit {p.returncode}"
    said = [line for line in p.stderr.splitlines() if not line.startswith("lather info")]
    assert len(said) == 1 and says in said[0], f"{command}: {p.stderr}"


# --- rows ---------------------------------------------------------------------------------------

def special_files_are_refused_at_once(cwd):
    folders(cwd)
    run(*TRAIN, "--max-steps", "1", "--output", "out", cwd=cwd)
    weights = "out/model.safetensors"
    os.mkfifo(os.path.join(cwd, "pipe.yaml"))
    os.rename(os.path.join(cwd, "data/val/class0"), os.path.join(cwd, "flat"))
    train = [PROGRAM, "--data", "flat", *SMALL, "--eval"]
    places = [[PROGRAM, *TRAIN, "--weights"], [PROGRAM, *TRAIN, "--config"], [PROGRAM, *TRAIN, "--recipe"],
              [*train, "--weights", weights, "--val-labels"], [PROGRAM, "predict", "x.bmp", "--weights"],
              [PROGRAM, "predict", "flat/0.bmp", "--weights", weights, "--class-names"],
              [os.path.join(BUILD, "tools", "inspect")]]
    for place in places:
        refused([*place, "./pipe.yaml"], "pipe.yaml: not a regular file, but a pipe", cwd)
        refused([*place, "/dev/zero"], "/dev/zero: not a regular file, but a device", cwd)
    with open(os.path.join(cwd, "names"), "w") as f:  # control
        f.write("a\nb\nc\n")
    run("predict", "flat/0.bmp", "--weights", weights, "--class-names", "names", cwd=cwd)


def patterns_are_limited(cwd):
    hard = "((((a{1,255}){1,255}){1,255}){1,255})"
    rows = [("(" * 20000, "a pattern of 20000 bytes, at most 255 are taken"),
            (hard, "4.22825e+09 repetitions by braces, at most 1000 are taken"),
            ("(a{500,}){3}", "1500 repetitions by braces"), ("(.*)x\\1", "back-references are not taken"),
            ("a(", "is no regular expression")]
    for pattern, says in rows:
        for flag, value in ("--freeze", pattern), ("--param-group", pattern + ":lr=0"):
            refused([PROGRAM, *TRAIN, flag, value, "--output", "out"], says, cwd)
            assert not os.path.exists(os.path.join(cwd, "out", "model.safetensors"))
    for pattern in r"layer[12]\.[0-9]{1,3}\.conv{1}", r"^fc\.", r"\{1000\}|bn":  # controls
        run(*TRAIN, "--freeze", pattern, "--max-steps", "1", "--output", pattern[1:3], cwd=cwd)


def a_file_that_grows_too_large_is_an_error(cwd):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))

    p = subprocess.run([PROGRAM, *TRAIN, "--max-steps", "2", "--output", "out"], cwd=cwd, capture_output=True, text=True,
                       timeout=240, preexec_fn=small_files)
    assert p.returncode == ERROR and "File too large" in p.stderr, (p.returncode, p.stderr)
    assert len(steps_of(cwd, "out")) == 2


def a_pipe_without_a_reader_is_an_error(cwd):
    run(*TRAIN, "--max-steps", "1", "--output", "out", cwd=cwd)
    write_image(os.path.join(cwd, "a.bmp"), 20, 7)
    predict = [PROGRAM, "predict", "--weights", "out/model.safetensors", "a.bmp"]
    for command, wanted in ([PROGRAM, "--help"], 0), (predict, ERROR):  # a reader of the help, such as head, may stop early
        ours, theirs = os.pipe()
        os.close(ours)
        p = subprocess.run(command, cwd=cwd, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=240)
        os.close(theirs)
        said = [line for line in p.stderr.splitlines() if line.startswith("train_resnet50: ")]
        assert p.returncode == wanted and len(said) == (wanted != 0), (p.returncode, p.stderr)
        assert not said or "refused" in said[0], p.stderr
    with open("/dev/full", "w") as full:
        p = subprocess.run(predict, cwd=cwd, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
    assert p.returncode == ERROR and "No space left on device" in p.stderr, p.stderr


@contextlib.contextmanager
def started(cwd, folder, **how):
    """A run that goes on until it is told to stop, and is at work."""
    p = subprocess.Popen([PROGRAM, *TRAIN, "--epochs", "100000", "--max-steps", "100000", "--log-every", "1", "--output", folder],
                         cwd=cwd, stderr=subprocess.PIPE, **how)
    end = time.monotonic() + 120
    try:
        while not has_step(cwd, folder, 1) and time.monotonic() < end:
            time.sleep(0.01)
        yield p
    finally:  # a row that failed leaves no run behind
        p.kill()
        p.wait()
        p.stderr.close()


def a_hangup_and_a_warning_of_the_batch_system_save(cwd):
    for folder, signals in ("hup", [signal.SIGHUP, signal.SIGHUP]), ("usr1", [signal.SIGUSR1, signal.SIGTERM]):
        with started(cwd, folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as p:  # not nohup's
            for number in signals:  # neither is a second one that ends the run at once
                p.send_signal(number)
            p.communicate(timeout=120)
        assert p.returncode == INTERRUPTED, (folder, p.returncode)
        assert os.path.exists(checkpoint(cwd, folder, len(steps_of(cwd, folder)))), folder
    with started(cwd, "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as p:
        with open(os.path.join(cwd, "nohup", "metrics.jsonl")) as f:  # whose last line may be half a record
            steps = f.read().count('"event":"step"')
        p.send_signal(signal.SIGHUP)
        end = time.monotonic() + 120
        while not has_step(cwd, "nohup", steps + 20) and time.monotonic() < end:
            time.sleep(0.01)
        assert p.poll() is None, "nohup is not heeded"
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=120)
    assert p.returncode == INTERRUPTED, p.returncode


def little_memory_and_little_stack_end_no_run_late(cwd):
    not_sanitized(cwd)
    kilo = 1024
    rows = [(resource.RLIMIT_AS, 122880 * kilo, False), (resource.RLIMIT_AS, 200000 * kilo, False),
            (resource.RLIMIT_AS, 600000 * kilo, True), (resource.RLIMIT_STACK, 64 * kilo, True)]
    # The environment lies on the stack too: its size is not what this row measures.
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    for i, (which, size, works) in enumerate(rows):
        p = subprocess.run([PROGRAM, *TRAIN, "--max-steps", "1", "--output", str(i)], cwd=cwd, capture_output=True, text=True,
                           env=env, timeout=60, preexec_fn=lambda: resource.setrlimit(which, (size, size)))
        assert not works or p.returncode == OK, (size, p.returncode, p.stderr)


def a_run_on_the_cpu_loads_no_cuda(cwd):
    run_here = [PROGRAM, *TRAIN, "--max-steps", "1", "--device", "cpu", "--output", "out"]
    found = loads(*run_here, cwd=cwd)
    assert any(name.startswith("liblather") for name in found), "the linker did not say what it loads"
    wrong = [name for name in found if name.startswith(("libcu", "libnccl", "liblather-cuda"))]
    assert not wrong, wrong
    version = run("--version", cwd=cwd).stdout
    if "cuda: the CUDA runtime" in version:  # control
        assert "liblather-cuda.so" in loads(PROGRAM, "--version", cwd=cwd)


NASTY = b"a\nb\x1b[2J\x1b]0;x\x07\xff\xc2\x9b\x7f\r"


def clean(data, what):
    """Text without control bytes but newlines, C1 among them; what: of what."""
    text = data.decode(errors="surrogateescape")
    assert not re.search("[\ud800-\udfff]", text), f"{what}: no UTF-8: {data[:500]}"
    wrong = sorted({c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)})
    assert not wrong, f"{what}: {wrong} in {text[:300]!r}"
    return text


def says(command, cwd, code=OK):
    """Both outputs, clean."""
    p = subprocess.run(command, cwd=cwd, capture_output=True, timeout=240)
    text = clean(p.stdout, command) + clean(p.stderr, command)
    assert p.returncode == code, f"{command}: exit {p.returncode}: {text}"
    return text


def hostile_images(cwd):
    """Three classes; a broken image in two of them."""
    for part in b"train", b"val":
        for c in range(3):
            folder = os.path.join(cwd.encode(), b"data", part, NASTY + b"%d" % c)
            os.makedirs(folder)
            for i in range(4):
                write_image(os.path.join(folder, NASTY + b"%d.bmp" % i), 20, 80 * c + 5 * i)
            if c < 2:
                with open(os.path.join(folder, NASTY + b".png"), "wb") as f:
                    f.write(b"\x89PNG\r\n\x1a\n")


def hostile_tensors(path):
    """One tensor; JSON's escapes hold any character."""
    name = NASTY.decode("latin-1")
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                         "__metadata__": {"class_names": name, "arch": name}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1))


def hostile_names_reach_no_terminal_and_no_list(cwd):
    for control in b"\xff", b"\x1b", "\x9b".encode():
        try:
            clean(control, "a control")
        except AssertionError:
            continue
        raise ValueError(f"{control} is not seen")
    hostile_images(cwd)
    hostile_tensors(os.path.join(cwd, "crafted.safetensors"))
    nasty, weights = os.path.join(b"data/val", NASTY + b"1"), "out/model.safetensors"
    flags = [*SMALL[:-3], "--data", "data", "--optim", "sgd", "--image-size", "16", "--no-tensorboard"]
    tool = os.path.join(BUILD, "tools")
    text = says([PROGRAM, *flags, "--epochs", "2", "--progress", "lines", "--output", "out"], cwd)
    assert "top-1" in text
    text = says([PROGRAM, "predict", "--weights", weights, os.path.join(nasty, NASTY + b"0.bmp"), os.path.join(nasty, NASTY + b".png")],
                cwd, ERROR)
    shown = r"a\x0ab\x1b[2J\x1b]0;x\x07\xff\xc2\x9b\x7f\x0d"
    assert text.count(shown) > 4, text
    with open(os.path.join(cwd, "out", "env.json"), "ab") as f:
        f.write(b"<" + NASTY)
    for command, code in ([PROGRAM, *flags, "--eval", "--weights", weights], OK), ([tool + "/inspect", "out/checkpoints/step-6"], OK), \
            ([tool + "/inspect", "crafted.safetensors"], OK), ([tool + "/inspect", "--json", "crafted.safetensors"], OK), \
            ([tool + "/pack", "data", "packed"], OK), ([tool + "/report", "--title", NASTY, "out"], OK), \
            ([PROGRAM, *flags, "--weights", "crafted.safetensors"], ERROR), ([PROGRAM, *flags, "--weights", NASTY], ERROR), \
            ([PROGRAM, *flags, "--resume", NASTY, "--output", "new"], ERROR), ([PROGRAM, "--config", NASTY], USAGE), \
            ([PROGRAM, *flags, "--max-bad-images", "0"], ERROR), ([tool + "/inspect", NASTY], ERROR), \
            ([tool + "/pack", NASTY, "other"], ERROR), ([PROGRAM, *flags, "--freeze", NASTY], USAGE):
        assert says(command, cwd, code)
    lists = {"out/bad_images.txt": 4, "packed/train/bad_images.txt": 2}  # different lines
    for name in [*lists, "out/report.html", "out/metrics.jsonl", "out/config.yaml"]:
        with open(os.path.join(cwd, name), "rb") as f:
            text = clean(f.read(), name)
        lines = set(text.splitlines())
        assert name not in lists or (len(lines) == lists[name] and all(shown in line for line in lines)), f"{name}: {text}"


ROWS = [special_files_are_refused_at_once, patterns_are_limited, a_file_that_grows_too_large_is_an_error,
        a_pipe_without_a_reader_is_an_error, a_hangup_and_a_warning_of_the_batch_system_save,
        little_memory_and_little_stack_end_no_run_late, a_run_on_the_cpu_loads_no_cuda,
        hostile_names_reach_no_terminal_and_no_list]

if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-hygiene-", sys.argv[2] if len(sys.argv) > 2 else None))
