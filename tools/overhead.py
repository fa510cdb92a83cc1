#!/usr/bin/env python3
"""Cost of a step with Shampoo, against AdamW: a model from measured parts, and a real run.

The parts, measured alternately in --rounds rounds, medians of them: a micro-batch loaded, passed
forward and backward (a short run of train_resnet50 with ACCUM of them, less its SGD step), AdamW's
step, and for each block size Shampoo's step without a refresh (factors, direction, update) and one refresh of
all roots (`bench optim`). A step is then

    ACCUM * micro-batch + step + refresh / f

--check-run STEPS makes a real run of train_resnet50 on synthetic images with the middle setting
and compares its mean step, after the first refresh, with the model's: exit status 1 if they are
more than --tolerance apart. Prints Markdown."""

import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bench'))
from turns import all_of, bench, head, median, play, row, train  # noqa: E402


def optimizer(o, name, *args):
    got = bench(o.build, 'optim', '--arch', o.arch, '--optim', name, '--steps', o.steps,
                '--threads', o.threads, *args)
    return got['optimizers'][name]


def seconds_of_steps(o, steps, *args):
    """Seconds of each step of a run of train_resnet50 on synthetic images."""
    records = train(os.path.join(o.build, 'models/resnet50/train_resnet50'), '--data',
                    f'synthetic:{o.batch * o.accum * (steps + 1)}:{o.image}:1000', '--arch', o.arch,
                    '--amp', o.amp, '--image-size', o.image, '--batch-size', o.batch, '--grad-accum',
                    o.accum, '--max-steps', steps, '--log-every', 1, '--eval-every', 0, '--threads',
                    o.threads, *args, env=dict(os.environ))
    return [o.batch * o.accum / r['images_per_second'] for r in records]


def micro_batch(o):
    """Milliseconds to load a micro-batch and pass it forward and backward."""
    whole = 1e3 * statistics.mean(seconds_of_steps(o, 1 + o.steps, '--optim', 'sgd')[1:])
    return (whole - optimizer(o, 'sgd')['milliseconds']) / o.accum


def measure(o):
    """Medians over rounds: {part: milliseconds}."""
    contestants = {'micro': lambda: micro_batch(o), 'adamw': lambda: optimizer(o, 'adamw')['milliseconds'],
                   **{block: lambda b=block: optimizer(o, 'shampoo', '--max-preconditioner-dim', b) for block in o.blocks}}
    runs = all_of(play(contestants, o.rounds))
    return {'micro': median(runs['micro']), 'adamw': median(runs['adamw']),
            **{(name, block): median(runs[block], name + '_milliseconds')
               for name in ('factor', 'apply', 'plain', 'refresh') for block in o.blocks}}


def step(o, part, block, every):
    return o.accum * part['micro'] + part['plain', block] + part['refresh', block] / every


def report(o, part):
    base = o.accum * part['micro'] + part['adamw']
    print(f'{o.arch}, {o.image} pixels, amp {o.amp}, {o.accum} x {o.batch} images a step; medians '
          f'of {o.rounds} rounds of {o.steps} steps\n')
    head('part', 'ms', 'of the AdamW step')

    def line(name, ms):
        row(name, f'{ms:.1f}', f'{100 * ms / base:.2f} %')

    line('loading, forward and backward of a micro-batch', part['micro'])
    line('AdamW', part['adamw'])
    line('a step with AdamW', base)
    for block in o.blocks:
        line(f'factors, blocks of {block}', part['factor', block])
        line(f'direction and update, blocks of {block}', part['apply', block])
        line(f'Shampoo without refresh, blocks of {block}', part['plain', block])
        line(f'one refresh of all roots, blocks of {block}', part['refresh', block])
    print('\nA step with Shampoo costs more than one with AdamW by\n')
    head('blocks', *(f'f = {f}' for f in o.every))
    for block in o.blocks:
        row(block, *(f'{100 * (step(o, part, block, f) / base - 1):.1f} %' for f in o.every))


def real_run(o, block, every):
    """Seconds of a step from the first refresh on: the median over windows of one refresh each, so
    that other work on the machine in some of them does not count."""
    seconds = seconds_of_steps(o, every + o.check_run, '--optim', 'shampoo',
                               '--max-preconditioner-dim', block, '--precondition-frequency', every)
    windows = range(every, len(seconds) - every + 1, every)
    return statistics.median(statistics.mean(seconds[i:i + every]) for i in windows)


def check(o, part):
    block, every = o.blocks[len(o.blocks) // 2], o.check_every
    want = step(o, part, block, every) / 1e3
    got = real_run(o, block, every)
    apart = got / want - 1
    print(f'\nA real run of {o.check_run} steps, blocks of {block}, f = {every}: {got:.3f} s a step; the '
          f'model says {want:.3f} s ({100 * apart:+.1f} %)')
    return abs(apart) <= o.tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', default='build', help='build folder')
    parser.add_argument('--arch', default='resnet50')
    parser.add_argument('--image', type=int, default=224, help='side of an image')
    parser.add_argument('--amp', default='bf16', choices=('off', 'bf16'))
    parser.add_argument('--batch', type=int, default=32, help='images in a micro-batch')
    parser.add_argument('--accum', type=int, default=8, help='micro-batches in a step')
    parser.add_argument('--blocks', type=int, nargs='+', default=[512, 1024, 2048])
    parser.add_argument('--every', type=int, nargs='+', default=[1, 10, 50, 100])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--steps', type=int, default=5, help='steps of each measurement')
    parser.add_argument('--threads', type=int, default=0)
    parser.add_argument('--check-run', type=int, default=0, metavar='STEPS')
    parser.add_argument('--check-every', type=int, default=10, help="frequency of that run's refreshes")
    parser.add_argument('--tolerance', type=float, default=0.03)
    o = parser.parse_args()
    part = measure(o)
    report(o, part)
    return 0 if not o.check_run or check(o, part) else 1


if __name__ == '__main__':
    sys.exit(main())
