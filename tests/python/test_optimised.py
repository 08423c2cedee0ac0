"""Messages of wrong arguments are there when Python leaves out assertions (python -O)."""

import child

PROGRAM = """
import jax.sharding as js
if __debug__:
    raise SystemExit("not optimised")
P = js.PartitionSpec
mesh = line(4)
a, b = spd(16), general(16, 2)
placed, right = put(a, mesh, "x", None), put(b, mesh)
inside = lambda f, specs=(P("x", None), P()): jax.shard_map(
    f, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)(placed, right)
CASES = [
    (lambda: jaxmg.potrs(a[0], b), ValueError, "a has shape (16,)"),
    (lambda: jaxmg.potrs(a[None], b), ValueError, "jax.vmap"),
    (lambda: jaxmg.potrs(a[:8], b), ValueError, "square matrix"),
    (lambda: jaxmg.potrs(a, b[:8]), ValueError, "b has shape (8, 2)"),
    (lambda: jaxmg.potrs(a.astype("float16"), b), TypeError, "float32, float64"),
    (lambda: jaxmg.potrs(object(), b), TypeError, "a: got object"),
    (lambda: jaxmg.potrs(a, b, 0), ValueError, "T_A: got 0"),
    (lambda: jaxmg.potrs(a, b, "big"), ValueError, "T_A: got 'big'"),
    (lambda: jaxmg.potrs(a, b, lower="L"), ValueError, "lower: got 'L'"),
    (lambda: jaxmg.potrs(a, b, precision="rough"), ValueError, "precision: got 'rough'"),
    (lambda: jaxmg.potrs(a, b, backend="mystery"), ValueError, "backend: got 'mystery'"),
    (lambda: jaxmg.potrs(a, b, n=7), ValueError, "n: got 7"),
    (lambda: jaxmg.potrs(a, b, mesh="x"), TypeError, "mesh: got str"),
    (lambda: jaxmg.potrs(a, b, mesh=mesh, in_specs="x"), TypeError, "in_specs: got str"),
    (lambda: jaxmg.potrs(a, b, mesh=mesh, in_specs=P("q")), ValueError, "['q']"),
    (lambda: jaxmg.potrs(a, b, mesh=mesh, in_specs=P("x", None, None)), ValueError, "3 entries"),
    (lambda: jaxmg.potrs(a, b, mesh=mesh, in_specs=(P(),) * 3), ValueError, "3 specs"),
    (lambda: jaxmg.potrs(a, b, in_specs=P("x")), ValueError, "jax.set_mesh"),
    (lambda: jaxmg.potrs(placed, b, in_specs=P(), matrix_specs=P()), ValueError, "one of them"),
    (lambda: jaxmg.potrs(placed[:, :12], b[:12], 3, pad=False), ValueError, "calculate_padding"),
    (lambda: inside(lambda a, b: jaxmg.potrs(a[:3], b)), ValueError, "rows of a matrix of size 16"),
    (lambda: jaxmg.potri(a[:8]), ValueError, "square matrix"),
    (lambda: jaxmg.cyclic_1d(placed, None), ValueError, "T_A: got None"),
    (lambda: jaxmg.calculate_padding(3, 0), ValueError, "T_A: got 0"),
    (lambda: jaxmg.linalg.solve(a, b, assume_a="odd"), ValueError, "assume_a: got 'odd'"),
    (lambda: jaxmg.linalg.cho_solve(3, b), TypeError, "c_and_lower"),
    (lambda: jaxmg.plan("mystery", 8, "float32"), ValueError, "routine: got 'mystery'"),
    (lambda: jaxmg.plan("potrs", 8, "float16"), TypeError, "float16"),
    (lambda: jaxmg.potrs(placed - 9 * jnp.eye(16), b, check=True),
     jaxmg.NotPositiveDefiniteError, "leading minor"),
    (lambda: jaxmg.potrs(placed * jnp.nan, b, check=True), jaxmg.NonFiniteInputError, "NaN"),
    (lambda: jaxmg.potrs(jnp.tril(placed), b, check=True), jaxmg.NotHermitianError, "lower="),
]
for i, (call, error, words) in enumerate(CASES):
    try:
        call()
    except error as found:
        if words not in str(found):
            raise SystemExit(f"case {i}: {words!r} is not in {str(found)!r}")
    else:
        raise SystemExit(f"case {i}: nothing raised, expected {error.__name__}: {words}")
x, status = jaxmg.potrs(placed, right, return_status=True)
if int(status) or not np.allclose(a @ np.asarray(x), b):
    raise SystemExit("wrong answer")
print("all", len(CASES))
"""


def test_messages_without_assertions():
    assert "all 31" in child.run(PROGRAM, options=["-O"], seconds=120)
