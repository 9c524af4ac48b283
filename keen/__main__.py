"""python -m keen"""

from __future__ import annotations

import sys
from typing import NoReturn


def start() -> NoReturn:
    """Run keen without the working directory on the import path, where -m puts it.

    A project's json.py would else run as part of keen before anybody trusted it.
    """
    if not sys.flags.safe_path:
        del sys.path[0]
    from keen.cli import main

    main()


start()
