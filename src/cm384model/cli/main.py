"""The ``cm384`` command: its commands, and the exit status of whatever happens."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from cm384model import __version__
from cm384model.cli.calibrate import calibrate
from cm384model.cli.check import check
from cm384model.cli.compare import compare
from cm384model.cli.exit_status import ExitStatus
from cm384model.cli.explain import explain
from cm384model.cli.fit import fit
from cm384model.cli.import_model import import_model
from cm384model.cli.list_names import list_names
from cm384model.cli.op import op
from cm384model.cli.plan import plan
from cm384model.cli.predict import predict
from cm384model.cli.show import show
from cm384model.cli.sweep import sweep
from cm384model.cli.validate import validate
from cm384model.specs.deployment import COLOCATED_FIELDS, DECODE_FIELDS, PREFILL_FIELDS
from cm384model.specs.diagnostics import SpecError, did_you_mean

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=CONTEXT)

AT = f"Decode takes {', '.join(DECODE_FIELDS)}. Prefill takes {', '.join(PREFILL_FIELDS)}."
SERVED = f"{AT} Colocated takes {', '.join(COLOCATED_FIELDS)}."


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"cm384 {__version__}\n")
        raise typer.Exit


@app.callback(no_args_is_help=True, epilog="\b\nExample:\n  cm384 plan deepseek-r1-4k-256")
def cm384(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Plan capacity for LLM serving on Huawei CloudMatrix384.

    Exit status: 0 yes, 1 the answer is no, 2 bad input, 3 a fault of cm384.
    """


COMMANDS: dict[str, tuple[Callable[..., ExitStatus], str]] = {
    "plan": (plan, "cm384 plan deepseek-r1-4k-256 --slo tpot=50ms,ttft=2s"),
    "predict": (predict, "cm384 predict deepseek-r1-4k-256 --at ep=320,batch_per_die=48"),
    "fit": (fit, "cm384 fit deepseek-r1-4k-256 --at ep=32,kv_len=131072"),
    "compare": (compare, "cm384 compare deepseek-r1-4k-256 --at ep=320,batch_per_die=48 --at-b ep=144"),
    "op": (op, "cm384 op dispatch --at ep=256,tokens_per_die=128"),
    "explain": (explain, "cm384 explain deepseek-r1-4k-256 --at ep=320,batch_per_die=48 dispatch"),
    "validate": (validate, "cm384 validate --group decode"),
    "calibrate": (calibrate, "cm384 calibrate measurements.csv -o mine.toml"),
    "check": (check, "cm384 check --only-changed"),
    "sweep": (
        sweep,
        "cm384 sweep deepseek-r1-4k-256 --grid ep=64,320 --grid batch_per_die=1:64",
    ),
    "show": (show, "cm384 show out.parquet --frontier"),
    "import-model": (import_model, "cm384 import-model config.json -o mymodel.toml"),
    "list": (list_names, "cm384 list hardware"),
}
"""Every command with an example that ends its help."""


def _guarded(command: Callable[..., ExitStatus]) -> Callable[..., ExitStatus]:
    """The command, with the one exception handled that typer would turn into exit status 1."""

    @functools.wraps(command)
    def run(**options: Any) -> ExitStatus:
        try:
            status = command(**options)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitStatus.BROKEN_PIPE
        return status

    return run


for _name, (_command, _example) in COMMANDS.items():
    _help = (_command.__doc__ or "").replace("{at}", AT).replace("{served}", SERVED)
    _epilog = f"\b\nExample:\n  {_example}"
    app.command(_name, help=_help, epilog=_epilog, context_settings=CONTEXT)(_guarded(_command))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status and raises nothing."""
    try:
        status = _run(sys.argv[1:] if arguments is None else list(arguments))
    except SpecError as error:
        sys.stderr.write(error.render() + "\n")
        return ExitStatus.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        status = ExitStatus.INTERRUPTED
    except SystemExit as leave:  # shell completion ends this way
        status = leave.code if isinstance(leave.code, int) else ExitStatus.YES
    except Exception as error:
        return _bug(error)
    if status == ExitStatus.INTERRUPTED:
        sys.stderr.write("interrupted\n")
    return status


def _run(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    name, rest = "cm384", arguments
    if arguments and arguments[0] in COMMANDS:  # directly: the options of the group would load pydantic
        command = command.commands[arguments[0]]
        name, rest = f"cm384 {arguments[0]}", arguments[1:]
    try:
        status = command.main(rest, prog_name=name, standalone_mode=False)
    except typer.TyperException as error:
        if not arguments:
            sys.stdout.write(error.format_message() + "\n")
            return ExitStatus.BAD_INPUT
        raise _usage_error(error) from None
    return ExitStatus.YES if status is None else int(status)


def _usage_error(error: Any) -> SpecError:
    """What typer finds wrong, in the words of all our errors."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "cm384"
    message = str(error.format_message()).rstrip(".")
    option = getattr(error, "option_name", None)
    if option and context:
        known = [name for parameter in context.command.params for name in parameter.opts]
        nearest = did_you_mean(option, known)
        message = f"no option '{option}'" + (f". Did you mean '{nearest}'?" if nearest else "")
    message = message[:1].lower() + message[1:]
    if "Did you mean" in message and not message.endswith("?"):
        message += "?"
    return SpecError.of(message, f"see {where} --help")


def _bug(error: Exception) -> int:
    if os.environ.get("CM384_TRACEBACK"):
        import traceback

        traceback.print_exc()
    sys.stderr.write(
        f"error: cm384 failed: {type(error).__name__}: {error}\n\n"
        "hint: this is a fault of cm384; CM384_TRACEBACK=1 shows where\n"
    )
    return ExitStatus.BUG


if __name__ == "__main__":
    raise SystemExit(main())
