"""The parts that kernels of typed values share: types of their arrays, cells, and how a row is taken back.

`nodes` is the table of a program; `cells` and `present` are those of all nodes; `counts` has for each level how many
elements there are by now, of which the last one is being read; `frames` are the structs, arrays and maps that are open.
"""

import numpy as np
import numpy.typing as npt

from odradek.spark.compiled import compiled, inlined
from odradek.spark.typed.program import BASE, LEVEL

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]

MAX_ENTRIES = 64  # of a map, whose keys are compared with each other


@inlined
def is_valid(valid: Bytes, row: int) -> bool:
    return valid[row >> 3] >> (row & 7) & 1 == 1  # type: ignore[no-any-return]


@inlined
def cell_of(nodes: Table, node: int, row: int, counts: Int64s) -> int:
    """The cell of a node that is being read."""
    level = nodes[node, LEVEL]
    return nodes[node, BASE] + (row if level == 0 else counts[level] - 1)  # type: ignore[no-any-return]


@compiled
def is_repeated(data: Bytes, cells: Int64s, first: int, last: int) -> bool:
    """True if the key at the last cell is among those before it."""
    start, length = cells[last] >> 32, (cells[last] & 0xFFFFFFFF) >> 1
    for index in range(first, last):
        if (cells[index] & 0xFFFFFFFF) >> 1 == length:
            other = cells[index] >> 32
            same = True
            for offset in range(length):
                if data[start + offset] != data[other + offset]:
                    same = False
                    break
            if same:
                return True
    return False


@compiled
def take_back(row: int, nodes: Table, present: Bytes, counts: Int64s, before: Int64s) -> None:
    """Nothing has been written for this row, and no element since the levels had those counts."""
    for node in range(nodes.shape[0]):
        base, level = nodes[node, BASE], nodes[node, LEVEL]
        if level == 0:
            present[base + row] = 0
        else:
            for index in range(before[level], counts[level]):
                present[base + index] = 0
    for level in range(1, counts.size):
        counts[level] = before[level]
