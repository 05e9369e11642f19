// KV shapes of models that people serve, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvferry/layout.h"
#include "kvferry/result.h"

namespace kvferry::tools {

struct ModelShape {
  std::string name;
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  // MLA: of the one latent vector
  bool mla = false;

  // One K and one V buffer a layer, or one latent buffer a layer.
  std::size_t regions() const { return std::size_t{layers} * (mla ? 1 : 2); }
  std::size_t region_token_bytes() const { return std::size_t{kv_heads} * head_dim * 2; }  // bfloat16
  std::size_t token_bytes() const { return regions() * region_token_bytes(); }
  KvFormat format(std::uint32_t page_tokens) const;
};

// `invalid_argument` with the known names. `layers` 0 scales the model to about 4 KiB a token, at least one layer.
Result<ModelShape> model_shape(const std::string& name, std::uint32_t layers);
std::string model_names();

}  // namespace kvferry::tools
