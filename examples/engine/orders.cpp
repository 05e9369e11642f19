#include "engine/orders.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace kvferry::engine {
namespace {

// The members of what travels, once for both directions.
auto members(order::Open& o) { return std::tie(o.key, o.room, o.bootstrap); }
auto members(order::Init& o) { return std::tie(o.key, o.num_pages, o.pages, o.prefix_pages, o.aux); }
auto members(order::Send& o) { return std::tie(o.key, o.pages, o.last_layer); }
auto members(order::Abort& o) { return std::tie(o.key, o.reason); }
auto members(order::Compute& o) { return std::tie(o.runs, o.key, o.pages, o.hold_last_layer); }
auto members(Run& r) { return std::tie(r.tokens, r.from, r.pages); }
auto members(RoomView& v) { return std::tie(v.poll, v.released, v.prefix_pages, v.bytes, v.code, v.text); }
auto members(answer::Ready& a) { return std::tie(a.failed); }
auto members(answer::Room& a) { return std::tie(a.key, a.view); }
auto members(answer::Floats& a) { return std::tie(a.values); }

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      // `members` gives references of one kind; nothing is written through these.
      std::apply([this](auto&... each) { (put(each), ...); }, members(const_cast<T&>(value)));
    }
  }
  void put(const std::string& text) { put_all(text); }
  template <class T>
  void put(const std::vector<T>& values) {
    put_all(values);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class List>
  void put_all(const List& list) {
    put(list.size());
    if constexpr (std::is_trivially_copyable_v<typename List::value_type>) {
      bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(typename List::value_type));
    } else {
      for (const auto& value : list) put(value);
    }
  }
  std::string bytes_{};
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      bytes_.copy(reinterpret_cast<char*>(&value), sizeof value, at_);
      at_ += sizeof value;
    } else {
      std::apply([this](auto&... each) { (get(each), ...); }, members(value));
    }
  }
  void get(std::string& text) { get_all(text); }
  template <class T>
  void get(std::vector<T>& values) {
    get_all(values);
  }

 private:
  template <class List>
  void get_all(List& list) {
    std::size_t size = 0;
    get(size);
    list.resize(size);
    if constexpr (std::is_trivially_copyable_v<typename List::value_type>) {
      at_ += bytes_.copy(reinterpret_cast<char*>(list.data()), size * sizeof(typename List::value_type), at_);
    } else {
      for (auto& value : list) get(value);
    }
  }
  const std::string& bytes_;
  std::size_t at_ = 0;
};

bool write_all(int fd, const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::send(fd, at, size, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

struct Head {
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;
};

template <class Variant>
bool write_frame(int fd, const Variant& value) {
  Writer writer;
  std::visit([&](const auto& one) { writer.put(one); }, value);
  const Head head{static_cast<std::uint32_t>(value.index()), static_cast<std::uint32_t>(writer.bytes().size())};
  return write_all(fd, &head, sizeof head) && write_all(fd, writer.bytes().data(), writer.bytes().size());
}

// The alternative with this number.
template <class Variant, std::size_t I = 0>
Variant make(std::size_t kind) {
  if constexpr (I + 1 < std::variant_size_v<Variant>) {
    if (kind != I) return make<Variant, I + 1>(kind);
  }
  return Variant(std::in_place_index<I>);
}

template <class Variant>
std::optional<Variant> read_frame(int fd) {
  Head head;
  if (!read_all(fd, &head, sizeof head)) return std::nullopt;
  std::string bytes(head.bytes, '\0');
  if (!read_all(fd, bytes.data(), bytes.size())) return std::nullopt;
  Variant value = make<Variant>(head.kind);
  Reader reader(bytes);
  std::visit([&](auto& one) { reader.get(one); }, value);
  return value;
}

}  // namespace

Channel::~Channel() {
  if (fd_ >= 0) ::close(fd_);
}
bool Channel::send(const RankOrder& order) const { return write_frame(fd_, order); }
bool Channel::send(const RankAnswer& answer) const { return write_frame(fd_, answer); }
std::optional<RankOrder> Channel::take_order() const { return read_frame<RankOrder>(fd_); }
std::optional<RankAnswer> Channel::take_answer() const { return read_frame<RankAnswer>(fd_); }
bool Channel::send_floats(std::span<const float> values) const {
  return write_all(fd_, values.data(), values.size_bytes());
}
bool Channel::take_floats(std::span<float> values) const { return read_all(fd_, values.data(), values.size_bytes()); }

}  // namespace kvferry::engine
