"""The ``serve`` command: one start, and every reason not to start turned into one last line and an exit code."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Mapping

from batch_handler.artefact import ArtefactError
from batch_handler.resources import available
from batch_handler.settings import SettingError, Settings, flag, resolve, unknown_sagemaker_variables
from entrypoint import foresight, home, multi_model, privileges, properties
from entrypoint.failure import BAD_ARTEFACT, BAD_SETTING, CANNOT_RUN, StartError
from entrypoint.log import Log, provisional
from entrypoint.process import Signals
from entrypoint.start import Given, prepare, run
from entrypoint.workdir import FULL, NEEDED, TMP, StartTurn, work_directory


def serve(signals: Signals, hint: bool) -> int:
    """Run the server until it is told to stop; the exit code. ``hint`` adds a command line to copy.

    A request to stop that comes before java runs leaves as StopRequested.
    """
    began = time.monotonic()
    log = provisional(os.environ)
    sys.excepthook = log.uncaught
    try:
        place = home.find()
        baked = read_configuration(place)
        foresight.check_model_dir(os.environ)
        settings = resolve(os.environ, None, baked)
        log = Log(settings.log_format, settings.log_level)
        check_environment(os.environ, log)
        leave_root(settings, log)
        turn = StartTurn()
        with work_directory() as work:
            given = Given(os.environ, baked, available(), place, work, log, began)
            try:
                if settings.multi_model:
                    return multi_model.serve(given, settings, signals, turn)
                prepared = prepare(given, settings.model_dir, settings.task, settings.program, turn)
                return run(given, prepared, signals, turn, hint)
            finally:
                turn.give()
    except SettingError as error:
        return _refuse(log, error, BAD_SETTING)
    except ArtefactError as error:
        return _refuse(log, error, BAD_ARTEFACT)
    except StartError as error:
        return _refuse(log, error, error.code)
    except OSError as error:
        log.debug(traceback.format_exc().rstrip())
        return _refuse(log, unexpected(error), CANNOT_RUN)


def read_configuration(place: home.Home) -> dict[str, str]:
    """The config.properties of the installation."""
    try:
        return properties.read(place.configuration)
    except OSError as error:
        raise StartError(f"{place.configuration} cannot be read: {error.strerror}", BAD_SETTING) from None


def check_environment(variables: Mapping[str, str], log: Log) -> None:
    """What the settings table does not cover: variables nobody knows, and one that is TorchServe's.

    Raises SettingError.
    """
    for name in unknown_sagemaker_variables(variables):
        ignored = f"{name} is not a setting of this server: it is ignored"
        log.warning(ignored)
    name = "TS_DECODE_INPUT_REQUEST"
    try:
        flag(variables.get(name, "").strip() or "false")
    except KeyError:
        raise SettingError(f"{name}={variables[name]!r} is not accepted: use true or false") from None


def leave_root(settings: Settings, log: Log) -> None:
    """Become the unprivileged user where that works; otherwise say why not."""
    if settings.multi_model:
        log.debug("stays what it is: the models come later, and who may read them is not known")
    elif notice := privileges.drop(settings.model_dir):
        log.info(notice)


def unexpected(error: OSError) -> StartError:
    """What the system refused, as a sentence; all that is written lies in /tmp, so a full disk is that one."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return StartError(f"{TMP} is too small ({reason}): {NEEDED}")
    place = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
    return StartError(f"the start failed{place}: {reason}; SAGEMAKER_CONTAINER_LOG_LEVEL=10 shows where")


def _refuse(log: Log, error: Exception, code: int) -> int:
    log.error(str(error))
    return code
