#!/usr/bin/env python3
"""Times a training step of ResNet-50, or of --arch, here and in PyTorch, by turns, and prints a Markdown table.

    tools/bench_peer.py --bench build/tools/bench --python PYTHON [--rounds 3] [--also 'NAME=COMMAND']
    tools/bench_peer.py --eval --bench BENCH --python PYTHON     a forward pass that evaluates (inference_mode)
    tools/bench_peer.py --device cuda --bench BENCH --python PYTHON     eager and compiled, f16, bf16, tf32
    tools/bench_peer.py --linear --bench BENCH --python PYTHON     the products of transformers, against F.linear
    tools/bench_peer.py --attention --bench BENCH --python PYTHON     scaled_dot_product_attention, and memory by length
    tools/bench_peer.py --eigh 2048x7,1152x4 --device cuda     a loop of torch.linalg.eigh over such matrices

PYTHON must have torch and torchvision. Each round runs every contestant once, one after the other,
so that a slow minute of the machine hits all alike; the table has medians over rounds and the
median of the ratios within rounds. A PyTorch contestant is a process that waits between its turns: it is
imported, compiled and tuned once. Its steps are queued without waiting for one, on a GPU, and timed by events
there. Peak memory is what the allocator took from the device, after what tuning took was given back; on the CPU
VmHWM minus VmRSS just before the first step. The first step's time has the import and the compiler in it.
A contestant that fails, or does not answer before the budget ends, has a row that says why; the others stand.
--also adds a command that prints '... N img/s', with {dtype} replaced by f32 or bf16."""

import argparse
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

BEGIN = time.monotonic()
# Transformers that torchvision has no function for, or are not torchvision's: width, layers, heads.
VIT = {"vit_ti_16": (192, 12, 3), "vit_s_16": (384, 12, 6)}
GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16)}
# Attention: batch, heads, queries, keys, causal; heads of 64 features. ViT-S/16, GPT-2, long, one query of a KV cache.
SIZES = [(32, 6, 197, 197, False), (4, 12, 256, 256, True), (1, 12, 1024, 1024, True), (1, 12, 1024, 1024, False),
         (1, 12, 1, 1024, False)]
LENGTHS = (512, 1024, 2048, 4096)
# Rows, in and out of the products of bench_linear.c.
PRODUCTS = [(6304, 384, 1152), (6304, 384, 384), (6304, 384, 1536), (6304, 1536, 384), (1024, 768, 2304), (1024, 768, 768),
            (1024, 768, 3072), (1024, 3072, 768), (1024, 768, 50257)]


# --- the PyTorch process ---

def status_bytes(key):
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


class Training:
    """A network and all that its step needs."""

    def __init__(self, a, dtype, layout, how):
        import torch

        self.torch, self.device, self.batch = torch, a.device.split(":")[0], a.batch
        if self.device == "cuda" and ":" in a.device:
            torch.cuda.set_device(int(a.device.split(":")[1]))
        if self.device == "cpu":
            torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        self.set_precision(dtype)
        self.loss_of, self.inputs, self.labels = None, None, None
        if a.arch in GPT2:
            self.open_language(a)
        else:
            self.open_images(a, form)
        modes = {"compiled": None, "graphs": "reduce-overhead"}
        self.forward = torch.compile(self.model, mode=modes[how], dynamic=False) if how in modes else self.model
        self.optim = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4,
            fused=self.device == "cuda" or None,  # its fastest form there
        )
        self.evaluates = a.eval
        self.model.train(not a.eval)
        self.before = status_bytes("VmRSS")

    def open_images(self, a, form):
        import torchvision

        torch = self.torch
        if a.arch in VIT:
            width, layers, heads = VIT[a.arch]
            model = torchvision.models.VisionTransformer(a.size, 16, layers, heads, width, 4 * width)
        else:
            model = getattr(torchvision.models, a.arch)()
            if a.stem == "small":
                model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
        self.model = model.to(self.device, memory_format=form).train()
        self.inputs = torch.randn(a.batch, 3, a.size, a.size).to(self.device, memory_format=form)
        self.labels = torch.randint(0, 1000, (a.batch,)).to(self.device)
        self.loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def open_language(self, a):
        """HuggingFace's GPT-2 with PyTorch's fused attention, without dropout, as ours is."""
        from transformers import GPT2Config, GPT2LMHeadModel

        torch, (width, layers, heads) = self.torch, GPT2[a.arch]
        config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                            attn_implementation="sdpa", use_cache=False)
        self.model = GPT2LMHeadModel(config).to(self.device).train()
        tokens = torch.randint(0, config.vocab_size, (a.batch, a.length + 1)).to(self.device)
        self.inputs, self.labels = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
        self.loss_of = lambda out, labels: torch.nn.functional.cross_entropy(out.logits.view(-1, config.vocab_size).float(), labels)

    def set_precision(self, dtype):
        """The step's context, and the scaler of its loss."""
        torch, kinds = self.torch, {"bf16": self.torch.bfloat16, "f16": self.torch.float16}
        if dtype == "tf32":
            torch.set_float32_matmul_precision("high")  # cuDNN's default is TF32 anyway
        elif dtype == "f32" and self.device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self.context = lambda: torch.autocast(self.device, kinds.get(dtype, torch.bfloat16), enabled=dtype in kinds)
        self.scaler = torch.amp.GradScaler(self.device, enabled=dtype == "f16")

    def step(self):
        if self.evaluates:
            with self.torch.inference_mode(), self.context():
                self.forward(self.inputs)
            return
        self.optim.zero_grad()
        with self.context():
            loss = self.loss_of(self.forward(self.inputs), self.labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optim)
        self.scaler.update()

    def finish(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def seconds(self, steps):
        """Of each of so many."""
        if self.device != "cuda":
            marks = [time.monotonic()]
            for _ in range(steps):
                self.step()
                marks.append(time.monotonic())
            return [b - a for a, b in zip(marks, marks[1:])]
        event = self.torch.cuda.Event
        marks = [event(enable_timing=True) for _ in range(steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            self.step()
            mark.record()
        self.finish()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(marks, marks[1:])]

    def reset_tuning(self):
        if self.device == "cuda":
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def peak(self):
        if self.device == "cuda":
            return self.torch.cuda.max_memory_reserved()
        return status_bytes("VmHWM") - self.before


class Attention:
    """One call, of heads that lie inside their tokens' features, as layers make them, or apart."""

    def __init__(self, a, dtype, layout):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        kind = torch.bfloat16 if dtype == "bf16" else torch.float32
        batch, heads, queries, keys, self.causal = a.shape
        self.torch, self.inputs = torch, []
        for tokens in (queries, keys, keys):
            x = torch.rand(batch, tokens, heads, 64).to(kind).transpose(1, 2)
            self.inputs.append((x.contiguous() if layout == "heads" else x).requires_grad_())
        self.dy = torch.ones(batch, heads, queries, 64).to(kind)
        self.before = status_bytes("VmRSS")

    def forward(self):
        call = self.torch.nn.functional.scaled_dot_product_attention
        return call(*self.inputs, is_causal=self.causal)

    def alone(self):
        with self.torch.no_grad():
            self.forward()

    def step(self):
        self.torch.autograd.grad(self.forward(), self.inputs, self.dy)

    def milliseconds(self, call, warmup, steps):
        times = []
        for _ in range(warmup + steps):
            begin = time.monotonic()
            call()
            times.append(1e3 * (time.monotonic() - begin))
        return statistics.median(times[warmup:])


def attention_child(a, dtype, layout):
    """As child()."""
    call = Attention(a, dtype, layout)
    print(json.dumps({"ready": 0}), flush=True)
    for line in sys.stdin:
        warmup, steps = map(int, line.split())
        print(json.dumps({"forward_milliseconds": call.milliseconds(call.alone, warmup, steps),
                          "step_milliseconds": call.milliseconds(call.step, warmup, steps),
                          "peak_memory_bytes": status_bytes("VmHWM") - call.before}), flush=True)


class Linear:
    """F.linear() as training calls it: weights of f32, bf16 by autocast; all shapes, one after the other."""

    def __init__(self, a, dtype):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.torch = torch
        self.kind = torch.bfloat16 if dtype == "bf16" else torch.float32

    def forward(self, inputs):
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.kind == self.torch.bfloat16):
            return self.torch.nn.functional.linear(*inputs)

    def measure(self, rows, width, out, warmup, steps):
        torch, times = self.torch, []
        inputs = [torch.rand(rows, width).to(self.kind), torch.rand(out, width), torch.rand(out)]
        inputs, dy = [x.requires_grad_() for x in inputs], torch.ones(rows, out).to(self.kind)
        for _ in range(warmup + steps):
            begin = time.monotonic()
            y = self.forward(inputs)
            middle = time.monotonic()
            torch.autograd.grad(y, inputs, dy)
            times.append((1e3 * (middle - begin), 1e3 * (time.monotonic() - begin)))
        forward, step = zip(*times[warmup:])
        return {"forward_milliseconds": statistics.median(forward), "step_milliseconds": statistics.median(step)}


def linear_child(a, dtype):
    """As child()."""
    peer = Linear(a, dtype)
    print(json.dumps({"ready": 0}), flush=True)
    for line in sys.stdin:
        warmup, steps = map(int, line.split())
        print(json.dumps({"ops": [dict(peer.measure(*shape, warmup, steps), shape=list(shape)) for shape in PRODUCTS]}),
              flush=True)


def child(a, dtype, layout, how):
    """Answers each line on stdin, 'WARMUP STEPS', by a line of JSON."""
    training, first = Training(a, dtype, layout, how), None
    opened = time.monotonic() - BEGIN
    print(json.dumps({"ready": opened}), flush=True)
    for line in sys.stdin:
        warmup, steps = map(int, line.split())
        begin = time.monotonic()
        if first is None:
            training.step()
            training.finish()
            first = opened + time.monotonic() - begin
        for _ in range(warmup):
            training.step()
        training.finish()
        training.reset_tuning()
        seconds = training.seconds(steps)
        print(json.dumps({"samples_per_second": a.batch / statistics.median(seconds),
                          "peak_memory_bytes": training.peak(), "version": training.torch.__version__,
                          "cold_start_seconds": first}), flush=True)


def sizes_of(text):
    """[(side, how many)] of '2048x7,1152'."""
    pairs = [(part.split("x") + ["1"])[:2] for part in text.split(",")]
    return [(int(n), int(count)) for n, count in pairs]


def eigh(a):
    """The refresh of implementations that take one matrix after another: one call a matrix."""
    import torch

    total = 0
    print("| side | matrices | one torch.linalg.eigh, ms | all, ms |\n| --- | --- | --- | --- |")
    for n, count in sizes_of(a.eigh):
        x = torch.randn(n, 2 * n, device=a.device)
        matrix, times = x @ x.T / (2 * n), []
        for _ in range(a.rounds + 1):
            begin = time.monotonic()
            values, _ = torch.linalg.eigh(matrix)
            values[0].item()
            times.append(1e3 * (time.monotonic() - begin))
        one = statistics.median(times[1:])
        total += one * count
        print(f"| {n} | {count} | {one:.2f} | {one * count:.1f} |", flush=True)
    note(a, "eigh.milliseconds", total)
    print(f"all of them: {total:.1f} ms")


def sampled_here(a):
    """Tokens a second of train_gpt sample."""
    command = [a.sampler, "sample", "--weights", os.path.join(a.sample, "model.safetensors"), "--tokenizer", "byte", "--temperature", "1",
               "--tokens", "100", "--threads", str(a.threads), "--speed"]
    said = subprocess.run(command, capture_output=True, check=True).stderr.decode()
    return float(re.search(r"([\d.]+) tok/s", said)[1])


def sample(a):
    """One text from a folder of HuggingFace's GPT-2, by turns, each with its cache of keys and values; this process needs transformers."""
    import torch
    from transformers import GPT2LMHeadModel

    warmup, tokens = 3, 100
    torch.set_num_threads(a.threads)
    model, ratios = GPT2LMHeadModel.from_pretrained(a.sample, attn_implementation="sdpa").eval(), []
    print("| lather, tok/s | PyTorch | faster by |\n| --- | --- | --- |")
    for _ in range(a.rounds):
        ours, ids, past = sampled_here(a), torch.tensor([[256]]), None
        with torch.no_grad():
            for i in range(warmup + tokens):
                begin = time.monotonic() if i == warmup else begin if i else 0
                out = model(ids, past_key_values=past, use_cache=True)
                past, ids = out.past_key_values, torch.multinomial(out.logits[:, -1].softmax(-1), 1)
        theirs = tokens / (time.monotonic() - begin)
        ratios.append(ours / theirs)
        print(f"| {ours:.1f} | {theirs:.1f} | {ratios[-1]:.2f} |", flush=True)
    print(f"median: {statistics.median(ratios):.2f}")


# --- contestants ---

class Failed(Exception):
    pass


class TimeUp(Failed):
    def __init__(self):
        super().__init__("no time was left")


def last_line(text):
    said = [line for line in text.strip().split("\n") if line.strip()]
    return (said or ["no message"])[-1][:160].replace("|", "/")


class Command:
    """A program that is started for each turn."""

    def __init__(self, a, command, answer, libraries=None):
        self.a, self.command, self.answer = a, command, answer
        self.env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
        if libraries is not None:
            self.env["LD_LIBRARY_PATH"] = libraries

    def turn(self):
        try:
            out = subprocess.run(self.command, capture_output=True, text=True, env=self.env,
                                 timeout=max(self.a.deadline - time.monotonic(), 1))
        except OSError as error:
            raise Failed(str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise TimeUp from error
        if out.returncode:
            raise Failed(last_line(out.stderr))
        return self.answer(out.stdout)

    def close(self):
        pass


class Peer:
    """A PyTorch process, which waits between its turns."""

    def __init__(self, a, dtype, layout, how):
        self.a, self.process = a, None
        self.command = [a.python, os.path.abspath(__file__), "--child", dtype, layout, how, *common_flags(a)]
        self.errors = tempfile.TemporaryFile("w+")

    def line(self):
        left = self.a.deadline - time.monotonic()
        if not select.select([self.process.stdout], [], [], max(left, 0))[0]:
            raise TimeUp
        text = self.process.stdout.readline()
        if text:
            return json.loads(text)
        code = self.process.wait()
        self.errors.seek(0)
        raise Failed(last_line(self.errors.read()) + ("" if code >= 0 else f" (signal {-code})"))

    def turn(self):
        try:
            if not self.process:
                env = dict(os.environ, OMP_NUM_THREADS=str(self.a.threads))
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                stderr=self.errors, text=True, env=env)
                self.line()
            self.process.stdin.write(f"{self.a.warmup} {self.a.steps}\n")
            self.process.stdin.flush()
        except OSError as error:
            raise Failed(str(error)) from error
        return self.line()

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def common_flags(a):
    if a.linear:
        return ["--linear"]
    if a.attention:
        return ["--attention", "--shape", ",".join(str(int(x)) for x in a.shape)]
    return [*(["--eval"] if a.eval else []), *model_flags(a)]


def model_flags(a):
    return ["--batch-size", str(a.batch), "--device", a.device, "--arch", a.arch,
            *(["--seq-len", str(a.length)] if a.arch in GPT2 else ["--image-size", str(a.size), "--stem", a.stem])]


def our_answer(text):
    found = json.loads(text)
    return dict(found, samples_per_second=next(v for k, v in found.items() if k in ("images_per_second", "sequences_per_second")))


def contestants(a, dtype):
    """{name: (its short name, contestant)}"""
    amp = "off" if dtype == "f32" else dtype
    turns = ["--steps", str(a.steps), "--warmup", str(a.warmup)]
    ours = [a.bench, "eval" if a.eval else "train", "--amp", amp, "--threads", str(a.threads), "--json", *model_flags(a), *turns]
    found = {"lather": ("lather", Command(a, ours, our_answer, os.environ.get("LATHER_LIBRARY_PATH")))}
    both = a.device == "cpu" and a.arch not in {**VIT, **GPT2}  # what the first layer alone reads makes no difference
    for layout in a.layout or (["channels_last", "contiguous"] if both else ["contiguous" if a.arch in GPT2 else "channels_last"]):
        for how, words in (("eager", ""), ("compiled", ", compiled"), ("graphs", ", compiled, reduce-overhead")):
            if how in a.how:
                found[f"PyTorch {layout}{words}"] = (how, Peer(a, dtype, layout, how))
    for extra in a.also:
        name, command = extra.split("=", 1)

        def answer(said):
            return {"samples_per_second": float(re.search(r"([\d.]+) img/s", said)[1])}

        found[name] = (name, Command(a, command.replace("{dtype}", dtype).split(), answer))
    return found


# --- the comparison ---

def note(a, key, value):
    if a.facts:
        with open(a.facts, "a", encoding="utf-8") as f:
            f.write(f"{key}\t{value:.6g}\n")


def middle(results, key, form):
    values = [r[key] for r in results if key in r]
    return form(statistics.median(values)) if values else ""


def note_all(a, dtype, short, results, ratio):
    key = f"peer.{dtype}.{a.batch}.{short}"
    for name, value in (("rate", "samples_per_second"), ("peak", "peak_memory_bytes"),
                        ("first", "cold_start_seconds")):
        values = [r[value] for r in results if value in r]
        if values:
            note(a, f"{key}.{name}", statistics.median(values))
    if ratio is not None:
        note(a, f"{key}.ratio", ratio)


def print_row(a, dtype, name, short, results, ours):
    rates = [r["samples_per_second"] for r in results]
    ratios = [o["samples_per_second"] / r["samples_per_second"] for o, r in zip(ours, results)]
    ratio = statistics.median(ratios) if ratios else None
    memory = middle(results, "peak_memory_bytes", lambda b: f"{b / 1e9:.2f} GB")
    start = middle(results, "cold_start_seconds", lambda s: f"{s:.1f} s")
    spread = f"{min(rates):.2f}-{max(rates):.2f}"
    shown = "" if ratio is None else f"{ratio:.2f}"
    print(f"| {dtype} | {name} | {statistics.median(rates):.2f} | {spread} | {shown} | {memory} | {start} |")
    note_all(a, dtype, short, results, ratio)


def run_rounds(a, dtype, who):
    """{name: results}, {name: why it failed}"""
    runs, why = {}, {}
    for done in range(a.rounds):
        began = time.monotonic()
        for name, (_, contestant) in who.items():
            if name in why:
                continue
            try:
                result = contestant.turn()
            except Failed as failure:
                if name not in runs or not isinstance(failure, TimeUp):  # else it has its numbers
                    why[name] = failure
                continue
            runs.setdefault(name, []).append(result)
            print(dtype, name, result, file=sys.stderr, flush=True)
        round_seconds = time.monotonic() - began
        # The first round compiles; the later ones take a fraction of it.
        if time.monotonic() + (round_seconds if done else 20) > a.deadline:
            break
    return runs, why


def compare(a, dtype):
    """Whether all contestants ran."""
    a.deadline = time.monotonic() + a.budget
    who = contestants(a, dtype)
    try:
        runs, why = run_rounds(a, dtype, who)
    finally:
        for _, contestant in who.values():
            contestant.close()
    ours = runs.get("lather", [])
    for name, results in runs.items():
        print_row(a, dtype, name, who[name][0], results, ours)
    for name, failure in why.items():
        print(f"| {dtype} | {name} | failed: {failure} | | | | |")
    return not why


def attention_flags(a, dtype):
    batch, heads, queries, keys, causal = a.shape
    flags = {"batch-size": batch, "heads": heads, "queries": queries, "keys": keys, "amp": "off" if dtype == "f32" else dtype,
             "threads": a.threads, "steps": a.steps, "warmup": a.warmup}
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))] + ["--causal"] * causal


def attention_runs(a, dtype, shape, rounds, steps):
    """{name: results} of a size. One query takes microseconds: a hundred times the steps, so that threads have started."""
    a.shape, a.steps = shape, steps * (100 if shape[2] == 1 else 1)
    who = {"lather": ("", Command(a, [a.bench, "attention", "--json", *attention_flags(a, dtype)], json.loads))}
    who.update({layout: ("", Peer(a, dtype, layout, "attention")) for layout in ("tokens", "heads")})
    a.rounds, a.deadline = rounds, time.monotonic() + a.budget
    try:
        runs, why = run_rounds(a, dtype, who)
    finally:
        for _, contestant in who.values():
            contestant.close()
    if why:
        raise Failed("; ".join(f"{name}: {failure}" for name, failure in why.items()))
    return runs


def attention_row(a, dtype, shape, runs):
    """Against PyTorch's faster layout of each round."""
    batch, heads, queries, keys, causal = shape
    cells = []
    for key in ("forward_milliseconds", "step_milliseconds"):
        ours = [r[key] for r in runs["lather"]]
        peer = [min(x[key], y[key]) for x, y in zip(runs["tokens"], runs["heads"])]
        ratio = statistics.median(p / o for o, p in zip(ours, peer))
        cells += [f"{statistics.median(ours):.3f}", f"{statistics.median(peer):.3f}", f"{ratio:.2f}"]
        note(a, f"attention.{dtype}.{batch}x{heads}.{queries}.{keys}.{int(causal)}.{key}.ratio", ratio)
    size = f"B={batch} heads={heads} T={queries}" + (f" of {keys}" if queries != keys else "") + (" causal" if causal else "")
    print(f"| {dtype} | {size} | " + " | ".join(cells) + " |", flush=True)


def attention(a):
    """Times of the sizes above, then peak memory by length: the inputs and the first step's tape are not in it."""
    rounds, steps = a.rounds, a.steps
    print("| dtype | size | forward, ms | PyTorch | faster by | with backward, ms | PyTorch | faster by |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape in SIZES:
        for dtype in a.dtype or ["f32", "bf16"]:
            attention_row(a, dtype, shape, attention_runs(a, dtype, shape, rounds, steps))
    print("\n| dtype | T, one sequence of 12 heads | peak memory, MB | bytes a token | PyTorch, MB |\n| --- | --- | --- | --- | --- |")
    a.warmup = 1
    for dtype in a.dtype or ["f32", "bf16"]:
        for tokens in LENGTHS:
            runs = attention_runs(a, dtype, (1, 12, tokens, tokens, False), 1, 1)
            ours, peer = (runs[name][0]["peak_memory_bytes"] for name in ("lather", "tokens"))
            print(f"| {dtype} | {tokens} | {ours / 1e6:.1f} | {ours / tokens:.0f} | {peer / 1e6:.1f} |", flush=True)


def linear_rows(dtype, runs):
    """A row for each product, then their sum, each as often as its model has it."""
    both = [(ours["ops"], peer["ops"]) for ours, peer in zip(runs["lather"], runs["torch"])]
    for i, op in enumerate(both[0][0]):
        assert all(peer[i]["shape"] == ours[i]["shape"] for ours, peer in both)
        cells = []
        for key in ("forward_milliseconds", "step_milliseconds"):
            pairs = [(ours[i][key], peer[i][key]) for ours, peer in both]
            cells += [f"{statistics.median(o for o, _ in pairs):.2f}", f"{statistics.median(p for _, p in pairs):.2f}",
                      f"{statistics.median(p / o for o, p in pairs):.2f}"]
        size = "x".join(map(str, op["shape"]))
        print(f"| {dtype} | {op['name']} {size} | " + " | ".join(cells) + " |", flush=True)
    for model in ("ViT", "GPT"):
        chosen = [i for i, op in enumerate(both[0][0]) if op["name"].startswith(model)]
        total = [[sum(ops[i]["step_milliseconds"] * ours[i]["count"] for i in chosen) for ops in (ours, peer)]
                 for ours, peer in both]
        ratio = statistics.median(p / o for o, p in total)
        print(f"| {dtype} | all of {model}, as often as it has them | | | | {statistics.median(o for o, _ in total):.0f} "
              f"| {statistics.median(p for _, p in total):.0f} | {ratio:.2f} |", flush=True)


def linear(a):
    """lt_linear() against F.linear(), forward and with the gradients of x, w and b."""
    print("| dtype | rows x in x out | forward, ms | PyTorch | faster by | with backward, ms | PyTorch | faster by |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for dtype in a.dtype or ["f32", "bf16"]:
        amp = "off" if dtype == "f32" else dtype
        ours = [a.bench, "linear", "--json", "--amp", amp, "--threads", str(a.threads), "--steps", str(a.steps),
                "--warmup", str(a.warmup)]
        who = {"lather": ("", Command(a, ours, json.loads)), "torch": ("", Peer(a, dtype, "", "linear"))}
        a.deadline = time.monotonic() + a.budget
        try:
            runs, why = run_rounds(a, dtype, who)
        finally:
            for _, contestant in who.values():
                contestant.close()
        if why:
            raise Failed("; ".join(f"{name}: {failure}" for name, failure in why.items()))
        linear_rows(dtype, runs)


def shape_of(text):
    return tuple(int(x) for x in text.split(",")[:4]) + (text.endswith(",1"),)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--bench", default="build/tools/bench")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch-size", dest="batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--layout", action="append", choices=["channels_last", "contiguous"])
    p.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", action="append", choices=["f32", "tf32", "bf16", "f16"])
    p.add_argument("--eval", action="store_true", help="evaluation instead of training")
    p.add_argument("--compile", action="store_true", help="torch.compile too; on cuda always")
    p.add_argument("--how", help="eager,compiled,graphs: which of PyTorch's ways")
    p.add_argument("--budget", type=float, default=1e6, help="seconds of a dtype")
    p.add_argument("--facts", metavar="FILE", help="append numbers, KEY TAB VALUE")
    p.add_argument("--arch", default="resnet50", help="of torchvision's names, vit_ti_16, vit_s_16, or gpt2, gpt2-medium")
    p.add_argument("--seq-len", dest="length", type=int, default=256, help="tokens of a sample, of gpt2")
    p.add_argument("--image-size", dest="size", type=int, default=224)
    p.add_argument("--stem", choices=["imagenet", "small"], default="imagenet", help="small: 3x3 without pooling, for small images")
    p.add_argument("--eigh", metavar="SIDES")
    p.add_argument("--sample", metavar="DIR", help="HuggingFace's GPT-2: model.safetensors and config.json; with --sampler")
    p.add_argument("--sampler", metavar="PROGRAM", default="build/models/gpt/train_gpt")
    p.add_argument("--attention", action="store_true")
    p.add_argument("--linear", action="store_true")
    p.add_argument("--shape", type=shape_of, help=argparse.SUPPRESS)
    p.add_argument("--child", nargs=3, metavar=("DTYPE", "LAYOUT", "HOW"), help=argparse.SUPPRESS)
    a = p.parse_args()
    ways = "eager,compiled,graphs" if a.device != "cpu" else "eager,compiled" if a.compile else "eager"
    a.how = (a.how or ways).split(",")
    return a


def main():
    a = parse()
    if a.child:
        if a.attention:
            attention_child(a, *a.child[:2])
        elif a.linear:
            linear_child(a, a.child[0])
        else:
            child(a, *a.child)
        return 0
    if a.attention:
        attention(a)
        return 0
    if a.linear:
        linear(a)
        return 0
    if a.eigh:
        eigh(a)
        return 0
    if a.sample:
        sample(a)
        return 0
    print("| dtype | what | samples/s, median | range | lather is faster by | peak memory | first step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    good = True
    for dtype in a.dtype or (["f32", "bf16"] if a.device == "cpu" else ["f16", "bf16", "tf32"]):
        good = compare(a, dtype) and good
    if not good:
        print("a contestant failed: see its row")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
