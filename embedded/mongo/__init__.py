"""A small MongoDB server for laptops: the wire protocol over SQLite, for just what our stores use.

`wire` and `server` speak to clients, `commands` names every command, `reads`, `writes` and `schema` carry them out,
`match`, `update`, `project` and `aggregate` are MongoDB's languages, `plan` and `scan` find documents by `index`,
`collection` and `store` keep them. What is not supported is refused with MongoDB's own error code, never ignored:
`supported` gathers the table.
"""
