"""One module per request: what it does, and what it leaves out. `produce/` and `fetch/` are packages, in which
`handler` is that module. Each is imported when a client first uses it; its row is in `apis.table`.
"""
