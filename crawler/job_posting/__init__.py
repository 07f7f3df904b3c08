"""Job postings as pages have them, made one: no I/O, nothing that fails for one field that cannot be read."""
