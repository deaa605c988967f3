"""Uids as numbers: 32 hex digits are two of 64 bits, as DataComp's subset files hold them (dtype u8,u8)."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UID = np.dtype("u8,u8")
Uids = npt.NDArray[np.uint64]  # (N, 2)
Ints = npt.NDArray[np.int64]

WRONG = "error(concat('uid ', uid, ' is not 32 hex digits'))"
BYTES = f"CASE WHEN strlen(uid) = 32 THEN unhex(uid) ELSE {WRONG} END"  # SQL of a uid as 16 bytes


def uid_numbers(column: pa.Array) -> Uids:
    """16 bytes each -> (rows, 2), all at once from the column's buffer."""
    fixed = column.cast(pa.binary(16))
    numbers = np.frombuffer(fixed.buffers()[1], ">u8", 2 * len(fixed), 16 * fixed.offset)
    return numbers.reshape(-1, 2).astype(np.uint64)


def uid_order(uids: Uids) -> Ints:
    """What sorts them. By the first half alone it is five times faster, and right unless first halves repeat."""
    order = np.argsort(uids[:, 0])
    first = uids[order, 0]
    return np.lexsort((uids[:, 1], uids[:, 0])) if (first[1:] == first[:-1]).any() else order


def first_of_each(ordered: Uids) -> npt.NDArray[np.bool_]:
    """Which of sorted uids differ from the one before."""
    again = (ordered[1:, 0] == ordered[:-1, 0]) & (ordered[1:, 1] == ordered[:-1, 1])
    return np.concatenate([np.ones(min(1, len(ordered)), bool), ~again])


def as_records(uids: Uids) -> npt.NDArray[np.void]:
    return np.ascontiguousarray(uids).view(UID).reshape(-1)
