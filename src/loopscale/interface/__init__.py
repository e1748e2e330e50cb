"""The functions that `import loopscale` offers. The command line calls the same functions.

Modules here import other packages inside the functions that use them, and annotate with names of `types.py`. The
command line imports these modules, and its verbs wait for no package that they do not need.
"""
