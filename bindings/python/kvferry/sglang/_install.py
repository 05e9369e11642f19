"""Adds the backend to a running SGLang without touching its files: its enum, its choices, its class lookup."""

from __future__ import annotations

import enum
import functools
import logging
import os
import sys
import typing

from .. import mooncake

BACKEND = "kvferry"
logger = logging.getLogger(__name__)


def install() -> None:
    """Makes `--disaggregation-transfer-backend kvferry` known. May be called again; changes nothing for other backends.

    Every process of SGLang needs it before it builds its queues. As the plugin that this package registers, SGLang 0.5
    calls it in each of them.
    """
    if os.environ.get("KVFERRY_AS_MOONCAKE", "").lower() in ("1", "true", "yes", "on"):
        mooncake.install()
    from sglang.srt.disaggregation import utils

    member = _add_member(utils.TransferBackend)
    _add_classes(utils, member)
    _add_choice()


def _add_member(backends: type[enum.Enum]) -> enum.Enum:
    if BACKEND in backends._value2member_map_:
        return backends(BACKEND)
    member = object.__new__(backends)
    member._name_, member._value_ = BACKEND.upper(), BACKEND
    member._sort_order_ = len(backends._member_names_)
    backends._member_names_.append(member._name_)
    backends._member_map_[member._name_] = member
    backends._value2member_map_[BACKEND] = member
    type.__setattr__(backends, member._name_, member)
    return member


def _add_classes(utils: typing.Any, member: enum.Enum) -> None:
    original = utils.get_kv_class
    if getattr(original, "_knows_kvferry", False):
        return
    kinds = utils.KVClassType

    @functools.wraps(original)
    def get_kv_class(transfer_backend, class_type):
        if transfer_backend is not member:
            return original(transfer_backend, class_type)
        from . import _classes

        return {
            kinds.KVARGS: _classes.KVArgs,
            kinds.MANAGER: _classes.KvferryKVManager,
            kinds.SENDER: _classes.KvferryKVSender,
            kinds.RECEIVER: _classes.KvferryKVReceiver,
            kinds.BOOTSTRAP_SERVER: _classes.KvferryKVBootstrapServer,
        }.get(class_type)

    get_kv_class._knows_kvferry = True  # type: ignore[attr-defined]
    # prefill.py, decode.py and others import it by name.
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and getattr(module, "__dict__", {}).get("get_kv_class") is original:
            module.get_kv_class = get_kv_class


def _add_choice() -> None:
    try:
        from sglang.srt.arg_groups.choices import DISAGG_TRANSFER_BACKEND_CHOICES as choices
    except ImportError:
        choices = _choices_of_the_parser()
    if choices is None:
        logger.warning(
            "this SGLang has no list of transfer backends that is known here; its parser may refuse %s", BACKEND
        )
    elif BACKEND not in choices:
        choices.append(BACKEND)


# Versions up to 0.4 write the list into the parser itself.
def _choices_of_the_parser() -> list[str] | None:
    from sglang.srt.server_args import ServerArgs

    add_cli_args = getattr(ServerArgs, "add_cli_args", None)
    if add_cli_args is None:
        return None
    added = [BACKEND]

    def with_kvferry(parser):
        add_cli_args(parser)
        for action in parser._actions:
            if action.dest == "disaggregation_transfer_backend" and action.choices and BACKEND not in action.choices:
                action.choices = [*action.choices, BACKEND]

    if not getattr(add_cli_args, "_knows_kvferry", False):
        with_kvferry._knows_kvferry = True  # type: ignore[attr-defined]
        ServerArgs.add_cli_args = staticmethod(with_kvferry)
    return added
