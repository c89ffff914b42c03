"""The `toolscout` command, also as `python -m toolscout`."""

import sys


def main() -> None:
    """Run a command; `serve` for a client over stdio needs none of the others' imports."""
    if sys.argv[1:2] == ["serve"] and sys.platform != "win32":
        from toolscout.daemon import bridge

        if bridge.wants_daemon(sys.argv[2:]):
            sys.exit(bridge.run(sys.argv[2:]))
    from toolscout.cli import main as run_command

    run_command(prog_name="toolscout")


if __name__ == "__main__":
    main()
