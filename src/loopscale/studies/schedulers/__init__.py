"""Schedulers: which trials of a cell stop early. A new scheduler is one new file in this package."""
