"""What the study is: config models, cells, keys, sites, and the state of every cell."""
