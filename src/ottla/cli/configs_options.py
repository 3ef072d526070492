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
    bool, typer.Option("--entity-default", help="The default of all brokers.")
]
Topic = Annotated[
    Option, typer.Option("--topic", metavar="NAME", help="Short for a topic's type and name.")
]
Broker = Annotated[
    Option, typer.Option("--broker", metavar="ID", help="Short for a broker's type and name.")
]
BrokerDefaults = Annotated[
    bool, typer.Option("--broker-defaults", help="Short for the default of all brokers.")
]
AddConfig = Annotated[
    Option,
    typer.Option(
        "--add-config",
        metavar="K=V,...",
        help="What to set; brackets hold values with commas: k1=v1,k2=[a,b].",
    ),
]
AddConfigFile = Annotated[
    Option, typer.Option("--add-config-file", metavar="FILE", help="Properties to set.")
]
DeleteConfig = Annotated[
    Option, typer.Option("--delete-config", metavar="K,...", help="What to unset.")
]
All = Annotated[bool, typer.Option("--all", help="Describe static and default configuration too.")]
