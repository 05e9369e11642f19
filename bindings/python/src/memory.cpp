#include <functional>
#include <numeric>

#include "binding.h"

namespace kvferry::python {
namespace {

// The part of DLPack's structs (dlpack.h, stable since 0.2) that says where a tensor lies.
struct DlTensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t ndim;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null where contiguous
  std::uint64_t byte_offset;
};
constexpr std::int32_t dl_cpu = 1, dl_cuda_host = 3;

std::string type_name(const py::handle& object) { return py::str(py::type::handle_of(object).attr("__name__")); }

[[noreturn]] void not_contiguous(const py::handle& object) {
  throw py::value_error("this " + type_name(object) +
                        " is not contiguous in C order; register the arrays that it is cut from, or a copy");
}

bool dense(const DlTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

MemoryView::MemoryView(const py::object& object, bool writable) {
  if (from_buffer(object, writable) || from_array_interface(object, writable) || from_dlpack(object)) return;
  throw py::type_error("this " + type_name(object) +
                       " shows no memory: neither the buffer protocol nor __array_interface__ nor __dlpack__");
}

MemoryView::~MemoryView() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void MemoryView::set_shape(const std::vector<std::int64_t>& shape, std::size_t element_bytes) {
  const auto elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  length_ = static_cast<std::size_t>(elements) * element_bytes;
  item_bytes_ = shape.empty() || shape.front() == 0 ? length_ : length_ / static_cast<std::size_t>(shape.front());
}

bool MemoryView::from_buffer(const py::object& object, bool writable) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object.ptr(), &buffer_, flags) != 0) {
    // Arrays of types that the buffer protocol does not know (bfloat16) still have the other two.
    if (!py::hasattr(object, "__array_interface__")) throw py::error_already_set();
    PyErr_Clear();
    return false;
  }
  base_ = buffer_.buf;
  set_shape({buffer_.shape, buffer_.shape + buffer_.ndim}, static_cast<std::size_t>(buffer_.itemsize));
  return true;
}

bool MemoryView::from_array_interface(const py::object& object, bool writable) {
  if (!py::hasattr(object, "__array_interface__")) return false;
  const py::dict facts = object.attr("__array_interface__");
  const py::tuple data = facts["data"];
  if (facts.contains("strides") && !facts["strides"].is_none()) not_contiguous(object);
  if (writable && data[1].cast<bool>()) {
    throw py::value_error("this " + type_name(object) + " is read-only; a decode rank's memory is written");
  }
  std::vector<std::int64_t> shape;
  for (const py::handle extent : py::iter(facts["shape"])) shape.push_back(extent.cast<std::int64_t>());
  const auto type = facts["typestr"].cast<std::string>();  // for example "<f2": order, kind, bytes
  set_shape(shape, std::stoul(type.substr(2)));
  base_ = reinterpret_cast<void*>(data[0].cast<std::uintptr_t>());
  owner_ = object;
  return true;
}

bool MemoryView::from_dlpack(const py::object& object) {
  if (!py::hasattr(object, "__dlpack__")) return false;
  // The capsule is never consumed: it owns the tensor, and frees it when it goes.
  const py::capsule capsule = object.attr("__dlpack__")();
  const auto* tensor = static_cast<const DlTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (tensor == nullptr) throw py::error_already_set();
  if (!dense(*tensor)) not_contiguous(object);
  kind_ = tensor->device_type == dl_cpu || tensor->device_type == dl_cuda_host ? MemoryKind::host : MemoryKind::cuda;
  base_ = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  set_shape({tensor->shape, tensor->shape + tensor->ndim},
            static_cast<std::size_t>(tensor->type_bits) * tensor->type_lanes / 8);
  owner_ = capsule;
  return true;
}

// kvferry.Region and (address, length, item_bytes) as they are; every other object by its own shape.
Region region_of(const py::handle& object, bool writable, std::vector<MemoryView>& views) {
  py::object memory = py::reinterpret_borrow<py::object>(object), length = py::none(), item_bytes = py::none();
  auto kind = MemoryKind::host;
  if (py::isinstance<py::tuple>(object)) {
    const auto parts = py::reinterpret_borrow<py::tuple>(object);
    if (parts.size() != 3) throw py::type_error("a region as a tuple is (address, length, item_bytes)");
    memory = parts[0], length = parts[1], item_bytes = parts[2];
  } else if (py::isinstance(object, py::module_::import("kvferry._types").attr("Region"))) {
    memory = object.attr("memory"), length = object.attr("length"), item_bytes = object.attr("item_bytes");
    if (object.attr("kind").cast<std::string>() == "cuda") kind = MemoryKind::cuda;
  }
  Region region;
  if (py::isinstance<py::int_>(memory)) {
    if (length.is_none() || item_bytes.is_none()) {
      throw py::type_error("a region at an address needs its length and item_bytes");
    }
    region.base = reinterpret_cast<void*>(memory.cast<std::uintptr_t>());
    region.kind = kind;
  } else {
    const MemoryView& view = views.emplace_back(memory, writable);
    region = {view.base(), view.length(), view.item_bytes(), kind == MemoryKind::cuda ? kind : view.kind()};
    if (!length.is_none() && length.cast<std::size_t>() > region.length) {
      throw py::value_error("a region of " + std::string(py::str(length)) + " bytes in memory of " +
                            std::to_string(region.length));
    }
  }
  if (!length.is_none()) region.length = length.cast<std::size_t>();
  if (!item_bytes.is_none()) region.item_bytes = item_bytes.cast<std::size_t>();
  return region;
}

void bind_memory(py::module_& module) {
  py::class_<SharedMemory>(
      module, "SharedMemory", py::buffer_protocol(),
      "Memory that same-host peers can map: what is registered inside of it is read by plain "
      "copies.\n\nA writable buffer of `bytes` bytes: numpy.frombuffer(shared, dtype).reshape(...). "
      "Freed once nothing refers to it, arrays and managers included. Raises Error "
      "('unsupported') where the kernel has not that much memory.")
      .def(py::init([](std::size_t bytes) {
             return value_of([&] {
               py::gil_scoped_release unlocked;  // every page is allocated here
               return SharedMemory::allocate(bytes);
             }());
           }),
           py::arg("bytes"))
      .def("__len__", &SharedMemory::size)
      .def_buffer([](const SharedMemory& memory) {
        return py::buffer_info(reinterpret_cast<std::uint8_t*>(memory.data()), static_cast<py::ssize_t>(memory.size()));
      });
}

}  // namespace kvferry::python
