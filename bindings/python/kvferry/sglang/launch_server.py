"""`python -m kvferry.sglang.launch_server ARGS`: SGLang's server with kvferry, for versions without plugins."""

import runpy
import sys

from kvferry.sglang import install

install()  # also in the worker processes, which run this file as __mp_main__

if __name__ == "__main__":
    sys.argv[0] = "sglang.launch_server"
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
