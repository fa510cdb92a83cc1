"""Modules of tools/reproduce, from plan to report:

plan         the file, read and checked
cells        which runs a plan asks for; their settings and names
fingerprint  what the data is
store        the folder with cells and their metrics
compact      a run folder as one small file
launch       processes
budget       calibration and estimate
measures     numbers of a plan's cells
claims       sentences and verdicts, bands
figures, tables, page         the report
"""
