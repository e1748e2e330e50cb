"""Answers of a study: best cells, claims, open questions, impossible results, cost."""
