"""The options of `ottla configs`."""

from typing import Annotated

import typer

Option = str | None

Describe = Annotated[bool, typer.Option("--describe", help="Show configuration.")]
Alter = Annotated[bool, typer.Option("--alter", help="Change configuration.")]
EntityType = Annotated[
    Option, typer.Option("--entity-type", metavar="TYPE", help="topics or brokers.")
]
EntityName = Annotated[
    Option, typer.Option("--entity-name", metavar="NAME", help="A topic, or a broker's id.")
]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="The cluster-wide default of brokers.")
]
Topic = Annotated[
    Option,
    typer.Option(
        "--topic", metavar="NAME", help="Same as --entity-type topics --entity-name NAME."
    ),
]
Broker = Annotated[
    Option,
    typer.Option("--broker", metavar="ID", help="Same as --entity-type brokers --entity-name ID."),
]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="Same as --entity-type brokers --entity-default.")
]
AddConfig = Annotated[
    Option,
    typer.Option(
        "--add-config",
        metavar="K=V,...",
        help="Values to set; put a value with commas in brackets: k1=v1,k2=[a,b].",
    ),
]
AddConfigFile = Annotated[
    Option,
    typer.Option("--add-config-file", metavar="FILE", help="A property file with values to set."),
]
DeleteConfig = Annotated[
    Option, typer.Option("--delete-config", metavar="K,...", help="Names to unset.")
]
All = Annotated[bool, typer.Option("--all", help="Include static and default configuration.")]
