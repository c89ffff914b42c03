"""`python -m toolscout`: the same as the `toolscout` command."""

from toolscout.cli import main

if __name__ == "__main__":
    main(prog_name="toolscout")
