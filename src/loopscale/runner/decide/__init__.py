"""Decisions of a running study. No module here knows Ray or the time."""
