#!/usr/bin/env python3
"""Times this library and its peers alternately, and prints Markdown tables.

    tools/bench/peer.py network --bench build/tools/bench --python PYTHON [--arch resnet50]    a training step
    tools/bench/peer.py network --eval ...             a forward pass that evaluates (inference_mode)
    tools/bench/peer.py network --device cuda ...      f16, bf16, tf32
    tools/bench/peer.py attention ...                  scaled_dot_product_attention, and memory by length
    tools/bench/peer.py eigh 2048x7,1152x4 ...         a loop of torch.linalg.eigh over such matrices
    tools/bench/peer.py sample DIR                     texts from HuggingFace's GPT-2; this process needs transformers
    tools/bench/peer.py shampoo --reference DIR ...    a step of Shampoo, against github.com/facebookresearch/optimizers
    tools/bench/peer.py loader --data DIR ...          JPEG files, against torchvision with three decoders, DALI (--dali), FFCV (--ffcv)
    tools/bench/peer.py service BUILD                  calls of lather/service.h, against gRPC's in C++
    tools/bench/peer.py ddp ...                        one rank of DistributedDataParallel, for programs.py slow-links

PYTHON must have torch and torchvision. Each round runs every contestant once, one after the other, so that a slow minute of
the machine affects all equally; tables have medians over rounds and the median of the ratios within rounds. A contestant that
fails, or does not answer before --budget ends (seconds for a dtype), has a row with the reason; the others stand.

A PyTorch contestant is a process that waits between its turns: it is imported, compiled and tuned once. Its steps are queued
without waiting for one, on a GPU, and timed by events there. Peak memory is the allocator's reserved device memory, after
the memory used for tuning was freed; on the CPU VmHWM of the measured steps minus VmRSS just before the first step. The first
step's time includes the import and the compiler; compile is the first step without the import, minus a median one. On the CPU
the compiler starts with an empty cache unless TORCHINDUCTOR_CACHE_DIR is set.

network: --arch is one of torchvision's, vit_ti_16, vit_s_16, gpt2 or gpt2-medium. --peers names PyTorch's ways: eager, compiled
(torch.compile's defaults) and graphs (its mode reduce-overhead); by default the first two, on a GPU all. A last table has a row
for each dtype, as the pages in docs/results: the better layout of each way, ours over the way with the best median.

shampoo: both keep the reference's settings (`--optim shampoo-reference`): f32, blocks of 1024, no grafting, roots by
eigendecomposition. Gradients are random numbers of deviation 0.01, the same in every step, so a factor has the rank of one
gradient. The time of a refresh is that of a step with one minus that of a step without. Further rows are our preset
`recommended`, which keeps only diagonals for vectors.

loader: packs of the images (lossless, and JPEG of at most --side pixels, quality 90, as files and as a lossless pack; --side 0:
without those) are made in a temporary folder; all files are in the page cache. First every contestant has one worker and is held
on one core; then ours has --threads threads and torchvision's DataLoader as many processes, on all cores. All end with normalized
f32; --u8 adds rows that end with u8 pixels, which in training is where our loader ends, as the device normalizes. --peers names
the decoders.

Exit status 77: a program, a module or a checkout is missing."""

import argparse
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

from turns import Failed, TimeUp, all_of, bench, cannot, command, cpu_name, head, main, median, play, ratio, row, run, telling_line

BEGIN = time.monotonic()
# Transformers that torchvision has no function for, or are not torchvision's: width, layers, heads.
VIT = {"vit_ti_16": (192, 12, 3), "vit_s_16": (384, 12, 6)}
GPT2 = {"gpt2": (768, 12, 12), "gpt2-medium": (1024, 24, 16)}
# Attention: batch, heads, queries, keys, causal; heads of 64 features. ViT-S/16, GPT-2, long, one query of a KV cache.
SIZES = [(32, 6, 197, 197, False), (4, 12, 256, 256, True), (1, 12, 1024, 1024, True), (1, 12, 1024, 1024, False),
         (1, 12, 1, 1024, False)]
LENGTHS = (512, 1024, 2048, 4096)
MIB = 1 << 20


# --- Processes of peers -----------------------------------------------------------------------------------------------


def status_bytes(key):
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


class Training:
    """A network and all that its step needs."""

    def __init__(self, a):
        import torch

        self.torch, self.device, self.batch = torch, a.device.split(":")[0], a.batch_size
        if self.device == "cuda" and ":" in a.device:
            torch.cuda.set_device(int(a.device.split(":")[1]))
        form = torch.channels_last if a.layout == "channels_last" else torch.contiguous_format
        self.set_precision(a.dtype)
        self.loss_of, self.inputs, self.labels = None, None, None
        if a.arch in GPT2:
            self.open_language(a)
        else:
            self.open_images(a, form)
        modes = {"compiled": None, "graphs": "reduce-overhead"}
        self.forward = torch.compile(self.model, mode=modes[a.how], dynamic=False) if a.how in modes else self.model
        self.optim = torch.optim.SGD(
            self.model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4,
            fused=True,  # its fastest form
        )
        self.evaluates = a.eval
        self.model.train(not a.eval)
        self.before, self.first = status_bytes("VmRSS"), None

    def open_images(self, a, form):
        import torchvision

        torch = self.torch
        if a.arch in VIT:
            width, layers, heads = VIT[a.arch]
            model = torchvision.models.VisionTransformer(a.image_size, 16, layers, heads, width, 4 * width)
        else:
            model = getattr(torchvision.models, a.arch)(num_classes=a.classes)
            if a.stem == "small":
                model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
        self.model = model.to(self.device, memory_format=form).train()
        self.inputs = torch.randn(a.batch_size, 3, a.image_size, a.image_size).to(self.device, memory_format=form)
        self.labels = torch.randint(0, a.classes, (a.batch_size,)).to(self.device)
        self.loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def open_language(self, a):
        """HuggingFace's GPT-2 with PyTorch's fused attention, without dropout, as ours is."""
        from transformers import GPT2Config, GPT2LMHeadModel

        torch, (width, layers, heads) = self.torch, GPT2[a.arch]
        config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                            attn_implementation="sdpa", use_cache=False)
        self.model = GPT2LMHeadModel(config).to(self.device).train()
        tokens = torch.randint(0, config.vocab_size, (a.batch_size, a.seq_len + 1)).to(self.device)
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
        """Seconds of each of `steps` steps."""
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
        else:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
                f.write("5")  # VmHWM becomes VmRSS

    def peak(self):
        if self.device == "cuda":
            return self.torch.cuda.max_memory_reserved()
        return status_bytes("VmHWM") - self.before

    def measure(self, warmup, steps):
        begin = time.monotonic()
        if self.first is None:
            self.step()
            self.finish()
            self.first = time.monotonic() - begin
        for _ in range(warmup):
            self.step()
        self.finish()
        self.reset_tuning()
        step = median(self.seconds(steps))
        compiler = {"compile_seconds": max(self.first - step, 0)} if self.forward is not self.model else {}
        return {"samples_per_second": self.batch / step, "peak_memory_bytes": self.peak(), "version": self.torch.__version__,
                "cold_start_seconds": self.opened + self.first, **compiler}


def milliseconds(call, warmup, steps):
    times = []
    for _ in range(warmup + steps):
        begin = time.monotonic()
        call()
        times.append(1e3 * (time.monotonic() - begin))
    return median(times[warmup:])


class Attention:
    """One attention call. layout: "tokens": heads interleaved in the tokens' features, as layers store them; "heads": contiguous."""

    def __init__(self, a):
        import torch

        kind = torch.bfloat16 if a.dtype == "bf16" else torch.float32
        batch, heads, queries, keys, self.causal = a.shape
        self.torch, self.inputs = torch, []
        for tokens in (queries, keys, keys):
            x = torch.rand(batch, tokens, heads, 64).to(kind).transpose(1, 2)
            self.inputs.append((x.contiguous() if a.layout == "heads" else x).requires_grad_())
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

    def measure(self, warmup, steps):
        return {"forward_milliseconds": milliseconds(self.alone, warmup, steps),
                "step_milliseconds": milliseconds(self.step, warmup, steps),
                "peak_memory_bytes": status_bytes("VmHWM") - self.before}


def serve(a, kind):
    """Answers each line on stdin, 'WARMUP STEPS', by a line of JSON."""
    if a.device == "cpu":
        import torch
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    peer = kind(a)
    peer.opened = time.monotonic() - BEGIN
    print(json.dumps({"ready": peer.opened}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.measure(*map(int, line.split()))), flush=True)


def child_command(python, kind, **settings):
    return [python, os.path.abspath(__file__), "--child", kind, json.dumps(settings)]


class Peer:
    """A PyTorch process, which waits between its turns."""

    def __init__(self, a, kind, **settings):
        self.a, self.process = a, None
        self.command = child_command(a.python, kind, **{"device": a.device, **settings})
        self.errors, self.cache = tempfile.TemporaryFile("w+"), tempfile.TemporaryDirectory()

    def line(self):
        left = self.a.deadline - time.monotonic()
        if not select.select([self.process.stdout], [], [], max(left, 0))[0]:
            raise TimeUp
        text = self.process.stdout.readline()
        if text:
            return json.loads(text)
        code = self.process.wait()
        self.errors.seek(0)
        raise Failed(telling_line(self.errors.read()) + ("" if code >= 0 else f" (signal {-code})"))

    def turn(self):
        try:
            if not self.process:
                env = dict(os.environ, OMP_NUM_THREADS=str(self.a.threads))
                if self.a.device == "cpu":
                    env.setdefault("TORCHINDUCTOR_CACHE_DIR", self.cache.name)
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
        self.cache.cleanup()


def ours(a, name, dtype, *flags):
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    if "LATHER_LIBRARY_PATH" in os.environ:
        env["LD_LIBRARY_PATH"] = os.environ["LATHER_LIBRARY_PATH"]
    words = [a.bench, name, "--json", "--amp", "off" if dtype == "f32" else dtype, "--threads", a.threads, "--steps", a.steps,
             "--warmup", a.warmup, *flags]
    return json.loads(run(words, max(a.deadline - time.monotonic(), 1), env=env))


def play_peers(a, contestants):
    """play() of functions and of peers, whose processes it ends."""
    a.deadline = time.monotonic() + a.budget
    try:
        return play({name: c.turn if isinstance(c, Peer) else c for name, c in contestants.items()}, a.rounds, a.deadline)
    finally:
        for c in contestants.values():
            if isinstance(c, Peer):
                c.close()


# --- network: a training step, or an evaluation -----------------------------------------------------------------------


def our_network(a, dtype):
    flags = ["--batch-size", a.batch_size, "--device", a.device, "--arch", a.arch,
             *(["--seq-len", a.seq_len] if a.arch in GPT2 else ["--image-size", a.image_size, "--stem", a.stem]),
             *([] if a.eval or a.device == "cpu" else ["--recompute", "off"])]  # GPUs have the memory, and PyTorch keeps all too
    found = ours(a, "eval" if a.eval else "train", dtype, *flags)
    rates = ("images_per_second", "sequences_per_second")
    return dict(found, samples_per_second=next(v for k, v in found.items() if k in rates))


def chosen(names, known):
    """The list of a comma-separated --peers."""
    names = names.split(",")
    for name in names:
        if name not in known:
            raise Failed(f"--peers: {name} is not one of {', '.join(known)}")
    return names


def their_networks(a, dtype):
    """{name: (its short name, contestant)}"""
    both = a.device == "cpu" and a.arch not in {**VIT, **GPT2}  # else only the first layer depends on the layout
    layouts = ["channels_last", "contiguous"] if both else ["contiguous" if a.arch in GPT2 else "channels_last"]
    settings = {"classes": 1000, **{k: getattr(a, k) for k in ("arch", "batch_size", "seq_len", "image_size", "stem", "eval")}}
    found = {}
    for layout in a.layout or layouts:
        for how, words in (("eager", ""), ("compiled", ", compiled"), ("graphs", ", compiled, reduce-overhead")):
            if how in a.peers:
                found[f"PyTorch {layout}{words}"] = how, Peer(a, "network", dtype=dtype, layout=layout, how=how, **settings)
    return found


def note(a, key, value):
    if a.facts:
        with open(a.facts, "a", encoding="utf-8") as f:
            f.write(f"{key}\t{value:.6g}\n")


def network_row(a, dtype, name, short, results, base):
    def middle(key, form):
        values = [r[key] for r in results if key in r]
        return form(median(values)) if values else ""

    key, rates = f"peer.{dtype}.{a.batch_size}.{short}", [r["samples_per_second"] for r in results]
    faster = ratio(base, results, "samples_per_second") if base else None
    row(dtype, name, f"{median(rates):.2f}", f"{min(rates):.2f}-{max(rates):.2f}", "" if faster is None else f"{faster:.2f}",
        middle("peak_memory_bytes", lambda b: f"{b / 1e9:.2f} GB"), middle("cold_start_seconds", lambda s: f"{s:.1f} s"),
        middle("compile_seconds", lambda s: f"{s:.1f} s"))
    for what, field in (("rate", "samples_per_second"), ("peak", "peak_memory_bytes"), ("first", "cold_start_seconds")):
        middle(field, lambda value, what=what: note(a, f"{key}.{what}", value))
    if faster is not None:
        note(a, f"{key}.ratio", faster)


def spread(values, digits=4):
    """The median, and the least and most of several values."""
    return f"{median(values):.{digits}g}" + (f" ({min(values):.{digits}g}-{max(values):.{digits}g})" if len(values) > 1 else "")


def page_row(a, dtype, runs, ways):
    """Cells of a row of the pages: ours, each of a.peers in its better layout, ours over the best of them, memory, compile time."""
    rate, cells, best = "samples_per_second", [spread([r["samples_per_second"] for r in runs["lather"]])], {"lather": runs["lather"]}
    for way in a.peers:
        layouts = [runs[name] for name in runs if ways.get(name) == way]
        if layouts:
            best[way] = max(layouts, key=lambda results: median(results, rate))
        cells.append(spread([r[rate] for r in best[way]]) if way in best else "failed")
    peers = [best[way] for way in a.peers if way in best]
    ratios = [x[rate] / y[rate] for x, y in zip(runs["lather"], max(peers, key=lambda results: median(results, rate)))] if peers else []
    memory = [f"{median(best[who], 'peak_memory_bytes') / 1e9:.2f}" if who in best else "-" for who in ("lather", *a.peers)]
    compiling = [f"{results[0]['compile_seconds']:.0f} s" for results in peers if "compile_seconds" in results[0]]
    size = f"{a.seq_len} tokens" if a.arch in GPT2 else f"{a.image_size} pixels"
    title = f"{a.arch}{', small stem' if a.stem == 'small' else ''}, {size}, batch {a.batch_size}{', evaluation' if a.eval else ''}"
    return [title, dtype, *cells, spread(ratios, 3) if ratios else "-", " / ".join(memory), ", ".join(compiling)]


TORCH = {"bench": "build/tools/bench", "python": sys.executable, "rounds": 3, "steps": 3, "warmup": 1, "threads": 2, "device": "cpu", "dtype": [],
         "budget": 1e6, "facts": None}


@command(**TORCH, batch_size=32, layout=[], eval=False, peers=None, arch="resnet50", seq_len=256, image_size=224, stem=("imagenet", "small"))
def network(a):
    """Exit status 1: a contestant failed."""
    a.peers = chosen(a.peers or ("eager,compiled" if a.device == "cpu" else "eager,compiled,graphs"), ("eager", "compiled", "graphs"))
    failed, pages = False, []
    head("dtype", "what", "samples/s, median", "range", "lather is faster by", "peak memory", "first step", "compile")
    for dtype in a.dtype or (["f32", "bf16"] if a.device == "cpu" else ["f16", "bf16", "tf32"]):
        theirs = their_networks(a, dtype)
        runs, why = play_peers(a, {"lather": lambda d=dtype: our_network(a, d), **{name: peer for name, (_, peer) in theirs.items()}})
        for name, results in runs.items():
            network_row(a, dtype, name, theirs.get(name, (name,))[0], results, runs.get("lather", [])[:len(results)])
        for name, failure in why.items():
            row(dtype, name, f"failed: {failure}", "", "", "", "", "")
        failed = failed or bool(why)
        if "lather" in runs:
            pages.append([*page_row(a, dtype, runs, {name: way for name, (way, _) in theirs.items()}), f"{cpu_name()}, {time.strftime('%Y-%m-%d')}"])
    print()
    head("network", "dtype", "Lather, samples/s", *a.peers, "Lather over the best", "peak memory, GB", "compile", "machine")
    for cells in pages:
        row(*cells)
    if failed:
        print("a contestant failed: see its row")
    return int(failed)


# --- attention, eigh, sample ------------------------------------------------------------------------------------------


PASSES = ("forward_milliseconds", "step_milliseconds")


def passes(pairs):
    """Cells of (ours, theirs) of each round: medians, and the ratio, of forward and with backward."""
    cells = []
    for key in PASSES:
        own, peer = ([p[i][key] for p in pairs] for i in (0, 1))
        cells += [f"{median(own):.3f}", f"{median(peer):.3f}", f"{ratio(peer, own):.2f}"]
    return cells


def attention_runs(a, dtype, shape, rounds, steps):
    """{name: results} of a size. One query takes microseconds: a hundred times the steps, so that threads have started."""
    batch, heads, queries, keys, causal = shape
    turn = argparse.Namespace(**{**vars(a), "rounds": rounds, "steps": steps * (100 if queries == 1 else 1)})
    flags = ["--batch-size", batch, "--heads", heads, "--queries", queries, "--keys", keys, *["--causal"] * causal]
    peers = {layout: Peer(turn, "attention", dtype=dtype, layout=layout, shape=shape) for layout in ("tokens", "heads")}
    return all_of(play_peers(turn, {"lather": lambda: ours(turn, "attention", dtype, *flags), **peers}))


@command(**TORCH)
def attention(a):
    """Times of the sizes above, against PyTorch's faster layout of each round, then peak memory by length, without the inputs and
    the first step's tape."""
    head("dtype", "size", "forward, ms", "PyTorch", "faster by", "with backward, ms", "PyTorch", "faster by")
    for shape in SIZES:
        batch, heads, queries, keys, causal = shape
        size = f"B={batch} heads={heads} T={queries}" + (f" of {keys}" if queries != keys else "") + (" causal" if causal else "")
        for dtype in a.dtype or ["f32", "bf16"]:
            runs = attention_runs(a, dtype, shape, a.rounds, a.steps)
            pairs = [(own, {key: min(x[key], y[key]) for key in PASSES}) for own, x, y in zip(*(runs[n] for n in ("lather", "tokens", "heads")))]
            row(dtype, size, *passes(pairs))
            for key in PASSES:
                note(a, f"attention.{dtype}.{batch}x{heads}.{queries}.{keys}.{int(causal)}.{key}.ratio",
                     ratio([p[1][key] for p in pairs], [p[0][key] for p in pairs]))
    print()
    head("dtype", "T, one sequence of 12 heads", "peak memory, MB", "bytes a token", "PyTorch, MB")
    a.warmup = 1
    for dtype in a.dtype or ["f32", "bf16"]:
        for tokens in LENGTHS:
            runs = attention_runs(a, dtype, (1, 12, tokens, tokens, False), 1, 1)
            own, peer = (runs[name][0]["peak_memory_bytes"] for name in ("lather", "tokens"))
            row(dtype, tokens, f"{own / 1e6:.1f}", f"{own / tokens:.0f}", f"{peer / 1e6:.1f}")


@command(sides=..., **TORCH)
def eigh(a):
    """The refresh of implementations that take one matrix after another: one call a matrix."""
    import torch

    total = 0
    head("side", "matrices", "one torch.linalg.eigh, ms", "all, ms")
    for part in a.sides.split(","):
        n, count = map(int, (part.split("x") + ["1"])[:2])
        x = torch.randn(n, 2 * n, device=a.device)
        matrix = x @ x.T / (2 * n)
        one = milliseconds(lambda m=matrix: torch.linalg.eigh(m)[0][0].item(), 1, a.rounds)
        total += one * count
        row(n, count, f"{one:.2f}", f"{one * count:.1f}")
    note(a, "eigh.milliseconds", total)
    print(f"all of them: {total:.1f} ms")


def sampled_here(a):
    """Tokens a second of train_gpt sample."""
    words = [a.sampler, "sample", "--weights", os.path.join(a.folder, "model.safetensors"), "--tokenizer", "byte", "--temperature", "1",
             "--tokens", "100", "--threads", str(a.threads), "--speed"]
    said = subprocess.run(words, capture_output=True, check=True).stderr.decode()
    return float(re.search(r"([\d.]+) tok/s", said)[1])


@command(folder=..., sampler="build/models/gpt/train_gpt", rounds=3, threads=2)
def sample(a):
    """One text from a folder of HuggingFace's GPT-2, in turn, each with its cache of keys and values."""
    import torch
    from transformers import GPT2LMHeadModel

    warmup, tokens = 3, 100
    torch.set_num_threads(a.threads)
    model, ratios = GPT2LMHeadModel.from_pretrained(a.folder, attn_implementation="sdpa").eval(), []
    head("lather, tok/s", "PyTorch", "faster by")
    for _ in range(a.rounds):
        own, ids, past = sampled_here(a), torch.tensor([[256]]), None
        with torch.no_grad():
            for i in range(warmup + tokens):
                begin = time.monotonic() if i == warmup else begin if i else 0
                out = model(ids, past_key_values=past, use_cache=True)
                past, ids = out.past_key_values, torch.multinomial(out.logits[:, -1].softmax(-1), 1)
        theirs = tokens / (time.monotonic() - begin)
        ratios.append(own / theirs)
        row(f"{own:.1f}", f"{theirs:.1f}", f"{ratios[-1]:.2f}")
    print(f"median: {median(ratios):.2f}")


# --- shampoo ----------------------------------------------------------------------------------------------------------


def tensors_in(value, found):
    """Adds all tensors below a value of the optimizer's state to found: storage address -> bytes."""
    if hasattr(value, "untyped_storage"):
        value = getattr(value, "_local_tensor", value)
        found[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    elif isinstance(value, dict):
        for v in value.values():
            tensors_in(v, found)
    elif isinstance(value, (list, tuple)):
        for v in value:
            tensors_in(v, found)
    elif hasattr(value, "__dict__"):
        tensors_in(vars(value), found)


def run_reference(a):
    """Measures the reference implementation, in a separate process: its milliseconds and bytes."""
    sys.path.insert(0, a.reference)
    try:
        import torch
        import torchvision
        from distributed_shampoo import DistributedShampoo
    except ImportError as error:
        cannot(error)
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    params = list(torchvision.models.resnet50().parameters())
    for p in params:
        p.grad = torch.randn(p.shape) * 1e-2
    every = a.steps + 1
    optim = DistributedShampoo(params, lr=1e-3, precondition_frequency=every, start_preconditioning_step=every)
    seconds = []
    for _ in range(2 * every):  # no preconditioner exists before the first refresh
        begin = time.perf_counter()
        optim.step()
        seconds.append(time.perf_counter() - begin)
    step = median(seconds[every:-1])
    refresh = median([seconds[every - 1], seconds[-1]]) - step
    state = {}
    tensors_in({k: dict(v) for k, v in optim.state.items()}, state)
    return {"torch": torch.__version__, "step": 1e3 * step, "refresh": 1e3 * refresh, "state": sum(state.values())}


def read_bench(text, name):
    """The numbers of one optimizer in `bench optim --json`, as run_reference() names them."""
    r = json.loads(text)["optimizers"][name]
    return {"step": r["plain_milliseconds"], "refresh": r["refresh_milliseconds"], "state": r["state_bytes"], "roots": r["roots"]}


def our_shampoo(a, name):
    return read_bench(run([a.bench, "optim", "--optim", name, "--steps", a.steps, "--threads", a.threads, "--json"], 600), name)


def shampoo_rows(same, best, peer):
    """Rows of the rounds' results: ours with the reference's settings, `recommended`, theirs."""
    rows = (("a step between refreshes, ms", same, "step"),
            (f"refresh of {same[0]['roots']} roots by eigendecomposition, ms", same, "refresh"),
            (f"refresh by `recommended`, {best[0]['roots']} roots, ms", best, "refresh"),
            ("a step between refreshes by `recommended`, ms", best, "step"),
            ("state, MiB", same, "state"),
            ("state by `recommended`, MiB", best, "state"))
    for name, own, key in rows:
        unit = MIB if key == "state" else 1
        yield name, f"{median(own, key) / unit:.0f}", f"{median(peer, key) / unit:.0f}", f"{ratio(peer, own, key):.2f}"


@command(bench="build/tools/bench", python=sys.executable, reference="optimizers", rounds=3, steps=3, threads=2)
def shampoo(a):
    """ResNet-50's parameters."""
    for program in (a.bench, a.python):
        if not shutil.which(program):
            cannot(f"{program}: not found")
    settings = {key: getattr(a, key) for key in ("reference", "steps", "threads")}
    runs = all_of(play({"reference": lambda: our_shampoo(a, "shampoo-reference"), "recommended": lambda: our_shampoo(a, "shampoo"),
                        "theirs": lambda: json.loads(run(child_command(a.python, "shampoo", **settings), 600))}, a.rounds))
    print(f"PyTorch {runs['theirs'][0]['torch']}, {a.threads} threads, {a.rounds} rounds of {a.steps} steps\n")
    head("", "ours", "theirs", "theirs / ours")
    for cells in shampoo_rows(*runs.values()):
        row(*cells)


# --- loader -----------------------------------------------------------------------------------------------------------


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 16


def timed(count, work):
    """Images per second of count images, and per second of the processor."""
    begin, cpu = time.monotonic(), time.process_time()
    work()
    return {"rate": count / (time.monotonic() - begin), "cpu_rate": count / (time.process_time() - cpu)}


def decode_pillow(path):
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def decode_torchvision(path):
    from torchvision import io

    return io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB)


def decode_simplejpeg(path):
    import simplejpeg
    import torch

    with open(path, "rb") as file:
        return torch.from_numpy(simplejpeg.decode_jpeg(file.read(), "RGB")).permute(2, 0, 1)


# Module and function. torchvision.transforms.v2 follows: on Pillow's images until they are tensors, on tensors of u8 else.
DECODERS = {"pillow": ("PIL", decode_pillow), "torchvision": ("torchvision.io", decode_torchvision), "simplejpeg": ("simplejpeg", decode_simplejpeg)}


class Files:
    """torchvision's data set of a folder of JPEG files, with the augmentation of ImageNet."""

    def __init__(self, a):
        import torch
        from torchvision.transforms import v2

        self.decode = DECODERS[a.decoder][1]
        self.paths = [os.path.join(where, name) for where, _, names in os.walk(a.folder) for name in sorted(names)]
        end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)] if a.normalize else []
        self.transform = v2.Compose([v2.RandomResizedCrop(a.size, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor(), *end])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return self.transform(self.decode(self.paths[i]))


class Loading:
    """Files, image by image in this process, and in batches from the processes of a DataLoader."""

    def __init__(self, a):
        import torch

        torch.set_num_threads(1)
        self.files, self.cores = Files(a), os.sched_getaffinity(0)
        self.batches = torch.utils.data.DataLoader(self.files, BATCH, shuffle=True, num_workers=a.workers, persistent_workers=True)

    def measure(self, warmup, passes):
        def images(count):
            for i in range(count):
                self.files[i % len(self.files)]

        def batches(count):
            for _ in range(count):
                for _ in self.batches:
                    pass
        count = len(self.files) * passes
        batches(warmup)
        rate = timed(count, lambda: batches(passes))["rate"]
        one_core()
        images(min(count, BATCH))
        cpu_rate = timed(count, lambda: images(count))["cpu_rate"]
        os.sched_setaffinity(0, self.cores)
        return {"cpu_rate": cpu_rate, "rate": rate}


def dali(a):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=1)
    def build():
        files, labels = fn.readers.file(file_root=a.folder, random_shuffle=True, name="files")
        x = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
        x = fn.resize(x, size=[a.size, a.size], interp_type=types.INTERP_LINEAR, antialias=True)
        flip = fn.random.coin_flip()
        if not a.normalize:
            return fn.flip(x, horizontal=flip), labels
        return fn.crop_mirror_normalize(x, dtype=types.FLOAT, output_layout="CHW", mirror=flip, mean=[255 * m for m in MEAN],
                                        std=[255 * d for d in DEVIATION]), labels
    pipe = build()
    pipe.build()
    steps = max(1, pipe.epoch_size("files") * a.passes // BATCH)
    for _ in range(4):  # batches that DALI prefetches
        pipe.run()
    return timed(steps * BATCH, lambda: [pipe.run() for _ in range(steps)])


def ffcv(a):
    import numpy
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    with tempfile.TemporaryDirectory() as temp:
        path = os.path.join(temp, "images.beton")
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}, num_workers=1)
        writer.from_indexed_dataset(ImageFolder(a.folder))
        steps = [RandomResizedCropRGBImageDecoder((a.size, a.size)), RandomHorizontalFlip()]
        if a.normalize:
            steps.append(NormalizeImage(255 * numpy.array(MEAN), 255 * numpy.array(DEVIATION), numpy.float32))
        loader = Loader(path, batch_size=BATCH, num_workers=1, order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                        pipelines={"image": steps, "label": [IntDecoder()]})
        count = sum(len(b[1]) for b in loader)  # compiles
        one_core()
        return timed(count * a.passes, lambda: [b for _ in range(a.passes) for b in loader])


def one_core():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def their_loader(a, python, kind, folder, normalize):
    """DALI or FFCV, with one worker."""
    words = child_command(python, kind, folder=folder, size=a.size, passes=a.passes, normalize=normalize)
    # FFCV compiles for long: it binds itself to one core after that.
    return {"cpu_rate": json.loads(run(words, preexec_fn=None if kind == "ffcv" else one_core).splitlines()[-1])["cpu_rate"]}


def our_loader(a, folder, *flags):
    words = ["loader", "--data", folder, "--size", a.size, "--batch-size", BATCH, *flags]
    one = [bench(a.build, *words, "--threads", 1, preexec_fn=one_core) for _ in range(a.passes)]
    several = [bench(a.build, *words, "--threads", a.threads) for _ in range(a.passes)]
    return {"cpu_rate": median(1e3 / r["cpu_milliseconds"] for r in one), "rate": median(several, "images_per_second")}


def shrink(a):
    """The images of a folder at no more than a.side pixels, quality 90."""
    from PIL import Image

    for where, _, names in os.walk(a.source):
        target = os.path.join(a.target, os.path.relpath(where, a.source))
        os.makedirs(target, exist_ok=True)
        for name in names:
            image = Image.open(os.path.join(where, name)).convert("RGB")
            image.thumbnail((a.side, a.side))
            image.save(os.path.join(target, name), quality=90)


def importable(python, module):
    return bool(python) and subprocess.run([python, "-c", "import " + module], capture_output=True, check=False).returncode == 0


OURS = "Lather, the files"
OTHERS = {"dali": ("nvidia.dali", "DALI, CPU"), "ffcv": ("ffcv", "FFCV, quality 90")}


def loaders(a, folder, packed):
    """{name: contestant} of a folder and its pack."""
    found = {OURS: lambda: our_loader(a, folder, "--normalize")}
    for normalize, end in ((True, ""), (False, ", u8"))[:1 + a.u8]:
        for name in a.peers:
            found[f"{name}, v2 transforms{end}"] = Peer(a, "loading", decoder=name, folder=folder, size=a.size, workers=a.threads, normalize=normalize)
        for kind, title in a.others.items():
            found[title + end] = lambda k=kind, n=normalize: their_loader(a, getattr(a, k), k, folder, n)
    if a.u8:
        found[OURS + ", u8"] = lambda: our_loader(a, folder)
    return {**found, "Lather, --decode fast": lambda: our_loader(a, folder, "--normalize", "--decode", "fast"),
            "Lather, lossless pack": lambda: our_loader(a, packed, "--normalize")}


def loader_row(name, results, base):
    """Cells: rates by CPU time of one thread, and of several threads by the clock, each with ours over it."""
    cells = [name]
    for key in ("cpu_rate", "rate"):
        has = key in results[0]
        cells += [f"{median(results, key):.0f}", spread([x[key] / y[key] for x, y in zip(base, results)], 3)] if has else ["", ""]
    return cells


@command(build="build", python=sys.executable, dali=None, ffcv=None, data=str, peers=",".join(DECODERS), u8=False, rounds=5, passes=3, size=224,
         side=500, threads=2)
def loader(a):
    """--passes: over the files, in a round. Exit status 1: a contestant failed."""
    failed = False
    a.peers, a.device, a.budget, a.warmup, a.steps = chosen(a.peers, DECODERS), "cpu", 1e6, 1, a.passes
    print(f"{cpu_name()}, {time.strftime('%Y-%m-%d')}; size {a.size}, {a.rounds} rounds of {a.passes} passes.\n")
    wanted = {**{name: (a.python, DECODERS[name][0]) for name in a.peers}, **{kind: (getattr(a, kind), module) for kind, (module, _) in OTHERS.items()}}
    absent = [name for name, (python, module) in wanted.items() if not importable(python, module)]
    print(f"Not installed: {', '.join(absent) or '-'}.\n")
    a.peers = [name for name in a.peers if name not in absent]
    a.others = {kind: title for kind, (_, title) in OTHERS.items() if kind not in absent}
    with tempfile.TemporaryDirectory() as temp:
        small = os.path.join(temp, "small")
        if a.side:
            run(child_command(a.python, "shrink", source=a.data, target=small, side=a.side))
        for name, folder in (("the files", a.data), (f"{a.side} px, quality 90", small))[:2 if a.side else 1]:
            packed = os.path.join(temp, "pack-" + os.path.basename(folder))
            run([os.path.join(a.build, "tools/pack"), "--quiet", "--mode", "lossless", folder, packed])
            runs, why = play_peers(a, loaders(a, folder, packed))
            if OURS in why:
                raise Failed(f"{OURS}: {why[OURS]}")
            print(f"## {name}\n")
            head("", "one thread, images per second of CPU", "Lather is faster by", f"{a.threads} workers, images/s", "Lather is faster by")
            for who, results in runs.items():
                row(*loader_row(who, results, runs[OURS]))
            for who, failure in why.items():
                row(who, f"failed: {failure}", "", "", "")
            failed = failed or bool(why)
            print()
    return int(failed)


# --- service ----------------------------------------------------------------------------------------------------------


PROTO = """syntax = "proto3";
package echo;
message Bytes { bytes data = 1; }
service Echo { rpc Call(Bytes) returns (Bytes); }
"""
MAIN = r"""
#include "echo.grpc.pb.h"
#include <grpcpp/grpcpp.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

class Server final : public echo::Echo::Service {
    grpc::Status Call(grpc::ServerContext *, const echo::Bytes *in, echo::Bytes *out) override
    {
        out->set_data(in->data());
        return grpc::Status::OK;
    }
};

static double measure(echo::Echo::Stub *stub, size_t bytes, int count, int threads)
{
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([=] {
            echo::Bytes in, out;
            in.set_data(std::string(bytes, 0));
            for (int i = 0; i < count / threads; i++) {
                grpc::ClientContext context;
                if (!stub->Call(&context, in, &out).ok() || out.data().size() != bytes)
                    abort();
            }
        });
    for (auto &t : all)
        t.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int main(int, char **argv)
{
    const int count = atoi(argv[2]), large = atoi(argv[3]);
    const std::string address = argv[1];
    Server service;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(-1);
    auto server = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    auto stub = echo::Echo::NewStub(grpc::CreateCustomChannel(address[0] == 'u' ? address : "127.0.0.1:" + std::to_string(port),
                                                              grpc::InsecureChannelCredentials(), arguments));
    measure(stub.get(), 64, count / 10, 1);
    double one = measure(stub.get(), 64, count, 1), several = measure(stub.get(), 64, count, 4);
    double bulk = measure(stub.get(), 64 << 20, large, 1);
    printf("{\"calls_per_second\": %.0f, \"calls_per_second_4\": %.0f, \"gigabytes_per_second\": %.3f}\n", count / one, count / several,
           1e-9 * (64 << 20) * large / bulk);
    server->Shutdown();
}
"""


def build_grpc(folder):
    plugin = shutil.which("grpc_cpp_plugin")
    if not plugin or not shutil.which("protoc") or not shutil.which("g++"):
        cannot("SKIP: gRPC's C++ compiler plugin is missing (libgrpc++-dev, protobuf-compiler-grpc)")
    for name, text in (("echo.proto", PROTO), ("main.cc", MAIN)):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    run(["protoc", "--cpp_out=.", "--grpc_out=.", f"--plugin=protoc-gen-grpc={plugin}", "echo.proto"], cwd=folder)
    flags = run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"]).split()
    run(["g++", "-O2", "-o", "peer", "main.cc", "echo.pb.cc", "echo.grpc.pb.cc", *flags], cwd=folder)
    return os.path.join(folder, "peer")


@command(build=..., rounds=5, calls=5000, large=5)
def service(a):
    """Compares an echo service of this library and of gRPC."""
    rows = (("calls_per_second", "calls/s, 64 bytes, one thread"), ("calls_per_second_4", "calls/s, 64 bytes, 4 threads"),
            ("gigabytes_per_second", "GB/s, 64 MiB there and back"))
    with tempfile.TemporaryDirectory() as folder:
        grpc = build_grpc(folder)
        head("transport", "", "this library", "gRPC C++", "ratio of medians")
        for transport, address, theirs in (("tcp", "tcp://127.0.0.1:0", "127.0.0.1:0"), ("ipc", f"ipc://{folder}/socket", f"unix:{folder}/peer")):
            found = all_of(play({"lather": lambda: bench(a.build, "service", "--address", address, "--calls", a.calls, "--large", a.large),
                                 "grpc": lambda: json.loads(run([grpc, theirs, a.calls, a.large]))}, a.rounds))
            for key, name in rows:
                own, peer = (median(found[who], key) for who in ("lather", "grpc"))
                row(transport, name, f"{own:g}", f"{peer:g}", f"{own / peer:.2f}")


# --- ddp: one rank of PyTorch's DistributedDataParallel over gloo, on the CPU in f32 ----------------------------------


# The hook begins collectives from gloo's threads and waits in them: with several buckets in flight over gloo it hangs or
# mixes them up (seen with torch 2.15).
ONE_BUCKET_MIB = 1 << 14


def ddp_exchange(torch, a):
    """A function that does one all-reduce."""
    gradients = torch.randn(a.exchange)

    def step():
        torch.distributed.all_reduce(gradients)
        gradients.div_(torch.distributed.get_world_size())
        torch.distributed.barrier()
    return step


def ddp_training(torch, a):
    """A function that does one step."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    training = Training(argparse.Namespace(**vars(a), device="cpu", dtype="f32", layout="channels_last", how="eager", eval=False, stem="imagenet"))
    one_bucket = {"bucket_cap_mb": ONE_BUCKET_MIB} if a.hook != "none" else {}
    training.forward = torch.nn.parallel.DistributedDataParallel(training.model, **one_bucket)
    if a.hook != "none":
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=int(a.hook.removeprefix("powersgd:")), start_powerSGD_iter=2)
        training.forward.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return training.step


@command(arch="resnet18", image_size=32, classes=100, batch_size=4, steps=5, warm=4, threads=1, hook="none", exchange=0)
def ddp(a):
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT identify this rank. Rank 0 prints one JSON object: the seconds of each step after
    the first --warm ones. --hook powersgd:R is PyTorch's powerSGD_hook with error feedback and warm start, which it uses from the
    third step on. --exchange N: all_reduce of N floats, and no network."""
    import torch
    import torch.distributed

    torch.set_num_threads(a.threads)
    torch.distributed.init_process_group("gloo")
    step = ddp_exchange(torch, a) if a.exchange else ddp_training(torch, a)
    seconds = []
    for i in range(a.warm + a.steps):
        torch.distributed.barrier()
        begin = time.perf_counter()
        step()
        if i >= a.warm:
            seconds.append(time.perf_counter() - begin)
    if not torch.distributed.get_rank():
        print(json.dumps({"peer": "pytorch " + torch.__version__, "hook": a.hook, "arch": a.arch, "seconds": seconds}), flush=True)
    torch.distributed.destroy_process_group()


# --- The command line -------------------------------------------------------------------------------------------------


CHILDREN = {"network": lambda a: serve(a, Training), "attention": lambda a: serve(a, Attention), "loading": lambda a: serve(a, Loading),
            "dali": dali, "ffcv": ffcv, "shampoo": run_reference, "shrink": shrink}


def child(name, settings):
    """Does the work of a process that a command of this script started."""
    found = CHILDREN[name](argparse.Namespace(**json.loads(settings)))
    if found:
        print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        sys.exit(child(*sys.argv[2:]))
    sys.exit(main(__doc__, network, attention, eigh, sample, shampoo, loader, service, ddp))
