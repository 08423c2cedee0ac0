"""The command ``jaxmg``: solve linear systems that lie in files, plan, check and measure.

``jaxmg --help`` lists the subcommands. Nothing here is part of the Python interface.
"""

from jaxmg.cli.app import main

__all__ = ["main"]
