"""`toolscout bench sdks`: agent SDKs' own tool searches against toolscout in the same SDKs."""

from pathlib import Path

import click

from toolscout.cli.figures import command_line, give, json_option, query_bars, save_option


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR…")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="Ask N queries of each dataset, always the same ones.",
)
@json_option
@save_option
def sdks(folders: tuple[Path, ...], limit: int, as_json: bool, save_file: Path | None) -> None:
    """Compare the searches of agent SDKs with toolscout's adapters inside them.

    A scripted model searches once for each query. Its next request is what is measured: the tools
    and the reply that it receives, and the time until then. SDKs that are not installed are left
    out.

    \b
    Example:
      toolscout bench sdks data/metatool --limit 50
    """
    from toolscout.bench.datasets import labelled_folders, read_dataset
    from toolscout.bench.sdks import compare_sdks, comparison_tables

    read = [read_dataset(inner) for folder in folders for inner in labelled_folders(folder)]
    with query_bars() as progress:
        found = compare_sdks([dataset.sample(limit) for dataset in read], progress=progress)
    for name, remedy in found.missing.items():
        click.echo(f"Left out {name}: {remedy}", err=True)
    command = command_line("sdks", *folders, limit=[limit])
    give(
        {**found.to_json(), "command": command},
        comparison_tables(found),
        as_json=as_json,
        save_file=save_file,
    )
