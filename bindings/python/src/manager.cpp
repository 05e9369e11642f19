

#include "binding.h"

namespace kvferry::python {
namespace {

// The manager and the memory it works in, which goes only after the manager's threads have.
class ManagerObject {
 public:
  ManagerObject(KvManager manager, std::vector<MemoryView> views)
      : views_(std::move(views)), manager_(std::move(manager)) {}
  ~ManagerObject() { close(); }

  KvManager& open() {
    if (!manager_) raise({Code::closed, "the manager is closed"});
    return *manager_;
  }
  bool closed() const { return !manager_; }
  void close() {
    std::optional<KvManager> last = std::exchange(manager_, std::nullopt);
    if (!last) return;
    {
      py::gil_scoped_release unlocked;  // joins threads
      last.reset();
    }
    views_.clear();
  }

 private:
  std::vector<MemoryView> views_;
  std::optional<KvManager> manager_;
};

std::unique_ptr<ManagerObject> make_manager(const std::string& role, const py::object& kv, const py::object& format,
                                            const py::object& aux, const py::object& state, const py::object& parallel,
                                            const py::object& place, std::uint32_t first_layer,
                                            const std::string& instance, const std::string& bootstrap,
                                            std::uint16_t port, const std::string& attributes,
                                            const py::object& settings) {
  ManagerOptions options;
  options.role = role_of(role);
  std::vector<MemoryView> views;
  options.memory = memory_of({kv, aux, state, first_layer}, options.role == Role::decode, views);
  options.format = format_of(format);
  options.parallel = parallel_of(parallel);
  options.place = place_of(place);
  options.instance = instance;
  options.bootstrap = bootstrap;
  options.port = port;
  options.attributes = attributes;
  options.settings = settings_of(settings);
  Result<KvManager> made = [&] {
    py::gil_scoped_release unlocked;  // may look names up
    return KvManager::create(std::move(options));
  }();
  return std::make_unique<ManagerObject>(value_of(std::move(made)), std::move(views));
}

py::list changed(ManagerObject& self) {
  const py::object change = py::module_::import("kvferry._types").attr("RoomChange");
  py::list list;
  for (const RoomChange& room : self.open().changed()) {
    list.append(change(room.room, poll_object(room.state), room.pages_released));
  }
  return list;
}

// The server ends with its threads, which is waited for without the interpreter lock.
class ServerObject {
 public:
  explicit ServerObject(BootstrapServer server) : address_(server.address()), server_(std::move(server)) {}
  ~ServerObject() { close(); }
  const std::string& address() const { return address_; }
  void close() {
    std::optional<BootstrapServer> last = std::exchange(server_, std::nullopt);
    py::gil_scoped_release unlocked;
    last.reset();
  }

 private:
  std::string address_;
  std::optional<BootstrapServer> server_;
};

std::unique_ptr<ServerObject> make_server(const std::string& host, std::uint16_t port, const py::object& settings) {
  BootstrapOptions options{host, port, settings_of(settings)};
  Result<BootstrapServer> started = [&] {
    py::gil_scoped_release unlocked;
    return BootstrapServer::start(std::move(options));
  }();
  return std::make_unique<ServerObject>(value_of(std::move(started)));
}

void bind_stats(py::module_& module) {
  py::class_<ManagerStats>(module, "ManagerStats", "Counters of one manager since its start.")
      .def_readonly("rooms_live", &ManagerStats::rooms_live)
      .def_readonly("rooms_succeeded", &ManagerStats::rooms_succeeded)
      .def_readonly("rooms_failed", &ManagerStats::rooms_failed)
      .def_readonly("bytes", &ManagerStats::bytes, "payload moved for rooms, sent or received")
      .def_readonly("sessions_live", &ManagerStats::sessions_live)
      .def_readonly("sessions_lost", &ManagerStats::sessions_lost)
      .def_readonly("quarantined_pages", &ManagerStats::quarantined_pages, "of ended rooms, not released yet")
      .def_readonly("late_messages", &ManagerStats::late_messages, "for an ended transfer, dropped")
      .def_readonly("orphan_grants", &ManagerStats::orphan_grants, "wait for a room that nobody opened")
      .def_readonly("bootstraps_down", &ManagerStats::bootstraps_down,
                    "bootstrap servers this manager needs that do not answer or do not hold its registration")
      .def_readonly("transports", &ManagerStats::transports, "of the live sessions");
}

void bind_server(py::module_& module) {
  py::class_<ServerObject>(module, "BootstrapServer",
                           "The HTTP server that tells decode ranks where prefill ranks listen. Holds no request "
                           "state.\n\nhost, port: where to listen; 0 lets the kernel pick, see `address`.")
      .def(py::init(&make_server), py::arg("host") = "127.0.0.1", py::arg("port") = 0, py::kw_only(),
           py::arg("settings") = py::none())
      .def_property_readonly("address", &ServerObject::address, "\"host:port\" that was really bound.")
      .def("close", &ServerObject::close, "Stops the server. Linked ranks do not notice.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](ServerObject& self, const py::args&) { self.close(); });
}

}  // namespace

void bind_manager(py::module_& module) {
  bind_stats(module);
  bind_server(module);
  py::class_<ManagerObject>(module, "KvManager",
                            "One a rank: owns links, rooms, failure detection and the threads that move bytes. May be "
                            "used from any thread; a room's handle from one thread at a time.")
      .def(py::init(&make_manager), py::arg("role"), py::arg("kv"), py::arg("format"), py::kw_only(),
           py::arg("aux") = py::tuple(), py::arg("state") = py::tuple(), py::arg("parallel") = py::none(),
           py::arg("place") = py::none(), py::arg("first_layer") = 0, py::arg("instance") = "",
           py::arg("bootstrap") = "", py::arg("port") = 0, py::arg("attributes") = "", py::arg("settings") = py::none())
      .def(
          "open_sender",
          [](const py::object& self, std::uint64_t room) {
            return SenderObject{value_of(self.cast<ManagerObject&>().open().open_sender(room)), self};
          },
          py::arg("room"),
          "The prefill side of a room. Raises Error: 'already_exists' while the number is live here, 'try_later' at "
          "rooms_max, 'invalid_argument' on a decode manager.")
      .def(
          "open_receiver",
          [](const py::object& self, const std::string& bootstrap, std::uint64_t room,
             std::optional<std::uint32_t> prefill_dp_rank) {
            return ReceiverObject{
                value_of(self.cast<ManagerObject&>().open().open_receiver(bootstrap, room, prefill_dp_rank)), self};
          },
          py::arg("bootstrap"), py::arg("room"), py::arg("prefill_dp_rank") = py::none(),
          "The decode side of a room.\n\nbootstrap: \"host:port\" of the prefill instance's bootstrap server. "
          "prefill_dp_rank: the group the balancer chose, else room % dp.")
      .def("changed", &changed,
           "Hands over the rooms that changed since the last call, each once, as a list of RoomChange. Not together "
           "with `await` on rooms of the same manager, which fetches them too.")
      .def_property_readonly(
          "event_fd", [](ManagerObject& self) { return self.open().event_fd(); },
          "Readable while changed rooms wait to be fetched. Poll it; do not read or close it.")
      .def_property_readonly(
          "address", [](ManagerObject& self) { return self.open().address(); },
          "Prefill: where decode ranks reach this manager, \"host:port\"; empty for decode.")
      .def(
          "stats", [](ManagerObject& self) { return self.open().stats(); }, "A ManagerStats: counters since its start.")
      .def_property_readonly("closed", &ManagerObject::closed)
      .def("close", &ManagerObject::close,
           "Fails the rooms that are live, closes every link, joins every thread, lets the memory go.")
      .def("__enter__", [](const py::object& self) { return self; })
      .def("__exit__", [](ManagerObject& self, const py::args&) { self.close(); });
}

}  // namespace kvferry::python
