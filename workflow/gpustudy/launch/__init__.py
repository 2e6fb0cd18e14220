"""How a stage is started: in a container or on the bare machine, on which device."""
