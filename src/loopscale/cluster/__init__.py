"""Where studies run: clusters as data, and the verbs that submit to them."""
