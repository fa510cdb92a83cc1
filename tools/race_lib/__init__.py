"""Modules of tools/race, from task to board:

task    tasks and entries: files, read and checked
result  a run as a small committed file; when it reached the target
work    runs of an entry's seeds
repeat  verification of a result
board   tables, curves and the page
"""
