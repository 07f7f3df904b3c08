"""A small MongoDB server for laptops: the wire protocol over SQLite, for exactly the commands that our stores use.

`wire` and `server` talk to clients, `commands` lists every command, `reads` and `writes` run most of them. `match`,
`update` and `projection` implement MongoDB's languages. `plan` chooses the `index` by which documents are found, and
`collection` and `store` store them. Unsupported features are refused with MongoDB's own error code, never ignored:
`supported` makes the table of supported features.
"""
