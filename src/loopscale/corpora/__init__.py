"""Corpora of pairs of sentences: their sources, their files, their sub-words, and measures of translations."""
