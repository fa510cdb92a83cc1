"""Modules of tools/report and tools/doctor.

records                      metrics.jsonl and config.yaml of a run folder
text                         names from files, as a page may show them
page, compare, evaluation    the parts of a page
optim_stats, optimizer       records of --optim-stats, and the part of a page that shows them
main                         the command line
doctor, doctor_rules         likely causes of a bad run
"""
