"""Modules of tools/report.

records                      metrics.jsonl and config.yaml of a run folder
text                         names from files, as a page may show them
page, compare, evaluation    the parts of a page
main                         the command line
"""
