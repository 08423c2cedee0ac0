#!/usr/bin/env bash
# Everything that a GPU machine can say about a build: C++ device check, Python tests, benchmarks.
#
#   bench/gpu_check.sh [FOLDER]      logs and reports go to FOLDER (default: gpu_check)
#
# Needs a Python with jax for CUDA, pytest, click and rich; no network. The package must be
# importable: installed, or built in the tree with PYTHONPATH=python. A step that fails does not
# stop the next; the exit code is 1 if any did, and FOLDER/summary.txt has a line for each.
#
# Settings, by environment:
#   PYTHON           the interpreter (default: python3)
#   CHECKS           which steps, in this order (default: "info device pytest bench")
#   DEVICE_CHECK     the C++ device check (default: build/cpp/device_check; noted if absent)
#   DEVICE_SECONDS   its time limit (default: 300)
#   PYTEST_ARGS      arguments for pytest (default: -m 'not slow and not multiprocess')
#   PYTEST_SECONDS   time limit of the Python tests (default: 900)
#   BENCH_ARGS       arguments for jaxmg.bench, such as "-n 8192,65536 --dtype float32"
#   BENCH_SECONDS    time budget of the benchmarks (default: 600)
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-gpu_check}
python=${PYTHON:-python3}
checks=${CHECKS:-info device pytest bench}

mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
summary=$out/summary.txt
: >"$summary"
worst=0

# The Python tests pretend to have eight CPU devices unless they are told otherwise.
export JAXMG_TEST_PLATFORM=gpu
export PYTHONUNBUFFERED=1
unset JAX_PLATFORMS

note() {
  echo "$*" | tee -a "$summary"
}

# step NAME SECONDS COMMAND...: runs it with a time limit, keeps its output, notes how it ended.
step() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  echo "=== $name"
  timeout --kill-after=20 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  tail -n 40 "$out/$name.log"
  case $code in
    0) note "ok      $name ($((SECONDS - begin)) s)" ;;
    124 | 137) note "TIME    $name: stopped after $limit s" ;;
    *) note "FAILED  $name: exit code $code ($((SECONDS - begin)) s)" ;;
  esac
  [ "$code" -eq 0 ] || worst=1
}

# words VARIABLE DEFAULT: the array `arguments`, split as the shell would, quotes and all.
words() {
  eval "arguments=(${!1:-$2})"
}

check_info() {
  step nvidia-smi 60 nvidia-smi
  step info 180 "$python" -c '
import json, jax, jaxmg
from jaxmg.bench import environment
print("jaxmg from", jaxmg.__file__)
print(json.dumps(environment.record(), indent=1))
assert jax.devices()[0].platform != "cpu", "JAX sees no GPU"'
}

check_device() {
  local binary=${DEVICE_CHECK:-$root/build/cpp/device_check}
  if [ -x "$binary" ]; then
    step device "${DEVICE_SECONDS:-300}" "$binary"
  else
    note "absent  device: no $binary"
  fi
}

check_pytest() {
  local arguments options=(-c "$root/pyproject.toml" --rootdir "$root")
  options+=(-o "cache_dir=$out/pytest_cache" --junitxml "$out/pytest.xml")
  # The project's settings name pytest-timeout's, and are strict.
  "$python" -c 'import pytest_timeout' 2>/dev/null || options+=(-o addopts=-ra)
  words PYTEST_ARGS '-m "not slow and not multiprocess"'
  # GPUs first, for tests that leave the choice to JAX. Those that start a second process need
  # memory that the first has not taken.
  step pytest "${PYTEST_SECONDS:-900}" \
    env JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false \
    "$python" -m pytest "$root/tests/python" "${options[@]}" "${arguments[@]}"
}

check_bench() {
  local arguments budget=${BENCH_SECONDS:-600}
  words BENCH_ARGS ''
  step bench "$((budget + 300))" \
    "$python" -m jaxmg.bench --gpu --budget "$budget" --out "$out" "${arguments[@]}"
}

for check in $checks; do
  case $check in
    info) check_info ;;
    device) check_device ;;
    pytest) check_pytest ;;
    bench) check_bench ;;
    *) note "FAILED  $check: no such step" && worst=1 ;;
  esac
done

echo "=== summary, $summary"
cat "$summary"
exit "$worst"
