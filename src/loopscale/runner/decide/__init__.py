"""Decisions of a running study. The modules of this folder know neither Ray nor the time."""
