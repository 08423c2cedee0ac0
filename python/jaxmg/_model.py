"""How long a call will take: a model of the factorisation's steps, one after the other.

For step k, with m rows left below a tile of t rows and G devices, in real operations:

    update   m^2 t / G            every device
    panel    2 m t^2              its owner: L21 = A21 L11^-H by a product
    ahead    2 m t^2              the next owner, before its share of the update
    send     m t elements         from the owner to all others
    tile     t^2 (in time)        the diagonal tile, one after the other

The update goes on while the next panel is made, so that a step takes the longer of two times: the
owner's own work, and the chain tile - panel - send - ahead. Products of few rows, or of a narrow
tile, are slower: the rate halves at `half_size` and at `half_inner`. On a CPU all devices share the
cores, and nothing is gained by more of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math

from ._profile import Profile

# Tiles that are looked at when the model chooses.
TILES = {"cpu": (32, 64, 128, 256, 512), "cuda": (128, 256, 512, 1024)}
_SIZES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Seconds of one call.

    Attributes:
        factor: of the factorisation.
        solve: of solutions with the factor (of the inverse, for "potri").
        gather: of bringing the matrix to every device, if it is gathered.
        overhead: of the call as such.
        communication: that part of `factor` for which devices wait for what others send.
    """

    factor: float
    solve: float
    gather: float
    overhead: float
    communication: float

    @property
    def total(self) -> float:
        return self.factor + self.solve + self.gather + self.overhead

    @property
    def communication_share(self) -> float:
        """Part of the time in which devices wait for data, between 0 and 1."""
        return (self.communication + self.gather) / self.total if self.total else 0.0


def _factor_seconds(
    n: int, dtype: str, ranks: int, tile: int, profile: Profile, split: bool, link: float
) -> float:
    """The sum over all steps, with `link` bytes per second between devices."""
    arithmetic = profile.of(dtype, split)
    workers = 1 if profile.shared else ranks
    unit = 4.0 if dtype.startswith("complex") else 1.0
    # The time of a step is smooth in k: a few hundred of them say what all take.
    steps = max(1, math.ceil(n / tile))
    stride = max(1, steps // 512)
    total = 0.0
    for k in range(0, steps, stride):
        m = max(0, n - (k + 1) * tile)

        def seconds(flops: float, width: float) -> float:
            if flops == 0:
                return 0.0
            slow = 1 + arithmetic.half_size / max(1.0, width)
            return unit * flops * slow * (1 + arithmetic.half_inner / tile) / arithmetic.rate

        update = seconds(m * m * tile / workers, m / ranks)
        panel = seconds(2.0 * m * tile * tile, m)
        chain = arithmetic.tile_seconds * (min(n, tile) / 512) ** 2 + 2 * panel
        chain += profile.step_seconds
        if ranks > 1:
            chain += profile.exchange_seconds + m * tile * _SIZES[dtype] / link
        # Without devices of their own, ranks do all that one after the other.
        step = update + chain if profile.shared else max(chain, update + panel)
        total += step * min(stride, steps - k)
    return total


@functools.lru_cache(maxsize=4096)
def _factor(
    n: int, dtype: str, ranks: int, tile: int, key: str, split: bool
) -> tuple[float, float]:
    profile = _known[key]
    seconds = _factor_seconds(n, dtype, ranks, tile, profile, split, profile.link)
    free = _factor_seconds(n, dtype, ranks, tile, profile, split, math.inf)
    return seconds, seconds - free


_known: dict[str, Profile] = {}


def _key(profile: Profile) -> str:
    key = repr(profile)
    _known[key] = profile
    return key


# Time of other factorisations over that of Cholesky for as many rows: operations, but for the last
# one, whose operations are slower.
_CHOLESKYS = {
    "lu_solve": 2.0,
    "getrf": 2.0,
    "slogdet": 2.0,
    "inv": 6.0,
    "syevd": 11.0,
}


def estimate(
    routine: str,
    n: int,
    dtype: str,
    ranks: int,
    tile: int,
    profile: Profile,
    *,
    nrhs: int = 1,
    columns: int = 0,
    split: bool = False,
    gathered: bool = False,
) -> Estimate:
    """The time of a call.

    Args:
        routine: as of :func:`jaxmg.plan`. Those beside Cholesky's are taken to have its steps, with
            more operations in each.
        n, dtype, ranks, tile, nrhs, columns: the problem.
        profile: the machine.
        split: whether products of 32-bit numbers run on tensor cores.
        gathered: whether every device works on all of the matrix.
    """
    size = n * n * float(_SIZES[dtype])
    if routine == "cyclic_1d":
        moved = 0.0 if ranks == 1 else size / ranks / profile.link
        return Estimate(0.0, size / ranks / profile.memory, moved, profile.call_seconds, 0.0)
    gather = 0.0
    if gathered:
        gather = size * (ranks - 1) / ranks / profile.link + profile.exchange_seconds
        workers, ranks = ranks, 1
        if profile.shared:  # every one of the devices does all of the work, with the same cores
            one = estimate(routine, n, dtype, 1, tile, profile, nrhs=nrhs, split=split)
            return Estimate(one.factor * workers, one.solve * workers, gather, one.overhead, 0.0)
    if n == 0:
        return Estimate(0.0, 0.0, 0.0, profile.call_seconds, 0.0)
    if routine in ("qr", "least_squares"):
        return _qr_estimate(routine, n, columns or n, dtype, ranks, tile, profile)
    if routine in ("solve_triangular", "cho_update"):
        sweep = _sweep(routine, n, dtype, ranks, tile, profile, nrhs)
        return Estimate(0.0, sweep, 0.0, profile.call_seconds, 0.0)
    factor, waiting = _factor(n, dtype, ranks, tile, _key(profile), split)
    times = _CHOLESKYS.get(routine, 1.0)
    factor, waiting = times * factor, times * waiting
    solve = 0.0
    workers = 1 if profile.shared else ranks
    if routine in ("potrs", "lu_solve"):
        # The factor is read twice for each block of right-hand sides, tile after tile.
        blocks = math.ceil(nrhs / 512)
        steps = 2 * math.ceil(n / tile)
        each = profile.step_seconds / 2 + (profile.exchange_seconds / 2 if ranks > 1 else 0.0)
        unit = 4.0 if dtype.startswith("complex") else 1.0
        flops = 2.0 * unit * n * n * nrhs / workers / profile.of(dtype).rate
        solve = blocks * (size / workers / profile.memory + steps * each) + flops
    elif routine == "potri":
        solve = 2.2 * factor  # 2 n^3 / 3 against n^3 / 3
    return Estimate(factor, solve, gather, profile.call_seconds, waiting)


def _qr_estimate(
    routine: str, m: int, n: int, dtype: str, ranks: int, tile: int, profile: Profile
) -> Estimate:
    """The time of a QR factorisation of m x n, m >= n, and of Q in full if that is asked for.

    A panel of width w takes some 8 m w^2 operations on its ranks, three messages and a small factor
    of its own; the update one sum over the ranks.
    """
    arithmetic = profile.of(dtype)
    workers = 1 if profile.shared else ranks
    unit = (4.0 if dtype.startswith("complex") else 1.0) * (1 + arithmetic.half_inner / tile)
    steps = math.ceil(n / tile)
    flops = 2.0 * m * n * n - 2.0 / 3.0 * n**3
    update = unit * flops / workers / arithmetic.rate
    chain = unit * 8.0 * m * tile * tile / workers / arithmetic.rate
    chain += 2 * arithmetic.tile_seconds * (tile / 512) ** 2 + profile.step_seconds
    sent = 0.0
    if ranks > 1:
        sent = (
            4 * profile.exchange_seconds + (n / 2 + 3 * tile) * tile * _SIZES[dtype] / profile.link
        )
    factor = update + steps * (chain + sent)
    solve = update if routine == "qr" else 0.1 * update + steps * profile.step_seconds
    return Estimate(factor, solve, 0.0, profile.call_seconds, steps * sent)


def _sweep(
    routine: str, n: int, dtype: str, ranks: int, tile: int, profile: Profile, nrhs: int
) -> float:
    """Seconds of one pass over the tiles of a triangle."""
    triangle = n * n * float(_SIZES[dtype]) / 2
    unit = 4.0 if dtype.startswith("complex") else 1.0
    meetings = math.ceil(n / tile) * (profile.exchange_seconds if ranks > 1 else 0.0)
    if routine == "cho_update":
        # Rank after rank: each block of 64 columns is read, copied and written for 32 vectors.
        passes = math.ceil(nrhs / 32)
        blocks = math.ceil(n / 64) * profile.step_seconds
        width = 64 + min(nrhs, 32)
        flops = unit * n * n * width * width / 64 / profile.of(dtype).rate
        return passes * (4 * triangle / profile.memory + blocks + meetings + flops)
    workers = 1 if profile.shared else ranks
    flops = unit * n * n * nrhs / workers / profile.of(dtype).rate
    steps = math.ceil(n / tile) * profile.step_seconds / 2
    return math.ceil(nrhs / 512) * (triangle / workers / profile.memory + steps + meetings) + flops


# Refinement steps that a mixed-precision solve is taken to need.
_REFINEMENTS = 3


def expected(
    routine: str,
    n: int,
    dtype: str,
    ranks: int,
    tile: int,
    profile: Profile,
    *,
    nrhs: int = 1,
    columns: int = 0,
    split: bool = False,
    gathered: bool = False,
    mixed: bool = False,
) -> Estimate:
    """As :func:`estimate`; `mixed`: with a factor of lower precision and refinement."""
    if not mixed:
        return estimate(
            routine,
            n,
            dtype,
            ranks,
            tile,
            profile,
            nrhs=nrhs,
            columns=columns,
            split=split,
            gathered=gathered,
        )
    low = "float32" if dtype == "float64" else "complex64"
    cheap = estimate(
        routine, n, low, ranks, tile, profile, nrhs=nrhs, split=True, gathered=gathered
    )
    # Each step reads A once and the factor twice; before the first one A is scaled and copied.
    workers = 1 if profile.shared or gathered else ranks
    product = n * n * float(_SIZES[dtype]) / workers / profile.memory
    rounds = 1 + _REFINEMENTS if routine == "potrs" else 0
    return dataclasses.replace(cheap, solve=rounds * (cheap.solve + product) + 2 * product)


def best_tile(n: int, dtype: str, ranks: int, profile: Profile, *, split: bool = False) -> int:
    """The tile with the shortest factorisation."""
    rows = max(1, math.ceil(n / ranks))
    tiles = [t for t in TILES[profile.platform] if t <= rows] or [rows]
    return min(tiles, key=lambda t: _factor(n, dtype, ranks, t, _key(profile), split)[0])


@functools.lru_cache(maxsize=256)
def _crossing(dtype: str, ranks: int, key: str, split: bool, most: int, routine: str) -> int:
    profile = _known[key]

    def wins(n: int) -> bool:
        times = []
        for gathered in (True, False):
            tile = best_tile(n, dtype, 1 if gathered else ranks, profile, split=split)
            options = {"split": split, "gathered": gathered}
            times.append(estimate(routine, n, dtype, ranks, tile, profile, **options).total)
        return times[0] <= times[1]

    found = 0
    for n in [*range(64, 1024, 64), *range(1024, most + 1, 256)]:
        if n > most or not wins(n):
            break
        found = n
    return found


def gather_below(
    dtype: str,
    ranks: int,
    profile: Profile,
    *,
    split: bool,
    most: int,
    routine: str = "potrs",
) -> int:
    """The largest n, up to `most`, for which gathering the matrix is predicted to be faster."""
    return 0 if ranks == 1 else _crossing(dtype, ranks, _key(profile), split, most, routine)
