#include "binding.h"

namespace kvferry::python {
namespace {

std::optional<LayerRange> layers_of(const py::object& layers) {
  if (layers.is_none()) return std::nullopt;
  if (PyRange_Check(layers.ptr())) {
    if (layers.attr("step").cast<int>() != 1) throw py::value_error("layers are a range of step 1");
    return LayerRange{layers.attr("start").cast<std::uint32_t>(), layers.attr("stop").cast<std::uint32_t>()};
  }
  const auto [begin, end] = layers.cast<std::pair<std::uint32_t, std::uint32_t>>();
  return LayerRange{begin, end};
}

py::object error_of(const RoomHandle& room) {
  const std::optional<Error> error = room.error();
  return error ? transfer_error(room.room(), *error) : py::none();
}

// The state of a room that has concluded: success, or its failure raised.
py::object outcome_of(const RoomHandle& room) {
  const Poll state = room.poll();
  if (state == Poll::failed) {
    const py::object error = error_of(room);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw py::error_already_set();
  }
  return poll_object(state);
}

py::object wait(const RoomHandle& room, std::optional<double> timeout) {
  Result<Poll> answer = Poll::bootstrapping;
  const bool answered = wait_until(deadline_of(timeout), [&](std::chrono::milliseconds slice) {
    answer = room.wait(slice);
    return answer.has_value() || answer.error().code != Code::timeout;
  });
  if (answered && !answer) raise(answer.error());
  if (answered) return outcome_of(room);
  raise({Code::timeout, std::string("the room is still ") + poll_name(room.poll()), room.room()});
}

void wait_pages_released(const RoomHandle& room, std::optional<double> timeout) {
  Result<void> answer;
  const bool answered = wait_until(deadline_of(timeout), [&](std::chrono::milliseconds slice) {
    answer = room.wait_pages_released(slice);
    return answer.has_value() || answer.error().code != Code::timeout;
  });
  if (!answered) raise({Code::timeout, "the pages are not released yet", room.room()});
  check(answer);
}

template <class Object>
void bind_common(py::class_<Object>& type) {
  type.def_property_readonly("room", [](const Object& self) { return self.room.room(); })
      .def_readonly("manager", &Object::manager)
      .def(
          "poll", [](const Object& self) { return poll_object(self.room.poll()); },
          "The state of the room now, a kvferry.Poll. A plain memory read.")
      .def(
          "error", [](const Object& self) { return error_of(self.room); },
          "The reason of the first failure as a KVTransferError, not raised; None unless `poll` says failed.")
      .def(
          "abort", [](Object& self, std::string reason) { self.room.abort(std::move(reason)); },
          py::arg("reason") = "aborted by the engine",
          "Ends the room as failed; the other side is told. Nothing happens to a room that has concluded.")
      .def(
          "clear", [](Object& self) { self.room.clear(); },
          "Ends the room for the caller; a live one is aborted first. Its number may be used again at once. `poll` "
          "keeps its last answer (failed where the room was live), and `pages_released` stays valid.")
      .def(
          "pages_released", [](const Object& self) { return self.room.pages_released(); },
          "True once no byte of this room's pages can be written (receiver) or read (sender) on its behalf.")
      .def(
          "wait_pages_released",
          [](const Object& self, std::optional<double> timeout) { wait_pages_released(self.room, timeout); },
          py::arg("timeout") = py::none(), "Waits for `pages_released`, `timeout` seconds at most (None: for ever).")
      .def(
          "wait", [](const Object& self, std::optional<double> timeout) { return wait(self.room, timeout); },
          py::arg("timeout") = py::none(),
          "Waits until the room has concluded: returns Poll.success, or raises KVTransferError where it failed and "
          "Timeout after `timeout` seconds (None: for ever).")
      .def(
          "__await__",
          [](const py::object& self) {
            return py::module_::import("kvferry._asyncio").attr("concluded")(self).attr("__await__")();
          },
          "What `wait` says, without blocking the event loop.")
      .def("__repr__", [](const py::object& self) {
        const auto& object = self.cast<const Object&>();
        return "<kvferry." + py::type::of(self).attr("__name__").cast<std::string>() + " room " +
               std::to_string(object.room.room()) + " " + poll_name(object.room.poll()) + ">";
      });
}

}  // namespace

Deadline deadline_of(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  constexpr double longest = 1e9;  // some thirty years: what the clock can count
  const std::chrono::duration<double> wait{std::clamp(*seconds, 0.0, longest)};
  return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(wait);
}

void bind_rooms(py::module_& module) {
  py::class_<SenderObject> sender(module, "Sender", "The prefill side of one room. Made by KvManager.open_sender.");
  bind_common(sender);
  sender
      .def(
          "init",
          [](SenderObject& self, std::uint64_t num_pages, std::optional<std::int32_t> aux_index) {
            check(self.room.init({num_pages, aux_index}));
          },
          py::arg("num_pages"), py::arg("aux_index") = py::none(),
          "Says how much will be sent, once a room.\n\nnum_pages: pages of all chunks together, decode's prefix not "
          "counted. aux_index: item of every aux region that goes with the last chunk.")
      .def(
          "send",
          [](SenderObject& self, const py::object& pages, const py::object& state, const py::object& layers,
             std::optional<std::uint64_t> first_page) {
            const Indices indices(pages);
            check(self.room.send({indices.span(), state_lists(state), layers_of(layers), first_page}));
          },
          py::arg("pages"), py::arg("state") = py::none(), py::arg("layers") = py::none(),
          py::arg("first_page") = py::none(),
          "Sends a chunk. Does not block; the pages may be read until `pages_released`.\n\npages: indices of this "
          "rank's pages in the order of the request's tokens, shape (n,), int32; read before `send` returns, not "
          "copied in Python. state: a list of item indices for each state component, with the last chunk only. "
          "layers: (begin, end) of the model or a range, when not all that are here. first_page: which of the "
          "announced pages pages[0] is, when it is not the next one. Raises Error: 'invalid_argument', 'out_of_range', "
          "'try_later'; nothing was taken then.")
      .def(
          "prefix_pages", [](const SenderObject& self) { return self.room.prefix_pages(); },
          "Pages at the start of the request, of this side's size, that decode holds already; valid from "
          "waiting_for_input.");

  py::class_<ReceiverObject> receiver(module, "Receiver",
                                      "The decode side of one room. Made by KvManager.open_receiver.");
  bind_common(receiver);
  receiver
      .def(
          "init",
          [](ReceiverObject& self, const py::object& pages, std::optional<std::int32_t> aux_index,
             std::uint64_t prefix_pages, const py::object& state) {
            const Indices indices(pages);
            check(self.room.init({indices.span(), aux_index, prefix_pages, state_lists(state)}));
          },
          py::arg("pages"), py::arg("aux_index") = py::none(), py::arg("prefix_pages") = 0,
          py::arg("state") = py::none(),
          "Grants the pages to the sender, once a room.\n\npages: indices of this rank's pages, shape (n,), int32, "
          "where what follows the prefix goes. aux_index: item of every aux region that is written. prefix_pages: "
          "pages at the start of the request that are here already. state: a list of item indices for each state "
          "component.")
      .def(
          "bytes_received", [](const ReceiverObject& self) { return self.room.bytes_received(); },
          "Bytes of the room that are in place.")
      .def(
          "layers_received", [](const ReceiverObject& self) { return self.room.layers_received(); },
          "Layers, from this rank's first on, that are in place for all pages.");
}

}  // namespace kvferry::python
