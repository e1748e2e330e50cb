"""The report: a study, or two studies, as one self-contained page."""
