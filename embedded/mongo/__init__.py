"""A small MongoDB server for laptops: the wire protocol over SQLite, for just what our stores use.

`wire` and `server` speak to clients, `commands` names every command, `reads` and `writes` carry most of them out,
`match`, `update` and `project` are MongoDB's languages, `plan` chooses the `index` to find documents by,
`collection` and `store` keep them. What is not supported is refused with MongoDB's own error code, never ignored:
`supported` gathers the table.
"""
