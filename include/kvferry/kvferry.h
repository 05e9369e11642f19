// kvferry: hands the KV cache of a request from the prefill engine that computed it to the decode engine that goes on.
//
// Start with KvManager::create, then Sender (prefill) or Receiver (decode), one a room. Nothing here blocks unless its
// name says wait; nothing here throws. All classes may be used from any thread; one handle from one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvferry/export.h"
#include "kvferry/layout.h"
#include "kvferry/result.h"
#include "kvferry/settings.h"

namespace kvferry {

// "0.1.0"
KVFERRY_API const char* version() noexcept;

enum class Role : std::uint8_t { prefill, decode };

// The state of a room. It only grows, except that `failed` may follow any state but `success`.
enum class Poll : std::uint8_t { failed = 0, bootstrapping = 1, waiting_for_input = 2, transferring = 3, success = 4 };
KVFERRY_API const char* poll_name(Poll state) noexcept;

struct ManagerOptions {
  Role role = Role::prefill;
  Memory memory;
  KvFormat format;
  Parallel parallel;
  Place place;
  std::string instance = {};         // name shared by the ranks of one instance; random when empty
  std::string bootstrap = {};        // prefill: the bootstrap server to register with, "host:port"; none when empty
  std::uint16_t port = 0;            // prefill: where to listen for decode ranks; 0 lets the kernel pick
  std::optional<Settings> settings;  // from the environment when absent
  // Prefill: a JSON object of at most 4 KiB that goes with the registration. kvferry does not look into it; engines
  // read it back from the bootstrap server (docs/reference/http.md).
  std::string attributes = {};
};

namespace runtime {
class Manager;
struct RoomCell;
}  // namespace runtime

// What a sender is told before its first chunk.
struct SenderInit {
  std::uint64_t num_pages = 0;              // pages that will be sent, all chunks together
  std::optional<std::int32_t> aux_index{};  // item of every aux region that goes with the last chunk
};

// One chunk: pages of the request in the order of its tokens, of all layers or of some. The span is copied before
// `send` returns.
struct Chunk {
  std::span<const std::int32_t> pages;  // item indices into every kv region; a page has one index in all layers
  // Items of each state component, sent with the last chunk; empty where there is none.
  std::vector<std::vector<std::int32_t>> state = {};
  std::optional<LayerRange> layers = {};  // of the model; when absent all that this rank holds
  // Which of the announced pages the first of these is; when absent the one behind the furthest that was sent of these
  // layers.
  std::optional<std::uint64_t> first_page = {};
};

struct ReceiverInit {
  std::span<const std::int32_t> pages;      // where the pages after the prefix go; copied before `init` returns
  std::optional<std::int32_t> aux_index{};  // item of every aux region that is written
  std::uint64_t prefix_pages = 0;           // pages at the start of the request that decode holds already
  std::vector<std::vector<std::int32_t>> state = {};
};

// A room as one side sees it. Handles are cheap to move; a handle that is destroyed while its room is live aborts and
// clears the room.
class KVFERRY_API RoomHandle {
 public:
  RoomHandle(RoomHandle&&) noexcept;
  RoomHandle& operator=(RoomHandle&&) noexcept;

  std::uint64_t room() const noexcept;
  // A plain memory read.
  Poll poll() const noexcept;
  // The reason of the first failure, once `poll` says `failed`.
  std::optional<Error> error() const;
  // Ends the room as failed; the other side is told. Nothing happens to a room that has concluded.
  void abort(std::string reason = "aborted by the engine");
  // Ends the room for the caller; a live one is aborted first. The room number may be used again at once. `poll` keeps
  // its last answer (`failed` where the room was live), and `pages_released` stays valid.
  void clear();
  // True once no byte of this room's pages can be written (receiver) or read (sender) any more on its behalf.
  bool pages_released() const noexcept;
  // The blocking form: `timeout` when the pages are not released by then.
  Result<void> wait_pages_released(std::chrono::milliseconds timeout) const;
  // Waits until the room has concluded; `timeout` when it has not by then. For tests and simple engines: others wait
  // for all rooms at once on KvManager::event_fd.
  Result<Poll> wait(std::chrono::milliseconds timeout) const;

 protected:
  RoomHandle(std::shared_ptr<runtime::Manager> manager, std::shared_ptr<runtime::RoomCell> cell);
  ~RoomHandle();
  // Shared with the control thread, which may still write the room's state after the handle is gone.
  std::shared_ptr<runtime::Manager> manager_;
  std::shared_ptr<runtime::RoomCell> cell_;
};

// The prefill side of one room.
class KVFERRY_API Sender : public RoomHandle {
 public:
  // Says how much will be sent; once a room. May come before or after the grants. `num_pages` plus the prefix must
  // equal what decode granted, else the room fails on both sides with `mismatch`. Where decode's pages are the larger
  // ones, its last page may be partly filled; where prefill's are, a page that decode holds in part is sent too.
  Result<void> init(const SenderInit& init);
  // Sends a chunk; chunks may come in any order. The chunk with which all announced pages of all layers have been sent
  // is the last one (an empty one where `num_pages` is 0) and carries aux and state. Errors, none of which takes
  // anything: `invalid_argument` before init, after the last chunk or for pages of layers that were sent already,
  // `out_of_range` for a page outside the regions, more pages than announced or a layer that is not here, `try_later`
  // when too many chunks wait for the grant. The pages may be read until `pages_released`.
  Result<void> send(const Chunk& chunk);
  // Pages at the start of the request, of this side's size, that decode holds already; valid from `waiting_for_input`.
  std::uint64_t prefix_pages() const noexcept;

 private:
  friend class KvManager;
  Sender(std::shared_ptr<runtime::Manager> manager, std::shared_ptr<runtime::RoomCell> cell)
      : RoomHandle(std::move(manager), std::move(cell)) {}
};

// The decode side of one room.
class KVFERRY_API Receiver : public RoomHandle {
 public:
  // Grants the pages to the sender; once a room. May come before the prefill ranks are linked.
  // `out_of_range` for a page, aux or state index outside the regions; `invalid_argument` for a second call.
  Result<void> init(const ReceiverInit& init);
  // Bytes of the room that are in place; grows while `transferring`.
  std::uint64_t bytes_received() const noexcept;
  // Layers, from this rank's first on, that are in place for all pages; they may be read while later ones still come.
  // Grows while `transferring`, where prefill sends by layers; `changed` names the room each time.
  std::uint32_t layers_received() const noexcept;

 private:
  friend class KvManager;
  Receiver(std::shared_ptr<runtime::Manager> manager, std::shared_ptr<runtime::RoomCell> cell)
      : RoomHandle(std::move(manager), std::move(cell)) {}
};

// A room whose state changed, as KvManager::changed hands it out.
struct RoomChange {
  std::uint64_t room = 0;
  Poll state = Poll::bootstrapping;
  bool pages_released = false;
};

// Counters of one manager since its start. The names are those of the metrics.
struct ManagerStats {
  std::uint64_t rooms_live = 0;
  std::uint64_t rooms_succeeded = 0;
  std::uint64_t rooms_failed = 0;
  std::uint64_t bytes = 0;  // payload moved for rooms, sent or received
  std::uint64_t sessions_live = 0;
  std::uint64_t sessions_lost = 0;
  std::uint64_t quarantined_pages = 0;  // pages of ended rooms that are not released yet
  std::uint64_t late_messages = 0;      // messages for an ended transfer, dropped
  std::uint64_t orphan_grants = 0;      // grants that wait for a room nobody opened
  // Bootstrap servers that this manager needs and that do not answer, or (prefill) do not hold its registration. For
  // people: nothing fails of it, linked peers go on, rooms that need a new peer wait.
  std::uint64_t bootstraps_down = 0;
  std::vector<std::string> transports = {};  // of the live sessions, for example "samehost (process_vm_readv)"
};

// One a rank. Owns links, rooms, failure detection and the threads that move bytes. Several managers may live in one
// process. In a forked child every call answers `closed`.
class KVFERRY_API KvManager {
 public:
  // Checks memory, format and settings, finds the local address, listens (prefill) and registers in the background.
  // Errors: `invalid_argument`, `unsupported` (memory kind), `unreachable` (address or port cannot be bound).
  static Result<KvManager> create(ManagerOptions options);
  KvManager(KvManager&&) noexcept;
  KvManager& operator=(KvManager&&) noexcept;
  // Fails the rooms that are live, closes every link, fences every window, joins every thread. Waits for reads of a
  // peer's memory that are under way, since the kernel writes into this side's pages: one that is not served ends with
  // the peer.
  ~KvManager();

  // `already_exists` while the room number is live here; `try_later` at rooms_max; `invalid_argument` for the wrong
  // role.
  Result<Sender> open_sender(std::uint64_t room);
  // `bootstrap` is "host:port" of the prefill instance's bootstrap server ("[v6]:port" and names too);
  // `prefill_dp_rank` the group the balancer chose, else room % dp. An address that cannot be parsed is
  // `invalid_argument`.
  Result<Receiver> open_receiver(const std::string& bootstrap, std::uint64_t room,
                                 std::optional<std::uint32_t> prefill_dp_rank = {});

  // Readable while changed rooms wait to be fetched. Owned by the manager; poll it, do not read or close it.
  int event_fd() const noexcept;
  // Hands over the rooms that changed since the last call, each once, with their state now.
  std::vector<RoomChange> changed();

  // Prefill: where decode ranks reach this manager, "host:port"; empty for decode.
  std::string address() const;
  ManagerStats stats() const;

 private:
  explicit KvManager(std::shared_ptr<runtime::Manager> manager);
  std::shared_ptr<runtime::Manager> manager_;  // shared with the room handles, which may outlive this object
};

// Memory that same-host peers can map: a sealed memfd. Regions inside it are read by plain copies. Move-only; unmapped
// on destruction, so it must outlive the manager that its regions are registered with.
class KVFERRY_API SharedMemory {
 public:
  // `unsupported` where the kernel refuses memfds or has not that much memory.
  static Result<SharedMemory> allocate(std::size_t bytes);
  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  SharedMemory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct BootstrapOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;            // 0 lets the kernel pick; see BootstrapServer::address
  std::optional<Settings> settings;  // from the environment when absent
};

// The HTTP server that tells decode ranks where prefill ranks listen. Holds no request state.
class KVFERRY_API BootstrapServer {
 public:
  // `unreachable` where the address cannot be bound, `unauthorized` for a public one without a token.
  static Result<BootstrapServer> start(BootstrapOptions options);
  BootstrapServer(BootstrapServer&&) noexcept;
  BootstrapServer& operator=(BootstrapServer&&) noexcept;
  ~BootstrapServer();
  // The address that was really bound, "host:port".
  std::string address() const;

 private:
  struct Impl;
  explicit BootstrapServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvferry
