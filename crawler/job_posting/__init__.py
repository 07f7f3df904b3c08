"""Reads job postings of all kinds of pages into one form. There is no I/O here. A field that cannot be read is left
out; the posting stays.
"""
