"""Block-cyclic storage, written down as it is defined."""


def cyclic_rows(n, tile, ranks):
    """For each rank the rows that it holds, in order: tile t belongs to rank t mod ranks."""
    owned = [[] for _ in range(ranks)]
    for start in range(0, n, tile):
        owned[(start // tile) % ranks] += range(start, min(start + tile, n))
    return owned
