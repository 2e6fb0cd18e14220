"""One module for each figure in ``analysis.names.FIGURES``: ``draw(dataset)`` returns a matplotlib figure."""
