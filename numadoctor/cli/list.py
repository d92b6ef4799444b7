"""``numadoctor list``."""

import click

from numadoctor.cli.common import checks_dir_option, output_option, write_outputs


@click.command("list", help="List the checks and the sample hosts there are.")
@output_option(("text", "json"))
@checks_dir_option
def command(outputs: list[tuple[str, str | None]], checks_dirs: tuple[str, ...]) -> int:
    from numadoctor.engine.discovery import discover
    from numadoctor.engine.exitcodes import ExitCode
    from numadoctor.engine.registry import FAMILIES, OTHER_FAMILY
    from numadoctor.host import sample_names

    catalogue = discover(checks_dirs)

    def render(name: str, on_stdout: bool) -> str:
        if name == "json":
            from numadoctor.cli.explain import check_data
            from numadoctor.report.json import SCHEMA_VERSION, dump

            return dump(
                {
                    "schema_version": SCHEMA_VERSION,
                    "checks": [check_data(check) for check in catalogue],
                    "samples": list(sample_names()),
                    "problems": [
                        {"origin": p.origin, "reason": p.reason} for p in catalogue.problems
                    ],
                }
            )
        from numadoctor.report.terminal import Terminal

        terminal = Terminal.of_stdout() if on_stdout else Terminal(100)
        lines: list[str] = []
        present = {check.family for check in catalogue}
        for letter in [*FAMILIES, *sorted(present - FAMILIES.keys())]:
            if letter in present:
                lines += terminal.wrap(f"{letter}  {FAMILIES.get(letter, OTHER_FAMILY)}", 3, 0)
                for check in catalogue:
                    if check.family == letter:
                        told = f"{check.id}  {check.name}: {check.summary}"
                        lines += terminal.wrap(terminal.text(told), 6, 0)
                lines.append("")
        lines.append("Sample hosts (--sysroot sample:NAME):")
        lines += terminal.wrap(" ".join(sample_names()), 2)
        for problem in catalogue.problems:
            told = f"not loaded: {problem.origin}: {problem.reason}"
            lines += ["", *terminal.wrap(terminal.text(told), 2, 0)]
        return "\n".join(lines) + "\n"

    write_outputs(outputs, render)
    return int(ExitCode.INCOMPLETE if catalogue.problems else ExitCode.OK)
