#!/usr/bin/env python3
"""train_resnet50 in hostile or unfavorable environments: special files, patterns, limits, signals.

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

from trainer import (ERROR, INTERRUPTED, NOISE, OK, PROGRAM, SMALL, TOOLS, USAGE, Skip, checkpoint, content, finish, folders, has_step, run,
                     run_rows, start, steps_of, wait_for, write_image)

AT_ONCE = 20  # seconds, on a busy machine; reading a pipe would block forever
TRAIN = [*NOISE, *SMALL, "--optim", "sgd", "--no-tensorboard"]


def loads(*command, cwd):
    """Returns the names of the libraries that the dynamic linker initialized."""
    env = {**os.environ, "LD_DEBUG": "libs"}
    p = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", timeout=240)
    return [line.rsplit("/", 1)[-1] for line in p.stderr.splitlines() if "calling init:" in line]


def not_sanitized(cwd):
    if any("asan" in name for name in loads(PROGRAM, "--help", cwd=cwd)):
        raise Skip("ASan reserves terabytes of addresses")


def is_rejected(command, says, cwd):
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=AT_ONCE)
    assert p.returncode in (ERROR, USAGE), f"{command}: exit {p.returncode}"
    said = [line for line in p.stderr.splitlines() if not line.startswith("lather info")]
    assert len(said) == 1 and says in said[0], f"{command}: {p.stderr}"


# --- rows ---------------------------------------------------------------------------------------

def special_files_are_rejected_at_once(cwd):
    folders(cwd)
    run(*TRAIN, "--max-steps", "1", "--output", "out", cwd=cwd)
    weights = "out/model.safetensors"
    os.mkfifo(os.path.join(cwd, "pipe.yaml"))
    os.rename(os.path.join(cwd, "data/val/class0"), os.path.join(cwd, "flat"))
    train = [PROGRAM, "--data", "flat", *SMALL, "--eval"]
    places = [[PROGRAM, *TRAIN, "--weights"], [PROGRAM, *TRAIN, "--config"], [PROGRAM, *TRAIN, "--recipe"],
              [*train, "--weights", weights, "--val-labels"], [PROGRAM, "predict", "x.bmp", "--weights"],
              [PROGRAM, "predict", "flat/0.bmp", "--weights", weights, "--class-names"],
              [os.path.join(TOOLS, "inspect")]]
    for place in places:
        is_rejected([*place, "./pipe.yaml"], "pipe.yaml: not a regular file, but a pipe", cwd)
        is_rejected([*place, "/dev/zero"], "/dev/zero: not a regular file, but a device", cwd)
    with open(os.path.join(cwd, "names"), "w") as f:  # control
        f.write("a\nb\nc\n")
    run("predict", "flat/0.bmp", "--weights", weights, "--class-names", "names", cwd=cwd)


def patterns_are_limited(cwd):
    hard = "((((a{1,255}){1,255}){1,255}){1,255})"
    rows = [("(" * 20000, "pattern of 20000 bytes, at most 255 are allowed"),
            (hard, "4.22825e+09 repetitions by braces, at most 1000 are allowed"),
            ("(a{500,}){3}", "1500 repetitions by braces"), ("(.*)x\\1", "back-references are not supported"),
            ("a(", "invalid regular expression 'a('")]
    for pattern, says in rows:
        for flag, value in ("--freeze", pattern), ("--param-group", pattern + ":lr=0"):
            is_rejected([PROGRAM, *TRAIN, flag, value, "--output", "out"], says, cwd)
            assert not os.path.exists(os.path.join(cwd, "out", "model.safetensors"))
    for pattern in r"layer[12]\.[0-9]{1,3}\.conv{1}", r"^fc\.", r"\{1000\}|bn":  # controls
        run(*TRAIN, "--freeze", pattern, "--max-steps", "1", "--output", pattern[1:3], cwd=cwd)


def a_pipe_without_a_reader_is_silent(cwd):
    run(*TRAIN, "--max-steps", "1", "--output", "out", cwd=cwd)
    write_image(os.path.join(cwd, "a.bmp"), 20, 7)
    predict = [PROGRAM, "predict", "--weights", "out/model.safetensors", "a.bmp"]
    for command, wanted in ([PROGRAM, "--help"], 0), (predict, ERROR):  # a reader such as head may stop early
        ours, theirs = os.pipe()
        os.close(ours)
        p = subprocess.run(command, cwd=cwd, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=240)
        os.close(theirs)
        assert p.returncode == wanted and "train_resnet50: " not in p.stderr, (p.returncode, p.stderr)
    with open("/dev/full", "w") as full:
        p = subprocess.run(predict, cwd=cwd, stdout=full, stderr=subprocess.PIPE, text=True, timeout=240)
    assert p.returncode == ERROR and "No space left on device" in p.stderr, p.stderr


@contextlib.contextmanager
def started(cwd, folder, **how):
    """Starts a run without end, and waits for its first step."""
    p = start(*TRAIN, "--epochs", "100000", "--max-steps", "100000", "--log-every", "1", "--output", folder, cwd=cwd, **how)
    try:
        wait_for(p, lambda: has_step(cwd, folder, 1))
        yield p
    finally:  # also after a failure
        p.kill()
        p.wait()
        p.stderr.close()


def sighup_and_sigusr1_save_a_checkpoint(cwd):
    for folder, signals in ("hup", [signal.SIGHUP, signal.SIGHUP]), ("usr1", [signal.SIGUSR1, signal.SIGTERM]):
        with started(cwd, folder, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)) as p:  # not inherited from nohup
            for number in signals:  # neither counts as a second signal, which ends the run at once
                p.send_signal(number)
            finish(p, INTERRUPTED)
        assert os.path.exists(checkpoint(cwd, folder, len(steps_of(cwd, folder)))), folder
    with started(cwd, "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as p:
        with open(os.path.join(cwd, "nohup", "metrics.jsonl")) as f:  # the last line may be incomplete
            steps = f.read().count('"event":"step"')
        p.send_signal(signal.SIGHUP)
        wait_for(p, lambda: has_step(cwd, "nohup", steps + 20))
        p.send_signal(signal.SIGINT)
        finish(p, INTERRUPTED)


def low_memory_and_stack_limits_end_no_run_late(cwd):
    not_sanitized(cwd)
    kilo = 1024
    rows = [(resource.RLIMIT_AS, 122880 * kilo, False), (resource.RLIMIT_AS, 200000 * kilo, False),
            (resource.RLIMIT_AS, 600000 * kilo, True), (resource.RLIMIT_STACK, 64 * kilo, True)]
    # The environment is on the stack too; keep it small.
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    for i, (which, size, works) in enumerate(rows):
        p = subprocess.run([PROGRAM, *TRAIN, "--max-steps", "1", "--output", str(i)], cwd=cwd, capture_output=True, text=True,
                           env=env, timeout=60, preexec_fn=lambda: resource.setrlimit(which, (size, size)))
        assert not works or p.returncode == OK, (size, p.returncode, p.stderr)


def a_run_on_the_cpu_loads_no_cuda(cwd):
    run_here = [PROGRAM, *TRAIN, "--max-steps", "1", "--device", "cpu", "--output", "out"]
    found = loads(*run_here, cwd=cwd)
    assert any(name.startswith("liblather") for name in found), "no output of the dynamic linker"
    wrong = [name for name in found if name.startswith(("libcu", "libnccl", "liblather-cuda"))]
    assert not wrong, wrong
    version = run("--version", cwd=cwd).stdout
    if "cuda: the CUDA runtime" in version:  # control
        assert "liblather-cuda.so" in loads(PROGRAM, "--version", cwd=cwd)


NASTY = b"a\nb\x1b[2J\x1b]0;x\x07\xff\xc2\x9b\x7f\r"


def clean(data, what):
    """Decodes text and checks that it has no control characters (C0, C1) except newlines."""
    text = data.decode(errors="surrogateescape")
    assert not re.search("[\ud800-\udfff]", text), f"{what}: not UTF-8: {data[:500]}"
    wrong = sorted({c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)})
    assert not wrong, f"{what}: {wrong} in {text[:300]!r}"
    return text


def output(command, cwd, code=OK):
    """Returns both outputs, checked by clean()."""
    p = subprocess.run(command, cwd=cwd, capture_output=True, timeout=240)
    text = clean(p.stdout, command) + clean(p.stderr, command)
    assert p.returncode == code, f"{command}: exit {p.returncode}: {text}"
    return text


def hostile_images(cwd):
    """Makes three classes, two of them with a corrupt image."""
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
    """Writes one tensor; JSON escapes can encode any character."""
    name = NASTY.decode("latin-1")
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                         "__metadata__": {"class_names": name, "arch": name}}).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1))


def hostile_names_are_escaped(cwd):
    for control in b"\xff", b"\x1b", "\x9b".encode():
        try:
            clean(control, "control")
        except AssertionError:
            continue
        raise ValueError(f"{control} is not detected")
    hostile_images(cwd)
    hostile_tensors(os.path.join(cwd, "crafted.safetensors"))
    nasty, weights = os.path.join(b"data/val", NASTY + b"1"), "out/model.safetensors"
    flags = [*SMALL[:-3], "--data", "data", "--optim", "sgd", "--image-size", "16", "--no-tensorboard"]
    text = output([PROGRAM, *flags, "--epochs", "2", "--progress", "lines", "--output", "out"], cwd)
    assert "top-1" in text
    text = output([PROGRAM, "predict", "--weights", weights, os.path.join(nasty, NASTY + b"0.bmp"), os.path.join(nasty, NASTY + b".png")],
                cwd, ERROR)
    shown = r"a\x0ab\x1b[2J\x1b]0;x\x07\xff\xc2\x9b\x7f\x0d"
    assert text.count(shown) > 4, text
    with open(os.path.join(cwd, "out", "env.json"), "ab") as f:
        f.write(b"<" + NASTY)
    for command, code in ([PROGRAM, *flags, "--eval", "--weights", weights], OK), ([TOOLS + "/inspect", "out/checkpoints/step-6"], OK), \
            ([TOOLS + "/inspect", "crafted.safetensors"], OK), ([TOOLS + "/inspect", "--json", "crafted.safetensors"], OK), \
            ([TOOLS + "/pack", "data", "packed"], OK), ([TOOLS + "/report", "--title", NASTY, "out"], OK), \
            ([PROGRAM, *flags, "--weights", "crafted.safetensors"], ERROR), ([PROGRAM, *flags, "--weights", NASTY], ERROR), \
            ([PROGRAM, *flags, "--resume", NASTY, "--output", "new"], ERROR), ([PROGRAM, "--config", NASTY], USAGE), \
            ([PROGRAM, *flags, "--max-bad-images", "0"], ERROR), ([TOOLS + "/inspect", NASTY], ERROR), \
            ([TOOLS + "/pack", NASTY, "other"], ERROR), ([PROGRAM, *flags, "--freeze", NASTY], USAGE):
        assert output(command, cwd, code)
    lists = {"out/bad_images.txt": 4, "packed/train/bad_images.txt": 2}  # number of distinct lines
    for name in [*lists, "out/report.html", "out/metrics.jsonl", "out/config.yaml"]:
        text = clean(content(cwd, name), name)
        lines = set(text.splitlines())
        assert name not in lists or (len(lines) == lists[name] and all(shown in line for line in lines)), f"{name}: {text}"


ROWS = [special_files_are_rejected_at_once, patterns_are_limited,
        a_pipe_without_a_reader_is_silent, sighup_and_sigusr1_save_a_checkpoint,
        low_memory_and_stack_limits_end_no_run_late, a_run_on_the_cpu_loads_no_cuda,
        hostile_names_are_escaped]

sys.exit(run_rows(ROWS, "lather-hygiene-", *sys.argv[2:3]))
