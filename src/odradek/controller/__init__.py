"""The active controller: a request and an image in, records and a response out. Pure.

controller     its one entry; `requests/` has a module for each API
elections      the next registration of a partition; `recovery`: who leads after all of its replicas were killed
reassignment   its replicas while it moves
brokers        registration and fencing; `features`: what the whole cluster agrees to do
changes        what a log line says of the records
"""
