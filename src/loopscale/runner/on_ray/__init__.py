"""Studies on Ray. Only the modules of this folder import Ray."""
