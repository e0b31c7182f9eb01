"""Produce (0), and what only Produce needs.

handler      a run of requests; what it does is said there
appends      their batches, checked, verified and written by partition
production   one request on its way to its response
"""
