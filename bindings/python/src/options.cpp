#include <algorithm>
#include <cstdlib>
#include <set>

#include "binding.h"

namespace kvferry::python {
namespace {

// A value of a setting as its environment variable would have it.
std::string setting_text(const py::handle& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? "true" : "false";
  return py::str(value);
}

std::string variable_of(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return "KVFERRY_" + name;
}

template <class T>
T attribute(const py::object& object, const char* name) {
  return object.attr(name).cast<T>();
}

std::vector<Region> regions_of(const py::object& objects, bool writable, std::vector<MemoryView>& views) {
  std::vector<Region> regions;
  for (const py::handle object : py::iter(objects)) regions.push_back(region_of(object, writable, views));
  return regions;
}

// A kvferry.StateComponent, or the regions alone.
StateComponent component_of(const py::handle& object, bool writable, std::vector<MemoryView>& views) {
  if (!py::isinstance(object, py::module_::import("kvferry._types").attr("StateComponent"))) {
    return {regions_of(py::reinterpret_borrow<py::object>(object), writable, views)};
  }
  return {regions_of(object.attr("regions"), writable, views), object.attr("name").cast<std::string>(),
          object.attr("optional").cast<bool>()};
}

}  // namespace

std::optional<Settings> settings_of(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  std::map<std::string, std::string, std::less<>> values;
  for (const auto& [name, value] : given.cast<py::dict>()) {
    values.emplace(variable_of(py::str(name)), setting_text(value));
  }
  std::set<std::string, std::less<>> known;
  Result<Settings> settings = Settings::from_environment([&](std::string_view name) -> std::optional<std::string> {
    known.emplace(name);
    if (const auto found = values.find(name); found != values.end()) return found->second;
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  Settings made = value_of(std::move(settings));
  for (const auto& [name, value] : values) {
    if (!known.contains(name)) {
      raise({Code::invalid_argument, name + " is no setting; docs/reference/settings.md has their names"});
    }
  }
  return made;
}

Role role_of(const std::string& name) {
  if (name == "prefill") return Role::prefill;
  if (name == "decode") return Role::decode;
  raise({Code::invalid_argument, "role '" + name + "' is neither 'prefill' nor 'decode'"});
}

KvFormat format_of(const py::object& format) {
  KvFormat made;
  made.dtype = attribute<std::string>(format, "dtype");
  made.page_tokens = attribute<std::uint32_t>(format, "page_tokens");
  made.layers = attribute<std::uint32_t>(format, "layers");
  made.kv_heads = attribute<std::uint32_t>(format, "kv_heads");
  made.head_dim = attribute<std::uint32_t>(format, "head_dim");
  made.mla = attribute<bool>(format, "mla");
  const auto order = attribute<std::string>(format, "order");
  if (order != "token_head_dim" && order != "head_token_dim") {
    raise({Code::invalid_argument, "order '" + order + "' is neither 'token_head_dim' nor 'head_token_dim'"});
  }
  made.order = order == "token_head_dim" ? PageOrder::token_head_dim : PageOrder::head_token_dim;
  made.kv_joined = attribute<bool>(format, "kv_joined");
  return made;
}

Parallel parallel_of(const py::object& parallel) {
  if (parallel.is_none()) return {};
  return {attribute<std::uint32_t>(parallel, "tp"), attribute<std::uint32_t>(parallel, "dp"),
          attribute<std::uint32_t>(parallel, "pp"), attribute<std::uint32_t>(parallel, "cp")};
}

Place place_of(const py::object& place) {
  if (place.is_none()) return {};
  Place made;
  made.dp = attribute<std::uint32_t>(place, "dp");
  made.tp = attribute<std::uint32_t>(place, "tp");
  made.pp = attribute<std::uint32_t>(place, "pp");
  made.cp = attribute<std::uint32_t>(place, "cp");
  return made;
}

Memory memory_of(const MemoryArguments& given, bool writable, std::vector<MemoryView>& views) {
  Memory memory;
  memory.kv = regions_of(given.kv, writable, views);
  memory.aux = regions_of(given.aux, writable, views);
  for (const py::handle component : py::iter(given.state)) {
    memory.state.push_back(component_of(component, writable, views));
  }
  memory.first_layer = given.first_layer;
  return memory;
}

}  // namespace kvferry::python
