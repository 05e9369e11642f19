#include "binding.h"

PYBIND11_MODULE(_kvferry, module) {
  using namespace kvferry::python;
  module.doc() = "The C++ classes of kvferry; import kvferry instead.";
  module.attr("__version__") = kvferry::version();
  bind_memory(module);
  bind_rooms(module);
  bind_manager(module);
}
