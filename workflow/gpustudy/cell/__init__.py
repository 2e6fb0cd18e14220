"""Runs one stage of one cell and writes raw files only. Needs torch and numpy, nothing else."""
