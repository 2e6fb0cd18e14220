"""Parquet -> statistics, figures, tables, claims and the report. Reads nothing but Parquet and cell states."""
