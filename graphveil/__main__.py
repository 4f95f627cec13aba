"""``python -m graphveil`` is the command ``graphveil``."""

from graphveil.cli import main

if __name__ == "__main__":
    main()
