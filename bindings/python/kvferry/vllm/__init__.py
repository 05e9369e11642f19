"""kvferry as a KV connector of vLLM's V1 engine.

    vllm serve M --disable-hybrid-kv-cache-manager --kv-transfer-config '{"kv_connector": "KvferryConnector",
      "kv_connector_module_path": "kvferry.vllm", "kv_role": "kv_producer",
      "kv_connector_extra_config": {"bootstrap": "10.0.0.1:8998"}}'

docs/vllm.md has the rest. Written against vLLM 0.34.0.
"""

__all__ = ["KvferryConnector"]


# It stands on vLLM's base class, which takes seconds to import: not before it is asked for.
def __getattr__(name: str):
    if name == "KvferryConnector":
        from ._connector import KvferryConnector

        return KvferryConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
