"""Nsight Compute: reports and their CSV exports -> launches, metric values and rule results."""
