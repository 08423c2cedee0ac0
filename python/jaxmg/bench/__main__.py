"""`python -m jaxmg.bench`."""

from jaxmg.bench.command import main

if __name__ == "__main__":
    main(prog_name="python -m jaxmg.bench")
