"""This machine: hardware, provenance, and whether a trial fits."""
