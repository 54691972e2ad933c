"""``cm384 predict``."""

from __future__ import annotations

from typing import cast

from cm384model.cli import options
from cm384model.cli.exit_status import ExitStatus


def predict(
    workload: options.Workload,
    phase: options.ServedOption = "decode",
    at: options.AtOption = None,
    model: options.ModelOption = None,
    hardware: options.HardwareOption = None,
    engine: options.EngineOption = None,
    form: options.FormatOption = None,
    output: options.OutputOption = None,
    settings: options.SettingsOption = None,
) -> ExitStatus:
    """Predict one deployment: its times, terms and memory.

    Exit status: 0 it fits, 1 it does not fit the memory, 2 bad input.

    {served}
    """
    from cm384model.cli.output import choose_format, deliver, say_no

    form = choose_format(form, output)
    from cm384model import api
    from cm384model.prediction.explain import Phase
    from cm384model.prediction.fit import nearest_fit
    from cm384model.report.predict import predict_report

    case = api.load_case(workload, model=model, hardware=hardware, engine=engine, settings=settings or ())
    result = api.predict(case, phase=cast(Phase, phase), at=at or ())
    deliver(predict_report(case, result), form, output)
    if result.feasible:
        return ExitStatus.YES
    say_no(", ".join(result.reasons), *nearest_fit(case, result))
    return ExitStatus.NO
