"""Preflight: whether a site can run the study, found out in seconds instead of after a night in the queue."""
