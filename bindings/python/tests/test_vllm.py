"""kvferry's connector for vLLM, in a process of its own: vllm_cases.py stands other things in than SGLang's do."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def test_the_connector_under_vllms_own_base_class_and_factory():
    vllm = os.environ.get("KVFERRY_TEST_VLLM")
    if not vllm:
        pytest.skip("KVFERRY_TEST_VLLM does not say where vLLM is")
    path = os.pathsep.join([str(HERE), vllm, *sys.path])
    cases = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(HERE)]
    done = subprocess.run(
        [*cases, str(HERE / "vllm_cases.py")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
