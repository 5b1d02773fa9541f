"""``python -m tasks.toolbox --sandbox FOLDER``: the toolbox over stdio, or HTTP on loopback."""

import argparse
from pathlib import Path

from tasks.errors import ToolRefused
from tasks.toolbox.samples import make_samples
from tasks.toolbox.sandbox import open_sandbox
from tasks.toolbox.server import make_server


def main() -> None:
    """Serve until the client leaves, or until stopped."""
    parser = argparse.ArgumentParser(prog="python -m tasks.toolbox", description=__doc__)
    parser.add_argument("--sandbox", required=True, type=Path, help="the folder of the files")
    parser.add_argument("--port", type=int, help="serve streamable HTTP on this port of 127.0.0.1")
    parser.add_argument("--slow-s", type=float, default=1.0, help="how long checksum_file waits")
    parser.add_argument(
        "--samples", action="store_true", help="put sample files into an empty folder, and end"
    )
    arguments = parser.parse_args()
    if arguments.samples:
        arguments.sandbox.mkdir(parents=True, exist_ok=True)
        if any(arguments.sandbox.iterdir()):
            parser.error(f"expected an empty folder for samples, {arguments.sandbox} holds files.")
        make_samples(arguments.sandbox)
        return
    try:
        server = make_server(open_sandbox(arguments.sandbox, arguments.slow_s))
    except ToolRefused as error:
        parser.error(str(error))
    if arguments.port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()
