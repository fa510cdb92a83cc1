"""Rules of doctor, likely causes before their symptoms. A rule returns None, or severity, sentence, evidence, flags to try."""
import math

from .doctor_run import Run, finite, median

RATIO_HIGH, RATIO_LOW = 0.3, 1e-5  # update over weight in a step; trained networks have about 1e-3 (Karpathy, CS231n notes, 2016)
LEAST_SPREAD = 10  # largest eigenvalue over epsilon, below which a root of power 1/4 scales directions by less than 1.8
ROUNDING = 1e-7  # relative error of float32's eigenvalues: docs/guides/shampoo.md
HORIZONS = 2  # f in units of 1/(1 - beta2), after which a root is of other gradients
MOST_BLOCKS, SMALL_BLOCK = 16, 32  # per matrix; sides: those of 16 cost 2.4 to 2.8 points: docs/results/ablation.md
SAME, OPPOSITE = 0.99, -0.3  # cosines: of updates that are the gradient; of successive updates that undo each other
SPIKE, WINDOW, SPIKES = 2, 20, 3  # loss over the median of the steps before; their number; how many make a finding
GROWN, BURST, FLAT = 1.2, 5, 0.02  # last and largest loss over the first of a run that diverged; fall of one that does not learn
DEAD = 0.5  # share of rows without gradient: units that no sample activates
GAP, RISE = 15, 1.1  # points of training accuracy above evaluation's; evaluation loss over its lowest
UNDAMPED, SKIPS = 0.25, 0.01  # share of eigenvalues that are rounding errors; of skipped steps
RELATIVE = "--epsilon 1e-6 --opt-kwargs epsilon-rule=relative"


class Rules(Run):
    """A run with its rules."""

    def _too_large(self):
        """Sentence and evidence if updates are too large, else None."""
        (first, last), peak = self.losses(), max(finite(self.of(self.steps, "loss")), default=0)
        moved, step = max(zip(self.ratios(), self.stats.steps), key=lambda one: one[0], default=(math.nan, 0)) if self.stats else (math.nan, 0)
        if last > GROWN * first or peak > BURST * first or moved > RATIO_HIGH:
            of = f", and step {step} changes the median matrix by {100 * moved:.3g} %" if math.isfinite(moved) else ""
            return (f"the loss goes from {first:.4g} to {last:.4g}, at most {peak:.4g}{of}",
                    {"first_loss": first, "last_loss": last, "largest_loss": peak, "update_ratio": moved})
        return None

    def root_failures(self):  # Shi et al. 2023 (arXiv 2309.06497), section 3.2: a failed root keeps an old one
        failed = sum(finite(self.of(self.steps, "shampoo_root_failures")))
        factors = [i for i, v in enumerate(self.recent("factor", "failures")) if v > 0]
        if failed + len(factors) > 0:
            where = f", last in {self.named('factor', factors)}" if factors else ""
            return ("warning", f"{failed:.0f} inverse roots failed{where}: these blocks keep old roots", {"failures": failed, "factors": len(factors)},
                    ["--root-solver eigh", RELATIVE])

    def fallback(self):
        sizes, rules = self.matrices, self.rules
        lost = [i for i in sizes if rules[i] in ("diagonal", "adamw")]
        share = sum(sizes[i] for i in lost) / max(1, sum(sizes.values()))
        if share > 0.5 and self.optim in ("shampoo", "soap", "muon"):
            flags = ["--opt-kwargs adamw-params=REGEX"] if self.optim == "muon" else ["--max-preconditioner-dim 1024", "--target-dimensionality 2"]
            return ("error", f"{self.optim} treats {len(lost)} of {len(sizes)} matrices, {100 * share:.0f} % of their elements, by rule {rules[lost[0]]}: "
                    f"{self.named('parameter', lost)}", {"share": share, "matrices": len(lost)}, flags)

    def grafting_missing(self):  # Agarwal et al. 2020 (arXiv 2002.11803): lr of a recipe is that of the method whose steps are grafted
        large = self._too_large()
        if large and self.optim == "shampoo" and self.text("grafting") == "none" and self.text("preconditioner") == "root":
            return ("error", f"{large[0]}: without grafting lr {self.number('lr'):g} is not that of SGD or AdamW", large[1],
                    ["--grafting sgd", "--grafting adam", f"--lr {self.number('lr') / 100:g}"])

    def epsilon_large(self):
        largest, epsilon, shares = (self.recent("factor", name) for name in ("eigenvalue_max", "epsilon", "below_epsilon"))
        over = [i for i, (value, damping) in enumerate(zip(largest, epsilon)) if value < LEAST_SPREAD * damping]
        if over and 2 * len(over) > len(finite(epsilon)):
            i = max(over, key=lambda i: epsilon[i] / max(largest[i], 1e-300))
            return ("warning", f"epsilon {epsilon[i]:.3g} is above {100 * shares[i]:.0f} % of the eigenvalues of {self.stats.name('factor', i)}, the largest "
                    f"{largest[i]:.3g}: the roots of {len(over)} of {len(epsilon)} factors are nearly the identity",
                    {"factors": len(over), "epsilon": epsilon[i], "eigenvalue_max": largest[i], "below_epsilon": shares[i]}, [RELATIVE])

    def frequency(self):
        f, beta2 = self.number("precondition-frequency"), self.number("beta2")
        if self.optim in ("shampoo", "soap") and beta2 < 1 and f * (1 - beta2) > HORIZONS * (1 + 1e-9):
            mass = median(self.recent("factor", "off_diagonal"))
            aside = f"; off-diagonal mass in the last basis: {mass:.2g}" if math.isfinite(mass) else ""
            return ("warning", f"roots are computed every {f:.0f} steps, but beta2 {beta2:g} averages {1 / (1 - beta2):.0f}: they are of other gradients{aside}",
                    {"precondition_frequency": f, "horizon": 1 / (1 - beta2)}, [f"--precondition-frequency {max(1, 1 / (1 - beta2)):.0f}", "--beta2 0.999"])

    def late_roots(self):
        start, peak = self.number("start-preconditioning-step"), max(finite(self.lr.values()), default=0)
        warm = min((step for step, lr in self.lr.items() if lr == peak), default=0)
        if start > self.number("precondition-frequency") and 1 < warm < start:
            return ("warning", f"the warm-up ends at step {warm:.0f}, but roots begin at step {start:.0f}: the direction of updates changes at full lr",
                    {"start": start, "warmup_end": warm}, ["--start-preconditioning-step -1", f"--warmup-epochs of {start:.0f} steps"])

    def small_blocks(self):
        limit, owners = self.number("max-preconditioner-dim"), [row["parameter"] for row in self.stats.rows("block")] if self.stats else []
        cut = {i: owners.count(i) for i in self.matrices if owners.count(i) > MOST_BLOCKS}
        share = sum(self.matrices[i] for i in cut) / max(1, sum(self.matrices.values()))
        if 0 < limit <= SMALL_BLOCK and share > 0.5:
            worst = max(cut, key=lambda i: cut[i])
            return ("warning", f"blocks of {limit:.0f} cut matrices with {100 * share:.0f} % of all elements into more than {MOST_BLOCKS} blocks, "
                    f"{self.named('parameter', [worst])} into {cut[worst]}: correlations between blocks are lost",
                    {"share": share, "blocks": cut[worst]}, ["--max-preconditioner-dim 1024"])

    def lr_high(self):
        large = self._too_large()
        if large:
            return ("error", f"{large[0]}: updates are too large at lr {self.number('lr'):g}", large[1],
                    [f"--lr {self.number('lr') / 10:g}", "--warmup-epochs", "--clip-grad 1"])

    def lr_low(self):
        (first, last), found = self.losses(), median([v for i, v in enumerate(self.recent("parameter", "update_ratio")) if i in self.matrices])
        if found < RATIO_LOW or math.isnan(found) and len(self.steps) > 100 and 1 - FLAT < last / first <= 1:
            moved = f"; a step changes the median matrix by {100 * found:.3g} %" if math.isfinite(found) else ""
            return ("warning", f"the loss falls from {first:.4g} to {last:.4g} only, at lr {self.number('lr'):g}{moved}: updates are too small",
                    {"first_loss": first, "last_loss": last, "update_ratio": found}, [f"--lr {self.number('lr') * 10:g}", f"--lr {self.number('lr') * 100:g}"])

    def edge(self):  # Cohen et al., "Gradient descent on neural networks typically occurs at the edge of stability", ICLR 2021
        loss, turned = self.of(self.steps, "loss"), median(self.recent("parameter", "consecutive_cosine"))
        spikes = [self.steps[i].get("step") for i in range(WINDOW, len(loss)) if loss[i] > SPIKE * median(loss[i - WINDOW:i])]
        if len(spikes) >= SPIKES or turned < OPPOSITE:
            back = f"; the median cosine of successive updates is {turned:.2f}" if math.isfinite(turned) else ""
            return ("warning", f"the loss jumps {len(spikes)} times{f', first at step {spikes[0]}' if spikes else ''}{back}: lr {self.number('lr'):g} is at the edge",
                    {"spikes": spikes[:10], "consecutive_cosine": turned}, [f"--lr {self.number('lr') / 3:g}", "--warmup-epochs", "--clip-grad 1"])

    def grafting_undoes(self):
        cosines = [v for v, name in zip(self.recent("block", "update_cosine"), self.recent("block", "rule")) if self.stats.rule(name) in ("root", "eigenbasis")]
        if self.text("grafting") not in ("", "none") and median(cosines) > SAME:
            return ("warning", f"the median cosine of a preconditioned update and the gradient is {median(cosines):.4f}, and grafting restores its length: "
                    f"this is {self.text('grafting')}", {"update_cosine": median(cosines)}, ["--grafting none", RELATIVE])

    def epsilon_small(self):  # eigenvalues below rounding errors of the largest are noise, which a root amplifies most: docs/guides/shampoo.md
        count, quantiles = 0, [self.recent("factor", f"q{q}") for q in range(9)]
        wild = [i for i, (epsilon, largest) in enumerate(zip(self.recent("factor", "epsilon"), quantiles[8])) if 0 < epsilon < ROUNDING * largest / 10
                and sum(q[i] < ROUNDING * largest for q in quantiles) / 9 > UNDAMPED]
        count = len(finite(quantiles[8]))
        if count and 2 * len(wild) > count:
            return ("warning", f"epsilon {self.recent('factor', 'epsilon')[wild[0]]:.3g} is below the rounding errors of {len(wild)} of {count} factors, as of "
                    f"{self.stats.name('factor', wild[0])} (largest eigenvalue {quantiles[8][wild[0]]:.3g}): noise is amplified most",
                    {"factors": len(wild)}, [RELATIVE])

    def rank_one(self):
        ranks = self.recent("factor", "effective_rank")
        low = [i for i, v in enumerate(ranks) if v < 1.5 and self.stats.rows("factor")[i]["size"] >= 16]
        if low:
            return ("warning" if 2 * len(low) > len(ranks) else "note", f"{len(low)} of {len(ranks)} factors have an effective rank below 1.5: {self.named('factor', low)}: "
                    "too few different gradients entered them", {"factors": len(low)}, ["--beta2 0.999", "--start-preconditioning-step N", "--diagonal REGEX"])

    def f16_scale(self):  # Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2
        skipped, scale = [r.get("step") for r in self.steps if r.get("skipped")], finite(self.of(self.steps, "loss_scale"))
        if scale and len(skipped) >= SPIKES and skipped[-1] > self.last_step / 2:
            return ("warning", f"the loss scale goes from {scale[0]:g} to {scale[-1]:g} and does not rise: {len(skipped)} steps overflowed, the last at step {skipped[-1]}",
                    {"skipped": len(skipped), "loss_scale": scale[-1]}, ["--amp bf16", "--clip-grad 1", f"--lr {self.number('lr') / 10:g}"])

    def skipped_steps(self):
        skipped = [r.get("step") for r in self.steps if r.get("skipped") and "loss_scale" not in r]
        if len(skipped) > SKIPS * len(self.steps):
            return ("warning", f"{len(skipped)} of {len(self.steps)} steps were skipped, first step {skipped[0]}: a gradient was not finite", {"skipped": len(skipped)},
                    [f"--lr {self.number('lr') / 10:g}", "--clip-grad 1"])

    def dead_units(self):
        dead = [i for i, v in enumerate(self.recent("parameter", "zero_gradient_rows")) if DEAD < v < 1 and i in self.matrices
                and not any(word in self.stats.name("parameter", i) for word in ("emb", "wte", "wpe"))]
        if dead:
            share = max(self.recent("parameter", "zero_gradient_rows")[i] for i in dead)
            return ("warning", f"up to {100 * share:.0f} % of the rows have no gradient in {self.named('parameter', dead)}: dead units",
                    {"parameters": len(dead), "share": share}, [f"--lr {self.number('lr') / 10:g}", "--warmup-epochs"])

    def saturated(self):  # Guo et al., "On calibration of modern neural networks", ICML 2017
        classes = self.classes()
        for kind in ("train", "val"):
            accuracy, loss = self.at_end(f"{kind}_top1"), self.at_end(f"{kind}_loss")
            if classes > 1 and loss > GROWN * math.log(classes) and accuracy > 200 / classes:
                return ("warning", f"{kind} loss {loss:.3g} is above log({classes}) = {math.log(classes):.3g} although top-1 is {accuracy:.1f} %: logits are saturated",
                        {"loss": loss, "top1": accuracy}, ["--label-smoothing 0.1", "--weight-decay", f"--lr {self.number('lr') / 3:g}"])

    def overfit(self):
        loss = finite(self.of(self.epochs, "val_loss"))
        gap = self.at_end("train_top1") - self.at_end("val_top1")
        if gap > GAP and loss and loss[-1] > RISE * min(loss) and not self.epochs[-1].get("val_is_train"):
            return ("warning", f"training top-1 is {gap:.1f} points above evaluation's, whose loss rose from {min(loss):.3g} to {loss[-1]:.3g}: the data repeat too often",
                    {"gap": gap, "val_loss": loss[-1]}, ["--augment", "--weight-decay", "--label-smoothing 0.1", "--epochs"])

    def no_stats(self):
        if not self.stats:
            return ("note", "rules that look into the optimizer were left out: there are no records of --optim-stats", {}, ["--optim-stats 50"])

    def old_records(self):
        lacking = [key for key in ("lr", "gradient_norm", "seconds") if not finite(self.of(self.steps, key))]
        if lacking:
            return ("note", f"metrics.jsonl has no {', '.join(lacking)}: an earlier version of lather wrote it, rules that need them were left out", {"keys": lacking}, [])


RULES = [name for name in vars(Rules) if name[0] != "_"]
