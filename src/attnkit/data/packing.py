"""Packing of documents into rows by best fit, or by subset sums if it leaves gaps."""

from dataclasses import dataclass

import numpy as np

from attnkit.data.permutation import Ids, Integers, Sizes, Words

_AHEAD = 256  #: tokens at the end of a row that subset sums fill; before them, the largest piece that fits is taken
_WASTE = 0.005  #: share of rows above the minimum from which look-ahead pays off


def pack_with_lookahead(sizes: Sizes, room: int) -> Sizes:
    """Return the row of each piece, with rows numbered in the order of filling.

    Pieces of equal size are interchangeable, so a row is a pattern: a count per size. A pattern starts with the largest
    remaining piece, is filled by subset sums, and is repeated while enough pieces remain.

    >>> pack_with_lookahead(np.array([6, 5, 5, 4, 4, 4], np.int32), 14).tolist()
    [0, 1, 1, 0, 0, 1]
    """
    counts = np.bincount(sizes, minlength=room + 1).tolist()
    order = np.argsort(sizes, kind="stable")
    ends = np.cumsum(counts).tolist()  # per size, the end of its remaining pieces in ``order``
    rows = np.empty(len(sizes), np.int32)
    n_rows, largest = 0, room
    while largest:
        if not counts[largest]:
            largest -= 1
            continue
        pattern = _pattern(counts, largest, room)
        n_new = min(counts[size] // n for size, n in pattern.items())
        for size, n in pattern.items():
            taken = order[ends[size] - n * n_new : ends[size]]
            rows[taken] = n_rows + np.arange(n * n_new, dtype=np.int32) // n
            ends[size] -= n * n_new
            counts[size] -= n * n_new
        n_rows += n_new
    return rows


def _pattern(counts: list[int], largest: int, room: int) -> dict[int, int]:
    """Return the fullest row with a piece of the largest size, as a count per size."""
    pattern = {largest: 1}
    left, size = room - largest, largest
    while left > _AHEAD and size:
        size = min(size, left)
        if counts[size] > pattern.get(size, 0):
            pattern[size] = pattern.get(size, 0) + 1
            left -= size
        else:
            size -= 1
    for size, n in _fullest(counts, pattern, min(left, _AHEAD)):
        pattern[size] = pattern.get(size, 0) + n
    return pattern


def _fullest(counts: list[int], taken: dict[int, int], room: int) -> list[tuple[int, int]]:
    """Return (size, count) pairs that best fill ``room``, preferring large sizes."""
    # The set bits of the integer ``reached`` are the reachable sums (subset sums, Bellman 1956).
    reached, every = 1, (1 << (room + 1)) - 1
    steps: list[tuple[int, int, int]] = []
    for size in range(1, room + 1):
        available, n = min(counts[size] - taken.get(size, 0), room // size), 1
        while available > 0:
            n = min(n, available)
            steps.append((size, n, reached))
            reached |= (reached << (size * n)) & every
            available, n = available - n, 2 * n
    rest, found = reached.bit_length() - 1, []
    for size, n, before in reversed(steps):
        if size * n <= rest and before >> (rest - size * n) & 1:
            found.append((size, n))
            rest -= size * n
    return found


@dataclass(frozen=True)
class Packing:
    """Assignment of P pieces to R rows, single-piece rows first."""

    row_starts: Ids  #: (R + 1,) start of each row in the arrays of pieces, followed by the end
    documents: Words  #: (P,) document of each piece
    offsets: Ids  #: (P,) tokens of the document before the piece
    lengths: Sizes  #: (P,) tokens of the piece, without special tokens

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.row_starts) - 1


def pack(lengths: Integers, room: int, more: int = 2) -> Packing:
    """Pack documents into rows: long documents are split, short ones share rows.

    Args:
        lengths: (n,) Tokens of each document; empty documents are dropped.
        room: Tokens per row.
        more: Special tokens added to each piece, e.g. [CLS] and [SEP].

    Raises:
        ValueError: A row has no room for document tokens, or there are 2^31 documents or more.
    """
    most = room - more
    if most < 1 or len(lengths) >= 1 << 31:
        raise ValueError(f"cannot pack {len(lengths)} documents into rows of {room} tokens, {more} of them special")
    n_full = (lengths // most).astype(np.int32)
    rest = (lengths - n_full * np.int64(most)).astype(np.int32)
    full = np.repeat(np.arange(len(lengths), dtype=np.uint32), n_full)
    within = np.arange(len(full)) - np.repeat(np.cumsum(n_full, dtype=np.int64) - n_full, n_full)
    short = np.flatnonzero(rest).astype(np.uint32)
    sizes = rest[short] + np.int32(more)
    rows = _best_fit(sizes, room)
    least = -(-int(sizes.sum(dtype=np.int64)) // room)
    if len(sizes) and rows.max() + 1 > least * (1 + _WASTE) + 1:
        others = pack_with_lookahead(sizes, room)
        rows = others if others.max() < rows.max() else rows
        del others
    del sizes
    n_pieces = np.bincount(rows)
    order = np.argsort(rows, kind="stable")
    alone = n_pieces[rows[order]] == 1  # single-piece rows come first, full or not
    del rows
    kept = short[np.concatenate([order[alone], order[~alone]])]
    del order, short
    n_alone = len(full) + int(alone.sum())
    row_starts = np.concatenate([np.arange(n_alone + 1), n_alone + np.cumsum(n_pieces[n_pieces > 1])], dtype=np.int64)
    return Packing(
        row_starts=row_starts,
        documents=np.concatenate([full, kept]),
        offsets=np.concatenate([within * most, n_full[kept] * np.int64(most)]),
        lengths=np.concatenate([np.full(len(full), most, np.int32), rest[kept]]),
    )


def join_packings(packed: list[Packing], first_documents: list[int]) -> Packing:
    """Concatenate packings, numbering their documents from ``first_documents``."""
    if len(packed) == 1:
        return packed[0]
    n_pieces = np.cumsum([0, *(len(one.lengths) for one in packed)])
    starts = [one.row_starts[:-1] + n for one, n in zip(packed, n_pieces, strict=False)]
    documents = [one.documents + np.uint32(n) for one, n in zip(packed, first_documents, strict=True)]
    return Packing(
        row_starts=np.concatenate([*starts, n_pieces[-1:]]),
        documents=np.concatenate(documents),
        offsets=np.concatenate([one.offsets for one in packed]),
        lengths=np.concatenate([one.lengths for one in packed]),
    )


def _best_fit(sizes: Sizes, room: int) -> Sizes:
    """Return the row of each piece by best-fit decreasing, in the order of opening."""
    # Pieces of one size are handled together: rows with the same free space are interchangeable.
    spaces = room - sizes
    # A stable sort of 16-bit integers is a radix sort.
    order = np.argsort(spaces.astype(np.uint16) if room < 1 << 16 else spaces, kind="stable")
    counts = np.bincount(sizes, minlength=room + 1).tolist()
    rows = np.empty(len(sizes), np.int32)
    # For each free space in tokens, a list of non-empty arrays of rows.
    free: list[list[Sizes]] = [[] for _ in range(room + 1)]
    n_rows = place = 0
    for size in range(room, 0, -1):
        count = counts[size]
        while count and (space := next((space for space in range(size, room + 1) if free[space]), None)) is not None:
            taken = free[space].pop()
            if len(taken) > count:
                free[space].append(taken[count:])
                taken = taken[:count]
            rows[order[place : place + len(taken)]] = taken
            free[space - size].append(taken)
            place, count = place + len(taken), count - len(taken)
        if count:
            per_row = room // size
            n_new = -(-count // per_row)
            rows[order[place : place + count]] = n_rows + np.arange(count, dtype=np.int32) // per_row
            last = count - (n_new - 1) * per_row
            if n_new > 1:
                free[room - per_row * size].append(np.arange(n_rows, n_rows + n_new - 1, dtype=np.int32))
            free[room - last * size].append(np.array([n_rows + n_new - 1], np.int32))
            n_rows, place = n_rows + n_new, place + count
    return rows
