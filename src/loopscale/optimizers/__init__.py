"""Optimizers, one file per optimizer. To add an optimizer, add a file; `adamw.py` is a good file to copy.

An optimizer is a frozen config with a `kind`. Its `build` makes an optimizer of torch for the weights of a net. An
optimizer imports `base.py` and no other optimizer. The contract tests find a new optimizer by themselves.
"""
