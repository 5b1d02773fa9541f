"""``make up`` and ``make down``: the services of a home, started, ended and looked at."""

import json
import logging
import sys

import httpx
from pydantic import ValidationError

from tasks.errors import TaskError
from tasks.processes import read_services
from tasks.services import down, running, up
from tasks.settings import Settings, faults, prepare_environment, read_settings


def main(arguments: list[str]) -> int:
    """``up``, ``down`` or ``status``; 0 done, 1 failed, 2 wrong usage."""
    if len(arguments) != 1 or arguments[0] not in ("up", "down", "status"):
        sys.stderr.write("Usage: python -m flows.services up|down|status\n")
        return 2
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("toolatlas").setLevel(logging.INFO)
    try:
        settings = read_settings()
        _run(settings, arguments[0])
    except ValidationError as error:
        sys.stderr.write("".join(f"Error: {sentence}\n" for sentence in faults(error)))
        return 2
    except (TaskError, ValueError, RuntimeError, OSError, httpx.HTTPError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; what was being started is ended again.\n")
        return 1
    return 0


def _run(settings: Settings, action: str) -> None:
    if action == "status":
        sys.stdout.write(json.dumps(running(settings), indent=2) + "\n")
    elif action == "down":
        down(settings)
    else:
        prepare_environment(settings)
        up(settings)
        for name, service in read_services(settings.home).items():
            where = service.address or f"works for {service.api}"
            sys.stdout.write(f"{name:<10} {where:<32} process {service.pid}, log {service.log}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
