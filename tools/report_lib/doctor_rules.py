"""Rules of doctor, likely causes before their symptoms. A rule returns None, or a finding."""
import math

from .doctor_run import Run, finite, median

RATIO_HIGH, RATIO_LOW = 0.3, 1e-5  # update over weight in a step; trained networks have about 1e-3 (Karpathy, CS231n notes, 2016)
LEAST_SPREAD = 10  # largest eigenvalue over epsilon, below which a root of power 1/4 scales directions by less than 1.8
ROUNDING = 1e-7  # relative error of float32's eigenvalues: docs/guides/shampoo.md
HORIZONS = 2  # f in units of 1/(1 - beta2), after which a root is of other gradients
MOST_BLOCKS, SMALL_BLOCK = 16, 32  # per matrix; sides: those of 16 cost 2.4 to 2.8 points: docs/results/ablation.md
SAME, OPPOSITE, STRAIGHT = 0.99, -0.3, 0.98  # cosines: of update and gradient; of successive updates that undo each other, that repeat
SPIKE, WINDOW, TALL, SPIKES = 2, 20, 0.1, 3  # loss over the median of WINDOW steps before; its rise over the first loss; jumps of a finding
GROWN, BURST, FLAT = 1.2, 3, 0.03  # last and largest loss over the first of a run that diverged; fall of one that does not learn
DEAD = 0.5  # share of rows without gradient: units that no sample activates
GAP, APART, RISE = 15, 1.3, 1.1  # points of training accuracy above evaluation's; evaluation loss over training's, over its lowest
UNDAMPED, SKIPS, MATRIX = 0.25, 0.01, 16  # share of eigenvalues that are rounding errors; of skipped steps; size of a factor that should have a rank
RELATIVE = "--epsilon 1e-6 --opt-kwargs epsilon-rule=relative"


def finding(severity, text, flags, **evidence):
    """text is a template, as flags are: evidence has its numbers by name."""
    known = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in evidence.items()}
    flags = [flag for flag in (flag.format(**evidence) for flag in flags) if "nan" not in flag]  # without config.yaml lr is not known
    return {"severity": severity, "text": text.format(**evidence), "evidence": known, "flags": flags}


class Rules(Run):
    """A run with its rules."""

    def root_failures(self):  # Shi et al. 2023 (arXiv 2309.06497), section 3.2: a failed root keeps an old one
        failed = sum(finite(self.of(self.steps, "shampoo_root_failures")))
        factors = [i for i, v in enumerate(self.recent("factor", "failures")) if v > 0]
        if failed > 0 or factors:
            return finding("warning", "{failures:.0f} inverse roots failed, recently those of {count} factors ({factors}): these keep old roots",
                           ["--root-solver eigh", RELATIVE], failures=failed, count=len(factors), factors=self.named("factor", factors))

    def fallback(self):
        lost = [i for i in self.matrices if self.rules[i] in ("diagonal", "adamw")]
        share = sum(self.matrices[i] for i in lost) / max(1, sum(self.matrices.values()))
        if share > 0.5 and self.optim in ("shampoo", "soap", "muon"):
            flags = ["--opt-kwargs adamw-params=REGEX"] if self.optim == "muon" else ["--max-preconditioner-dim 1024", "--target-dimensionality 2"]
            return finding("error", "{optim} treats {lost} of {matrices} recorded matrices, {share:.0f} % of their elements, by rule {rule}: {names}", flags, optim=self.optim,
                           lost=len(lost), matrices=len(self.matrices), share=100 * share, rule=self.rules[lost[0]], names=self.named("parameter", lost))

    def no_roots(self):  # until the first roots an update is that of the grafted method
        f, start = self.number("precondition-frequency"), self.number("start-preconditioning-step")
        start = f if start < 0 else start
        if self.optim in ("shampoo", "soap") and self.text("preconditioner") in ("root", "eigenvalue_corrected") and self.is_finished and self.last_step < start:
            return finding("error", "the run ended at step {steps:.0f}, but the first roots come at step {start:.0f}: no update was preconditioned",
                           ["--precondition-frequency {sooner}" if start == f else "--start-preconditioning-step -1"], steps=self.last_step, start=start,
                           sooner=max(1, int(self.last_step / 20)))

    def grafting_missing(self):  # Agarwal et al. 2020 (arXiv 2002.11803): lr of a recipe is that of the method whose steps are grafted
        if self.optim == "shampoo" and self.text("grafting") == "none" and self.text("preconditioner") == "root":
            return self._too_large("without grafting lr {lr:g} is not that of SGD or AdamW", ["--grafting sgd", "--grafting adam", "--lr {hundredth:g}"])

    def epsilon_large(self):
        largest, epsilon, shares = (self.recent("factor", name) for name in ("eigenvalue_max", "epsilon", "below_epsilon"))
        over = [i for i, (value, damping) in enumerate(zip(largest, epsilon)) if value < LEAST_SPREAD * damping]
        if over and 2 * len(over) > len(finite(epsilon)):
            i = max(over, key=lambda i: epsilon[i] / max(largest[i], 1e-300))
            return finding("warning", "epsilon {epsilon:.3g} is above {below:.0f} % of the eigenvalues of {factor}, the largest {largest:.3g}: the roots of {over} of "
                           "{factors} factors are nearly the identity", [RELATIVE], epsilon=epsilon[i], below=100 * shares[i], factor=self.stats.name("factor", i),
                           largest=largest[i], over=len(over), factors=len(epsilon))

    def frequency(self):
        f, beta2 = self.number("precondition-frequency"), self.number("beta2")
        if self.optim in ("shampoo", "soap") and beta2 < 1 and f * (1 - beta2) > HORIZONS * (1 + 1e-9):
            return finding("warning", "roots are computed every {f:.0f} steps, but beta2 {beta2:g} averages the last {horizon:.0f}: they are of other gradients",
                           ["--precondition-frequency {horizon:.0f}", "--beta2 0.999"], f=f, beta2=beta2, horizon=max(1, 1 / (1 - beta2)),
                           off_diagonal=median(self.recent("factor", "off_diagonal")))

    def late_roots(self):
        start, peak = self.number("start-preconditioning-step"), max(finite(self.lr.values()), default=0)
        warm = min((step for step, lr in self.lr.items() if lr == peak), default=0)
        if start > self.number("precondition-frequency") and 1 < warm < min(start, self.last_step):
            return finding("warning", "the warm-up ends at step {warm:.0f}, but roots begin at step {start:.0f}: the direction of updates changes at full lr",
                           ["--start-preconditioning-step -1", "--warmup-epochs of {start:.0f} steps"], warm=warm, start=start)

    def small_blocks(self):
        limit, owners = self.number("max-preconditioner-dim"), [row["parameter"] for row in self.stats.rows("block")] if self.stats else []
        cut = {i: owners.count(i) for i in self.matrices if owners.count(i) > MOST_BLOCKS}
        share = sum(self.matrices[i] for i in cut) / max(1, sum(self.matrices.values()))
        if 0 < limit <= SMALL_BLOCK and share > 0.5:
            worst = max(cut, key=lambda i: cut[i])
            return finding("warning", "blocks of {limit:.0f} cut {name} into {blocks} blocks, and matrices with {share:.0f} % of all elements into more than {most}: "
                           "correlations between blocks are lost", ["--max-preconditioner-dim 1024"], limit=limit, name=self.named("parameter", [worst]),
                           blocks=cut[worst], share=100 * share, most=MOST_BLOCKS)

    def lr_high(self):
        return self._too_large("updates are too large at lr {lr:g}", ["--lr {tenth:g}", "--warmup-epochs", "--clip-grad 1"])

    def _too_large(self, why, flags):
        (first, last), peak, lr = self.losses(), max(finite(self.of(self.steps, "loss")), default=0), self.number("lr")
        ratio, step = max(zip(self.ratios(), self.stats.steps), key=lambda one: one[0], default=(math.nan, 0)) if self.stats else (math.nan, 0)
        chance = max(first, math.log(max(1, self.classes())))  # a run that starts from weights begins lower
        if last > GROWN * chance or peak > BURST * chance or ratio > RATIO_HIGH:
            moved = ", and step {step} changes the median matrix by {ratio:.3g} of its norm" if math.isfinite(ratio) else ""
            return finding("error", "the loss goes from {first:.4g} to {last:.4g}, at most {peak:.4g}" + f"{moved}: {why}", flags, first=first, last=last, peak=peak,
                           step=step, ratio=ratio, lr=lr, tenth=lr / 10, hundredth=lr / 100)

    def lr_low(self):
        (first, last), lr = self.losses(), self.number("lr")
        ratio = median([v for i, v in enumerate(self.recent("parameter", "update_ratio")) if i in self.matrices and self.at_full_lr()])
        straight = not median(self.recent("parameter", "consecutive_cosine")) < STRAIGHT
        flat = straight and len(self.steps) > 100 and (1 - FLAT) * first < last <= first
        if (ratio < RATIO_LOW or flat) and max(finite(self.lr.values()), default=0) > lr / 2 and not self.lr_high():  # nor in a warm-up
            moved = ", and a step changes the median matrix by {ratio:.3g} of its norm" if math.isfinite(ratio) else ""
            return finding("warning", "the loss goes from {first:.4g} to {last:.4g}" + moved + ": updates are too small at lr {lr:g}",
                           ["--lr {tenfold:g}", "--lr {hundredfold:g}"], first=first, last=last, ratio=ratio, lr=lr, tenfold=10 * lr, hundredfold=100 * lr)

    def edge(self):  # Cohen et al., "Gradient descent on neural networks typically occurs at the edge of stability", ICLR 2021
        loss, cosine = self.of(self.steps, "loss"), median(self.recent("parameter", "consecutive_cosine"))
        usual = [median(loss[i - WINDOW:i]) for i in range(WINDOW, len(loss))]
        spikes = [r["step"] for r, v, before in zip(self.steps[WINDOW:], loss[WINDOW:], usual) if v > SPIKE * before and v - before > TALL * loss[0]]
        if len(spikes) >= SPIKES or cosine < OPPOSITE:
            back = ", and successive updates have a median cosine of {cosine:.2f}" if math.isfinite(cosine) else ""
            return finding("warning", "the loss jumps {jumps} times, at steps {spikes}" + back + ": lr {lr:g} is at the edge",
                           ["--lr {third:g}", "--warmup-epochs", "--clip-grad 1"], jumps=len(spikes), spikes=spikes[:5], cosine=cosine, lr=self.number("lr"), third=self.number("lr") / 3)

    def grafting_undoes(self):
        cosines = [v for v, name in zip(self.recent("block", "update_cosine"), self.recent("block", "rule")) if self.stats.rule(name) in ("root", "eigenbasis")]
        if self.text("grafting") not in ("", "none") and median(cosines) > SAME:
            return finding("warning", "the median cosine of a preconditioned update and the gradient is {cosine:.4f}, and grafting restores its "
                           "length: this is {graft}", ["--grafting none", RELATIVE], cosine=median(cosines), graft=self.text("grafting"))

    def epsilon_small(self):  # eigenvalues below rounding errors of the largest are noise, which a root amplifies most: docs/guides/shampoo.md
        epsilon, quantiles = self.recent("factor", "epsilon"), [self.recent("factor", f"q{q}") for q in range(9)]
        wild = [i for i, largest in enumerate(quantiles[8]) if 0 < epsilon[i] < ROUNDING * largest / 10
                and sum(q[i] < ROUNDING * largest for q in quantiles) / 9 > UNDAMPED]
        if 2 * len(wild) > len(finite(epsilon)):
            return finding("warning", "epsilon {epsilon:.3g} is below the rounding errors of {wild} of {factors} factors, as of {factor} with a largest eigenvalue of "
                           "{largest:.3g}: noise is amplified most", [RELATIVE], epsilon=epsilon[wild[0]], wild=len(wild), factors=len(epsilon),
                           factor=self.stats.name("factor", wild[0]), largest=quantiles[8][wild[0]])

    def rank_one(self):
        ranks = self.recent("factor", "effective_rank")
        low = [i for i, v in enumerate(ranks) if 0 < v < 1.5 and self.stats.rows("factor")[i]["size"] >= MATRIX]
        if low:
            return finding("warning" if 2 * len(low) > len(ranks) else "note", "{low} of {factors} factors have an effective rank below 1.5, "
                           "too few different gradients: {names}", ["--beta2 0.999", "--start-preconditioning-step N", "--diagonal REGEX"] if self.optim in ("shampoo", "soap") else [],
                           low=len(low), factors=len(ranks), names=self.named("factor", low))

    def skipped_steps(self):  # Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2
        skipped, scale = [r["step"] for r in self.steps if r.get("skipped")], finite(self.of(self.steps, "loss_scale"))
        if scale and len(skipped) >= SPIKES and skipped[-1] > self.last_step / 2:
            return finding("warning", "the loss scale goes from {first:g} to {last:g} and does not rise: {skipped} steps overflowed, the last at step {step}",
                           ["--amp bf16", "--clip-grad 1", "--lr {tenth:g}"], first=scale[0], last=scale[-1], skipped=len(skipped), step=skipped[-1],
                           tenth=self.number("lr") / 10)
        if not scale and len(skipped) > SKIPS * len(self.steps):
            return finding("warning", "{skipped} of {steps} steps were skipped, the first at step {step}: a gradient was not finite", ["--clip-grad 1", "--lr {tenth:g}"],
                           skipped=len(skipped), steps=len(self.steps), step=skipped[0], tenth=self.number("lr") / 10)

    def dead_units(self):
        shares = self.recent("parameter", "zero_gradient_rows")
        dead = [i for i in self.matrices if DEAD < shares[i] < 1 and not any(word in self.stats.name("parameter", i) for word in ("emb", "wte", "wpe"))]
        if dead:
            return finding("warning", "up to {share:.0f} % of the rows have no gradient in {names}: dead units, as steps leave them that were too large", ["--lr {tenth:g}", "--warmup-epochs"],
                           share=max(100 * shares[i] for i in dead), names=self.named("parameter", dead), tenth=self.number("lr") / 10)

    def saturated(self):  # Guo et al., "On calibration of modern neural networks", ICML 2017
        chance = math.log(max(2, self.classes()))
        for kind in ("train", "val"):
            top1, loss = self.at_end(f"{kind}_top1"), self.at_end(f"{kind}_loss")
            if loss > GROWN * chance and top1 > 200 * math.exp(-chance):
                return finding("warning", "{kind} loss {loss:.3g} is above log(classes), {chance:.3g}, although top-1 is {top1:.1f} %: logits are saturated",
                               ["--label-smoothing 0.1", "--weight-decay", "--lr {third:g}"], kind=kind, loss=loss, chance=chance, top1=top1, third=self.number("lr") / 3)

    def overfit(self):
        loss, gap = finite(self.of(self.epochs, "val_loss")), self.at_end("train_top1") - self.at_end("val_top1")
        apart = gap > GAP or self.at_end("val_loss") > APART * self.at_end("train_loss")
        if apart and loss and loss[-1] > RISE * min(loss) and not self.epochs[-1].get("val_is_train"):
            return finding("warning", "evaluation loss rose from {low:.3g} to {last:.3g} while training loss is {train:.3g}: the data repeat too often",
                           ["--augment", "--weight-decay", "--label-smoothing 0.1", "--epochs"], low=min(loss), last=loss[-1], train=self.at_end("train_loss"), gap=gap)

    def no_stats(self):
        if not self.stats:
            return finding("note", "rules that look into the optimizer were left out: there are no records of --optim-stats", ["--optim-stats {every}"],
                           every=max(1, min(50, int(self.last_step / 10))))

    def old_records(self):
        lacking = [key for key in ("lr", "gradient_norm", "seconds") if not finite(self.of(self.steps, key))]
        if lacking:
            return finding("note", "metrics.jsonl has no {keys}: an earlier version of lather wrote it, rules that need them were left out", [],
                           keys=", ".join(lacking))


RULES = [name for name in vars(Rules) if name[0] != "_"]
