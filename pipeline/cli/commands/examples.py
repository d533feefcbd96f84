"""Commands whose help ends with examples, and commands with options of several values."""

import click


class Examples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: object, examples: str = "", **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")


class Lists(Examples):
    """A command whose repeatable options also take several values: `--seeds 0 1` is `--seeds 0 --seeds 1`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeatable = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for name in parameter.opts
        }
        expanded: list[str] = []
        option, values = "", 0
        for argument in args:
            if argument.startswith("-"):
                option, values = argument if argument in repeatable else "", 0
            elif option:
                values += 1
                expanded += [option] if values > 1 else []
            expanded.append(argument)
        return super().parse_args(ctx, expanded)
