"""Kinds of stores: folder, tracking server, exported records."""
