"""Programs that try to break out, use everything up or never end: any number of them, by seed."""

import random
from collections.abc import Iterator

TEMPLATES = (
    # Loops.
    "while True: pass",
    "n = 0\nwhile n >= 0: n += {n}",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "for a in range(10**{d}):\n    for b in range(10**{d}): pass",
    "import time\nwhile True: time.sleep({n})",
    "import asyncio\nwhile True: await asyncio.sleep(0)",
    # Memory.
    "'a' * 10**{d}{d}",
    "[0] * (10**8 * {n})",
    "x = []\nwhile True: x.append('{word}' * 1000)",
    "x = '{word}'\nwhile True: x = x + x",
    "x = {{}}\nn = 0\nwhile True:\n    x[n] = [n] * 100\n    n += 1",
    "10 ** 10 ** {d}",
    "bytes(10**9)",
    "f'{{1:>{n}000000000}}'",
    "list(range(10**9))",
    # Recursion and deep data.
    "def f(): return f()\nf()",
    "def f(a): return f([a])\nf([])",
    "a = []\nfor _ in range({n}0000): a = [a]\na",
    "a = [1]\nfor _ in range({n}0): a = [a, a]\na",
    "a = [1]\nfor _ in range(60): a = [a, a]\nstr(a)",
    "a = []\na.append(a)\na",
    "a = {{}}\na['a'] = a\nnote(text=a)",
    "import json\njson.loads('[' * {n}00000)",
    "eval('(' * {n}000 + '1' + ')' * {n}000)",
    # Giant strings, output and arguments.
    "print('{word}' * 10**6)\n'{word}' * 10**6",
    "while True: print('{word}')",
    "note(text='{word}' * 10**6)",
    "for n in range(1000): note(text=str(n))",
    "import asyncio\nawait asyncio.gather(*[note(text='{word}') for _ in range(1000)])",
    # Exceptions.
    "raise SystemExit",
    "raise KeyboardInterrupt",
    "raise BaseException('{word}' * 10**6)",
    "assert {n} == 0, '{word}'",
    "1 / 0",
    "x = {{'a': 1}}\nx['{word}']",
    "try:\n    note()\nfinally:\n    note(text='{word}')",
    # Imports and attributes.
    "import {module}",
    "from {module} import *",
    "__import__('{module}')",
    "open('/etc/passwd').read()",
    "import os\nos.environ",
    "import os\nos.system('true')",
    "import pathlib\npathlib.Path('/').iterdir()",
    "import sys\nsys.modules",
    "().__class__.__bases__[0].__subclasses__()",
    "note.__globals__",
    "note.__class__.__mro__",
    "getattr(note, '__' + 'code__')",
    "'{{0.__class__.__init__.__globals__}}'.format(note)",
    "type(note)('{word}')",
    "globals()",
    "exec('import {module}')",
    "eval('__builtins__')",
    "compile('1', 'a', 'exec')",
    # Forbidden tools.
    "forbidden()",
    "call('for' + 'bidden')",
    "call('tool_run', {{'code': 'forbidden()'}})",
    "tool_call(name='forbidden')",
    "f = forbidden\nf()",
    "[call(name) for name in ('Forbidden', 'FORBIDDEN', 'for bidden', 'mcp__x__forbidden')]",
    "describe('forbidden')\nsearch('select:forbidden')\nforbidden()",
    # Nonsense.
    "{word} {word}",
    "{word}(",
    "\x00{word}",
    "# -*- coding: {word} -*-\n1",
    "lambda: (yield)",
    "{word}" + " + {word}" * 50,
    "\ud800",
)
MODULES = (
    "socket",
    "subprocess",
    "ctypes",
    "requests",
    "os.path",
    "toolscout",
    "pickle",
    "inspect",
)
WORDS = ("alpha", "omega", "größe", "名前", "_", "x1")


def make_hostile_programs(count: int, seed: int = 1) -> Iterator[str]:
    """Yield programs, each template in turn with other words and sizes."""
    chance = random.Random(seed)
    for number in range(count):
        template = TEMPLATES[number % len(TEMPLATES)]
        yield template.format(
            n=chance.randint(1, 9),
            d=chance.randint(7, 9),
            word=chance.choice(WORDS),
            module=chance.choice(MODULES),
        )
