"""python -m keen"""

from __future__ import annotations

from keen.cli import main

main()
