"""The kinds of stores: a folder, a database, a tracking server, and exported records. `opening` finds the kind."""
