#include <limits>

#include "binding.h"

namespace kvferry::python {

Indices::Indices(const py::handle& object) {
  if (object.is_none()) return;
  if (!view(object.ptr())) copy(object);
}

Indices::~Indices() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

bool Indices::view(PyObject* object) {
  if (PyObject_CheckBuffer(object) == 0) return false;
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_ND | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  const std::string_view format = buffer_.format == nullptr ? "B" : buffer_.format;
  const bool fits = buffer_.ndim == 1 && buffer_.itemsize == 4 && (format == "i" || format == "l" || format == "<i");
  if (!fits) {
    PyBuffer_Release(&buffer_);
    buffer_ = {};
    return false;
  }
  span_ = {static_cast<const std::int32_t*>(buffer_.buf), static_cast<std::size_t>(buffer_.shape[0])};
  return true;
}

void Indices::copy(const py::handle& object) {
  const auto items = py::reinterpret_steal<py::object>(
      PySequence_Fast(object.ptr(), "page indices are a one-dimensional int32 array or a sequence of whole numbers"));
  if (!items) throw py::error_already_set();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items.ptr());
  copied_.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    // Through __index__, so that a float is refused and a numpy integer is not.
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(PySequence_Fast_GET_ITEM(items.ptr(), i)));
    if (!number) throw py::error_already_set();
    const long long value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
      raise({Code::out_of_range, "page index " + std::to_string(value) + " is not from 0 to 2147483647"});
    }
    copied_.push_back(static_cast<std::int32_t>(value));
  }
  span_ = copied_;
}

std::vector<std::vector<std::int32_t>> state_lists(const py::handle& object) {
  std::vector<std::vector<std::int32_t>> lists;
  if (object.is_none()) return lists;
  for (const py::handle list : py::iter(object)) {
    const Indices indices(list);
    lists.emplace_back(indices.span().begin(), indices.span().end());
  }
  return lists;
}

}  // namespace kvferry::python
