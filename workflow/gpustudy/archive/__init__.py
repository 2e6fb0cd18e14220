"""Bundles of cells with a manifest: export, import, verify."""
