"""Real volumes and masks -> prepared arrays that the cell side reads with numpy alone."""
