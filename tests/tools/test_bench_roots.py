#!/usr/bin/env python3
"""bench roots: one JSON object; roots are close to double's; bases follow their matrix, the farther it
moves the worse. $1: bench"""

import json
import subprocess
import sys

SMALL = ['--sizes', '24', '--batch', '2', '--conditions', '1e2', '--repeats', '1', '--threads', '1',
         '--lapack-threads', '1', '--json']


def run(*flags):
    """{solver: its row}"""
    done = subprocess.run([sys.argv[1], 'roots', *SMALL, *flags], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if 'needs LAPACK' in done.stderr:
        sys.exit(77)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got['benchmark'] == 'roots' and got['failures'] == 0, got
    return {row['solver']: row for row in got['rows']}


def check_roots():
    rows = run('--solvers', 'eigh,newton,rational')
    assert set(rows) == {'eigh', 'newton', 'rational'}, rows
    for row in rows.values():
        assert row['fallbacks'] == 0 and 0 < row['milliseconds'], row
        assert abs(row['one_minus_cos']) < 1e-3, row


def check_bases():
    near, far = (run('--bases', '--solvers', 'eigh,qr', '--moved', moved) for moved in ('0.01', '0.3'))
    assert near['qr']['fallbacks'] == 0 and near['qr']['one_minus_cos'] < 1e-2, near
    assert far['qr']['one_minus_cos'] > 10 * near['qr']['one_minus_cos'], (near, far)
    assert abs(far['eigh']['one_minus_cos']) < 1e-6, far


def check_counts():
    done = subprocess.run([sys.argv[1], 'roots', *SMALL, '--sizes', '24x3,16x1', '--solvers', 'rational'],
                          stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(done.stdout)['rows']
    assert [(r['n'], r['count']) for r in rows] == [(24, 3), (16, 1)], rows


check_roots()
check_counts()
check_bases()
print('3 passed, 0 failed')
