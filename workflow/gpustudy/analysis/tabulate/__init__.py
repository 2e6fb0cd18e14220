"""The tables, one a module: ``content(dataset)`` returns columns and rows; ``tables`` writes them."""
