"""Lets real modules of SGLang or vLLM be imported where their heavy dependencies are not installed: whatever is
missing is stood in for by classes that can be called, subclassed and used as decorators, and do nothing. In the tests only."""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import sys
import types

# Of these nothing is needed, installed or not: a test that meets the real one would measure it.
HEAVY = {
    "torch",
    "triton",
    "transformers",
    "sgl_kernel",
    "flashinfer",
    "torchvision",
    "torchaudio",
    "numba",
    "outlines",
    "xgrammar",
    "PIL",
    "cuda",
    "cutlass",
    "huggingface_hub",
    "tokenizers",
    "safetensors",
    "accelerate",
    "vllm",
    "IPython",
    "mooncake",
    "nixl",
    "mori",
    "deep_gemm",
    "deep_ep",
    "sgl_router",
    "torch_memory_saver",
    "torchao",
    "compressed_tensors",
}

# Parts of the engines that are all kernels, models and patches of the heavy ones.
PARTS = (
    "vllm.platforms",
    "vllm.utils.torch_utils",
    "vllm.model_executor",
    "vllm.v1.attention",
    "vllm.forward_context",
    "vllm.v1.worker",
    "sglang.kernels",
    "sglang.srt.configs",
    "sglang.srt.layers",
    "sglang.srt.models",
    "sglang.srt.model_loader",
    "sglang.srt.parser",
    "sglang.srt.function_call",
    "sglang.srt.constrained",
    "sglang.srt.multimodal",
    "sglang.srt.lora",
    "sglang.srt.speculative",
    "sglang.srt.utils.hf_transformers_patches",
)
WHOLE = {"sglang.srt.lora.lora_registry", "sglang.srt.lora"}  # but these are taken whole: messages are made of them
# What SGLang asks for to find out whether it is there.
ABSENT = {"torch_npu", "torch_musa", "torch_xla", "habana_frameworks", "intel_extension_for_pytorch", "sgl_kernel_npu"}
OTHER_DEVICES = {"npu", "hpu", "musa", "mlu"}


class _Stub(abc.ABCMeta):
    """The class of stand-ins: attributes are stand-ins, a call gives one, a call with a function gives the function."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _make(f"{cls.__name__}.{name}")
        type.__setattr__(cls, name, made)
        return made

    def __call__(cls, *args, **kwargs):
        if cls.__dict__.get("_is_stand_in"):
            if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
                return args[0]
            return _make(cls.__name__ + "()")
        return super().__call__(*args, **kwargs)

    def register(cls, *args, **kwargs):
        return args[0] if cls.__dict__.get("_is_stand_in") else super().register(*args)

    def _itself(cls, *_):
        return cls

    __or__ = __ror__ = lambda cls, other: object
    __getitem__ = __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __enter__ = _itself
    __truediv__ = __floordiv__ = __and__ = __neg__ = __invert__ = _itself
    __exit__ = lambda cls, *_: None
    __iter__ = lambda cls: iter(())
    __bool__ = lambda cls: False
    __len__ = __int__ = __index__ = lambda cls: 0
    __float__ = lambda cls: 0.0
    __eq__ = lambda cls, other: cls is other
    __lt__ = __gt__ = __le__ = __ge__ = lambda cls, other: False
    __hash__ = type.__hash__
    __contains__ = lambda cls, _: False


def _make(name: str) -> type:
    return _Stub(
        name.rsplit(".", 1)[-1] or "stub",
        (),
        {
            "_is_stand_in": True,
            "__module__": "stub",
            "__init_subclass__": classmethod(lambda cls, **_: None),
        },
    )


class _Module(types.ModuleType):
    __path__: list[str] = []
    __version__ = "99.0.0"

    def __getattr__(self, name: str):
        if name.startswith("__") or (self.__name__ == "torch" and name in OTHER_DEVICES):
            raise AttributeError(name)
        made = _make(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


def _asked_by(engine: str) -> bool:
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == engine


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, first: bool, engine: str) -> None:
        self.first, self.engine = first, engine

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        part = fullname not in WHOLE and any(fullname == name or fullname.startswith(name + ".") for name in PARTS)
        if top == self.engine and not part:
            return None
        if self.first and top not in HEAVY and not part:
            return None
        if not self.first and (top in ABSENT | {"kvferry"} or not _asked_by(self.engine)):
            return None
        if not self.first and "." in fullname and not isinstance(sys.modules.get(top), _Module):
            return None  # a part that a real package does not have is not to be stood in for
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def install(engine: str = "sglang") -> None:
    """From now on what is heavy, or what modules of `engine` miss, is stood in for."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder(True, engine))
    sys.meta_path.append(_Finder(False, engine))
