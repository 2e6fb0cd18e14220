"""Raw files -> typed Parquet: report and trace readers, metric catalogue, kernel classes."""
