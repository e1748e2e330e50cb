"""The study on Ray. The only modules that import Ray."""
