"""What every room stands on: canonical JSON, digests, atomic writes, errors, status files, progress.

Standard library only, Python 3.10 or newer: this room runs inside a cell's container too.
"""
