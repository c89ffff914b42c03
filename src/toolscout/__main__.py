"""The `toolscout` command, also as `python -m toolscout`."""

import sys


def run_command() -> None:
    """Run a command; `serve --daemon` needs none of the imports of the others."""
    if sys.argv[1:2] == ["serve"] and "--daemon" in sys.argv and sys.platform != "win32":
        from toolscout.daemon import bridge

        if bridge.wants_daemon(sys.argv[2:]):
            sys.exit(bridge.run(sys.argv[2:]))
    from toolscout.cli import main

    main(prog_name="toolscout")


if __name__ == "__main__":
    run_command()
