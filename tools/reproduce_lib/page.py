"""report.html: one file, nothing fetched, light or dark as the reader's system is, readable on a phone."""
from html import escape

import charts
from . import plugins
from .claims import HOLDS
from .tables import verdict_class

STYLE = """
:root{color-scheme:light dark;--ink:#20242b;--soft:#646b77;--line:#dfe2e6;--paper:#fff;--tint:#f6f7f8;--good:#2f7d4f;--bad:#b0452f}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ea;--soft:#9aa1ac;--line:#2f343c;--paper:#15181d;--tint:#1b1f25;--good:#79c596;
--bad:#ee8a72}}
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:3rem 1.1rem 5rem;max-width:60rem;background:var(--paper);color:var(--ink);
font:1.03rem/1.6 ui-serif,"Iowan Old Style","Palatino Linotype",Palatino,Georgia,serif}
h1{font-size:1.9rem;line-height:1.2;font-weight:500;letter-spacing:-.01em;margin:0 0 .6rem}
h2{font-size:1.25rem;font-weight:500;margin:3.2rem 0 .5rem;padding-top:.9rem;border-top:1px solid var(--line)}
p{max-width:42rem;margin:.5rem 0}.soft,figcaption,summary{color:var(--soft)}
figcaption,table,summary,pre,.chip{font-family:system-ui,-apple-system,"Segoe UI",sans-serif}
figure{margin:1.2rem 0}figcaption{font-size:.82rem;line-height:1.45;max-width:42rem;margin-top:.4rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:.4rem 1.8rem}
.grid figure{margin:.6rem 0}figure svg{width:100%;height:auto;display:block}
.table{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem;line-height:1.4;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;vertical-align:bottom}th,td{padding:.36rem 1.1rem .36rem 0;border-bottom:1px solid var(--line)}
td{vertical-align:top}.n{text-align:right}td{white-space:nowrap}
.claim{border-left:3px solid var(--line);padding:.1rem 0 .1rem .9rem;margin:1rem 0;max-width:44rem}
.claim.good{border-color:var(--good)}.claim.bad{border-color:var(--bad)}.claim p{margin:.15rem 0}
.verdict{font-variant-caps:all-small-caps;letter-spacing:.05em}.good .verdict{color:var(--good)}.bad .verdict{color:var(--bad)}
.none .verdict{color:var(--soft)}.fact{font-size:.88rem;color:var(--soft);font-family:system-ui,sans-serif}
pre{overflow:auto;background:var(--tint);padding:.8rem 1rem;font:.78rem/1.5 ui-monospace,Menlo,Consolas,monospace;border-radius:4px}
.log{white-space:pre-wrap;overflow-wrap:anywhere}
details{margin:.8rem 0}summary{cursor:pointer;font-size:.9rem}
@media print{details>*{display:block}}
"""


def figure(item):
    return f"<figure>{item.drawing.inline()}<figcaption>{escape(item.caption)}</figcaption></figure>\n"


def folded(title, inside):
    return f"<details><summary>{escape(title)}</summary>{inside}</details>\n" if inside else ""


def grid(figures):
    return f'<div class="grid">{"".join(figure(f) for f in figures)}</div>\n' if figures else ""


def claim(v):
    known = f' Known: {escape(v.claim["known"])}.' if v.claim["known"] else ""
    source = f' Source: {escape(v.claim["source"])}.' if v.claim["source"] else ""
    note = f" ({escape(v.note)})" if v.note else ""
    bound = f" Holds if {escape(v.bound_text())}." if v.claim["bound"] else ""
    return (f'<div class="claim {verdict_class(v.verdict)}"><p>{escape(v.claim["text"])} '
            f'<span class="verdict">{escape(v.verdict)}</span>{note}</p>'
            f'<p class="fact">Measured: {escape(v.text())}.{bound}{known}{source}</p></div>\n')


def lead(measured, verdicts):
    """The main results in a sentence or two."""
    plan = measured.plan
    longest, metric = plan.budgets[-1], measured.metric
    base, arm = plan.arms[plan.baseline].label, plan.arms[plan.challenger].label
    found, gain = measured.epochs_ratio(plan.challenger, longest), measured.gain(plan.challenger, longest, longest)
    if not found or not gain:
        return "<p>Some of the runs that the main comparison needs are missing.</p>\n"
    if found[0] > 0:
        text = (f"{arm} reaches the {longest:g}-epoch {metric.noun} of {base} in {found[3]:.1f} epochs, "
                f"{found[0]:.2f} times fewer [{found[1]:.2f}, {found[2]:.2f}].")
    else:
        text = f"{arm} does not reach the {longest:g}-epoch {metric.noun} of {base} in any of its budgets."
    held = sum(v.verdict == HOLDS for v in verdicts)
    where, digits = "higher" if metric.sign * gain[0] >= 0 else "lower", metric.digits
    low, high = sorted(metric.sign * g for g in gain[1:])
    text += f" At equal epochs it ends {abs(gain[0]):.{digits}f} {metric.points} {where} [{low:+.{digits}f}, {high:+.{digits}f}]."
    return f"<p>{escape(text)}</p>\n" + (f'<p class="soft">{held} of {len(verdicts)} claims hold here.</p>\n' if verdicts else "")


def cells_text(count):
    return f"{count} cell" + ("s" if count != 1 else "")


def holes(measured):
    """Failed, diverged and missing cells."""
    parts, missing = [], 0
    for cell in measured.cells.by_id.values():
        found, failure = measured.store.metrics(cell.id), measured.store.failure(cell.id)
        if found and found["status"] == "diverged":
            parts.append(f"<p>{escape(cell.roles[0])} ({cell.id}) diverged: a gradient or a running statistic was not finite. It counts as "
                         f"{measured.metric.text(measured.metric.worst, 0)} {measured.metric.unit}.</p>\n")
        elif not found and failure:
            log = escape("\n".join(failure["log"]))
            parts.append(f"<p>{escape(cell.roles[0])} ({cell.id}) failed with exit status {escape(str(failure['code']))}. The end of its log:</p>"
                         f'<pre class="log">{log}</pre>\n')
        elif not found:
            missing += 1
    later = measured.cells.pending[0]
    if missing or later:
        parts.append(f"<p>Not run yet: {cells_text(missing + later)}.</p>\n")
    return "<h2>Missing results</h2>\n" + "".join(parts) if parts else ""


def machines(measured):
    """Each kind of machine and build that ran cells, once."""
    seen = {}
    for cell in measured.cells.by_id.values():
        env = (measured.store.metrics(cell.id) or {}).get("env")
        if env:
            words = [f"{env.get('cpu_threads', '?')} threads of {env.get('cpu', '?')}", env.get("os", "?")] + env.get("build", [])
            words += [f"commit {env['git_commit'][:12]}"] if "git_commit" in env else []
            text = ", ".join(words)
            seen[text] = seen.get(text, 0) + 1
    return "".join(f"<p class=fact>{cells_text(n)}: {escape(text)}</p>\n" for text, n in sorted(seen.items()))


def edges(measured):
    found = [f"{measured.plan.arms[arm].label} ({', '.join(f'{word} {key}' for key, word in ends)})"
             for arm in measured.plan.arms for ends in [measured.at_the_edge(arm)] if ends]
    return f"<p>Best trials at the edge of the values tried, where tuning may be incomplete: {escape('; '.join(found))}.</p>\n" if found else ""


def method(measured, plan_text):
    plan = measured.plan
    counts = {len(measured.cells.trials[a]) for a in plan.arms}
    tuned, noun = "/".join(map(str, sorted(counts))), measured.metric.noun
    loaded = "; ".join(f"{file}, SHA-256 {digest}" for file, digest in plugins.listed(plan))
    samples, augmentation = ("images", " and augmentation") if noun == "accuracy" else ("samples", "")
    return f"""<h2>Method</h2>
<p>Every optimizer had {tuned} tuning trials of {plan.tune_at:g} epochs with one seed: the same points of a Halton sequence with a fixed
start, log-uniform over the ranges in the plan. The best trial's values went into {measured.cells.seeds} final runs per budget, with
other seeds. A seed gives initial weights, order of the {samples}{augmentation}, the same for every optimizer; the schedule's shape
is the same, too. The best trial was chosen by {noun} on the {samples} that the final {noun} is measured on, for every
optimizer.</p>
<p>Data: fingerprint {escape(measured.cells.fingerprint)}.{escape(f" Plugins: {loaded}.") if loaded else ""}</p>
{machines(measured)}<details><summary>The plan: {escape(plan.name)}</summary><pre>{escape(plan_text)}</pre></details>
"""


def page(measured, verdicts, figures, tables, with_clock):
    plan = measured.plan
    with open(plan.path, encoding="utf-8") as file:
        plan_text = file.read()

    def table(name):
        return tables[name].html() if name in tables else ""
    noun = measured.metric.noun
    shown = [v for v in verdicts if with_clock or not v.is_clock]
    taken = folded("Measured seconds", grid(figures["clock"]))
    about = f"<p>{escape(plan.about)}</p>\n" if plan.about else ""
    indicative = "<p>Other work shared the machine: seconds are indicative only.</p>\n" if plan.clock == "indicative" else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{escape(plan.title)}</title><style>{charts.STYLE}{STYLE}</style></head><body>
<h1>{escape(plan.title)}</h1>
{lead(measured, shown)}{about}{"<h2>Claims</h2>" if shown else ""}
{"".join(claim(v) for v in shown)}<h2>{noun[0].upper()}{noun[1:]} and epochs</h2>
{grid(figures["result"])}{table(noun)}{table("epochs-to-target")}{table("target")}<h2>Learning curves</h2>
{grid(figures["curves"])}<h2>Cost of a step</h2>
{indicative if with_clock else ""}{grid(figures["seconds"] + figures["memory"])}{table("cost")}{table("roots")}{taken}<h2>Sensitivity to settings</h2>
{grid(figures["sweeps"])}<details><summary>Table of scores</summary>{table("sweeps")}</details>
<h2>Tuning</h2>
{edges(measured)}{grid(figures["trials"])}{table("transfer")}<details><summary>All trials</summary>{table("trials")}</details>
<details><summary>All final runs</summary>{table("runs")}</details>
{holes(measured)}{method(measured, plan_text)}</body></html>
"""
