"""Services that keep a broker well while nobody asks for anything.

maintenance          retention and checkpoints; `compactor` compacts logs
disk_watch           free space, and what happens when a disk is full
monitoring           metrics, and whether the node is ready
"""
