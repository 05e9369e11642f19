// The bytes of a connection that are not consumed yet. Doubles only when it is full, so that what it holds is never
// more than twice what has really come, whatever a header claims.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace kvferry::net {

class InputBuffer {
 public:
  std::span<const std::byte> filled() const { return {bytes_.get() + begin_, end_ - begin_}; }
  // Room for at least one byte; moves what is filled to the front, so spans of it end here.
  std::span<std::byte> space() {
    if (begin_ == end_) {
      begin_ = end_ = 0;
      if (capacity_ > bytes_kept_max) resize(bytes_at_start);
    }
    if (capacity_ == 0) resize(bytes_at_start);
    if (capacity_ - end_ < capacity_ / 4 && begin_ != 0) {
      std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ == capacity_) resize(2 * capacity_);
    return {bytes_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t bytes) { end_ += bytes; }
  void consume(std::size_t bytes) { begin_ += bytes; }

 private:
  static constexpr std::size_t bytes_at_start = 64 * 1024;
  static constexpr std::size_t bytes_kept_max = 1024 * 1024;  // above this an empty buffer is given back

  void resize(std::size_t capacity) {
    auto grown = std::make_unique_for_overwrite<std::byte[]>(capacity);
    if (end_ != begin_) std::memcpy(grown.get(), bytes_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    capacity_ = capacity;
    bytes_ = std::move(grown);
  }

  std::unique_ptr<std::byte[]> bytes_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace kvferry::net
