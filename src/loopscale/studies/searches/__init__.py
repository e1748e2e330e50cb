"""Searches: how the points of a cell are chosen. A new search is one new file in this package."""
