"""Analyses that belong to one paper each."""
