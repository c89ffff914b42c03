"""One round of all checkups, in the order in which a person would look."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from toolscout.cli.checks import Checkup
from toolscout.cli.checks_clients import clients
from toolscout.cli.checks_places import cache, configuration, leftovers, token_files
from toolscout.cli.checks_ports import port
from toolscout.cli.checks_programs import extras, node, own_program, python, vectors
from toolscout.cli.checks_servers import commands, servers
from toolscout.clients.discovery import Machine, known_files
from toolscout.config.file import Config
from toolscout.errors import UsageError

TOKENS_FOLDER = "tokens"


def every_checkup(machine: Machine, place: Path, names: Mapping[str, str]) -> Iterator[Checkup]:
    """Yield what is found, as it is found; starts no server and changes nothing.

    `place` is the configuration file, `names` what the command line calls each client.
    """
    yield python()
    yield own_program(machine.env)
    yield from extras()
    yield vectors()
    found: list[Config] = []
    yield from configuration(place, found)
    config = found[0] if found else Config(source=place)
    file = _cache_file(machine, config)
    tokens = file.parent / TOKENS_FOLDER
    yield from servers(config, tokens, machine.env)
    yield from node(commands(config), machine.env)
    yield from cache(config, file)
    yield from token_files(tokens)
    yield from leftovers((place.parent, file.parent, tokens))
    yield port(config.gateway)
    yield from clients(known_files(machine), names, machine.env, machine.cwd)


def _cache_file(machine: Machine, config: Config) -> Path:
    try:
        return machine.cache_file(config.gateway)
    except UsageError:  # a reference that leads nowhere, which `configuration` cannot know
        return machine.cache_file(Config().gateway)
