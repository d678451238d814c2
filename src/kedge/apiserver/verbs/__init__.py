"""The verbs that work on any object: one file for each group of them."""
