// What the files of the module share: Python's errors for ours, memory and page lists as Python gives them.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvferry/kvferry.h"

namespace kvferry::python {

namespace py = pybind11;

// ---- problems.cpp ----
// The exception of kvferry._errors for what a call answered.
[[noreturn]] void raise(const Error& error);
// A room's failure as an instance of kvferry.KVTransferError, not raised.
py::object transfer_error(std::uint64_t room, const Error& error);

template <class T>
T value_of(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(result).value();
}
inline void check(const Result<void>& result) {
  if (!result) raise(result.error());
}

// The members of kvferry.Poll, by number.
py::object poll_object(Poll state);

// ---- memory.cpp ----
// An object's memory and what keeps it where it is. Made and destroyed with the interpreter lock held.
class MemoryView {
 public:
  // From the buffer protocol, `__array_interface__` or DLPack, whichever the object has first. TypeError where it has
  // none, ValueError where the memory is not contiguous or may not be written though `writable` asks for it.
  MemoryView(const py::object& object, bool writable);
  MemoryView(MemoryView&& other) noexcept
      : base_(other.base_),
        length_(other.length_),
        item_bytes_(other.item_bytes_),
        kind_(other.kind_),
        buffer_(std::exchange(other.buffer_, {})),
        owner_(std::move(other.owner_)) {}
  MemoryView& operator=(MemoryView&&) = delete;
  ~MemoryView();

  void* base() const { return base_; }
  std::size_t length() const { return length_; }          // bytes
  std::size_t item_bytes() const { return item_bytes_; }  // bytes of one step along the first axis
  MemoryKind kind() const { return kind_; }

 private:
  bool from_buffer(const py::object& object, bool writable);
  bool from_array_interface(const py::object& object, bool writable);
  bool from_dlpack(const py::object& object);
  void set_shape(const std::vector<std::int64_t>& shape, std::size_t element_bytes);

  void* base_ = nullptr;
  std::size_t length_ = 0;
  std::size_t item_bytes_ = 0;
  MemoryKind kind_ = MemoryKind::host;
  Py_buffer buffer_ = {};  // held while `buffer_.obj` is set: its exporter neither moves nor frees it
  py::object owner_;       // what the other two protocols need alive
};

// A registered region; `views` takes what must stay alive as long as it is registered.
Region region_of(const py::handle& object, bool writable, std::vector<MemoryView>& views);
void bind_memory(py::module_& module);

// ---- pages.cpp ----
// Indices as Python gives them: a contiguous int32 array is used where it lies, anything else that is a sequence of
// whole numbers is copied. None is the empty list.
class Indices {
 public:
  explicit Indices(const py::handle& object);
  Indices(const Indices&) = delete;
  Indices& operator=(const Indices&) = delete;
  ~Indices();
  std::span<const std::int32_t> span() const { return span_; }

 private:
  bool view(PyObject* object);
  void copy(const py::handle& object);

  Py_buffer buffer_ = {};
  std::vector<std::int32_t> copied_;
  std::span<const std::int32_t> span_;
};

// One list a state component; None is no list at all.
std::vector<std::vector<std::int32_t>> state_lists(const py::handle& object);

// ---- options.cpp ----
// Settings from the environment, with what `given` (a dict of names as in KVFERRY_<NAME>, in lower case) says instead.
std::optional<Settings> settings_of(const py::object& given);
Role role_of(const std::string& name);
KvFormat format_of(const py::object& format);
Parallel parallel_of(const py::object& parallel);
Place place_of(const py::object& place);
struct MemoryArguments {
  py::object kv, aux, state;
  std::uint32_t first_layer = 0;
};
Memory memory_of(const MemoryArguments& given, bool writable, std::vector<MemoryView>& views);

// ---- manager.cpp, rooms.cpp ----
void bind_rooms(py::module_& module);
void bind_manager(py::module_& module);

// The Python object of a sender or a receiver. It keeps its manager, and so the registered memory, alive.
struct SenderObject {
  Sender room;
  py::object manager;
};
struct ReceiverObject {
  Receiver room;
  py::object manager;
};

// Seconds, None for ever, to a point of the monotonic clock.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;
Deadline deadline_of(std::optional<double> seconds);
// Calls `wait(milliseconds)` without the interpreter lock until it answers true, the deadline passes (false) or a
// signal handler raises. In slices, so that Ctrl-C is heard.
template <class Wait>
bool wait_until(const Deadline& deadline, Wait wait) {
  using std::chrono::milliseconds;
  for (;;) {
    milliseconds slice{100};
    if (deadline) {
      const auto left = std::chrono::ceil<milliseconds>(*deadline - std::chrono::steady_clock::now());
      slice = std::clamp(left, milliseconds(0), slice);
    }
    bool done = false;
    {
      py::gil_scoped_release unlocked;
      done = wait(slice);
    }
    if (done) return true;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (deadline && std::chrono::steady_clock::now() >= *deadline) return false;
  }
}

}  // namespace kvferry::python
