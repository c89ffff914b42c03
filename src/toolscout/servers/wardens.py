"""`Warden`: kills what this process leaves behind, however it ends.

A shell of a few hundred kilobytes is told which process groups live. When its input ends, because
this process did, it kills them: grandchildren as well, and after SIGKILL too, where no code of
ours runs any more. On Windows there is none; the SDK puts children into a job object there.
"""

import subprocess
from contextlib import suppress

_SCRIPT = (
    'trap "" HUP INT TERM; groups=; '
    "while read -r line; do groups=$line; done; "
    'for group in $groups; do kill -s KILL -- "-$group"; done'
)


class Warden:
    """Watches over process groups from the first `watch` until `close`."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Have a process group killed when this process ends."""
        self._groups.add(group)
        self._tell()

    def release(self, group: int) -> None:
        """Forget a process group that has ended."""
        self._groups.discard(group)
        self._tell()

    def close(self) -> None:
        """End the shell; groups that are still watched are killed."""
        self._end_shell()
        self._groups.clear()

    def _tell(self) -> None:
        line = " ".join(map(str, sorted(self._groups))) + "\n"
        for _ in range(2):  # the second time to a new shell, should someone have ended the first
            stdin = self._running().stdin
            try:
                if stdin is not None:
                    stdin.write(line.encode())
                    stdin.flush()
                return
            except BrokenPipeError:
                self._end_shell()

    def _end_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            with suppress(BrokenPipeError):
                shell.stdin.close()
            shell.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        return self._shell
