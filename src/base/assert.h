// KVF_ASSERT guards our own invariants, in release too. What a peer, an engine or the kernel says is never asserted.
#pragma once

namespace kvferry {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line);

// Thrown by KVF_ASSERT; caught once, where a manager's control thread turns: that manager ends, the process does not.
struct AssertionFailed {
  const char* what;
  const char* file;
  int line;
};
}  // namespace kvferry

#define KVF_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::kvferry::assertion_failed(#condition, __FILE__, __LINE__))
