#include <array>

#include "binding.h"

namespace kvferry::python {
namespace {

py::object room_of(const Error& error) { return error.room ? py::object(py::int_(*error.room)) : py::none(); }

// What stands beside the module in the package and is needed at every call. Never freed: an interpreter that ends takes
// them along in an order of its own.
struct Names {
  py::object error_of = py::module_::import("kvferry._errors").attr("error_of");
  py::object transfer_error = py::module_::import("kvferry._errors").attr("KVTransferError");
  std::array<py::object, 5> polls;

  Names() {
    const py::object poll = py::module_::import("kvferry._types").attr("Poll");
    for (std::size_t i = 0; i < polls.size(); ++i) polls[i] = poll(i);
  }
};

const Names& names() {
  static const Names* const made = new Names;
  return *made;
}

}  // namespace

void raise(const Error& error) {
  const py::object made = names().error_of(code_name(error.code), error.text, room_of(error), error.peer);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

py::object transfer_error(std::uint64_t room, const Error& error) {
  return names().transfer_error(room, error.text, code_name(error.code), error.peer);
}

py::object poll_object(Poll state) { return names().polls[static_cast<std::size_t>(state)]; }

}  // namespace kvferry::python
