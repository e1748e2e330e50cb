"""The colours and markers of series, for colour-blind readers, in figures, pages and MLflow's UI."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""@okabe2008, with a yellow that is darkened for a white background."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
FIFTHS = ("#00204D", "#31446B", "#666970", "#958F78", "#CBBA69")
"""Colours from the best fifth of trials to the worst: Cividis [@nunez2018]."""
NAMES_OF_FIFTHS = ("best fifth", "second fifth", "third fifth", "fourth fifth", "worst fifth")
