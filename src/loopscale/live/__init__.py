"""A study as a page in the browser while the study runs: its state from the records, and the server of the page."""
