"""Job postings of all kinds of pages in one form. There is no I/O here, and no unreadable field costs a posting."""
