// Sanitizers make a run ten times longer, and they look for other things than a thousand seeds more would show.
#pragma once

namespace kvferry::sim {

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool thorough = true;
#else
inline constexpr bool thorough = false;
#endif

}  // namespace kvferry::sim
