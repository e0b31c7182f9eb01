"""Record batches. Most code never looks inside: it passes them on as they are.

batch        a view on the header of a batch; `walk`: from one batch to the next, in files and buffers
validation   what Produce checks
record, native, compression, keys, control   only for code that must look inside
"""
