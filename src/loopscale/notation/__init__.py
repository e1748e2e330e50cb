"""How a study is written: the text of a file, settings by dotted path, ranges, conditions, and mistakes with places.

`files` finds and reads the file of a study and applies `--set`. `settings` has settings by dotted path and the faults
of their values. `space` has ranges, `where` conditions, and `plugins` the code of outside members. Mistakes are one
line each (`mistakes`). No module here knows the keys of a study.
"""
