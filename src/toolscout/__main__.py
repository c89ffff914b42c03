"""The `toolscout` command, also as `python -m toolscout`."""

import sys


def run_command() -> None:
    """Run a command; a client that starts `serve` need not wait for the imports of the others."""
    if sys.argv[1:2] == ["serve"] and sys.platform != "win32":
        from toolscout.daemon import bridge

        code = bridge.run(sys.argv[2:])
        if code is not None:
            sys.exit(code)
    from toolscout.cli import main

    main(prog_name="toolscout")


if __name__ == "__main__":
    run_command()
