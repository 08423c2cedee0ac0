"""The command line as a user meets it: processes, files, messages and exit codes."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

N = 37  # divides by no number of devices used here


def run_cli(*arguments: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from jaxmg.cli import main; main()", *map(str, arguments)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **env}
    environment.pop("XLA_FLAGS", None)
    environment.pop("JAX_NUM_CPU_DEVICES", None)
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )


def positive_definite(kind: str = "float64") -> np.ndarray:
    """Random, Hermitian; the shift is larger than the largest eigenvalue of what is shifted."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-0.5, 0.5, (N, N))
    a = x + x.T + 9.0 * np.eye(N)
    if kind.startswith("complex"):
        y = rng.uniform(-0.5, 0.5, (N, N))
        a = a + 1j * (y - y.T)
    return a.astype(kind)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same systems in all kinds of files."""
    folder = tmp_path_factory.mktemp("cli")
    a, c = positive_definite(), positive_definite("complex128")
    b = np.random.default_rng(2).normal(size=(N, 3))
    np.save(folder / "A.npy", a)
    np.save(folder / "A_fortran.npy", np.asfortranarray(a))
    np.save(folder / "A_big_endian.npy", a.astype(">f8"))
    np.save(folder / "A_integer.npy", np.rint(10 * a).astype(np.int64))
    np.save(folder / "C.npy", c)
    np.save(folder / "b.npy", b)
    np.save(folder / "b_vector.npy", b[:, 0])
    np.savez(folder / "both.npz", A=a, b=b)
    np.savez(folder / "two.npz", left=a, right=b)
    np.savez_compressed(folder / "packed.npz", A=a)
    np.savez_compressed(folder / "packed_fortran.npz", A=np.asfortranarray(a))
    scipy.io.mmwrite(folder / "A.mtx", a, symmetry="symmetric", precision=17)
    scipy.io.mmwrite(folder / "A_general.mtx", a, symmetry="general", precision=17)
    scipy.io.mmwrite(
        folder / "A_sparse.mtx", scipy.sparse.coo_matrix(a), symmetry="symmetric", precision=17
    )
    scipy.io.mmwrite(folder / "C.mtx", c, symmetry="hermitian", precision=17)
    scipy.io.mmwrite(folder / "b.mtx", b, precision=17)
    with gzip.open(folder / "A.mtx.gz", "wb") as stream:
        stream.write((folder / "A.mtx").read_bytes())
    for name, keep in (("lower", np.tril), ("upper", np.triu)):
        half = keep(c)
        half[keep(np.ones((N, N))) == 0] = np.nan  # must not be read
        np.save(folder / f"C_{name}.npy", half)
    return folder


def check_solution(a: np.ndarray, x: np.ndarray, b: np.ndarray, eps: float = 2.3e-16) -> None:
    """norm1(b - A x) <= 25 n eps norm1(A) norm1(x)."""
    norm = lambda m: np.abs(m).reshape(N, -1).sum(0).max()  # noqa: E731
    assert norm(b - a @ x) <= 25 * N * eps * norm(a) * norm(x)


@pytest.mark.parametrize(
    "name",
    [
        "A.npy",
        "A_fortran.npy",
        "A_big_endian.npy",
        "both.npz",
        "two.npz:left",
        "packed.npz",
        "packed_fortran.npz",
        "A.mtx",
        "A_general.mtx",
        "A_sparse.mtx",
        "A.mtx.gz",
    ],
)
def test_solves_from_every_kind_of_file(files: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "x.npy"
    done = run_cli("solve", name, "b.npy", "-o", out, "--devices", 4, cwd=files)
    assert done.returncode == 0, done.stderr
    b, x = np.load(files / "b.npy"), np.load(out)
    assert x.shape == b.shape and x.dtype == np.float64
    check_solution(positive_definite(), x, b)
    assert "backward error" in done.stdout and "4 x cpu" in done.stdout


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("C.npy", []),
        ("C.mtx", []),
        ("C_lower.npy", ["--lower"]),
        ("C_upper.npy", ["--upper"]),
        ("C_lower.npy", ["--lower", "--in-place"]),
    ],
)
def test_solves_complex_systems_from_either_triangle(
    files: Path, tmp_path: Path, name: str, options: list[str]
) -> None:
    out = tmp_path / "x.npy"
    done = run_cli("solve", name, "b.npy", "-o", out, "--devices", 3, *options, cwd=files)
    assert done.returncode == 0, done.stderr
    x = np.load(out)
    assert x.dtype == np.complex128
    check_solution(positive_definite("complex128"), x, np.load(files / "b.npy"))


def test_options_choose_type_tile_and_shape(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.npy"
    options = ["--dtype", "float32", "--tile", 5, "--devices", 2, "--quiet"]
    done = run_cli("solve", "A_integer.npy", "b_vector.npy", "-o", out, *options, cwd=files)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and done.stderr == ""
    x, b = np.load(out), np.load(files / "b_vector.npy")
    assert x.dtype == np.float32 and x.shape == (N,)
    check_solution(np.load(files / "A_integer.npy"), x, b.astype(np.float32), eps=1.2e-7)


@pytest.mark.parametrize("suffix", ["npz", "mtx"])
def test_writes_what_it_can_read_again(files: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"x.{suffix}"
    done = run_cli("solve", "A.npy", "b.mtx", "-o", out, cwd=files)
    assert done.returncode == 0, done.stderr
    x = np.load(out)["x"] if suffix == "npz" else scipy.io.mmread(out)
    check_solution(positive_definite(), x, np.load(files / "b.npy"))
    assert [p.name for p in tmp_path.iterdir()] == [out.name]  # nothing else is left behind


def broken_files(folder: Path) -> dict[str, Path]:
    """Files of which each has one thing wrong."""
    a = positive_definite()
    made: dict[str, Path] = {}

    def save(name: str, array: np.ndarray) -> None:
        made[name] = folder / f"{name}.npy"
        np.save(made[name], array)

    save("good", a)
    save("b", np.ones(N))
    save("wide", a[:-1])
    save("cube", np.ones((2, 2, 2)))
    save("short", np.ones(N - 1))
    save("half", a.astype(np.float16))
    save("text", np.full((N, N), "x"))
    save("not_finite", np.where(np.arange(N * N).reshape(N, N) == 3 * N + 5, np.inf, a))
    save("b_not_finite", np.where(np.arange(N) == 7, np.nan, 1.0))
    indefinite = np.eye(N)
    indefinite[20, 20] = -1
    save("indefinite", indefinite)
    save("one_triangle", np.tril(a))
    save("complex", positive_definite("complex128"))
    np.save(folder / "objects.npy", np.array([[None]]), allow_pickle=True)
    made["objects"] = folder / "objects.npy"
    for name, text in {
        "no_header": "1 2 3\n",
        "pattern": "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n",
        "outside": "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1.0\n",
        "too_few": "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n",
        "too_many": "%%MatrixMarket matrix array real general\n1 1\n1\n2\n",
        "not_a_number": "%%MatrixMarket matrix array real general\n1 1\nabc\n",
        "oblong": "%%MatrixMarket matrix array real symmetric\n2 3\n1\n2\n3\n",
    }.items():
        made[name] = folder / f"{name}.mtx"
        made[name].write_text(text)
    made["cut_off"] = folder / "cut_off.npy"
    made["cut_off"].write_bytes(made["good"].read_bytes()[:-8])
    made["not_an_array"] = folder / "not_an_array.npy"
    made["not_an_array"].write_text("no array")
    made["two_arrays"] = folder / "two_arrays.npz"
    np.savez(made["two_arrays"], p=a, q=a)
    return made


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return broken_files(tmp_path_factory.mktemp("broken"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["missing.npy", "b.npy"], 3, ["missing.npy", "no such file"]),
        ([".", "b.npy"], 3, ["directory"]),
        (["wide.npy", "b.npy"], 3, ["36 x 37", "square"]),
        (["good.npy", "short.npy"], 3, ["36", "37"]),
        (["good.npy", "cube.npy"], 3, ["2 x 2 x 2"]),
        (["half.npy", "b.npy"], 3, ["float16", "float32", "--dtype"]),
        (["text.npy", "b.npy"], 3, ["text.npy"]),
        (["objects.npy", "b.npy"], 3, ["objects"]),
        (["not_finite.npy", "b.npy"], 3, ["row 4, column 6"]),
        (["good.npy", "b_not_finite.npy"], 3, ["row 8"]),
        (["complex.npy", "b.npy", "--dtype", "float64"], 3, ["imaginary"]),
        (["cut_off.npy", "b.npy"], 3, ["ends before"]),
        (["not_an_array.npy", "b.npy"], 3, ["cannot be read"]),
        (["two_arrays.npz", "b.npy"], 3, ["p, q"]),
        (["no_header.mtx", "b.npy"], 3, ["MatrixMarket"]),
        (["pattern.mtx", "b.npy"], 3, ["pattern"]),
        (["oblong.mtx", "b.npy"], 3, ["2 x 3"]),
        (["indefinite.npy", "b.npy"], 4, ["not positive definite", "order 21 "]),
        (["one_triangle.npy", "b.npy"], 4, ["not Hermitian", "lower="]),
        (["good.npy", "b.npy", "-o", "nowhere/x.npy"], 6, ["nowhere", "cannot be written"]),
        (["good.npy", "b.npy", "-o", "x.txt"], 6, [".npy"]),
        (["good.npy", "b.npy", "-o", "."], 6, ["."]),
        (["good.npy", "b.npy", "--devices", "0"], 2, ["--devices"]),
        (["good.npy", "b.npy", "--dtype", "int8"], 2, ["int8"]),
        (["good.npy"], 2, ["Missing argument"]),
    ],
)
def test_says_what_is_wrong(
    broken: dict[str, Path], arguments: list[str], code: int, words: list[str]
) -> None:
    folder = broken["good"].parent
    output = [] if "-o" in arguments else ["-o", "x.npy"]
    done = run_cli("solve", *arguments, *output, "--devices" if code in (3, 4) else "--quiet",
                   *(["4"] if code in (3, 4) else []), cwd=folder)  # fmt: skip
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x.npy").exists()
    assert not list(folder.glob(".jaxmg-*"))


@pytest.mark.parametrize("name", ["outside", "too_few", "too_many", "not_a_number"])
def test_faults_inside_matrix_market_files(broken: dict[str, Path], name: str) -> None:
    from jaxmg.cli.failure import Failure
    from jaxmg.cli.sources import open_source

    with pytest.raises(Failure) as caught:
        open_source(str(broken[name]), "A").dense()
    assert caught.value.exit_code == 3 and str(broken[name]) in caught.value.format_message()


@pytest.mark.parametrize(
    "name", ["A.npy", "packed.npz", "packed_fortran.npz", "A.mtx", "A_sparse.mtx", "A.mtx.gz"]
)
def test_small_pieces_make_the_same_matrix(
    files: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import jax
    from jax.sharding import Mesh

    from jaxmg.cli import devices, loading, matrix_market, sources

    monkeypatch.setattr(sources, "CHUNK_BYTES", 700)
    monkeypatch.setattr(loading, "CHUNK_BYTES", 700)
    monkeypatch.setattr(matrix_market, "_TEXT_CHUNK", 99)
    mesh = Mesh(np.array(jax.devices()), (devices.AXIS,))
    seen: list[float] = []
    source = sources.open_source(str(files / name), "A")
    a = loading.load_matrix(source, mesh, np.dtype(np.float32), None, seen.append)
    expected = positive_definite().astype(np.float32)
    np.testing.assert_allclose(np.asarray(a)[:N], expected, rtol=1e-6)
    assert not np.asarray(a)[N:].any()
    assert len(seen) > 3 and seen == sorted(seen) and seen[-1] == 1.0
    assert {shard.data.shape[0] for shard in a.addressable_shards} == {-(-N // mesh.size)}


def test_repeated_entries_are_summed(tmp_path: Path) -> None:
    from jaxmg.cli.sources import open_source

    path = tmp_path / "twice.mtx"
    header = "%%MatrixMarket matrix coordinate real symmetric\n% comment\n\n"
    path.write_text(header + "2 2 4\n1 1 1.5\n2 1 2\n1 1 0.5\n2 1 1")
    expected = np.array([[2.0, 3.0], [3.0, 0.0]])
    np.testing.assert_array_equal(open_source(str(path), "A").dense(), expected)


def test_a_terminal_sees_how_far_the_factorisation_is(tmp_path: Path) -> None:
    n = 1200
    rng = np.random.default_rng(3)
    x = rng.uniform(-0.5, 0.5, (n, n))
    np.save(tmp_path / "A.npy", x + x.T + 60 * np.eye(n))
    np.save(tmp_path / "b.npy", np.ones(n))
    command = ["solve", "A.npy", "b.npy", "-o", "x.npy", "--devices", "8", "--tile", "2"]
    program = f"import sys; sys.argv[1:] = {command!r}; from jaxmg.cli import main; main()"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TERM": "xterm", "COLUMNS": "120"}
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "NO_COLOR", "TTY_COMPATIBLE"):
        environment.pop(name, None)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    assert b"Cholesky factorisation, n = 1200, float64, 8 devices" in shown
    assert "backward error" in process.communicate()[0].decode()


def test_plan_needs_no_devices(tmp_path: Path) -> None:
    done = run_cli("plan", "potrs", 131072, "--devices", 16, "--nrhs", 3, cwd=tmp_path)
    assert "131072" in done.stdout and "16 devices" in done.stdout
    assert done.returncode in (0, 5)
    table = run_cli("plan", "potrs", 65536, "--scale", "--precision", "mixed", cwd=tmp_path)
    assert table.returncode == 0 and "waiting" in table.stdout and " 64  " in table.stdout
    wrong = run_cli("plan", "nonsense", 10, cwd=tmp_path)
    assert wrong.returncode == 2 and "potrs" in wrong.stderr


def test_info_prints_text_and_json(tmp_path: Path) -> None:
    done = run_cli("info", "--devices", 2, cwd=tmp_path)
    assert done.returncode == 0 and "jax" in done.stdout
    found = json.loads(run_cli("info", "--json", cwd=tmp_path).stdout)
    assert isinstance(found, dict) and found


def test_selftest_passes_here(tmp_path: Path) -> None:
    done = run_cli("selftest", "--devices", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("potrs float64", "potrs complex64", "cyclic_1d", "link", "0 failed"):
        assert word in done.stdout


def test_tune_writes_a_profile_that_plans_use(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "profile.json"
    done = run_cli("tune", "--devices", 2, "--out", path, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(path.read_text())["measured"] and str(path) in done.stdout
    planned = run_cli("plan", "potrs", 512, cwd=tmp_path, JAXMG_PROFILE=str(path))
    assert "measured" in planned.stdout
    nowhere = run_cli("tune", cwd=tmp_path, JAXMG_PROFILE="")
    assert nowhere.returncode == 2 and "--out" in nowhere.stderr


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run_cli("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("solve", "plan", "info", "selftest", "bench", "tune"):
        assert command in done.stdout
    assert run_cli("--version", cwd=tmp_path).stdout.startswith("jaxmg")
