"""A small MongoDB server for laptops: the wire protocol over SQLite, for exactly the commands that our stores use.

`wire` and `server` speak to clients, `commands` names every command, `reads` and `writes` carry most of them out.
`match`, `update` and `projection` are MongoDB's languages. `plan` chooses the `index` by which documents are found,
and `collection` and `store` keep them. What is not supported is refused with MongoDB's own error code, never ignored:
`supported` gathers the table of what is.
"""
