"""Entry point of ``python -m attnkit``."""

from attnkit.cli.main import main

if __name__ == "__main__":
    main()
