"""``python -m attnkit``."""

from attnkit.cli import main

if __name__ == "__main__":
    main()
